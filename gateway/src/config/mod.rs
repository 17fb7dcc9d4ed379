//! The configuration: a YAML file, and over it the variables of the environment.
//!
//! ```yaml
//! host: 127.0.0.1
//! grpc: { port: 50056 }
//! http: { port: 8056, hosts: [gateway.internal] }
//! redis: { url: "redis://127.0.0.1:6379" }
//! policies: { file: /etc/resilience/policies.yaml }
//! tokens:
//!   - { name: ann, role: govern, tokenFile: /run/secrets/ann }
//! upstreams:
//!   payments: { kind: grpc, address: "http://payments:50051", policy: payments }
//!   catalog: { kind: http, address: "https://catalog.internal/api", policy: default }
//! services:
//!   payments: { probe: grpc, upstream: payments }
//! ```
//!
//! # What holds
//! - A field that is not known, a value out of bounds and a name that leads nowhere are refused before anything is opened; the error has
//!   the path of what is wrong.
//! - A secret is never shown: not in errors, not in logs, not by `Debug`.
//! - A variable with our prefix that is not known is warned of: a misspelt one would else do nothing in silence.

mod env;
mod fields;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

pub use self::env::{Environment, Warnings};
pub use self::fields::{Secret, Span};
use crate::roles::Role;

/// What is wrong with a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub path: String,
    pub reason: String,
}

impl ConfigError {
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.path, self.reason)
    }
}

