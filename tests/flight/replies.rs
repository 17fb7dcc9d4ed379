//! What every subcommand replies, by both protocols. A driven clock: every number is known.

use redis::Value;

use crate::driven::Say;
use crate::scene::{FIRST, Scene, receive, send, shown};

/// Lines and their replies, one after the other; `F` is the first fence. `@n` sets the clock to n ms.
const IDEMPOTENCY: &[(&str, &str)] = &[
    ("RES.IDEMP GET k", "[MISS]"),
    ("RES.IDEMP BEGIN k a 10s FINGERPRINT f", "[RUN F 1 0]"),
    ("RES.IDEMP BEGIN k a 10s FINGERPRINT f", "[RUN F 1 0]"),
    ("RES.IDEMP BEGIN k b 10s", "[BUSY 10000 1]"),
    ("RES.IDEMP BEGIN k b 10s WAIT 0", "[BUSY 10000 1]"),
    ("RES.IDEMP GET k", "[BUSY 10000 1]"),
    ("RES.IDEMP GET k FINGERPRINT g", "[MISMATCH]"),
    ("RES.IDEMP BEGIN k b 10s FINGERPRINT g", "[MISMATCH]"),
    ("RES.IDEMP BEGIN k a 10s FINGERPRINT g", "[MISMATCH]"),
    ("RES.IDEMP RENEW k a 20s", "[GRANTED F 20000 0]"),
    ("RES.IDEMP RENEW k b 20s", "[LOST taken]"),
    ("RES.IDEMP COMMIT k b 1h x", "[LOST taken]"),
    ("RES.IDEMP ABORT k b", "[LOST taken]"),
    ("@5", ""),
    ("RES.IDEMP COMMIT k a 1h receipt", "[COMMITTED stored]"),
    ("RES.IDEMP COMMIT k a 1h other", "[COMMITTED stored]"),
    ("@12", ""),
    ("RES.IDEMP BEGIN k c 10s", "[REPLAY ok receipt 7]"),
    ("RES.IDEMP BEGIN k a 10s", "[REPLAY ok receipt 7]"),
    ("RES.IDEMP GET k FINGERPRINT f", "[REPLAY ok receipt 7]"),
    ("RES.IDEMP GET k FINGERPRINT g", "[MISMATCH]"),
    ("RES.IDEMP BEGIN k c 10s FINGERPRINT g", "[MISMATCH]"),
    ("RES.IDEMP ABORT k a", "[LOST committed]"),
    ("RES.IDEMP RENEW k a 1s", "[LOST committed]"),
    ("RES.IDEMP BEGIN e a 10s", "[RUN F+12000 1 0]"),
    ("RES.IDEMP COMMIT e a 1h no-funds ERROR", "[COMMITTED stored]"),
    ("RES.IDEMP GET e", "[REPLAY error no-funds 0]"),
    ("RES.IDEMP BEGIN i a 10s", "[RUN F+12001 1 0]"),
    ("RES.IDEMP ABORT i a", "[ABORTED]"),
    ("RES.IDEMP ABORT i a", "[ABORTED]"),
    ("RES.IDEMP COMMIT i a 1h x", "[LOST aborted]"),
    ("RES.IDEMP RENEW i a 1s", "[LOST aborted]"),
    ("RES.IDEMP GET i", "[MISS]"),
    ("RES.IDEMP BEGIN i b 10s", "[RUN F+12002 2 0]"),
    ("RES.IDEMP COMMIT none a 1h x", "[LOST absent]"),
    ("RES.IDEMP ABORT none a", "[LOST absent]"),
    ("RES.IDEMP RENEW none a 1s", "[LOST absent]"),
    ("RES.IDEMP BEGIN h a 1s ONLAPSE HOLD", "[RUN F+12003 1 0]"),
    ("@1500", ""),
    ("RES.IDEMP BEGIN h b 1s", "[HELD 1]"),
    ("RES.IDEMP GET h", "[HELD 1]"),
    ("RES.IDEMP RENEW h a 1s", "[LOST expired]"),
    ("RES.IDEMP COMMIT h a 1h looked-at", "[COMMITTED stored]"),
    ("RES.IDEMP GET h", "[REPLAY ok looked-at 0]"),
    ("RES.IDEMP ONCE o 1h", "1"),
    ("RES.IDEMP ONCE o 1h", "0"),
    ("RES.IDEMP ONCE p 1h TOKEN t", "1"),
    ("RES.IDEMP ONCE p 1h TOKEN t", "1"),
    ("RES.IDEMP ONCE p 1h TOKEN u", "0"),
    ("RES.IDEMP ONCE p 1h", "0"),
    ("RES.IDEMP GET o", "[MISS]"),
];

