//! States and edits as bytes: whatever is read can be stepped, and damaged bytes never panic.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::circuit_breaker::Report;
use resil_core::guard::Guards;
use resil_core::{Stored, codec};

use crate::damage::damage;
use crate::key::Key;
use crate::seed;

fn busy() -> Key {
    let mut key = Key::with(
        r#"{"breaker":{"consecutiveFailures":9},"rateLimit":{"limit":9,"period":"1h"},"bulkhead":{"maxConcurrentCalls":9},"retry":{}}"#,
    );
    let tickets: Vec<u64> = ["a", "b", "c"].iter().map(|owner| key.enter(owner).unwrap().ticket).collect();
    key.exit(tickets[0], Report::Ok);
    key.exit(tickets[1], Report::Fail);
    key
}

#[test]
fn a_state_is_read_as_it_was_written() {
    let key = busy();
    assert_eq!(Guards::decode(&key.digest()).unwrap(), key.guard);
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn damaged_bytes_are_refused_or_sound(damages in vec(damage(), 1..4)) {
        let mut bytes = busy().digest();
        damages.into_iter().for_each(|damage| damage.to(&mut bytes));
        if let Ok(guard) = Guards::decode(&bytes) {
            guard.check_invariants();
            prop_assert_eq!(&codec::to_vec(|out| Guards::encode(&guard, out)), &bytes);
        }
    }
}
