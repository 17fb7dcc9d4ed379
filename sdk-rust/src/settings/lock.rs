//! A lock, and on which terms it is asked for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::in_camel_case;
use crate::client::Client;
use crate::error::Error;
use crate::health::Away;
use crate::holding::ask::{Claim, Want};
use crate::holding::{Binding, Renewal};
use crate::lock::{self, Lock};
use crate::policy::span_text::optional;

/// See [`Lock`] for what each means, and what holds if it is not said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LockSettings {
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub wait: Option<Duration>,
    /// As one of many readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<String>,
    /// `false`: [`Lock::unbound`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<bool>,
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub grace: Option<Duration>,
    /// `false`: [`Lock::without_watchdog`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// `open` or `closed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_away: Option<Away>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_running_when_lost: Option<bool>,
}

impl LockSettings {
    pub fn validate(&self) -> Result<(), Error> {
        // The name is said when the lock is made.
        self.over(lock::want("any")).check_terms().map_err(in_camel_case)
    }

    /// The lock `name` on these terms, checked.
    pub fn lock(&self, client: &Client, name: &str) -> Result<Lock, Error> {
        let mut lock = client.lock(name);
        lock.want = self.over(lock.want);
        lock.want.check(client.backend()).map_err(in_camel_case)?;
        if let Some(wait) = self.wait {
            lock = lock.wait(wait);
        }
        Ok(if self.keep_running_when_lost == Some(true) { lock.keep_running_when_lost() } else { lock })
    }

    fn over(&self, usual: Want) -> Want {
        Want {
            claim: if self.shared == Some(true) { Claim::Shared } else { usual.claim },
            lease: self.lease.unwrap_or(usual.lease),
            meta: self.meta.as_deref().map(Into::into).or(usual.meta),
            binding: if self.bound == Some(false) { Binding::Unbound } else { usual.binding },
            grace: self.grace.unwrap_or(usual.grace),
            renewal: if self.watchdog == Some(false) { Renewal::ByHand } else { usual.renewal },
            replicas: self.replicas.unwrap_or(usual.replicas),
            away: self.when_away.unwrap_or(usual.away),
            ..usual
        }
    }
}
