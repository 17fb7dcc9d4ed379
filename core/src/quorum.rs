//! One exclusive lock over several independent servers: when it is held, under which fence, and until when.
//!
//! This is the caller's side: what it has heard of each server decides. It asks servers that run the machine of
//! [`lock`](crate::lock), with messages that may be lost, late or doubled. The SDK drives it over connections, the model check
//! over a simulated network.
//!
//! # Acquiring
//! ```text
//!   ACQUIRE to all at once ── a majority granted: F is the highest of their fences ──▶ RENEW ... RAISE F to those below F
//!     └─ no majority possible ──▶ RELEASE to all                                        │
//!                                                  a majority is at F or above, and time is left ──▶ held, under F
//! ```
//! A server that granted F, or more, needs no RAISE: its fence, its key's last and its floor are there already. As many are
//! raised as are needed for a majority; another one is when a RAISE fails.
//!
//! A server refuses a RAISE that is far ahead of its clock. If so many do that F has no majority, the clocks of those that granted F
//! are ahead of the others': F becomes the highest of the other grants, as soon as those are a majority by themselves.
//!
//! # Renewing
//! RENEW ... RAISE F goes to all. A server that does not hold the lock (it was away, or has forgotten) is asked with ACQUIRE by the
//! same owner, and then raised. The lock goes on if a majority holds it.
//!
//! # Invariants
//! 1. Held means that a majority of servers hold the lease for this owner until `until`, counted from before the first question
//!    was sent, less the drift: so no other caller has a majority before.
//! 2. F is above the fence of every earlier holder. Two majorities share a server. It acknowledged the earlier F1, so it grants
//!    only above F1 from then on, and its grant is among those of which F is the highest.
//! 3. A server that an operator took the lock from is not asked again for this holding.

use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::time::{Instant, Span};
use crate::waited::Reason;

/// How many of `servers` must agree.
pub const fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// What the clocks may drift apart during `lease`: one percent of it and two milliseconds.
pub fn drift(lease: Span) -> Span {
    Span::from_us(lease.as_us() / 100 + 2_000)
}

fn until(sent: Instant, lease: Span) -> Instant {
    sent.plus(lease).minus(drift(lease))
}

/// What a server said to ACQUIRE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asked {
    Granted {
        fence: u64,
    },
    Taken,
    /// No reply in time, or an error: nothing is known.
    Failed,
}

/// What a server said to RENEW ... RAISE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raising {
    Raised,
    Lost(Reason),
    /// The fence is too far ahead of its clock; it still holds the lock as it granted it.
    TooFarAhead,
    Failed,
}

/// What is known of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Server {
    /// A question is on its way: ACQUIRE, or a RENEW.
    Asked,
    Granted(u64),
    /// RENEW ... RAISE is on its way. An acquisition has the fence that was granted, a renewal 0.
    Raising(u64),
    /// It granted this fence, and does not take F: that is too far ahead of its clock.
    Behind(u64),
    /// Holds the lock, at F or above.
    Raised,
    /// Somebody else has it.
    Taken,
    /// An operator took it away.
    Broken,
    Failed,
}

type Servers = SmallVec<[Server; 5]>;

fn count(servers: &[Server], is_it: impl Fn(&Server) -> bool) -> usize {
    servers.iter().filter(|server| is_it(server)).count()
}

/// Why there is no lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unheld {
    /// Others have it, or a part of the servers.
    Taken,
    /// An operator took it away.
    Broken,
    /// Too few servers replied.
    Unreachable,
    /// The replies came when the lease was nearly over.
    Late,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuorumVerdict {
    Pending,
    Held { until: Instant },
    Unheld(Unheld),
}

/// One attempt to acquire, by one owner that no other attempt has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acquisition {
    servers: Servers,
    begun: Instant,
    lease: Span,
    fence: Option<u64>,
}

impl Acquisition {
    /// ACQUIRE is about to be sent to each of `servers`, at `now` by the caller's monotonic clock.
    pub fn begin(servers: usize, lease: Span, now: Instant) -> Self {
        Self { servers: core::iter::repeat_n(Server::Asked, servers).collect(), begun: now, lease, fence: None }
    }

    /// The fence of the lock, once a majority granted.
    pub fn fence(&self) -> Option<u64> {
        self.fence
    }

