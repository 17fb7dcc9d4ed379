//! Whole policies as plain structures, and files of them in JSON and YAML.
//!
//! # What is promised
//! - What was written is read again as the same settings, and written again byte for byte.
//! - Unknown fields are refused. Whatever is wrong is named by its path: `policies.payments.retry.maxAttempts must be from 1
//!   to 100, got 0`.
//! - A file that was checked makes policies: nothing is found to be wrong only later.
//!
//! ```
//! use resil::policy::PolicyFile;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let file = PolicyFile::from_yaml(
//!     "version: 1
//! policies:
//!   payments:
//!     timeout: { attempt: 250ms, total: 2s }
//!     retry: { maxAttempts: 4 }
//!     breaker: { consecutiveFailures: 5 }
//! ",
//! )?;
//! let client = resil::connect("memory://").await?;
//! let payments = file.policy(&client, "payments")?;
//! assert_eq!(payments.name(), "payments");
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::collections::BTreeMap;

use resil_core::policy::{self as schema, Chaos, Document, Invalid, Shedding, Throttle};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::builder::PolicyBuilder;
use super::bulkhead::{BulkheadSettings, LocalBulkhead};
use super::chain::Policy;
use super::fleet::FleetGuard;
use super::hedge::HedgeSettings;
use super::retry::RetrySettings;
use super::stage::Stage;
use super::timeout::TimeoutSettings;
use crate::breaker::BreakerSettings;
use crate::client::Client;
use crate::clock::Clock;
use crate::error::Error;
use crate::health::Away;
use crate::limiter::Limit;
use crate::settings::InPart;
use crate::settings::span_text::check_number;
use crate::shared_bulkhead::SharedBulkheadSettings;

/// The version of files that this reads and writes.
pub const FILE_VERSION: u32 = 1;

fn file_version() -> u32 {
    FILE_VERSION
}

/// A whole policy. What is left out is not there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PolicySettings {
    /// In a file its key by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Another order than the usual one, outermost first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<Stage>>,
    #[serde(skip_serializing_if = "is_default")]
    pub timeout: TimeoutSettings,
    /// Calls in the whole policy at once: 1 to 1,000,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hedge: Option<HedgeSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bulkhead: Option<BulkheadSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_bulkhead: Option<SharedBulkheadSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shedding: Option<Shedding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chaos: Option<Chaos>,
    /// While the server is away: for those of breaker, rate limit and shared bulkhead that do not say (`local` is not for
    /// the last).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_away: Option<Away>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl PolicySettings {
    /// Refuses what is wrong, by its path.
    pub fn validate(&self) -> Result<(), Error> {
        super::stage::arrange(self.order.as_deref(), |stage| self.has(stage))?;
        if self.shedding.is_some() && self.bulkhead.is_none() && self.shared_bulkhead.is_none() {
            return Err(Error::invalid(
                "shedding",
                "needs a bulkhead or a sharedBulkhead: it looks at the places taken",
            ));
        }
        self.validate_stages()
    }

    /// All but the order.
    pub(super) fn validate_stages(&self) -> Result<(), Error> {
        if self.name.as_deref() == Some("") {
            return Err(Error::invalid("name", "must not be empty"));
        }
        self.timeout.validate().in_part("timeout")?;
        check_number("shed", self.shed.unwrap_or(1), 1, 1_000_000)?;
        fn check<T>(part: Option<&T>, name: &str, check: impl FnOnce(&T) -> Result<(), Error>) -> Result<(), Error> {
            part.map_or(Ok(()), check).in_part(name)
        }
        check(self.retry.as_ref(), "retry", RetrySettings::validate)?;
        check(self.hedge.as_ref(), "hedge", HedgeSettings::validate)?;
        check(self.breaker.as_ref(), "breaker", BreakerSettings::validate)?;
        check(self.rate_limit.as_ref(), "rateLimit", Limit::validate)?;
        check(self.bulkhead.as_ref(), "bulkhead", BulkheadSettings::validate)?;
        check(self.shared_bulkhead.as_ref(), "sharedBulkhead", SharedBulkheadSettings::validate)?;
        let Self { throttle, shedding, chaos, .. } = self;
        let new = PolicySettings {
            throttle: throttle.clone(),
            shedding: shedding.clone(),
            chaos: chaos.clone(),
            ..Self::default()
        };
        let tree = serde_json::to_value(&new).map_err(|error| Error::Internal(error.to_string()))?;
        schema::read_parts(tree).map(drop).map_err(invalid)
    }

    pub(super) fn has(&self, stage: Stage) -> bool {
        match stage {
            Stage::Total => self.timeout.total.is_some(),
            Stage::Shed => self.shed.is_some(),
            Stage::Retry => self.retry.is_some(),
            Stage::Hedge => self.hedge.is_some(),
            Stage::Breaker => self.breaker.is_some(),
            Stage::RateLimit => self.rate_limit.is_some(),
            Stage::Bulkhead => self.bulkhead.is_some(),
            Stage::SharedBulkhead => self.shared_bulkhead.is_some(),
            Stage::Attempt => self.timeout.attempt.is_some(),
        }
    }

    /// These, with what they do not say taken from `defaults`: whole stages, and each timeout by itself. A default cannot be
    /// taken away, only replaced (by a retry of one attempt, say).
    pub fn over(&self, defaults: &Self) -> Self {
        fn or<T: Clone>(own: &Option<T>, default: &Option<T>) -> Option<T> {
            own.as_ref().or(default.as_ref()).cloned()
        }
        Self {
            name: self.name.clone(),
            order: or(&self.order, &defaults.order),
            timeout: self.timeout.over(&defaults.timeout),
            shed: self.shed.or(defaults.shed),
            retry: or(&self.retry, &defaults.retry),
            hedge: or(&self.hedge, &defaults.hedge),
            breaker: or(&self.breaker, &defaults.breaker),
            rate_limit: or(&self.rate_limit, &defaults.rate_limit),
            bulkhead: or(&self.bulkhead, &defaults.bulkhead),
            shared_bulkhead: or(&self.shared_bulkhead, &defaults.shared_bulkhead),
            throttle: or(&self.throttle, &defaults.throttle),
            shedding: or(&self.shedding, &defaults.shedding),
            chaos: or(&self.chaos, &defaults.chaos),
            when_away: self.when_away.or(defaults.when_away),
        }
    }
}

