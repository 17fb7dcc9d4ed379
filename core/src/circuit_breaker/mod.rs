//! The circuit breaker: one for the whole fleet.
//!
//! # The promise
//! It trips exactly when a threshold is met, lets exactly PROBES calls out in half-open, and can never be wedged: a
//! probe that is not heard of frees its place when its lease ends. A report from before the last transition changes
//! nothing.
//!
//! # The states
//! ```text
//!                 threshold met                     any failure
//!        ┌──────────────────────────▶ open ◀─────────────────────────┐
//!        │                             │ first ADMIT after the time  │
//!     closed                           ▼                             │
//!        ▲                         half-open ────────────────────────┤
//!        │  SUCCESSES probes           │                             │
//!        ├─────────────────────────────┤  with RAMP                  │
//!        │        after RAMP           ▼                             │
//!        └───────────────────────── ramping ─────────────────────────┘
//!
//!     FORCE puts it into forced-open, forced-closed, disabled or metrics; AUTO, or the end of FOR, into closed.
//!     The end of FOR with THEN PROBE puts it into half-open.
//! ```
//!
//! # The transitions
//! Every row begins by mending a clock that was set back, by forgetting what IDLE forgets, and by ending a forced state or a
//! ramp whose time is over.
//!
//! | event | closed | open | half-open | ramping | forced |
//! | --- | --- | --- | --- | --- | --- |
//! | ADMIT | admitted | denied; after its time half-open, then as there | a probe, if fewer than PROBES are out; else denied | admitted by chance: 10, 25, 50 % | admitted; forced-open: denied |
//! | REPORT OK | counted | unknown | of a probe: counted; with SUCCESSES of them closed, or ramping with RAMP | counted | counted; disabled: ignored; forced-open: unknown |
//! | REPORT FAIL | counted; open if a threshold is met | unknown | of a probe: open | open | as OK |
//! | REPORT IGNORE, CANCEL | ignored | ignored | of a probe: its place is free | ignored | ignored |
//! | TALLY | counted; open if a threshold is met | stale | stale | stale | counted; disabled: ignored; forced-open: stale |
//! | FORCE | forced | forced | forced | forced | forced otherwise, or the same for longer |
//! | FORCE AUTO, the end of FOR | – | – | – | – | closed; the end of FOR with THEN PROBE: half-open |
//! | RESET | closed, nothing counted | the same | the same | the same | the same |
//! | CONFIG, options | a shorter LEASE or RAMP counts at once | the same | the same | the same | the same |
//!
//! A slow call is a failure in half-open and ramping where slow calls trip. A report under an earlier generation is stale, and
//! changes nothing, in every column. The moves between states stand as a table in [`Transition::is_in_table`].
//!
//! # Generations
//! Every transition gets `generation = max(now_us, last + 1)`. A permit names the generation it was given in; a report
//! counts only in that one. A key that went and came back starts at generation 0 again, so a permit also says when it
//! was given: one of generation 0 is stale after an hour, and whatever has left generation 0 is kept for that long.
//!
//! # Permits
//! A permit of a closed breaker is not remembered: it is only checked. A probe's permit is: it has a number, a lease,
//! and counts once.
//!
//! # Invariants
//! 1. At most PROBES probes are out; each ends with its lease. Denied admits never extend anything.
//! 2. Counts belong to one generation: a transition empties the window, the run of failures and the evidence.
//! 3. IGNORE and CANCEL free a permit and count neither way.
//! 4. All memory is bounded: 10,000 outcomes or 20 slices, 100 probes, 64 callers as evidence, 128 callers of TALLY.
//! 5. A state is left only by the moves of the table, each with a higher generation.
//!
//! They are checked after every step in debug builds ([`Breaker::check_invariants`]).
//!
//! # How it changes
//! A step decides by looking, and changes by [`Edit`]s: small, with absolute values. The same edits, applied in the
//! same order, are what a replica does.

mod config;
mod edit;
mod encoding;
mod judge;
mod outcomes;
mod permit;
mod state;
mod step;
mod verdict;
mod view;

pub use config::{Config, ConfigError, Patch, WindowKind, bounds};
pub use edit::{Edit, Edits};
pub use encoding::{decode_breaker, decode_edits, encode_breaker, encode_edits};
pub use outcomes::{Batch, Outcomes, Totals};
pub use permit::{Caller, Permit, PermitText};
pub use state::{Breaker, Force, Forced, Keep, Phase, StateName};
pub(crate) use step::mended_clock;
pub use step::{admit, configure, force, report, reset, tally};
pub use verdict::{Admission, BreakerOutcome, Report, Reported, Tally, Transition, TransitionReason, Why};
pub use view::{View, settled, view};
