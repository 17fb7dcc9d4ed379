//! Single flight: one caller loads, everybody gets what it loaded.
//!
//! # The promise
//! For one key at most one caller leads under a valid lease, and nobody while there is a fresh value. Followers get the
//! value in the reply they wait for. A leader that dies or gives up passes the lead to the next follower; it never fails
//! them. What a leader loaded before an invalidation is never seen.
//!
//! # The state
//! ```text
//!   durable    value   bytes or "not found", fresh until, stale until; the tags and the generation it was published under
//!              pause   nobody leads until then; with the error that caused it, or without
//!              leader  token, fence, lease; the generation of the name it loads under
//!              ended   how the last few leads ended, for a grace of a minute
//!   volatile   the queue of followers
//! ```
//!
//! # The transitions
//! Every row begins by catching up with the time and ends by serving the queue ([`crate::waited`]).
//!
//! | event | fresh value | stale value | kept error | leader or pause, nothing else | nothing |
//! | --- | --- | --- | --- | --- | --- |
//! | JOIN | value, or empty | leads with it; stale if it may not lead | error | queued, or busy | leads |
//! | JOIN by the leader | – | the same lead | – | the same lead | – |
//! | PUBLISH by the leader | all followers get it; it replaces value and pause | the same | the same | the same | lost |
//! | PUBLISH of an error | all followers get it; it replaces the pause, and keeps a stale value | the same | the same | the same | lost |
//! | ABANDON by the leader | the first follower leads, after the pause if one is given | the same | the same | the same | lost |
//! | SET | a lead ends; the value is stored, and all followers get it | the same | the same | the same | the same |
//! | INVALIDATE | value, pause and lead end; SOFT keeps the value as stale | the same | the same | the same | – |
//! | the lease ends, the bound connection closes | the first follower leads | the same | the same | the same | – |
//!
//! JOIN with EARLY leads in the last part of a fresh value's ttl, too, if nobody does: it alone loads, everybody else has the
//! value.
//!
//! # Names and tags
//! What is asked for, and published, under a name is checked against the name's [`generations`](crate::generations): JOIN
//! first drops (or softens) a value that was invalidated by a tag or with the whole name, and ends a lead that the name
//! voids. PUBLISH is lost if its tags or its name were invalidated since the lead began. A follower that leads after a voided load
//! leads under the generation of that moment, so that one invalidation costs one load and not one for each follower.
//!
//! # Invariants
//! 1. PUBLISH, ABANDON and RENEW are obeyed only from the leading token; ABANDON by a token that waits leaves the queue.
//! 2. INVALIDATE ends the lead that began before it, whatever else it does.
//! 3. An error, or a pause, keeps a stale value.
//! 4. A follower's patience is its own: its wait ends by its own deadline, whatever happens to others.

mod edit;
mod encoding;
mod request;
mod state;
mod step;
mod under;

pub use crate::waited::Waiting;
pub use edit::{FlightEdit, FlightEdits};
pub use encoding::{decode_edits, decode_flight, encode_edits, encode_flight};
pub use request::{Abandoned, Lead, LeadRequest, Publication, Published, Seen, UnderName};
pub use state::{Cached, Flight, LeadEnd, Leader, LoadPause, Stamp, Way};
pub use step::{Flights, abandon, busy, hit, invalidate, join, look, publish, renew, set};
