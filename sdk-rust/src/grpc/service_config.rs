//! gRPC service configs: which methods are retried or hedged, and how long they may take.
//!
//! The JSON is that of gRFC A6 (retries, hedging, throttling) and A2 (method configs). What it says is checked when it is
//! read, and what is wrong is named by its path (`methodConfig[0].retryPolicy.maxAttempts`). What this crate has no use for
//! (load balancing, message sizes) is passed over, as gRPC itself passes over what it does not know.
//!
//! The most specific name wins: service and method, then the service, then the default (an empty name). A name that stands
//! there twice is refused.
//!
//! ```
//! use resil::grpc::ServiceConfig;
//!
//! let config = ServiceConfig::parse(r#"{
//!     "methodConfig": [{
//!         "name": [{ "service": "shop.v1.Orders" }],
//!         "timeout": "2.5s",
//!         "retryPolicy": {
//!             "maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
//!             "retryableStatusCodes": ["UNAVAILABLE", "DEADLINE_EXCEEDED"]
//!         }
//!     }]
//! }"#)?;
//! let method = config.method("/shop.v1.Orders/Get").unwrap();
//! assert_eq!(method.retry().unwrap().max_attempts, 3);
//! # Ok::<(), resil::Error>(())
//! ```

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::StatusCode;
use crate::error::Error;

/// More attempts than this are this many: a config may come from far away.
pub const ATTEMPTS_MAX: u32 = 5;
/// The most tokens a throttle may have.
pub const TOKENS_MAX: f64 = 1000.0;

/// A whole config.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServiceConfig {
    methods: Vec<MethodConfig>,
    /// Service, then method, to the place in `methods`; an empty text is "any".
    by_name: HashMap<String, HashMap<String, usize>>,
    /// When retries and hedges stop because too much fails.
    pub retry_throttling: Option<RetryThrottling>,
}

/// What applies to some methods.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MethodConfig {
    /// How long a call may take, all attempts together.
    pub timeout: Option<Duration>,
    pub policy: Option<AttemptPolicy>,
}

/// A method is retried or hedged, never both.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AttemptPolicy {
    Retry(RetryPolicy),
    Hedge(HedgingPolicy),
}

#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// With the first; from 2 to [`ATTEMPTS_MAX`].
    pub max_attempts: u32,
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    pub backoff_multiplier: f64,
    /// Never empty.
    pub retryable_status_codes: Vec<StatusCode>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HedgingPolicy {
    /// With the first; from 2 to [`ATTEMPTS_MAX`].
    pub max_attempts: u32,
    /// Zero sends all at once.
    pub hedging_delay: Duration,
    /// After these the other attempts go on; any other error ends the call.
    pub non_fatal_status_codes: Vec<StatusCode>,
}

/// A failure costs a token, a success gives back `token_ratio`. With half of `max_tokens` or less there are no retries.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct RetryThrottling {
    pub max_tokens: f64,
    /// In thousandths; what is finer is cut off.
    pub token_ratio: f64,
}

impl MethodConfig {
    pub fn retry(&self) -> Option<&RetryPolicy> {
        match &self.policy {
            Some(AttemptPolicy::Retry(policy)) => Some(policy),
            _ => None,
        }
    }

    pub fn hedging(&self) -> Option<&HedgingPolicy> {
        match &self.policy {
            Some(AttemptPolicy::Hedge(policy)) => Some(policy),
            _ => None,
        }
    }
}

impl ServiceConfig {
    pub fn parse(json: &str) -> Result<Self, Error> {
        let value: Value = serde_json::from_str(json)
            .map_err(|error| Error::invalid("service config", format!("is not JSON: {error}")))?;
        Self::from_json(&value)
    }

