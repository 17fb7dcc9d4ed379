//! A token bucket, refilled continuously, in exact fractions: what GCRA must look like from outside.
//!
//! It imports nothing from the crate under test and says the same thing another way: it counts tokens that are *there*
//! (core counts a debt), as a level measured at an instant (core stores an arrival time), and reads the level off the
//! straight line through that point:
//!
//! ```text
//!   level
//!   capacity |            ________      never above capacity
//!            |          /
//!            |        / <- rises by cells/period each microsecond
//!          0 |------x--------------- time
//!     floor  |____/ at                  never below what reservations have booked: there the clock was set back
//! ```

use std::collections::BTreeMap;

use crate::ratio::Ratio;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub cells: i64,
    pub period_us: i64,
    pub capacity: i64,
}

#[derive(Debug, Clone, Copy)]
pub enum Request {
    Take(i64),
    UpTo(i64),
    Reserve { cells: i64, within_us: i64 },
    Refund(i64),
    Peek,
}

/// One tier of a reply; `wait_us` is `None` for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub capacity: i64,
    pub remaining: i64,
    pub wait_us: Option<i64>,
    pub reset_us: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub granted: i64,
    pub rows: Vec<Row>,
    /// Whether anything was written down.
    pub stored: bool,
}

/// All tiers of a key, by period.
#[derive(Debug, Clone, Default)]
pub struct Buckets {
    lines: BTreeMap<i64, Line>,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    rate: Rate,
    level: Ratio,
    at_us: i64,
    /// How long the last reservation had to wait when it was written down, in milliseconds rounded up.
    booked_ms: i64,
}

impl Rate {
    fn per_us(&self) -> Ratio {
        Ratio::new(self.cells as i128, self.period_us as i128)
    }

    fn full(&self) -> Ratio {
        Ratio::whole(self.capacity)
    }

    /// Tokens that drop in within `us`.
    fn refill(&self, us: i64) -> Ratio {
        self.per_us() * Ratio::whole(us)
    }

    /// Microseconds until `tokens` have dropped in.
    fn time_for(&self, tokens: Ratio) -> i64 {
        tokens.max(Ratio::ZERO).per(self.per_us()).ceil()
    }
}

impl Line {
    fn written(rate: Rate, level: Ratio, at_us: i64) -> Self {
        let booked_us = rate.time_for(-level);
        Self { rate, level, at_us, booked_ms: (booked_us + 999) / 1_000 }
    }

    fn floor(&self) -> Ratio {
        -self.rate.refill(self.booked_ms * 1_000)
    }

    fn unbounded(&self, now_us: i64) -> Ratio {
        self.level + self.rate.refill(now_us - self.at_us)
    }

    fn level(&self, now_us: i64) -> Ratio {
        self.unbounded(now_us).max(self.floor()).min(self.rate.full())
    }

    fn is_full(&self, now_us: i64) -> bool {
        self.level(now_us) == self.rate.full()
    }

    fn clock_was_set_back(&self, now_us: i64) -> bool {
        self.unbounded(now_us) < self.floor()
    }
}

/// A named tier and the line it continues.
struct Named {
    rate: Rate,
    line: Option<Line>,
    /// The level under the named capacity: as many tokens are missing as before.
    exact: Ratio,
    /// The same in steps of `1 / period`, the grain a change of period is carried over with.
    level: Ratio,
    clock_was_set_back: bool,
}

impl Named {
    fn new(rate: Rate, line: Option<Line>, now_us: i64) -> Self {
        let exact = line.map_or(rate.full(), |line| rate.full() - line.rate.full() + line.level(now_us));
        let level = match line {
            Some(line) if line.rate.period_us != rate.period_us => exact.floor_to(rate.period_us),
            _ => exact,
        };
        Self { rate, line, exact, level, clock_was_set_back: line.is_some_and(|l| l.clock_was_set_back(now_us)) }
    }

    fn remaining(&self) -> i64 {
        self.level.floor().max(0)
    }

    /// Missing tokens beyond the new capacity, and beyond what is booked, are let go when a change is written down.
    fn carried(&self) -> Ratio {
        let booked_ms = self.line.map_or(0, |line| line.booked_ms);
        self.level.max(-self.rate.refill(booked_ms * 1_000))
    }

    /// Until something is granted under the named rate, the stored one refills.
    fn wait_until(&self, level: Ratio) -> i64 {
        if self.level >= level {
            return 0;
        }
        self.line.map_or(self.rate, |line| line.rate).time_for(level - self.exact)
    }

    fn wait_to_take(&self, cells: i64) -> Option<i64> {
        (cells <= self.rate.capacity).then(|| self.wait_until(Ratio::whole(cells)))
    }

    fn as_is(&self, wait_us: Option<i64>) -> Row {
        Row {
            capacity: self.rate.capacity,
            remaining: self.remaining(),
            wait_us,
            reset_us: self.wait_until(self.rate.full()),
        }
    }

