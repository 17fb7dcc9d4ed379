//! A server under valgrind: an access to memory that was freed, or never written, fails the test, whether it crashes or not.

use std::thread::sleep;
use std::time::Duration;

use resil_harness::{Flavor, Options, Server, eventually, wait_for_sync};

use crate::async_walk::walk;
use crate::driven::{SOON, Say};
use crate::engine::fuzzing::Fuzz;
use crate::engine::seed::{say, seeded};
use crate::machines::ALL;
use crate::scene::{Caller, Scene};

/// Longer than the module listens to the server's event loop after a hand-over.
const A_WHILE: Duration = Duration::from_millis(1_200);
/// Calls of the long run: every command, by chance, with callers that wait, close and are killed in between.
const CALLS: usize = 60_000;

fn watched() -> Options {
    Options::default().under_valgrind()
}

/// Fails with what valgrind found, if it found something.
fn is_clean(server: &Server) {
    let found = server.found_by_valgrind();
    assert!(found.is_empty(), "valgrind found errors:\n{found}");
}

#[test]
fn hand_overs_closes_promotions_and_flushes_touch_no_freed_memory() {
    if Flavor::from_env().is_valkey() {
        return say("valgrind: it does not know the functions by which Valkey frees memory; this is run on Redis");
    }
    let mut scene = Scene::with(watched());
    let replica = Server::replica_of(&scene.server, watched());
    hand_over(&mut scene);
    close_and_kill(&mut scene);
    take_keys_away(&mut scene);
    sleep(A_WHILE);
    hand_over(&mut scene);
    is_clean(&scene.server);
    wait_for_sync(&scene.server, &replica);
    swap_roles(&mut scene, &replica);
    is_clean(&scene.server);
    is_clean(&replica);
}

#[test]
fn a_walk_of_asynchronous_waiters_touches_no_freed_memory() {
    if Flavor::from_env().is_valkey() {
        return say("valgrind: it does not know the functions by which Valkey frees memory; this is run on Redis");
    }
    walk(watched(), 800);
}

/// Everything that shows keys without being given one.
fn look_around(scene: &mut Scene) {
    for kind in ["BREAKER", "LOCK", "BULKHEAD", "POLICY", "DLQ"] {
        scene.ask(&format!("RES.LIST {kind}"));
        scene.ask(&format!("RES.LIST {kind} MATCH *a*[^b-d]* LIMIT 1 CURSOR 2"));
    }
    for kind in ["DENIED", "WAITING", "HELD"] {
        scene.ask(&format!("RES.TOP {kind}"));
    }
    scene.ask("INFO resil");
}

/// Cached values under a name: led, published, set, and made out of date in every way.
fn cached_values(scene: &mut Scene) {
    for line in [
        "RES.SFLIGHT JOIN cached lead 5s UNDER name EARLY 10",
        "RES.SFLIGHT PUBLISH cached lead 60s UNDER name TAG blue TAG red VALUE bytes",
        "RES.SFLIGHT GET cached UNDER name",
        "RES.SFLIGHT MGET name cached uncached cached",
        "RES.SFLIGHT CLEAR name TAG blue SOFT",
        "RES.SFLIGHT MGET name cached",
        "RES.SFLIGHT JOIN cached other 5s UNDER name",
        "RES.SFLIGHT SET cached 60s UNDER name TAG red VALUE other",
        "RES.SFLIGHT CLEAR name TAG red",
        "RES.SFLIGHT INVALIDATE cached UNDER name",
        "RES.SFLIGHT CLEAR name",
        "RES.SFLIGHT SET cached 60s UNDER name VALUE last",
        "DUMP name",
        "DEL name",
        "RES.SFLIGHT GET cached UNDER name",
    ] {
        scene.ask(line);
    }
}

fn hand_over(scene: &mut Scene) {
    cached_values(scene);
    scene.ask("RES.BREAKER FORCE forced OPEN FOR 1h THEN PROBE");
    scene.ask("RES.LOCK ACQUIRE raised first 1h");
    scene.ask("RES.LOCK RENEW raised first 1h RAISE 1");
    scene.ask("RES.LOCK RELEASE raised first");
    for machine in &ALL {
        scene.ask(&machine.hold("given", "first"));
        let mut next = scene.waits(&machine.wait("given", "second"));
        look_around(scene);
        scene.ask(&machine.let_go("given", "first"));
        assert_eq!(next.verdict(), machine.granted, "{}", machine.name);
        scene.ask(&machine.let_go("given", "second"));
    }
}

