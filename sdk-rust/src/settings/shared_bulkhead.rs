//! A bulkhead of the fleet that stands by itself, and on which terms it is entered. The one of a policy has longer names:
//! [`policy::SharedBulkheadSettings`](crate::policy::SharedBulkheadSettings).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::in_camel_case;
use crate::client::Client;
use crate::error::Error;
use crate::health::Away;
use crate::holding::Binding;
use crate::holding::ask::{Claim, Want};
use crate::policy::span_text::optional;
use crate::shared_bulkhead::{self, SharedBulkhead};

/// See [`SharedBulkhead`] for what each means, and what holds if it is not said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SharedBulkheadSettings {
    /// How many are inside at once, in the whole fleet.
    pub max: u32,
    /// How many may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    pub wait: Option<Duration>,
    /// 0 is served first, 9 last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    /// `false`: [`SharedBulkhead::unbound`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<bool>,
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    pub grace: Option<Duration>,
    /// `open` or `closed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_away: Option<Away>,
}

impl SharedBulkheadSettings {
    pub fn validate(&self) -> Result<(), Error> {
        self.over(shared_bulkhead::want("any", self.max)).check_terms().map_err(in_camel_case)
    }

    /// The bulkhead `name` on these terms, checked.
    pub fn shared_bulkhead(&self, client: &Client, name: &str) -> Result<SharedBulkhead, Error> {
        let mut bulkhead = client.shared_bulkhead(name, self.max);
        bulkhead = self.queue.into_iter().fold(bulkhead, SharedBulkhead::queue);
        bulkhead = self.priority.into_iter().fold(bulkhead, SharedBulkhead::priority);
        bulkhead = self.wait.into_iter().fold(bulkhead, SharedBulkhead::wait);
        bulkhead.want = self.over(bulkhead.want);
        bulkhead.want.check(client.backend()).map_err(in_camel_case)?;
        Ok(bulkhead)
    }

    fn over(&self, usual: Want) -> Want {
        let claim = match usual.claim {
            Claim::Permit { max, queue, priority } => {
                Claim::Permit { max, queue: self.queue.unwrap_or(queue), priority: self.priority.unwrap_or(priority) }
            }
            other => other,
        };
        Want {
            claim,
            lease: self.lease.unwrap_or(usual.lease),
            binding: if self.bound == Some(false) { Binding::Unbound } else { usual.binding },
            grace: self.grace.unwrap_or(usual.grace),
            away: self.when_away.unwrap_or(usual.away),
            ..usual
        }
    }
}
