//! Ways in which a key is touched, and those who wait go on waiting: nobody is handed anything that is held.

use redis::Value;
use resil_harness::{Options, Server, eventually, ok};

use crate::asked::{Asked, Ear};
use crate::driven::{SOON, Say};
use crate::leaving::tells_of_keys;
use crate::scene::Scene;

impl Scene {
    /// As if nothing had happened: `a` holds by its connection, was not notified, and lets go when it wants to.
    #[track_caller]
    fn assert_untouched(&mut self) {
        self.assert_all_wait_for("a");
        assert!(!self.ear.losses().iter().any(|loss| loss.starts_with("k ")), "{:?}", self.ear.losses());
        assert_eq!(self.holder.ask("RES.HEARTBEAT"), "[1, ]");
        assert!(self.holder.ask(&format!("RES.LOCK RELEASE k a FENCE {}", self.fence)).starts_with("RELEASED "));
        let fence = self.waiters[0].granted();
        assert!(fence > self.fence);
        self.assert_line_goes_on(fence);
    }
}

fn dump(connection: &mut redis::Connection, key: &str) -> Vec<u8> {
    match ok(connection, &["DUMP", key]) {
        Value::BulkString(payload) => payload,
        other => panic!("DUMP {key}: {other:?}"),
    }
}

#[test]
fn a_lock_restored_over_itself_is_unchanged() {
    let mut scene = Scene::fresh();
    let payload = dump(&mut scene.connection, "k");
    ok(&mut scene.connection, &[b"RESTORE", b"k".as_slice(), b"0", &payload, b"REPLACE"]);
    scene.assert_untouched();
}

#[test]
fn a_reload_is_as_if_nothing_had_happened() {
    let mut scene = Scene::fresh();
    scene.connection.say("DEBUG RELOAD");
    scene.assert_untouched();
}

#[test]
fn a_lock_renamed_away_and_back_is_unchanged() {
    let mut scene = Scene::fresh();
    for line in ["MULTI", "RENAME k away", "RENAME away k", "EXEC"] {
        scene.connection.say(line);
    }
    scene.assert_untouched();
}

#[test]
fn waiters_of_a_name_wait_for_its_lock() {
    for line in ["RENAME other k", "COPY other k REPLACE"] {
        println!("{line}");
        let mut scene = Scene::fresh();
        let mut other_holder = scene.server.connect();
        let other = other_holder.hold("other b 1h BOUND");
        scene.connection.say(line);
        scene.assert_all_wait_for("b");
        scene.assert_reported_once(&["absent"]);
        let renamed = line.starts_with("RENAME");
        let expected = if renamed { vec![format!("other b {other} absent")] } else { vec![] };
        let of_b: Vec<String> = scene.ear.losses().into_iter().filter(|loss| loss.contains(" b ")).collect();
        assert_eq!(of_b, expected, "it lost that name, and only then");
        let beat = if renamed { format!("[0, [other {other} absent]]") } else { "[1, ]".to_owned() };
        assert_eq!(other_holder.ask("RES.HEARTBEAT"), beat);
        // The end of that holder's lock is theirs, under the name they wait for.
        assert!(other_holder.ask("RES.LOCK RELEASE k b").starts_with("RELEASED "));
        let fence = scene.waiters[0].granted();
        assert!(fence > other && fence > scene.fence);
        scene.assert_line_goes_on(fence);
    }
}

#[test]
fn swapped_databases_take_holders_along_and_leave_waiters() {
    let mut scene = Scene::fresh();
    scene.connection.say("SWAPDB 0 5");
    let fence = scene.waiters[0].granted();
    assert!(fence > scene.fence);
    assert_eq!(scene.ear.losses(), Vec::<String>::new(), "nobody lost anything");
    assert_eq!(scene.holder.ask("RES.HEARTBEAT"), "[1, ]");
    scene.assert_line_goes_on(fence);
    let mut there = scene.server.connect();
    there.say("SELECT 5");
    assert_eq!(there.look("k").owners(), ["a"]);
    // Bound as before: the connection's end is the holding's.
    drop(scene.holder);
    eventually("its end is noticed where the lock is now", SOON, || !there.holds("k", "a"));
    assert_eq!(scene.ear.hear_one(SOON), format!("k a {} closed", scene.fence));
}

#[test]
fn a_swapped_lease_still_ends_by_itself() {
    let server = Server::start(Options::default());
    let (mut connection, mut ear) = (server.connect(), Ear::at(&server));
    let fence = connection.hold("k a 300ms");
    connection.say("SWAPDB 0 5");
    assert_eq!(ear.hear_one(SOON), format!("k a {fence} expired"));
}

#[test]
fn a_lease_ends_by_itself_under_any_name() {
    let server = Server::start(Options::default());
    if !tells_of_keys(server.flavor()) {
        return println!("skipped: this server does not tell us of keys that came");
    }
    let (mut connection, mut ear) = (server.connect(), Ear::at(&server));
    let mut expected = Vec::new();
    for line in ["RENAME from0 to0", "COPY from1 to1", "MOVE to2 5", "RESTORE"] {
        let number = expected.len();
        let from = if line.starts_with("MOVE") { "to2".to_owned() } else { format!("from{number}") };
        let fence = connection.hold(&format!("{from} a 500ms"));
        if line == "RESTORE" {
            let payload = dump(&mut connection, &from);
            ok(&mut connection, &[b"RESTORE", b"to3".as_slice(), b"0", &payload]);
        } else {
            connection.say(line);
        }
        expected.push(format!("to{number} a {fence} expired"));
    }
    eventually("all have ended", SOON, || expected.iter().all(|loss| ear.losses().contains(loss)));
}

#[test]
fn the_next_change_undoes_a_users_expiry() {
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    connection.hold("k a 1h");
    let before = connection.integer("PEXPIRETIME k");
    connection.say("PERSIST k");
    assert_eq!(connection.integer("PTTL k"), -1);
    connection.hold("k a 2h");
    let after = connection.integer("PEXPIRETIME k");
    assert!(after >= before + 3_500_000, "{before} {after}");
    connection.say("PEXPIRE k 20000");
    connection.hold("k a 3h");
    assert!(connection.integer("PEXPIRETIME k") >= after + 3_500_000);
}

#[test]
fn a_bound_lease_that_is_renewed_outlives_a_users_expiry() {
    let server = Server::start(Options::default());
    let (mut connection, mut holder) = (server.connect(), server.connect());
    holder.hold("k a 600ms BOUND");
    connection.say("PEXPIRE k 2000");
    eventually("a renewal undid it", SOON, || {
        assert_eq!(holder.ask("RES.HEARTBEAT"), "[1, ]");
        connection.integer("PTTL k") > 10_000
    });
}
