//! Single flight: one caller loads, everybody gets what it loaded.
//!
//! # The promise
//! For one key at most one caller leads under a valid lease, and nobody while there is a fresh value. Followers get the
//! value in the reply they wait for. A leader that dies or gives up passes the lead to the next follower; it never fails
//! them. What a leader loaded before an invalidation is never seen.
//!
//! # The state
//! ```text
//!   durable    value   bytes or "not found", fresh until, stale until
//!              pause   nobody leads until then; with the error that caused it, or without
//!              leader  token, fence, lease
//!              ended   how the last few leads ended, for a grace of a minute
//!   volatile   the line of followers
//! ```
//! ```text
//!   JOIN   fresh value?   ──▶ VALUE or EMPTY
//!          stale value?   ──▶ STALE, if somebody leads or nobody may; else LEAD, with it
//!          an error kept? ──▶ ERROR
//!          a leader, or a pause? ──▶ wait, else BUSY
//!          nothing?       ──▶ LEAD
//!   the leader: PUBLISH ──▶ all followers are answered; ABANDON, lapse, close, INVALIDATE ──▶ the first follower leads
//! ```
//!
//! # Invariants
//! 1. PUBLISH, ABANDON and RENEW are obeyed only from the leading token; ABANDON by one who waits leaves the line.
//! 2. INVALIDATE ends the lead that began before it, whatever else it does.
//! 3. An error, or a pause, keeps a stale value.
//! 4. A follower's patience is its own: its wait ends by its own deadline, whatever happens to others.

mod ask;
mod edit;
mod encoding;
mod state;
mod step;

pub use crate::queue::Waiting;
pub use ask::{Abandoned, Answer, Ask, Joined, Lead, Outcome, Publication, Published, Seen};
pub use edit::{Edit, Edits};
pub use encoding::{decode_edits, decode_flight, encode_edits, encode_flight};
pub use state::{Cached, Flight, LeadEnd, Leader, Pause, Way};
pub use step::{
    Room, abandon, busy, close, cut, extend, give_up, hit, invalidate, join, leave, look, publish, renew, take_back,
    tick,
};
