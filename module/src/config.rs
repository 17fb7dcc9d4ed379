//! Configuration: load arguments first, then `CONFIG` directives under `resil.`.
//!
//! | name | default | meaning |
//! | --- | --- | --- |
//! | `cell-compat` | yes | register `CL.THROTTLE`; can only be set at load |
//! | `window-limit-max` | 100000 | the largest limit RES.WINDOW accepts, which bounds the memory of a key |
//! | `max-lease` | 86400000 | the longest lease, in milliseconds |
//! | `max-wait` | 600000 | the longest WAIT, in milliseconds |
//! | `max-waiters` | 100000 | how many may wait for one key |
//! | `ageing` | 30000 | after how many milliseconds a waiter gains a priority; 0: never |
//! | `fence-jump` | 60000 | how far fences jump after a load or a promotion, in milliseconds: by how much clocks may differ |
//! | `return-delay` | 0 | for how long RES.LOCK ACQUIRE is refused after a start or a promotion that may have lost locks, in milliseconds |
//! | `promotion-grace` | yes | a lease that is alive at a promotion starts anew there |
//! | `max-result` | 1048576 | bytes of a result that RES.IDEMP keeps; a larger one is dropped, not refused |
//! | `max-value` | 16777216 | bytes of a value that RES.SFLIGHT takes |
//! | `wake-budget` | 67108864 | bytes of large replies that may wait to be sent when many are woken at once |
//! | `max-payload` | 16777216 | bytes of a message that RES.DLQ takes |
//! | `max-ledger-entries` | 1000000 | entries of one ledger |
//! | `max-ledger-bytes` | 268435456 | bytes of one ledger |
//! | `max-ledgers-percent` | 25 | how much of maxmemory all ledgers may take together |
//! | `max-resolved` | 100000 | resolved entries that one ledger remembers |
//! | `require-noeviction` | no | RES.LOCK, RES.BULKHEAD and RES.IDEMP refuse while maxmemory-policy could evict their keys |
//! | `top` | yes | count which keys are refused most, for RES.TOP DENIED; can only be set at load |
//! | `test-clock` | no | load argument only, for tests: `yes` registers `RES._CLOCK`; an instant in microseconds stops the clock there from the load on |

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use redis_module::raw;
use resil_core::Span;
use resil_core::dead_letters::{Ledgers, Room};
use resil_core::limits::{
    AGEING_CEILING, AGEING_DEFAULT, FENCE_JUMP_CEILING, FENCE_JUMP_DEFAULT, LEASE_CEILING, LEASE_DEFAULT_MAX,
    LEASE_LEAST, LEDGER_BYTES_CEILING, LEDGER_BYTES_DEFAULT, LEDGER_ENTRIES_CEILING, LEDGER_ENTRIES_DEFAULT,
    PAYLOAD_CEILING, PAYLOAD_DEFAULT_MAX, RESOLVED_DEFAULT, RESULT_CEILING, RESULT_DEFAULT_MAX, VALUE_DEFAULT_MAX,
    WAIT_CEILING, WAIT_DEFAULT_MAX, WAITERS_CEILING, WAITERS_DEFAULT, WAKE_BUDGET_CEILING, WAKE_BUDGET_DEFAULT,
    WINDOW_LIMIT_CEILING, WINDOW_LIMIT_DEFAULT,
};
use resil_wire::Refused;
use resil_wire::argv::{Argv, quoted};
use resil_wire::bound::Number as NumberBound;
use resil_wire::command::{Allowed, Page};

use crate::call::Failure;
use crate::edge::directives::{self, Flag, Number};
use crate::info::counters;
use crate::machines::ServerMachine;
use crate::{clock, server};

impl Flag {
    const fn new(name: &'static CStr, default: bool, only_at_load: bool) -> Self {
        Self { name, value: AtomicBool::new(default), only_at_load }
    }

