//! Exactly one message per transition on `resil:events`, and one keyspace notification, by the primary.

use redis::{Connection, Value};
use resil_harness::{Server, ok, wait_for_sync};
use serde_json::{Value as Json, json};

use crate::asked::{Admission, Breaker};
use crate::driven::{START_MS, START_US, Say, driven, start_driven};
use crate::listener::{Listener, is_drawn};
use crate::seed::seeded;

/// The message of a transition of `k` at `at_ms` whose generation is that instant.
fn event(previous: &str, new: &str, at_ms: i64, reason: &str) -> Json {
    json!({
        "event": "breaker",
        "service": "k",
        "previous": previous,
        "new": new,
        "generation": START_US + at_ms * 1_000,
        "time_ms": START_MS + at_ms,
        "reason": reason,
    })
}

fn with(mut event: Json, field: &str, value: Json) -> Json {
    event[field] = value;
    event
}

/// Exactly this event was heard, and its notification under the event's and the key's name.
#[track_caller]
fn assert_heard(listener: &mut Listener, event: &Json) {
    let heard = listener.hear();
    assert_eq!(heard.events, std::slice::from_ref(event));
    let name = format!("res.breaker.{}", event["new"].as_str().expect("a state"));
    assert_eq!(heard.of_breakers(), [name.as_str()]);
    let at_key: Vec<_> = heard.at_keys.iter().filter(|(_, event)| event.starts_with("res.")).collect();
    assert_eq!(at_key, [&(b"k".to_vec(), name)]);
}

#[track_caller]
fn assert_silence(listener: &mut Listener, after: &str) {
    let heard = listener.hear();
    assert!(heard.events.is_empty() && heard.of_breakers().is_empty(), "{after}: {heard:?}");
}

#[test]
fn every_transition_of_a_life_is_reported_once() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to(&server);
    connection.config("k CONSECUTIVE 2 OPEN 10s SUCCESSES 1 RAMP 3s");
    connection.call("k", "FAIL CORRELATION first");
    assert_silence(&mut listener, "a failure below the threshold");
    connection.call("k", "FAIL CORRELATION request-17");
    let tripped = event("closed", "open", 0, "consecutive-failures");
    assert_heard(&mut listener, &with(tripped, "correlation", json!("request-17")));
    connection.clock_at_ms(10_000);
    let probe = connection.admit("k");
    assert_heard(&mut listener, &event("open", "half-open", 10_000, "open-time-over"));
    connection.clock_at_ms(11_000);
    connection.report("k", probe.permit(), "FAIL");
    assert_heard(&mut listener, &event("half-open", "open", 11_000, "probe-failed"));
    connection.clock_at_ms(21_000);
    let probe = connection.admit("k");
    listener.hear();
    connection.clock_at_ms(22_000);
    connection.report("k", probe.permit(), "OK CORRELATION ☂");
    let succeeded = event("half-open", "ramping", 22_000, "probes-succeeded");
    assert_heard(&mut listener, &with(succeeded, "correlation", json!("☂")));
    connection.clock_at_ms(25_000);
    connection.admit("k");
    assert_heard(&mut listener, &event("ramping", "closed", 25_000, "ramp-over"));
}

#[test]
fn every_reason_has_its_name() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to(&server);
    connection.config("k CONSECUTIVE 0 RATE 50 SLOW 1s SLOWRATE 50 MINCALLS 2 OPEN 10s SUCCESSES 1 RAMP 1h");
    connection.tally("k 0 me 1 OK 1 FAIL 1");
    assert_heard(&mut listener, &event("closed", "open", 0, "failure-rate"));
    connection.clock_at_ms(1_000);
    connection.say("RES.BREAKER RESET k");
    assert_heard(&mut listener, &event("open", "closed", 1_000, "reset"));
    connection.clock_at_ms(2_000);
    connection.tally("k 0 me 2 OK 2 FAIL 0 SLOW 1");
    assert_heard(&mut listener, &event("closed", "open", 2_000, "slow-rate"));
    connection.clock_at_ms(12_000);
    connection.call("k", "OK");
    listener.hear();
    connection.clock_at_ms(13_000);
    let permit = std::iter::repeat_with(|| connection.admit("k")).take(1_000).find_map(|admission| admission.permit);
    connection.report("k", &permit.expect("a tenth is admitted"), "FAIL");
    assert_heard(&mut listener, &event("ramping", "open", 13_000, "ramp-failed"));
}

