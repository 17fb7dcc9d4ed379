//! What a call asked for, and what every reply to it must obey.

use resil_core::limits::{CLOCK_JITTER, FILL_MAX, RESERVE_MAX};

use super::crowd::check_exec;
use super::resp::Reply;
use super::waited_asked::{self, WaitedAsk, check_waited};

/// A call in the terms its reply is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// RES.GCRA and RES.GCRA.PEEK: the capacity of each named tier.
    Gcra {
        capacities: Vec<i64>,
        ask: Ask,
    },
    Mgcra {
        capacities: Vec<i64>,
        cost: i64,
    },
    /// RES.WINDOW and RES.WINDOW.PEEK.
    Window {
        limit: i64,
        period_ms: i64,
        ask: Ask,
    },
    Throttle {
        capacity: i64,
        quantity: i64,
    },
    Breaker(BreakerAsk),
    /// Locks, bulkheads, idempotency keys, single flights.
    Waited(WaitedAsk),
    /// EXEC, after these were queued.
    Exec(Vec<Asked>),
    /// One of ours, bent out of shape: any verdict or any error will do.
    Bent,
    /// The server's own business.
    Native,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    Cost(i64),
    UpTo(i64),
    Reserve { cells: i64, within_ms: i64 },
    Refund(i64),
    Peek,
}

/// Subcommands of RES.BREAKER, by the shape of their replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerAsk {
    Admit,
    /// REPORT and TALLY.
    Report,
    Force,
    /// RESET and CONFIG: was there anything to do?
    Done,
    State,
}

/// The refusals a well-formed call can meet: the key is of another kind or has no place for more tiers, or the options
/// contradict what is configured.
const LAWFUL_REFUSALS: [&str; 8] = [
    "WRONGTYPE ",
    "NOPOLICY ",
    "ERR the policy under this key has no breaker",
    "ERR this breaker belongs to a policy: ",
    "ERR the key already holds tiers",
    "ERR MAX must not be shorter",
    "ERR FACTOR needs a MAX",
    "ERR RATE, SLOWRATE",
];
const STATES: [&str; 8] =
    ["closed", "open", "half-open", "ramping", "forced-open", "forced-closed", "disabled", "metrics"];

/// Says what is wrong with `reply` as a reply to `asked`.
pub fn check(asked: &Asked, reply: &Reply) -> Result<(), String> {
    if *asked == Asked::Native {
        return Ok(());
    }
    if let Reply::Error(line) = reply {
        // The server's own words about a subcommand that does not exist quote it as it came.
        if *asked == Asked::Bent && line.starts_with(b"ERR unknown subcommand") {
            return Ok(());
        }
        check_error_line(line)?;
        let lawful: &[&str] =
            if matches!(asked, Asked::Waited(_)) { &waited_asked::LAWFUL_REFUSALS } else { &LAWFUL_REFUSALS };
        let lawful = lawful.iter().any(|start| line.starts_with(start.as_bytes()));
        return require(*asked == Asked::Bent || lawful, "a well-formed call was refused");
    }
    match asked {
        Asked::Gcra { capacities, ask } => check_gcra(capacities, *ask, reply),
        Asked::Mgcra { capacities, cost } => check_mgcra(capacities, *cost, reply),
        Asked::Window { limit, period_ms, ask } => check_window(*limit, *period_ms, *ask, reply),
        Asked::Throttle { capacity, quantity } => check_throttle(*capacity, *quantity, reply),
        Asked::Breaker(ask) => check_breaker(*ask, reply),
        Asked::Waited(ask) => check_waited(*ask, reply),
        Asked::Exec(asked) => check_exec(asked, reply),
        Asked::Bent => Ok(()),
        Asked::Native => Ok(()),
    }
}

/// One line of printable ASCII that starts with a code.
pub fn check_error_line(line: &[u8]) -> Result<(), String> {
    let code = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    require(code.len() >= 3 && code.iter().all(u8::is_ascii_uppercase), "an error starts with its code")?;
    require(line.iter().all(|byte| (b' '..=b'~').contains(byte)), "an error is one line of printable ASCII")?;
    require(line.len() < 500, "an error is not longer than a reader's patience")
}

