//! The optional small tier in this process: values that are served without asking anybody, for a short time.
//!
//! It never holds more than its size; the oldest entries go first. It never holds anything beyond what the server said it
//! was fresh for. Of versions it never replaces a newer one with an older one while the newer one lives.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::versioned::version_of;
use crate::clock::Moment;

/// What one handle wants of the tier, which it shares with others: nothing if its ttl is zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Local {
    pub ttl: Duration,
    pub size: usize,
}

#[derive(Debug, Default)]
pub(super) struct LocalTier {
    entries: HashMap<Arc<str>, TierEntry>,
    /// The order of arrival; an entry that was replaced meanwhile is recognised by its number.
    order: VecDeque<(Arc<str>, u64)>,
    last_number: u64,
}

#[derive(Debug, Clone)]
pub(super) struct TierEntry {
    /// `None`: there is no such thing.
    pub content: Option<Bytes>,
    age: Duration,
    seen_at: Moment,
    until: Moment,
    number: u64,
}

impl TierEntry {
    pub fn age(&self, now: Moment) -> Duration {
        self.age + now.saturating_sub(self.seen_at)
    }

    /// For how long it may still be served to a caller that wants this of the tier.
    pub fn left(&self, local: Local, now: Moment) -> Duration {
        let since = now.saturating_sub(self.seen_at);
        self.until.saturating_sub(now).min(local.ttl.saturating_sub(since))
    }
}

/// Whether values carry a version, and from which on they will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Plain,
    AtLeast(u64),
}

impl Rule {
    /// Whether `bytes` will do.
    pub fn takes(self, bytes: &[u8]) -> bool {
        match self {
            Self::Plain => true,
            Self::AtLeast(version) => version_of(bytes).is_some_and(|found| found >= version),
        }
    }
}

impl LocalTier {
    pub fn get(&self, key: &str, rule: Rule, local: Local, now: Moment) -> Option<&TierEntry> {
        // Also for a caller that wants to know sooner than the one that kept it.
        let is_recent = |entry: &&TierEntry| entry.until > now && now.saturating_sub(entry.seen_at) < local.ttl;
        let entry = self.entries.get(key).filter(is_recent)?;
        let will_do = match (&entry.content, rule) {
            (Some(bytes), _) => rule.takes(bytes),
            // That there is nothing has no version.
            (None, Rule::AtLeast(version)) => version == 0,
            (None, Rule::Plain) => true,
        };
        will_do.then_some(entry)
    }

    /// `fresh`: how long the server would still call it fresh.
    #[allow(clippy::too_many_arguments)]
    pub fn keep(
        &mut self,
        key: &Arc<str>,
        rule: Rule,
        local: Local,
        content: Option<Bytes>,
        age: Duration,
        fresh: Duration,
        now: Moment,
    ) {
        let ttl = local.ttl.min(fresh);
        if ttl.is_zero() {
            return;
        }
        if let (Rule::AtLeast(_), Some(TierEntry { content: Some(there), until, .. }), Some(bytes)) =
            (rule, self.entries.get(key), &content)
            && *until > now
            && version_of(there) > version_of(bytes)
        {
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        let entry = TierEntry { content, age, seen_at: now, until: now.saturating_add(ttl), number };
        self.entries.insert(Arc::clone(key), entry);
        self.order.push_back((Arc::clone(key), number));
        while self.entries.len() > local.size
            && let Some((oldest, number)) = self.order.pop_front()
        {
            if self.entries.get(&oldest).is_some_and(|entry| entry.number == number) {
                self.entries.remove(&oldest);
            }
        }
        if self.order.len() > 2 * local.size + 16 {
            let entries = &self.entries;
            self.order.retain(|(key, number)| entries.get(key).is_some_and(|entry| entry.number == *number));
        }
    }

    pub fn forget(&mut self, key: &str) {
        self.entries.remove(key);
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    #[cfg(test)]
    pub fn len(&self) -> (usize, usize) {
        (self.entries.len(), self.order.len())
    }
}

#[cfg(test)]
#[path = "tests/tier.rs"]
mod tests;
