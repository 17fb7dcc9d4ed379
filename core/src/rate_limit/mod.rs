//! Rate limits by GCRA: exact, in integers, several tiers under one key.
//!
//! # The promise
//! Over any interval T, cells admitted minus cells refunded are at most `capacity + limit * T / period`, and a caller
//! that waits `retry_after` and is alone is admitted. Nothing drifts: 3 per second is 3 per second after a year.
//!
//! # The state
//! A bucket is seen from its empty side. Its *debt* is what must still drain before it is full again:
//!
//! ```text
//!        taken, not yet drained          free
//!   |###########################|....................|          capacity = 100 cells
//!   0                         debt                  100
//!                              <-- drains at limit/period
//! ```
//!
//! Debt is counted in *grains*: one cell is `period` grains (period in microseconds), and `limit` grains drain each
//! microsecond. Both are integers, so every decision is exact. What is stored per tier is when the debt will be gone
//! (the theoretical arrival time, TAT) as a whole microsecond plus `frac/limit` of one:
//!
//! ```text
//!   debt(now) = (tat_us - now) * limit + frac      grains, 0 if tat_us < now
//! ```
//!
//! # The transitions
//! Every row begins by reading the debt of each named tier at `now`. *Fits* is asked of all of them.
//!
//! | ask | fits | granted | each named tier afterwards | refused |
//! | --- | --- | --- | --- | --- |
//! | TAKE n | debt + n <= capacity | n | debt + n | nothing changes |
//! | UPTO n | debt + 1 <= capacity | as many as fit, up to n | debt + those | nothing changes |
//! | RESERVE max | debt + 1 <= capacity, or drains to that within max | 1, for later | debt + 1, which may overhang | nothing changes |
//! | REFUND n | a cell is owed | what is owed, up to n | debt - those, never below 0 | nothing changes |
//! | PEEK | – | what could be taken | nothing changes | – |
//!
//! # Invariants
//! 1. `frac < limit`; limit, capacity and period are in the bounds of [`crate::limits`].
//! 2. At the time of a write, debt <= capacity (RESERVE: + `overhang`, the time the last reservation has to wait).
//! 3. Tiers of a key are sorted by period, no two have the same; at most 16 are stored, 8 named in one call.
//! 4. A step that refuses changes nothing, with one exception: see *clock steps*.
//!
//! In debug builds every change is held against them before it is handed out.
//!
//! # Tiers
//! A named tier is matched with a stored one by its period. If exactly one named and exactly one stored tier are left
//! over, they are the same limit with a changed period (a stored tier that has drained does not count). A stored tier
//! that is not named keeps its debt until it has drained, but does not decide. All named tiers are taken, or none.
//!
//! # A changed rate
//! Until a call is granted under a new configuration, debt drains at the stored rate (so `retry_after` is computed at
//! that rate: it is the truth). A grant carries the debt over in cells. Where more can be owed than the new capacity
//! holds, by a reservation or a refund, it is clamped to it (plus what was reserved).
//!
//! # Clock steps
//! Debt above capacity (plus overhang) cannot come from grants: the clock was set back. It is cut down to that bound
//! and the cut is stored even when the call is refused; otherwise the bucket would stay frozen until the clock is
//! back. A step thus costs at most one bucket.
//!
//! # Where this differs from others
//! redis-cell and its copies store a TAT computed with a rounded emission interval and lose the fraction; they deny
//! after a rate was raised, because their debt is time, not cells; and they cannot tell a clock step from a debt.

pub mod cell;
mod gcra;
mod many;
mod packed;
mod quota;
mod tier;

pub use gcra::{Ask, Reading, TierSet, TooManyTiers, Verdict, Wait, gc_at, step};
pub use many::{ManyChange, ManyVerdict, step_many};
pub use packed::Packed;
pub use quota::{Quota, QuotaError};
pub use tier::Tier;
