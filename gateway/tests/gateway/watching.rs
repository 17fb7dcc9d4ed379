//! WatchCircuitState: the current state first, each transition once and in order, gaps marked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use resil::breaker::Force;
use resil::operator::{ForceOrder, KeyKind};
use resil_gateway::proto::resil::v1 as proto;
use resil_gateway::proto::resil::v1::watch_circuit_state_response::Event;
use resil_harness::{Relay, Server};
use tokio_stream::StreamExt;

use crate::scene::Scene;

const WATCHERS: usize = 50;
const TRANSITIONS: usize = 1_000;
const CUTS: usize = 4;
/// Transitions that are made after a cut, whether or not anybody may hear them.
const UNHEARD: usize = 11;
/// Of a watcher that heard nothing yet.
const NOTHING: u64 = u64::MAX;

/// What a watcher heard, checked as it comes. Ends at generation `last`; `seen` is where it is.
async fn watched(
    mut stream: tonic::Streaming<proto::WatchCircuitStateResponse>,
    mut last: tokio::sync::watch::Receiver<u64>,
    seen: Arc<AtomicU64>,
) -> (Vec<u64>, usize) {
    let mut reported: Vec<u64> = Vec::new();
    let (mut known, mut gaps, mut is_first, mut after_gap) = (0, 0, true, false);
    loop {
        if !is_first && !after_gap {
            seen.store(known, Relaxed);
        }
        if *last.borrow_and_update() != 0 && known >= *last.borrow() && !after_gap {
            return (reported, gaps);
        }
        let next = tokio::select! {
            next = tokio::time::timeout(Duration::from_secs(30), stream.next()) => next.expect("a message in time"),
            changed = last.changed() => {
                changed.expect("the test goes on");
                continue;
            }
        };
        match next.expect("the stream goes on").expect("no error").event.expect("an event") {
            Event::Current(circuit) => {
                assert!(is_first || after_gap, "the state comes first, and after a gap");
                (is_first, after_gap, known) = (false, false, circuit.generation);
            }
            Event::Transition(moved) => {
                assert!(!is_first && !after_gap, "the state comes before");
                assert_eq!(moved.previous_generation, known, "each begins where the one before ended");
                assert_ne!(moved.previous, moved.state);
                known = moved.generation;
                reported.push(known);
            }
            Event::Gap(gap) => {
                assert_eq!(gap.last_generation, known);
                (after_gap, gaps) = (true, gaps + 1);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_watchers_see_a_thousand_transitions_once_and_in_order() {
    let server = Server::fresh();
    crate::scene::store_policies(&server.url()).await;
    // The gateway reaches the server through something that can be cut; who makes the transitions does not.
    let relay = Relay::to(server.port());
    let scene = Scene::start(&format!("redis://127.0.0.1:{}", relay.port()), "").await;
    scene.knows("strict").await;
    let (over, last) = tokio::sync::watch::channel(0);
    let (mut watchers, seen) =
        (tokio::task::JoinSet::new(), [(); WATCHERS].map(|()| Arc::new(AtomicU64::new(NOTHING))));
    for seen in &seen {
        let request = proto::WatchCircuitStateRequest { name: "strict".into() };
        let stream = scene.grpc.clone().watch_circuit_state(request).await.expect("a stream").into_inner();
        watchers.spawn(watched(stream, last.clone(), Arc::clone(seen)));
    }
    // Each has its own way back after a cut: the events are heard by all at once, and then each asks for the state.
    let all_have = |generation: u64| seen.iter().all(|seen| (generation..NOTHING).contains(&seen.load(Relaxed)));
    crate::scene::within("each gets the state first", || async { all_have(0) }).await;
    let operator = resil::connect(&server.url()).await.expect("the server").operator();
    let key = KeyKind::Policy.key("strict").expect("a key");
    let (mut generations, mut cut_at) = (Vec::new(), None);
    for number in 0..TRANSITIONS {
        let force = if number % 2 == 0 { Force::Open } else { Force::Closed };
        operator.force(&key, &ForceOrder::new(force).actor("test").reason("test")).await.expect("forced");
        let generation = operator.breaker(&key).await.expect("a state").generation;
        generations.push(generation);
        if cut_at.is_some_and(|cut_at| number - cut_at == UNHEARD) {
            let bound = Duration::from_secs(30);
            crate::scene::within_time("all know again", bound, || async { all_have(generation) }).await;
            cut_at = None;
        }
        if number % (TRANSITIONS / (CUTS + 1)) == TRANSITIONS / (CUTS + 1) - 1 && number + 1 < TRANSITIONS {
            // What is under way at a cut is lost with it.
            crate::scene::within("all know before the cut", || async { all_have(generation) }).await;
            let mut listening = scene.running.gateway.feed.listening();
            listening.borrow_and_update();
            relay.cut();
            let noticed = tokio::time::timeout(Duration::from_secs(10), listening.changed()).await;
            noticed.expect("the cut is noticed").expect("the gateway is there");
            cut_at = Some(number);
        }
    }
    // A watcher that is in a gap at the end gets the state as it is.
    over.send_replace(*generations.last().expect("some"));
    let mut sums = (0, 0);
    while let Some(watched) = watchers.join_next().await {
        let (reported, gaps) = watched.expect("a watcher");
        let mut real = generations.iter();
        assert!(
            reported.iter().all(|reported| real.any(|real| real == reported)),
            "every one is real, in order, and once"
        );
        assert!(gaps <= CUTS, "{gaps} gaps for {CUTS} cuts");
        assert!(reported.len() >= TRANSITIONS - gaps * UNHEARD, "{} reported, and {gaps} gaps", reported.len());
        sums = (sums.0 + reported.len(), sums.1 + gaps);
    }
    println!("{} transitions reported, {} gaps, of {WATCHERS} watchers and {TRANSITIONS} transitions", sums.0, sums.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_cuts_every_transition_is_reported() {
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let request = proto::WatchCircuitStateRequest { name: "strict".into() };
    let mut stream = scene.grpc.clone().watch_circuit_state(request).await.expect("a stream").into_inner();
    let first = stream.next().await.expect("a message").expect("no error").event;
    assert!(
        matches!(&first, Some(Event::Current(circuit)) if circuit.state() == proto::CircuitState::Closed),
        "{first:?}"
    );
    let operator = scene.running.gateway.client.operator();
    let key = KeyKind::Policy.key("strict").expect("a key");
    for number in 0..200 {
        let force = if number % 2 == 0 { Force::Open } else { Force::Auto };
        operator.force(&key, &ForceOrder::new(force).actor("ann").reason("test")).await.expect("forced");
        let next =
            tokio::time::timeout(Duration::from_secs(10), stream.next()).await.expect("in time").expect("a message");
        let Some(Event::Transition(moved)) = next.expect("no error").event else { panic!("not a transition") };
        assert_eq!(moved.generation, operator.breaker(&key).await.expect("a state").generation);
        assert_eq!((moved.actor.as_str(), moved.note.as_str()), ("ann", "test"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_last_while_nobody_hears_is_marked() {
    let server = Server::fresh();
    crate::scene::store_policies(&server.url()).await;
    let relay = Relay::to(server.port());
    let scene = Scene::start(&format!("redis://127.0.0.1:{}", relay.port()), "").await;
    scene.knows("strict").await;
    let request = proto::WatchCircuitStateRequest { name: "strict".into() };
    let mut stream = scene.grpc.clone().watch_circuit_state(request).await.expect("a stream").into_inner();
    let mut next = async || {
        let next = tokio::time::timeout(Duration::from_secs(20), stream.next()).await.expect("a message in time");
        next.expect("the stream goes on").expect("no error").event.expect("an event")
    };
    let Event::Current(first) = next().await else { panic!("the state comes first") };
    relay.close();
    let feed = &scene.running.gateway.feed;
    crate::scene::within("the cut is noticed", || async { !*feed.listening().borrow() }).await;
    let operator = resil::connect(&server.url()).await.expect("the server").operator();
    let key = KeyKind::Policy.key("strict").expect("a key");
    operator.force(&key, &ForceOrder::new(Force::Open).actor("test").reason("test")).await.expect("forced");
    let now = operator.breaker(&key).await.expect("a state").generation;
    relay.open();
    // Nothing follows that could show it.
    let Event::Gap(gap) = next().await else { panic!("it is marked") };
    let Event::Current(current) = next().await else { panic!("the state comes after it") };
    assert_eq!((gap.last_generation, current.generation), (first.generation, now));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_the_gateway_does() {
    let scene = Scene::start("memory://watch-ends", "").await;
    let request = proto::WatchCircuitStateRequest { name: "bank".into() };
    let mut stream = scene.grpc.clone().watch_circuit_state(request).await.expect("a stream").into_inner();
    assert!(stream.next().await.expect("the state").is_ok());
    let ended = tokio::spawn(scene.running.end());
    let last = tokio::time::timeout(Duration::from_secs(10), stream.next()).await.expect("in time");
    assert!(last.is_none_or(|last| last.is_err_and(|status| status.code() == tonic::Code::Unavailable)));
    assert_eq!(ended.await.expect("no panic"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_memory_transitions_are_reported_too() {
    let scene = Scene::start("memory://watch-memory", "").await;
    let request = proto::WatchCircuitStateRequest { name: "bank".into() };
    let mut stream = scene.grpc.clone().watch_circuit_state(request).await.expect("a stream").into_inner();
    assert!(matches!(stream.next().await.expect("the state").expect("no error").event, Some(Event::Current(_))));
    let operator = scene.running.gateway.client.operator();
    let key = KeyKind::Breaker.key("bank").expect("a key");
    for force in [Force::Open, Force::Auto, Force::Disabled] {
        operator.force(&key, &ForceOrder::new(force).actor("ann").reason("test")).await.expect("forced");
        let next =
            tokio::time::timeout(Duration::from_secs(10), stream.next()).await.expect("in time").expect("a message");
        let Some(Event::Transition(moved)) = next.expect("no error").event else { panic!("not a transition") };
        assert_eq!(moved.generation, operator.breaker(&key).await.expect("a state").generation);
    }
}
