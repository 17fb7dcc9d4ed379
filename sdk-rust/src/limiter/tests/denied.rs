use proptest::prelude::*;

use super::*;

const NOW: Moment = Duration::from_secs(100);

fn denial(cost: u32, until_secs: u64) -> Denial {
    let verdict = Verdict {
        granted: 0,
        limit: 9,
        period: Duration::from_secs(1),
        capacity: 9,
        remaining: 0,
        retry_after: Some(Duration::from_secs(until_secs) - NOW),
        reset_after: Duration::ZERO,
        decided_by: DecidedBy::Server,
        tiers: Vec::new(),
        binding: 0,
    };
    Denial::of(cost, NOW, &verdict).expect("there is something to wait for")
}

fn deny(denied: &Denied, key: &[u8], cost: u32, until_secs: u64) {
    if let Ok(asked) = denied.look(key, 1, u32::MIN, NOW) {
        denied.remember(key, 1, asked, denial(cost, until_secs));
    }
}

#[test]
fn a_denial_of_five_cells_does_not_deny_one() {
    let denied = Denied::default();
    deny(&denied, b"k", 5, 110);
    assert!(denied.look(b"k", 1, 1, NOW).is_ok());
    assert!(denied.look(b"k", 1, 5, NOW).is_err());
    assert!(denied.look(b"k", 1, 6, NOW).is_err());
}

#[test]
fn a_denial_under_one_limit_says_nothing_about_another() {
    let denied = Denied::default();
    deny(&denied, b"k", 1, 110);
    assert!(denied.look(b"k", 2, 1, NOW).is_ok());
}

#[test]
fn a_refund_ends_a_denial_that_comes_later_too() {
    let denied = Denied::default();
    deny(&denied, b"k", 1, 110);
    denied.forget(b"k");
    let asked = denied.look(b"k", 1, 1, NOW).expect("forgotten");
    denied.forget(b"k");
    denied.remember(b"k", 1, asked, denial(1, 110));
    assert!(denied.look(b"k", 1, 1, NOW).is_ok(), "the refund may have come after the denial");
}

#[test]
fn a_denial_for_hours_is_believed_for_ten_seconds() {
    let denied = Denied::default();
    deny(&denied, b"k", 1, 100 + 3_600);
    let last = NOW + BELIEVED_MAX - Duration::from_millis(1);
    let denial = denied.look(b"k", 1, 1, last).expect_err("it is believed");
    assert_eq!(denial.verdict(last).retry_after, Some(Duration::from_secs(100 + 3_600) - last));
    assert!(denied.look(b"k", 1, 1, NOW + BELIEVED_MAX).is_ok(), "the server is asked again");
}

#[test]
fn however_many_keys_are_denied_the_memory_is_bounded() {
    let denied = Denied::default();
    for key in 0..(SHARDS * SHARD_MAX * 2) as u32 {
        deny(&denied, &key.to_be_bytes(), 1, 110);
    }
    let held: usize = denied.shards.iter().map(|shard| shard.lock().denials.len()).sum();
    assert!(held <= SHARDS * SHARD_MAX && held > SHARDS * SHARD_MAX / 2, "{held}");
}

proptest! {
    #[test]
    fn nothing_is_denied_after_its_time_nor_below_its_cost(
        denials in prop::collection::vec((0u8..4, 1u32..6, 101u64..120), 1..40),
        looks in prop::collection::vec((0u8..4, 1u32..6, 100u64..125), 1..40),
    ) {
        let denied = Denied::default();
        let mut last = HashMap::new();
        for (key, cost, until) in denials {
            if let Ok(asked) = denied.look(&[key], 1, 0, NOW) {
                denied.remember(&[key], 1, asked, denial(cost, until));
                last.insert(key, (cost, until));
            }
        }
        for (key, cost, at) in looks {
            let believed = |until: u64| until.min(100 + BELIEVED_MAX.as_secs());
            let expected = last.get(&key).is_some_and(|(least, until)| cost >= *least && at < believed(*until));
            let seen = denied.look(&[key], 1, cost, Duration::from_secs(at)).is_err();
            prop_assert_eq!(seen, expected);
            if last.get(&key).is_some_and(|(_, until)| at >= believed(*until)) {
                last.remove(&key);
            }
        }
    }
}
