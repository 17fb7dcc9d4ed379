//! What Resil promises to cost, held against what was measured.

use crate::catalogue as row;
use crate::figures::{Figures, REFERENCE};
use crate::flights::rows as flight;
use crate::ledger::Ledger;
use crate::limit;
use crate::locks::{Locks, pairs};
use crate::report::Bytes;

pub struct Bar {
    pub promise: &'static str,
    /// What was measured, as it is printed; `None` if it could not be.
    pub measured: Option<String>,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Stretch,
    Pass,
    Miss,
    NotMeasured,
}

impl Verdict {
    /// For a number that should be large.
    pub fn at_least(number: f64, bar: f64, stretch: f64) -> Self {
        match number {
            _ if number >= stretch => Self::Stretch,
            _ if number >= bar => Self::Pass,
            _ => Self::Miss,
        }
    }

    /// For a number that should be small.
    pub fn at_most(number: f64, bar: f64) -> Self {
        Self::at_least(-number, -bar, NO_STRETCH)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Stretch => "pass (stretch)",
            Self::Pass => "pass",
            Self::Miss => "**miss**",
            Self::NotMeasured => "not measured",
        }
    }
}

const NO_STRETCH: f64 = f64::INFINITY;

pub fn bars(figures: &Figures, bytes: &Bytes, locks: Option<&Locks>, ledger: Option<&Ledger>) -> Vec<Bar> {
    let faster = |promise, fast, slow, bar, stretch| match figures.faster(fast, slow) {
        Some(ratio) => Bar {
            promise,
            measured: Some(format!("{:.2}x CPU, {:.2}x rate", ratio.by_cpu, ratio.by_rate)),
            verdict: Verdict::at_least(ratio.by_cpu, bar, stretch),
        },
        None => Bar { promise, measured: None, verdict: Verdict::NotMeasured },
    };
    let replicated = |promise, ours, set| {
        let points = figures.extra_points((ours, row::GRANTED), (set, REFERENCE));
        Bar {
            promise,
            measured: points.map(|points| format!("{points:+.1} points")),
            verdict: points.map_or(Verdict::NotMeasured, |points| Verdict::at_least(-points, -5.0, NO_STRETCH)),
        }
    };
    let at_most = |promise, row, bar: f64, stretch: f64| {
        let size = bytes.get(row);
        Bar {
            promise,
            measured: size.map(|size| format!("{size:.0} bytes")),
            verdict: size.map_or(Verdict::NotMeasured, |size| Verdict::at_least(-size, -bar, -stretch)),
        }
    };
    let mut bars = vec![
        faster("RES.GCRA at least 0.95x `SET k v PX` (stretch 1.1x)", row::GRANTED, REFERENCE, 0.95, 1.1),
        faster("RES.GCRA at least 2x redis-cell", row::GRANTED, row::CELL, 2.0, NO_STRETCH),
        faster("RES.GCRA at least 5x Lua", row::GRANTED, row::LUA, 5.0, NO_STRETCH),
        faster("AND of three at least 2x three calls in one pipeline", row::AND, row::THREE_CALLS, 2.0, NO_STRETCH),
        faster("MGCRA of three at least 1.25x three calls", row::MGCRA, row::THREE_CALLS, 1.25, NO_STRETCH),
        replicated(
            "a replica slows RES.GCRA at most 5 points more than `SET k v PX`",
            row::REPLICATED_GRANTED,
            row::REPLICATED_SET_PX,
        ),
        replicated(
            "an AOF slows RES.GCRA at most 5 points more than `SET k v PX`",
            row::APPEND_ONLY_GRANTED,
            row::APPEND_ONLY_SET_PX,
        ),
        at_most("a RES.GCRA key takes at most 165 bytes (stretch 149)", row::GRANTED, 165.0, 149.0),
        faster(
            "RES.BREAKER ADMIT and REPORT at least 0.6x two `INCR`",
            row::BREAKER_PAIR,
            row::BREAKER_INCR_PAIR,
            0.6,
            NO_STRETCH,
        ),
        faster(
            "RES.BREAKER ADMIT on an open circuit at least 0.75x `GET`",
            row::BREAKER_OPEN,
            row::BREAKER_GET,
            0.75,
            NO_STRETCH,
        ),
        faster("RES.BREAKER TALLY at least 0.7x `INCR`", row::BREAKER_TALLY, row::BREAKER_INCR, 0.7, NO_STRETCH),
        at_most(
            "a breaker with a window of 60 s takes at most 1024 bytes",
            row::BREAKER_PAIR_TIME,
            1024.0,
            -NO_STRETCH,
        ),
        faster(
            "RES.LOCK ACQUIRE and RELEASE, pipelined, at least 1.2x `SET NX PX` and a script",
            pairs::OURS,
            pairs::SET_NX,
            1.2,
            NO_STRETCH,
        ),
        faster(
            "RES.LOCK ACQUIRE and RELEASE, one by one, at least 0.95x `SET NX PX` and a script",
            pairs::ONE_OURS,
            pairs::ONE_SET_NX,
            0.95,
            NO_STRETCH,
        ),
        faster("RES.SFLIGHT GET, fresh, at least 0.75x `GET`", flight::GET_OURS, flight::GET, 0.75, NO_STRETCH),
        faster("RES.SFLIGHT JOIN, fresh, at least 0.65x `GET`", flight::JOIN, flight::GET, 0.65, NO_STRETCH),
        faster("RES.IDEMP BEGIN, committed, at least 0.65x `GET`", flight::REPLAY, flight::GET, 0.65, NO_STRETCH),
        faster(
            "RES.IDEMP BEGIN and COMMIT at least 0.7x `SET NX PX` and `SET XX PX`",
            flight::RUN,
            flight::RUN_SET,
            0.7,
            NO_STRETCH,
        ),
        faster("RES.IDEMP ONCE, new, at least 0.9x `SET NX PX`", flight::ONCE, flight::ONCE_SET, 0.9, NO_STRETCH),
        faster(
            "RES.IDEMP ONCE, seen before, at least 0.9x `SET NX PX`",
            flight::ONCE_AGAIN,
            flight::ONCE_AGAIN_SET,
            0.9,
            NO_STRETCH,
        ),
    ];
    bars.extend(limit::ROWS.iter().map(|(ours, noop)| {
        let promise = format!("{ours}, at least 0.75x its no-op");
        let ratio = figures.faster(ours, noop);
        Bar {
            promise: promise.leak(),
            measured: ratio.map(|ratio| format!("{:.2}x CPU, {:.2}x rate", ratio.by_cpu, ratio.by_rate)),
            verdict: ratio.map_or(Verdict::NotMeasured, |ratio| Verdict::at_least(ratio.by_cpu, 0.75, NO_STRETCH)),
        }
    }));
    bars.extend(locks.into_iter().flat_map(Locks::bars));
    bars.extend(ledger.into_iter().flat_map(Ledger::bars));
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_met_at_the_bar() {
        assert_eq!(Verdict::at_least(0.95, 0.95, 1.1), Verdict::Pass);
        assert_eq!(Verdict::at_least(1.1, 0.95, 1.1), Verdict::Stretch);
        assert_eq!(Verdict::at_least(0.949, 0.95, 1.1), Verdict::Miss);
        assert_eq!(Verdict::at_least(-149.0, -165.0, -149.0), Verdict::Stretch);
        assert_eq!(Verdict::at_least(-5.1, -5.0, NO_STRETCH), Verdict::Miss);
    }
}