const FLIGHTS: &[(&str, &str)] = &[
    ("RES.SFLIGHT GET k", "[MISS]"),
    ("RES.SFLIGHT INVALIDATE k", "0"),
    ("RES.SFLIGHT JOIN k a 10s", "[LEAD F nil 0]"),
    ("RES.SFLIGHT JOIN k a 10s", "[LEAD F nil 0]"),
    ("RES.SFLIGHT JOIN k b 10s", "[BUSY 10000]"),
    ("RES.SFLIGHT JOIN k b 10s WAIT 0", "[BUSY 10000]"),
    ("RES.SFLIGHT GET k", "[MISS]"),
    ("RES.SFLIGHT RENEW k a 20s", "[GRANTED F 20000 0]"),
    ("RES.SFLIGHT RENEW k b 20s", "[LOST taken]"),
    ("RES.SFLIGHT PUBLISH k b 1s EMPTY", "[LOST taken]"),
    ("RES.SFLIGHT ABANDON k b", "[LOST taken]"),
    ("RES.SFLIGHT PUBLISH k a 1s VALUE bytes STALE 10s", "[PUBLISHED 0]"),
    ("RES.SFLIGHT PUBLISH k a 1s VALUE others", "[PUBLISHED 0]"),
    ("@400", ""),
    ("RES.SFLIGHT JOIN k b 10s", "[VALUE bytes 400 600]"),
    ("RES.SFLIGHT GET k", "[VALUE bytes 400 600]"),
    ("@1500", ""),
    ("RES.SFLIGHT GET k", "[STALE bytes 1500]"),
    ("RES.SFLIGHT JOIN k b 10s", "[LEAD F+1500000 bytes 0]"),
    ("RES.SFLIGHT JOIN k c 10s", "[STALE bytes 1500]"),
    ("RES.SFLIGHT PUBLISH k b 1s ERROR broken", "[PUBLISHED 0]"),
    ("RES.SFLIGHT JOIN k c 10s", "[STALE bytes 1500]"),
    ("RES.SFLIGHT GET k", "[STALE bytes 1500]"),
    ("@2600", ""),
    ("RES.SFLIGHT JOIN k c 10s", "[LEAD F+2600000 bytes 0]"),
    ("RES.SFLIGHT ABANDON k c RETRY 5s", "[ABANDONED]"),
    ("RES.SFLIGHT ABANDON k c RETRY 5s", "[ABANDONED]"),
    ("RES.SFLIGHT PUBLISH k c 1s EMPTY", "[LOST aborted]"),
    ("RES.SFLIGHT JOIN k d 10s", "[STALE bytes 2600]"),
    ("RES.SFLIGHT INVALIDATE k", "1"),
    ("RES.SFLIGHT JOIN k d 10s", "[LEAD F+2600001 nil 0]"),
    ("RES.SFLIGHT INVALIDATE k", "1"),
    ("RES.SFLIGHT PUBLISH k d 1s EMPTY", "[LOST invalidated]"),
    ("RES.SFLIGHT RENEW k d 1s", "[LOST invalidated]"),
    ("RES.SFLIGHT ABANDON k d", "[LOST invalidated]"),
    ("RES.SFLIGHT JOIN e a 10s", "[LEAD F+2600002 nil 0]"),
    ("RES.SFLIGHT PUBLISH e a 10s EMPTY", "[PUBLISHED 0]"),
    ("@2700", ""),
    ("RES.SFLIGHT JOIN e b 10s", "[EMPTY 100]"),
    ("RES.SFLIGHT GET e", "[EMPTY 100]"),
    ("RES.SFLIGHT JOIN x a 10s", "[LEAD F+2700000 nil 0]"),
    ("RES.SFLIGHT PUBLISH x a 10s ERROR why", "[PUBLISHED 0]"),
    ("RES.SFLIGHT JOIN x b 10s", "[ERROR why]"),
    ("RES.SFLIGHT JOIN x b 10s WAIT 1s", "[ERROR why]"),
    ("RES.SFLIGHT GET x", "[ERROR why]"),
    ("RES.SFLIGHT JOIN r a 10s", "[LEAD F+2700001 nil 0]"),
    ("RES.SFLIGHT ABANDON r a RETRY 5s", "[ABANDONED]"),
    ("RES.SFLIGHT JOIN r b 10s", "[BUSY 5000]"),
    ("RES.SFLIGHT GET r", "[MISS]"),
    ("RES.SFLIGHT JOIN z a 10s", "[LEAD F+2700002 nil 0]"),
    ("RES.SFLIGHT PUBLISH z a 0 VALUE x STALE 1h", "[PUBLISHED 0]"),
    ("RES.SFLIGHT GET z", "[MISS]"),
    ("RES.SFLIGHT JOIN s a 10s", "[LEAD F+2700003 nil 0]"),
    ("RES.SFLIGHT PUBLISH s a 10s VALUE soft", "[PUBLISHED 0]"),
    ("RES.SFLIGHT INVALIDATE s SOFT", "1"),
    ("RES.SFLIGHT GET s", "[STALE soft 0]"),
    ("RES.SFLIGHT JOIN s b 10s", "[LEAD F+2700004 soft 0]"),
    ("RES.SFLIGHT JOIN l a 100ms", "[LEAD F+2700005 nil 0]"),
    ("@2800", ""),
    ("RES.SFLIGHT PUBLISH l a 1s EMPTY", "[LOST expired]"),
    ("RES.SFLIGHT PUBLISH none a 1s EMPTY", "[LOST absent]"),
    ("RES.SFLIGHT ABANDON none a", "[LOST absent]"),
    ("RES.SFLIGHT RENEW none a 1s", "[LOST absent]"),
];

