//! Admission of requests, and headers of every response.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;

use crate::config::Config;
use crate::errors::Problem;
use crate::identity::Peer;
use crate::roles::{Shown, is_loopback, is_same};
use crate::run::Gateway;
use crate::{now_ms, random_id};

pub const CSRF: &str = "x-resil-csrf";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Clients whose rate is known; beyond it the oldest are forgotten.
const CLIENTS_MAX: usize = 10_000;

/// No script, style or image but our own; no frames; nothing inline; no text that becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; \
                      base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The names by which this gateway may be asked for.
pub struct Hosts {
    names: HashSet<String>,
    has_tls: bool,
    /// Nobody could show who they are: only this machine is served.
    only_loopback: bool,
}

impl Hosts {
    pub fn new(config: &Config, bound: SocketAddr) -> Self {
        let mut names: HashSet<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        names.insert(match bound.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
        names.extend(config.http.hosts.iter().map(|name| name.to_ascii_lowercase()));
        Self {
            names,
            has_tls: config.tls.is_some(),
            only_loopback: config.tokens.is_empty()
                && config.tls.as_ref().is_none_or(|tls| tls.client_ca_file.is_none()),
        }
    }

    /// A page of another name that leads here (DNS rebinding) is not served.
    fn has(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host.as_str(),
        };
        self.names.contains(name)
    }
}

fn host_of(request: &Request) -> Option<&str> {
    let mut named = request.headers().get_all(header::HOST).iter();
    match (named.next(), named.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    }
}

/// Around everything: probes have any host (orchestrators ask by address), the rest has ours.
pub async fn guard(State(hosts): State<Arc<Hosts>>, mut request: Request, next: Next) -> Response {
    let given = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_plain = |id: &&str| {
        (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let id = given.filter(is_plain).map_or_else(random_id, str::to_owned);
    if let Ok(value) = HeaderValue::from_str(&id) {
        request.headers_mut().insert(REQUEST_ID, value);
    }
    let is_probe = matches!(request.uri().path(), "/livez" | "/readyz" | "/health" | "/metrics");
    let is_api = request.uri().path().starts_with("/api/");
    let is_near = request.extensions().get::<Peer>().is_some_and(|peer| is_loopback(peer.address));
    // A target with a host of its own, as proxies get it, has to agree.
    let target = request.uri().authority().map(http::uri::Authority::as_str);
    let is_ours =
        host_of(&request).is_some_and(|host| hosts.has(host) && target.is_none_or(|target| hosts.has(target)));
    let mut response = if hosts.only_loopback && !is_near && !is_probe {
        Problem::unauthenticated().into_response()
    } else if is_probe || is_ours {
        next.run(request).await
    } else {
        let detail = "the Host is not one of this gateway";
        Problem::new(StatusCode::MISDIRECTED_REQUEST, "MISDIRECTED", "Not here", detail).into_response()
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, value);
    }
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=(), payment=(), usb=()");
    if hosts.has_tls {
        set(header::STRICT_TRANSPORT_SECURITY, "max-age=31536000");
    }
    if is_api || is_probe {
        set(header::CACHE_CONTROL, "no-store");
    }
    response
}

/// Around the API: how often, who it is, and whether a change comes from our own page.
pub async fn let_in(State(gateway): State<Arc<Gateway>>, mut request: Request, next: Next) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        return Problem::unauthenticated().into_response();
    };
    // Before anything is compared: tokens are not guessed fast.
    if let Err(wait) = gateway.api_rates.take(peer.address.ip()) {
        let mut problem = Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "RATE_LIMIT_EXCEEDED",
            "Too many requests",
            "this client asks too often",
        );
        (problem.retry_after, problem.is_retryable) = (Some(wait), true);
        return problem.into_response();
    }
    let peer = peer.in_mesh(&gateway.config.mesh, request.headers());
    let caller = gateway.access.caller(&peer, request.headers(), now_ms());
    let path = request.uri().path();
    let is_session = path == "/session" || path == "/session/end" || path.starts_with("/api/session");
    // Without tokens nobody but this machine may even see the login.
    if caller.is_none() && (!is_session || !gateway.access.needs_token()) {
        crate::metrics::UNAUTHENTICATED.fetch_add(1, Relaxed);
        return Problem::unauthenticated().into_response();
    }
    let shown = caller.as_ref().map(|caller| caller.shown);
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let csrf = caller.as_ref().and_then(|caller| caller.csrf.as_deref());
        let has_tls = gateway.config.tls.is_some();
        if let Err(problem) = check_change(request.headers(), has_tls, shown, csrf) {
            return problem.into_response();
        }
    }
    if gateway.drain.is_draining() && request.method() == Method::POST {
        return Problem::from(resil::Error::ShuttingDown).into_response();
    }
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    next.run(request).await
}