fn check_gcra(capacities: &[i64], ask: Ask, reply: &Reply) -> Result<(), String> {
    let Reply::Array(elements) = reply else { return Err("an array was expected".into()) };
    let (numbers, tiers) = elements.split_at(elements.len().min(5));
    let numbers = Reply::Array(numbers.to_vec()).integers().ok_or("five integers were expected")?;
    let [granted, binding @ ..] = <[i64; 5]>::try_from(numbers).map_err(|_| "five integers were expected")?;
    let tiers = match (tiers, capacities.len()) {
        ([], 1) => vec![binding],
        ([Reply::Array(tiers)], 2..) => tiers.iter().map(four).collect::<Result<_, _>>()?,
        _ => return Err("a sixth element was expected with several tiers, and only then".into()),
    };
    let named: Vec<i64> = tiers.iter().map(|tier| tier[0]).collect();
    require(named == capacities, "every tier is listed as it was named")?;
    require(tiers.contains(&binding), "the binding tier is one of the tiers")?;
    for tier in &tiers {
        check_numbers(tier)?;
    }
    let smallest = capacities.iter().min().copied().unwrap_or(0);
    check_verdict(granted, &binding, smallest, ask)?;
    // A peek says what could be taken at once: what the tightest tier has.
    let available = tiers.iter().map(|tier| tier[1]).min();
    require(ask != Ask::Peek || available == Some(granted), "a peek grants the smallest remainder")
}

fn check_mgcra(capacities: &[i64], cost: i64, reply: &Reply) -> Result<(), String> {
    let Reply::Array(elements) = reply else { return Err("an array was expected".into()) };
    let [Reply::Integer(granted), Reply::Integer(refused_by), Reply::Array(keys)] = elements.as_slice() else {
        return Err("granted, refused_by and the keys were expected".into());
    };
    let keys: Vec<[i64; 4]> = keys.iter().map(four).collect::<Result<_, _>>()?;
    require(keys.iter().map(|key| key[0]).eq(capacities.iter().copied()), "every key is listed as it was named")?;
    for key in &keys {
        check_numbers(key)?;
    }
    let refusing = keys.iter().position(|key| key[2] != 0).map_or(-1, |index| index as i64);
    require(*refused_by == refusing, "the first key with a wait is the one that refused")?;
    require(*granted == if refusing == -1 { cost } else { 0 }, "all pay or none")?;
    require(keys.iter().all(|key| (key[2] == -1) == (cost > key[0])), "-1 means: the cost is above the capacity")
}

fn check_window(limit: i64, period_ms: i64, ask: Ask, reply: &Reply) -> Result<(), String> {
    let numbers = reply.integers().and_then(|numbers| <[i64; 5]>::try_from(numbers).ok());
    let [granted, reading @ ..] = numbers.ok_or("five integers were expected")?;
    require(reading[0] == limit, "the capacity is the limit")?;
    check_numbers(&reading)?;
    check_verdict(granted, &reading, limit, ask)?;
    let longest_ms = period_ms + CLOCK_JITTER.ceil_ms();
    require(reading[2] <= longest_ms && reading[3] <= longest_ms, "nothing stays longer than a period and the jitter")
}

fn check_throttle(capacity: i64, quantity: i64, reply: &Reply) -> Result<(), String> {
    let numbers = reply.integers().and_then(|numbers| <[i64; 5]>::try_from(numbers).ok());
    let [limited, limit, remaining, retry_after, reset_after] = numbers.ok_or("five integers were expected")?;
    require(limit == capacity, "the limit is max_burst + 1")?;
    require((0..=limit).contains(&remaining), "remaining is between 0 and the limit")?;
    require(limited == 0 || (limited == 1 && quantity > 0), "only taking can be limited")?;
    require(limited == 1 || retry_after == -1, "retry_after is -1 unless limited")?;
    require(limited == 0 || (retry_after == -1) == (quantity > limit), "-1 while limited means never")?;
    require((0..=longest_wait_ms() / 1_000).contains(&reset_after), "reset_after is a time")
}

