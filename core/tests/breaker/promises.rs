//! Promises one by one, on schedules made for them.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use resil_core::Span;
use resil_core::circuit_breaker::{Batch, Force, Patch, Phase, Report, StateName, WindowKind};
use resil_core::rate_limit::Wait;

use super::driver::Driver;
use super::schedule::{SECOND_US, steady};
use super::seed;
use super::service::{Service, secs, usual};

/// A property over schedules that never trip, or never half-open, would promise little.
#[test]
fn the_schedules_reach_everything_that_can_happen() {
    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..120 {
        let mut driver = Driver::default();
        for event in steady().new_tree(&mut runner).expect("a schedule").current() {
            driver.play(&event).expect("as the model says");
        }
        for what in driver.seen {
            *seen.entry(what).or_insert(0) += 1;
        }
    }
    for what in [
        "consecutive-failures",
        "failure-rate",
        "slow-rate",
        "open-time-over",
        "probes-succeeded",
        "probe-failed",
        "ramp-over",
        "ramp-failed",
        "forced",
        "force-lifted",
        "force-ended",
        "forced-open to half-open",
        "reset",
        "counted",
        "stale",
        "unknown",
        "duplicate",
        "ignored",
        "denied",
        "collected",
    ] {
        assert!(seen.get(what).is_some_and(|times| *times >= 10), "schedules hardly see {what}: {seen:?}");
    }
}

fn opened(patch: Patch) -> Service {
    let mut service = Service::with(Patch { consecutive: Some(1), ..patch });
    service.trip();
    service
}