    /// From JSON that was read already.
    pub fn from_json(value: &Value) -> Result<Self, Error> {
        let root = Node { value, path: String::new() };
        let mut config = Self::default();
        for method in root.optional("methodConfig")?.map_or(Ok(Vec::new()), |list| list.items())? {
            let place = config.methods.len();
            config.methods.push(method_config(&method)?);
            for name in method.optional("name")?.map_or(Ok(Vec::new()), |list| list.items())? {
                let part = |field| name.optional(field)?.map_or(Ok(""), |text| text.text());
                let (service, called) = (part("service")?, part("method")?);
                if service.is_empty() && !called.is_empty() {
                    return Err(name.refused("has a method without a service"));
                }
                let methods = config.by_name.entry(service.to_owned()).or_default();
                if methods.insert(called.to_owned(), place).is_some() {
                    return Err(name.refused("is named twice"));
                }
            }
        }
        config.retry_throttling = root.optional("retryThrottling")?.map(|node| retry_throttling(&node)).transpose()?;
        Ok(config)
    }

    /// What applies to the method of this path (`/package.Service/Method`), if anything does.
    pub fn method(&self, path: &str) -> Option<&MethodConfig> {
        self.methods.get(self.place(path)?)
    }

    /// All entries, in their places.
    #[cfg_attr(not(feature = "tonic"), expect(dead_code, reason = "the layer is a feature"))]
    pub(crate) fn method_configs(&self) -> &[MethodConfig] {
        &self.methods
    }

    /// The place of what applies to the method of this path.
    pub(crate) fn place(&self, path: &str) -> Option<usize> {
        let (service, method) = path.strip_prefix('/').unwrap_or(path).split_once('/').unwrap_or((path, ""));
        let of_service = self.by_name.get(service).and_then(|methods| methods.get(method).or_else(|| methods.get("")));
        of_service.or_else(|| self.by_name.get("")?.get("")).copied()
    }
}

fn method_config(node: &Node<'_>) -> Result<MethodConfig, Error> {
    let timeout = node.optional("timeout")?.map(|span| span.duration()).transpose()?;
    let policy = match (node.optional("retryPolicy")?, node.optional("hedgingPolicy")?) {
        (Some(_), Some(_)) => return Err(node.refused("has both retryPolicy and hedgingPolicy; allowed: one of them")),
        (Some(retry), None) => Some(AttemptPolicy::Retry(retry_policy(&retry)?)),
        (None, Some(hedging)) => Some(AttemptPolicy::Hedge(hedging_policy(&hedging)?)),
        (None, None) => None,
    };
    Ok(MethodConfig { timeout, policy })
}

fn retry_policy(node: &Node<'_>) -> Result<RetryPolicy, Error> {
    let codes = node.required("retryableStatusCodes")?;
    let retryable_status_codes = codes.status_codes()?;
    if retryable_status_codes.is_empty() {
        return Err(codes.refused("must name at least one status"));
    }
    Ok(RetryPolicy {
        max_attempts: node.required("maxAttempts")?.attempts()?,
        initial_backoff: node.required("initialBackoff")?.backoff()?,
        max_backoff: node.required("maxBackoff")?.backoff()?,
        backoff_multiplier: node.required("backoffMultiplier")?.above_zero()?,
        retryable_status_codes,
    })
}

fn hedging_policy(node: &Node<'_>) -> Result<HedgingPolicy, Error> {
    Ok(HedgingPolicy {
        max_attempts: node.required("maxAttempts")?.attempts()?,
        hedging_delay: node.optional("hedgingDelay")?.map_or(Ok(Duration::ZERO), |span| span.duration())?,
        non_fatal_status_codes: node
            .optional("nonFatalStatusCodes")?
            .map_or(Ok(Vec::new()), |list| list.status_codes())?,
    })
}

fn retry_throttling(node: &Node<'_>) -> Result<RetryThrottling, Error> {
    let tokens = node.required("maxTokens")?;
    let max_tokens = tokens.above_zero()?;
    if max_tokens > TOKENS_MAX {
        return Err(tokens.refused(&format!("is {max_tokens}; allowed: up to {TOKENS_MAX}")));
    }
    let ratio = node.required("tokenRatio")?;
    let token_ratio = (ratio.above_zero()? * 1000.0).floor() / 1000.0;
    if token_ratio <= 0.0 {
        return Err(ratio.refused("must be at least 0.001"));
    }
    Ok(RetryThrottling { max_tokens, token_ratio })
}