/// Policies by name, as they stand in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyFile {
    /// [`FILE_VERSION`], also if it is omitted.
    #[serde(default = "file_version")]
    pub version: u32,
    /// What holds for all that do not say otherwise: see [`PolicySettings::over`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<PolicySettings>,
    pub policies: BTreeMap<String, PolicySettings>,
}

impl PolicyFile {
    /// Refuses what is wrong, by its path.
    pub fn validate(&self) -> Result<(), Error> {
        check_number("version", self.version, FILE_VERSION, FILE_VERSION)?;
        if let Some(defaults) = &self.defaults {
            if defaults.name.is_some() {
                return Err(Error::invalid("defaults.name", "must not be there: each policy has its own"));
            }
            // Stages of the policies may be missing in the order here.
            defaults.validate_stages().in_part("defaults")?;
        }
        for (name, settings) in &self.policies {
            if name.is_empty() {
                return Err(Error::invalid("policies", "must not have an empty name"));
            }
            settings.with_name(name, self.defaults.as_ref()).validate().in_part(&format!("policies.{name}"))?;
        }
        Ok(())
    }

    /// Of a file's text: JSON, or else YAML.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        // Every JSON is YAML, but what is wrong with its keys is better said by its own reader.
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if is_json { Self::from_json(text) } else { Self::from_yaml(text) }
    }

    /// The settings of one policy, with its name and the defaults.
    pub fn settings(&self, name: &str) -> Result<PolicySettings, Error> {
        match self.policies.get(name) {
            Some(settings) => Ok(settings.with_name(name, self.defaults.as_ref())),
            None => {
                let known = self.policies.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                Err(Error::InvalidArgument(format!("there is no policy of the name {name:?}; there are: {known}")))
            }
        }
    }

    /// Makes one of the policies.
    pub fn policy(&self, client: &Client, name: &str) -> Result<Policy, Error> {
        Policy::from_settings(client, &self.settings(name)?).in_part(&format!("policies.{name}"))
    }
}

impl PolicySettings {
    fn with_name(&self, name: &str, defaults: Option<&Self>) -> Self {
        let mut whole = defaults.map_or_else(|| self.clone(), |defaults| self.over(defaults));
        whole.name.get_or_insert_with(|| name.to_owned());
        whole
    }
}

impl Policy {
    /// Makes a policy of settings, which have to say its name.
    pub fn from_settings(client: &Client, settings: &PolicySettings) -> Result<Self, Error> {
        PolicyBuilder::from_settings(client, settings)?.build()
    }

    /// The same without a client, by the machine's clock: refuses what a fleet shares.
    pub fn local(settings: &PolicySettings) -> Result<Self, Error> {
        PolicyBuilder::local(settings, Clock::system())?.build()
    }
}