#[test]
fn states_put_by_hand_are_reported_with_actor_and_reason() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to(&server);
    connection.force("k OPEN ACTOR ops REASON maintenance");
    let forced = with(event("closed", "forced-open", 0, "forced"), "actor", json!("ops"));
    assert_heard(&mut listener, &with(forced, "note", json!("maintenance")));
    connection.clock_at_ms(1_000);
    connection.force("k OPEN ACTOR somebody-else FOR 1h");
    assert_silence(&mut listener, "the same state again");
    for (at_ms, force, previous, new) in
        [(2_000, "DISABLED", "forced-open", "disabled"), (3_000, "METRICS", "disabled", "metrics")]
    {
        connection.clock_at_ms(at_ms);
        connection.force(&format!("k {force}"));
        assert_heard(&mut listener, &event(previous, new, at_ms, "forced"));
    }
    connection.clock_at_ms(4_000);
    connection.force("k AUTO ACTOR ops");
    assert_heard(&mut listener, &with(event("metrics", "closed", 4_000, "force-lifted"), "actor", json!("ops")));
    connection.force("k AUTO");
    assert_silence(&mut listener, "nothing is forced");
    connection.clock_at_ms(4_500);
    connection.force("k METRICS");
    listener.hear();
    connection.clock_at_ms(4_600);
    connection.say("RES.BREAKER RESET k");
    assert_heard(&mut listener, &event("metrics", "closed", 4_600, "reset"));
    connection.clock_at_ms(5_000);
    connection.force("k CLOSED FOR 10s");
    assert_heard(&mut listener, &event("closed", "forced-closed", 5_000, "forced"));
    connection.clock_at_ms(15_000);
    connection.look("k");
    assert_silence(&mut listener, "looking ends nothing");
    connection.admit("k");
    assert_heard(&mut listener, &event("forced-closed", "closed", 15_000, "force-ended"));
}

#[test]
fn a_call_that_ends_force_and_trips_tells_both() {
    let (server, mut connection) = start_driven();
    connection.force("k METRICS FOR 10s");
    let mut listener = Listener::to(&server);
    connection.clock_at_ms(10_000);
    connection.tally("k 0 me 1 OK 0 FAIL 5");
    let heard = listener.hear();
    let tripped = event("closed", "open", 10_000, "consecutive-failures");
    let tripped = with(tripped, "generation", json!(START_US + 10_000_001));
    assert_eq!(heard.events, [event("metrics", "closed", 10_000, "force-ended"), tripped]);
    assert_eq!(heard.of_breakers(), ["res.breaker.closed", "res.breaker.open"]);
}

#[test]
fn what_is_not_utf_8_is_reported_in_base_64() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to(&server);
    let key = b"k\xff\x00\x80".as_slice();
    ok(&mut connection, &[b"RES.BREAKER".as_slice(), b"CONFIG", key, b"CONSECUTIVE", b"1"]);
    let admission = Admission::of(ok(&mut connection, &[b"RES.BREAKER".as_slice(), b"ADMIT", key]));
    let permit = admission.permit().as_bytes();
    let report = [b"RES.BREAKER".as_slice(), b"REPORT", key, permit, b"FAIL", b"CORRELATION", b"\xfe\xff"];
    ok(&mut connection, &report);
    let heard = listener.hear();
    let mut tripped = event("closed", "open", 0, "consecutive-failures");
    tripped = with(tripped, "service", json!({"b64": "a/8AgA=="}));
    assert_eq!(heard.events, [with(tripped, "correlation", json!({"b64": "/v8="}))]);
    assert!(heard.notified.contains(&("res.breaker.open".to_owned(), key.to_vec())));
    let force =
        [b"RES.BREAKER".as_slice(), b"FORCE", b"k", b"OPEN", b"ACTOR", b"\xc3\x28", b"REASON", b"\xc3\xa9\0\"\n"];
    ok(&mut connection, &force);
    let forced = with(event("closed", "forced-open", 0, "forced"), "actor", json!({"b64": "wyg="}));
    assert_heard(&mut listener, &with(forced, "note", json!("é\0\"\n")));
}