    /// What `server` said to ACQUIRE. A second reply changes nothing.
    pub fn asked(&mut self, server: usize, reply: Asked) {
        let Some(known) = self.servers.get_mut(server).filter(|known| **known == Server::Asked) else { return };
        *known = match reply {
            Asked::Granted { fence } => Server::Granted(fence),
            Asked::Taken => Server::Taken,
            Asked::Failed => Server::Failed,
        };
        self.find_fence();
        self.leave_out_fast_clocks();
    }

    /// F is the highest fence of a majority of grants; what is there already needs no RAISE.
    fn find_fence(&mut self) {
        let fences = self.servers.iter().filter_map(|known| match known {
            Server::Granted(fence) => Some(*fence),
            _ => None,
        });
        if self.fence.is_none() && fences.clone().count() >= majority(self.servers.len()) {
            self.fence = fences.max();
        }
        let highest = self.fence;
        for known in &mut self.servers {
            if matches!((*known, highest), (Server::Granted(fence), Some(highest)) if fence >= highest) {
                *known = Server::Raised;
            }
        }
    }

    /// The servers to which RENEW ... RAISE [`fence`](Self::fence) is to be sent now.
    pub fn take_raises(&mut self) -> SmallVec<[usize; 4]> {
        let mut raises = SmallVec::new();
        if self.fence.is_none() {
            return raises;
        }
        let counted = count(&self.servers, |known| matches!(known, Server::Raised | Server::Raising(_)));
        let mut lacking = majority(self.servers.len()).saturating_sub(counted);
        for (server, known) in self.servers.iter_mut().enumerate() {
            if let (1.., Server::Granted(granted)) = (lacking, *known) {
                *known = Server::Raising(granted);
                raises.push(server);
                lacking -= 1;
            }
        }
        raises
    }

    /// What `server` said to RENEW ... RAISE.
    pub fn raised(&mut self, server: usize, reply: Raising) {
        let Some(known) = self.servers.get_mut(server) else { return };
        let Server::Raising(granted) = *known else { return };
        *known = match reply {
            Raising::Raised => Server::Raised,
            Raising::Lost(Reason::Broken) => Server::Broken,
            Raising::Lost(_) => Server::Taken,
            Raising::TooFarAhead => Server::Behind(granted),
            Raising::Failed => Server::Failed,
        };
        self.leave_out_fast_clocks();
    }

    /// If F cannot have a majority any more because servers are behind it, it is chosen anew among the others' grants. Those that are
    /// at F stay counted: they are above the new one, too.
    fn leave_out_fast_clocks(&mut self) {
        let is_behind = |known: &Server| matches!(known, Server::Behind(_));
        let is_possible = !is_against_majority(&self.servers, |known| is_behind(known) || is_against(known));
        if is_possible || !self.servers.iter().any(is_behind) {
            return;
        }
        for known in &mut self.servers {
            if let Server::Behind(granted) = *known {
                *known = Server::Granted(granted);
            }
        }
        self.fence = None;
        self.find_fence();
    }

    pub fn verdict(&self, now: Instant) -> QuorumVerdict {
        let until = until(self.begun, self.lease);
        if now >= until {
            return QuorumVerdict::Unheld(Unheld::Late);
        }
        // A fence takes a majority of grants that do not exceed it.
        let may_be_granted = |known: &Server| matches!(known, Server::Asked | Server::Granted(_));
        if self.fence.is_none() && is_against_majority(&self.servers, |known| !may_be_granted(known)) {
            return QuorumVerdict::Unheld(why_unheld(&self.servers));
        }
        verdict(&self.servers, until)
    }
}

fn is_against(known: &Server) -> bool {
    matches!(known, Server::Taken | Server::Broken | Server::Failed)
}

/// Whether the others are no majority.
fn is_against_majority(servers: &[Server], is_against: impl Fn(&Server) -> bool) -> bool {
    servers.len() - count(servers, is_against) < majority(servers.len())
}

fn verdict(servers: &[Server], until: Instant) -> QuorumVerdict {
    if count(servers, |known| *known == Server::Raised) >= majority(servers.len()) {
        return QuorumVerdict::Held { until };
    }
    if !is_against_majority(servers, is_against) {
        return QuorumVerdict::Pending;
    }
    QuorumVerdict::Unheld(why_unheld(servers))
}

fn why_unheld(servers: &[Server]) -> Unheld {
    match () {
        () if servers.contains(&Server::Broken) => Unheld::Broken,
        () if servers.contains(&Server::Taken) && !is_against_majority(servers, |known| *known == Server::Failed) => {
            Unheld::Taken
        }
        () => Unheld::Unreachable,
    }
}

