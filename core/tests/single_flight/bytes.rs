//! Bytes: what is stored and what travels. Nothing that is sent can do worse than be refused, or be a flight.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::Instant;
use resil_core::codec::to_vec;
use resil_core::single_flight::{Cached, Flight, FlightEdit, decode_edits, decode_flight, encode_edits};

use super::damage::damage;
use super::driver::Driver;
use super::gaps::START;
use super::key::{Key, bytes_of};
use super::schedule::short;
use super::seed;

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn whatever_decodes_encodes_to_the_same_bytes(bytes in vec(any::<u8>(), 1..60), edit in 0..9u8) {
        let mut bytes = bytes;
        bytes[0] = b'S';
        if let Ok(flight) = decode_flight(&bytes) {
            prop_assert_eq!(&bytes_of(&flight), &bytes);
        }
        for (at, byte) in [b's', edit].into_iter().enumerate().take(bytes.len()) {
            bytes[at] = byte;
        }
        if let Ok(edits) = decode_edits(&bytes) {
            prop_assert_eq!(&to_vec(|out| encode_edits(&edits, out)), &bytes);
        }
    }

    /// Thirty forgeries of each flight: refused, or a flight that can be asked, stored and loaded for ever.
    #[test]
    fn a_damaged_flight_is_refused_or_lives_on(
        events in short(),
        forgeries in vec(vec(damage(), 1..4), 30),
        then in short(),
    ) {
        let mut driver = Driver::default();
        events.iter().for_each(|event| { driver.play(event); });
        let bytes = bytes_of(&driver.key.flight);
        for damages in forgeries {
            let mut forged = bytes.clone();
            damages.iter().for_each(|damage| damage.to(&mut forged));
            let Ok(flight) = decode_flight(&forged) else { continue };
            prop_assert_eq!(&bytes_of(&flight), &forged);
            flight.gc_at(1);
            let key = Key { now: driver.key.now, replica: flight.clone(), flight, ..Key::default() };
            let mut lives = Driver { key, ..Driver::default() };
            then.iter().for_each(|event| { lives.play(event); });
        }
    }

    /// FlightEdits that were damaged under way, or that meet another key than theirs, leave one that can be stored.
    #[test]
    fn damaged_edits_are_refused_or_leave_a_flight(
        events in short(),
        other in short(),
        damages in vec(damage(), 0..3),
    ) {
        let (mut driver, mut meets) = (Driver::default(), Driver::default());
        other.iter().for_each(|event| { meets.play(event); });
        let mut flight = meets.key.flight;
        for event in &events {
            driver.play(event);
            let mut bytes = to_vec(|out| encode_edits(&driver.key.edits, out));
            damages.iter().for_each(|damage| damage.to(&mut bytes));
            let Ok(edits) = decode_edits(&bytes) else { continue };
            prop_assert_eq!(&to_vec(|out| encode_edits(&edits, out)), &bytes);
            edits.iter().for_each(|edit| flight.apply(edit.clone()));
            let loaded = decode_flight(&bytes_of(&flight));
            prop_assert_eq!(loaded.as_ref(), Ok(&flight));
        }
    }
}

#[test]
fn a_mended_forged_value_from_the_future_is_storable() {
    let [early, late] = [1, 2 * START].map(Instant::from_us);
    let value = Cached { content: None, at: late, fresh_until: early, stale_until: early, stamp: None };
    let mut flight = Flight { value: Some(value), ..Flight::default() };
    flight.apply(FlightEdit::Mended { now: Instant::from_us(START) });
    assert_eq!(decode_flight(&bytes_of(&flight)).as_ref(), Ok(&flight));
}
