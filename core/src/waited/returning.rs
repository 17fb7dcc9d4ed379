//! A server that may have forgotten what it granted, and for how long it grants no lock.
//!
//! A server that was started again after a crash may have lost the last locks it granted. One of several independent servers
//! that together grant a lock ([`quorum`](crate::quorum)) must not grant then what another caller still relies on: it stays
//! out until every lease has ended that it may have forgotten.
//! ```text
//!   started without proof that nothing was lost, or promoted ──▶ returning ── the delay is over ──▶ returned, once ──▶ not
//! ```
//! A server that is asked for a lock without a delay is back at once. By the clock by which leases end. A clock that was set back starts the delay anew.
//!
//! Fences are put ahead when the server has *returned*, and not only when it started: those it forgot may have been raised
//! beyond its own clock by as much as clocks differ, and by then its clock has come as far.

use crate::time::{Instant, Span};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Returning {
    since: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// It has been here all along.
    Not,
    /// It grants nothing for so long.
    In(Span),
    /// The delay is over; said once. Fences are to be put ahead now.
    Now,
}

impl Returning {
    /// A server that has been here all along.
    pub const fn new() -> Self {
        Self { since: None }
    }

    /// From `now` on it may have forgotten something.
    pub fn begin(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// It has forgotten nothing.
    pub fn forget(&mut self) {
        self.since = None;
    }

    pub fn look(&mut self, delay: Span, now: Instant) -> Return {
        let Some(since) = self.since else { return Return::Not };
        if delay.is_zero() {
            self.since = None;
            return Return::Not;
        }
        let since = since.min(now);
        self.since = Some(since);
        let ends = since.plus(delay);
        if now < ends {
            return Return::In(now.until(ends));
        }
        self.since = None;
        Return::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Span = Span::from_us(100);

    #[test]
    fn a_server_returns_once_after_the_delay() {
        let mut returning = Returning::default();
        assert_eq!(returning.look(DELAY, Instant::from_us(5)), Return::Not);
        returning.begin(Instant::from_us(1_000));
        assert_eq!(returning.look(DELAY, Instant::from_us(1_000)), Return::In(DELAY));
        assert_eq!(returning.look(DELAY, Instant::from_us(1_099)), Return::In(Span::from_us(1)));
        assert_eq!(returning.look(DELAY, Instant::from_us(1_100)), Return::Now);
        assert_eq!(returning.look(DELAY, Instant::from_us(1_050)), Return::Not);
    }

    #[test]
    fn a_clock_set_back_never_makes_the_delay_longer() {
        let mut returning = Returning::default();
        returning.begin(Instant::from_us(1_000));
        assert_eq!(returning.look(DELAY, Instant::from_us(10)), Return::In(DELAY));
        assert_eq!(returning.look(DELAY, Instant::from_us(110)), Return::Now);
    }

    #[test]
    fn without_a_delay_a_server_was_never_away() {
        let mut returning = Returning::default();
        returning.begin(Instant::from_us(1_000));
        assert_eq!(returning.look(Span::ZERO, Instant::from_us(1_000)), Return::Not);
        assert_eq!(
            returning.look(DELAY, Instant::from_us(1_000)),
            Return::Not,
            "one that is set later is for later starts"
        );
    }
}
