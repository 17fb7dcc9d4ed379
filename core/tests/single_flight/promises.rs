//! What single flight promises, watched from outside while anything may happen: no model, only what is seen.

use std::collections::BTreeMap;

use super::key::LeadReply;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use resil_core::single_flight::Seen;
use resil_core::waited::queue::Queue;

use super::driver::{Call, Driver};
use super::key::Key;
use super::model::{Brings, Said};
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
                LeadReply::Granted { .. } => "reported Lead".to_string(),
                LeadReply::Refused { refusal: seen, .. } | LeadReply::TimedOut { refusal: seen, .. } => {
                    format!("reported {}", name(seen))
                }
                LeadReply::Superseded { .. } => "reported Superseded".to_string(),
            });
            for what in reported.chain([said]) {
                *seen.entry(what).or_insert(0) += 1;
            }
        }
    }
    let expected = "Lead Value Stale Empty Error Busy Queued Published Abandoned Renewed Was published aborted expired \
                    closed invalidated taken absent";
    let reported = ["Lead", "Value", "Empty", "Error", "Busy", "Superseded"].map(|what| format!("reported {what}"));
    for what in expected.split_whitespace().map(String::from).chain(reported) {
        assert!(seen.get(&what).is_some_and(|times| *times >= 5), "schedules hardly see {what}: {seen:?}");
    }
}

/// The first word of what something is.
fn name(of: &impl std::fmt::Debug) -> String {
    format!("{of:?}").split([' ', '(', '{']).next().unwrap_or_default().to_string()
}

/// Whose leads began in this step, by what was said: fence, lease.
fn leads(key: &Key, said: &Said) -> Vec<(u64, i64)> {
    let reported = key.replies.iter().filter_map(|reply| match reply {
        LeadReply::Granted { grant: lead, .. } => Some((lead.fence, lead.lease.as_us())),
        LeadReply::Refused { .. } | LeadReply::TimedOut { .. } | LeadReply::Superseded { .. } => None,
    });
    let own = match said {
        Said::Lead { fence, lease, .. } => Some((*fence, *lease)),
        _ => None,
    };
    reported.chain(own).collect()
}

/// The bytes somebody was shown in this step, fresh or stale.
fn shown(key: &Key, said: &Said) -> Vec<Vec<u8>> {
    let reported = key.replies.iter().filter_map(|reply| match reply {
        LeadReply::Refused { refusal: Seen::Value { bytes, .. } | Seen::Stale { bytes, .. }, .. } => {
            Some(bytes.to_vec())
        }
        LeadReply::Granted { grant: lead, .. } => lead.stale.as_ref().map(|bytes| bytes.to_vec()),
        LeadReply::Refused { .. } | LeadReply::TimedOut { .. } | LeadReply::Superseded { .. } => None,
    });
    let own = match said {
        Said::Value { bytes, .. } | Said::Stale { bytes, .. } => Some(bytes.clone()),
        Said::Lead { stale, .. } => stale.clone(),
        _ => None,
    };
    reported.chain(own).collect()
}

proptest! {
    #![proptest_config(seed::config())]

    /// By what callers heard alone: a promised lease is over, or given up, before the next fence is handed out.
    #[test]
    fn at_most_one_lead_is_out_under_a_valid_lease(events in calm()) {
        let mut driver = Driver::default();
        // The fence that is out, and until when its leader may rely on it.
        let mut out: Option<(u64, i64)> = None;
        for event in &events {
            let (call, said) = driver.play(event);
            let now = driver.key.now;
            let over = match call {
                Call::Publish { .. } | Call::Abandon(..) => matches!(said, Said::Published { .. } | Said::Abandoned),
                Call::Close(_) | Call::TakeBack(_) | Call::Invalidate { .. } => said == Said::Was(true),
                _ => false,
            };
            // The close of its connection takes back what goes beyond the grace.
            if let (Call::Cut(closed, grace, at), Some((fence, until))) = (&call, &mut out)
                && closed == fence
            {
                *until = (*until).min(at + grace);
            }
            for (fence, lease) in leads(&driver.key, &said) {
                // What the call of this step ended may have begun in this step: its token waited, too.
                let other = out.filter(|(other, until)| *other != fence && *until > now && !over);
                prop_assert!(other.is_none(), "{:?} while {:?}", fence, other);
                out = Some((fence, now + lease));
            }
            if let Said::Renewed { fence, lease, .. } = said {
                out = Some((fence, now + lease));
            }
            if over && driver.key.flight.leader.is_none() {
                out = None;
            }
        }
    }

    /// Nor while an error is kept, or a pause: nobody leads then.
    #[test]
    fn nobody_leads_while_a_value_is_fresh_or_failure_rests(events in calm()) {
        let mut driver = Driver::default();
        let mut rests_until = 0;
        for event in &events {
            let led_before = driver.key.flight.ended.clone();
            let (call, said) = driver.play(event);
            let begun = leads(&driver.key, &said);
            if matches!(call, Call::Invalidate { .. }) {
                rests_until = 0;
            }
            prop_assert!(begun.is_empty() || rests_until <= driver.key.now, "{:?}", begun);
            // Only what was accepted now counts; the same again changes nothing, though another's lead may have lapsed.
            let accepted = |token: &str| {
                let newest = driver.key.flight.ended.last();
                newest != led_before.last() && newest.is_some_and(|ended| *ended.token == *token.as_bytes())
            };
            match (&call, &said) {
                (Call::Publish { token, ttl, .. }, Said::Published { .. }) if accepted(token) => {
                    rests_until = driver.key.now + ttl;
                }
                (Call::Abandon(token, Some(retry)), Said::Abandoned) if accepted(token) => {
                    rests_until = driver.key.now + retry;
                }
                _ => {}
            }
        }
    }

    /// A caller that is shown something is shown what the last accepted leader published, never what another brought.
    #[test]
    fn what_a_void_leader_published_is_never_seen(events in wild()) {
        let mut driver = Driver::default();
        let mut refused: Vec<Vec<u8>> = Vec::new();
        for event in &events {
            let (call, said) = driver.play(event);
            if let Call::Publish { brings: Brings::Value { bytes, .. }, .. } = &call
                && matches!(said, Said::Lost(_))
            {
                refused.push(bytes.clone());
            }
            let kept = driver.key.flight.value.iter().filter_map(|value| value.content.as_ref());
            let kept: Vec<Vec<u8>> = kept.map(|bytes| bytes.to_vec()).collect();
            for bytes in shown(&driver.key, &said).iter().chain(&kept) {
                prop_assert!(!refused.contains(bytes));
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
    fn fences_grow_whatever_happens(events in wild()) {
        let mut driver = Driver::default();
        events.iter().for_each(|event| { driver.play(event); });
        prop_assert!(driver.fences.is_sorted_by(|earlier, later| earlier < later));
    }

    #[test]
    fn nothing_is_collected_while_it_matters(events in calm(), salt: u64) {
        let mut driver = Driver::default();
        for event in &events {
            driver.play(event);
            // Those who wait are no part of what is stored.
            let stored = Key { queue: Queue::default(), ..driver.key.clone() };
            let last = stored.moments().into_iter().max().unwrap_or_default();
            prop_assert!(stored.flight.gc_at(salt).as_us() >= last);
        }
    }
}
