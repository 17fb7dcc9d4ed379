//! Many connections at the same moment: the circuit trips once, and half-open lets out exactly PROBES of them.

use std::sync::Barrier;
use std::thread;

use redis::Connection;
use resil_harness::Server;
use serde_json::json;

use crate::asked::{Admission, Breaker, Reply};
use crate::driven::{Say, start_driven};
use crate::listener::Listener;

const CROWD: usize = 32;

/// Everybody does `act` on a connection of their own, all of them at once.
fn at_once<T: Send>(server: &Server, act: impl Fn(usize, &mut Connection) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(CROWD);
    let one = |number: usize| {
        let mut connection = server.connect();
        start.wait();
        act(number, &mut connection)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..CROWD).map(|number| scope.spawn(move || one(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread fails")).collect()
    })
}

#[test]
fn thirty_two_connections_that_fail_at_once_trip_it_once() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to(&server);
    for round in 0..10 {
        let key = format!("k:{round}");
        connection.clock_at_ms(round * 1_000);
        let permits: Vec<String> = (0..CROWD).map(|_| connection.admit(&key).permit().to_owned()).collect();
        let replies = at_once(&server, |number, mine| mine.report(&key, &permits[number], "FAIL"));
        let opened = connection.look(&key);
        assert_eq!((opened.state(), opened.number("trips")), ("open", 1));
        let counted: Vec<&Reply> = replies.iter().filter(|reply| reply.counted).collect();
        assert_eq!(counted.len(), 5, "five failures trip it, whatever comes later is stale: {replies:?}");
        assert_eq!(counted.iter().filter(|reply| reply.state == "open").count(), 1, "the fifth");
        for late in replies.iter().filter(|reply| !reply.counted) {
            assert_eq!((late.said(), late.generation), (("stale", "open"), opened.number("generation")));
        }
        let events = listener.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((&events[0]["service"], &events[0]["new"]), (&json!(key), &json!("open")));
        assert_eq!(events[0]["generation"], json!(opened.number("generation")));
    }
    assert_eq!(connection.info_number("resil", "breaker_trips"), 10);
}

#[test]
fn thirty_two_connections_at_half_open_share_the_probes() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to(&server);
    for (round, probes) in [1, 2, 3, 3, 7, 31, 32].into_iter().enumerate() {
        let key = format!("k:{round}");
        connection.clock_at_ms(0);
        connection.config(&format!("{key} PROBES {probes} SUCCESSES 1000 LEASE 10s"));
        connection.trip(&key);
        connection.clock_at_ms(30_000);
        listener.hear();
        let admissions = at_once(&server, |_, mine| mine.admit(&key));
        let admitted: Vec<&Admission> = admissions.iter().filter(|admission| admission.admitted).collect();
        assert_eq!(admitted.len(), probes, "{admissions:?}");
        let generation = connection.look(&key).number("generation");
        for admission in &admissions {
            assert_eq!((admission.state.as_str(), admission.generation), ("half-open", generation));
        }
        for denied in admissions.iter().filter(|admission| !admission.admitted) {
            assert_eq!(denied.retry_after_ms, 10_000, "until the first lease ends");
        }
        let permits: Vec<&str> = admitted.iter().map(|admission| admission.permit()).collect();
        assert!((1..permits.len()).all(|at| !permits[..at].contains(&permits[at])), "each probe has its own permit");
        assert_eq!(connection.look(&key).number("probes_out"), probes as i64);
        assert_eq!(listener.events().len(), 1, "it became half-open once");
    }
}

#[test]
fn probes_out_never_exceed_their_number() {
    let (server, mut connection) = start_driven();
    connection.config("k PROBES 3 SUCCESSES 1000 LEASE 1h");
    connection.trip("k");
    connection.clock_at_ms(30_000);
    // Everybody asks again and again; who is admitted comes back without counting, which frees the place.
    let admitted: Vec<usize> = at_once(&server, |_, mine| {
        let mut admitted = 0;
        for _ in 0..50 {
            let admission = mine.admit("k");
            if let Some(permit) = &admission.permit {
                assert!(mine.look("k").number("probes_out") <= 3);
                assert_eq!(mine.report("k", permit, "IGNORE").said(), ("ignored", "half-open"));
                admitted += 1;
            }
        }
        admitted
    });
    assert!(admitted.iter().sum::<usize>() > 3, "places are given out again: {admitted:?}");
    let look = connection.look("k");
    assert_eq!((look.state(), look.number("probes_out"), look.number("successes")), ("half-open", 0, 0));
}