impl PolicyBuilder {
    /// The same, to add what settings cannot say.
    pub fn from_settings(client: &Client, settings: &PolicySettings) -> Result<Self, Error> {
        let mut builder = Self::by_itself(settings, client.clock())?.client(client);
        let own_name = |own: &Option<String>| own.as_ref().or(settings.name.as_ref()).cloned().unwrap_or_default();
        if let Some(breaker) = &settings.breaker {
            let own = BreakerSettings { when_away: breaker.when_away.or(settings.when_away), ..breaker.clone() };
            builder = builder.breaker(client.breaker(&own_name(&breaker.name), own).in_part("breaker")?);
        }
        if let Some(limit) = &settings.rate_limit {
            let own = Limit { when_away: limit.when_away.or(settings.when_away), ..limit.clone() };
            builder = builder.limiter(client.limiter(&own_name(&limit.name), own).in_part("rateLimit")?);
        }
        if let Some(shared) = &settings.shared_bulkhead {
            let when_away = shared.when_away.or(settings.when_away.filter(|away| *away != Away::Local));
            let (name, own) = (own_name(&shared.name), SharedBulkheadSettings { when_away, ..shared.clone() });
            let bulkhead = client.shared_bulkhead(&name, own).in_part("sharedBulkhead")?;
            builder = builder.shared_bulkhead(bulkhead.labelled(&name));
        }
        Ok(builder)
    }

    /// A stored policy, whose `fleet` does what is shared.
    pub(crate) fn stored(settings: &PolicySettings, fleet: FleetGuard) -> Result<Self, Error> {
        Ok(Self::by_itself(settings, fleet.client().clock())?.fleet(fleet))
    }

    /// The same without a client: refuses what a fleet shares.
    pub fn local(settings: &PolicySettings, clock: Clock) -> Result<Self, Error> {
        let shared =
            [(Stage::Breaker, "breaker"), (Stage::RateLimit, "rateLimit"), (Stage::SharedBulkhead, "sharedBulkhead")];
        if let Some((_, field)) = shared.into_iter().find(|(stage, _)| settings.has(*stage)) {
            return Err(Error::invalid(field, "is shared by a fleet: it needs a client"));
        }
        Ok(Self::by_itself(settings, &clock)?.clock(clock))
    }

    /// Without what a fleet shares.
    fn by_itself(settings: &PolicySettings, clock: &Clock) -> Result<Self, Error> {
        settings.validate()?;
        let Some(name) = settings.name.as_deref() else {
            return Err(Error::invalid("name", "must be there"));
        };
        let bulkhead = settings.bulkhead.as_ref().map(|own| LocalBulkhead::from_settings(name, own, clock.clone()));
        let builder = Self::new(settings.clone());
        Ok(bulkhead.transpose().in_part("bulkhead")?.into_iter().fold(builder, Self::bulkhead))
    }
}

/// Reads and writes as text. What is read goes through the one schema of [`resil_core::policy`], like everywhere.
macro_rules! text_forms {
    ($($type:ident: $document:ty, $read:path, $read_value:path;)*) => {
        $(impl $type {
            pub fn from_json(text: &str) -> Result<Self, Error> {
                $read(text).map_err(invalid).and_then(|document| Self::of(&document))
            }

            pub fn from_yaml(text: &str) -> Result<Self, Error> {
                yaml(text).and_then(|tree| $read_value(tree).map_err(invalid)).and_then(|document| Self::of(&document))
            }

            fn of(document: &$document) -> Result<Self, Error> {
                let settings: Self = plain(document)?;
                settings.validate().map(|()| settings)
            }

            pub fn to_json(&self) -> Result<String, Error> {
                serde_json::to_string_pretty(self).map_err(|error| Error::Internal(error.to_string()))
            }

            pub fn to_yaml(&self) -> Result<String, Error> {
                serde_saphyr::to_string(self).map_err(|error| Error::Internal(error.to_string()))
            }
        })*
    };
}

text_forms! {
    PolicySettings: Document, schema::read, schema::read_value;
    PolicyFile: schema::PolicyFile, schema::read_file, schema::read_file_value;
}

fn invalid(wrong: Invalid) -> Error {
    Error::invalid(wrong.path, wrong.text)
}

/// What was read by the schema, as settings: the same fields by the same names.
fn plain<T: DeserializeOwned>(document: &impl Serialize) -> Result<T, Error> {
    let settings = serde_json::to_value(document).and_then(serde_json::from_value);
    settings.map_err(|error| Error::invalid(schema::WHOLE, error.to_string()))
}

/// What is wrong with the text itself has no field. The rest of its message is a picture of the place in the text.
fn yaml(text: &str) -> Result<serde_json::Value, Error> {
    serde_saphyr::from_str(text).map_err(|error| {
        let message = error.to_string();
        let first = message.lines().next().unwrap_or_default();
        Error::invalid(schema::WHOLE, format!("is not valid: {}", first.strip_prefix("error: ").unwrap_or(first)))
    })
}
