//! What went wrong elsewhere, one sentence each. The names of projects say where it was seen.

use resil_core::circuit_breaker::{
    Batch, Breaker, Config, ConfigError, Edit, Force, Patch, Phase, Report, WindowKind, admit, configure,
};
use resil_core::rate_limit::Wait;

use super::model::HOUR_US;
use super::schedule::SECOND_US;
use super::service::{Service, failures, secs, usual};

#[test]
fn an_ignored_last_probe_does_not_wedge_half_open() {
    // resilience4j #544
    let mut service = Service::about_to_probe();
    let (first, last) = (service.permit(), service.permit());
    service.report(first, Report::Ok);
    service.report(last, Report::Ignore);
    assert_eq!((service.state(), service.probes_out()), ("half-open", 0));
    service.call(Report::Ok);
    assert_eq!(service.state(), "closed");
}

#[test]
fn probes_that_are_never_heard_of_free_their_places() {
    // resilience4j #903, #935, Sentinel #1638, nora #585: half-open for ever
    let mut service = Service::about_to_probe();
    service.permit();
    service.permit();
    assert_eq!(service.ask().retry_after, Wait::For(secs(5)));
    service.later(5 * SECOND_US - 1);
    assert!(service.ask().permit.is_none());
    service.later(1);
    service.calls(2, Report::Ok);
    assert_eq!(service.state(), "closed");
}

#[test]
fn all_but_one_of_a_thousand_reports_are_enough() {
    // resilience4j #1389: one lost report of many
    let mut service = Service::with(Patch { probes: Some(100), successes: Some(1_000), ..usual() });
    service.trip();
    service.later(10 * SECOND_US);
    let lost = service.permit();
    service.calls(999, Report::Ok);
    assert_eq!(service.state(), "half-open");
    service.call(Report::Ok);
    assert_eq!(service.state(), "closed");
    assert_eq!(service.report(lost, Report::Fail).why.text(), "stale");
}

#[test]
fn no_more_probes_are_out_than_permitted_however_many_ask() {
    // resilience4j #1432; pybreaker, hyx, recloser: unbounded; safe-client-gateway #3442: traffic times seventeen
    let mut service = Service::about_to_probe();
    let admitted = (0..1_000).filter(|_| service.ask().permit.is_some()).count();
    assert_eq!((admitted, service.probes_out()), (2, 2));
}

#[test]
fn open_becomes_half_open_only_together_with_a_probe() {
    // resilience4j #1568: open and half-open in turn without a probe; Kevlar #227
    let mut service = Service::about_to_probe();
    assert_eq!(service.state(), "open");
    let asked = service.ask();
    assert!(asked.permit.is_some_and(|permit| permit.probe.is_some()));
    assert_eq!((service.state(), service.reasons()), ("half-open", vec!["open-time-over"]));
}

#[test]
fn an_ignored_or_cancelled_probe_closes_nothing() {
    // Polly 8, cockatiel, pybreaker: an ignored outcome is a success
    for said in [Report::Ignore, Report::Cancel] {
        let mut service = Service::about_to_probe();
        for _ in 0..100 {
            assert_eq!(service.call(said).why.text(), "ignored");
            assert_eq!(service.state(), "half-open");
        }
    }
}

#[test]
fn ignored_and_cancelled_calls_open_nothing_and_count_nowhere() {
    let mut service = Service::usual();
    for said in [Report::Ignore, Report::Cancel] {
        service.call(Report::Fail);
        service.calls(100, said);
        assert_eq!((service.state(), service.edits.len()), ("closed", 0));
        service.call(Report::Ok);
    }
    assert_eq!(service.counted(), (4, 2));
}

#[test]
fn a_late_report_of_a_closed_call_mints_no_probe() {
    // failsafe-go: any report in half-open counts as a probe's and frees a place
    let mut service = Service::usual();
    let early = service.permit();
    service.trip();
    service.later(10 * SECOND_US);
    service.permit();
    service.permit();
    for said in [Report::Ok, Report::Fail, Report::Ignore, Report::Cancel] {
        assert_eq!(service.report(early, said).why.text(), "stale");
        assert!(service.edits.is_empty());
    }
    assert_eq!((service.state(), service.probes_out()), ("half-open", 2));
    assert!(service.ask().permit.is_none());
}

#[test]
fn a_late_failure_does_not_open_half_open_again() {
    // cockatiel #91, Polly #217
    let mut service = Service::usual();
    let early = service.permit();
    service.trip();
    service.later(10 * SECOND_US);
    service.call(Report::Ok);
    service.report(early, Report::Fail);
    service.call(Report::Ok);
    assert_eq!(service.state(), "closed");
}

