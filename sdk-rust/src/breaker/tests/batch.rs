use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn batches_add_up_to_what_was_split(
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
