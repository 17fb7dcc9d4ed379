//! Idempotency keys: work that is to be done once, and its result for everybody who asks again.
//!
//! # The promise
//! For one key at most one caller is told RUN under a valid lease, and nobody after a result was committed that is still
//! kept. Whoever asks meanwhile gets that result in the same reply, or is told who is busy. A runner that is not heard of
//! loses its turn to exactly one other, who is told that it is a second attempt: what the first one did outside, no
//! server can know.
//!
//! # The state
//! ```text
//!                    BEGIN                       COMMIT
//!    (nothing) ───────────────▶ running ───────────────────▶ done ── ttl ──▶ (nothing)
//!        ▲                       │   ▲                         ▲
//!        │ KEEP          ABORT,  │   │ BEGIN: attempt + 1      │ COMMIT by the last token
//!        │          lapse, close ▼   │                         │
//!        └────────────────────── idle ─────────────────────────┘
//!                                 └── lapsed with ONLAPSE HOLD: nobody runs until the last token commits or aborts
//!
//!    (nothing) ── ONCE ──▶ seen ── ttl ──▶ (nothing)
//! ```
//!
//! # Invariants
//! 1. The fingerprint of the first BEGIN stays for as long as the record does, in every phase.
//! 2. COMMIT, ABORT and RENEW are obeyed only from the token that ran last.
//! 3. A COMMIT is never refused for size or memory: the result is dropped, that the work is done is recorded.
//! 4. Attempts grow by one with each RUN; the fence grows with it.
//!
//! A change is the whole record: it is small until the result is there, and that is written once.

mod ask;
mod encoding;
mod record;
mod step;

pub use crate::queue::Waiting;
pub use ask::{Answer, Ask, Became, Begun, Committed, Outcome, Replay, Run, Settled};
pub use encoding::{decode_record, encode_record};
pub use record::{Idle, OnLapse, Once, Phase, Record, Work};
pub use step::{
    Room, abort, begin, close, commit, cut, extend, give_up, leave, look, lookup, once, renew, replay, seen_before,
    take_back, tick,
};