#[test]
fn a_stale_failure_after_recovery_counts_for_nothing() {
    // gofiber #2350, denoland/std #7306
    let mut service = Service::usual();
    let (one, two) = (service.permit(), service.permit());
    service.trip();
    service.later(10 * SECOND_US);
    let lost_probe = service.permit();
    service.later(5 * SECOND_US);
    service.calls(2, Report::Ok);
    for permit in [one, two, lost_probe] {
        assert_eq!(service.report(permit, Report::Fail).why.text(), "stale");
    }
    assert_eq!((service.state(), service.counted()), ("closed", (0, 0)));
}

#[test]
fn a_window_forgets_over_idle_hours() {
    // cockatiel: a hundred failures, an hour idle, and one failure more trips a window of 30 s
    let patch = Patch {
        window: Some(WindowKind::Time(secs(30))),
        consecutive: Some(0),
        rate_pct: Some(50),
        min_calls: Some(20),
        ..Patch::default()
    };
    let mut service = Service::with(patch);
    service.tally("a", 1, Batch { ok: 9, failures: 9, slow: 0, run: 0 });
    service.later(HOUR_US - 1);
    assert_eq!(service.counted(), (0, 0));
    service.calls(10, Report::Ok);
    service.call(Report::Fail);
    assert_eq!((service.state(), service.counted()), ("closed", (11, 1)));
}

#[test]
fn denied_callers_keep_no_lost_probe_alive() {
    // interlock: every denied lease refreshes the key, so one lost probe is for ever
    let mut service = Service::about_to_probe();
    service.permit();
    service.permit();
    let gc_at = service.breaker.gc_at(0);
    for _ in 0..499 {
        service.later(10_000);
        assert!(service.ask().permit.is_none());
        assert!(service.edits.is_empty());
    }
    assert_eq!(service.breaker.gc_at(0), gc_at);
    service.later(10_000);
    assert!(service.ask().permit.is_some());
}

#[test]
fn forty_failures_at_once_trip_once() {
    // purgatory: forty concurrent failures at a threshold of five, still closed
    let mut service = Service::new();
    let permits: Vec<_> = (0..40).map(|_| service.permit()).collect();
    let mut trips = 0;
    for permit in permits {
        service.report(permit, Report::Fail);
        trips += service.reported.len();
    }
    assert_eq!((service.state(), trips, service.breaker.trips()), ("open", 1, 1));
}

#[test]
fn a_caller_that_comes_first_does_not_freeze_the_configuration() {
    // purgatory: asked for 50, got 5
    let mut service = Service::new();
    let (five, fifty) =
        (Patch { consecutive: Some(5), ..Patch::default() }, Patch { consecutive: Some(50), ..Patch::default() });
    service.ask_as("", Some((&five, Some(1))));
    service.ask_as("", Some((&fifty, Some(2))));
    assert_eq!(service.breaker.config().consecutive, 50);
}

#[test]
fn a_success_elsewhere_does_not_undo_a_windows_failure() {
    // pybreaker on Redis: a success anywhere sets the counter to zero
    let patch = Patch { consecutive: Some(0), rate_pct: Some(50), min_calls: Some(4), ..Patch::default() };
    let mut service = Service::with(patch);
    service.call(Report::Fail);
    service.call(Report::Ok);
    service.call(Report::Fail);
    service.call(Report::Ok);
    assert_eq!(service.state(), "open");
}

#[test]
fn later_events_do_not_move_the_time_of_opening() {
    // pybreaker #24: opened_at is overwritten, it never becomes half-open; opossum: counted from construction
    let mut service = Service::usual();
    let late: Vec<_> = (0..10).map(|_| service.permit()).collect();
    service.later(HOUR_US / 2).trip();
    for permit in late {
        service.later(SECOND_US - 1);
        service.report(permit, Report::Fail);
        assert_eq!(service.ask().permit, None);
    }
    service.later(10);
    assert!(service.ask().permit.is_some());
}

#[test]
fn a_new_process_resets_nothing() {
    // pybreaker #26
    let mut service = Service::usual();
    service.call(Report::Fail);
    service.ask_as("new", Some((&usual(), None)));
    assert!(service.edits.is_empty());
    service.call(Report::Fail);
    assert_eq!(service.state(), "open");
}

#[test]
fn a_hung_probe_does_not_reject_everyone_for_ever() {
    // Polly 8
    let mut service = Service::with(Patch { probes: Some(1), successes: Some(1), ..usual() });
    service.trip();
    service.later(10 * SECOND_US);
    let hung = service.permit();
    service.later(5 * SECOND_US);
    service.call(Report::Ok);
    assert_eq!(service.state(), "closed");
    assert_eq!(service.report(hung, Report::Fail).why.text(), "stale");
}