impl std::error::Error for ConfigError {}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The address that both ports are opened on.
    pub host: IpAddr,
    /// What this gateway is called in events and logs; drawn by default.
    pub instance: Option<String>,
    pub grpc: GrpcConfig,
    pub http: HttpConfig,
    pub redis: RedisConfig,
    pub policies: PoliciesConfig,
    pub tokens: Vec<TokenConfig>,
    pub tls: Option<TlsConfig>,
    pub mesh: MeshConfig,
    pub upstreams: BTreeMap<String, UpstreamConfig>,
    pub services: BTreeMap<String, ServiceConfig>,
    pub health: HealthConfig,
    pub limits: LimitsConfig,
    pub telemetry: TelemetryConfig,
    pub metrics: MetricsConfig,
    /// How long calls in flight are waited for at the end.
    pub drain: Span,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct GrpcConfig {
    pub port: u16,
    /// The largest message, in bytes.
    pub max_message: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct HttpConfig {
    pub port: u16,
    /// Names that browsers may ask for, beside localhost and the bound address.
    pub hosts: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RedisConfig {
    pub url: Secret,
    pub url_file: Option<PathBuf>,
    /// How long one command may take.
    pub command_timeout: Span,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PoliciesConfig {
    /// A file that is read again when it changes. A stored policy of the same name wins.
    pub file: Option<PathBuf>,
    /// The policy of upstreams that name none.
    pub default: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenConfig {
    /// Who has it; appears in the audit.
    pub name: String,
    pub role: Role,
    #[serde(default)]
    pub token: Option<Secret>,
    #[serde(default)]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsConfig {
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
    /// Who signs the certificates of clients. With it every client of the gRPC port must have one.
    #[serde(default)]
    pub client_ca_file: Option<PathBuf>,
    /// Also for the HTTP port.
    #[serde(default)]
    pub require_client_on_http: bool,
    /// The identities of client certificates, and what each may do. Without any, a certificate is let in with the role `operate`.
    #[serde(default)]
    pub identities: Vec<IdentityConfig>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IdentityConfig {
    /// A SPIFFE id, or the beginning of some that ends with `/*`.
    pub spiffe_id: String,
    pub role: Role,
}

/// Who a mesh says that the caller is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MeshConfig {
    /// The header that has it, for example `l5d-client-id` or `x-forwarded-client-cert`.
    pub identity_header: Option<String>,
    /// From which addresses it is believed; loopback by default.
    pub trusted: Vec<IpAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamKind {
    Grpc,
    Http,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpstreamConfig {
    pub kind: UpstreamKind,
    /// `http://` or `https://`, a host, perhaps a port; of HTTP also the beginning of all paths.
    pub address: String,
    /// The policy of calls that name none.
    #[serde(default)]
    pub policy: Option<String>,
    /// Other policies that callers may name; `["*"]`: any.
    #[serde(default)]
    pub allow_policies: Vec<String>,
    /// gRPC: methods that may be called, `package.Service/Method` or `package.Service/*`. HTTP: beginnings of paths. Empty: all.
    #[serde(default)]
    pub allow: Vec<String>,
    /// gRPC: methods that stream. They are refused before the upstream is asked.
    #[serde(default)]
    pub streaming: Vec<String>,
    /// Every call may be made twice: retries also follow failures of which nobody knows what they did.
    #[serde(default)]
    pub repeatable: bool,
    /// How long opening a connection may take.
    #[serde(default = "UpstreamConfig::connect_timeout")]
    pub connect_timeout: Span,
    /// The largest response, in bytes.
    #[serde(default = "UpstreamConfig::max_response")]
    pub max_response: usize,
    /// For https: who signs its certificate, in place of the system's roots.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
}

impl UpstreamConfig {
    fn connect_timeout() -> Span {
        Span(Duration::from_secs(2))
    }

    fn max_response() -> usize {
        4 << 20
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    Grpc,
    Http,
    Circuit,
}

/// A service whose health is looked at.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceConfig {
    pub probe: ProbeKind,
    /// The upstream that is asked, or whose circuit it is.
    #[serde(default)]
    pub upstream: Option<String>,
    /// `circuit` without an upstream: the name of a policy or of a breaker.
    #[serde(default)]
    pub circuit: Option<String>,
    /// `http`: what is asked for; `/health` by default.
    #[serde(default)]
    pub path: Option<String>,
    /// `grpc`: the service that is asked for; all of them by default.
    #[serde(default)]
    pub service: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct HealthConfig {
    pub every: Span,
    pub timeout: Span,
    /// So many findings in a row make a change.
    pub after: u32,
    pub webhooks: Vec<WebhookConfig>,
    /// The `iss` of events.
    pub issuer: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookConfig {
    pub url: Secret,
    /// Sent as `Authorization: Bearer`.
    #[serde(default)]
    pub token: Option<Secret>,
    #[serde(default)]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Connections at once, of each port.
    pub connections: usize,
    /// Calls in flight at once; more are shed.
    pub calls: usize,
    /// Requests of one client to the JSON API, per second.
    pub api_per_second: u32,
    /// The longest deadline that a caller may ask for.
    pub deadline: Span,
    /// How long a client may take for the head of a request, and for a handshake.
    pub head: Span,
    /// How long a client may take for the body of a request, and to read what it is sent.
    pub body: Span,
    /// How long a connection may have no request; before its first one, as long as `head`.
    pub idle: Span,
    /// Watchers of circuits, and readers of `/api/events`, at once.
    pub watchers: usize,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// `trace`, `debug`, `info`, `warn` or `error`, or directives of tracing.
    pub log_level: Option<String>,
    /// `json` (the default) or `text`.
    pub log_format: LogFormat,
    /// Where traces and metrics are sent by OTLP over gRPC; nowhere by default.
    pub otlp_endpoint: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Json,
    Text,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// `/metrics` needs no role.
    pub open: bool,
}

impl Config {
    /// Reads a file and what the environment says over it. Without a file the defaults.
    pub fn read(path: Option<&Path>, environment: &Environment) -> Result<(Self, Warnings), ConfigError> {
        let mut config = match path {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    ConfigError::new(path.display().to_string(), format!("cannot be read: {error}"))
                })?;
                Self::from_text(&text)?
            }
            None => Self::default(),
        };
        let warnings = environment.apply(&mut config)?;
        config.read_secrets()?;
        config.validate()?;
        Ok((config, warnings))
    }

    pub fn from_text(text: &str) -> Result<Self, ConfigError> {
        // An empty file is the defaults.
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        // Without the lines around it: a token or a password may be in them.
        let not_yaml = |error: serde_saphyr::Error| one_line(&error.without_snippet().to_string());
        let value: serde_json::Value = serde_saphyr::from_str(text)
            .map_err(|error| ConfigError::new("document", format!("is not YAML: {}", not_yaml(error))))?;
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            let reason = without_value(&path, error.into_inner().to_string());
            ConfigError::new(path, format!("is wrong: {reason}"))
        })
    }

    pub fn grpc_address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.grpc.port)
    }

    pub fn http_address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.http.port)
    }

    fn read_secrets(&mut self) -> Result<(), ConfigError> {
        if let Some(file) = &self.redis.url_file {
            self.redis.url = Secret::read("redis.urlFile", file)?;
        }
        for (at, token) in self.tokens.iter_mut().enumerate() {
            let path = format!("tokens[{at}]");
            match (&token.token, &token.token_file) {
                (Some(_), None) => {}
                (None, Some(file)) => token.token = Some(Secret::read(&format!("{path}.tokenFile"), file)?),
                _ => return Err(ConfigError::new(path, "needs token or tokenFile, and not both")),
            }
        }
        for (at, hook) in self.health.webhooks.iter_mut().enumerate() {
            if let Some(file) = &hook.token_file {
                hook.token = Some(Secret::read(&format!("health.webhooks[{at}].tokenFile"), file)?);
            }
        }
        Ok(())
    }
}

/// What was found in a place that can hold a secret is not said, only what is expected there.
fn without_value(path: &str, reason: String) -> String {
    let may_be_secret = ["redis", "tokens", "health.webhooks"].iter().any(|secret| path.starts_with(secret));
    match reason.rsplit_once(", expected ") {
        Some((found, expected)) if may_be_secret && found.starts_with("invalid ") => format!("expected {expected}"),
        _ => reason,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
