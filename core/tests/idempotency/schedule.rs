//! Random schedules: what happens, and how much later. Few tokens, so that they get into each other's way.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::gaps::{Gap, SECOND, Upheaval, clock, gap, lease, part, part_of, ttl, upheaval, wait};
use super::key::Wish;

/// Who calls: one of a few, or the last runner.
#[derive(Debug, Clone, Copy)]
pub enum Who {
    One(u8),
    Last,
}

/// The fence a call names: the present one, or that of some earlier run.
#[derive(Debug, Clone, Copy)]
pub enum Named {
    Present,
    Earlier(Index),
}

#[derive(Debug, Clone, Copy)]
pub enum What {
    Begin(Who, Wish),
    Commit {
        who: Who,
        ttl: i64,
        dropped: bool,
        failed: bool,
    },
    Abort(Who),
    Renew(Who, i64),
    /// With a token, or without.
    Once(Option<u8>, i64),
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
    let lengths = ((any::<u8>(), part()), (any::<u8>(), part()), (any::<u8>(), part()));
    (0..10usize, lengths, 0..4u8, 0..6usize, 0..4u64).prop_map(
        |(given, (leases, keeps, waits), hold, most, bind_to)| Wish {
            fingerprint: ["", "", "", "x", "x", "x", "x", "x", "y", "y"][given],
            lease: lease(leases.0, leases.1),
            keep: ttl(keeps.0, keeps.1),
            hold: hold == 0,
            wait: wait(waits.0, waits.1),
            most,
            bind_to: Some(bind_to).filter(|client| *client > 0),
        },
    )
}

// One flat tuple of numbers, not a union of strategies: there are hundreds of thousands of them.
fn call() -> impl Strategy<Value = What> {
    (0..100u8, wish(), 0..10u8, any::<u8>(), any::<Index>(), part()).prop_map(|(kind, wish, who, dice, which, part)| {
        let who = if who < 5 { Who::One(who) } else { Who::Last };
        let beginner = Who::One(dice % 5);
        let named = if dice % 4 > 0 { Named::Present } else { Named::Earlier(which) };
        match kind {
            0..=50 => What::Begin(beginner, wish),
            51..=61 => What::Commit {
                who,
                ttl: ttl(dice, part),
                dropped: dice.is_multiple_of(5),
                failed: dice.is_multiple_of(3),
            },
            62..=69 => What::Abort(who),
            70..=75 => What::Renew(who, wish.lease),
            76..=79 => What::Once(Some(dice % 4).filter(|who| *who > 0), ttl(dice / 4, part)),
            80..=83 => What::Close(named),
            84..=85 => What::TakeBack(named),
            86..=88 => What::Extend(named, part_of(41 * SECOND, part) - SECOND),
            89..=92 => What::Leave(which),
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
