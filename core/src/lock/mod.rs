//! Locks and bulkheads: one machine of holders with leases and a line of waiters.
//!
//! # The promise
//! By the server's own time there are never two exclusive holders, never a reader beside a writer, never more permits
//! than `max`. Whoever waits is served in the order of arrival, exactly once, the moment the place is free. A holder
//! that is not heard of loses its lease, is told so once, and nothing it does later with its old fence is mistaken for
//! the present holder's.
//!
//! # The state
//! ```text
//!   durable    holders: owner, fence, since, lease, end, mode, meta        (codec, digest, edits)
//!              ended:   the last few ends, for a grace of a minute: who, which fence, how
//!              last fence
//!   volatile   the queue: owner, mode or max, lease, since when, until when
//! ```
//! ```text
//!                 fits                                    the head fits
//!   ACQUIRE ─────────────▶ holder ◀──────────────────────────────────── waiter ◀── ACQUIRE ... WAIT
//!                           │  │ RENEW, BOUND: the lease ends later       │
//!                           │  │ its connection closes, with a grace:     │
//!                           │  │ the lease ends earlier                   │
//!                           ▼  ▼                                          ▼
//!             released, expired, broken, closed           timed out, left, superseded by the same owner
//! ```
//!
//! # Invariants
//! 1. An exclusive holder is alone. A permit is granted only while fewer than `max` are active: the `max` of the newest
//!    ENTER, which counts for everybody who waits. A smaller one ends nobody's permit.
//! 2. Nobody overtakes: a newcomer is granted only if it would be the head of the line and fits.
//! 3. Fences of a key grow strictly; a grant that is asked for again has the same fence.
//! 4. An owner holds once and waits once, never both.
//! 5. A lease that has ended at or before now is ended before anything else is decided, in the order of time: whoever
//!    waited at that instant gets the place, whoever had given up before it does not.
//! 6. A clock that was set back costs at most one lease.
//!
//! # How it changes
//! A step decides by looking and changes by [`Edit`]s, with absolute values. The same edits, applied in the same order,
//! are what a replica does. Queues are not replicated.

mod ask;
mod edit;
mod encoding;
mod holder;
mod holders;
mod step;
mod view;

pub use crate::queue::Waiting;
pub use ask::{Acquired, Answer, Ask, Busy, Claim, Ending, Grant, Outcome, Reason, Released, Renewed, Setting};
pub use edit::{Edit, Edits};
pub use encoding::{Kind, decode_edits, decode_holders, encode_edits, encode_holders};
pub use holder::{End, Ended, Holder, Mode};
pub use holders::Holders;
pub use step::{
    Room, acquire, break_all, close, could_take, cut, extend, give_up, leave, release, renew, take_back, tick,
};
pub use view::{busy, check, lives};
