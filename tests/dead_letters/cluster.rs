//! Ledgers in a cluster: a slot that moves takes its ledger along, and sends takers that wait after it.

use resil_harness::{Cluster, eventually};

use crate::driven::{SOON, Say, driven};
use crate::letters::given;
use crate::scene::{Caller, receive, send};

fn ask(connection: &mut redis::Connection, line: &str) -> String {
    send(connection, line);
    receive(connection)
}

#[test]
fn a_moved_slot_takes_its_ledger_and_sends_takers_after() {
    let cluster = Cluster::start(3, driven());
    let from = cluster.node_for_key("k");
    let to = cluster.nodes().iter().find(|node| node.port() != from.port()).expect("there are three");
    let (mut here, mut there) = (from.connect(), to.connect());
    here.clock_at_ms(0);
    there.clock_at_ms(0);
    let (from_id, to_id) = (here.text("CLUSTER MYID"), there.text("CLUSTER MYID"));
    let slot = cluster.slot_of("k");
    ask(&mut here, "RES.DLQ CONFIG k JITTER none ACTOR ann");
    for n in 0..200 {
        let reply = ask(&mut here, &format!("RES.DLQ FAIL k m{n} ERROR e PAYLOAD {}", "p".repeat(1_000)));
        assert_eq!(reply, "[RETRY 1 500]");
    }
    let mut waiters: Vec<Caller> = (0..3).map(|_| Caller::new(from)).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&format!("RES.DLQ TAKE k w{n} 1h WAIT 10m"));
    }
    eventually("three wait", SOON, || here.info_number("resil", "blocked_waiters") == 3);
    let digest = here.digest("k");
    there.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
    here.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
    here.say(&format!("MIGRATE 127.0.0.1 {} k 0 10000", to.port()));
    for connection in [&mut there, &mut here] {
        connection.say(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
    }
    for waiter in &mut waiters {
        let reply = waiter.reply();
        let moved = format!("-MOVED {slot} 127.0.0.1:{}", to.port());
        assert!(reply.starts_with("-TRYAGAIN ") || reply == moved, "{reply}");
        waiter.is_in_step();
    }
    eventually("the new home serves the slot", SOON, || there.outcome("EXISTS k") == "int(1)");
    assert_eq!(there.digest("k"), digest);
    assert_eq!(here.integer("DBSIZE"), 0);
    // Valkey frees in the background.
    eventually("its bytes are free", SOON, || here.info_number("resil", "dlq_bytes") == 0);
    there.clock_at_ms(500);
    assert_eq!(given(&ask(&mut there, "RES.DLQ TAKE k t 1h COUNT 1000")).len(), 200);
}

#[test]
fn takers_of_a_deleted_ledger_are_sent_away() {
    let cluster = Cluster::start(3, driven());
    let node = cluster.node_for_key("k");
    let mut here = node.connect();
    here.clock_at_ms(0);
    for line in ["DEL k", "FLUSHALL", "SET k text"] {
        here.say("DEL k");
        let mut waiter = Caller::new(node);
        waiter.send("RES.DLQ TAKE k w 1h WAIT 10m");
        eventually("it waits", SOON, || here.info_number("resil", "blocked_waiters") == 1);
        here.say(line);
        let reply = waiter.reply();
        assert!(reply.starts_with("-TRYAGAIN ") || reply == "[TIMEOUT -1]", "{line}: {reply}");
        waiter.is_in_step();
    }
}
