//! Idempotency keys: work that is to be done once, and its result for every caller that asks again.
//!
//! # The promise
//! For one key at most one caller gets RUN under a valid lease, and none while a committed result is kept. Every caller that asks
//! meanwhile gets that result in the same reply, or the reply that the key is busy. A runner that falls silent loses its turn to
//! exactly one other caller, whose reply says that it is a second attempt: what the first one did outside,
//! no server can know.
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
//! # The transitions
//! Every row begins by catching up with the time and ends by serving the queue ([`crate::waited`]).
//!
//! | event | nothing | running | idle | idle, held | done | seen |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | BEGIN | running | by the same token: the same run; else busy, or queued | running, attempt + 1 | held | replay | conflict |
//! | BEGIN, another fingerprint | running | mismatch | mismatch | mismatch | mismatch | conflict |
//! | COMMIT by the last token | lost | done | done, unless it aborted: lost | done | the same again | lost |
//! | ABORT by the last token | lost | idle: aborted | idle: aborted | idle: aborted | lost | lost |
//! | RENEW by the last token | lost | the lease ends later | lost | lost | lost | lost |
//! | another token | lost | lost | lost | lost | lost | lost |
//! | ONCE | seen, first | conflict | conflict | conflict | conflict | the same again |
//! | the lease ends | – | idle: lapsed | – | – | – | – |
//! | the bound connection closes | – | idle: closed, or the lease ends earlier | – | – | – | – |
//!
//! # Invariants
//! 1. The fingerprint of the first BEGIN stays for as long as the record does, in every phase.
//! 2. COMMIT, ABORT and RENEW are obeyed only from the token that ran last.
//! 3. A COMMIT is never refused for size or memory: the result is dropped, that the work is done is recorded.
//! 4. Attempts grow by one with each RUN; the fence grows with it.
//!
//! A replica gets the whole record: it is small until the result is there, and that is written once.

mod edit;
mod encoding;
mod record;
mod request;
mod step;

pub use crate::waited::Waiting;
pub use edit::{RecordEdit, RecordEvent};
pub use encoding::{decode_record, encode_record};
pub use record::{Idle, OnLapse, Once, Record, Work, WorkPhase};
pub use request::{Committed, Replay, Run, RunRequest, Settled};
pub use step::{Idempotency, abort, begin, commit, look, lookup, once, renew, replay, seen_before};
