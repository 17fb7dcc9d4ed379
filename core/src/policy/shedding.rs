//! Shedding by priority: while places are scarce, less important calls are refused first.
//!
//! Each class but the highest has a threshold: the percentage of places taken from which on it is shed. It is admitted again when
//! that falls below the threshold by the hysteresis, so it does not flap at the edge. Critical calls are never shed here.
//!
//! # State
//! How many classes are shed, counted from the lowest. So an inversion cannot be expressed: if a class is shed, every lower one is.
//!
//! # Invariants
//! - `shed <= 4`.
//! - After `observe`, a class whose threshold is reached is shed, and one whose threshold less the hysteresis is not reached is not.

use serde::{Deserialize, Serialize};

use super::document::Shedding;

/// How important a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Background,
    Low,
    #[default]
    Normal,
    High,
    /// Never shed.
    Critical,
}

impl Priority {
    /// The lowest first.
    pub const ALL: [Self; 5] = [Self::Background, Self::Low, Self::Normal, Self::High, Self::Critical];

    pub const fn text(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.text() == text)
    }
}

/// The rules of shedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SheddingRules {
    /// Percent of places taken from which on each class is shed, the lowest first; none is below the one before it.
    pub from_pct: [u32; 4],
    /// Below `from_pct[0]`.
    pub hysteresis_pct: u32,
}

impl Shedding {
    pub fn rules(&self) -> SheddingRules {
        let from_pct = [self.background(), self.low(), self.normal(), self.high()];
        SheddingRules { from_pct, hysteresis_pct: self.hysteresis() }
    }
}

/// Which classes are shed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shedder {
    shed: usize,
}

impl Shedder {
    /// Looks at how many of the places are taken.
    pub fn observe(&mut self, rules: &SheddingRules, taken: u32, places: u32) {
        let is_reached = |pct: u32| u64::from(taken) * 100 >= u64::from(pct) * u64::from(places.max(1));
        while self.shed < rules.from_pct.len() && is_reached(rules.from_pct[self.shed]) {
            self.shed += 1;
        }
        while self.shed > 0 && !is_reached(rules.from_pct[self.shed - 1].saturating_sub(rules.hysteresis_pct)) {
            self.shed -= 1;
        }
    }

    /// Whether calls of this class are refused now.
    pub fn sheds(&self, priority: Priority) -> bool {
        (priority as usize) < self.shed
    }

    /// Looks, and says whether a call of this class is refused.
    #[must_use]
    pub fn refuses(&mut self, rules: &SheddingRules, priority: Priority, taken: u32, places: u32) -> bool {
        self.observe(rules, taken, places);
        self.sheds(priority)
    }
}
