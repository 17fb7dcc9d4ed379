//! The exact sliding window: at most `limit` cells in `(now - period, now]`, whatever the instant.
//!
//! # The state
//! A log of what was admitted, one entry per distinct instant, oldest first. Each entry carries the running total up
//! to and including itself, so that both questions are binary searches:
//!
//! ```text
//!    at:     100   130   190   250          now = 300, period = 150
//!    cells:    2     1     4     1          the window is (150, 300]: entries 190 and 250
//!    total:    2     3     7     8          used = 8 - 3 = 5
//! ```
//!
//! # The transitions
//! | ask | granted | the log afterwards |
//! | --- | --- | --- |
//! | TAKE n | n, if used + n <= limit; else nothing | an entry of n at now; what left the window is dropped |
//! | UPTO n | as many as fit, up to n | the same of those, if there are any |
//! | PEEK | what could be taken | as it was |
//!
//! # Invariants
//! 1. `at` and `total` strictly increase; every entry has at least one cell.
//! 2. The log holds at most as many cells as the largest limit it was asked with; a grant drops what has left the
//!    window, so memory is bounded by the limit.
//! 3. A refusal changes nothing, unless the clock was set back.
//!
//! The first two are checked after every change in debug builds.
//!
//! # Time
//! It never runs backwards for a key: within a second of jitter the newest entry's instant is taken for now. Entries
//! further ahead than that come from a clock that was set back; they are moved to `now + 1 s`, and the move is stored
//! even when the call is refused. A step thus costs at most one period and a second.

use alloc::vec::Vec;

use crate::codec::{self, Buffer, Malformed};
use crate::limits::{CLOCK_JITTER, INSTANT_MAX_US, PERIOD_MAX, WINDOW_LIMIT_CEILING};
use crate::rate_limit::{Ask, Reading, Verdict, Wait};
use crate::step::Step;
use crate::stored::{Plain, Stored};
use crate::time::{Instant, Span};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEntry {
    at_us: i64,
    /// Cells admitted up to and including this entry, since `Window::base`.
    total: u64,
}

/// The log of one key. `entries[head..]` is live; the front is dropped in bulk now and then.
#[derive(Debug, Clone, Default)]
pub struct Window {
    period_us: i64,
    entries: Vec<LogEntry>,
    head: usize,
    /// The total before the first live entry.
    base: u64,
}

/// What a call wants of a window: `limit` cells per `period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub limit: u32,
    pub period: Span,
}

/// What a step does to the log, with absolute values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowChange {
    pub period_us: i64,
    /// Entries later than this are moved to it: the clock was set back.
    pub cut_to_us: i64,
    /// The instant of the new entry; what left the window by then is dropped.
    pub at_us: i64,
    /// Cells admitted; 0 if only the clock was mended.
    pub cells: u32,
}

/// How the log reads at an instant.
struct LogView<'a> {
    window: &'a Window,
    rule: Rule,
    /// The instant that counts as now: never before the newest entry.
    now_us: i64,
    cut_to_us: i64,
    cut: bool,
    /// Index of the first entry inside the window.
    first: usize,
}

/// Decides `ask` (Take, UpTo or Peek) under `rule`. A missing key is an empty window.
pub fn step(window: &Window, rule: Rule, ask: Ask, now: Instant) -> Step<Verdict, WindowChange> {
    let view = LogView::read(window, rule, now);
    let free = rule.limit.saturating_sub(view.used());
    let (cells, wanted) = match ask {
        Ask::Take(cells) => (if cells <= free { cells } else { 0 }, cells),
        Ask::UpTo(cells) => (cells.min(free), cells),
        // Windows neither reserve nor refund: `wire` does not parse it, and asking costs nothing.
        Ask::Peek | Ask::Reserve { .. } | Ask::Refund(_) => {
            let retry_after = view.wait_for(1, 0, now);
            let verdict = view.verdict(free, free, retry_after, view.newest_leaves(now));
            return Step::unchanged(verdict);
        }
    };
    let retry_after = match ask {
        _ if cells == wanted => Wait::NONE,
        Ask::Take(cells) => view.wait_for(cells, 0, now),
        _ => view.wait_for(1, cells, now),
    };
    if cells == 0 {
        let verdict = view.verdict(0, free, retry_after, view.newest_leaves(now));
        return if view.cut { Step::changed(verdict, view.change(0)) } else { Step::unchanged(verdict) };
    }
    let reset_after = now.until(Instant::from_us(view.now_us).plus(rule.period));
    Step::changed(view.verdict(cells, free - cells, retry_after, reset_after), view.change(cells))
}