#[test]
fn what_changes_no_state_is_reported_to_nobody() {
    let (server, mut connection) = start_driven();
    connection.config("k CONSECUTIVE 3 SUCCESSES 3 PROBES 3");
    let old = connection.admit("k").permit().to_owned();
    let mut listener = Listener::to(&server);
    let closed = ["OK", "FAIL", "FAIL", "OK", "IGNORE", "CANCEL", "FAIL DURATION 1h CORRELATION x"];
    for outcome in closed {
        connection.report("k", &old, outcome);
        assert_silence(&mut listener, outcome);
    }
    let quiet = ["CONFIG k RATE 99", "CONFIG k WINDOW TIME 5s", "RESET k", "TALLY k 0 me 1 OK 3 FAIL 2", "STATE k"];
    for line in quiet {
        connection.say(&format!("RES.BREAKER {line}"));
        assert_silence(&mut listener, line);
    }
    connection.trip("k");
    listener.hear();
    for line in ["ADMIT k", "TALLY k 0 me 2 OK 0 FAIL 9", "STATE k", "FORCE k AUTO"] {
        connection.say(&format!("RES.BREAKER {line}"));
        assert_silence(&mut listener, line);
    }
    for outcome in ["OK", "FAIL CORRELATION stale", "CANCEL"] {
        connection.report("k", &old, outcome);
        assert_silence(&mut listener, outcome);
    }
    connection.clock_at_ms(30_000);
    let probe = connection.admit("k").permit().to_owned();
    listener.hear();
    for outcome in ["OK CORRELATION one", "OK CORRELATION again", "FAIL CORRELATION duplicate"] {
        connection.report("k", &probe, outcome);
        assert_silence(&mut listener, outcome);
    }
    for line in ["RES.BREAKER FORCE k AJAR", "RES.BREAKER CONFIG k RATE 101", "RES.BREAKER RESET k surplus"] {
        connection.refusal(line);
        assert_silence(&mut listener, line);
    }
}

/// A user of a breaker subscribes to its key alone, and hears everything that may make what it knows untrue.
#[test]
fn the_keys_channel_carries_transitions_and_operators_acts() {
    let (server, mut connection) = start_driven();
    let mut own = Listener::on(&server, "resil:events:k");
    let mut everybody = Listener::to(&server);
    connection.config("k CONSECUTIVE 1");
    assert_eq!(own.events(), [with(event("closed", "closed", 0, "configured"), "generation", json!(0))]);
    connection.trip("k");
    assert_eq!(own.events(), [event("closed", "open", 0, "consecutive-failures")]);
    for quiet in ["ADMIT k", "STATE k", "CONFIG k CONSECUTIVE 1", "FORCE k AUTO", "CONFIG other RATE 9"] {
        connection.say(&format!("RES.BREAKER {quiet}"));
        assert!(own.events().is_empty(), "{quiet}");
    }
    connection.config("k OPEN 1h");
    assert_eq!(own.events(), [event("open", "open", 0, "configured")]);
    connection.clock_at_ms(1_000);
    connection.force("k OPEN");
    assert_eq!(own.events(), [event("open", "forced-open", 1_000, "forced")]);
    connection.clock_at_ms(2_000);
    connection.force("k OPEN FOR 1h ACTOR ops");
    let longer = with(event("forced-open", "forced-open", 1_000, "forced"), "time_ms", json!(START_MS + 2_000));
    assert_eq!(own.events(), [with(longer, "actor", json!("ops"))]);
    connection.clock_at_ms(3_000);
    connection.say("RES.BREAKER RESET k");
    assert_eq!(own.events(), [event("forced-open", "closed", 3_000, "reset")]);
    connection.clock_at_ms(4_000);
    connection.say("RES.BREAKER RESET k");
    assert_eq!(own.events(), [event("closed", "closed", 4_000, "reset")], "what was counted is gone");
    // Everybody else hears of transitions alone.
    let reported: Vec<_> = everybody.events().into_iter().map(|event| event["reason"].clone()).collect();
    assert_eq!(reported, [json!("consecutive-failures"), json!("forced"), json!("reset")]);
}

