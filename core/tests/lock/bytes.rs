//! Bytes: what is stored and what travels. Nothing that is sent can do worse than be refused, or be a lock.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::codec::to_vec;
use resil_core::lock::{
    Holder, HolderEdit, Holders, Kind, Mode, decode_edits, decode_holders, encode_edits, encode_holders,
};
use resil_core::{Instant, Span};

use super::damage::damage;
use super::driver::Driver;
use super::key::{Key, reader, writer};
use super::schedule::{Event, short};
use super::seed;

/// Fences from outside end well below the last one, but one at that end leaves no room for those that follow.
const FENCE_TRIED: u64 = 1 << 52;

fn stored(kind: Kind, holders: &Holders) -> Vec<u8> {
    to_vec(|out| encode_holders(kind, holders, out))
}

/// Some key that can be, and the edits that led to it.
fn reached(bulkhead: bool, events: &[Event]) -> (Driver, Vec<Vec<HolderEdit>>) {
    let mut driver = Driver::new(bulkhead);
    let mut history = Vec::new();
    for event in events {
        driver.play(event);
        if !driver.key.edits.is_empty() {
            history.push(driver.key.edits.clone());
        }
    }
    (driver, history)
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn whatever_decodes_encodes_to_the_same_bytes(bytes in vec(any::<u8>(), 0..200), tag in any::<bool>()) {
        let mut bytes = bytes;
        for tagged in *b"LPlp" {
            if let (true, Some(first)) = (tag, bytes.first_mut()) {
                *first = tagged;
            }
            if let Ok((kind, holders)) = decode_holders(&bytes) {
                prop_assert_eq!(&stored(kind, &holders), &bytes);
            }
            if let Ok((kind, edits)) = decode_edits(&bytes) {
                prop_assert_eq!(&to_vec(|out| encode_edits(kind, &edits, out)), &bytes);
            }
        }
    }

    /// Thirty forgeries of each key: refused, or a key that can be asked, stored and loaded for ever.
    #[test]
    fn a_damaged_key_is_refused_or_lives_on(
        bulkhead: bool,
        events in short(),
        forgeries in vec(vec(damage(), 1..4), 30),
        then in short(),
    ) {
        let (driver, _) = reached(bulkhead, &events);
        let bytes = driver.key.bytes();
        for damages in forgeries {
            let mut forged = bytes.clone();
            damages.iter().for_each(|damage| damage.to(&mut forged));
            let Ok((kind, holders)) = decode_holders(&forged) else { continue };
            prop_assert_eq!(&stored(kind, &holders), &forged);
            holders.gc_at(1);
            if holders.last_fence() > FENCE_TRIED {
                continue;
            }
            let mut lives = Driver::new(kind == Kind::Bulkhead);
            lives.key = Key { now: driver.key.now, replica: holders.clone(), holders, ..Key::of(kind) };
            then.iter().for_each(|event| lives.play(event));
        }
    }

    /// Edits that were damaged under way, or that meet another key than theirs, leave one that can be stored.
    #[test]
    fn damaged_edits_are_refused_or_leave_a_key(
        events in short(),
        other in short(),
        damages in vec(damage(), 0..3),
    ) {
        let (_, history) = reached(false, &events);
        let (other, _) = reached(false, &other);
        let mut holders = other.key.holders;
        for edits in &history {
            let mut bytes = to_vec(|out| encode_edits(Kind::Lock, edits, out));
            damages.iter().for_each(|damage| damage.to(&mut bytes));
            let Ok((kind, edits)) = decode_edits(&bytes) else { continue };
            prop_assert_eq!(&to_vec(|out| encode_edits(kind, &edits, out)), &bytes);
            if kind == Kind::Lock {
                edits.into_iter().for_each(|edit| drop(holders.apply(edit)));
                let loaded = decode_holders(&stored(kind, &holders));
                prop_assert_eq!(loaded.as_ref(), Ok(&(kind, holders.clone())));
            }
        }
    }
}

#[test]
fn an_edit_with_a_second_writer_changes_nothing() {
    let mut key = Key::lock();
    key.take("a", reader());
    let fence = key.take("b", reader());
    let before = key.holders.clone();
    key.holders.apply(HolderEdit::Moded { fence, mode: Mode::Exclusive });
    assert_eq!(key.holders, before);
    let mut other = Key::lock();
    other.now += 1;
    other.take("c", writer());
    for edit in other.edits {
        key.holders.apply(edit);
    }
    assert_eq!(key.holders.iter().collect::<Vec<_>>(), before.iter().collect::<Vec<_>>());
}

#[test]
fn a_bulkhead_has_no_writer() {
    let mut key = Key::lock();
    key.take("a", writer());
    let mut bytes = key.bytes();
    assert!(decode_holders(&bytes).is_ok());
    bytes[0] = b'P';
    assert!(decode_holders(&bytes).is_err());
}

/// A replica applies edits to what it holds in memory, and a restarted one to what it loaded: both must come to the same.
#[test]
fn an_owner_granted_twice_leaves_its_higher_fence() {
    let (at, lease) = (Instant::from_us(1_000_000), Span::from_secs(9));
    let granted = |owner: &[u8], fence| {
        HolderEdit::Granted(Holder::new(owner, b"", fence, (at, at.plus(lease)), lease, Mode::Shared))
    };
    let mut held = Holders::default();
    [granted(b"a", 5), granted(b"b", 8), granted(b"b", 3)].into_iter().for_each(|edit| drop(held.apply(edit)));
    assert_eq!(held.last_fence(), 8, "the highest that was ever granted");
    let (_, mut loaded) = decode_holders(&stored(Kind::Lock, &held)).expect("a lock");
    [&mut held, &mut loaded].into_iter().for_each(|holders| drop(holders.apply(granted(b"a", 2))));
    assert_eq!(stored(Kind::Lock, &held), stored(Kind::Lock, &loaded));
}
