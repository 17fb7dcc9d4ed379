//! Chaos: calls that fail on purpose, for a time that has an end.
//!
//! Which calls it strikes is decided by the seed and the number of the call alone: the same seed strikes the same calls, so a finding
//! can be repeated. The caller counts its calls.
//!
//! # Invariants
//! - It never strikes at or after `until`, nor a subject that is not named.
//! - Of many calls it strikes `percent` of a hundred.

use alloc::string::String;

use super::document::{Chaos, ChaosKind};
use crate::time::{Instant, Span};

/// What is done to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// It begins late.
    Latency(Span),
    /// It fails at once.
    Error,
    /// It runs, and its reply is lost.
    Drop,
}

impl Strike {
    pub const fn text(self) -> &'static str {
        match self {
            Self::Latency(_) => "latency",
            Self::Error => "error",
            Self::Drop => "drop",
        }
    }
}

impl Chaos {
    /// What is done to call number `call` for `subject`, if anything.
    pub fn strike(&self, subject: &str, call: u64, now: Instant) -> Option<Strike> {
        let is_meant = |subjects: &[String]| subjects.iter().any(|named| named == subject);
        if now >= self.until() || !self.subjects.as_deref().is_none_or(is_meant) {
            return None;
        }
        let struck_ppm = (self.percent() * 10_000.0 + 0.5) as u64;
        let drawn_ppm = ((u128::from(mixed(self.seed(), call)) * 1_000_000) >> 64) as u64;
        (drawn_ppm < struck_ppm).then(|| match self.kind() {
            ChaosKind::Latency => Strike::Latency(self.latency.unwrap_or(Span::ZERO)),
            ChaosKind::Error => Strike::Error,
            ChaosKind::Drop => Strike::Drop,
        })
    }
}

/// SplitMix64: an even 64-bit number for each pair.
fn mixed(seed: u64, call: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_add(call.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