    fn at_level(&self, level: Ratio, wait_us: i64) -> Row {
        Row {
            capacity: self.rate.capacity,
            remaining: level.floor().max(0),
            wait_us: Some(wait_us),
            reset_us: self.rate.time_for(self.rate.full() - level),
        }
    }
}

impl Buckets {
    /// The periods of all tiers written down.
    pub fn periods(&self) -> Vec<i64> {
        self.lines.keys().copied().collect()
    }

    pub fn call(&mut self, rates: &[Rate], request: Request, now_us: i64) -> Reply {
        let named = self.named(rates, now_us);
        match request {
            Request::Peek => Reply {
                granted: named.iter().map(Named::remaining).min().unwrap_or(0),
                rows: named.iter().map(|n| n.as_is(n.wait_to_take(1))).collect(),
                stored: false,
            },
            Request::Take(cells) => {
                if named.iter().any(|n| n.level < Ratio::whole(cells)) {
                    return self.refuse(&named, |n| n.wait_to_take(cells), now_us);
                }
                self.grant(&named, cells, |n| (n.level - Ratio::whole(cells), 0), now_us)
            }
            Request::UpTo(cells) => {
                let taken = named.iter().map(Named::remaining).min().unwrap_or(0).min(cells);
                if taken == 0 {
                    return self.refuse(&named, |n| n.wait_to_take(1), now_us);
                }
                let settle = |n: &Named| {
                    let level = n.level - Ratio::whole(taken);
                    let wait_us = if taken < cells { n.rate.time_for(Ratio::whole(1) - level) } else { 0 };
                    (level, wait_us)
                };
                self.grant(&named, taken, settle, now_us)
            }
            Request::Reserve { cells, within_us } => {
                let least = |n: &Named| Ratio::whole(cells) - n.rate.refill(within_us);
                // Cells are used together: a turn at which the bucket cannot hold them all never comes.
                let wait = |n: &Named| match n.rate.capacity < cells {
                    true => None,
                    false => Some(if n.carried() < least(n) { n.wait_until(least(n)) } else { 0 }),
                };
                if named.iter().any(|n| wait(n) != Some(0)) {
                    return self.refuse(&named, wait, now_us);
                }
                let settle = |n: &Named| {
                    let level = n.carried() - Ratio::whole(cells);
                    (level, n.rate.time_for(-level))
                };
                self.grant(&named, cells, settle, now_us)
            }
            Request::Refund(cells) => {
                let missing = |n: &Named| (n.rate.full() - n.carried()).ceil();
                let returned = named.iter().map(missing).max().unwrap_or(0).min(cells);
                if returned == 0 {
                    let rows = named.iter().map(|n| n.as_is(Some(0))).collect();
                    return Reply { granted: 0, rows, stored: false };
                }
                let settle = |n: &Named| ((n.carried() + Ratio::whole(returned)).min(n.rate.full()), 0);
                self.grant(&named, returned, settle, now_us)
            }
        }
    }

    /// A tier continues the stored one of its period; or, if one named and one stored tier are left over, that one.
    fn named(&self, rates: &[Rate], now_us: i64) -> Vec<Named> {
        let is_named = |line: &&Line| rates.iter().any(|rate| rate.period_us == line.rate.period_us);
        let owing = || self.lines.values().filter(|line| !line.is_full(now_us));
        let left_over: Vec<&Line> = owing().filter(|line| !is_named(line)).collect();
        let new = rates.iter().filter(|rate| !self.lines.contains_key(&rate.period_us)).count();
        let renamed = if left_over.len() == 1 && new == 1 { Some(*left_over[0]) } else { None };
        let continued = |rate: &Rate| self.lines.get(&rate.period_us).copied().or(renamed);
        rates.iter().map(|rate| Named::new(*rate, continued(rate), now_us)).collect()
    }

    fn refuse(&mut self, named: &[Named], wait: impl Fn(&Named) -> Option<i64>, now_us: i64) -> Reply {
        let rows = named.iter().map(|n| n.as_is(wait(n))).collect();
        let stored = named.iter().any(|n| n.clock_was_set_back);
        if stored {
            self.lines.retain(|_, line| !line.is_full(now_us));
            for line in self.lines.values_mut() {
                *line = Line::written(line.rate, line.level(now_us), now_us);
            }
        }
        Reply { granted: 0, rows, stored }
    }

    fn grant(&mut self, named: &[Named], cells: i64, settle: impl Fn(&Named) -> (Ratio, i64), now_us: i64) -> Reply {
        let mut rows = Vec::new();
        for line in named.iter().filter_map(|n| n.line) {
            self.lines.remove(&line.rate.period_us);
        }
        self.lines.retain(|_, line| !line.is_full(now_us));
        for line in self.lines.values_mut().filter(|line| line.clock_was_set_back(now_us)) {
            *line = Line::written(line.rate, line.level(now_us), now_us);
        }
        for tier in named {
            let (level, wait_us) = settle(tier);
            rows.push(tier.at_level(level, wait_us));
            if level < tier.rate.full() {
                self.lines.insert(tier.rate.period_us, Line::written(tier.rate, level, now_us));
            }
        }
        Reply { granted: cells, rows, stored: true }
    }
}
