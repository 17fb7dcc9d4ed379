//! In a cluster no node hands out from memory what might live on another.

use resil_harness::{Cluster, Options, Server, eventually};

use crate::driven::{SOON, Say};
use crate::scene::Caller;
use crate::talk::{all_wait, ask};

const BEGIN: [&str; 2] = ["RES.IDEMP BEGIN", "RES.SFLIGHT JOIN"];

/// Three who wait for the key.
fn waiting(node: &Server, begin: &str) -> Vec<Caller> {
    let mut connection = node.connect();
    ask(&mut connection, &format!("{begin} k a 1h"));
    let mut callers = Vec::new();
    for index in 0..3 {
        let mut caller = Caller::new(node);
        caller.send(&format!("{begin} k w{index} 1h WAIT 60s"));
        callers.push(caller);
    }
    all_wait(&mut connection, 3);
    callers
}

#[test]
fn a_deleted_key_is_granted_to_nobody_from_memory() {
    let cluster = Cluster::start(2, Options::default());
    let node = cluster.node_for_key("k");
    let mut connection = node.connect();
    for begin in BEGIN {
        for line in ["DEL k", "PEXPIRE k 1", "FLUSHALL", "SET k text"] {
            println!("{begin}: {line}");
            connection.say("DEL k");
            let mut callers = waiting(node, begin);
            connection.say(line);
            for caller in &mut callers {
                let reply = caller.reply();
                assert!(reply.starts_with("-TRYAGAIN "), "{line}: {reply}");
                caller.is_in_step();
            }
        }
    }
}

#[test]
fn a_moved_slot_takes_results_and_sends_waiters_after() {
    let cluster = Cluster::start(2, Options::default());
    let from = cluster.node_for_key("k");
    let to = cluster.nodes().iter().find(|node| node.port() != from.port()).expect("there are two");
    let (mut here, mut there) = (from.connect(), to.connect());
    let (from_id, to_id) = (here.text("CLUSTER MYID"), there.text("CLUSTER MYID"));
    let slot = cluster.slot_of("k");
    ask(&mut here, "RES.IDEMP BEGIN {k}done a 1h");
    ask(&mut here, "RES.IDEMP COMMIT {k}done a 1h receipt");
    ask(&mut here, "RES.SFLIGHT JOIN {k}value a 1h");
    ask(&mut here, "RES.SFLIGHT PUBLISH {k}value a 1h VALUE bytes");
    let mut callers = waiting(from, BEGIN[0]);
    ask(&mut here, "RES.SFLIGHT JOIN {k}led a 1h");
    let mut follower = Caller::new(from);
    follower.send("RES.SFLIGHT JOIN {k}led w 1h WAIT 60s");
    all_wait(&mut here, 4);
    callers.push(follower);
    there.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
    here.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
    for key in ["k", "{k}done", "{k}value", "{k}led"] {
        here.say(&format!("MIGRATE 127.0.0.1 {} {key} 0 10000", to.port()));
    }
    for connection in [&mut there, &mut here] {
        connection.say(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
    }
    for caller in &mut callers {
        let reply = caller.reply();
        assert!(
            reply.starts_with("-TRYAGAIN ") || reply == format!("-MOVED {slot} 127.0.0.1:{}", to.port()),
            "{reply}"
        );
        caller.is_in_step();
    }
    eventually("the new home serves the slot", SOON, || there.outcome("EXISTS k") == "int(1)");
    assert!(ask(&mut there, "RES.IDEMP BEGIN {k}done b 1h").starts_with("[REPLAY ok receipt "));
    assert!(ask(&mut there, "RES.SFLIGHT GET {k}value").starts_with("[VALUE bytes "));
    assert!(ask(&mut there, "RES.SFLIGHT PUBLISH {k}led a 1h EMPTY").starts_with("[PUBLISHED "));
    assert_eq!(ask(&mut there, "RES.IDEMP COMMIT k a 1h x"), "[COMMITTED stored]");
}
