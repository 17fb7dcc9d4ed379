use proptest::prelude::*;

use super::*;

const OK: CountedOutcome = CountedOutcome { is_failure: false, is_slow: false };
const FAILED: CountedOutcome = CountedOutcome { is_failure: true, is_slow: false };

const TRUST: Duration = Duration::from_secs(1);
const NOW: Moment = Duration::from_secs(1_000);

fn state_reply(state: State, generation: u64, retry_after_ms: i64) -> StateReply {
    StateReply { state, generation, retry_after_ms, from: ReplyOf::Admit }
}

fn tell(view: &View, state_reply: StateReply) -> Accepted {
    view.hear(state_reply, view.question(NOW), TRUST)
}

#[test]
fn closed_is_believed_for_as_long_as_it_is_trusted() {
    let view = View::default();
    assert_eq!(view.gate(NOW), Belief::Ask, "nothing is known at first");
    tell(&view, state_reply(State::Closed, 0, 0));
    assert_eq!(view.gate(NOW + TRUST - Duration::from_micros(1)), Belief::Closed(view.tag()));
    assert_eq!(view.gate(NOW + TRUST), Belief::Ask);
}

#[test]
fn open_is_believed_until_it_may_be_asked() {
    let view = View::default();
    tell(&view, state_reply(State::Open, 7, 30_000));
    assert_eq!(view.gate(NOW + Duration::from_secs(29)), Belief::Open(Some(Duration::from_secs(1))));
    assert_eq!(view.gate(NOW + Duration::from_secs(30)), Belief::OpenIsOver);
    tell(&view, state_reply(State::ForcedOpen, 8, -1));
    assert_eq!(view.gate(NOW), Belief::Open(None));
    assert_eq!(view.gate(NOW + TRUST), Belief::OpenIsOver);
    tell(&view, state_reply(State::ForcedOpen, 9, 60_000));
    assert_eq!(view.gate(NOW), Belief::Open(Some(Duration::from_secs(60))));
    assert_eq!(view.gate(NOW + TRUST), Belief::OpenIsOver);
}

#[test]
fn half_open_and_ramping_are_asked_every_time() {
    for state in [State::HalfOpen, State::Ramping] {
        let view = View::default();
        tell(&view, state_reply(state, 7, 20));
        assert_eq!(view.gate(NOW), Belief::Ask);
    }
}

#[test]
fn an_overtaken_reply_is_not_believed_a_lost_key_is() {
    let view = View::default();
    tell(&view, state_reply(State::Closed, 5, 0));
    let early = view.question(NOW);
    tell(&view, state_reply(State::Open, 6, 30_000));
    let late = view.hear(state_reply(State::Closed, 5, 0), early, TRUST);
    assert_eq!(late, Accepted { tag: None, transition: None });
    assert!(matches!(view.gate(NOW), Belief::Open(_)));
    let afterwards = tell(&view, state_reply(State::Closed, 0, 0));
    assert!(afterwards.tag.is_some());
    assert_eq!(view.gate(NOW), Belief::Closed(view.tag()));
}

#[test]
fn each_transition_is_reported_once_without_the_first_state() {
    let view = View::default();
    assert_eq!(tell(&view, state_reply(State::Closed, 5, 0)).transition, None);
    let open = Transition { previous: State::Closed, new: State::Open, generation: 6 };
    assert_eq!(tell(&view, state_reply(State::Open, 6, 30_000)).transition, Some(open));
    assert_eq!(tell(&view, state_reply(State::Open, 6, 29_000)).transition, None);
}

#[test]
fn only_a_failures_own_reply_closes_the_circuit() {
    let view = View::default();
    tell(&view, state_reply(State::Closed, 5, 0));
    view.record(view.tag(), FAILED);
    view.take();
    assert_eq!(view.gate(NOW), Belief::Ask);
    tell(&view, state_reply(State::Closed, 5, 0));
    assert_eq!(view.gate(NOW), Belief::Ask);
    view.release();
    tell(&view, StateReply { from: ReplyOf::Tally, ..state_reply(State::Closed, 5, 0) });
    assert_eq!(view.gate(NOW), Belief::Closed(view.tag()));
}

#[test]
fn failures_in_a_row_are_those_at_the_end() {
    let view = View::default();
    for outcome in [FAILED, FAILED, OK, FAILED, CountedOutcome { is_failure: true, is_slow: true }] {
        view.record(0, outcome);
    }
    assert_eq!(view.take(), (0, 0, Counts { ok: 1, failures: 4, slow: 1, run: 2 }));
    assert!(!view.has_unsent());
}

#[test]
fn an_outcome_of_another_generation_is_not_counted() {
    let view = View::default();
    view.record(0, FAILED);
    tell(&view, state_reply(State::Closed, 5, 0));
    assert!(!view.has_unsent(), "what was unsent belongs to no generation any more");
    assert_eq!(view.record(0, FAILED), None);
    assert_eq!(view.record(view.tag(), FAILED), Some(1));
}

#[test]
fn nothing_is_admitted_here_while_a_failure_is_unsent() {
    let (view, clock) = (View::default(), Clock::driven());
    view.hear(state_reply(State::Closed, 5, 0), view.question(clock.now()), TRUST);
    assert!(view.admit(&clock, false).is_some());
    view.record(view.tag(), FAILED);
    assert_eq!(view.admit(&clock, false), None);
}

proptest! {
    #[test]
    fn however_many_outcomes_nothing_is_lost_or_doubled(
        outcomes in prop::collection::vec((any::<bool>(), any::<bool>()), 0..9_000),
        takes in prop::collection::vec(0usize..9_000, 0..3),
    ) {
        let view = View::default();
        let mut total = Counts::default();
        let mut append = |later: Counts| {
            total.run = if later.ok == 0 { total.run + later.run } else { later.run };
            total.ok += later.ok;
            total.failures += later.failures;
            total.slow += later.slow;
        };
        for (index, (is_failure, is_slow)) in outcomes.iter().enumerate() {
            if takes.contains(&index) {
                append(view.take().2);
            }
            view.record(0, CountedOutcome { is_failure: *is_failure, is_slow: *is_slow });
        }
        append(view.take().2);
        let failures = outcomes.iter().filter(|(failed, _)| *failed).count() as u64;
        prop_assert_eq!(total.failures, failures);
        prop_assert_eq!(total.ok, outcomes.len() as u64 - failures);
        prop_assert_eq!(total.slow, outcomes.iter().filter(|(_, slow)| *slow).count() as u64);
        prop_assert_eq!(total.run, outcomes.iter().rev().take_while(|(failed, _)| *failed).count() as u64);
    }
}