#[test]
fn a_call_of_longer_than_idle_still_counts() {
    // A probe whose lease is longer than IDLE was stale, so half-open never ended.
    let mut service = Service::with(Patch { idle: Some(secs(1)), ..usual() });
    let (one, two) = (service.permit(), service.permit());
    service.later(2 * SECOND_US);
    assert_eq!(service.report(one, Report::Fail).why.text(), "counted");
    assert_eq!(service.report(two, Report::Fail).why.text(), "counted");
    service.later(10 * SECOND_US);
    for _ in 0..2 {
        let probe = service.permit();
        service.later(4 * SECOND_US);
        assert_eq!(service.report(probe, Report::Ok).why.text(), "counted");
    }
    assert_eq!(service.state(), "closed");
}

#[test]
fn a_report_from_an_earlier_life_changes_nothing() {
    // Generation 0 comes again when a key has gone; a short IDLE made that soon.
    let mut service = Service::new();
    let options = Patch { idle: Some(secs(1)), ..usual() };
    let early = service.ask_as("", Some((&options, None))).permit.expect("closed");
    service.trip();
    service.reset();
    for _ in 0..7_200 {
        service.later(SECOND_US).collect();
        assert_eq!(service.report(early, Report::Fail).why.text(), "stale");
        assert!(service.breaker.is_blank() || service.breaker.generation() > 0);
    }
    assert_eq!(service.breaker, Breaker::default());
}

#[test]
fn the_first_tally_of_a_key_counts_once_too() {
    // The sequence number was forgotten together with what IDLE forgets.
    let mut service = Service::new();
    assert_eq!(service.tally("a", 1, failures(2)).why.text(), "counted");
    assert_eq!(service.tally("a", 1, failures(2)).why.text(), "duplicate");
    service.later(2 * HOUR_US);
    assert_eq!(service.tally("a", 2, failures(2)).why.text(), "counted");
    assert_eq!(service.tally("a", 2, failures(2)).why.text(), "duplicate");
    assert_eq!(service.counted(), (2, 2));
}

#[test]
fn a_tally_is_not_counted_again_after_reset() {
    let mut service = Service::new();
    service.tally("a", 7, failures(2));
    service.reset();
    assert_eq!(service.tally("a", 7, failures(2)).why.text(), "duplicate");
    assert_eq!(service.counted(), (0, 0));
}

#[test]
fn a_batch_of_nothing_but_failures_is_a_run() {
    let mut service = Service::usual();
    service.tally("a", 1, Batch { ok: 0, failures: 2, slow: 0, run: 0 });
    assert_eq!((service.state(), service.reasons()), ("open", vec!["consecutive-failures"]));
}

#[test]
fn the_open_time_grows_beyond_idle() {
    // Growth was forgotten when an open time was longer than IDLE.
    let patch = Patch { factor_milli: Some(2_000), open: Some(secs(1_800)), open_max: Some(secs(86_400)), ..usual() };
    let mut service = Service::with(patch);
    service.trip();
    for open_secs in [1_800, 3_600, 7_200, 14_400, 28_800, 57_600, 86_400, 86_400] {
        assert_eq!(service.ask().retry_after, Wait::For(secs(open_secs)));
        service.later(open_secs * SECOND_US).call(Report::Fail);
    }
}

#[test]
fn many_trips_without_growth_cost_nothing() {
    // FACTOR 1 with a MAX above OPEN walked through every trip there ever was; RESTORE can claim four billion.
    let mut service = Service::with(Patch { open: Some(secs(1)), open_max: Some(secs(60)), ..usual() });
    let at_us = service.now_us;
    service.breaker.apply(&Edit::Enter { phase: Box::new(Phase::Closed), generation: 1, at_us, trips: u32::MAX });
    let began = std::time::Instant::now();
    service.trip();
    assert_eq!(service.ask().retry_after, Wait::For(secs(1)));
    assert!(began.elapsed().as_secs() < 2);
}

#[test]
fn a_clock_set_back_lets_no_old_accuser_count() {
    // Evidence of before the step stayed in the window for as long as the step.
    let patch = Patch { window: Some(WindowKind::Time(secs(10))), quorum: Some(2), ..usual() };
    let mut service = Service::with(patch);
    service.call_as("a", Report::Fail);
    service.later(-HOUR_US).ask();
    for _ in 0..100 {
        service.later(11 * SECOND_US).call_as("b", Report::Fail);
        assert_eq!(service.state(), "closed");
    }
    service.call_as("a", Report::Fail);
    assert_eq!(service.state(), "open");
}

