//! Bytes: what is stored and what travels. Nothing that is sent can do worse than be refused, or be a breaker.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::circuit_breaker::{
    Breaker, Edit, Edits, Force, Patch, Phase, Report, WindowKind, decode_breaker, decode_edits, encode_breaker,
    encode_edits, view,
};
use resil_core::codec::to_vec;

use super::damage::damage;
use super::machine::Machine;
use super::schedule::{Event, short};
use super::seed;
use super::service::{Service, failures, secs};

fn bytes_of(breaker: &Breaker) -> Vec<u8> {
    to_vec(|out| encode_breaker(breaker, out))
}

/// Some breaker that can be, and the edits that led to it.
fn reached(events: &[Event]) -> Result<(Machine, Vec<Edits>), TestCaseError> {
    let mut machine = Machine::default();
    let mut history = Vec::new();
    for event in events {
        let edits = machine.play(event)?;
        if !edits.is_empty() {
            history.push(edits);
        }
    }
    Ok((machine, history))
}

/// A slice that counts more failures, or more slow calls, than calls is no slice.
#[test]
fn a_slice_of_more_failures_than_calls_is_refused() {
    let mut service = Service::with(Patch { window: Some(WindowKind::Time(secs(60))), ..Patch::default() });
    service.force(Some(Force::Metrics), None);
    service.tally("a", 1, failures(77));
    let bytes = bytes_of(&service.breaker);
    let at = bytes.windows(3).position(|slice| slice == [77, 77, 0]).expect("the slice");
    for (slice, is_one) in [([77, 77, 77], true), ([78, 77, 0], true), ([77, 78, 0], false), ([77, 77, 78], false)] {
        let mut forged = bytes.clone();
        forged[at..at + 3].copy_from_slice(&slice);
        assert_eq!(decode_breaker(&forged).is_ok(), is_one, "{slice:?}");
    }
}

/// A forged generation at the very end of time must not make a breaker that is stored but never loads again.
#[test]
fn a_generation_at_the_end_of_time_is_storable() {
    let mut service = Service::usual();
    let at_us = service.now_us;
    service.breaker.apply(&Edit::Enter { phase: Box::new(Phase::Closed), generation: 1 << 53, at_us, trips: 0 });
    service.breaker = decode_breaker(&bytes_of(&service.breaker)).expect("the largest generation");
    service.trip();
    assert_eq!(decode_breaker(&bytes_of(&service.breaker)).as_ref(), Ok(&service.breaker));
    service.later(10_000_000).calls(2, Report::Ok);
    assert_eq!(decode_breaker(&bytes_of(&service.breaker)).as_ref(), Ok(&service.breaker));
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn whatever_decodes_encodes_to_the_same_bytes(bytes in vec(any::<u8>(), 0..200), tag in any::<bool>()) {
        let mut bytes = bytes;
        for tagged in [b'B', b'b'] {
            if let (true, Some(first)) = (tag, bytes.first_mut()) {
                *first = tagged;
            }
            if let Ok(breaker) = decode_breaker(&bytes) {
                prop_assert_eq!(&bytes_of(&breaker), &bytes);
            }
            if let Ok(edits) = decode_edits(&bytes) {
                prop_assert_eq!(&to_vec(|out| encode_edits(&edits, out)), &bytes);
            }
        }
    }

    /// A forged breaker is a breaker: it can be asked, reported to, configured, stored and loaded for ever.
    #[test]
    fn a_damaged_breaker_is_refused_or_lives_on(
        events in short(),
        damages in vec(damage(), 1..4),
        then in short(),
    ) {
        let (machine, _) = reached(&events)?;
        let mut bytes = bytes_of(&machine.breaker);
        damages.iter().for_each(|damage| damage.to(&mut bytes));
        if let Ok(forged) = decode_breaker(&bytes) {
            prop_assert_eq!(&bytes_of(&forged), &bytes);
            view(&forged, machine.now());
            forged.gc_at(1);
            let mut machine = Machine::of(forged, machine.now_us);
            for event in &then {
                machine.play(event)?;
            }
        }
    }

    /// Edits that were damaged under way, or that meet another breaker than theirs, leave a breaker that can be stored.
    #[test]
    fn damaged_edits_are_refused_or_leave_a_breaker(
        events in short(),
        other in short(),
        damages in vec(damage(), 0..3),
    ) {
        let (machine, history) = reached(&events)?;
        let (mut other, _) = reached(&other)?;
        for edits in &history {
            let mut bytes = to_vec(|out| encode_edits(edits, out));
            damages.iter().for_each(|damage| damage.to(&mut bytes));
            let Ok(edits) = decode_edits(&bytes) else { continue };
            edits.iter().for_each(|edit| other.breaker.apply(edit));
            let loaded = decode_breaker(&bytes_of(&other.breaker));
            prop_assert_eq!(loaded.as_ref(), Ok(&other.breaker));
        }
        view(&other.breaker, machine.now());
        other.breaker.gc_at(1);
    }
}
