//! How the registered services are, and how all of them are together.
//!
//! # The machine
//! A service has a status once it was found in it. It changes when it was found otherwise `after` times in a row: one probe that fails is not
//! an event. [`Tracker::step`] is all of it.
//!
//! # All of them
//! Unhealthy if any is unhealthy, else degraded if any is degraded, else healthy; nothing registered is healthy.

mod probe;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

pub use self::probe::Prober;
pub use self::report::{HealthEvent, Reporter, Webhooks};
use crate::config::{Config, ProbeKind};
use crate::feed::Feed;
use crate::now_ms;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    Healthy,
    Degraded,
    Unhealthy,
}

impl HealthState {
    pub const ALL: [Self; 3] = [Self::Healthy, Self::Degraded, Self::Unhealthy];

    pub fn text(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// How all of them are together.
pub fn aggregate(states: impl IntoIterator<Item = HealthState>) -> HealthState {
    states.into_iter().max().unwrap_or(HealthState::Healthy)
}

/// What is known of one service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tracker {
    state: Option<HealthState>,
    /// What it was found in last, and how often in a row, while that is another.
    doubted: Option<(HealthState, u32)>,
}

/// A change of one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthChange {
    /// `None`: it is known for the first time.
    pub previous: Option<HealthState>,
    pub state: HealthState,
}

impl Tracker {
    pub fn state(&self) -> Option<HealthState> {
        self.state
    }

    pub fn step(&mut self, found: HealthState, after: u32) -> Option<HealthChange> {
        if self.state == Some(found) {
            self.doubted = None;
            return None;
        }
        let times = match self.doubted {
            Some((doubted, times)) if doubted == found => times + 1,
            _ => 1,
        };
        // The first finding is believed: before it there is nothing to hold on to.
        if self.state.is_some() && times < after {
            self.doubted = Some((found, times));
            return None;
        }
        self.doubted = None;
        Some(HealthChange { previous: self.state.replace(found), state: found })
    }
}

/// What is shown of a service.
#[derive(Debug, Clone)]
pub struct ServiceView {
    pub service: String,
    pub probe: ProbeKind,
    pub state: Option<HealthState>,
    pub since_ms: Option<u64>,
    pub checked_ms: Option<u64>,
    pub detail: String,
}

struct Known {
    tracker: Tracker,
    view: ServiceView,
}

/// All registered services.
pub struct HealthBook {
    services: Mutex<BTreeMap<String, Known>>,
    feed: Arc<Feed>,
    after: u32,
    changed: watch::Sender<u64>,
}

impl HealthBook {
    pub fn new(config: &Config, feed: Arc<Feed>) -> Arc<Self> {
        let known = |(service, own): (&String, &crate::config::ServiceConfig)| {
            let detail = "not looked at yet".to_owned();
            let view = ServiceView {
                service: service.clone(),
                probe: own.probe,
                state: None,
                since_ms: None,
                checked_ms: None,
                detail,
            };
            (service.clone(), Known { tracker: Tracker::default(), view })
        };
        let services = config.services.iter().map(known).collect();
        Arc::new(Self {
            services: Mutex::new(services),
            feed,
            after: config.health.after,
            changed: watch::Sender::new(0),
        })
    }

    pub fn found(&self, service: &str, found: HealthState, detail: &str) {
        let now = now_ms();
        let mut services = self.services.lock();
        let Some(known) = services.get_mut(service) else { return };
        known.view.checked_ms = Some(now);
        known.view.detail = detail.to_owned();
        let Some(change) = known.tracker.step(found, self.after) else { return };
        (known.view.state, known.view.since_ms) = (Some(change.state), Some(now));
        drop(services);
        if let Some(previous) = change.previous {
            tracing::info!(
                service,
                previous = previous.text(),
                state = change.state.text(),
                detail,
                "a service has changed"
            );
            self.feed.tell(
                "health",
                &json!({"service": service, "previous": previous.text(), "status": change.state.text(), "detail": detail, "at": now}),
            );
        }
        self.changed.send_modify(|count| *count += 1);
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub fn views(&self) -> Vec<ServiceView> {
        self.services.lock().values().map(|known| known.view.clone()).collect()
    }

    pub fn overall(&self) -> HealthState {
        aggregate(self.services.lock().values().filter_map(|known| known.view.state))
    }

    pub fn json(&self, is_reporter: bool) -> Value {
        let probe = |kind: ProbeKind| match kind {
            ProbeKind::Grpc => "grpc",
            ProbeKind::Http => "http",
            ProbeKind::Circuit => "circuit",
        };
        let services: Vec<Value> = self
            .views()
            .iter()
            .map(|view| {
                json!({"service": view.service, "status": view.state, "since": view.since_ms, "checkedAt": view.checked_ms,
                    "detail": view.detail, "probe": probe(view.probe)})
            })
            .collect();
        json!({"status": self.overall(), "services": services, "reporter": is_reporter, "time": now_ms()})
    }
}