#[test]
fn a_clock_set_back_keeps_no_call_in_the_window() {
    let patch = Patch { window: Some(WindowKind::Time(secs(10))), ..Patch::default() };
    let mut service = Service::with(patch);
    service.calls(3, Report::Fail);
    service.later(-HOUR_US).ask();
    assert_eq!(service.counted(), (3, 3));
    service.later(10 * SECOND_US);
    assert_eq!(service.counted(), (0, 0));
    service.call(Report::Ok);
    assert_eq!(service.counted(), (1, 0));
}

#[test]
fn calls_keep_their_age_when_the_clock_is_set_back() {
    let patch = Patch { window: Some(WindowKind::Time(secs(10))), ..Patch::default() };
    let mut service = Service::with(patch);
    service.call(Report::Fail);
    service.later(5 * SECOND_US).call(Report::Ok);
    service.later(-HOUR_US - 3 * SECOND_US).ask();
    service.later(4_400_000);
    assert_eq!(service.counted(), (2, 1));
    service.later(1_100_000);
    assert_eq!(service.counted(), (1, 0));
    service.later(5 * SECOND_US);
    assert_eq!(service.counted(), (0, 0));
}

#[test]
fn a_run_is_forgotten_after_idle_in_any_window() {
    let mut service = Service::new();
    service.calls(4, Report::Fail);
    service.config(Patch { window: Some(WindowKind::Count(50)), ..Patch::default() });
    service.later(2 * HOUR_US).call(Report::Fail);
    assert_eq!(service.state(), "closed");
}

#[test]
fn an_operators_configuration_never_makes_admit_an_error() {
    // Options that do not apply were checked against what CONFIG had stored.
    let mut service = Service::with(Patch { rate_pct: Some(0), open: Some(secs(90)), ..Patch::default() });
    for options in [
        Patch { consecutive: Some(0), ..Patch::default() },
        Patch { factor_milli: Some(2_000), open_max: Some(secs(60)), ..Patch::default() },
    ] {
        let now = service.now();
        let asked = admit(&mut service.breaker, Default::default(), Some((&options, None)), 0, now);
        assert!(asked.is_ok_and(|asked| asked.verdict.permit.is_some() && asked.edits.is_empty()));
    }
}

#[test]
fn options_that_were_taken_are_valid_the_next_time() {
    // Once stored they no longer apply; then they were checked as if nothing else had been configured.
    let mut service = Service::with(Patch { open: Some(secs(1)), open_max: Some(secs(20)), ..Patch::default() });
    for (version, options) in [
        (1, Patch { factor_milli: Some(2_000), ..Patch::default() }),
        (2, Patch { open_max: Some(secs(10)), ..Patch::default() }),
    ] {
        let now = service.now();
        for taken in [true, false] {
            let asked = admit(&mut service.breaker, Default::default(), Some((&options, Some(version))), 0, now);
            assert!(asked.is_ok_and(|asked| asked.edits.is_empty() != taken), "{version}");
        }
    }
}

#[test]
fn growth_without_room_is_reported_only_to_its_caller() {
    let mut service = Service::usual();
    let config = Box::new(Config { factor_milli: 2_000, ..Config::default() });
    service.breaker.apply(&Edit::Configure { config, version: 1, lasting: true, at_us: service.now().as_us() });
    let now = service.now();
    let mut config = |patch| configure(&mut service.breaker, &patch, None, now).map(drop);
    assert_eq!(config(Patch { rate_pct: Some(40), ..Patch::default() }), Ok(()));
    assert_eq!(config(Patch { open: Some(secs(60)), ..Patch::default() }), Err(ConfigError::NoRoomToGrow));
    assert_eq!(config(Patch { open_max: Some(secs(60)), ..Patch::default() }), Ok(()));
}

#[test]
fn config_changes_only_what_it_names() {
    // MAX was lost by a CONFIG that did not name it.
    let mut service = Service::with(Patch { open: Some(secs(1)), open_max: Some(secs(60)), ..Patch::default() });
    service.config(Patch { rate_pct: Some(40), ..Patch::default() });
    service.config(Patch { factor_milli: Some(3_000), ..Patch::default() });
    assert_eq!((service.breaker.config().open, service.breaker.config().open_max), (secs(1), secs(60)));
}

#[test]
fn forcing_the_same_state_again_is_no_transition() {
    let mut service = Service::usual();
    service.force(Some(Force::Metrics), Some(secs(60)));
    service.calls(3, Report::Fail);
    let before = service.permit();
    service.later(30 * SECOND_US);
    assert_eq!(service.force(Some(Force::Metrics), Some(secs(60))), "metrics");
    assert_eq!((service.reported.len(), service.counted()), (0, (3, 3)));
    assert_eq!(service.report(before, Report::Fail).why.text(), "counted");
    service.later(60 * SECOND_US);
    assert_eq!(service.state(), "closed");
}
