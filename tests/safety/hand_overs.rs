//! A key goes from its holder to a waiter, on servers whose freed memory is filled with junk.

use std::thread::sleep;
use std::time::Duration;

use resil_harness::Server;

use crate::driven::Say;
use crate::machines::ALL;
use crate::scene::{Scene, shown};

/// Longer than the module listens to the server's event loop after a hand-over.
const A_WHILE: Duration = Duration::from_millis(1_200);

#[test]
fn a_hand_over_leaves_no_freed_listener_behind() {
    let mut scene = Scene::real();
    for round in 0..2 {
        for machine in &ALL {
            for _ in 0..3 {
                scene.ask(&machine.hold("k", "first"));
                let mut next = scene.waits(&machine.wait("k", "second"));
                scene.ask(&machine.let_go("k", "first"));
                assert_eq!(next.verdict(), machine.granted, "the {} in round {round}", machine.name);
                next.is_in_step();
                scene.ask(&machine.let_go("k", "second"));
            }
        }
        // The subscription has ended by now, and the next round makes it anew.
        sleep(A_WHILE);
        assert_eq!(scene.ask("PING"), "PONG");
    }
    assert_eq!(scene.main.info_number("resil", "internal_errors"), 0);
}

#[test]
fn every_server_fills_freed_memory_with_junk() {
    let server = Server::fresh();
    // What the allocator itself says, not what it was asked for.
    let stats = shown(&server.connect().say("MEMORY MALLOC-STATS"));
    let junk = stats.split("opt.junk:").nth(1).unwrap_or_else(|| panic!("not a jemalloc that can fill: {stats:.300}"));
    assert!(junk.trim_start().trim_start_matches('\\').starts_with("\"true"), "opt.junk: {junk:.40}");
}
