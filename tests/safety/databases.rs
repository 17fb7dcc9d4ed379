//! Databases with large numbers: whatever waits there is answered, and whatever ends there ends.

use redis::Connection;
use resil_harness::{Options, eventually};

use crate::driven::SOON;
use crate::machines::ALL;
use crate::scene::{Caller, Scene, receive, send, verdict};

/// Around every power of two that a number could be cut at.
const DATABASES: [i32; 6] = [0, 255, 256, 16_383, 16_384, 19_999];

fn ask(connection: &mut Connection, line: &str) -> String {
    send(connection, line);
    receive(connection)
}

#[test]
fn blocked_calls_are_answered_in_every_database() {
    let mut scene = Scene::with(Options::default().config("databases", "20000"));
    for db in DATABASES {
        let select = format!("SELECT {db}");
        scene.ask(&select);
        for machine in &ALL {
            let caller = || {
                let mut caller = Caller::new(&scene.server);
                caller.send(&select);
                assert_eq!(caller.reply(), "OK");
                caller
            };
            let (next, late, heir) = (caller(), caller(), caller());
            scene.ask(&machine.hold("k", "first"));
            let mut next = scene.waits_as(next, &machine.wait("k", "second"));
            scene.ask(&machine.let_go("k", "first"));
            assert_eq!(next.verdict(), machine.granted, "the {} is handed over in database {db}", machine.name);

            let mut late = scene.waits_as(late, &machine.wait("k", "late").replace("20s", "50ms"));
            let reply = late.reply();
            assert!(reply != "nothing" && verdict(&reply) != machine.granted, "{reply} in database {db}");
            scene.ask(&machine.let_go("k", "second"));

            scene.ask(&machine.hold("short", "first").replace("10s", "50ms"));
            let mut heir = scene.waits_as(heir, &machine.wait("short", "heir"));
            assert_eq!(heir.verdict(), machine.granted, "a lease of the {} ends in database {db}", machine.name);
            scene.ask(&machine.let_go("short", "heir"));
        }
    }
    let main = &mut scene.main;
    eventually("nobody waits", SOON, || ask(main, "INFO resil").contains("resil_blocked_waiters:0"));
}
