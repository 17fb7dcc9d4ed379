//! Values of a configuration: spans with a unit, secrets that are never shown, defaults, and what is checked across fields.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use tracing_subscriber::filter::LevelFilter;

use super::{
    Config, ConfigError, GrpcConfig, HealthConfig, HttpConfig, LimitsConfig, MetricsConfig, ProbeKind, RedisConfig,
    UpstreamKind,
};

/// A duration with a unit: `250ms`, `5s`, `2m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    pub fn read(text: &str) -> Option<Self> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = text[..digits].parse().ok()?;
        let ms = match &text[digits..] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        number.checked_mul(ms).map(|ms| Self(Duration::from_millis(ms)))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("a duration such as \"250ms\" (units: ms, s, m, h), got {text:?}"))
        })
    }
}

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The content of a file, without the line break at its end.
    pub fn read(path: &str, file: &Path) -> Result<Self, ConfigError> {
        match std::fs::read_to_string(file) {
            Ok(text) => Ok(Self(text.trim_end_matches(['\r', '\n']).to_owned())),
            Err(error) => Err(ConfigError::new(path, format!("cannot be read: {error}"))),
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

fn span(seconds: u64) -> Span {
    Span(Duration::from_secs(seconds))
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            instance: None,
            grpc: GrpcConfig::default(),
            http: HttpConfig::default(),
            redis: RedisConfig::default(),
            policies: Default::default(),
            tokens: Vec::new(),
            tls: None,
            mesh: Default::default(),
            upstreams: Default::default(),
            services: Default::default(),
            health: HealthConfig::default(),
            limits: LimitsConfig::default(),
            telemetry: Default::default(),
            metrics: MetricsConfig::default(),
            drain: span(30),
        }
    }
}

impl Default for GrpcConfig {
    fn default() -> Self {
        Self { port: 50_056, max_message: 4 << 20 }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { port: 8_056, hosts: Vec::new() }
    }
}

impl Default for RedisConfig {
    fn default() -> Self {
        let url = Secret::new("redis://127.0.0.1:6379");
        Self { url, url_file: None, command_timeout: Span(Duration::from_millis(500)) }
    }
}

impl Default for HealthConfig {
    fn default() -> Self {
        let issuer = "https://resil-gateway.local".to_owned();
        Self { every: span(5), timeout: span(2), after: 2, webhooks: Vec::new(), issuer }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections: 20_000,
            calls: 2_000,
            api_per_second: 50,
            deadline: span(300),
            head: span(10),
            body: span(30),
            idle: span(300),
            watchers: 1_000,
        }
    }
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { open: true }
    }
}