/// `F+17` as the number it stands for.
fn numbered(wanted: &str) -> String {
    let number = |word: &str| {
        let rest = word.strip_prefix('F')?;
        let more: i64 = rest.strip_prefix('+').map_or(Some(0), |more| more.parse().ok())?;
        Some((FIRST + more).to_string())
    };
    wanted.split(' ').map(|word| number(word).unwrap_or_else(|| word.to_owned())).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_reply_is_the_same_by_both_protocols() {
    for table in [IDEMPOTENCY, FLIGHTS] {
        for resp3 in [false, true] {
            let mut scene = Scene::driven();
            if resp3 {
                scene.main = scene.server.connect_resp3();
            }
            for (line, wanted) in table {
                match line.strip_prefix('@') {
                    Some(ms) => scene.main.clock_at_ms(ms.parse().unwrap()),
                    None => assert_eq!(scene.ask(line), numbered(wanted), "{line}"),
                }
            }
        }
    }
}

#[test]
fn nil_is_the_protocols_own_and_numbers_are_integers() {
    let mut scene = Scene::driven();
    for mut connection in [scene.server.connect(), scene.server.connect_resp3()] {
        scene.main.say("FLUSHALL");
        let Value::Array(lead) = connection.say("RES.SFLIGHT JOIN k a 1s") else { panic!("a list") };
        assert!(matches!(lead[..], [_, Value::Int(_), Value::Nil, Value::Int(0)]), "{lead:?}");
        let Value::Array(run) = connection.say("RES.IDEMP BEGIN i a 1s") else { panic!("a list") };
        assert!(matches!(run[..], [_, Value::Int(_), Value::Int(1), Value::Int(0)]), "{run:?}");
        scene.main.say("CONFIG SET resil.max-result 3");
        assert_eq!(shown(&connection.say("RES.IDEMP COMMIT i a 1h four")), "[COMMITTED dropped]");
        let Value::Array(replay) = connection.say("RES.IDEMP GET i") else { panic!("a list") };
        assert!(matches!(replay[..], [_, _, Value::Nil, Value::Int(0)]), "{replay:?}");
    }
}

#[test]
fn info_is_a_map_and_help_is_text() {
    let mut scene = Scene::driven();
    scene.ask("RES.IDEMP BEGIN k a 10s FINGERPRINT f ONLAPSE HOLD");
    scene.ask("RES.IDEMP ONCE o 1h TOKEN t");
    scene.ask("RES.SFLIGHT JOIN v a 10s");
    scene.ask("RES.SFLIGHT PUBLISH v a 1s VALUE bytes STALE 1s");
    scene.ask("RES.SFLIGHT JOIN l a 10s");
    let _waiter = scene.waits("RES.IDEMP BEGIN k b 1h WAIT 1m");
    let _follower = scene.waits("RES.SFLIGHT JOIN l b 1h WAIT 1m");
    let mut resp3 = scene.server.connect_resp3();
    let mut info = |line: &str| {
        send(&mut resp3, line);
        receive(&mut resp3)
    };
    let fence = FIRST;
    assert_eq!(
        info("RES.IDEMP INFO k"),
        format!(
            "{{phase: running, token: a, fence: {fence}, attempt: 1, remaining_ms: 10000, fingerprint: f, \
             on_lapse: hold, failed: 0, result_bytes: 0, waiters: 1, exists: 1}}"
        )
    );
    assert_eq!(info("RES.IDEMP INFO o"), "{phase: seen, token: t, remaining_ms: 3600000, exists: 1}");
    assert_eq!(info("RES.IDEMP INFO none"), "{phase: none, token: , remaining_ms: 0, exists: 0}");
    assert_eq!(
        info("RES.SFLIGHT INFO v"),
        format!(
            "{{value: fresh, age_ms: 0, fresh_ms: 1000, stale_ms: 2000, bytes: 5, leader: nil, fence: {}, \
             remaining_ms: 0, paused_ms: 0, error: nil, followers: 0, exists: 1}}",
            FIRST + 1
        )
    );
    assert_eq!(
        info("RES.SFLIGHT INFO l"),
        format!(
            "{{value: none, age_ms: 0, fresh_ms: 0, stale_ms: 0, bytes: -1, leader: a, fence: {}, \
             remaining_ms: 10000, paused_ms: 0, error: nil, followers: 1, exists: 1}}",
            FIRST + 2
        )
    );
    for command in ["RES.IDEMP", "RES.SFLIGHT"] {
        let help = info(&format!("{command} HELP"));
        assert!(help.starts_with(&format!("[{command} ")) && help.contains(&format!("{command} INFO key")), "{help}");
        let Value::Array(flat) = scene.main.say(&format!("{command} INFO k2")) else { panic!("RESP2 has lists") };
        assert_eq!(flat.len() % 2, 0);
    }
}

#[test]
fn the_phases_of_a_record_have_names() {
    let mut scene = Scene::driven();
    let phase =
        |scene: &mut Scene, key: &str| crate::scene::field(&scene.main.say(&format!("RES.IDEMP INFO {key}")), "phase");
    scene.ask("RES.IDEMP BEGIN run a 1s");
    scene.ask("RES.IDEMP BEGIN hold a 1s ONLAPSE HOLD");
    scene.ask("RES.IDEMP BEGIN aborted a 1s");
    scene.ask("RES.IDEMP ABORT aborted a");
    assert_eq!(phase(&mut scene, "run"), "running");
    assert_eq!(phase(&mut scene, "aborted"), "idle");
    scene.main.clock_at_ms(1_000);
    let lapsed = phase(&mut scene, "run");
    assert!(lapsed == "idle" || lapsed == "lapsed", "{lapsed}");
    assert_eq!(phase(&mut scene, "hold"), "held");
    scene.ask("RES.IDEMP COMMIT hold a 1h x");
    assert_eq!(phase(&mut scene, "hold"), "done");
}
