//! Stored policies: a whole policy for any language in two commands, ENTER and EXIT.
//!
//! # The promise
//! The key of a policy holds its settings and all that lives under it: one breaker, one limit, one set of places, one retry budget
//! for the whole fleet. ENTER asks every layer and takes from all of them, or from none. EXIT says what the call came to, and
//! whether to make it again. A caller that is not heard of frees what it holds when its ticket's lease ends.
//!
//! # The state
//! ```text
//!   durable    versions: document, version, when, by whom, why           the last 20; a deletion is one, too
//!              breaker, tiers or log of the limit                        the machines of RES.BREAKER, RES.GCRA and RES.WINDOW
//!              tickets: one attempt each, inside or waiting for a retry  a lease each; the ticket is its fence
//!              ends: the last 64, for a minute                           so that EXIT can be asked again
//!              budget: calls and retries in slots
//!   volatile   the queue of those who wait for a place
//!              learned: refusals by layer, what adapts
//! ```
//!
//! # The transitions
//! Every row begins by catching up with the time and ends by serving the queue ([`crate::waited`]).
//!
//! | event | no ticket | inside | waits for its retry |
//! | --- | --- | --- | --- |
//! | ENTER | all layers agree: inside; else refused, by the first that does not | the same admission again | as without one: a new call |
//! | ENTER WAIT | only a place is missing: queued | the same | the same |
//! | ENTER TICKET | error | the same admission, if it came from that ticket; else error | inside with a new ticket, or refused: then it still waits |
//! | EXIT OK, IGNORE, CANCEL | what was said before, or `unknown` | over: done | what was said: retry |
//! | EXIT FAIL | the same | over: stop, or waits for its retry | the same |
//! | its lease ends | – | over; the place and the probe are free | over; its budget comes back |
//! | a grant that could not be delivered | – | over, as CANCEL | – |
//! | SET | – | stays | stays |
//! | DELETE | – | over | over |
//!
//! # Invariants
//! 1. All layers or none: a refusal makes no edit.
//! 2. At most as many calls are inside as there are places when one is admitted; a smaller number evicts nobody.
//! 3. A ticket never repeats. It ends once: by EXIT, by its lease, by ENTER, or with the policy.
//! 4. A retry that waits, or began within the budget's window, is one that the budget allowed when it was granted.
//! 5. If a class is shed, every lower class is ([`crate::policy::shedding`]).
//! 6. Versions grow by one with every change; equal content is no change.

mod budget;
mod edit;
mod encoding;
mod layers;
mod learned;
mod machine;
mod publish;
mod request;
mod settings;
mod state;
mod step;
mod ticket;
mod versions;
mod view;

pub use edit::{GuardEdit, GuardEdits, PolicyEdit};
pub use layers::mended_limit;
pub use machine::Guards;
pub use publish::{Author, PolicyDeleted, PolicySet, SetAction, delete, set};
pub use request::{
    Admitted, EnterRefusal, EnterRequest, ExitRequest, Exited, Layer, LayerRefusal, Priority, RateView, RefusedFor,
    StopReason, Subject, SubjectChange, SubjectLimit,
};
pub use settings::{LimitRule, Places, RetryRule, Settings, read_policy};
pub use state::Guard;
pub use step::{enter, exit, limit_of, step_breaker};
pub use ticket::{Ticket, TicketEnd, TicketStage, Tickets};
pub use versions::{DOCUMENT_MAX, HISTORY_MAX, PolicyVersion, TOMBSTONE, Versions};
pub use view::{ChaosView, GuardView, show};
