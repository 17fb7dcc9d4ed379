//! What the contract says in words, as small stories with exact numbers.

use resil_core::circuit_breaker::{Batch, Breaker, Force, Patch, Report, WindowKind};
use resil_core::rate_limit::Wait;

use super::model::HOUR_US;
use super::schedule::{DAY_US, SECOND_US};
use super::service::{Service, secs, usual};

fn only_rate(rate_pct: u32, min_calls: u32, window: WindowKind) -> Patch {
    Patch {
        consecutive: Some(0),
        rate_pct: Some(rate_pct),
        min_calls: Some(min_calls),
        window: Some(window),
        ..Patch::default()
    }
}

#[test]
fn the_defaults_are_as_documented() {
    let mut service = Service::new();
    service.calls(4, Report::Fail);
    service.call(Report::Ok);
    service.calls(4, Report::Fail);
    assert_eq!(service.state(), "closed");
    service.call(Report::Fail);
    assert_eq!((service.state(), service.reasons()), ("open", vec!["consecutive-failures"]));
    assert_eq!(service.ask().retry_after, Wait::For(secs(30)));
    service.later(30 * SECOND_US);
    let probes: Vec<_> = (0..3).map(|_| service.permit()).collect();
    assert!(service.ask().permit.is_none());
    for probe in probes {
        service.report(probe, Report::Ok);
    }
    assert_eq!(service.state(), "closed");
}

#[test]
fn five_of_ten_trip_fifty_percent_and_four_do_not() {
    let mut service = Service::with(only_rate(50, 10, WindowKind::Count(100)));
    for call in 1..=9 {
        service.call(if call % 2 == 1 { Report::Fail } else { Report::Ok });
    }
    assert_eq!(service.state(), "closed");
    service.call(Report::Ok);
    assert_eq!((service.state(), service.reasons()), ("open", vec!["failure-rate"]));
}

#[test]
fn a_rate_is_compared_without_rounding() {
    for (failed, state) in [(339, "closed"), (340, "open")] {
        let mut service = Service::with(only_rate(34, 1_000, WindowKind::Count(1_000)));
        service.tally("a", 1, Batch { ok: 1_000 - failed, failures: failed, slow: 0, run: 0 });
        assert_eq!(service.state(), state, "{failed}");
    }
}

#[test]
fn a_count_window_is_the_last_n_calls() {
    let mut service = Service::with(only_rate(100, 1_000, WindowKind::Count(3)));
    service.calls(2, Report::Fail);
    service.call(Report::Ok);
    service.calls(2, Report::Fail);
    assert_eq!((service.state(), service.counted()), ("closed", (3, 2)));
    service.call(Report::Fail);
    assert_eq!(service.state(), "open");
}

#[test]
fn a_time_window_counts_nineteen_twentieths_of_it_at_least() {
    for start_us in [0, 1, 499_999, 500_000, 9_999_999] {
        let mut service = Service::with(only_rate(100, 2, WindowKind::Time(secs(10))));
        service.later(start_us).call(Report::Fail);
        service.later(10 * SECOND_US * 19 / 20 - 1);
        assert_eq!(service.counted(), (1, 1), "{start_us}");
        service.later(10 * SECOND_US / 20 + 1);
        assert_eq!(service.counted(), (0, 0), "{start_us}");
    }
}

#[test]
fn slow_calls_trip_by_their_own_rate() {
    let mut service =
        Service::with(Patch { slow: Some(secs(1)), slow_rate_pct: Some(50), ..only_rate(0, 4, WindowKind::Count(10)) });
    for took in [secs(1), resil_core::Span::from_us(999_999), secs(5)] {
        let permit = service.permit();
        service.report_after(permit, Report::Ok, Some(took));
        assert_eq!(service.state(), "closed");
    }
    service.call(Report::Ok);
    assert_eq!((service.state(), service.reasons()), ("open", vec!["slow-rate"]));
}

#[test]
fn half_open_closes_at_successes_and_opens_at_any_failure() {
    let mut service = Service::about_to_probe();
    let (good, bad) = (service.permit(), service.permit());
    assert_eq!(service.report(good, Report::Ok).state.text(), "half-open");
    let said = service.report(bad, Report::Fail);
    assert_eq!((said.state.text(), said.retry_after), ("open", Wait::For(secs(10))));
    assert_eq!(service.reasons(), vec!["probe-failed"]);
    service.later(10 * SECOND_US).calls(2, Report::Ok);
    assert_eq!((service.state(), service.reasons()), ("closed", vec!["probes-succeeded"]));
}

#[test]
fn a_failure_while_ramping_opens_it() {
    let mut service = Service::with(Patch { ramp: Some(secs(30)), ..usual() });
    service.trip();
    service.later(10 * SECOND_US).calls(2, Report::Ok);
    assert_eq!(service.state(), "ramping");
    service.later(29 * SECOND_US).call(Report::Fail);
    assert_eq!((service.state(), service.reasons()), ("open", vec!["ramp-failed"]));
}