/// Connections end in every way a waiter or the holder of a bound lease can lose its own.
fn close_and_kill(scene: &mut Scene) {
    for machine in &ALL {
        let mut holder = Caller::new(&scene.server);
        holder.send(&format!("{} BOUND", machine.hold("closed", "holder")));
        assert_eq!(holder.verdict(), machine.granted, "{}", machine.name);
        let killed = scene.waits(&machine.wait("closed", "killed"));
        let closed = scene.waits(&machine.wait("closed", "closed"));
        let mut unblocked = scene.waits(&machine.wait("closed", "unblocked"));
        let untold = scene.waits(&machine.wait("closed", "untold"));
        let mut last = scene.waits(&machine.wait("closed", "last"));
        scene.ask(&format!("CLIENT KILL ID {}", killed.id));
        drop(closed);
        scene.ask(&format!("CLIENT UNBLOCK {}", unblocked.id));
        unblocked.reply();
        // The grant to `untold` and its end come together: it is taken back, and the next has it.
        let end = format!("CLIENT KILL ID {}", untold.id);
        scene.at_once(&[&format!("CLIENT KILL ID {}", holder.id), &end]);
        assert_eq!(last.verdict(), machine.granted, "{}", machine.name);
        scene.ask(&machine.let_go("closed", "last"));
    }
    scene.nobody_waits();
}

/// Keys leave under those who hold them and those who wait for them.
fn take_keys_away(scene: &mut Scene) {
    let ways = ["DEL KEY", "UNLINK KEY", "SET KEY text", "RENAME KEY other", "SWAPDB 0 1", "FLUSHDB", "FLUSHALL ASYNC"];
    for way in ways {
        let mut callers = Vec::new();
        for machine in &ALL {
            scene.ask(&format!("{} BOUND", machine.hold("taken", "holder")));
            callers.push(scene.waits(&machine.wait("taken", "waiter")));
            if way.contains("KEY") {
                scene.ask(&way.replace("KEY", &machine.key("taken")));
            }
        }
        if !way.contains("KEY") {
            scene.ask(way);
        }
        look_around(scene);
        for mut caller in callers {
            assert_ne!(caller.reply(), "nothing", "{way}");
        }
        scene.nobody_waits();
        scene.ask("FLUSHALL");
    }
}

/// The replica becomes the primary, and the primary its replica, with holders and waiters there.
fn swap_roles(scene: &mut Scene, replica: &Server) {
    let mut callers = Vec::new();
    for machine in &ALL {
        scene.ask(&format!("{} BOUND", machine.hold("roles", "holder")));
        callers.push(scene.waits(&machine.wait("roles", "waiter")));
    }
    wait_for_sync(&scene.server, replica);
    let mut promoted = replica.connect();
    promoted.say("REPLICAOF NO ONE");
    scene.ask(&format!("REPLICAOF 127.0.0.1 {}", replica.port()));
    for mut caller in callers {
        assert_ne!(caller.reply(), "nothing", "a waiter is answered when its server is no primary any more");
    }
    for machine in &ALL {
        promoted.say(&machine.let_go("roles", "holder"));
        promoted.say(&machine.hold("roles", "next"));
    }
    promoted.say("DEBUG RELOAD");
    eventually("the old primary follows", SOON, || promoted.info_number("replication", "connected_slaves") == 1);
}

