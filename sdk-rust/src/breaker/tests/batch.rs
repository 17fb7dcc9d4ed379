use proptest::prelude::*;

use super::*;

const OK: CountedOutcome = CountedOutcome { is_failure: false, is_slow: false };
const FAILED: CountedOutcome = CountedOutcome { is_failure: true, is_slow: false };

#[test]
fn failures_in_a_row_are_those_at_the_end() {
    let unsent = Unsent::default();
    for outcome in [FAILED, FAILED, OK, FAILED, CountedOutcome { is_failure: true, is_slow: true }] {
        unsent.record(0, outcome);
    }
    assert_eq!(unsent.take(|| {}), (0, Counts { ok: 1, failures: 4, slow: 1, run: 2 }));
    assert!(unsent.is_empty());
}

#[test]
fn an_outcome_of_another_generation_is_not_counted() {
    let unsent = Unsent::default();
    unsent.record(0, FAILED);
    let tag = unsent.restart();
    assert!(unsent.is_empty(), "what was unsent belongs to no generation any more");
    assert_eq!(unsent.record(0, FAILED), Recorded::Stale);
    assert_eq!(unsent.record(tag, FAILED), Recorded::Counted { calls: 1 });
}

#[test]
fn tags_wrap_around_without_touching_the_counts() {
    let unsent = Unsent::default();
    for _ in 0..=u16::MAX as u32 + 1 {
        unsent.restart();
    }
    assert_eq!(unsent.word().tag(), 1);
    assert_eq!(unsent.record(1, OK), Recorded::Counted { calls: 1 });
}

proptest! {
    #[test]
    fn however_many_outcomes_nothing_is_lost_or_doubled(
        outcomes in prop::collection::vec((any::<bool>(), any::<bool>()), 0..9_000),
        takes in prop::collection::vec(0usize..9_000, 0..3),
    ) {
        let unsent = Unsent::default();
        let mut total = Counts::default();
        for (index, (is_failure, is_slow)) in outcomes.iter().enumerate() {
            if takes.contains(&index) {
                total.append(unsent.take(|| {}).1);
            }
            let outcome = CountedOutcome { is_failure: *is_failure, is_slow: *is_slow };
            while unsent.record(0, outcome) == Recorded::Full {
                unsent.spill();
            }
        }
        total.append(unsent.take(|| {}).1);
        let failures = outcomes.iter().filter(|(failed, _)| *failed).count() as u64;
        prop_assert_eq!(total.failures, failures);
        prop_assert_eq!(total.ok, outcomes.len() as u64 - failures);
        prop_assert_eq!(total.slow, outcomes.iter().filter(|(_, slow)| *slow).count() as u64);
        prop_assert_eq!(total.run, outcomes.iter().rev().take_while(|(failed, _)| *failed).count() as u64);
    }

    #[test]
    fn batches_add_up_to_what_was_split_and_each_can_be_sent(
        ok in 0u64..45_000, loose in 0u64..45_000, run in 0u64..25_000, slow_part in 0u64..=100,
    ) {
        let failures = if ok == 0 { run } else { loose + run };
        let slow = (ok + failures) * slow_part / 100;
        let batches = Counts { ok, failures, slow, run }.split();
        let sum = |part: fn(&Batch) -> u32| batches.iter().map(|batch| u64::from(part(batch))).sum::<u64>();
        prop_assert_eq!((sum(|b| b.ok), sum(|b| b.failures), sum(|b| b.slow)), (ok, failures, slow));
        let mut in_a_row = 0;
        for batch in &batches {
            prop_assert!(batch.ok.max(batch.failures) <= TALLY_MAX && batch.slow <= batch.ok + batch.failures);
            prop_assert!(batch.run <= batch.failures && batch.calls() > 0);
            in_a_row = if batch.ok == 0 { in_a_row + u64::from(batch.run) } else { u64::from(batch.run) };
        }
        prop_assert_eq!(in_a_row, run);
    }
}