#[test]
fn a_transaction_and_a_script_tell_each_transition_once() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to(&server);
    let reported = |listener: &mut Listener| -> Vec<String> {
        let heard = listener.hear();
        assert_eq!(heard.events.len(), heard.of_breakers().len());
        heard.events.iter().map(|event| event["new"].as_str().expect("a state").to_owned()).collect()
    };
    for line in ["MULTI", "RES.BREAKER TALLY k 0 me 1 OK 0 FAIL 5", "RES.BREAKER ADMIT k", "RES.BREAKER FORCE k OPEN"] {
        connection.say(line);
    }
    connection.say("EXEC");
    assert_eq!(reported(&mut listener), ["open", "forced-open"]);
    connection.say("MULTI");
    connection.say("RES.BREAKER FORCE k AUTO");
    connection.say("DISCARD");
    assert_silence(&mut listener, "a discarded transaction");
    let script = "redis.call('RES.BREAKER','FORCE',KEYS[1],'AUTO') redis.call('RES.BREAKER','FORCE',KEYS[1],'METRICS')";
    assert_eq!(ok(&mut connection, &["EVAL", script, "1", "k"]), Value::Nil);
    assert_eq!(reported(&mut listener), ["closed", "metrics"]);
}

#[test]
fn replicas_tell_nothing_until_one_of_them_is_promoted() {
    let (primary, mut connection) = start_driven();
    let replica = Server::replica_of(&primary, driven());
    let mut on_replica: Connection = replica.connect();
    let mut listener = Listener::to(&replica);
    connection.config("k CONSECUTIVE 1 OPEN 10s SUCCESSES 1");
    connection.trip("k");
    connection.clock_at_ms(10_000);
    connection.call("k", "OK");
    connection.force("k OPEN FOR 5s");
    wait_for_sync(&primary, &replica);
    on_replica.clock_at_ms(60_000);
    assert_eq!(on_replica.look("k").state(), "closed", "the forced state is over");
    assert_silence(&mut listener, "a replica only follows");
    on_replica.say("REPLICAOF NO ONE");
    on_replica.admit("k");
    assert_heard(&mut listener, &event("forced-open", "closed", 60_000, "force-ended"));
}

#[test]
fn as_many_messages_as_transitions_are_counted() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to(&server);
    for round in 0..60 {
        connection.clock_at_ms(round * 20_000);
        let key = format!("k:{}", round % 3);
        connection.tally(&format!("{key} 0 me {round} OK 0 FAIL 5"));
        if round % 4 == 3 {
            connection.say(&format!("RES.BREAKER RESET {key}"));
        }
        let admission = connection.admit(&key);
        if let Some(permit) = admission.permit.filter(|_| admission.state == "half-open") {
            connection.report(&key, &permit, if round % 2 == 0 { "FAIL" } else { "OK" });
        }
    }
    let heard = listener.hear();
    let counted = connection.info_number("resil", "breaker_transitions");
    assert!(counted > 30, "{counted} transitions are too few for a test");
    assert_eq!((heard.events.len() as i64, heard.of_breakers().len() as i64), (counted, counted));
    for service in 0..3 {
        let of_service = |event: &&Json| event["service"] == json!(format!("k:{service}"));
        let story: Vec<&Json> = heard.events.iter().filter(of_service).collect();
        for pair in story.windows(2) {
            assert_eq!(pair[0]["new"], pair[1]["previous"], "no transition is missing");
            assert!(pair[0]["generation"].as_i64() < pair[1]["generation"].as_i64());
        }
    }
}

