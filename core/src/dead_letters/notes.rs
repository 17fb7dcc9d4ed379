//! What a ledger notes for itself: how far it has looked, and what is left to look at. Without its notes it would come to the same
//! replies, and look longer.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::case::Cursor;
use super::request::Place;
use crate::time::Instant;
use crate::waited::End;

/// What is never stored, and what two equal ledgers can differ in.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    /// What died and has not been looked at for alerts.
    pub fresh_deaths: Vec<u64>,
    /// Cases of which something is under way: a redrive, a discard, a redrive that may begin by itself.
    pub active_cases: BTreeSet<u32>,
    /// No lease started later than this, and all have been looked at since that promotion.
    pub newest_lease: Option<Instant>,
    /// While leases are being looked at after a promotion.
    pub lease_mending: Option<LeaseMending>,
    /// No entry waits since later than this.
    pub newest_wait: Option<Instant>,
    /// While a clock that was set back is being put right: up to which arrival that was done, and what is then the newest.
    pub mended: Option<(u64, Option<Instant>)>,
    /// Up to here all entries of these places are held.
    pub held_to: BTreeMap<EndedIn, Cursor>,
    /// Cases that found nothing to redrive by themselves, and the last death when they looked.
    pub looked_for_auto: BTreeMap<u32, Instant>,
    pub promoted_at: Option<Instant>,
    /// While a ledger is read in pieces: what waits, and is not in its index yet. Many are put there at once, which is faster.
    pub loaded: Option<Vec<Cursor>>,
    /// Leases that have ended, and how, of which some entries are still to be put where they belong.
    pub ending: BTreeMap<u64, End>,
    /// How many aggregates are held.
    pub held_aggregates: usize,
}

/// How far it has come to put leases right, in the order of their ends.
#[derive(Debug, Clone)]
pub(super) struct LeaseMending {
    pub promoted_at: Option<Instant>,
    pub to: Option<(Instant, u64)>,
    /// What will be [`Notes::newest_lease`].
    pub newest: Option<Instant>,
}

/// Where entries are that have ended, in the order in which they are purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EndedIn {
    Resolved,
    Archived,
    /// Dead, in this group.
    Group(u32),
}

impl EndedIn {
    pub fn of(place: Place, group: u32) -> Option<Self> {
        match place {
            Place::Resolved => Some(Self::Resolved),
            Place::Archived => Some(Self::Archived),
            Place::Dead => Some(Self::Group(group)),
            Place::Waiting | Place::Taken | Place::Parked => None,
        }
    }
}

impl PartialEq for Notes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Notes {}
