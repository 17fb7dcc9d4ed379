//! The model's alerts: every death is written down, and they are counted anew each time.

use std::collections::{BTreeMap, BTreeSet};

use super::{Model, Said};
use crate::key::MINUTE;

const BUCKET: i64 = 5 * MINUTE;
const DAY_OF_BUCKETS: i64 = 288;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alert {
    pub kind: &'static str,
    pub subject: String,
    pub count: u64,
    pub is_seen: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Alarms {
    pub raised: Vec<Alert>,
    /// The bucket of every death; all are of one type.
    deaths: Vec<i64>,
    since_seen: u64,
    spiked: Option<i64>,
    /// Aggregates whose alert is out.
    alerted: BTreeSet<String>,
    /// Aggregates of what has died since the last look, in the order of their first deaths.
    fresh: Vec<String>,
    /// Of each group.
    pub last_deaths: BTreeMap<String, i64>,
}

impl Alarms {
    pub fn note_death(&mut self, group: &str, aggregate: &str, at: i64) {
        let bucket = at.div_euclid(BUCKET).max(self.deaths.last().copied().unwrap_or(0));
        self.deaths.push(bucket);
        self.since_seen += 1;
        if !self.fresh.iter().any(|of| of == aggregate) {
            self.fresh.push(aggregate.into());
        }
        self.last_deaths.insert(group.into(), at);
    }

    pub fn raise(&mut self, kind: &'static str, subject: impl Into<String>, count: u64) {
        self.raised.push(Alert { kind, subject: subject.into(), count, is_seen: false });
    }
}

impl Model {
    /// How many deaths each aggregate has.
    fn deaths(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for item in self.items.iter().filter(|item| !item.aggregate.is_empty()) {
            *sums.entry(item.aggregate.clone()).or_default() += u64::from(item.deaths);
        }
        sums
    }

    /// Once an aggregate has few deaths again, more of them are an event.
    pub(super) fn forget_alarms(&mut self) {
        let sums = self.deaths();
        self.alarms.alerted.retain(|of| sums.get(of).is_some_and(|sum| *sum >= 3));
    }

    /// After all that had to die has died.
    pub(super) fn look_for_alarms(&mut self) {
        let sums = self.deaths();
        let alarms = &mut self.alarms;
        let fresh = std::mem::take(&mut alarms.fresh);
        let Some(latest) = alarms.deaths.last().copied().filter(|_| !fresh.is_empty()) else { return };
        if alarms.since_seen > 10 && !alarms.raised.iter().any(|alert| alert.kind == "many" && !alert.is_seen) {
            alarms.raise("many", "order", alarms.since_seen);
        }
        let within =
            |buckets: std::ops::Range<i64>| alarms.deaths.iter().filter(|of| buckets.contains(of)).count() as u64;
        let (now, before) = (within(latest..latest + 1), within(latest - DAY_OF_BUCKETS..latest));
        if now as f64 > 10.0 * f64::max(1.0, before as f64 / DAY_OF_BUCKETS as f64) && alarms.spiked != Some(latest) {
            alarms.spiked = Some(latest);
            alarms.raise("spike", "order", now);
        }
        for aggregate in fresh {
            if sums.get(&aggregate).is_some_and(|sum| *sum >= 3) && alarms.alerted.insert(aggregate.clone()) {
                alarms.raise("aggregate", aggregate.clone(), sums[&aggregate]);
            }
        }
    }

    /// Looks at the alert of this number.
    pub fn see(&mut self, number: usize) -> Said {
        let Some(alert) = number.checked_sub(1).and_then(|at| self.alarms.raised.get_mut(at)) else {
            return Said::Was(false);
        };
        let was_seen = std::mem::replace(&mut alert.is_seen, true);
        if alert.kind == "many" && !was_seen {
            self.alarms.since_seen = 0;
        }
        Said::Was(!was_seen)
    }
}
