//! Random schedules: what happens, and how much later. Few tokens, so that they get into each other's way.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::gaps::{Gap, SECOND, Upheaval, clock, gap, lease, part, part_of, ttl, upheaval, wait};
use super::key::Wish;

/// Who calls: one of a few, or the present or last leader.
#[derive(Debug, Clone, Copy)]
pub enum Who {
    One(u8),
    Leader,
}

/// The fence a call names: the present one, or that of some earlier lead.
#[derive(Debug, Clone, Copy)]
pub enum Named {
    Present,
    Earlier(Index),
}

#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Value { stale: i64 },
    Empty,
    Error,
}

#[derive(Debug, Clone, Copy)]
pub enum What {
    Join(Who, Wish),
    Publish {
        who: Who,
        ttl: i64,
        kind: Kind,
    },
    Abandon(Who, Option<i64>),
    Invalidate {
        soft: bool,
    },
    Renew(Who, i64),
    Close(Named),
    TakeBack(Named),
    /// With this grace, and after the connection has been closed for this long.
    Cut(Named, i64, i64),
    /// To this long from now.
    Extend(Named, i64),
    Leave(Index),
    Tick,
    GiveUp,
    Upheaval(Upheaval),
}

#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub gap: Gap,
    pub what: What,
}

fn wish() -> impl Strategy<Value = Wish> {
    ((any::<u8>(), part()), (any::<u8>(), part()), 0..6usize, 0..4u64).prop_map(|(leases, waits, most, bind_to)| Wish {
        lease: lease(leases.0, leases.1),
        wait: wait(waits.0, waits.1),
        most,
        bind_to: Some(bind_to).filter(|client| *client > 0),
    })
}

fn kind(dice: u8, part: i64) -> Kind {
    match dice % 8 {
        0..=1 => Kind::Value { stale: 0 },
        2..=4 => Kind::Value { stale: ttl(dice / 8, part) },
        5 => Kind::Empty,
        _ => Kind::Error,
    }
}

// One flat tuple of numbers, not a union of strategies: there are hundreds of thousands of them.
fn call() -> impl Strategy<Value = What> {
    let dice = (any::<u8>(), any::<u8>(), any::<Index>(), part());
    (0..100u8, wish(), 0..10u8, dice).prop_map(|(call, wish, who, (dice, other, which, part))| {
        let who = if who < 4 { Who::One(who) } else { Who::Leader };
        let named = if dice % 4 > 0 { Named::Present } else { Named::Earlier(which) };
        // Nothing is kept, or a pause is no pause, now and then.
        let ttl = if other.is_multiple_of(5) { 0 } else { ttl(other / 5, part) };
        match call {
            0..=52 => What::Join(Who::One(dice % 6), wish),
            53..=65 => What::Publish { who, ttl, kind: kind(dice, part) },
            66..=73 => What::Abandon(who, dice.is_multiple_of(2).then_some(ttl.max(1))),
            74..=78 => What::Invalidate { soft: dice.is_multiple_of(2) },
            79..=82 => What::Renew(who, wish.lease),
            83..=84 => What::Close(named),
            85..=86 => What::TakeBack(named),
            87..=89 => What::Extend(named, part_of(41 * SECOND, part) - SECOND),
            90..=92 => What::Leave(which),
            93..=94 => What::Cut(named, 1 + part_of(20 * SECOND, part), part % (2 * SECOND)),
            95..=97 => What::Tick,
            _ => What::GiveUp,
        }
    })
}

fn event(clock_often: u8, upheaval_often: u8) -> impl Strategy<Value = Event> {
    let parts = (gap(), call(), clock(clock_often), upheaval(upheaval_often));
    parts.prop_map(|(gap, call, clock, upheaval)| Event {
        gap: clock.map_or(gap, Gap::Set),
        what: upheaval.map_or(call, What::Upheaval),
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
    vec(event(0, 5), 0..30)
}
