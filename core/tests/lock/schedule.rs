//! Random schedules: what happens, and how much later. Few owners, so that they get into each other's way.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::key::{HOUR, MINUTE, MS, SECOND};

#[derive(Debug, Clone, Copy)]
pub enum Gap {
    None,
    By(i64),
    /// To one of the moments at which something ends, or a microsecond off.
    To(Index, i64),
    /// The clock is set.
    Set(i64),
}

/// The fence a call names.
#[derive(Debug, Clone, Copy)]
pub enum Named {
    Nothing,
    /// Of the present holding.
    Own,
    /// Of some earlier grant, to whomever.
    Earlier(Index),
    Unknown(u64),
}

#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub owner: u8,
    /// In a lock: as a reader.
    pub reads: bool,
    /// In a bulkhead.
    pub max: u32,
    pub priority: u8,
    pub lease: i64,
    pub wait: Option<i64>,
    pub most: usize,
    pub meta: bool,
    pub bind_to: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub enum What {
    Acquire(Request),
    Renew {
        owner: u8,
        fence: Named,
        lease: i64,
    },
    Release {
        owner: u8,
        fence: Named,
    },
    Break,
    Close(u8, Named),
    /// With this grace, and after the connection has been closed for this long.
    Cut(u8, Named, i64, i64),
    TakeBack(u8, Named),
    /// To this long from now.
    Extend(u8, Named, i64),
    Leave(Index),
    Tick,
    GiveUp,
    Restart,
    /// The new primary's clock differs by this much.
    Promote(i64),
    Delete,
}

#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub gap: Gap,
    pub what: What,
}

/// Parts of a whole, from nothing to all of it.
type Part = i64;
const WHOLE: Part = 1_000_000;

fn part() -> std::ops::RangeInclusive<Part> {
    0..=WHOLE
}

fn part_of(most: i64, part: Part) -> i64 {
    (most / WHOLE) * part + most % WHOLE * part / WHOLE
}

fn lease(kind: u8, part: Part) -> i64 {
    match kind {
        0 => 10 * MS,
        1 => SECOND,
        2 => 5 * SECOND,
        3 => 10 * SECOND,
        4 => 30 * SECOND,
        5 => [MINUTE, HOUR, 24 * HOUR][part as usize % 3],
        _ => 10 * MS + part_of(20 * SECOND, part),
    }
}

fn wait(kind: u8, part: Part) -> Option<i64> {
    match kind {
        0..=3 => None,
        4 => Some(0),
        5..=6 => Some(SECOND),
        7..=8 => Some(5 * SECOND),
        9..=10 => Some(10 * SECOND),
        11 => Some(10 * MINUTE),
        _ => Some(1 + part_of(20 * SECOND, part)),
    }
}

pub fn request() -> impl Strategy<Value = Request> {
    let who = (0..6u8, any::<bool>(), 1..=4u32, 0..5usize);
    let how = ((0..8u8, part()), (0..16u8, part()), 0..6usize, any::<bool>(), 0..4u64);
    (who, how).prop_map(|((owner, reads, max, priority), (leases, waits, most, meta, bind_to))| Request {
        owner,
        reads,
        max,
        priority: [5, 5, 5, 0, 9][priority],
        lease: lease(leases.0, leases.1),
        wait: wait(waits.0, waits.1),
        most,
        meta,
        bind_to: Some(bind_to).filter(|client| *client > 0),
    })
}

fn named(kind: u8, which: Index) -> Named {
    match kind {
        0..=3 => Named::Nothing,
        4..=7 => Named::Own,
        8..=9 => Named::Earlier(which),
        _ => Named::Unknown(which.index(usize::MAX) as u64),
    }
}

fn gap() -> impl Strategy<Value = Gap> {
    (0..31u8, part(), any::<Index>()).prop_map(|(kind, part, which)| match kind {
        0..=11 => Gap::None,
        12..=20 => Gap::By(1 + part_of(SECOND, part)),
        21..=23 => Gap::By(1 + part_of(15 * SECOND, part)),
        24..=29 => Gap::To(which, part % 3 - 1),
        _ => Gap::By([59 * SECOND, MINUTE, 61 * SECOND, HOUR, 25 * HOUR][part as usize % 5]),
    })
}

/// How the clock is set; mostly it is not.
fn clock(often: u8) -> impl Strategy<Value = Option<i64>> {
    (0..=100u8, 0..9u8, part()).prop_map(move |(chance, kind, part)| {
        let set = match kind {
            0..=2 => -part_of(SECOND, part),
            3..=5 => -part_of(30 * SECOND, part),
            6..=7 => -part_of(HOUR, part),
            _ => [-HOUR, -SECOND, -SECOND - 1, HOUR][part as usize % 4],
        };
        (chance > 100 - often).then_some(set)
    })
}

/// What may come instead of a call; mostly nothing does.
fn upheaval(often: u8) -> impl Strategy<Value = Option<What>> {
    (0..=100u8, 0..5u8, part()).prop_map(move |(chance, kind, part)| {
        let what = match kind {
            0..=1 => What::Restart,
            2..=3 => What::Promote(part_of(100 * SECOND, part) - 50 * SECOND),
            _ => What::Delete,
        };
        (chance > 100 - often).then_some(what)
    })
}

// One flat tuple of numbers, not a union of strategies: there are hundreds of thousands of them.
fn call() -> impl Strategy<Value = What> {
    (0..100u8, request(), 0..11u8, any::<Index>(), part()).prop_map(|(kind, request, fence, which, part)| {
        let Request { owner, lease, .. } = request;
        let fence = named(fence, which);
        match kind {
            0..=50 => What::Acquire(request),
            51..=66 => What::Release { owner, fence },
            67..=74 => What::Renew { owner, fence, lease },
            75..=80 => What::Leave(which),
            81..=86 => What::Tick,
            87..=90 => What::Extend(owner, fence, part_of(41 * SECOND, part) - SECOND),
            91..=92 => What::Close(owner, fence),
            93..=95 => What::Cut(owner, fence, 1 + part_of(20 * SECOND, part), lease % (2 * SECOND)),
            96 => What::TakeBack(owner, fence),
            97..=98 => What::GiveUp,
            _ => What::Break,
        }
    })
}

fn event(clock_often: u8, upheaval_often: u8) -> impl Strategy<Value = Event> {
    let parts = (gap(), call(), clock(clock_often), upheaval(upheaval_often));
    parts.prop_map(|(gap, call, clock, upheaval)| Event {
        gap: clock.map_or(gap, Gap::Set),
        what: upheaval.unwrap_or(call),
    })
}

const STEPS: std::ops::RangeInclusive<usize> = 200..=220;

/// One server, whose clock only runs ahead.
pub fn calm() -> impl Strategy<Value = Vec<Event>> {
    vec(event(0, 0), STEPS)
}

/// Everything that can happen to a key.
pub fn wild() -> impl Strategy<Value = Vec<Event>> {
    vec(event(5, 5), STEPS)
}

pub fn short() -> impl Strategy<Value = Vec<Event>> {
    vec(event(0, 5), 0..40)
}