impl<'a> LogView<'a> {
    fn read(window: &'a Window, rule: Rule, now: Instant) -> Self {
        let newest_us = window.live().last().map_or(i64::MIN, |entry| entry.at_us);
        let bound_us = now.plus(CLOCK_JITTER).as_us();
        let cut = newest_us > bound_us;
        let cut_to_us = if cut { bound_us } else { INSTANT_MAX_US };
        let now_us = now.as_us().max(newest_us.min(bound_us));
        let left_us = now_us.saturating_sub(rule.period.as_us());
        let first = window.live().partition_point(|entry| entry.at_us.min(cut_to_us) <= left_us);
        Self { window, rule, now_us, cut_to_us, cut, first }
    }

    fn used(&self) -> u32 {
        (self.window.total() - self.total_before(self.first)).min(u32::MAX as u64) as u32
    }

    fn total_before(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(self.window.base, |previous| self.window.live()[previous].total)
    }

    /// How long until `cells` more fit, when `taken` of the free ones are being taken now.
    fn wait_for(&self, cells: u32, taken: u32, now: Instant) -> Wait {
        if cells > self.rule.limit {
            return Wait::Never;
        }
        let used = self.used() as u64 + taken as u64;
        let Some(must_leave) = (used + cells as u64).checked_sub(self.rule.limit as u64) else {
            return Wait::NONE;
        };
        if must_leave == 0 {
            return Wait::NONE;
        }
        let leaves_with = self.total_before(self.first) + must_leave;
        let live = self.window.live();
        let last = self.first + live[self.first..].partition_point(|entry| entry.total < leaves_with);
        // Beyond the log only the cells being taken now are left to leave.
        let at_us = live.get(last).map_or(self.now_us, |entry| entry.at_us.min(self.cut_to_us));
        Wait::For(now.until(Instant::from_us(at_us).plus(self.rule.period)))
    }

    fn newest_leaves(&self, now: Instant) -> Span {
        match self.window.live()[self.first..].last() {
            Some(entry) => {
                let at = Instant::from_us(entry.at_us.min(self.cut_to_us));
                now.until(at.plus(self.rule.period))
            }
            None => Span::ZERO,
        }
    }

    fn verdict(&self, granted: u32, remaining: u32, retry_after: Wait, reset_after: Span) -> Verdict {
        let reading = Reading { capacity: self.rule.limit, remaining, retry_after, reset_after };
        Verdict { granted, tiers: core::iter::once(reading).collect() }
    }

    fn change(&self, cells: u32) -> WindowChange {
        WindowChange { period_us: self.rule.period.as_us(), cut_to_us: self.cut_to_us, at_us: self.now_us, cells }
    }
}

impl Window {
    fn live(&self) -> &[LogEntry] {
        &self.entries[self.head..]
    }

    fn total(&self) -> u64 {
        self.entries.last().map_or(self.base, |entry| entry.total)
    }

    /// True if nothing is remembered: the key can go.
    pub fn is_empty(&self) -> bool {
        self.live().is_empty()
    }

    /// Distinct instants remembered.
    pub fn len(&self) -> usize {
        self.live().len()
    }

