//! Random schedules: what happens, and how much later. Few owners, so that they get into each other's way.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

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

pub fn lease() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => select(vec![10 * MS, SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND]),
        2 => 10 * MS..=20 * SECOND,
        1 => select(vec![MINUTE, HOUR, 24 * HOUR]),
    ]
}

fn wait() -> impl Strategy<Value = i64> {
    prop_oneof![
        1 => Just(0),
        6 => select(vec![SECOND, 5 * SECOND, 10 * SECOND]),
        4 => 1..=20 * SECOND,
        1 => Just(10 * MINUTE),
    ]
}

fn owner() -> impl Strategy<Value = u8> {
    0..7u8
}

fn named() -> impl Strategy<Value = Named> {
    prop_oneof![
        4 => Just(Named::Nothing),
        4 => Just(Named::Own),
        2 => any::<Index>().prop_map(Named::Earlier),
        1 => any::<u64>().prop_map(Named::Unknown),
    ]
}

pub fn request() -> impl Strategy<Value = Request> {
    let who = (owner(), any::<bool>(), 1..=4u32, select(vec![0, 5, 5, 5, 9]));
    let how = (lease(), option::weighted(0.75, wait()), 0..6usize, any::<bool>(), option::of(1..4u64));
    (who, how).prop_map(|((owner, reads, max, priority), (lease, wait, most, meta, bind_to))| Request {
        owner,
        reads,
        max,
        priority,
        lease,
        wait,
        most,
        meta,
        bind_to,
    })
}

fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        8 => Just(Gap::None),
        6 => (1..=SECOND).prop_map(Gap::By),
        3 => (1..=15 * SECOND).prop_map(Gap::By),
        6 => (any::<Index>(), -1..=1i64).prop_map(|(which, off)| Gap::To(which, off)),
        1 => select(vec![59 * SECOND, MINUTE, 61 * SECOND, HOUR, 25 * HOUR]).prop_map(Gap::By),
    ]
}

fn step_of_clock() -> impl Strategy<Value = Gap> {
    prop_oneof![
        3 => (-SECOND..0i64).prop_map(Gap::Set),
        3 => (-30 * SECOND..0i64).prop_map(Gap::Set),
        2 => (-HOUR..0i64).prop_map(Gap::Set),
        1 => select(vec![-HOUR, -SECOND, -SECOND - 1, HOUR]).prop_map(Gap::Set),
    ]
}

fn call() -> impl Strategy<Value = What> {
    prop_oneof![
        50 => request().prop_map(What::Acquire),
        8 => (owner(), named(), lease()).prop_map(|(owner, fence, lease)| What::Renew { owner, fence, lease }),
        16 => (owner(), named()).prop_map(|(owner, fence)| What::Release { owner, fence }),
        1 => Just(What::Break),
        3 => (owner(), named()).prop_map(|(owner, fence)| What::Close(owner, fence)),
        3 => (owner(), named()).prop_map(|(owner, fence)| What::TakeBack(owner, fence)),
        4 => (owner(), named(), -SECOND..=40 * SECOND).prop_map(|(owner, fence, to)| What::Extend(owner, fence, to)),
        6 => any::<Index>().prop_map(What::Leave),
        6 => Just(What::Tick),
        2 => Just(What::GiveUp),
    ]
}

fn upheaval() -> impl Strategy<Value = What> {
    prop_oneof![
        2 => Just(What::Restart),
        2 => (-50 * SECOND..=50 * SECOND).prop_map(What::Promote),
        1 => Just(What::Delete),
    ]
}

fn event(gap: impl Strategy<Value = Gap>, what: impl Strategy<Value = What>) -> impl Strategy<Value = Event> {
    (gap, what).prop_map(|(gap, what)| Event { gap, what })
}

const STEPS: std::ops::RangeInclusive<usize> = 200..=220;

/// One server, whose clock only runs ahead.
pub fn calm() -> impl Strategy<Value = Vec<Event>> {
    vec(event(gap(), call()), STEPS)
}

/// Everything that can happen to a key.
pub fn wild() -> impl Strategy<Value = Vec<Event>> {
    vec(
        prop_oneof![
            90 => event(gap(), call()),
            5 => event(step_of_clock(), call()),
            5 => event(gap(), upheaval()),
        ],
        STEPS,
    )
}

pub fn short() -> impl Strategy<Value = Vec<Event>> {
    vec(prop_oneof![20 => event(gap(), call()), 1 => event(gap(), upheaval())], 0..40)
}