// Property 3: each transition of a breaker is exactly one event, with the service, the state before, the state after and a correlation:
// that of the report that caused it, or one that the server drew.
#[test]
fn each_transition_is_one_event_with_all_its_fields() {
    let mut random = seeded("each_transition_is_one_event");
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to(&server);
    let (mut now_ms, mut transitions) = (0, 0);
    for case in 0..1_000 {
        let key = format!("case:{case}");
        let consecutive = random.u32(1..4);
        let ramp = if random.bool() { "RAMP 2s" } else { "" };
        connection.config(&format!("{key} CONSECUTIVE {consecutive} OPEN 1s SUCCESSES 1 PROBES 2 {ramp}"));
        listener.hear();
        let mut last = ("closed".to_owned(), connection.look(&key).number("generation"));
        for step in 0..random.usize(4..16) {
            let correlation = random.bool().then(|| format!("request-{case}-{step}"));
            let about = correlation.as_ref().map_or(String::new(), |text| format!(" CORRELATION {text}"));
            let (mut given, mut is_reset) = (None, false);
            match random.u8(0..10) {
                0..=5 => {
                    // An open circuit that is half-open by the admission has no correlation of a caller.
                    let admission = connection.admit(&key);
                    if let Some(permit) = admission.permit {
                        last = judged(&mut listener, &key, last, None, &mut transitions);
                        let outcome = if random.bool() { "FAIL" } else { "OK" };
                        connection.report(&key, &permit, &format!("{outcome}{about}"));
                        given = correlation;
                    }
                }
                6 => _ = connection.force(&format!("{key} OPEN FOR 1s")),
                7 => {
                    connection.say(&format!("RES.BREAKER RESET {key}"));
                    is_reset = true;
                }
                _ => {
                    now_ms += random.i64(1..1_500);
                    connection.clock_at_ms(now_ms);
                    continue;
                }
            }
            last = judged(&mut listener, &key, last, given, &mut transitions);
            let look = connection.look(&key);
            if is_reset {
                // Of a closed circuit it forgets what was counted: another generation, the same state.
                last.1 = look.number("generation");
            }
            assert_eq!((look.state(), look.number("generation")), (last.0.as_str(), last.1), "{key}: one is missing");
        }
    }
    assert!(transitions > 1_000, "{transitions} transitions are too few for a test");
}

/// What was reported since then goes on from `last`, and is about `key`. The state and the generation it came to.
#[track_caller]
fn judged(
    listener: &mut Listener,
    key: &str,
    mut last: (String, i64),
    given: Option<String>,
    transitions: &mut u32,
) -> (String, i64) {
    let heard = listener.hear();
    for (at, (event, correlation)) in heard.events.iter().zip(&heard.correlations).enumerate() {
        assert_eq!(heard.previous_generations[at], json!(last.1), "each begins where the one before ended");
        let generation = event["generation"].as_i64().expect("a number");
        assert_eq!((&event["service"], &event["previous"]), (&json!(key), &json!(last.0)));
        assert!(generation > last.1 && event["new"] != event["previous"], "reported twice: {event}");
        match &given {
            Some(given) => assert_eq!(correlation, given),
            None => assert!(is_drawn(correlation), "{correlation}"),
        }
        last = (event["new"].as_str().expect("a state").to_owned(), generation);
        *transitions += 1;
    }
    last
}