#[test]
fn a_walk_through_a_ledger_touches_no_freed_memory() {
    if Flavor::from_env().is_valkey() {
        return say("valgrind: it does not know the functions by which Valkey frees memory; this is run on Redis");
    }
    let mut scene = Scene::with(watched());
    let replica = Server::replica_of(&scene.server, watched());
    for line in ["DEL d", "UNLINK d", "FLUSHALL ASYNC", "SET d text", "RENAME d e", "SWAPDB 0 1", "DEBUG RELOAD"] {
        scene.ask("FLUSHALL");
        scene.ask("RES.DLQ CONFIG d JITTER none CLASS transient BASE 100ms CAP 100ms ACTOR me");
        for n in 0..30 {
            scene.ask(&format!("RES.DLQ FAIL d m{n} ERROR e{n} PAYLOAD {} AGGREGATE a{}", "p".repeat(300), n % 3));
            scene.ask(&format!("RES.DLQ FAIL d f{n} ERROR no PAYLOAD p TYPE pay AGGREGATE b FINAL"));
            scene.ask(&format!("RES.DLQ PARK d k{n} AGGREGATE b PAYLOAD p"));
        }
        scene.ask("RES.DLQ DIAGNOSE d pay/no CATEGORY infrastructure CAUSE c FIX f ACTOR me");
        scene.ask("RES.DLQ REDRIVE d 1 RATE 1000 1m ACTOR me");
        let mut taker = Caller::new(&scene.server);
        taker.send("RES.DLQ TAKE d bound 10s COUNT 5 WAIT 10s BOUND");
        assert_eq!(taker.verdict(), "TAKEN", "{line}");
        let again = scene.ask("RES.DLQ TAKE d token 10s COUNT 3");
        assert!(again.starts_with("[TAKEN ") || again.starts_with("[NONE "), "{again}");
        for aspect in ["", "GROUPS", "CASES", "ALERTS", "AUDIT"] {
            scene.ask(&format!("RES.DLQ INFO d {aspect}"));
        }
        scene.ask("RES.DLQ CONFIG d PAUSED yes ACTOR me");
        let waiter = scene.waits("RES.DLQ TAKE d waiter 10s WAIT 20s");
        drop(taker);
        scene.ask(line);
        sleep(Duration::from_millis(200));
        drop(waiter);
        scene.nobody_waits();
    }
    wait_for_sync(&scene.server, &replica);
    is_clean(&scene.server);
    is_clean(&replica);
}

#[test]
fn a_walk_under_stored_policies_touches_no_freed_memory() {
    if Flavor::from_env().is_valkey() {
        return say("valgrind: it does not know the functions by which Valkey frees memory; this is run on Redis");
    }
    let mut scene = Scene::with(watched());
    let replica = Server::replica_of(&scene.server, watched());
    let places = r#"{"timeout":{"attempt":"10s"},"sharedBulkhead":{"maxConcurrentCalls":1,"maxQueue":9}}"#;
    let all =
        r#"{"retry":{"maxAttempts":4},"breaker":{"consecutiveFailures":3},"rateLimit":{"limit":100,"period":"1s"}}"#;
    let ways = ["DEL p", "UNLINK p", "RES.POLICY DELETE p", "FLUSHALL ASYNC", "SET p text", "RENAME p e", "SWAPDB 0 1"];
    for line in ways {
        scene.ask("FLUSHALL");
        for document in [all, places, all, places] {
            scene.ask(&format!("RES.POLICY SET p {document} ACTOR me"));
            for number in 0..10 {
                let entered = scene.ask(&format!("RES.GUARD ENTER p call-{number} SUBJECT subject CALLER c{number}"));
                if let Some(ticket) = entered.strip_prefix("[ADMITTED ").and_then(|rest| rest.split(' ').next()) {
                    scene.ask(&format!("RES.GUARD EXIT p {ticket} FAIL"));
                    scene.ask(&format!("RES.GUARD ENTER p call-{number} TICKET {ticket}"));
                }
            }
        }
        for aspect in ["RES.POLICY GET p", "RES.POLICY HISTORY p", "RES.GUARD STATE p", "RES.BREAKER STATE p"] {
            scene.ask(aspect);
        }
        scene.ask("RES.GUARD ENTER p inside");
        let killed = scene.waits("RES.GUARD ENTER p killed WAIT 20s");
        let closed = scene.waits("RES.GUARD ENTER p closed WAIT 20s");
        let mut last = scene.waits("RES.GUARD ENTER p last WAIT 20s");
        scene.ask(&format!("CLIENT KILL ID {}", killed.id));
        drop(closed);
        scene.ask("DEBUG RELOAD");
        scene.ask(line);
        assert_ne!(last.reply(), "nothing", "{line}");
        scene.nobody_waits();
    }
    wait_for_sync(&scene.server, &replica);
    is_clean(&scene.server);
    is_clean(&replica);
}

#[test]
fn no_command_and_no_walk_touches_freed_memory() {
    if std::env::var_os("RESIL_SOAK").is_none() {
        return say("valgrind: the long run is part of `make soak`; set RESIL_SOAK=1 to run it");
    }
    let mut fuzz = Fuzz::start_with(seeded("valgrind"), watched());
    fuzz.run(CALLS);
    fuzz.everybody_leaves();
    say(&format!("valgrind: {:?}", fuzz.tally));
    fuzz.reload();
}
