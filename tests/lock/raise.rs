//! RENEW ... RAISE, and servers that may have forgotten: what a lock over several servers asks of each.

use resil_harness::{Options, Server, eventually};

use crate::driven::{SOON, Say, driven};
use crate::scene::{Scene, fence};

#[test]
fn a_raised_fence_holds_for_every_later_grant() {
    let mut scene = Scene::driven();
    let first = scene.fence("RES.LOCK ACQUIRE k a 10s");
    let to = first + 1_000_000;
    assert_eq!(scene.ask(&format!("RES.LOCK RENEW k a 20s RAISE {to}")), format!("[GRANTED {to} 20000 0]"));
    assert_eq!(scene.ask(&format!("RES.LOCK RENEW k a 20s RAISE {first}")), format!("[GRANTED {to} 20000 0]"));
    assert_eq!(scene.ask(&format!("RES.LOCK CHECK k a FENCE {first}")), "0");
    assert_eq!(scene.ask(&format!("RES.LOCK CHECK k a FENCE {to}")), "1");
    assert!(scene.fence("RES.LOCK ACQUIRE other b 10s") > to, "the server's floor was raised");
    scene.main.say("DEL k");
    assert!(scene.fence("RES.LOCK ACQUIRE k b 10s") > to);
}

#[test]
fn nobody_but_the_exclusive_holder_raises_a_fence() {
    let mut scene = Scene::driven();
    let first = scene.fence("RES.LOCK ACQUIRE k a 10s");
    assert_eq!(scene.ask(&format!("RES.LOCK RENEW k b 10s RAISE {}", first + 9)), "[LOST taken]");
    assert_eq!(scene.ask(&format!("RES.LOCK RENEW none b 10s RAISE {}", first + 9)), "[LOST absent]");
    scene.ask("RES.LOCK ACQUIRE s r 10s SHARED");
    assert!(scene.ask(&format!("RES.LOCK RENEW s r 10s RAISE {}", first + 9)).contains("exclusive"));
    let far = first + 2 * 60_000_000 + 1_000_000;
    let refused = scene.ask(&format!("RES.LOCK RENEW k a 10s RAISE {far}"));
    assert!(refused.starts_with("-CLOCK "), "{refused}");
    assert_eq!(scene.ask("RES.LOCK RENEW k a 10s"), format!("[GRANTED {first} 10000 0]"), "nothing was changed");
}

#[test]
fn a_raised_bound_lock_is_bound_under_its_fence() {
    let mut scene = Scene::real();
    let mut holder = scene.server.connect();
    let first = fence(&crate::scene::shown(&holder.say("RES.LOCK ACQUIRE k a 1h BOUND")));
    holder.say(&format!("RES.LOCK RENEW k a 1h RAISE {} BOUND", first + 5));
    assert_eq!(holder.say("RES.HEARTBEAT"), holder.say("RES.HEARTBEAT"));
    drop(holder);
    let main = &mut scene.main;
    eventually("the close ends it", SOON, || main.integer("RES.LOCK CHECK k a") == 0);
}

fn with_delay(options: Options) -> Options {
    options.module_args(["return-delay", "5000"])
}

#[test]
fn a_server_that_may_have_forgotten_delays_locks() {
    let mut scene = Scene::with(with_delay(driven()));
    scene.main.clock_at_ms(0);
    scene.main.clock_at_ms(1);
    // It was started by the real clock, long before.
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k a 10s"), "GRANTED");
    scene.main.say("DEBUG RELOAD");
    let refused = scene.ask("RES.LOCK ACQUIRE k b 10s");
    assert!(refused.starts_with("-RETURNING ") && refused.contains("5000 ms"), "{refused}");
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k b 10s WAIT 1s"), "-RETURNING");
    assert_eq!(scene.verdict("RES.LOCK RENEW k a 10s"), "GRANTED", "what it remembers goes on");
    assert_eq!(scene.verdict("RES.BULKHEAD ENTER p a 1 10s"), "GRANTED");
    scene.main.clock_at_ms(5_000);
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE other b 10s"), "-RETURNING");
    scene.main.clock_at_ms(5_001);
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE other b 10s"), "GRANTED");
}

#[test]
fn a_killed_server_grants_at_once_only_with_every_write() {
    for (fsync, is_returning) in [("everysec", true), ("always", false)] {
        let options = Options::default().config("appendonly", "yes").config("appendfsync", fsync);
        let mut server = Server::start(options.module_args(["return-delay", "60000"]));
        server.connect().say("CONFIG SET resil.return-delay 0");
        assert!(crate::scene::shown(&server.connect().say("RES.LOCK ACQUIRE k a 1h")).starts_with("[GRANTED"));
        server.restart_after_kill();
        let mut scene = Scene { main: server.connect(), server };
        let verdict = scene.verdict("RES.LOCK ACQUIRE other b 1s");
        assert_eq!(verdict == "-RETURNING", is_returning, "appendfsync {fsync}: {verdict}");
    }
}
