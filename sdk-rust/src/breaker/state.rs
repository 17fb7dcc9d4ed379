//! What an operator sees of a breaker.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use resil_core::circuit_breaker::Force as CoreForce;
/// Where a breaker stands.
pub use resil_core::circuit_breaker::StateName as State;
use resil_wire::reply::Value;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::limiter::millis;
use crate::settings::moment_text;
use crate::settings::span_text;

/// As it is shown.
mod state_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(state.text())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<State, D::Error> {
        let text = String::deserialize(deserializer)?;
        State::from_text(text.as_bytes()).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no state")))
    }
}

mod optional_state_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(state: &Option<State>, serializer: S) -> Result<S::Ok, S::Error> {
        state.map(State::text).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<State>, D::Error> {
        #[derive(Deserialize)]
        struct Text(#[serde(with = "state_text")] State);
        Ok(Option::<Text>::deserialize(deserializer)?.map(|Text(state)| state))
    }
}

/// Whether every call is admitted, so that nobody has to be asked.
pub(super) fn admits_all(state: State) -> bool {
    matches!(state, State::Closed | State::ForcedClosed | State::Disabled | State::Metrics)
}

/// What an operator can put a breaker into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Force {
    Open,
    Closed,
    Disabled,
    Metrics,
    /// Open for a time, and then half-open: a trip by hand. It needs a duration.
    OpenThenProbe,
    /// By itself again.
    Auto,
}

impl Force {
    pub(crate) fn core(self) -> Option<CoreForce> {
        match self {
            Self::Open => Some(CoreForce::Open),
            Self::Closed => Some(CoreForce::Closed),
            Self::Disabled => Some(CoreForce::Disabled),
            Self::Metrics => Some(CoreForce::Metrics),
            Self::OpenThenProbe => Some(CoreForce::OpenThenProbe),
            Self::Auto => None,
        }
    }
}

/// A change of state that was seen by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    #[serde(with = "state_text")]
    pub previous: State,
    #[serde(with = "state_text")]
    pub new: State,
    /// Of the new state; grows with every transition of the breaker.
    pub generation: u64,
}

/// Everything the server knows about a breaker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Whether anything is stored under its key. A breaker that nobody has reported to, or whose name is mistyped, is closed
    /// and does not exist.
    pub exists: bool,
    #[serde(with = "state_text")]
    pub state: State,
    /// Whether a call would be admitted now.
    pub admits: bool,
    /// `None`: not by itself.
    #[serde(with = "span_text::optional")]
    pub retry_after: Option<Duration>,
    pub generation: u64,
    /// Calls in the window, and of them those that failed and those that were slow.
    pub calls: u64,
    pub failures: u64,
    pub slow: u64,
    pub failure_rate_percent: u64,
    pub slow_rate_percent: u64,
    pub failures_in_a_row: u64,
    /// Trips in a row.
    pub trips: u64,
    pub probes_out: u64,
    /// Successful probes so far.
    pub successes: u64,
    #[serde(with = "moment_text::optional")]
    pub opened_at: Option<SystemTime>,
    pub forced: Option<Forced>,
    pub version: u64,
    /// The options in force, by the names CONFIG has for them.
    #[serde(with = "as_map")]
    pub config: Vec<(String, String)>,
}

/// By whom a state was forced, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Forced {
    pub by: String,
    pub reason: String,
    #[serde(with = "moment_text")]
    pub since: SystemTime,
    /// `None`: until it is lifted.
    #[serde(with = "moment_text::optional")]
    pub until: Option<SystemTime>,
    /// What follows then: closed, or half-open after [`Force::OpenThenProbe`].
    #[serde(with = "optional_state_text")]
    pub ends_in: Option<State>,
}

mod as_map {
    use super::*;

    pub(super) fn serialize<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
    }

    /// In the order they are written.
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Vec<(String, String)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl Snapshot {
    pub(crate) fn read(value: &Value) -> Result<Self, Error> {
        let fields = Fields::of(value)?;
        let state = State::from_text(fields.text("state")?.as_bytes()).ok_or_else(|| unexpected("state"))?;
        let at = |ms: i64| u64::try_from(ms).ok().map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
        let forced = match fields.number("forced_at_ms")? {
            0 => None,
            since_ms => Some(Forced {
                by: fields.text("forced_by")?,
                reason: fields.text("forced_reason")?,
                since: at(since_ms).unwrap_or(UNIX_EPOCH),
                until: at(fields.number("forced_until_ms")?),
                // A server of an earlier version does not say; there all ends in closed.
                ends_in: fields.text("forced_ends_in").ok().and_then(|text| State::from_text(text.as_bytes())),
            }),
        };
        Ok(Self {
            // A server that does not say so is of an earlier version.
            exists: fields.number("exists").map_or(true, |exists| exists == 1),
            state,
            admits: fields.number("admits")? == 1,
            retry_after: millis(fields.number("retry_after_ms")?),
            generation: fields.count("generation")?,
            calls: fields.count("calls")?,
            failures: fields.count("failures")?,
            slow: fields.count("slow")?,
            failure_rate_percent: fields.count("failure_rate_pct")?,
            slow_rate_percent: fields.count("slow_rate_pct")?,
            failures_in_a_row: fields.count("failures_in_a_row")?,
            trips: fields.count("trips")?,
            probes_out: fields.count("probes_out")?,
            successes: fields.count("successes")?,
            opened_at: at(fields.number("opened_at_ms")?).filter(|at| *at > UNIX_EPOCH),
            forced,
            version: fields.count("version")?,
            config: Fields::of(fields.get("config")?)?.texts(),
        })
    }
}

/// A map as it comes: from an older protocol as keys and values in turn.
struct Fields<'a>(Vec<(&'a Value, &'a Value)>);

impl<'a> Fields<'a> {
    fn of(value: &'a Value) -> Result<Self, Error> {
        match value {
            Value::Map(pairs) => Ok(Self(pairs.iter().map(|(name, value)| (name, value)).collect())),
            Value::Array(flat) => Ok(Self(flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect())),
            _ => Err(unexpected("a map")),
        }
    }

    fn get(&self, name: &str) -> Result<&'a Value, Error> {
        let found = self.0.iter().find(|(key, _)| key.text() == Ok(name.as_bytes()));
        found.map(|(_, value)| *value).ok_or_else(|| unexpected(name))
    }

    fn number(&self, name: &str) -> Result<i64, Error> {
        self.get(name)?.integer().map_err(|_| unexpected(name))
    }

    fn count(&self, name: &str) -> Result<u64, Error> {
        u64::try_from(self.number(name)?).map_err(|_| unexpected(name))
    }

    fn text(&self, name: &str) -> Result<String, Error> {
        show(self.get(name)?).ok_or_else(|| unexpected(name))
    }

    fn texts(&self) -> Vec<(String, String)> {
        self.0.iter().filter_map(|(name, value)| Some((show(name)?, show(value)?))).collect()
    }
}

fn show(value: &Value) -> Option<String> {
    match value {
        Value::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

fn unexpected(what: &str) -> Error {
    Error::Internal(format!("the state of a breaker was answered without {what}"))
}