proptest! {
    #![proptest_config(seed::config())]

    /// Every probe is lost, and somebody asks all the time: whenever a lease ends the next one is let out, and not a
    /// microsecond earlier; who is denied changes nothing.
    #[test]
    fn lost_probes_never_wedge_it_under_steady_denied_traffic(
        probes in 1..=5u32,
        lease_us in 10_000..=60 * SECOND_US,
        gaps in vec(0..=100i64, 200..=230),
    ) {
        let open = secs(10);
        let lease = Span::from_us(lease_us);
        let mut service =
            opened(Patch { probes: Some(probes), lease: Some(lease), open: Some(open), ..Patch::default() });
        service.later(open.as_us());
        let mut ends: Vec<i64> = Vec::new();
        for gap in gaps {
            service.later(lease_us * gap / 1_000);
            ends.retain(|end_us| *end_us > service.now_us);
            let asked = service.ask();
            prop_assert_eq!(asked.permit.is_some(), ends.len() < probes as usize);
            if asked.permit.is_some() {
                ends.push(service.now_us + lease_us);
            } else {
                let first_us = ends.iter().min().copied().unwrap_or(0);
                prop_assert_eq!(asked.retry_after, Wait::For(Span::from_us(first_us - service.now_us)));
                prop_assert!(service.edits.is_empty());
            }
            prop_assert!(service.probes_out() <= probes as usize);
        }
    }

    /// Open time k is `open * factor^k`, at most MAX; being closed for MAX starts it over.
    #[test]
    fn the_open_time_grows_with_trips_and_then_starts_over(
        open_ms in 1..=100_000i64,
        factor_milli in 1_000..=10_000u32,
        max_times in 2..=50i64,
        closed_times in vec(prop::option::weighted(0.3, 0..=12u32), 200..=210),
    ) {
        let max_us = open_ms * 1_000 * max_times;
        let mut service = Service::with(Patch {
            consecutive: Some(1),
            successes: Some(1),
            open: Some(Span::from_ms(open_ms)),
            factor_milli: Some(factor_milli),
            open_max: Some(Span::from_us(max_us)),
            idle: Some(Span::from_days(30)),
            ..Patch::default()
        });
        let mut expected_us = open_ms * 1_000;
        service.trip();
        for closed in closed_times {
            prop_assert_eq!(service.ask().retry_after, Wait::For(Span::from_us(expected_us)));
            service.later(expected_us - 1);
            prop_assert!(service.ask().permit.is_none());
            service.later(1);
            let grown_us = (expected_us * factor_milli as i64 / 1_000).min(max_us);
            match closed {
                None => service.call(Report::Fail),
                Some(tenths) => {
                    service.call(Report::Ok);
                    let closed_us = max_us * tenths as i64 / 10;
                    expected_us = if closed_us >= max_us { open_ms * 1_000 } else { grown_us };
                    service.later(closed_us).call(Report::Fail)
                }
            };
            if closed.is_none() {
                expected_us = grown_us;
            }
        }
    }

    /// However many failures one caller reports, alone or in batches: it is one caller.
    #[test]
    fn a_quorum_is_not_met_by_one_caller(
        quorum in 2..=64u32,
        window in prop_oneof![
            (1..=200u32).prop_map(WindowKind::Count),
            (1..=100i64).prop_map(|length| WindowKind::Time(secs(length))),
        ],
        steps in vec((0..=SECOND_US, 0..=3u32, prop::bool::weighted(0.9)), 200..=220),
    ) {
        let mut service = Service::with(Patch {
            quorum: Some(quorum),
            window: Some(window),
            rate_pct: Some(1),
            min_calls: Some(1),
            consecutive: Some(1),
            ..Patch::default()
        });
        for (seq, (gap_us, batch, failed)) in (1..).zip(steps) {
            service.later(gap_us);
            match (batch, failed) {
                (0, true) => drop(service.call_as("bad", Report::Fail)),
                (_, true) => drop(service.tally("bad", seq, Batch { ok: 0, failures: batch, slow: 0, run: batch })),
                // The others are well.
                (_, false) => drop(service.call_as("good", Report::Ok)),
            }
            prop_assert_eq!(service.state(), "closed");
        }
    }

    /// And it is met by that many callers.
    #[test]
    fn a_quorum_is_met_by_exactly_so_many_callers(quorum in 1..=64u32) {
        let patch = Patch { quorum: Some(quorum), consecutive: Some(1), ..Patch::default() };
        let mut service = Service::with(patch);
        for caller in 1..=quorum {
            prop_assert_eq!(service.state(), "closed");
            service.call_as(&caller.to_string(), Report::Fail);
        }
        prop_assert_eq!(service.state(), "open");
    }

    /// Batches of many callers, each sent one to three times, in any order between callers: each counts once.
    #[test]
    fn a_repeated_tally_counts_once(
        sent in vec((0..20u8, 1..=3u32, 0..=50u32, 0..=50u32, 0..=SECOND_US), 200..=220),
        time in any::<bool>(),
    ) {
        let window = if time { WindowKind::Time(Span::from_days(1)) } else { WindowKind::Count(10_000) };
        let mut service = Service::with(Patch { window: Some(window), ..Patch::default() });
        service.force(Some(Force::Metrics), None);
        let (mut calls, mut failed) = (0, 0);
        for (seq, (caller, times, ok, failures, gap_us)) in (1..).zip(sent) {
            service.later(gap_us);
            for time in 0..times {
                let said = service.tally(&caller.to_string(), seq, Batch { ok, failures, slow: 0, run: 0 });
                let why = if ok + failures == 0 { "ignored" } else if time == 0 { "counted" } else { "duplicate" };
                prop_assert_eq!(said.why.text(), why);
                prop_assert_eq!(service.edits.is_empty(), why != "counted");
            }
            (calls, failed) = (calls + ok + failures, failed + failures);
            if time || calls <= 10_000 {
                prop_assert_eq!(service.counted(), (calls, failed));
            }
        }
    }

    /// The largest batch fills a count window once and says in it what it said: no more.
    #[test]
    fn no_batch_outweighs_the_window(size in 1..=10_000u32, ok in 0..=10_000u32, failures in 0..=10_000u32) {
        let patch = Patch { window: Some(WindowKind::Count(size)), ..Patch::default() };
        let mut service = Service::with(patch);
        service.force(Some(Force::Metrics), None);
        service.tally("a", 1, Batch { ok, failures, slow: 0, run: 0 });
        let given = (ok + failures) as u64;
        let (calls, failed) = service.counted();
        prop_assert_eq!(calls as u64, given.min(size as u64));
        if given > 0 {
            let exact = failures as u64 * calls as u64;
            prop_assert!(failed as u64 * given >= exact && (failed as u64) * given < exact + given);
        }
        // As many calls after it, and nothing of it is left.
        service.tally("b", 1, Batch { ok: 10_000, failures: 0, slow: 0, run: 0 });
        prop_assert!(service.counted().1 == 0 || size > 10_000);
    }

    /// 10 percent of all chances in the first third, 25 in the second, 50 in the third, then all.
    #[test]
    fn a_ramp_admits_its_share_exactly(ramp_us in 3..=3_600 * SECOND_US, at_milli in 0..=1_100i64) {
        let mut service = opened(Patch { ramp: Some(Span::from_us(ramp_us)), successes: Some(1), ..usual() });
        service.later(10 * SECOND_US).call(Report::Ok);
        prop_assert_eq!(service.state(), "ramping");
        let elapsed_us = ramp_us * at_milli / 1_000;
        service.later(elapsed_us);
        let share = match elapsed_us / (ramp_us / 3) {
            _ if elapsed_us >= ramp_us => 100,
            0 => 10,
            1 => 25,
            _ => 50,
        };
        for chance in 0..100 {
            let mut asked = service.clone();
            let admission = asked.ask_with_chance("", None, chance);
            prop_assert_eq!(admission.permit.is_some(), chance < share, "{} of {}", chance, share);
            if let (None, Wait::For(wait)) = (admission.permit, admission.retry_after) {
                prop_assert!(!wait.is_zero() && wait.as_us() <= ramp_us - elapsed_us);
                prop_assert!(asked.edits.is_empty());
            }
        }
    }

    /// Two releases side by side: from the first call of the newer one on, nothing flips back, and an option that is
    /// sent again changes nothing and replicates nothing.
    #[test]
    fn a_rolling_deploy_never_flips_back(
        older in (1..=5u32, 1..=5u32),
        newer in (6..=9u32, 6..=9u32),
        releases in vec((prop::bool::ANY, prop::bool::ANY, 0..=SECOND_US), 200..=220),
        first_version in prop::option::of(Just(1u64)),
    ) {
        let options = |(consecutive, probes): (u32, u32)| {
            Patch { consecutive: Some(consecutive), probes: Some(probes), ..Patch::default() }
        };
        let (old, new) = (options(older), options(newer));
        let mut service = Service::new();
        let (mut anything, mut is_new) = (false, false);
        for (by_new, ok, gap_us) in releases {
            service.later(gap_us);
            let asked = service.ask_as("", Some(if by_new { (&new, Some(2)) } else { (&old, first_version) }));
            let changes = !anything || (by_new && !is_new);
            (anything, is_new) = (true, is_new || by_new);
            let config = service.breaker.config();
            prop_assert_eq!((config.consecutive, config.probes), if is_new { newer } else { older });
            let configured = service.edits.iter().any(|edit| format!("{edit:?}").starts_with("Configure"));
            prop_assert_eq!(configured, changes);
            if let Some(permit) = asked.permit {
                prop_assert!(changes || permit.probe.is_some() || service.edits.is_empty() || !service.reported.is_empty());
                service.report(permit, if ok { Report::Ok } else { Report::Fail });
            }
        }
    }

    /// The memory of a breaker with a window of 60 s, in ordinary use by eight callers, in every state.
    #[test]
    fn a_breaker_with_a_minutes_window_takes_under_a_kilobyte(
        calls in vec((0..8u8, 0..=10u32, 0..=SECOND_US), 200..=220),
    ) {
        let window = Some(WindowKind::Time(secs(60)));
        let mut service = Service::with(Patch { window, quorum: Some(3), ramp: Some(secs(5)), ..usual() });
        for (seq, (caller, chance, gap_us)) in (1..).zip(calls) {
            let caller = caller.to_string();
            service.later(gap_us);
            if chance == 10 {
                service.tally(&caller, seq, Batch { ok: 3, failures: 1, slow: 0, run: 0 });
            } else if let Some(permit) = service.ask_with_chance(&caller, None, chance).permit {
                service.report(permit, if chance < 5 { Report::Fail } else { Report::Ok });
            }
            let bytes = size_of_val(&service.breaker) + service.breaker.heap_bytes();
            prop_assert!(bytes <= 1_024, "{} bytes in {:?}", bytes, service.breaker.phase());
        }
    }

    /// Forced: reports are heard where they are to be, and move nothing; AUTO and the end of FOR lead to closed,
    /// THEN PROBE to half-open.
    #[test]
    fn a_forced_state_stays_until_it_is_lifted_or_ends(
        how in prop::sample::select(Force::ALL.to_vec()),
        length in prop::option::of(10..=1_000i64),
        said in vec((prop::bool::ANY, 0..=SECOND_US / 2), 200..=220),
    ) {
        let mut service = Service::usual();
        service.force(Some(how), length.map(secs));
        let ends_us = length.map(|length| service.now_us + length * SECOND_US);
        let mut heard = 0;
        for (ok, gap_us) in said {
            service.later(gap_us);
            if ends_us.is_some_and(|ends_us| ends_us <= service.now_us) {
                prop_assert_eq!(service.state(), how.ends_in().text());
                service.ask();
                prop_assert_eq!(service.reasons(), vec!["force-ended"]);
                return Ok(());
            }
            let asked = service.ask();
            prop_assert_eq!(asked.permit.is_some(), how.state() != StateName::ForcedOpen);
            prop_assert_eq!(asked.state, how.state());
            match (asked.permit, ends_us) {
                (Some(permit), _) => {
                    let why = service.report(permit, if ok { Report::Ok } else { Report::Fail }).why.text();
                    prop_assert_eq!(why, if how == Force::Disabled { "ignored" } else { "counted" });
                    heard += 1;
                }
                (None, Some(ends_us)) => {
                    prop_assert_eq!(asked.retry_after, Wait::For(Span::from_us(ends_us - service.now_us)));
                }
                (None, None) => prop_assert_eq!(asked.retry_after, Wait::Never),
            }
            let counts = matches!(how, Force::Closed | Force::Metrics);
            prop_assert_eq!(service.counted().0, if counts { heard.min(100) } else { 0 });
        }
        prop_assert_eq!(service.force(None, None), "closed");
        prop_assert!(matches!(service.breaker.phase(), Phase::Closed));
        prop_assert_eq!(service.counted(), (0, 0));
    }
}
