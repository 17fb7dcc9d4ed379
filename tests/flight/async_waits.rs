//! Asynchronous waits for work that is done once and values that are loaded once: the verdict comes later, with the result.

use std::io::Write;

use crate::async_client::AsyncClient;
use crate::driven::Say;
use crate::scene::Scene;

/// Above this a reply is not published.
const PUBLISHED_MAX: usize = 65_536;

/// Sends a call with a last word that no line can have.
fn ask_with(client: &mut AsyncClient, line: &str, value: &[u8]) -> String {
    let mut words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    words.push(value);
    client.send_words(&words);
    client.reply()
}

#[test]
fn the_result_comes_to_every_asynchronous_waiter() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.IDEMP BEGIN k runner 10s");
    for (position, owner) in ["b", "c", "d"].into_iter().enumerate() {
        assert_eq!(client.waits(&format!("RES.IDEMP BEGIN k {owner} 10s WAIT 1m")), position as u64 + 1);
    }
    let mut blocked = scene.waits("RES.IDEMP BEGIN k e 10s WAIT 1m");
    scene.ask("RES.IDEMP COMMIT k runner 1h receipt");
    for owner in ["b", "c", "d"] {
        let late = client.late();
        assert_eq!((late.kind.as_str(), late.key.as_str(), late.owner.as_str()), ("idempotency", "k", owner));
        assert_eq!(late.reply, "[REPLAY ok receipt 0]");
    }
    assert_eq!(blocked.reply(), "[REPLAY ok receipt 0]");
    assert_eq!(client.ask("RES.IDEMP BEGIN k f 10s WAIT 1m ASYNC"), "[REPLAY ok receipt 0]", "it is there already");
    client.is_silent();
}

#[test]
fn the_next_runs_after_aborts_lapses_and_closes() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.IDEMP BEGIN k runner 10s");
    for owner in ["b", "c", "d"] {
        client.waits(&format!("RES.IDEMP BEGIN k {owner} 10s WAIT 10m"));
    }
    scene.ask("RES.IDEMP ABORT k runner");
    assert_eq!(client.notified(), "b RUN");
    scene.main.clock_at_ms(10_000);
    assert_eq!(client.notified(), "c RUN");
    scene.ask("DEL k");
    assert_eq!(client.notified(), "d RUN");
    client.is_silent();
}

#[test]
fn a_waiter_that_aborts_or_abandons_leaves_the_queue() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.IDEMP BEGIN i runner 10s");
    client.waits("RES.IDEMP BEGIN i b 10s WAIT 10m");
    assert_eq!(client.ask("RES.IDEMP ABORT i b"), "[ABORTED]");
    assert_eq!(client.notified(), "b -SUPERSEDED");
    scene.ask("RES.SFLIGHT JOIN s leader 10s");
    client.waits("RES.SFLIGHT JOIN s b 10s WAIT 10m");
    client.ask("RES.SFLIGHT ABANDON s b");
    let late = client.late();
    assert_eq!((late.kind.as_str(), late.short().as_str()), ("flight", "b -SUPERSEDED"));
    client.is_silent();
    assert_eq!(scene.main.info_number("resil", "async_waiters"), 0);
}

#[test]
fn a_flight_tells_value_error_and_next_leader() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    for (publish, reported) in [
        ("RES.SFLIGHT PUBLISH s leader 1h VALUE bytes", "VALUE"),
        ("RES.SFLIGHT PUBLISH s leader 1h EMPTY", "EMPTY"),
        ("RES.SFLIGHT PUBLISH s leader 1h ERROR why", "ERROR"),
        ("RES.SFLIGHT ABANDON s leader", "LEAD"),
        ("RES.SFLIGHT INVALIDATE s", "LEAD"),
        ("FLUSHALL", "LEAD"),
    ] {
        scene.ask("DEL s");
        assert_eq!(scene.verdict("RES.SFLIGHT JOIN s leader 1h"), "LEAD");
        client.waits("RES.SFLIGHT JOIN s b 1h WAIT 10m");
        scene.ask(publish);
        let late = client.late();
        assert_eq!(late.short(), format!("b {reported}"), "{publish}: {}", late.reply);
        client.is_silent();
    }
}