/// A change that a browser makes must be meant: from our own page, with the text that only our page can read.
fn check_change(headers: &HeaderMap, has_tls: bool, shown: Option<Shown>, csrf: Option<&str>) -> Result<(), Problem> {
    let is_json = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    });
    if !is_json {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "INVALID_ARGUMENT",
            "Not JSON",
            "Content-Type must be application/json",
        ));
    }
    // What a browser does not send by itself nobody can make it send.
    if matches!(shown, Some(Shown::Token | Shown::Certificate)) && !headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    if let Some(site) = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok())
        && !["same-origin", "none"].contains(&site)
    {
        return Err(Problem::forbidden("this must come from the dashboard's own page"));
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let origin = origin.to_str().unwrap_or_default();
        // A proxy in front may have ended TLS; but a page that came without it cannot be ours if we have it.
        let plain = origin.strip_prefix("http://").filter(|_| !has_tls);
        if plain.or_else(|| origin.strip_prefix("https://")) != Some(host) {
            return Err(Problem::forbidden("this must come from the dashboard's own page"));
        }
    }
    let given = headers.get(CSRF).and_then(|value| value.to_str().ok());
    match (csrf, given) {
        // The login itself: there is no session yet whose text could be sent.
        (None, _) => Ok(()),
        (Some(expected), Some(given)) if is_same(expected, given) => Ok(()),
        _ => Err(Problem::forbidden("the header X-Resil-Csrf is missing or wrong: GET /api/session says it")),
    }
}

/// How often each client asks: a bucket for each address.
pub struct ClientRates {
    per_second: f64,
    clients: Mutex<HashMap<IpAddr, (f64, Instant)>>,
}

impl ClientRates {
    pub fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second), clients: Mutex::default() }
    }

    fn take(&self, client: IpAddr) -> Result<(), std::time::Duration> {
        let now = Instant::now();
        let burst = self.per_second * 4.0;
        let mut clients = self.clients.lock();
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(&client) {
            // Those whose bucket is full again are as if they had never been here.
            clients.retain(|_, (left, at)| *left + now.duration_since(*at).as_secs_f64() * self.per_second < burst);
            if clients.len() >= CLIENTS_MAX {
                clients.clear();
            }
        }
        let (left, at) = clients.entry(client).or_insert((burst, now));
        *left = (*left + now.duration_since(*at).as_secs_f64() * self.per_second).min(burst);
        *at = now;
        if *left < 1.0 {
            return Err(std::time::Duration::from_secs_f64((1.0 - *left) / self.per_second));
        }
        *left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_not_ours_is_not_served() {
        let config = Config {
            http: crate::config::HttpConfig { port: 1, hosts: vec!["Gateway.Internal".into()] },
            ..Config::default()
        };
        let hosts = Hosts::new(&config, "10.1.2.3:8056".parse().unwrap());
        for ours in ["localhost", "localhost:8056", "127.0.0.1:1", "[::1]:8056", "10.1.2.3:8056", "gateway.internal"] {
            assert!(hosts.has(ours), "{ours}");
        }
        for other in ["evil.test", "evil.test:8056", "localhost.evil.test", "127.0.0.1.evil.test:8056", "", "10.1.2.4"]
        {
            assert!(!hosts.has(other), "{other}");
        }
    }

    #[test]
    fn a_client_that_asks_too_often_waits_alone() {
        let rates = ClientRates::new(10);
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let taken = (0..100).filter(|_| rates.take(one).is_ok()).count();
        assert!((40..=42).contains(&taken), "{taken}");
        assert!(rates.take(other).is_ok());
    }
}