/// What to send next to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Send {
    /// ACQUIRE by the same owner.
    Acquire,
    /// RENEW ... RAISE the fence of the lock.
    Raise,
}

/// One renewal of a lock that is held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Renewal {
    servers: Servers,
    sent: Instant,
    lease: Span,
    fence: u64,
}

impl Renewal {
    /// RENEW ... RAISE `fence` is about to be sent to each of `servers`, at `now` by the caller's monotonic clock.
    pub fn begin(servers: usize, fence: u64, lease: Span, now: Instant) -> Self {
        Self { servers: core::iter::repeat_n(Server::Raising(0), servers).collect(), sent: now, lease, fence }
    }

    /// What `server` said to RENEW ... RAISE, and what to send to it.
    pub fn raised(&mut self, server: usize, reply: Raising) -> Option<Send> {
        let known = self.servers.get_mut(server).filter(|known| matches!(known, Server::Raising(_)))?;
        let (becomes, send) = match reply {
            Raising::Raised => (Server::Raised, None),
            // Released: the caller has let go meanwhile.
            Raising::Lost(Reason::Broken | Reason::Released) => (Server::Broken, None),
            Raising::Lost(_) => (Server::Asked, Some(Send::Acquire)),
            Raising::TooFarAhead | Raising::Failed => (Server::Failed, None),
        };
        *known = becomes;
        send
    }

    /// What `server` said to ACQUIRE, and what to send to it.
    pub fn asked(&mut self, server: usize, reply: Asked) -> Option<Send> {
        let fence = self.fence;
        let known = self.servers.get_mut(server).filter(|known| **known == Server::Asked)?;
        let (becomes, send) = match reply {
            Asked::Granted { fence: granted } if granted >= fence => (Server::Raised, None),
            Asked::Granted { .. } => (Server::Raising(0), Some(Send::Raise)),
            Asked::Taken => (Server::Taken, None),
            Asked::Failed => (Server::Failed, None),
        };
        *known = becomes;
        send
    }

    pub fn verdict(&self) -> QuorumVerdict {
        verdict(&self.servers, until(self.sent, self.lease))
    }

