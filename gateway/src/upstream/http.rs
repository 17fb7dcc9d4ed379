//! Upstreams that speak HTTP. Scheme, host and port are the configuration's; a caller gives a path below the configured one.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tonic::Status;

use super::CallError;
use crate::config::{ConfigError, UpstreamConfig};
use crate::proto::resil::v1::{HttpCall, HttpReply};
use crate::tls::Protocol;

const PATH_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 32 << 10;

/// Fields that belong to one connection, or that the gateway writes itself.
pub(super) const OURS: [&str; 11] = [
    "connection",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
];

pub type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client for upstreams and webhooks.
pub fn build_client(
    path: &str,
    ca_file: Option<&std::path::Path>,
    connect_timeout: std::time::Duration,
) -> Result<HttpClient, ConfigError> {
    let connector = connector(path, ca_file, connect_timeout, Protocol::Http1)?;
    Ok(Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector))
}

/// What opens connections, plain or with TLS as the address says.
pub(super) fn connector(
    path: &str,
    ca_file: Option<&std::path::Path>,
    connect_timeout: std::time::Duration,
    protocol: Protocol,
) -> Result<HttpsConnector<HttpConnector>, ConfigError> {
    let mut plain = HttpConnector::new();
    plain.set_connect_timeout(Some(connect_timeout));
    plain.set_nodelay(true);
    plain.enforce_http(false);
    let tls = crate::tls::client(path, ca_file)?;
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    Ok(match protocol {
        Protocol::Http1 => builder.enable_http1().wrap_connector(plain),
        Protocol::Http2 => builder.enable_http2().wrap_connector(plain),
    })
}

/// A request that was checked.
#[derive(Debug, Clone)]
pub struct RequestParts {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl RequestParts {
    /// May be made twice, by what its method means.
    pub fn is_repeatable(&self) -> bool {
        self.method.is_idempotent()
    }
}

pub struct HttpUpstream {
    client: HttpClient,
    /// Scheme and authority.
    origin: String,
    /// What all paths begin with, without the slash at its end.
    base: String,
    allowed: Vec<String>,
    max_response: usize,
}

impl HttpUpstream {
    pub fn new(path: &str, config: &UpstreamConfig) -> Result<Self, ConfigError> {
        let address: Uri =
            config.address.parse().map_err(|_| ConfigError::new(format!("{path}.address"), "is not an address"))?;
        let (Some(scheme), Some(authority)) = (address.scheme_str(), address.authority()) else {
            return Err(ConfigError::new(format!("{path}.address"), "must have a scheme and a host"));
        };
        Ok(Self {
            client: build_client(&format!("{path}.caFile"), config.ca_file.as_deref(), config.connect_timeout.0)?,
            origin: format!("{scheme}://{authority}"),
            base: address.path().trim_end_matches('/').to_owned(),
            allowed: config.allow.clone(),
            max_response: config.max_response,
        })
    }

    /// What a caller asks for, as a request to this upstream and to no other.
    pub fn request(&self, call: HttpCall) -> Result<RequestParts, Status> {
        let wrong = |what: String| Status::invalid_argument(what);
        let method = match call.method.as_str() {
            "" | "GET" => Method::GET,
            "HEAD" => Method::HEAD,
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            "DELETE" => Method::DELETE,
            "OPTIONS" => Method::OPTIONS,
            _ => return Err(wrong("method must be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS".to_owned())),
        };
        check_path(&call.path).map_err(wrong)?;
        let below = |start: &String| {
            call.path
                .strip_prefix(start.as_str())
                .is_some_and(|rest| start.ends_with('/') || rest.is_empty() || rest.starts_with(['/', '?']))
        };
        if !self.allowed.is_empty() && !self.allowed.iter().any(below) {
            return Err(Status::permission_denied("the configuration does not allow this path"));
        }
        let uri: Uri = format!("{}{}{}", self.origin, self.base, call.path)
            .parse()
            .map_err(|_| wrong("path cannot be used in a request".to_owned()))?;
        Ok(RequestParts { method, uri, headers: headers_of(&call.headers)?, body: call.body })
    }

    /// Any response below 500, but for 429, is a response.
    pub async fn call(&self, parts: &RequestParts, extra: &HeaderMap) -> Result<HttpReply, CallError> {
        let mut request = Request::new(Full::new(parts.body.clone()));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = parts.headers.clone();
        for (name, value) in extra {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        let response = self.client.request(request).await.map_err(|error| match error.is_connect() {
            true => CallError::Unreachable,
            false => CallError::Broken,
        })?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, self.max_response).collect().await.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() { CallError::TooLarge } else { CallError::Broken }
        })?;
        let status = u32::from(head.status.as_u16());
        let reply = HttpReply { status, headers: shown(&head.headers), body: body.to_bytes() };
        if status >= 500 || status == 429 { Err(CallError::Reply(reply)) } else { Ok(reply) }
    }

    /// The status of a plain GET, for health.
    pub async fn probe(&self, path: &str) -> Result<u16, CallError> {
        let call = HttpCall { path: path.to_owned(), ..HttpCall::default() };
        let uri = format!("{}{}{}", self.origin, self.base, call.path).parse().map_err(|_| CallError::Unreachable)?;
        let parts = RequestParts { method: Method::GET, uri, headers: HeaderMap::new(), body: Bytes::new() };
        match self.call(&parts, &HeaderMap::new()).await {
            Ok(reply) | Err(CallError::Reply(reply)) => Ok(u16::try_from(reply.status).unwrap_or(599)),
            Err(error) => Err(error),
        }
    }
}

/// A path that stays below the upstream's.
pub fn check_path(path: &str) -> Result<(), String> {
    let (plain, _) = path.split_once('?').unwrap_or((path, ""));
    if path.len() > PATH_MAX {
        return Err(format!("path must have at most {PATH_MAX} bytes, got {}", path.len()));
    }
    if !plain.starts_with('/') || plain.starts_with("//") {
        return Err("path must begin with exactly one slash".to_owned());
    }
    if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f || byte >= 0x80 || b"\\#".contains(&byte)) {
        return Err("path must be percent-encoded, without spaces, backslashes and fragments".to_owned());
    }
    let decoded = plain.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    // Some servers cut a segment at its semicolon before they resolve it.
    let mut names = decoded.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    if names.any(|name| name == "." || name == "..") {
        return Err("path must have no . or .. segments".to_owned());
    }
    Ok(())
}

fn headers_of(pairs: &HashMap<String, String>) -> Result<HeaderMap, Status> {
    let (mut headers, mut size) = (HeaderMap::new(), 0);
    for (name, value) in pairs {
        size += name.len() + value.len();
        let wrong = || Status::invalid_argument(format!("header {name:?} is not a name and a value that may be sent"));
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        if OURS.contains(&key.as_str()) {
            return Err(wrong());
        }
        headers.insert(key, HeaderValue::from_str(value).map_err(|_| wrong())?);
    }
    if size > HEADERS_MAX {
        return Err(Status::invalid_argument(format!("headers must have at most {HEADERS_MAX} bytes, got {size}")));
    }
    Ok(headers)
}

fn shown(headers: &HeaderMap) -> HashMap<String, String> {
    let mut all = HashMap::new();
    for name in headers.keys().filter(|name| !OURS.contains(&name.as_str())) {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        all.insert(name.as_str().to_owned(), values.collect::<Vec<_>>().join(", "));
    }
    all
}
