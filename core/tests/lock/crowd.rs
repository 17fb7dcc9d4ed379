//! Hundreds of holders: their indices stay what a list would say.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::Config;

use super::driver::Driver;
use super::key::{Acquired, Key, MINUTE, SECOND, START, permit, reader, writer};
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
fn a_writer_follows_five_hundred_readers_in_and_out() {
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
fn all_readers_of_one_lease_end_and_are_reported() {
    let mut key = Key::lock();
    for number in 0..300 {
        key.take(&format!("reader {number}"), reader());
    }
    key.later(10 * SECOND);
    // A step ends a part of them, and asks for the next one at the same instant.
    let mut reported = key.endings.len();
    while key.wake.is_some() {
        key.later(0);
        assert!(!key.endings.is_empty(), "each step goes on");
        reported += key.endings.len();
    }
    assert_eq!((reported, key.holders.len()), (300, 0));
}

/// So many hold, or wait.
fn crowd(key: &mut Key, count: u32, mut come: impl FnMut(&mut Key, &str)) {
    (0..count).for_each(|number| come(key, &format!("o{number:03}")));
}

#[test]
fn breaking_very_many_is_the_same_as_breaking_each() {
    let readers = |count| {
        let mut key = Key::lock();
        crowd(&mut key, count, |key, name| {
            key.take(name, reader());
        });
        key.queue_up("writer", writer().waits(MINUTE));
        key.now += SECOND;
        key
    };
    for count in [2, 99, 100, 101, 300] {
        let (mut broken, owners, last) = (readers(count), readers(count).owners(), readers(count).holders.last_fence());
        assert_eq!(broken.break_all(), count as usize);
        let reported: Vec<_> =
            broken.endings.iter().map(|end| String::from_utf8_lossy(&end.owner).into_owned()).collect();
        assert_eq!(
            (reported, broken.served(), broken.owners()),
            (owners, vec!["writer".into()], vec!["writer".into()])
        );
        assert!(broken.endings.iter().all(|end| end.held.as_us() == SECOND));
        assert!(broken.holders.last_fence() > last, "fences grow");
        let remembered: Vec<_> = broken.holders.ended().iter().map(|end| end.fence).collect();
        let reported: Vec<_> = broken.endings.iter().map(|end| end.fence).collect();
        assert!(
            !remembered.is_empty() && reported.ends_with(&remembered),
            "the last ends are remembered, in their order"
        );
    }
}

#[test]
fn very_many_heard_readers_are_kept_in_parts() {
    let mut key = Key::lock();
    crowd(&mut key, 350, |key, name| {
        let fence = key.take(name, reader());
        key.heard.insert(fence, START + 15 * SECOND);
    });
    let silent = key.take("silent", reader().lease(9 * SECOND));
    key.now += 10 * SECOND;
    key.take("another", reader());
    while key.wake.is_some_and(|at| at <= key.now) {
        let ended: Vec<_> = key.endings.iter().map(|end| end.fence).collect();
        assert!(ended.is_empty() || ended == [silent], "who was heard of has not lost its lease");
        assert!(key.edits.len() <= 102, "a step does a part of them");
        key.tick();
    }
    assert_eq!(key.holders.len(), 351);
    assert_eq!(key.end_of("o349"), START + 15 * SECOND);
}

#[test]
fn a_larger_max_is_not_refused_while_many_are_served() {
    let mut key = Key::bulkhead();
    key.take("holder", permit(1));
    crowd(&mut key, 700, |key, name| {
        key.queue_up(name, permit(1).waits(MINUTE));
    });
    // All of them and two callers fit from now on; the first five hundred are served in this very step.
    assert!(matches!(key.ask("caller", permit(703)), Acquired::Granted(_)));
    assert_eq!((key.served().len(), key.queued().len()), (500, 200));
    assert!(matches!(key.ask("waits", permit(703).waits(MINUTE)), Acquired::Granted(_)));
    key.tick();
    assert!(matches!(key.ask("too many", permit(703)), Acquired::Refused(_)));
    assert_eq!((key.queued().len(), key.holders.len()), (0, 703));
}

#[test]
fn a_reader_is_not_refused_while_many_are_served() {
    let served_to = |writer_waits: bool| {
        let mut key = Key::lock();
        key.take("writer", writer());
        crowd(&mut key, 1_200, |key, name| {
            key.queue_up(name, reader().waits(MINUTE).queue(2_000));
        });
        if writer_waits {
            key.queue_up("another writer", writer().waits(MINUTE).queue(2_000));
        }
        key.release("writer", None);
        assert_eq!(key.served().len(), 500);
        // Its own step serves five hundred more.
        key.ask("reader", reader())
    };
    assert!(matches!(served_to(false), Acquired::Granted(_)));
    assert!(matches!(served_to(true), Acquired::Refused(_)), "a writer that waits is not overtaken");
}