fn check_breaker(ask: BreakerAsk, reply: &Reply) -> Result<(), String> {
    use Reply::{Array, Bulk, Integer, Nil};
    let elements = if let Array(elements) = reply { elements.as_slice() } else { std::slice::from_ref(reply) };
    let is_state = |text: &[u8]| STATES.iter().any(|state| state.as_bytes() == text);
    match (ask, elements) {
        (BreakerAsk::Admit, [Integer(1), Bulk(state), Bulk(_), Integer(0), Integer(0..)]) => {
            require(is_state(state) && state != b"open" && state != b"forced-open", "no open state admits")
        }
        (BreakerAsk::Admit, [Integer(0), Bulk(state), Nil, Integer(retry_after_ms), Integer(0..)]) => {
            require(*retry_after_ms != -1 || state == b"forced-open", "-1 means: forced open without end")?;
            require(is_state(state) && *retry_after_ms != 0, "who is denied learns how long to wait")
        }
        (BreakerAsk::Report, [Integer(counted), Bulk(state), Integer(0..), Integer(wait_ms @ 0..), Bulk(why)]) => {
            let whys: [&[u8]; 5] = [b"counted", b"stale", b"unknown", b"duplicate", b"ignored"];
            require(is_state(state) && whys.contains(&why.as_slice()), "known words")?;
            require((*counted == 1) == (why == b"counted"), "counted says so")?;
            require(*wait_ms == 0 || state == b"open", "only an open breaker lets wait")
        }
        (BreakerAsk::Force, [Bulk(state), Integer(0..)]) => require(is_state(state), "a state"),
        (BreakerAsk::Done, [Integer(0 | 1)]) => Ok(()),
        (BreakerAsk::State, pairs) => require(pairs.len() == 44, "twenty-two fields"),
        _ => Err("another shape was expected".into()),
    }
}

/// What holds for every `[capacity, remaining, retry_after_ms, reset_after_ms]`.
fn check_numbers([capacity, remaining, retry_after_ms, reset_after_ms]: &[i64; 4]) -> Result<(), String> {
    require((0..=*capacity).contains(remaining), "remaining is between 0 and the capacity")?;
    require((-1..=longest_wait_ms()).contains(retry_after_ms), "retry_after is -1 or a time")?;
    require((0..=longest_wait_ms()).contains(reset_after_ms), "reset_after is a time")
}

/// What holds between the cells granted and the binding tier.
fn check_verdict(granted: i64, binding: &[i64; 4], smallest: i64, ask: Ask) -> Result<(), String> {
    let retry_after_ms = binding[2];
    match ask {
        Ask::Cost(cost) => {
            require(granted == cost || granted == 0, "all of the cost or nothing")?;
            require((granted == cost) == (retry_after_ms == 0), "no wait exactly if granted")?;
            require((retry_after_ms == -1) == (cost > smallest), "-1 means: the cost is above a capacity")
        }
        Ask::UpTo(most) => {
            require((0..=most.min(smallest)).contains(&granted), "no more than asked for, and than there is room")?;
            require((granted == most) == (retry_after_ms == 0), "no wait exactly if all was granted")?;
            require(retry_after_ms >= 0, "one cell can always be had some day")
        }
        Ask::Reserve { cells, within_ms } => {
            require(granted == 0 || granted == cells, "all cells or none")?;
            require((retry_after_ms == -1) == (cells > smallest), "-1 means: the cost is above a capacity")?;
            if retry_after_ms == -1 {
                return require(granted == 0, "what never can be had is not granted");
            }
            let turn = if granted > 0 { 0..=within_ms } else { 1..=longest_wait_ms() };
            require(turn.contains(&retry_after_ms), "a reservation comes within the time; a refusal has a wait")
        }
        Ask::Refund(cells) => {
            require((0..=cells).contains(&granted), "no more comes back than was given")?;
            require(retry_after_ms == 0, "giving back needs no wait")
        }
        Ask::Peek => {
            require(granted <= binding[1], "no tier has fewer than can be taken")?;
            require((granted == 0) == (retry_after_ms != 0), "a wait exactly if there is nothing")?;
            require(retry_after_ms >= 0, "one cell can always be had some day")
        }
    }
}

/// The longest anything can take: an empty bucket with a full reservation on top, and a millisecond of rounding.
fn longest_wait_ms() -> i64 {
    FILL_MAX.ceil_ms() + RESERVE_MAX.ceil_ms() + 1
}

fn four(reply: &Reply) -> Result<[i64; 4], String> {
    let numbers = reply.integers().and_then(|numbers| <[i64; 4]>::try_from(numbers).ok());
    numbers.ok_or_else(|| "four integers were expected".into())
}

fn require(holds: bool, promise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(promise.to_owned()) }
}
