use super::*;

const TRUST: Duration = Duration::from_secs(1);
const NOW: Moment = Duration::from_secs(1_000);

fn news(state: State, generation: u64, retry_after_ms: i64) -> News {
    News { state, generation, retry_after_ms, from: ReplyOf::Admit }
}

fn tell(view: &View, news: News) -> Accepted {
    view.hear(news, view.question(NOW), TRUST, &Unsent::default())
}

#[test]
fn closed_is_believed_for_as_long_as_it_is_trusted() {
    let view = View::default();
    assert_eq!(view.gate(NOW), Belief::Ask, "nothing is known at first");
    tell(&view, news(State::Closed, 0, 0));
    assert_eq!(view.gate(NOW + TRUST - Duration::from_micros(1)), Belief::Closed);
    assert_eq!(view.gate(NOW + TRUST), Belief::Ask);
}

#[test]
fn open_is_believed_until_it_may_be_asked_and_forced_open_only_for_as_long_as_it_is_trusted() {
    let view = View::default();
    tell(&view, news(State::Open, 7, 30_000));
    assert_eq!(view.gate(NOW + Duration::from_secs(29)), Belief::Open(Some(Duration::from_secs(1))));
    assert_eq!(view.gate(NOW + Duration::from_secs(30)), Belief::OpenIsOver);
    tell(&view, news(State::ForcedOpen, 8, -1));
    assert_eq!(view.gate(NOW), Belief::Open(None));
    assert_eq!(view.gate(NOW + TRUST), Belief::OpenIsOver);
    tell(&view, news(State::ForcedOpen, 9, 60_000));
    assert_eq!(view.gate(NOW), Belief::Open(Some(Duration::from_secs(60))));
    assert_eq!(view.gate(NOW + TRUST), Belief::OpenIsOver);
}

#[test]
fn half_open_and_ramping_are_asked_every_time() {
    for state in [State::HalfOpen, State::Ramping] {
        let view = View::default();
        tell(&view, news(state, 7, 20));
        assert_eq!(view.gate(NOW), Belief::Ask);
    }
}

#[test]
fn an_answer_that_was_overtaken_is_not_believed_but_a_lost_key_is() {
    let (view, unsent) = (View::default(), Unsent::default());
    tell(&view, news(State::Closed, 5, 0));
    let early = view.question(NOW);
    tell(&view, news(State::Open, 6, 30_000));
    let late = view.hear(news(State::Closed, 5, 0), early, TRUST, &unsent);
    assert_eq!(late, Accepted { tag: None, transition: None });
    assert!(matches!(view.gate(NOW), Belief::Open(_)));
    let afterwards = tell(&view, news(State::Closed, 0, 0));
    assert!(afterwards.tag.is_some());
    assert_eq!(view.gate(NOW), Belief::Closed);
}

#[test]
fn each_transition_is_told_once_and_the_first_state_is_none() {
    let view = View::default();
    assert_eq!(tell(&view, news(State::Closed, 5, 0)).transition, None);
    let open = Transition { previous: State::Closed, new: State::Open, generation: 6 };
    assert_eq!(tell(&view, news(State::Open, 6, 30_000)).transition, Some(open));
    assert_eq!(tell(&view, news(State::Open, 6, 29_000)).transition, None);
}

#[test]
fn while_a_failure_is_on_its_way_only_the_answer_to_it_makes_the_circuit_closed() {
    let view = View::default();
    tell(&view, news(State::Closed, 5, 0));
    view.hold();
    assert_eq!(view.gate(NOW), Belief::Ask);
    tell(&view, news(State::Closed, 5, 0));
    assert_eq!(view.gate(NOW), Belief::Ask);
    view.release();
    tell(&view, News { from: ReplyOf::Tally, ..news(State::Closed, 5, 0) });
    assert_eq!(view.gate(NOW), Belief::Closed);
}
