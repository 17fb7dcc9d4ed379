//! The server's one floor of fences, since when it is a primary, and whether it may have forgotten locks.

use std::cell::{Cell, RefCell};

use redis_module::raw;
use resil_core::limits::FENCE_AHEAD_MAX;
use resil_core::waited::fence::Floor;
use resil_core::waited::returning::{Return, Returning};
use resil_core::waited::{Heard, Setting};
use resil_core::{Instant, Span};
use resil_wire::Refused;

use crate::call::Failure;
use crate::server::is_loading;
use crate::{clock, config};

thread_local! {
    static FLOOR: RefCell<Floor> = RefCell::new(Floor::default());
    /// How far fences ran ahead of the clock when the snapshot was saved that this server was loaded from.
    static AHEAD: Cell<Span> = const { Cell::new(Span::ZERO) };
    static PROMOTED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
    static RETURNING: Cell<Returning> = const { Cell::new(Returning::new()) };
    static UP_SINCE: Cell<Instant> = const { Cell::new(Instant::EPOCH) };
}

/// Runs `step` with the time and what this server knows of fences and connections.
pub fn with_setting<R>(now: Instant, heard: Option<&Heard<'_>>, step: impl FnOnce(&mut Setting<'_>) -> R) -> R {
    // A start that lies ahead is that of a clock which was set back since: then nothing is known of it.
    let up_since = Some(UP_SINCE.get()).filter(|since| *since <= now).unwrap_or(Instant::EPOCH);
    let (promoted_at, ageing) = (promoted_at(), config::ageing());
    FLOOR.with_borrow_mut(|floor| step(&mut Setting { now, promoted_at, up_since, ageing, floor, heard }))
}

/// When this server became a primary, if leases that lived then start anew.
pub fn promoted_at() -> Option<Instant> {
    PROMOTED_AT.get()
}

/// A fence in a value being loaded; false if it is not to be believed. A file's is. One in a payload of RESTORE is a
/// client's word: it counts for its key only, and not if it lies absurdly far ahead.
pub fn believe(fence: u64) -> bool {
    if is_loading() {
        heard_of(fence);
        return true;
    }
    let highest = clock::now().plus(FENCE_AHEAD_MAX).as_us().cast_unsigned();
    fence <= highest.max(FLOOR.with_borrow(Floor::highest))
}

pub fn heard_of(fence: u64) {
    FLOOR.with_borrow_mut(|floor| floor.heard_of(fence));
}

/// What a snapshot carries: the highest fence, and how far that is ahead of the clock.
pub fn for_snapshot() -> (u64, u64) {
    let highest = FLOOR.with_borrow(Floor::highest);
    (highest, highest.saturating_sub(clock::now().as_us().cast_unsigned()))
}

/// What a snapshot carried.
pub fn from_snapshot(highest: u64, ahead_us: u64) {
    heard_of(highest);
    AHEAD.set(Span::from_us(i64::try_from(ahead_us).unwrap_or(0).min(FENCE_AHEAD_MAX.as_us())));
}

/// The server was started or loaded: it may have issued fences before of which nothing was saved, and granted locks, unless
/// each change was on its disk before it was acknowledged.
pub fn resume(ctx: *mut raw::RedisModuleCtx) {
    let now = clock::now();
    put_ahead(now);
    UP_SINCE.set(now);
    returning(|returning| if config::keeps_every_change(ctx) { returning.forget() } else { returning.begin(now) });
}

fn put_ahead(now: Instant) {
    let (ahead, jump) = (AHEAD.get(), config::fence_jump());
    FLOOR.with_borrow_mut(|floor| floor.resume(ahead, jump, now));
}

fn returning<R>(look: impl FnOnce(&mut Returning) -> R) -> R {
    let mut state = RETURNING.get();
    let looked = look(&mut state);
    RETURNING.set(state);
    looked
}

/// A server that may have forgotten locks grants none for as long as `return-delay` says.
pub fn refuse_if_returning() -> Result<(), Failure> {
    if RETURNING.get() == Returning::new() {
        return Ok(());
    }
    let now = clock::now();
    match returning(|returning| returning.look(config::return_delay(), now)) {
        Return::Not => Ok(()),
        Return::Now => {
            put_ahead(now);
            Ok(())
        }
        Return::In(left) => {
            let text = format_args!(
                "this server may have forgotten locks and grants none for another {} ms (return-delay)",
                left.ceil_ms()
            );
            Err(Refused::with_code("RETURNING", text).into())
        }
    }
}

/// The server became a primary.
pub fn promoted() {
    let now = clock::now();
    FLOOR.with_borrow_mut(|floor| floor.jump(config::fence_jump(), now));
    PROMOTED_AT.set(config::promotion_grace().then_some(now));
    UP_SINCE.set(now);
    // What did not reach it before is lost.
    returning(|returning| returning.begin(now));
}
