//! What idempotency keys promise, watched from outside while anything may happen: no model, only what is seen.

use std::collections::BTreeMap;

use super::key::RunReply;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use resil_core::idempotency::{Record, WorkPhase};

use super::driver::{Call, Driver};
use super::key::Key;
use super::model::Said;
use super::schedule::{calm, wild};
use super::seed;

/// A property over schedules in which nobody ever waits, or loses, would promise little.
#[test]
fn the_schedules_reach_everything_that_can_happen() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::new();
    for _ in 0..200 {
        let mut driver = Driver::default();
        for event in wild().new_tree(&mut runner).expect("a schedule").current() {
            let (_, said) = driver.play(&event);
            let said = match said {
                Said::Lost(reason) => reason.to_string(),
                said => name(&said),
            };
            let reported = driver.key.replies.iter().map(|reply| match reply {
                RunReply::Granted { .. } => "reported Run".to_string(),
                RunReply::Refused { refusal: settled, .. } | RunReply::TimedOut { refusal: settled, .. } => {
                    format!("reported {}", name(settled))
                }
                RunReply::Superseded { .. } => "reported Superseded".to_string(),
            });
            for what in reported.chain([said]) {
                *seen.entry(what).or_insert(0) += 1;
            }
        }
    }
    let expected = "Run Replay Busy Mismatch Held Queued WrongPhase Committed Aborted Renewed Was aborted committed \
                    expired closed taken absent";
    let reported = ["Run", "Replay", "Busy", "Held", "Superseded", "Mismatch"].map(|what| format!("reported {what}"));
    for what in expected.split_whitespace().map(String::from).chain(reported) {
        assert!(seen.get(&what).is_some_and(|times| *times >= 5), "schedules hardly see {what}: {seen:?}");
    }
}

/// The first word of what something is.
fn name(of: &impl std::fmt::Debug) -> String {
    format!("{of:?}").split([' ', '(', '{']).next().unwrap_or_default().to_string()
}

/// Whose runs began in this step, by what was said: fence, attempt, lease.
fn runs(key: &Key, said: &Said) -> Vec<(u64, u32, i64)> {
    let reported = key.replies.iter().filter_map(|reply| match reply {
        RunReply::Granted { grant: run, .. } => Some((run.fence, run.attempt, run.lease.as_us())),
        RunReply::Refused { .. } | RunReply::TimedOut { .. } | RunReply::Superseded { .. } => None,
    });
    let own = match said {
        Said::Run { fence, attempt, lease, .. } => Some((*fence, *attempt, *lease)),
        _ => None,
    };
    reported.chain(own).collect()
}

proptest! {
    #![proptest_config(seed::config())]

    /// By what callers heard alone: a promised lease is over, or given up, before the next fence is handed out.
    #[test]
    fn at_most_one_run_is_out_under_a_valid_lease(events in calm()) {
        let mut driver = Driver::default();
        // The fence that is out, and until when its runner may rely on it.
        let mut out: Option<(u64, i64)> = None;
        for event in &events {
            let (call, said) = driver.play(event);
            let now = driver.key.now;
            let over = match call {
                Call::Commit { .. } | Call::Abort(_) => matches!(said, Said::Committed { .. } | Said::Aborted),
                Call::Close(_) | Call::TakeBack(_) => said == Said::Was(true),
                _ => false,
            };
            // The close of its connection takes back what goes beyond the grace.
            if let (Call::Cut(closed, grace, at), Some((fence, until))) = (&call, &mut out)
                && closed == fence
            {
                *until = (*until).min(at + grace);
            }
            for (fence, _, lease) in runs(&driver.key, &said) {
                // What the call of this step ended may have begun in this step: its token waited, too.
                let other = out.filter(|(other, until)| *other != fence && *until > now && !over);
                prop_assert!(other.is_none(), "{:?} while {:?}", fence, other);
                out = Some((fence, now + lease));
            }
            if let Said::Renewed { fence, lease, .. } = said {
                out = Some((fence, now + lease));
            }
            if over && driver.key.lease_end().is_none() {
                out = None;
            }
        }
    }

    #[test]
    fn nobody_is_asked_to_run_while_a_result_is_kept(events in calm()) {
        let mut driver = Driver::default();
        let mut kept_until = 0;
        for event in &events {
            let done = matches!(&driver.key.record, Record::Work(work) if matches!(work.phase, WorkPhase::Done { .. }));
            let (call, said) = driver.play(event);
            let begun = runs(&driver.key, &said);
            prop_assert!(begun.is_empty() || kept_until <= driver.key.now, "{:?}", begun);
            if let (Call::Commit { ttl, .. }, Said::Committed { .. }, false) = (&call, &said, done) {
                kept_until = driver.key.now + ttl;
            }
        }
    }

    /// Exactly one reply each: two are caught where replies are counted, none at all is caught here.
    #[test]
    fn every_blocked_caller_is_answered_by_its_deadline(events in wild()) {
        let mut driver = Driver::default();
        events.iter().for_each(|event| { driver.play(event); });
        while let Some(deadline) = driver.key.queue.first_deadline() {
            let waiting = driver.key.open.len();
            driver.key.now = driver.key.now.max(deadline.as_us());
            driver.key.tick();
            prop_assert!(driver.key.open.len() < waiting);
        }
        prop_assert!(driver.key.open.is_empty(), "{:?}", driver.key.open);
    }

    #[test]
    fn fences_grow_whatever_happens_and_attempts_grow_by_one(events in wild()) {
        let mut driver = Driver::default();
        let (mut last_fence, mut last_attempt) = (0, 0);
        for event in &events {
            let (_, said) = driver.play(event);
            let mut begun = runs(&driver.key, &said);
            begun.sort_unstable();
            for (fence, attempt, _) in begun {
                if fence == last_fence {
                    prop_assert_eq!(attempt, last_attempt, "the same run again");
                    continue;
                }
                prop_assert!(fence > last_fence);
                prop_assert!(attempt == 1 || attempt == last_attempt + 1, "{} after {}", attempt, last_attempt);
                (last_fence, last_attempt) = (fence, attempt);
            }
        }
    }

    /// From the first BEGIN that gives one until the record is forgotten.
    #[test]
    fn a_fingerprint_never_changes_while_the_record_lives(events in wild()) {
        let mut driver = Driver::default();
        for event in &events {
            let before = driver.key.record.clone();
            driver.play(event);
            if let (Record::Work(before), Record::Work(after)) = (&before, &driver.key.record)
                && after.attempt > before.attempt.max(1)
                && !before.fingerprint.is_empty()
            {
                prop_assert_eq!(&before.fingerprint, &after.fingerprint);
            }
        }
    }

    /// Collecting a key is never earlier than its last use, and never much later.
    #[test]
    fn nothing_is_collected_while_it_matters(events in calm(), salt: u64) {
        let mut driver = Driver::default();
        for event in &events {
            driver.play(event);
            if let (Some(forgotten), Some(gc_at)) = (driver.key.forgotten_at(), driver.key.record.gc_at(salt)) {
                prop_assert!(gc_at.as_us() >= forgotten);
            }
        }
    }
}