#[test]
fn large_results_are_published_to_a_bound_then_fetched() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    for (length, is_published) in [(5_000, true), (60_000, true), (PUBLISHED_MAX + 1, false), (900_000, false)] {
        // Not UTF-8, so it is in base 64.
        let value = vec![0xfe; length];
        scene.ask("FLUSHALL");
        scene.ask("RES.IDEMP BEGIN i runner 1h");
        scene.ask("RES.SFLIGHT JOIN s runner 1h");
        client.waits("RES.IDEMP BEGIN i b 1h WAIT 10m");
        client.waits("RES.SFLIGHT JOIN s b 1h WAIT 10m");
        let mut main = AsyncClient::deaf(&scene.server);
        assert_eq!(ask_with(&mut main, "RES.IDEMP COMMIT i runner 1h", &value), "[COMMITTED stored]");
        let published = ask_with(&mut main, "RES.SFLIGHT PUBLISH s runner 1h VALUE", &value);
        assert!(published.starts_with("[PUBLISHED "), "{published}");
        let shown = value.escape_ascii().to_string();
        for _ in 0..2 {
            let late = client.late();
            let is_whole = late.reply.contains(&shown);
            let is_error = late.reply.starts_with("-AGAIN ");
            assert!(is_whole == is_published && is_error != is_published, "{length}: {:.80}", late.reply);
        }
        for line in ["RES.IDEMP BEGIN i b 1h", "RES.SFLIGHT JOIN s b 1h"] {
            assert!(client.ask(line).contains(&shown), "{line}: {length}");
        }
        client.is_silent();
    }
}

#[test]
fn a_result_does_not_come_in_the_middle_of_exec() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    for length in [10, 5_000, 60_000, 100_000] {
        scene.ask("FLUSHALL");
        let value = "v".repeat(length);
        for (hold, wait, end) in [
            ("RES.IDEMP BEGIN k a 1h", "RES.IDEMP BEGIN k b 1h WAIT 10m", "RES.IDEMP COMMIT k a 1h"),
            ("RES.SFLIGHT JOIN s a 1h", "RES.SFLIGHT JOIN s b 1h WAIT 10m", "RES.SFLIGHT PUBLISH s a 1h VALUE"),
        ] {
            scene.ask(hold);
            client.waits(wait);
            assert_eq!(client.ask("MULTI"), "OK");
            assert_eq!(client.ask("ECHO before"), "QUEUED");
            assert_eq!(ask_with(&mut client, end, value.as_bytes()), "QUEUED");
            assert_eq!(client.ask("ECHO after"), "QUEUED");
            let all = client.ask("EXEC");
            let is_whole = all.starts_with("[before [") && all.ends_with("] after]") && !all.contains('>');
            assert!(is_whole, "{length}: {all:.200}");
            assert_eq!(client.late().owner, "b");
            client.is_silent();
        }
    }
}

#[test]
fn a_run_that_nobody_hears_is_handed_on() {
    let mut scene = Scene::driven();
    for (hold, wait, let_go, granted) in [
        ("RES.IDEMP BEGIN i a 1h", "RES.IDEMP BEGIN i OWNER 1h WAIT 10m", "RES.IDEMP ABORT i a", "RUN"),
        ("RES.SFLIGHT JOIN s a 1h", "RES.SFLIGHT JOIN s OWNER 1h WAIT 10m", "RES.SFLIGHT ABANDON s a", "LEAD"),
    ] {
        let (mut killed, mut stays) = (AsyncClient::new(&scene.server), AsyncClient::new(&scene.server));
        scene.ask(hold);
        killed.waits(&wait.replace("OWNER", "b"));
        killed.waits(&wait.replace("OWNER", "c"));
        stays.waits(&wait.replace("OWNER", "d"));
        // Read at once: the server does not sleep between the two.
        let mut director = scene.server.raw();
        let lines = format!("{let_go}\r\nCLIENT KILL ID {}\r\n", killed.id);
        director.write_all(lines.as_bytes()).expect("an open connection");
        let reported = stays.notified();
        assert_eq!(reported, format!("d {granted}"));
        stays.is_silent();
    }
}
