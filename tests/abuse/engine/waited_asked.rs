//! What every reply of a lock, a bulkhead, an idempotency key, a single flight, a ledger or a stored policy must look like.

use super::resp::Reply::{self, Array, Bulk, Integer, Nil};

/// Subcommands by the shape of their replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitedAsk {
    Acquire,
    Enter,
    /// RENEW of all four.
    Renew,
    /// RELEASE and LEAVE.
    Release,
    /// BREAK, CHECK, ONCE, INVALIDATE.
    Number,
    Begin,
    Commit,
    /// ABORT and ABANDON.
    Abort,
    Replay,
    Join,
    Seen,
    Publish,
    /// INFO of all four.
    Info,
    Heartbeat,
    Fail,
    Park,
    Take,
    /// RENEW of what was taken.
    RenewTaken,
    /// DONE and RETURN.
    Settle,
    /// GET, and INFO of one thing.
    Shown,
    /// LIST, and INFO of many.
    Listed,
    /// REDRIVE, CLOSE, PURGE, STOP, CONFIG; all of RES.POLICY.
    Governed,
    GuardEnter,
    GuardExit,
    /// RES.LIST.
    List,
    /// RES.TOP.
    Top,
}

/// What such a call may be refused with though it is well-formed.
pub const LAWFUL_REFUSALS: [&str; 19] = [
    "WRONGTYPE ",
    "PHASE ",
    "DEADLOCK ",
    "CLOCK ",
    "ERR RAISE is for the holder of an exclusive lock",
    "SUPERSEDED ",
    "TRYAGAIN ",
    "UNBLOCKED ",
    "ERR BOUND is not possible in a script",
    "ERR BOUNDTO ",
    "CONFLICT ",
    "FULL ",
    "ERR no group is named ",
    "ERR there is no case ",
    "ERR case ",
    "ERR the clock has jumped ",
    "NOPOLICY ",
    "TICKET ",
    "VERSION ",
];

const REASONS: [&str; 12] = [
    "expired",
    "broken",
    "closed",
    "released",
    "taken",
    "absent",
    "aborted",
    "committed",
    "published",
    "invalidated",
    "evicted",
    "done",
];

const LAYERS: [&str; 6] = ["shed", "throttle", "breaker", "limit", "bulkhead", "chaos"];

/// Rows are maps that begin with a key; a list has a cursor before them.
fn check_rows(ask: WaitedAsk, reply: &Reply) -> Option<()> {
    let rows = match (ask, reply) {
        (WaitedAsk::List, Array(parts)) => match parts.as_slice() {
            [Bulk(cursor), Array(rows)] if cursor.iter().all(u8::is_ascii_digit) => rows,
            _ => return None,
        },
        (_, Array(rows)) => rows,
        _ => return None,
    };
    let is_row = |row: &Reply| match row {
        Array(fields) => {
            fields.len() % 2 == 0 && matches!(fields.as_slice(), [Bulk(name), Bulk(_), ..] if name == b"key")
        }
        _ => false,
    };
    (rows.len() <= 128 && rows.iter().all(is_row)).then_some(())
}

