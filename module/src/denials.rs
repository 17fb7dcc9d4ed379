//! The keys that are refused most, for `RES.TOP DENIED`. One denial in sixteen is looked at, drawn by chance: the others cost a
//! subtraction.

use std::cell::{Cell, RefCell};

use resil_core::Instant;
use resil_core::heavy_hitters::{HeavyHitters, Hit, SAMPLED};

use crate::timers::Space;
use crate::{clock, config, server, timers};

/// Denials that are decided about by one number.
const DRAWN_AT_ONCE: u32 = 15;
const _: () = assert!(SAMPLED == 16, "four bits decide");

const KINDS: [&str; 5] = ["limit", "breaker", "lock", "bulkhead", "policy"];

#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Refuser {
    Limit,
    Breaker,
    Lock,
    Bulkhead,
    Policy,
}

thread_local! {
    /// How many denials are passed over before the next is looked at.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    static CHANCE: Cell<u64> = const { Cell::new(0) };
    static DENIED: RefCell<HeavyHitters> = RefCell::new(HeavyHitters::default());
}

/// A call was refused `key`.
#[inline]
pub fn note(db: impl FnOnce() -> i32, refuser: Refuser, key: &[u8]) {
    let left = LEFT.get();
    if left > 0 {
        LEFT.set(left - 1);
    } else {
        look_at(db(), refuser, key);
    }
}

#[cold]
fn look_at(db: i32, refuser: Refuser, key: &[u8]) {
    LEFT.set(draw());
    if config::keeps_top() {
        let (tag, now) = (tag_of(timers::space_of(db), refuser as u32), clock::now());
        DENIED.with_borrow_mut(|denied| denied.add(tag, key, now));
    }
}

/// How many are passed over so that each is looked at with the same chance, whatever came before.
fn draw() -> u32 {
    let mut chance = CHANCE.get();
    if chance == 0 {
        chance = server::random_seed() | 1;
    }
    let mut passed = 0;
    loop {
        // xorshift64*: four bits decide about each denial, so that one number is enough for fifteen; the lowest four are the weakest.
        chance ^= chance >> 12;
        chance ^= chance << 25;
        chance ^= chance >> 27;
        let drawn = chance.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 4;
        // The lowest bit of every four that are all zero.
        let zero = !(drawn | drawn >> 1 | drawn >> 2 | drawn >> 3) & 0x0111_1111_1111_1111;
        if zero != 0 || passed >= 64 * SAMPLED {
            CHANCE.set(chance);
            return passed + (zero.trailing_zeros() / 4).min(DRAWN_AT_ONCE - 1);
        }
        passed += DRAWN_AT_ONCE;
    }
}

fn tag_of(space: Space, kind: u32) -> u32 {
    (space as u32) << 3 | kind
}

/// The keys of a database that were refused most, the most frequent first: kind, and what is known of it.
pub fn top<R>(db: i32, now: Instant, show: impl FnOnce(Vec<(&'static str, Hit<'_>)>) -> R) -> R {
    let space = timers::space_of(db);
    DENIED.with_borrow(|denied| {
        let hits = denied.top(now, |tag, _| tag >> 3 == space as u32);
        let kind = |tag: u32| KINDS.get((tag & 7) as usize).copied().unwrap_or("limit");
        show(hits.into_iter().map(|hit| (kind(hit.tag), hit)).collect())
    })
}
