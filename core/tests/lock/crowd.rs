//! Hundreds of holders: their indices stay what a list would say.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::Config;

use super::driver::Driver;
use super::key::{Key, MINUTE, SECOND, START, reader, writer};
use super::model::Model;
use super::schedule::{Event, Gap, Named, Request, What, request};
use super::seed;

fn comes() -> impl Strategy<Value = What> {
    (request(), any::<u8>(), 30 * SECOND..=10 * MINUTE, 0..100u8).prop_map(|(request, owner, lease, chance)| {
        What::Acquire(Request { owner, lease, reads: chance > 0, max: 200, most: 50, ..request })
    })
}

/// Nearly all read; few leave.
fn crowded() -> impl Strategy<Value = Vec<Event>> {
    let what = prop_oneof![
        60 => comes(),
        10 => (any::<u8>(), 10 * SECOND..=5 * MINUTE)
            .prop_map(|(owner, lease)| What::Renew { owner, fence: Named::Own, lease }),
        8 => any::<u8>().prop_map(|owner| What::Release { owner, fence: Named::Nothing }),
        3 => any::<u8>().prop_map(|owner| What::Close(owner, Named::Own)),
        3 => (any::<u8>(), 0..=MINUTE).prop_map(|(owner, to)| What::Extend(owner, Named::Own, to)),
        1 => prop_oneof![Just(What::Restart), (-30 * SECOND..=30 * SECOND).prop_map(What::Promote)],
    ];
    let gap = prop_oneof![
        20 => Just(Gap::None),
        20 => (1..=SECOND / 5).prop_map(Gap::By),
        2 => (any::<Index>(), -1..=1i64).prop_map(|(which, off)| Gap::To(which, off)),
        1 => (-MINUTE..=0).prop_map(Gap::Set),
    ];
    vec((gap, what).prop_map(|(gap, what)| Event { gap, what }), 600)
}

proptest! {
    // A case is hundreds of steps over hundreds of holders.
    #![proptest_config(Config { cases: 20, ..seed::config() })]

    #[test]
    fn hundreds_of_holders_are_as_exact_as_one(bulkhead: bool, events in crowded()) {
        let (mut driver, mut model) = (Driver::new(bulkhead), Model::new(bulkhead, START));
        for event in &events {
            driver.play_beside(&mut model, event)?;
        }
    }
}

#[test]
fn five_hundred_readers_come_and_go_one_by_one_and_the_writer_comes_last() {
    let mut key = Key::lock();
    let names: Vec<String> = (0..500).map(|number: u32| format!("reader {number}")).collect();
    for name in &names {
        key.take(name, reader());
    }
    key.queue_up("writer", writer().waits(MINUTE));
    let (last, others) = names.split_last().expect("somebody");
    for name in others {
        key.release(name, None);
        assert!(key.replies.is_empty());
    }
    key.release(last, None);
    assert_eq!((key.served(), key.owners()), (vec!["writer".into()], vec!["writer".into()]));
}

#[test]
fn all_readers_of_one_lease_end_together_and_each_is_told() {
    let mut key = Key::lock();
    for number in 0..300 {
        key.take(&format!("reader {number}"), reader());
    }
    key.later(10 * SECOND);
    // A step ends a part of them, and asks for the next one at the same instant.
    let mut told = key.endings.len();
    while key.wake.is_some() {
        key.later(0);
        assert!(!key.endings.is_empty(), "each step goes on");
        told += key.endings.len();
    }
    assert_eq!((told, key.holders.len()), (300, 0));
}
