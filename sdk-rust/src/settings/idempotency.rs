//! Work that is done once.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::in_camel_case;
use crate::client::Client;
use crate::error::Error;
use crate::health::Away;
use crate::idempotency::{self, Idempotent, OnCancel, OnLapse, OnLost};
use crate::policy::span_text::optional;

/// See [`IdempotentBuilder`](crate::idempotency::IdempotentBuilder) for what each means, and what holds if it is not said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IdempotencySettings {
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub keep: Option<Duration>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub wait: Option<Duration>,
    /// `run` or `hold`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_lapse: Option<OnLapse>,
    /// `cancel` or `finish`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_lost: Option<OnLost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_on_cancel: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// `open` or `closed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_away: Option<Away>,
}

impl IdempotencySettings {
    pub fn validate(&self) -> Result<(), Error> {
        self.over(idempotency::Settings::default()).check().map_err(in_camel_case)
    }

    /// Work that is done once, on these terms, checked; `name` says what kind of work.
    pub fn idempotent(&self, client: &Client, name: &str) -> Result<Idempotent, Error> {
        let mut builder = client.idempotent(name);
        builder.settings = self.over(builder.settings);
        builder.build().map_err(in_camel_case)
    }

    fn over(&self, usual: idempotency::Settings) -> idempotency::Settings {
        idempotency::Settings {
            lease: self.lease.unwrap_or(usual.lease),
            keep: self.keep.unwrap_or(usual.keep),
            wait: self.wait.unwrap_or(usual.wait),
            on_lapse: self.on_lapse.unwrap_or(usual.on_lapse),
            on_lost: self.on_lost.unwrap_or(usual.on_lost),
            on_cancel: if self.abort_on_cancel == Some(true) { OnCancel::Abort } else { usual.on_cancel },
            replicas: self.replicas.unwrap_or(usual.replicas),
            away: self.when_away.unwrap_or(usual.away),
        }
    }
}