    fn get(&self) -> bool {
        self.value.load(Relaxed)
    }
}

impl Number {
    const fn new(name: &'static CStr, default: i64, least: i64, most: i64) -> Self {
        Self { name, value: AtomicI64::new(default), least, most }
    }

    const fn of_ms(name: &'static CStr, default: Span, least: i64, most: Span) -> Self {
        Self::new(name, default.floor_ms(), least, most.floor_ms())
    }

    fn get(&self) -> i64 {
        self.value.load(Relaxed)
    }
}

static CELL_COMPAT: Flag = Flag::new(c"cell-compat", true, true);
static PROMOTION_GRACE: Flag = Flag::new(c"promotion-grace", true, false);
static REQUIRE_NOEVICTION: Flag = Flag::new(c"require-noeviction", false, false);
static TOP: Flag = Flag::new(c"top", true, true);
static TEST_CLOCK: Flag = Flag::new(c"test-clock", false, true);
static WINDOW_LIMIT_MAX: Number =
    Number::new(c"window-limit-max", WINDOW_LIMIT_DEFAULT as i64, 1, WINDOW_LIMIT_CEILING as i64);
static MAX_LEASE: Number = Number::of_ms(c"max-lease", LEASE_DEFAULT_MAX, LEASE_LEAST.floor_ms(), LEASE_CEILING);
static MAX_WAIT: Number = Number::of_ms(c"max-wait", WAIT_DEFAULT_MAX, 1, WAIT_CEILING);
static MAX_WAITERS: Number = Number::new(c"max-waiters", WAITERS_DEFAULT as i64, 1, WAITERS_CEILING as i64);
static MAX_RESULT: Number = Number::new(c"max-result", RESULT_DEFAULT_MAX as i64, 0, RESULT_CEILING as i64);
static MAX_VALUE: Number = Number::new(c"max-value", VALUE_DEFAULT_MAX as i64, 1, RESULT_CEILING as i64);
static WAKE_BUDGET: Number = Number::new(c"wake-budget", WAKE_BUDGET_DEFAULT as i64, 1, WAKE_BUDGET_CEILING as i64);
static AGEING: Number = Number::of_ms(c"ageing", AGEING_DEFAULT, 0, AGEING_CEILING);
static FENCE_JUMP: Number = Number::of_ms(c"fence-jump", FENCE_JUMP_DEFAULT, 0, FENCE_JUMP_CEILING);
static RETURN_DELAY: Number = Number::of_ms(c"return-delay", Span::ZERO, 0, LEASE_CEILING);
static MAX_PAYLOAD: Number = Number::new(c"max-payload", PAYLOAD_DEFAULT_MAX as i64, 1, PAYLOAD_CEILING as i64);
static MAX_LEDGER_ENTRIES: Number =
    Number::new(c"max-ledger-entries", LEDGER_ENTRIES_DEFAULT as i64, 1, LEDGER_ENTRIES_CEILING as i64);
static MAX_LEDGER_BYTES: Number =
    Number::new(c"max-ledger-bytes", LEDGER_BYTES_DEFAULT as i64, 1, LEDGER_BYTES_CEILING as i64);
static MAX_LEDGERS_PERCENT: Number = Number::new(c"max-ledgers-percent", 25, 1, 100);
static MAX_RESOLVED: Number = Number::new(c"max-resolved", RESOLVED_DEFAULT as i64, 0, LEDGER_ENTRIES_CEILING as i64);

/// The server's own limit; 0: none.
static MAXMEMORY: AtomicI64 = AtomicI64::new(0);

