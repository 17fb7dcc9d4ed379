//! How much time passes between two events, and how long things last. Few lengths, so that ends coincide.

use proptest::prelude::*;
use proptest::sample::Index;

pub const MS: i64 = 1_000;
pub const SECOND: i64 = 1_000_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;
pub const START: i64 = 1_800_000_000 * SECOND;
pub const JUMP: i64 = MINUTE;
pub const JITTER: i64 = SECOND;

#[derive(Debug, Clone, Copy)]
pub enum Gap {
    None,
    By(i64),
    /// To one of the moments at which something ends, or a microsecond off.
    To(Index, i64),
    /// The clock is set.
    Set(i64),
}

impl Gap {
    pub fn after(self, now: i64, moments: &[i64]) -> i64 {
        match self {
            Self::None => now,
            Self::By(by) | Self::Set(by) => now + by,
            // A clock that only runs ahead does not go back to a moment that has passed; and a forged one may lie where
            // instants end.
            Self::To(which, off) if !moments.is_empty() => {
                (moments[which.index(moments.len())] + off).clamp(now, now + 1_000 * DAY)
            }
            Self::To(..) => now,
        }
    }
}

/// Parts of a whole, from nothing to all of it.
pub type Part = i64;
const WHOLE: Part = 1_000_000;

pub fn part() -> std::ops::RangeInclusive<Part> {
    0..=WHOLE
}

pub fn part_of(most: i64, part: Part) -> i64 {
    (most / WHOLE) * part + most % WHOLE * part / WHOLE
}

pub fn lease(kind: u8, part: Part) -> i64 {
    match kind % 8 {
        0 => 10 * MS,
        1 => SECOND,
        2 => 5 * SECOND,
        3 => 10 * SECOND,
        4 => 30 * SECOND,
        5 => [MINUTE, HOUR, DAY][part as usize % 3],
        _ => 10 * MS + part_of(20 * SECOND, part),
    }
}

pub fn wait(kind: u8, part: Part) -> Option<i64> {
    match kind % 16 {
        0..=3 => None,
        4 => Some(0),
        5..=6 => Some(SECOND),
        7..=8 => Some(5 * SECOND),
        9..=10 => Some(10 * SECOND),
        11 => Some(10 * MINUTE),
        _ => Some(1 + part_of(20 * SECOND, part)),
    }
}

/// How long something is kept: hardly at all, for the time of a schedule, or beyond it.
pub fn ttl(kind: u8, part: Part) -> i64 {
    match kind % 8 {
        0 => 1,
        1 => MS,
        2 => SECOND,
        3 => 5 * SECOND,
        4 => 10 * SECOND,
        5 => [MINUTE, HOUR, DAY][part as usize % 3],
        _ => 1 + part_of(20 * SECOND, part),
    }
}

pub fn gap() -> impl Strategy<Value = Gap> {
    (0..31u8, part(), any::<Index>()).prop_map(|(kind, part, which)| match kind {
        0..=11 => Gap::None,
        12..=20 => Gap::By(1 + part_of(SECOND, part)),
        21..=23 => Gap::By(1 + part_of(15 * SECOND, part)),
        24..=29 => Gap::To(which, part % 3 - 1),
        _ => Gap::By([59 * SECOND, MINUTE, 61 * SECOND, HOUR, 25 * HOUR][part as usize % 5]),
    })
}

/// How the clock is set; mostly it is not.
pub fn clock(often: u8) -> impl Strategy<Value = Option<i64>> {
    (0..=100u8, 0..9u8, part()).prop_map(move |(chance, kind, part)| {
        let set = match kind {
            0..=2 => -part_of(SECOND, part),
            3..=5 => -part_of(30 * SECOND, part),
            6..=7 => -part_of(HOUR, part),
            _ => [-HOUR, -JITTER, -JITTER - 1, HOUR][part as usize % 4],
        };
        (chance > 100 - often).then_some(set)
    })
}

/// What may happen to a server instead of a call; mostly nothing does.
#[derive(Debug, Clone, Copy)]
pub enum Upheaval {
    /// Stored and loaded again.
    Restart,
    /// A replica, whose clock differs by this much, becomes the primary.
    Promote(i64),
    /// The key is deleted, everywhere.
    Delete,
}

pub fn upheaval(often: u8) -> impl Strategy<Value = Option<Upheaval>> {
    (0..=100u8, 0..5u8, part()).prop_map(move |(chance, kind, part)| {
        let what = match kind {
            0..=1 => Upheaval::Restart,
            2..=3 => Upheaval::Promote(part_of(100 * SECOND, part) - 50 * SECOND),
            _ => Upheaval::Delete,
        };
        (chance > 100 - often).then_some(what)
    })
}

/// A clock set back costs at most one lease; a lease alive at a promotion has at least its length from there.
pub fn right_end(end: i64, lease: i64, promoted: Option<i64>, now: i64) -> i64 {
    match promoted.filter(|promoted| *promoted <= now && *promoted < end) {
        _ if end > now + lease + JITTER => now + lease,
        Some(promoted) => end.max(promoted + lease),
        None => end,
    }
}