#[test]
fn a_probe_counts_once() {
    let mut service = Service::about_to_probe();
    let (probe, other) = (service.permit(), service.permit());
    for why in ["counted", "duplicate", "duplicate"] {
        assert_eq!(service.report(probe, Report::Ok).why.text(), why);
    }
    assert_eq!(service.report(probe, Report::Fail).why.text(), "duplicate");
    assert_eq!((service.state(), service.probes_out()), ("half-open", 1));
    service.later(5 * SECOND_US);
    assert_eq!(service.report(other, Report::Fail).why.text(), "unknown");
    assert_eq!(service.state(), "half-open");
}

#[test]
fn a_missing_key_is_closed_and_asking_creates_nothing() {
    let mut service = Service::new();
    assert_eq!((service.state(), service.breaker.generation()), ("closed", 0));
    service.permit();
    assert!(service.edits.is_empty() && service.breaker.is_blank());
    assert!(!service.reset());
    assert_eq!(service.force(None, None), "closed");
    assert_eq!(service.breaker, Breaker::default());
}

#[test]
fn generations_are_the_time_and_never_repeat() {
    let mut service = Service::open();
    let opened = service.breaker.generation();
    assert_eq!(opened, service.now_us as u64);
    service.later(-HOUR_US).later(10 * SECOND_US);
    service.ask();
    assert_eq!((service.state(), service.breaker.generation()), ("open", opened));
    service.later(10 * SECOND_US).ask();
    assert_eq!((service.state(), service.breaker.generation()), ("half-open", opened + 1));
}

#[test]
fn a_clock_an_hour_back_costs_one_open_time() {
    let mut service = Service::open();
    service.later(9 * SECOND_US).later(-HOUR_US);
    assert_eq!(service.ask().retry_after, Wait::For(secs(10)));
    service.later(10 * SECOND_US);
    assert!(service.ask().permit.is_some());
}

#[test]
fn a_clock_an_hour_ahead_ends_what_has_a_length() {
    let mut service = Service::open();
    service.later(HOUR_US);
    assert!(service.ask().permit.is_some());
}

#[test]
fn config_and_endless_force_keep_the_key_admit_does_not() {
    let mut service = Service::usual();
    assert_eq!(service.breaker.gc_at(0), None);
    assert_eq!(service.later(400 * DAY_US).breaker.config().consecutive, 2);

    let mut service = Service::new();
    service.ask_as("", Some((&usual(), Some(3))));
    service.call(Report::Fail);
    service.later(HOUR_US);
    assert_eq!(service.counted(), (1, 1));
    service.later(1);
    let seen = resil_core::circuit_breaker::view(&service.breaker, service.now()).breaker;
    assert_eq!((seen.config().consecutive, seen.version(), seen.is_configured()), (5, 0, false));
    let newer = Patch { consecutive: Some(7), ..Patch::default() };
    service.ask_as("", Some((&newer, None)));
    assert_eq!((service.breaker.config().consecutive, service.breaker.version()), (7, 0));
    assert_eq!(service.breaker.config().open, secs(30));

    let mut service = Service::new();
    service.force(Some(Force::Open), None);
    assert_eq!(service.breaker.gc_at(0), None);
    assert_eq!(service.later(400 * DAY_US).ask().retry_after, Wait::Never);
}

#[test]
fn a_shorter_ramp_or_lease_takes_effect_at_once() {
    let mut service = Service::with(Patch { ramp: Some(secs(30)), ..usual() });
    service.trip();
    service.later(10 * SECOND_US).calls(2, Report::Ok);
    service.later(SECOND_US).config(Patch { ramp: Some(secs(1)), ..Patch::default() });
    assert_eq!((service.breaker.name().text(), service.reasons()), ("closed", vec!["ramp-over"]));

    let mut service = Service::about_to_probe();
    service.permit();
    service.permit();
    service.config(Patch { lease: Some(secs(1)), ..Patch::default() });
    assert_eq!(service.ask().retry_after, Wait::For(secs(1)));
    assert!(service.edits.is_empty());
}

#[test]
fn memory_is_bounded_whatever_is_sent() {
    let window = Some(WindowKind::Count(10_000));
    let patch = Patch { window, quorum: Some(64), probes: Some(100), successes: Some(1_000), ..usual() };
    let mut service = Service::with(patch);
    let mut most = 0;
    for caller in 0..1_000u64 {
        service.tally(&format!("caller {caller}"), 1, Batch { ok: 100, failures: 1, slow: 0, run: 0 });
        most = most.max(service.breaker.heap_bytes());
    }
    service.force(Some(Force::Closed), None);
    service.force(None, None);
    for caller in 0..200 {
        service.call_as(&format!("caller {caller}"), Report::Fail);
        if service.state() == "open" {
            break;
        }
    }
    service.later(10 * SECOND_US);
    for _ in 0..1_000 {
        service.ask();
        service.later(1_000);
    }
    for _ in 0..100 {
        if let Some(probe) = service.later(SECOND_US).ask().permit {
            service.report(probe, Report::Ignore);
        }
        most = most.max(service.breaker.heap_bytes());
    }
    assert!(most < 12 * 1024, "{most} bytes");
}