    /// Bytes of the log on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<LogEntry>()
    }

    /// Whether applying `change` may need a larger log: there is no room at the end, nor enough at the front.
    pub fn would_grow(&self, change: &WindowChange) -> bool {
        let left_us = change.at_us.saturating_sub(change.period_us);
        let gone = self.head + self.live().partition_point(|entry| entry.at_us <= left_us);
        let len = self.entries.len();
        let merges = self.live().last().is_some_and(|newest| newest.at_us >= change.at_us);
        change.cells > 0 && !merges && len == self.entries.capacity() && (len == 0 || gone * 2 < len)
    }

    /// When the key may be collected: after the newest entry has left, on a grid as in `rate_limit::gc_at`.
    pub fn gc_at(&self, salt: u64) -> Instant {
        let newest = Instant::from_us(self.live().last().map_or(0, |entry| entry.at_us));
        let period = Span::from_us(self.period_us);
        newest.plus(period).next_on_grid(Span::from_us(self.period_us / 2), salt)
    }

    /// The only mutation: the same on the server that decided and on its replicas.
    pub fn apply(&mut self, change: &WindowChange) {
        self.period_us = change.period_us;
        self.cut_to(change.cut_to_us);
        self.drop_until(change.at_us.saturating_sub(change.period_us));
        // A step never admits beyond the limit; whatever else brings a change cannot make the log larger than it may be.
        let room = (WINDOW_LIMIT_CEILING as u64).saturating_sub(self.total() - self.base);
        let cells = change.cells.min(room.min(u32::MAX as u64) as u32);
        if cells > 0 {
            self.push(change.at_us, cells);
        }
        self.check_invariants();
    }

    /// Panics in debug builds if the log is one that must not be. Of a long one the newest entries are looked at.
    fn check_invariants(&self) {
        const LOOKED_AT: usize = 64;
        debug_assert!(self.total() - self.base <= WINDOW_LIMIT_CEILING as u64);
        let newest = self.live().windows(2).rev().take(LOOKED_AT);
        debug_assert!(newest.clone().all(|pair| pair[0].at_us < pair[1].at_us && pair[0].total < pair[1].total));
    }

    fn push(&mut self, at_us: i64, cells: u32) {
        let total = self.total() + cells as u64;
        match self.entries[self.head..].last_mut() {
            Some(newest) if newest.at_us >= at_us => newest.total = total,
            _ => {
                self.make_room();
                self.entries.push(LogEntry { at_us, total });
            }
        }
    }

    /// Entries later than `cut_to_us` become one entry at it.
    fn cut_to(&mut self, cut_to_us: i64) {
        let total = self.total();
        let keep = self.head + self.live().partition_point(|entry| entry.at_us < cut_to_us);
        if keep < self.entries.len() {
            self.entries.truncate(keep);
            self.entries.push(LogEntry { at_us: cut_to_us, total });
        }
    }

    fn drop_until(&mut self, left_us: i64) {
        let gone = self.live().partition_point(|entry| entry.at_us <= left_us);
        if gone > 0 {
            self.base = self.entries[self.head + gone - 1].total;
            self.head += gone;
        }
        if self.head == self.entries.len() {
            self.entries.clear();
            self.head = 0;
        }
        self.give_back();
    }

    /// A log that became short gives its memory back, but not so eagerly that it would grow again at once.
    fn give_back(&mut self) {
        const KEPT: usize = 64;
        let live = self.live().len();
        if self.entries.capacity() > KEPT && live < self.entries.capacity() / 8 {
            self.entries.drain(..self.head);
            self.head = 0;
            self.entries.shrink_to(2 * live.max(KEPT / 2));
        }
    }

    /// Reuses the dropped front before asking the allocator: the log stays within twice its live part.
    fn make_room(&mut self) {
        if self.entries.len() < self.entries.capacity() || self.head == 0 {
            return;
        }
        if self.head * 2 >= self.entries.len() {
            self.entries.drain(..self.head);
            self.head = 0;
        }
    }

    /// The period the newest change was made with.
    pub fn period(&self) -> Span {
        Span::from_us(self.period_us)
    }

    /// `(at_us, cells)` of every live entry, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = (i64, u64)> + '_ {
        let mut before = self.base;
        self.live().iter().map(move |entry| {
            let cells = entry.total - before;
            before = entry.total;
            (entry.at_us, cells)
        })
    }

    /// Builds a log from `(at_us, cells)`; `None` unless it meets the invariants.
    pub fn from_entries(period_us: i64, entries: impl ExactSizeIterator<Item = Option<(i64, u64)>>) -> Option<Self> {
        if !(1..=PERIOD_MAX.as_us()).contains(&period_us) || entries.len() == 0 {
            return None;
        }
        let mut window = Self { period_us, ..Self::default() };
        let mut newest_us = -1;
        for entry in entries {
            let (at_us, cells) = entry?;
            let total = window.total() + cells;
            if at_us <= newest_us || at_us > INSTANT_MAX_US || cells == 0 || total > WINDOW_LIMIT_CEILING as u64 {
                return None;
            }
            newest_us = at_us;
            window.entries.push(LogEntry { at_us, total });
        }
        Some(window)
    }

    /// Hands the buffer to `relocate`, which may move it: for memory defragmentation.
    pub fn entries_mut(&mut self) -> &mut Vec<LogEntry> {
        &mut self.entries
    }
}

impl PartialEq for Window {
    fn eq(&self, other: &Self) -> bool {
        self.period_us == other.period_us && self.entries().eq(other.entries())
    }
}

impl Eq for Window {}

impl Stored for Window {
    type State = Self;
    type Edits = WindowChange;
    const WHOLE: u8 = codec::LOG;
    const EDITS: Option<u8> = Some(codec::LOG_CHANGE);

    fn encode(state: &Self, out: &mut impl Buffer) {
        codec::encode_log(state, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        codec::decode_log(bytes)
    }

    fn decode_edits(bytes: &[u8]) -> Result<WindowChange, Malformed> {
        codec::decode_log_change(bytes)
    }

    fn apply_all(state: &mut Self, change: WindowChange) {
        state.apply(&change);
    }

    fn is_nothing(state: &Self) -> bool {
        state.is_empty()
    }

    fn collect_at(state: &Self, salt: u64) -> Option<Instant> {
        Some(state.gc_at(salt))
    }

    fn heap_bytes(state: &Self) -> usize {
        state.heap_bytes()
    }

    /// A box and one buffer, however long the log.
    fn parts(_state: &Self) -> usize {
        2
    }
}

impl Plain for Window {
    fn encode_edits(change: &WindowChange, out: &mut impl Buffer) {
        codec::encode_log_change(change, out);
    }
}