/// Those the server knows; `test-clock` is not among them.
static FLAGS: [&Flag; 4] = [&CELL_COMPAT, &PROMOTION_GRACE, &REQUIRE_NOEVICTION, &TOP];
static NUMBERS: [&Number; 15] = [
    &WINDOW_LIMIT_MAX,
    &MAX_LEASE,
    &MAX_WAIT,
    &MAX_WAITERS,
    &AGEING,
    &FENCE_JUMP,
    &RETURN_DELAY,
    &MAX_RESULT,
    &MAX_VALUE,
    &WAKE_BUDGET,
    &MAX_PAYLOAD,
    &MAX_LEDGER_ENTRIES,
    &MAX_LEDGER_BYTES,
    &MAX_LEDGERS_PERCENT,
    &MAX_RESOLVED,
];

/// What is read like a command: the line that loads the module.
const LOAD: Page = Page {
    name: "loadmodule",
    usage: "loadmodule libresil.so [cell-compat yes|no] [window-limit-max n] [max-lease ms] [max-wait ms] \
                     [max-waiters n] [ageing ms] [fence-jump ms] [return-delay ms] [max-result bytes] [max-value bytes] [wake-budget bytes] [max-payload bytes] [max-ledger-entries n] [max-ledger-bytes bytes] \
                     [max-ledgers-percent n] [max-resolved n] [promotion-grace yes|no] [require-noeviction yes|no] \
                     [test-clock yes|no|microseconds]",
    is_read_only: false,
};

/// Whether denials are counted by key.
pub fn keeps_top() -> bool {
    TOP.get()
}

pub fn cell_compat() -> bool {
    CELL_COMPAT.get()
}

/// What the parsers of commands allow.
pub fn allowed() -> Allowed {
    Allowed {
        lease_max: Span::from_ms(MAX_LEASE.get()),
        wait_max: Span::from_ms(MAX_WAIT.get()),
        window_limit_max: WINDOW_LIMIT_MAX.get() as u32,
        value_max: MAX_VALUE.get() as usize,
        payload_max: MAX_PAYLOAD.get() as usize,
    }
}

pub fn max_waiters() -> u32 {
    MAX_WAITERS.get() as u32
}

pub fn ageing() -> Span {
    Span::from_ms(AGEING.get())
}

pub fn max_result() -> usize {
    MAX_RESULT.get() as usize
}

pub fn wake_budget() -> usize {
    WAKE_BUDGET.get() as usize
}

pub fn fence_jump() -> Span {
    Span::from_ms(FENCE_JUMP.get())
}

pub fn return_delay() -> Span {
    Span::from_ms(RETURN_DELAY.get())
}

/// Whether every change was on the disk before it was acknowledged, as far as the configuration says.
pub fn keeps_every_change(ctx: *mut raw::RedisModuleCtx) -> bool {
    let has_file = server::flags(ctx) & raw::REDISMODULE_CTX_FLAGS_AOF != 0;
    has_file && server::directive(ctx, c"appendfsync").is_some_and(|value| value == b"always")
}

pub fn promotion_grace() -> bool {
    PROMOTION_GRACE.get()
}

pub fn test_clock() -> bool {
    TEST_CLOCK.get()
}

/// For state that must not vanish: refuses where the server could evict it and the operator wants none of that.
pub fn refuse_if_evictable() -> Result<(), Failure> {
    if REQUIRE_NOEVICTION.get() && counters().eviction_risk.load(Relaxed) {
        let text = "maxmemory-policy could evict this key, and resil.require-noeviction is yes: set it to noeviction";
        return Err(Refused::new(text).into());
    }
    Ok(())
}

/// What a ledger of `own` bytes may grow to: no further than its own limit, and than what all ledgers have together.
pub fn ledger_room(own: usize) -> Room {
    let maxmemory = MAXMEMORY.load(Relaxed);
    let all = if maxmemory == 0 { i64::MAX } else { maxmemory / 100 * MAX_LEDGERS_PERCENT.get() };
    let left = all.saturating_sub(Ledgers::bytes().get()).max(0);
    Room {
        entries: MAX_LEDGER_ENTRIES.get() as usize,
        bytes: (MAX_LEDGER_BYTES.get() as usize).min(own.saturating_add(left as usize)),
        resolved: MAX_RESOLVED.get() as usize,
    }
}

