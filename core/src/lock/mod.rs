//! Locks and bulkheads: one machine of holders with leases and a queue of waiters.
//!
//! # The promise
//! By the server's own time there are never two exclusive holders, never a reader beside a writer, never more permits
//! than `max`. Waiters are served in the order of arrival, exactly once, the moment they fit. A holder that is not heard of
//! loses its lease, learns so once, and nothing it does later with its old fence is mistaken for the present holder's.
//!
//! # The state
//! ```text
//!   durable    holders: owner, fence, since, lease, end, mode, meta        (codec, digest, edits)
//!              ended:   the last few ends, for a grace of a minute: who, which fence, how
//!              last fence
//!   volatile   the queue: owner, mode or max, lease, since when, until when
//! ```
//!
//! # The transitions
//! Every row begins by catching up with the time and ends by serving the queue ([`crate::waited`]).
//!
//! | event | the owner holds | the owner waits | neither |
//! | --- | --- | --- | --- |
//! | ACQUIRE, ENTER | the same fence, a lease that ends no earlier; a reader that wants to write beside others: conflict | leaves, then as a newcomer | granted if it would be the head and fits, else refused |
//! | ... WAIT | the same | the new call has the position, the old one is superseded | granted if it would be the head and fits, else queued, or refused if the queue is full |
//! | RENEW | the lease ends `lease` from now | lost | lost |
//! | RENEW ... RAISE f | the same, and its fence, the key's last and the server's are at least f; too far ahead of the clock, or not exclusive: refused | lost | lost |
//! | RELEASE | ended: released | leaves (without a fence) | released again, or lost |
//! | BREAK | everybody's ended: broken | – | – |
//! | the head of the queue fits | – | granted | – |
//! | the lease ends | ended: expired | – | – |
//! | the wait ends | – | timed out | – |
//! | the bound connection closes | ended: closed; with a grace, the lease ends earlier | – | – |
//!
//! # Invariants
//! 1. An exclusive holder is alone. A permit is granted only while fewer than `max` are active: the `max` of the newest
//!    ENTER, which counts for everybody who waits. A smaller one ends nobody's permit.
//! 2. Nobody overtakes: a newcomer is granted only if it would be the head of the queue and fits.
//! 3. Fences of a key grow strictly; a grant that is asked for again has the same fence, or the one it was raised to.
//! 4. An owner holds once and waits once, never both.
//! 5. A lease that has ended at or before now is ended before anything else is decided, in the order of time: a waiter of
//!    that instant gets it, one that had given up before does not.
//! 6. A clock that was set back costs at most one lease.

mod edit;
mod encoding;
mod holder;
mod holders;
mod request;
mod step;
mod view;

pub use crate::waited::{Grant, Reason, Renewed, Setting, Waiting};
pub use edit::{HolderEdit, HolderEdits};
pub use encoding::{Kind, decode_edits, decode_holders, encode_edits, encode_holders};
pub use holder::{EndedHolding, Holder, Mode};
pub use holders::Holders;
pub use request::{Busy, Claim, LockRequest, Raise, Raised, Released};
pub use step::{BULKHEAD, Bulkheads, Holding, LOCK, Locks, acquire, break_all, could_take, raise, release, renew};
pub use view::{busy, check, lives};
