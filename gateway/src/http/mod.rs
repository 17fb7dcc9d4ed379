//! The HTTP port: probes, metrics, the JSON API of docs/gateway-api.md, and the dashboard.
//!
//! # The way of a request
//! `Host` → how often → who is it → (a change: origin, CSRF, content type) → the route, which says the role it needs → headers.
//! The order matters: nothing is looked up for a host that is not ours, and nobody guesses tokens fast.

mod acts;
mod assets;
mod checks;
mod circuits;
mod entries;
mod events;
mod holdings;
mod ledgers;
mod overview;
mod policies;
mod probes;
mod session;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use resil::operator::{KeyRow, RowField};
use serde_json::Value;

pub use self::checks::{ClientRates, Hosts};
pub use self::policies::document_of;
use crate::errors::Problem;
use crate::run::Gateway;

/// The largest body of the API.
pub const BODY_MAX: usize = 256 << 10;

/// What a route returns.
type Reply = Result<axum::Json<Value>, Problem>;

pub fn router(gateway: &Arc<Gateway>, bound: SocketAddr) -> Router {
    let hosts = Arc::new(Hosts::new(&gateway.config, bound));
    let api = Router::new()
        .route("/session", get(session::show).post(session::begin))
        .route("/session/end", post(session::end))
        .route("/overview", get(overview::show))
        .route("/circuits", get(circuits::list))
        .route("/circuits/{key}", get(circuits::show))
        .route("/circuits/{key}/force", post(circuits::force))
        .route("/circuits/{key}/reset", post(circuits::reset))
        .route("/limits", get(overview::limits))
        .route("/limits/peek", get(overview::peek))
        .route("/locks", get(holdings::locks))
        .route("/locks/{key}", get(holdings::lock))
        .route("/locks/{key}/break", post(holdings::break_lock))
        .route("/bulkheads", get(holdings::bulkheads))
        .route("/bulkheads/{key}", get(holdings::bulkhead))
        .route("/work", get(overview::work))
        .route("/runs", get(overview::runs))
        .route("/loads", get(overview::loads))
        .route("/policies", get(policies::list))
        .route("/policies/check", post(policies::check))
        .route("/policies/{name}", get(policies::show).post(policies::set))
        .route("/policies/{name}/versions/{version}", get(policies::show_version))
        .route("/policies/{name}/history", get(policies::history))
        .route("/policies/{name}/diff", post(policies::diff))
        .route("/policies/{name}/rollback", post(policies::rollback))
        .route("/policies/{name}/delete", post(policies::delete))
        .route("/ledgers", get(ledgers::list))
        .route("/ledgers/{key}", get(ledgers::show))
        .route("/ledgers/{key}/groups", get(ledgers::groups))
        .route("/ledgers/{key}/entries", get(entries::list))
        .route("/ledgers/{key}/entries/{id}", get(entries::show))
        .route("/ledgers/{key}/cases", get(ledgers::cases).post(ledgers::diagnose))
        .route("/ledgers/{key}/cases/{case}", get(ledgers::case))
        .route("/ledgers/{key}/cases/{case}/dry-run", post(ledgers::dry_run))
        .route("/ledgers/{key}/cases/{case}/redrive", post(ledgers::redrive))
        .route("/ledgers/{key}/cases/{case}/progress", get(ledgers::progress))
        .route("/ledgers/{key}/cases/{case}/stop", post(ledgers::stop))
        .route("/ledgers/{key}/cases/{case}/close", post(ledgers::close))
        .route("/ledgers/{key}/hold", post(ledgers::hold))
        .route("/ledgers/{key}/pause", post(ledgers::pause))
        .route("/ledgers/{key}/alerts", get(ledgers::alerts))
        .route("/ledgers/{key}/alerts/{alert}/seen", post(ledgers::seen))
        .route("/ledgers/{key}/audit", get(ledgers::audit))
        .route("/alerts", get(ledgers::all_alerts))
        .route("/audit", get(overview::audit))
        .route("/health", get(overview::health))
        .route("/upstreams", get(overview::upstreams))
        .route("/events", get(events::stream))
        .fallback(async || Problem::not_found("route"))
        .method_not_allowed_fallback(async || {
            Problem::new(
                http::StatusCode::METHOD_NOT_ALLOWED,
                "METHOD_NOT_ALLOWED",
                "Method not allowed",
                "this route has another method",
            )
        })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(gateway), checks::let_in));
    Router::new()
        .route("/livez", get(probes::live))
        .route("/readyz", get(probes::ready))
        .route("/health", get(probes::health))
        .route("/metrics", get(probes::metrics))
        .nest("/api", api)
        .fallback(assets::serve)
        .with_state(Arc::clone(gateway))
        .layer(axum::middleware::from_fn_with_state(hosts, checks::guard))
}

/// Names in camelCase, as the API has them: `failure_rate_pct` → `failureRatePct`.
fn camel(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(name, value)| (camel_name(&name), camel(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(camel).collect()),
        other => other,
    }
}

fn camel_name(name: &str) -> String {
    let mut parts = name.split('_');
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.extend(letters);
    }
    camel
}

/// Rows of the SDK, in the names of the API.
fn rows<T: KeyRow>(rows: &[T]) -> Value {
    let field = |(name, field): (&str, RowField<'_>)| {
        let value = match field {
            RowField::Number(number) if name == "policy" => Value::from(number != 0),
            RowField::Number(number) => Value::from(number),
            RowField::Text(text) => Value::from(String::from_utf8_lossy(text)),
            RowField::Nothing => Value::Null,
        };
        (name.to_owned(), value)
    };
    let row = |row: &T| {
        let fields = row.fields().into_iter().map(field);
        camel(Value::Object(fields.chain([("name".to_owned(), Value::from(row.name()))]).collect()))
    };
    rows.iter().map(row).collect()
}

fn shown<T: serde::Serialize>(value: &T) -> Result<Value, Problem> {
    serde_json::to_value(value).map_err(|_| Problem::from(resil::Error::Internal("not JSON".to_owned())))
}
