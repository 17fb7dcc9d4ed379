//! Dead letters: a ledger of messages that failed.
//!
//! # The promise
//! A message that was failed is in the ledger exactly once, until a taker is done with it. It is retried a bounded number of times,
//! with growing and spread delays, and then it is dead. What is dead is never dropped: it leaves by being redriven under a written
//! root cause and done, or by a purge after its retention. A redrive never gives out more than its rate, with any number of takers.
//!
//! # The state
//! ```text
//!   FAIL (new) ──▶ waiting ── TAKE ──▶ taken ── DONE ──▶ (gone), or resolved if it ever died or is held
//!        │            ▲                 │ │
//!        │ FINAL      │ FAIL, RETURN,   │ └─ too many failures, FINAL, age, too many lapses ──▶ dead
//!        ▼            └──── a lapse ────┘                                                       │
//!       dead ◀──────────────────────────────────────────────────────────────────────────────────┘
//!        ├── REDRIVE under a case, then TAKE ──▶ taken, with new attempts
//!        ├── CLOSE ... DISCARD ──▶ archived ── PURGE ──▶ (gone)
//!        └── PURGE, after its retention ──▶ (gone)
//!   PARK ──▶ parked ── everything before it in its aggregate is done, resolved, archived or gone ──▶ waiting
//! ```
//!
//! # The transitions
//! Every row begins by catching up with the time and ends by serving the queue of takers ([`crate::waited`]).
//!
//! | event | unknown | waiting | taken | parked | dead | resolved, archived |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | FAIL without a fence | waiting, or dead | known | known | known | known | known |
//! | FAIL by the last fence | lost | waiting, or dead, after a lapse; said before: the same again | waiting, or dead | – | dead, the same again | lost |
//! | FAIL, other bytes | – | conflict | conflict | conflict | conflict | conflict |
//! | TAKE | – | taken, if it is due | the same token: the same entries | – | taken, if a redrive covers it and its turn has come | – |
//! | DONE by the last fence | done, if that is remembered | gone or resolved, after a lapse | gone or resolved | – | resolved, if it died of crashes | done |
//! | RETURN by the last fence | lost | returned before: the same again | waiting | – | lost | lost |
//! | another fence | lost | lost | lost | lost | lost | lost |
//! | the lease ends | – | – | waiting after a backoff; the third time dead | – | – | – |
//! | the reply was not delivered | – | – | waiting, as before | – | – | – |
//!
//! # Invariants
//! 1. An entry is in exactly one place, and an id is there once.
//! 2. Attempts never exceed the retries of the class of the last failure by more than the one that kills.
//! 3. The message never changes; only its payload is dropped when it is resolved, unless it is held.
//! 4. An entry is redriven at most once under a case, and never while it is held.
//! 5. Between two redriven entries that are given out lies the interval of the redrive, by any taker.
//! 6. What is parked has something of its aggregate before it.
//! 7. A batch has at least one entry; each of its entries has the fence of the batch and its position in it.

mod ahead;
mod alert;
mod apply;
mod apply_governance;
mod arrivals;
mod background;
mod case;
mod config;
mod done;
mod draw;
mod edit;
mod encoding;
mod entry;
mod failing;
mod fields;
mod governance;
mod group;
mod hashed;
mod ledger;
mod machine;
mod message;
mod notes;
mod records;
mod request;
mod show;
mod taking;
mod view;

pub use alert::{Alert, AlertKind, AuditRow};
pub use case::Discard;
pub use config::{Class, Config, Jitter, Rate, Retries};
pub use edit::{FailedEdit, Fate, LedgerEdit, LedgerEdits};
pub use failing::{fail, park, standing};
pub use governance::{ClockWatch, close, configure, diagnose, hold, purge, redrive, see, stop};
pub use hashed::seed_ids;
pub use ledger::Ledger;
pub use machine::Ledgers;
pub use message::{Cut, Facts, Message};
pub use request::*;
pub use taking::{done, give_back, renew, take};
pub use view::*;