fn within<T: PartialOrd + std::fmt::Debug>(path: &str, value: T, least: T, most: T) -> Result<(), ConfigError> {
    if value < least || value > most {
        return Err(ConfigError::new(path, format!("must be from {least:?} to {most:?}, got {value:?}")));
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

impl Config {
    /// What fields say about each other.
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("grpc.maxMessage", self.grpc.max_message, 1_024, 64 << 20)?;
        within("limits.connections", self.limits.connections, 1, 1_000_000)?;
        within("limits.calls", self.limits.calls, 1, 1_000_000)?;
        within("limits.apiPerSecond", self.limits.api_per_second, 1, 100_000)?;
        within("limits.watchers", self.limits.watchers, 1, 100_000)?;
        let (ms, minutes) = (Duration::from_millis(1), Duration::from_secs(300));
        within("limits.deadline", self.limits.deadline.0, ms, minutes)?;
        within("limits.head", self.limits.head.0, ms, minutes)?;
        within("limits.body", self.limits.body.0, ms, minutes)?;
        within("limits.idle", self.limits.idle.0, ms, Duration::from_secs(86_400))?;
        self.check_ports()?;
        self.check_redis()?;
        self.check_log_level()?;
        within("redis.commandTimeout", self.redis.command_timeout.0, ms, minutes)?;
        within("drain", self.drain.0, Duration::ZERO, Duration::from_secs(3_600))?;
        within("health.every", self.health.every.0, Duration::from_millis(50), Duration::from_secs(3_600))?;
        within("health.timeout", self.health.timeout.0, ms, minutes)?;
        within("health.after", self.health.after, 1, 100)?;
        self.check_tokens()?;
        self.check_upstreams()?;
        self.check_services()?;
        if self.tokens.is_empty() && self.tls.is_none() && !self.host.is_loopback() {
            // Only loopback would be served, so nobody could reach it.
            tracing::warn!(host = %self.host, "no tokens are configured: only connections from this machine are served");
        }
        Ok(())
    }

    fn check_ports(&self) -> Result<(), ConfigError> {
        if self.grpc.port == self.http.port && self.grpc.port != 0 {
            return Err(ConfigError::new(
                "http.port",
                format!("must be another port than grpc.port, got {}", self.http.port),
            ));
        }
        Ok(())
    }

    fn check_redis(&self) -> Result<(), ConfigError> {
        let scheme = self.redis.url.expose().split_once("://").unwrap_or_default().0;
        match scheme.strip_prefix("redis").map(|rest| rest.strip_prefix('s').unwrap_or(rest)) {
            Some("" | "+cluster" | "+sentinel" | "+unix") => Ok(()),
            _ if ["unix", "memory"].contains(&scheme) => Ok(()),
            _ => {
                let allowed = "redis://, rediss://, redis+cluster://, redis+sentinel://, unix:// or memory://";
                Err(ConfigError::new("redis.url", format!("must begin with {allowed}")))
            }
        }
    }

    /// A word that is no level would be taken for the name of a module, and switch off the lines of all others.
    fn check_log_level(&self) -> Result<(), ConfigError> {
        let Some(given) = &self.telemetry.log_level else { return Ok(()) };
        let is_level = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
        if given.split(',').all(is_level) {
            return Ok(());
        }
        let allowed = "off, error, warn, info, debug or trace, also for a module: \"info,resil=debug\"";
        Err(ConfigError::new("telemetry.logLevel", format!("must be {allowed}; got {given:?}")))
    }

    fn check_tokens(&self) -> Result<(), ConfigError> {
        for (at, token) in self.tokens.iter().enumerate() {
            let path = format!("tokens[{at}]");
            let length = token.token.as_ref().map_or(0, |token| token.expose().len());
            if length < 16 {
                return Err(ConfigError::new(path, format!("must have at least 16 bytes, got {length}")));
            }
            if token.name.is_empty() || token.name.len() > 64 {
                return Err(ConfigError::new(format!("{path}.name"), "must have 1 to 64 bytes"));
            }
            if self.tokens[..at].iter().any(|other| other.token == token.token) {
                return Err(ConfigError::new(path, "is there twice: each token has one role"));
            }
        }
        Ok(())
    }

    fn check_upstreams(&self) -> Result<(), ConfigError> {
        for (name, upstream) in &self.upstreams {
            let path = format!("upstreams.{name}");
            if !is_name(name) {
                return Err(ConfigError::new(path, "must be a name of letters, digits, '-', '_' and '.'"));
            }
            let address: http::Uri = upstream.address.parse().map_err(|_| {
                ConfigError::new(format!("{path}.address"), "is not an address such as http://host:port")
            })?;
            let scheme = address.scheme_str().unwrap_or_default();
            if !["http", "https"].contains(&scheme) || address.host().is_none() {
                return Err(ConfigError::new(
                    format!("{path}.address"),
                    "must begin with http:// or https:// and have a host",
                ));
            }
            if address.authority().is_some_and(|authority| authority.as_str().contains('@')) {
                return Err(ConfigError::new(format!("{path}.address"), "must have no user and no password"));
            }
            if upstream.kind == UpstreamKind::Grpc && address.path().len() > 1 {
                return Err(ConfigError::new(format!("{path}.address"), "of gRPC has no path"));
            }
            if upstream.policy.is_none() && self.policies.default.is_none() {
                return Err(ConfigError::new(format!("{path}.policy"), "is missing, and there is no policies.default"));
            }
            within(&format!("{path}.maxResponse"), upstream.max_response, 1_024, 64 << 20)?;
        }
        Ok(())
    }

    fn check_services(&self) -> Result<(), ConfigError> {
        for (name, service) in &self.services {
            let path = format!("services.{name}");
            let kind = match &service.upstream {
                Some(upstream) => match self.upstreams.get(upstream) {
                    Some(found) => Some(found.kind),
                    None => {
                        return Err(ConfigError::new(
                            format!("{path}.upstream"),
                            format!("{upstream:?} is not one of upstreams"),
                        ));
                    }
                },
                None => None,
            };
            let fits = match (service.probe, kind) {
                (ProbeKind::Grpc, Some(UpstreamKind::Grpc)) | (ProbeKind::Http, Some(UpstreamKind::Http)) => true,
                (ProbeKind::Circuit, upstream) => upstream.is_some() != service.circuit.is_some(),
                _ => false,
            };
            if !fits {
                return Err(ConfigError::new(path, "needs an upstream of the kind of its probe, or a circuit"));
            }
            if service.path.as_ref().is_some_and(|path| !path.starts_with('/')) {
                return Err(ConfigError::new(format!("{path}.path"), "must begin with a slash"));
            }
        }
        Ok(())
    }
}