    /// Which servers hold the lock, as far as is known.
    pub fn holders(&self) -> Vec<usize> {
        let held = self.servers.iter().enumerate().filter(|(_, known)| **known == Server::Raised);
        held.map(|(server, _)| server).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Span = Span::from_secs(10);

    fn at(us: i64) -> Instant {
        Instant::from_us(us)
    }

    fn granted(fence: u64) -> Asked {
        Asked::Granted { fence }
    }

    #[test]
    fn the_highest_fence_of_a_majority_is_raised_elsewhere() {
        let mut lock = Acquisition::begin(5, LEASE, at(0));
        lock.asked(4, granted(7));
        lock.asked(0, granted(9));
        assert_eq!((lock.fence(), lock.take_raises().len()), (None, 0));
        lock.asked(2, granted(8));
        assert_eq!(lock.fence(), Some(9));
        assert_eq!(lock.take_raises().as_slice(), [2, 4]);
        lock.asked(1, granted(20));
        assert_eq!(lock.verdict(at(1)), QuorumVerdict::Pending);
        lock.raised(2, Raising::Raised);
        assert_eq!(lock.verdict(at(1)), QuorumVerdict::Held { until: at(9_898_000) });
        assert_eq!(lock.fence(), Some(9), "a later grant changes nothing");
    }

    #[test]
    fn a_majority_of_grants_without_acknowledged_fences_is_no_lock() {
        let mut lock = Acquisition::begin(3, LEASE, at(0));
        lock.asked(0, granted(7));
        lock.asked(1, granted(9));
        assert_eq!(lock.take_raises().as_slice(), [0]);
        lock.raised(0, Raising::Failed);
        assert_eq!(lock.verdict(at(1)), QuorumVerdict::Pending, "the third may still grant");
        lock.asked(2, Asked::Taken);
        assert_eq!(lock.verdict(at(1)), QuorumVerdict::Unheld(Unheld::Taken));
    }

    #[test]
    fn a_raise_that_failed_is_replaced_by_another_server() {
        let mut lock = Acquisition::begin(5, LEASE, at(0));
        for (server, fence) in [(0, 7), (1, 9), (2, 8)] {
            lock.asked(server, granted(fence));
        }
        assert_eq!(lock.take_raises().as_slice(), [0, 2]);
        lock.asked(3, granted(5));
        assert!(lock.take_raises().is_empty(), "two are on their way");
        lock.raised(0, Raising::Failed);
        assert_eq!(lock.take_raises().as_slice(), [3]);
    }

    #[test]
    fn a_server_whose_clock_is_far_ahead_is_left_out() {
        let mut lock = Acquisition::begin(3, LEASE, at(0));
        lock.asked(0, granted(9_000));
        lock.asked(1, granted(7));
        assert_eq!((lock.fence(), lock.take_raises().as_slice()), (Some(9_000), &[1][..]));
        lock.raised(1, Raising::TooFarAhead);
        assert_eq!(lock.verdict(at(1)), QuorumVerdict::Pending, "the third may still take it");
        lock.asked(2, granted(8));
        assert_eq!(lock.take_raises().as_slice(), [2]);
        lock.raised(2, Raising::TooFarAhead);
        assert_eq!(lock.fence(), Some(8), "the highest of the others, which are a majority");
        assert_eq!(lock.verdict(at(1)), QuorumVerdict::Held { until: at(9_898_000) }, "the first is above it");
    }

    #[test]
    fn a_fence_takes_a_majority_of_grants_not_above_it() {
        let mut lock = Acquisition::begin(3, LEASE, at(0));
        lock.asked(0, granted(9_000));
        lock.asked(1, granted(7));
        assert_eq!(lock.take_raises().as_slice(), [1]);
        lock.asked(2, Asked::Failed);
        lock.raised(1, Raising::TooFarAhead);
        assert_eq!(lock.fence(), None);
        assert_eq!(lock.verdict(at(1)), QuorumVerdict::Unheld(Unheld::Unreachable));
    }

    #[test]
    fn a_server_whose_clock_is_far_behind_is_done_without() {
        let mut lock = Acquisition::begin(3, LEASE, at(0));
        lock.asked(0, granted(7));
        lock.asked(1, granted(9_001));
        assert_eq!(lock.take_raises().as_slice(), [0]);
        lock.raised(0, Raising::TooFarAhead);
        lock.asked(2, granted(9_000));
        assert_eq!(lock.take_raises().as_slice(), [2]);
        lock.raised(2, Raising::Raised);
        assert_eq!(lock.fence(), Some(9_001));
        assert_eq!(lock.verdict(at(1)), QuorumVerdict::Held { until: at(9_898_000) });
    }

    #[test]
    fn a_lock_that_comes_after_its_lease_is_none() {
        let mut lock = Acquisition::begin(3, LEASE, at(0));
        (0..3).for_each(|server| lock.asked(server, granted(9)));
        assert_eq!(lock.verdict(at(9_897_999)), QuorumVerdict::Held { until: at(9_898_000) });
        assert_eq!(lock.verdict(at(9_898_000)), QuorumVerdict::Unheld(Unheld::Late));
    }

    #[test]
    fn a_server_that_came_back_is_asked_again() {
        let mut renewal = Renewal::begin(3, 9, LEASE, at(0));
        assert_eq!(renewal.raised(0, Raising::Raised), None);
        assert_eq!(renewal.raised(1, Raising::Lost(Reason::Absent)), Some(Send::Acquire));
        assert_eq!(renewal.verdict(), QuorumVerdict::Pending);
        assert_eq!(renewal.asked(1, granted(4)), Some(Send::Raise));
        assert_eq!(renewal.raised(1, Raising::Raised), None);
        assert_eq!(renewal.verdict(), QuorumVerdict::Held { until: at(9_898_000) });
        assert_eq!(renewal.holders(), [0, 1]);
    }

    #[test]
    fn a_lock_that_an_operator_broke_is_not_taken_again() {
        let mut renewal = Renewal::begin(3, 9, LEASE, at(0));
        assert_eq!(renewal.raised(0, Raising::Lost(Reason::Broken)), None);
        assert_eq!(renewal.raised(1, Raising::Lost(Reason::Broken)), None);
        assert_eq!(renewal.verdict(), QuorumVerdict::Unheld(Unheld::Broken));
    }

    #[test]
    fn a_second_reply_changes_nothing() {
        let mut lock = Acquisition::begin(3, LEASE, at(0));
        lock.asked(0, Asked::Taken);
        lock.asked(0, granted(9));
        lock.asked(1, granted(9));
        assert_eq!(lock.fence(), None);
        lock.raised(1, Raising::Raised);
        assert_eq!(lock.verdict(at(1)), QuorumVerdict::Pending);
    }
}