/// Whether the reply has the shape its command promises. A fence is above 0.
pub fn check_waited(ask: WaitedAsk, reply: &Reply) -> Result<(), String> {
    if let WaitedAsk::List | WaitedAsk::Top = ask {
        return check_rows(ask, reply).ok_or_else(|| format!("{reply:?} is no reply to {ask:?}"));
    }
    let elements = if let Array(elements) = reply { elements.as_slice() } else { std::slice::from_ref(reply) };
    let (verdict, rest) = match elements {
        [Bulk(verdict), rest @ ..] | [Reply::Status(verdict), rest @ ..] => {
            (std::str::from_utf8(verdict).unwrap_or("?"), rest)
        }
        _ => ("", elements),
    };
    let fits = match (ask, verdict, rest) {
        (WaitedAsk::Acquire, "GRANTED", [Integer(1..), Integer(0..), Integer(0..)]) => true,
        (WaitedAsk::Acquire, "TAKEN" | "TIMEOUT", [Bulk(_) | Nil, Integer(0..), Integer(0..)]) => true,
        (WaitedAsk::Enter, "GRANTED", [Integer(1..), Integer(0..), Integer(0..), Integer(0..)]) => true,
        (WaitedAsk::Enter, "FULL" | "TIMEOUT", [Integer(0..), Integer(0..), Integer(_), ..]) => true,
        (WaitedAsk::Renew, "GRANTED", [Integer(1..), Integer(1..), Integer(0)]) => true,
        (WaitedAsk::Release, "RELEASED", [Integer(0..)]) => true,
        (WaitedAsk::Number, "", [Integer(0..)]) => true,
        (WaitedAsk::Begin, "RUN", [Integer(1..), Integer(1..), Integer(0..)]) => true,
        (WaitedAsk::Replay, "MISS", []) => true,
        (WaitedAsk::Begin | WaitedAsk::Replay, "MISMATCH", []) => true,
        (WaitedAsk::Begin | WaitedAsk::Replay, "BUSY", [Integer(0..), Integer(0..)]) => true,
        (WaitedAsk::Begin | WaitedAsk::Replay, "HELD", [Integer(1..)]) => true,
        (WaitedAsk::Begin | WaitedAsk::Replay, "REPLAY", [Bulk(how), Bulk(_) | Nil, Integer(0..)]) => {
            how == b"ok" || how == b"error"
        }
        (WaitedAsk::Commit, "COMMITTED", [Bulk(how)]) => how == b"stored" || how == b"dropped",
        (WaitedAsk::Abort, "ABORTED" | "ABANDONED", []) => true,
        (WaitedAsk::Join, "LEAD", [Integer(1..), Bulk(_) | Nil, Integer(0..)]) => true,
        (WaitedAsk::Join, "BUSY", [Integer(0..)]) => true,
        (WaitedAsk::Seen, "MISS", []) => true,
        (WaitedAsk::Join | WaitedAsk::Seen, "VALUE", [Bulk(_), Integer(0..), Integer(0..)]) => true,
        (WaitedAsk::Join | WaitedAsk::Seen, "STALE", [Bulk(_), Integer(0..)]) => true,
        (WaitedAsk::Join | WaitedAsk::Seen, "EMPTY", [Integer(0..)]) => true,
        (WaitedAsk::Join | WaitedAsk::Seen, "ERROR", [Bulk(_)]) => true,
        (WaitedAsk::Publish, "PUBLISHED", [Integer(0..)]) => true,
        (
            WaitedAsk::Renew | WaitedAsk::Release | WaitedAsk::Commit | WaitedAsk::Abort | WaitedAsk::Publish,
            "LOST",
            [Bulk(why)],
        ) => REASONS.iter().any(|reason| reason.as_bytes() == why),
        (WaitedAsk::Info, _, _) => elements.len() >= 6 && elements.len() % 2 == 0,
        (WaitedAsk::Fail, "RETRY", [Integer(0..), Integer(100..)]) => true,
        (WaitedAsk::Fail, "DEAD", [Integer(1..), Bulk(_), Bulk(_)]) => true,
        (WaitedAsk::Fail | WaitedAsk::Park, "KNOWN", [Bulk(_), Integer(0..)]) => true,
        (WaitedAsk::Park, "FREE", []) | (WaitedAsk::Park, "PARKED", [Integer(1..)]) => true,
        (WaitedAsk::Take, "TAKEN", [Integer(0..), Integer(0..), Array(entries)]) => {
            !entries.is_empty() && entries.iter().all(|entry| matches!(entry, Array(fields) if fields.len() == 6))
        }
        (WaitedAsk::Take, "NONE" | "TIMEOUT", [Integer(-1..)]) => true,
        (WaitedAsk::RenewTaken, "GRANTED", [Integer(1..), Integer(0..)]) => true,
        (WaitedAsk::Settle, "DONE" | "RETURNED", []) => true,
        (WaitedAsk::Settle, "", verdicts) => verdicts.iter().all(|one| check_waited(WaitedAsk::Settle, one).is_ok()),
        (WaitedAsk::Shown, _, _) => *reply == Nil || elements.len() == 1 || elements.len() % 2 == 0,
        (WaitedAsk::Listed, "", [Integer(0..), Array(_)]) => true,
        (WaitedAsk::Governed, _, _) => true,
        (
            WaitedAsk::GuardEnter,
            "ADMITTED",
            [Bulk(_), Integer(1..), Integer(-1..), Integer(-1..), Integer(1..), rate],
        ) => matches!(rate, Nil) || matches!(rate, Array(numbers) if numbers.len() == 3),
        (WaitedAsk::GuardEnter, "REFUSED", [Bulk(layer), Integer(-1..), Bulk(_), Integer(1..), Nil | Array(_)]) => {
            LAYERS.iter().any(|known| known.as_bytes() == layer)
        }
        (WaitedAsk::GuardExit, "DONE", []) => true,
        (WaitedAsk::GuardExit, "RETRY", [Integer(0..), Integer(2..)]) => true,
        (WaitedAsk::GuardExit, "STOP", [Bulk(_), Integer(0..)]) => true,
        (WaitedAsk::Fail | WaitedAsk::RenewTaken | WaitedAsk::Settle, "LOST", [Bulk(why)]) => {
            REASONS.iter().any(|reason| reason.as_bytes() == why)
        }
        (WaitedAsk::Heartbeat, "", [Integer(0..), Array(_)]) => true,
        _ => false,
    };
    if fits { Ok(()) } else { Err("another shape was expected".into()) }
}