/// Where any key can be evicted, a ledger takes nothing new: it could be lost with everything in it.
pub fn refuse_ledger_if_evictable() -> Result<(), Failure> {
    if counters().evicts_all_keys.load(Relaxed) {
        let text = "maxmemory-policy could evict this ledger: set it to noeviction or to a volatile policy";
        return Err(Refused::with_code("FULL", text).into());
    }
    Ok(())
}

/// Takes over `name value` pairs from the load line; they become the defaults of the directives below.
pub fn read_arguments(args: &[&[u8]]) -> Result<(), Refused> {
    let mut argv = Argv::new(args, &LOAD);
    while let Some(word) = argv.word() {
        if word.is(&text(TEST_CLOCK.name)) {
            read_test_clock(argv.bytes("test-clock")?)?;
        } else if let Some(flag) = FLAGS.into_iter().find(|flag| word.is(&text(flag.name))) {
            let name = text(flag.name);
            flag.value.store(yes_or_no(argv.bytes(&name)?, &name)?, Relaxed);
        } else if let Some(number) = NUMBERS.iter().find(|number| word.is(&text(number.name))) {
            let bound = NumberBound::new(number.name.to_str().unwrap_or_default(), number.least..=number.most);
            number.value.store(bound.take(&mut argv)?, Relaxed);
        } else {
            return Err(argv.unexpected(word.0));
        }
    }
    Ok(())
}

/// An instant holds the clock before a file is loaded: `RES._CLOCK` comes too late for what the load looks at.
fn read_test_clock(given: &[u8]) -> Result<(), Refused> {
    let instant_us = std::str::from_utf8(given).ok().and_then(|text| text.parse().ok());
    let is_on = match (given, instant_us) {
        (b"yes", _) => true,
        (b"no", _) => false,
        (_, Some(us)) if (1..=clock::LATEST_US).contains(&us) => {
            clock::set(us);
            true
        }
        _ => {
            let text = format_args!("test-clock must be yes, no or an instant in microseconds, got {}", quoted(given));
            return Err(Refused::new(text));
        }
    };
    TEST_CLOCK.value.store(is_on, Relaxed);
    Ok(())
}

fn text(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

fn yes_or_no(given: &[u8], name: &str) -> Result<bool, Refused> {
    match given {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err(Refused::new(format_args!("{name} must be yes or no, got {}", quoted(given)))),
    }
}

/// Registers the directives and lets the server fill them from its configuration file.
pub fn register(ctx: *mut raw::RedisModuleCtx) -> Result<(), ()> {
    directives::register(ctx, &FLAGS, &NUMBERS)
}

/// Learns how much memory the server may use: ledgers have a share of it.
pub fn note_maxmemory(ctx: *mut raw::RedisModuleCtx) {
    let [maxmemory] = server::info(ctx, c"memory", [c"maxmemory"]);
    let maxmemory = maxmemory.and_then(|number| number.to_str().ok()?.parse().ok());
    MAXMEMORY.store(maxmemory.unwrap_or(0), Relaxed);
}

/// Warns and raises `eviction_risk` if limits can be evicted: anything but noeviction can take them away silently.
pub fn check_eviction(ctx: *mut raw::RedisModuleCtx) {
    let [policy] = server::info(ctx, c"memory", [c"maxmemory_policy"]);
    let of_all_keys = policy.as_ref().is_some_and(|policy| policy.to_bytes().starts_with(b"allkeys"));
    counters().evicts_all_keys.store(of_all_keys, Relaxed);
    let risk = policy.is_some_and(|policy| &*policy != c"noeviction");
    counters().eviction_risk.store(risk, Relaxed);
    if risk {
        let advice =
            "maxmemory-policy may evict limits, breakers and locks: they would be forgotten; noeviction is advised";
        crate::edge::log(ctx, c"warning", advice);
    }
}
