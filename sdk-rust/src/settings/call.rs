//! What is particular to one call through a policy.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::policy::span_text::optional;
use crate::policy::{CallOptions, TimeoutSettings};

/// See [`CallOptions`] for what each means.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CallSettings {
    /// Whose rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How many cells of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub attempt_timeout: Option<Duration>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub total_timeout: Option<Duration>,
}

impl CallSettings {
    pub fn validate(&self) -> Result<(), Error> {
        let attempt = TimeoutSettings { attempt: self.attempt_timeout, total: None };
        attempt.validate().map_err(|error| error.of_field(|_| "attemptTimeout".to_owned()))?;
        let total = TimeoutSettings { attempt: None, total: self.total_timeout };
        total.validate().map_err(|error| error.of_field(|_| "totalTimeout".to_owned()))?;
        match self.cost {
            Some(0) => Err(Error::invalid("cost", "must be at least 1")),
            _ => Ok(()),
        }
    }

    pub fn options(&self) -> CallOptions<'_> {
        let mut options = CallOptions::new();
        options = self.key.as_deref().into_iter().fold(options, CallOptions::key);
        options = self.cost.into_iter().fold(options, CallOptions::cost);
        options = self.partition.as_deref().into_iter().fold(options, CallOptions::partition);
        options = self.attempt_timeout.into_iter().fold(options, CallOptions::attempt_timeout);
        self.total_timeout.into_iter().fold(options, CallOptions::total_timeout)
    }
}
