//! Variables of the environment, over the file.
//!
//! | variable | field |
//! | --- | --- |
//! | `RESILIENCE_HOST`, `RESILIENCE_PORT` | `host`, `grpc.port` |
//! | `RESILIENCE_HTTP_PORT` | `http.port` |
//! | `RESILIENCE_INSTANCE`, `RESILIENCE_DRAIN` | `instance`, `drain` |
//! | `RESILIENCE_TOKEN` | one more token, named `environment`, with the role `govern` |
//! | `REDIS_URL` | `redis.url` |
//! | `OTEL_EXPORTER_OTLP_ENDPOINT` | `telemetry.otlpEndpoint` |
//! | `LOG_LEVEL` | `telemetry.logLevel` |
//! | `POLICY_CONFIG_PATH` | `policies.file` |
//!
//! Those that may hold a secret (`REDIS_URL`, `RESILIENCE_TOKEN`) are also read from the file that `<NAME>_FILE` names.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Config, ConfigError, Secret, Span, TokenConfig};
use crate::roles::Role;

const PREFIX: &str = "RESILIENCE_";
const KNOWN: [&str; 8] = [
    "RESILIENCE_HOST",
    "RESILIENCE_PORT",
    "RESILIENCE_HTTP_PORT",
    "RESILIENCE_INSTANCE",
    "RESILIENCE_DRAIN",
    "RESILIENCE_TOKEN",
    "RESILIENCE_TOKEN_FILE",
    "RESILIENCE_CONFIG",
];

/// What is odd and does not stop the gateway.
pub type Warnings = Vec<String>;

/// The variables of a process.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    pub fn of_process() -> Self {
        let pairs =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self(pairs.collect())
    }

    pub fn of(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// A variable that is set; an empty one is not.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn secret(&self, name: &str) -> Result<Option<Secret>, ConfigError> {
        let file_name = format!("{name}_FILE");
        match (self.get(name), self.get(&file_name)) {
            (Some(_), Some(_)) => Err(ConfigError::new(name, format!("and {file_name} are both set: choose one"))),
            (Some(value), None) => Ok(Some(Secret::new(value))),
            (None, Some(file)) => Secret::read(&file_name, Path::new(file)).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str, what: &str) -> Result<Option<T>, ConfigError> {
        let parse =
            |value: &str| value.parse().map_err(|_| ConfigError::new(name, format!("must be {what}, got {value:?}")));
        self.get(name).map(parse).transpose()
    }

    pub(super) fn apply(&self, config: &mut Config) -> Result<Warnings, ConfigError> {
        // The seeds' default; in YAML it is written as an address.
        if let Some(host) = self.parsed("RESILIENCE_HOST", "an address such as 0.0.0.0")? {
            config.host = host;
        }
        if let Some(port) = self.parsed("RESILIENCE_PORT", "a port from 0 to 65535")? {
            config.grpc.port = port;
        }
        if let Some(port) = self.parsed("RESILIENCE_HTTP_PORT", "a port from 0 to 65535")? {
            config.http.port = port;
        }
        if let Some(instance) = self.get("RESILIENCE_INSTANCE") {
            config.instance = Some(instance.to_owned());
        }
        if let Some(text) = self.get("RESILIENCE_DRAIN") {
            config.drain = Span::read(text).ok_or_else(|| {
                ConfigError::new("RESILIENCE_DRAIN", format!("must be a duration such as 30s, got {text:?}"))
            })?;
        }
        if let Some(url) = self.secret("REDIS_URL")? {
            (config.redis.url, config.redis.url_file) = (url, None);
        }
        if let Some(token) = self.secret("RESILIENCE_TOKEN")? {
            let name = "environment".to_owned();
            config.tokens.push(TokenConfig { name, role: Role::Govern, token: Some(token), token_file: None });
        }
        if let Some(endpoint) = self.get("OTEL_EXPORTER_OTLP_ENDPOINT") {
            config.telemetry.otlp_endpoint = Some(endpoint.to_owned());
        }
        if let Some(level) = self.get("LOG_LEVEL") {
            config.telemetry.log_level = Some(level.to_owned());
        }
        if let Some(path) = self.get("POLICY_CONFIG_PATH") {
            config.policies.file = Some(path.into());
        }
        let unknown = self.0.keys().filter(|name| name.starts_with(PREFIX) && !KNOWN.contains(&name.as_str()));
        Ok(unknown
            .map(|name| format!("{name} is not a variable of the gateway; known: {}", KNOWN.join(", ")))
            .collect())
    }
}
