//! The edits a step makes, and the one function that makes them.

use alloc::boxed::Box;
use alloc::sync::Arc;

use smallvec::SmallVec;

use super::request::{Exited, SubjectChange};
use super::settings::Settings;
use super::state::Guard;
use super::ticket::{Ticket, TicketEnd, TicketStage};
use super::versions::PolicyVersion;
use crate::circuit_breaker::{Edit as BreakerEdit, Transition};
use crate::rate_limit::TierSet;
use crate::time::{Instant, Span};
use crate::waited::End;
use crate::window::WindowChange;

/// One change of a guard, with absolute values. Tickets are named by their number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardEdit {
    /// A new version of the policy, or its deletion. What was counted stays; a deletion drops all that lives.
    Published(Box<PolicyEdit>),
    /// A call is admitted. The ticket it comes from, if there is one, has ended.
    Admitted(Arc<Ticket>),
    /// What the policy's own limit has become.
    Limited(TierSet),
    Logged(WindowChange),
    /// What the breaker's own step did.
    Broke(BreakerEdit),
    Timed {
        number: u64,
        lease: Span,
        ends: Instant,
    },
    /// EXIT: the call is over, and this was said.
    Exited {
        number: u64,
        at: Instant,
        said: Exited,
    },
    /// EXIT: the call waits for its retry.
    Retried {
        number: u64,
        at: Instant,
        delay: Span,
        lease: Span,
        ends: Instant,
    },
    /// A retry that was admitted reached nobody: the ticket it came with waits again.
    Reopened(Box<Ticket>),
    /// The ticket ended without an EXIT.
    Ended {
        number: u64,
        at: Instant,
        how: End,
    },
    /// The breaker changed its state, by edits that came before. Only listeners need it: replicas do not get it.
    Moved(Transition),
}

impl From<SubjectChange> for GuardEdit {
    /// What the policy's own limit has become.
    fn from(change: SubjectChange) -> Self {
        match change {
            SubjectChange::Gcra(tiers) => Self::Limited(tiers),
            SubjectChange::Window(change) => Self::Logged(change),
        }
    }
}

pub type GuardEdits = SmallVec<[GuardEdit; 1]>;

/// A version of the policy, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyEdit {
    pub version: PolicyVersion,
    /// `None`: it is deleted.
    pub settings: Option<Box<Settings>>,
}

impl Guard {
    /// The only writer. An edit that fits nothing here changes nothing.
    pub fn apply(&mut self, edit: GuardEdit) {
        match edit {
            GuardEdit::Published(publication) => self.publish(*publication),
            GuardEdit::Admitted(ticket) => self.admit(ticket),
            GuardEdit::Limited(tiers) => self.tiers = tiers,
            GuardEdit::Logged(change) => self.log.get_or_insert_default().apply(&change),
            GuardEdit::Broke(edit) => {
                if let Some(breaker) = &mut self.breaker {
                    breaker.apply(&edit);
                }
            }
            GuardEdit::Timed { number, lease, ends } => self.tickets.set_time(number, lease, ends),
            GuardEdit::Exited { number, at, said } => {
                if self.tickets.remove(number).is_some() {
                    self.tickets.remember(TicketEnd { number, at, said });
                }
            }
            GuardEdit::Retried { number, at, delay, lease, ends } => {
                if let Some(ticket) = self.tickets.remove(number) {
                    let stage = TicketStage::Waiting { delay };
                    self.tickets.insert(Ticket { since: at, lease, ends, stage, ..Arc::unwrap_or_clone(ticket) });
                }
            }
            GuardEdit::Reopened(ticket) => {
                self.last_fence = self.last_fence.max(ticket.number);
                self.tickets.insert(*ticket);
            }
            GuardEdit::Ended { number, .. } => drop(self.tickets.remove(number)),
            GuardEdit::Moved(_) => {}
        }
    }

    fn admit(&mut self, ticket: Arc<Ticket>) {
        self.last_fence = self.last_fence.max(ticket.number);
        let (at, from) = (ticket.since, ticket.from);
        if let Some(before) = self.tickets.remove(from)
            && let Some(said) = before.retry()
        {
            self.tickets.remember(TicketEnd { number: from, at, said });
        }
        if let Some(budget) = self.settings.as_ref().and_then(|settings| settings.retry.as_ref()?.budget.as_ref()) {
            if from == 0 { self.budget.count_call(budget, at) } else { self.budget.count_retry(budget, at) }
        }
        self.tickets.insert(ticket);
    }
}
