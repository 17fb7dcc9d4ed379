//! How things are: for readiness probes and dashboards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::backend::WhyAway;
use crate::dead_letters::DeathReason;
use crate::error::Error;
use crate::settings::moment_text;
use crate::telemetry::{Event, Home, Interest, emit};

/// What happens to a call while the server cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Away {
    /// It is let through.
    Open,
    /// It is refused.
    Closed,
    /// It is decided here, by the same state machine in memory. Refused for locks, shared bulkheads and idempotency: two
    /// processes would each think they are alone.
    Local,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Healthy,
    /// Running on its fallback.
    Degraded,
    Unhealthy,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// The worst of all; of the connection itself if nothing was made from it yet.
    pub overall: Status,
    pub policies: BTreeMap<String, Status>,
    /// Why the server is away, if it is: a sentence without addresses or secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when, by this machine's clock.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "moment_text::optional::serialize")]
    pub since: Option<SystemTime>,
}

/// What happens to a client, for those who want it elsewhere than in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The server cannot be reached, or cannot help. The address has no password in it.
    Away { address: String, reason: String },
    /// The server is there, and refuses a command: this user may not run it, or nothing can be written. Once for each command.
    Refused { address: String, reason: String },
    /// The server is used again, or refuses no command any more.
    Back { address: String },
    /// An attempt under a stored policy took longer than its ticket lasts: nobody counted it. Once for each version of the policy.
    Outlived { policy: Arc<str>, took: Duration },
    /// The broker of a source or publisher cannot be reached, or refuses: which queue, stream or table, and where. No password is in it.
    SourceAway { name: Arc<str>, address: String, reason: String },
    /// It is used again.
    SourceBack { name: Arc<str>, address: String },
    /// A message of the worker of this name is dead: the ledger has its error.
    Dead { worker: Arc<str>, id: String, deaths: u32, reason: DeathReason },
    /// The ledger refuses a message of the worker of this name, which stays with its source.
    NotRecorded { worker: Arc<str>, id: String, reason: String },
}

/// What [`ConnectSettings::on_notice`](crate::ConnectSettings::on_notice) takes.
pub(crate) type OnNotice = dyn Fn(&Notice) + Send + Sync;

impl Notice {
    /// Reports it to hooks, and to `on_notice` of the client's settings.
    pub(crate) fn pass_on(&self, home: Home, hear: Option<&OnNotice>) {
        // What the ledger refuses comes again each minute: for the log alone.
        if !matches!(self, Self::NotRecorded { .. }) {
            emit(Interest::Happenings, home, || self.event());
        }
        if let Some(hear) = hear {
            // A fault of the listener is not the client's.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hear(self)));
        }
    }

    fn event(&self) -> Event {
        match self.clone() {
            Self::Away { address, reason } | Self::SourceAway { address, reason, .. } => {
                Event::Away { address, reason }
            }
            Self::Refused { address, reason } => Event::Refused { address, reason },
            Self::NotRecorded { worker, reason, .. } => Event::Refused { address: worker.to_string(), reason },
            Self::Back { address } | Self::SourceBack { address, .. } => Event::Back { address },
            Self::Outlived { policy, took } => Event::Outlived { name: policy, took },
            Self::Dead { worker, id, deaths, reason } => {
                Event::Dead { name: worker, id, deaths, reason: reason.text() }
            }
        }
    }
}

/// So many are shown by their names. The others of a kind are one, `limit:*`: names may be made of ids, and have no end.
const NAMED_MAX: usize = 1_000;

/// What was made from a client, and what each does while the server is away.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    made: Mutex<BTreeMap<Arc<str>, Away>>,
    /// Those that run on something older than what they should, though the server is there.
    outdated: Mutex<BTreeSet<Arc<str>>>,
}

impl Registry {
    /// `name` is made, for example `lock:orders`.
    pub fn add(&self, name: Arc<str>, away: Away) {
        let mut all = self.made.lock();
        if all.len() < NAMED_MAX || all.contains_key(&name) {
            all.insert(name, away);
            return;
        }
        let kind = name.split_once(':').map_or(&*name, |(kind, _)| kind);
        let others = all.entry(format!("{kind}:*").into()).or_insert(away);
        // The worst of them speaks for all.
        if away == Away::Closed {
            *others = away;
        }
    }

    pub fn is_outdated(&self, name: &Arc<str>, is_outdated: bool) {
        let mut outdated = self.outdated.lock();
        if is_outdated {
            outdated.insert(Arc::clone(name));
        } else {
            outdated.remove(name);
        }
    }

    pub fn look(&self, why: Option<WhyAway>) -> Health {
        let is_away = why.is_some();
        let status = |away: &Away| match away {
            _ if !is_away => Status::Healthy,
            Away::Open | Away::Local => Status::Degraded,
            Away::Closed => Status::Unhealthy,
        };
        let mut policies: BTreeMap<String, Status> =
            self.made.lock().iter().map(|(name, away)| (name.to_string(), status(away))).collect();
        for name in self.outdated.lock().iter() {
            let status = policies.entry(name.to_string()).or_insert(Status::Degraded);
            *status = Status::Degraded.max(*status);
        }
        let connection = if is_away { Status::Unhealthy } else { Status::Healthy };
        let overall = policies.values().copied().max().unwrap_or(connection);
        let (reason, since) = why.map(|why| (why.error.why_away(), why.since)).unzip();
        Health { overall, policies, reason, since }
    }
}

impl Away {
    /// For what must not be decided twice: `Local` is refused.
    pub(crate) fn not_local(self, what: &str) -> Result<Self, Error> {
        match self {
            Self::Local => Err(Error::invalid(
                "whenAway",
                format!("cannot be local for {what}: each process would think it is alone; allowed: open, closed"),
            )),
            other => Ok(other),
        }
    }
}