/// A value, and where it stands.
struct Node<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Node<'a> {
    fn refused(&self, reason: &str) -> Error {
        Error::invalid(if self.path.is_empty() { "service config" } else { &self.path }, reason)
    }

    fn object(&self) -> Result<&'a Map<String, Value>, Error> {
        self.value.as_object().ok_or_else(|| self.refused("must be an object"))
    }

    fn child(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// `null` is absent, as in all JSON of protobuf.
    fn optional(&self, field: &str) -> Result<Option<Node<'a>>, Error> {
        let found = self.object()?.get(field).filter(|value| !value.is_null());
        Ok(found.map(|value| Node { value, path: self.child(field) }))
    }

    fn required(&self, field: &str) -> Result<Node<'a>, Error> {
        self.optional(field)?.ok_or_else(|| Error::invalid(self.child(field), "is missing"))
    }

    fn items(&self) -> Result<Vec<Node<'a>>, Error> {
        let list = self.value.as_array().ok_or_else(|| self.refused("must be a list"))?;
        let node = |(index, value)| Node { value, path: format!("{}[{index}]", self.path) };
        Ok(list.iter().enumerate().map(node).collect())
    }

    fn text(&self) -> Result<&'a str, Error> {
        self.value.as_str().ok_or_else(|| self.refused("must be a text"))
    }

    fn above_zero(&self) -> Result<f64, Error> {
        let number = self.value.as_f64().ok_or_else(|| self.refused("must be a number"))?;
        if number > 0.0 && number.is_finite() { Ok(number) } else { Err(self.refused("must be more than zero")) }
    }

    fn attempts(&self) -> Result<u32, Error> {
        let number = self.value.as_f64().filter(|number| number.fract() == 0.0);
        let attempts = number.ok_or_else(|| self.refused("must be a whole number"))?;
        if attempts < 2.0 {
            return Err(self.refused(&format!("is {attempts}; allowed: 2 or more")));
        }
        Ok(if attempts > f64::from(ATTEMPTS_MAX) { ATTEMPTS_MAX } else { attempts as u32 })
    }

    fn backoff(&self) -> Result<Duration, Error> {
        let span = self.duration()?;
        if span.is_zero() { Err(self.refused("must be longer than zero")) } else { Ok(span) }
    }

    /// Decimal seconds with an "s", as protobuf writes durations: "1.5s", ".1s".
    fn duration(&self) -> Result<Duration, Error> {
        let refused = || self.refused("must be seconds with at most nine decimals, for example \"1.5s\"");
        let digits = self.text()?.strip_suffix('s').ok_or_else(refused)?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if !is_number || whole.len() + fraction.len() == 0 || fraction.len() > 9 || fraction.contains('.') {
            return Err(refused());
        }
        let seconds = if whole.is_empty() { Ok(0) } else { whole.parse::<u64>() };
        let nanos = format!("{fraction:0<9}").parse::<u32>();
        match (seconds, nanos) {
            // The longest duration of protobuf: ten thousand years.
            (Ok(seconds @ 0..=315_576_000_000), Ok(nanos)) => Ok(Duration::new(seconds, nanos)),
            _ => Err(refused()),
        }
    }

    fn status_codes(&self) -> Result<Vec<StatusCode>, Error> {
        let mut codes = Vec::new();
        for item in self.items()? {
            let code = match item.value {
                Value::String(name) => StatusCode::ALL.into_iter().find(|code| code.text() == name),
                number => {
                    number.as_u64().and_then(|number| StatusCode::ALL.get(usize::try_from(number).ok()?).copied())
                }
            };
            let code = code.ok_or_else(|| item.refused("is not a status of gRPC"))?;
            if !codes.contains(&code) {
                codes.push(code);
            }
        }
        Ok(codes)
    }
}
