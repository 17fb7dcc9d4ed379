//! What the generations of a name do to a flight under it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::edit::FlightEdit;
use super::state::{Stamp, Way};
use super::step::{Open, finish};
use crate::generations::{Generations, Validity};
use crate::time::Instant;

/// What is known of the name comes before anything is decided: a value that was invalidated goes, or is stale, and so does the lead of a load
/// that the name voids. Its tags are only known when it is published.
pub(super) fn heed(step: &mut Open<'_>, known: &Generations) {
    let now = step.now;
    let validity = step.state().validity(Some(known));
    if let Some(value) = &step.state().value {
        let stale_until = value.stale_until.max(value.fresh_until);
        match validity {
            Validity::Good => {}
            Validity::Stale if value.content.is_some() && stale_until > now => {
                if value.fresh_until > Instant::EPOCH {
                    step.edit(FlightEdit::Softened { stale_until });
                }
            }
            Validity::Stale | Validity::Void => step.edit(FlightEdit::Dropped),
        }
    }
    let generation = step.state().leader.as_ref().map(|leader| leader.generation);
    if generation.is_some_and(|generation| known.voids::<&[u8]>(generation, &[])) {
        void(step, known.current());
    }
}

/// The load under way began before something was invalidated, at `generation` at the latest: the next leader begins after.
pub(super) fn void(step: &mut Open<'_>, generation: u64) {
    finish(step, Way::Invalidated);
    if generation > step.state().generation {
        step.edit(FlightEdit::Known { generation });
    }
}

pub(super) fn stamp(generation: u64, tags: &[&[u8]]) -> Box<Stamp> {
    let mut tags: Vec<Box<[u8]>> = tags.iter().map(|tag| (*tag).into()).collect();
    tags.sort_unstable();
    tags.dedup();
    Box::new(Stamp { generation, tags })
}
