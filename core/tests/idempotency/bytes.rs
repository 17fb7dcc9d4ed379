//! Bytes: what is stored and what travels. Nothing that is sent can do worse than be refused, or be a record.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::idempotency::decode_record;

use super::damage::damage;
use super::driver::Driver;
use super::key::{Key, bytes_of};
use super::schedule::short;
use super::seed;

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn whatever_decodes_encodes_to_the_same_bytes(bytes in vec(any::<u8>(), 0..60), kind in 0..3u8) {
        let mut bytes = bytes;
        for (at, byte) in [b'I', kind].into_iter().enumerate().take(bytes.len()) {
            bytes[at] = byte;
        }
        if let Ok(record) = decode_record(&bytes) {
            prop_assert_eq!(&bytes_of(&record), &bytes);
        }
    }

    /// Thirty forgeries of each record: refused, or a record that can be asked, stored and loaded for ever.
    #[test]
    fn a_damaged_record_is_refused_or_lives_on(
        events in short(),
        forgeries in vec(vec(damage(), 1..4), 30),
        then in short(),
    ) {
        let mut driver = Driver::default();
        events.iter().for_each(|event| { driver.play(event); });
        let bytes = bytes_of(&driver.key.record);
        for damages in forgeries {
            let mut forged = bytes.clone();
            damages.iter().for_each(|damage| damage.to(&mut forged));
            let Ok(record) = decode_record(&forged) else { continue };
            prop_assert_eq!(&bytes_of(&record), &forged);
            record.gc_at(1);
            let key = Key { now: driver.key.now, replica: record.clone(), record, ..Key::default() };
            let mut lives = Driver { key, ..Driver::default() };
            then.iter().for_each(|event| { lives.play(event); });
        }
    }
}
