//! Sessions of browsers: a token is shown once, a cookie is kept.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::acts::Body;
use crate::errors::Problem;
use crate::now_ms;
use crate::roles::{COOKIE, Caller, SESSION_MS};
use crate::run::Gateway;

fn session(gateway: &Gateway, role: Option<&str>, name: Option<&str>, csrf: Option<&str>) -> Value {
    let backend = if gateway.config.redis.url.expose().starts_with("memory:") { "memory" } else { "redis" };
    json!({
        "role": role,
        "name": name,
        "csrf": csrf,
        "needsToken": gateway.access.needs_token(),
        "version": env!("CARGO_PKG_VERSION"),
        "instance": gateway.instance,
        "backend": backend,
        "serverNow": now_ms(),
        "draining": gateway.drain.is_draining(),
    })
}

pub async fn show(State(gateway): State<Arc<Gateway>>, caller: Option<Extension<Caller>>) -> axum::Json<Value> {
    let caller = caller.as_ref().map(|Extension(caller)| caller);
    let role = caller.map(|caller| caller.role.text());
    axum::Json(session(
        &gateway,
        role,
        caller.and_then(|caller| caller.name.as_deref()),
        caller.and_then(|caller| caller.csrf.as_deref()),
    ))
}

#[derive(Deserialize)]
pub struct Login {
    token: String,
}

fn with_cookie(gateway: &Gateway, body: Value, cookie: &str, seconds: u64) -> Response {
    let secure = if gateway.config.tls.is_some() { "; Secure" } else { "" };
    let text = format!("{COOKIE}={cookie}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    let mut response = axum::Json(body).into_response();
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
    response
}

pub async fn begin(State(gateway): State<Arc<Gateway>>, Body(login): Body<Login>) -> Result<Response, Problem> {
    let Some((cookie, role, name)) = gateway.access.begin_session(login.token.trim(), now_ms()) else {
        return Err(Problem::unauthenticated());
    };
    let csrf = gateway.access.csrf(&cookie);
    let body = session(&gateway, Some(role.text()), Some(&name), Some(&csrf));
    Ok(with_cookie(&gateway, body, &cookie, SESSION_MS / 1_000))
}

pub async fn end(State(gateway): State<Arc<Gateway>>) -> Response {
    let body = session(&gateway, None, None, None);
    with_cookie(&gateway, body, "", 0)
}
