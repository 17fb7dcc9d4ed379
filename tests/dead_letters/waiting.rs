//! Takers that wait: in order, once answered, and never with what nobody received.

use std::io::Write;

use crate::async_client::AsyncClient;
use crate::driven::Say;
use crate::letters::{count, given, ledger, state, take};

#[test]
fn a_taker_waits_until_something_is_due() {
    let mut scene = ledger();
    let mut first = scene.waits("RES.DLQ TAKE d w0 10s WAIT 1m");
    let mut second = scene.waits("RES.DLQ TAKE d w1 10s WAIT 1m");
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    scene.ask("RES.DLQ FAIL d n ERROR e PAYLOAD p AFTER 2s");
    scene.main.clock_at_ms(500);
    let reply = first.reply();
    assert!(reply.starts_with("[TAKEN 500 10000 [[m "), "{reply}");
    scene.main.clock_at_ms(2_000);
    let reply = second.reply();
    assert!(reply.starts_with("[TAKEN 2000 10000 [[n "), "{reply}");
    first.is_in_step();
    second.is_in_step();
    scene.nobody_waits();
}

#[test]
fn a_wait_in_vain_ends_with_the_next_due_instant() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e AFTER 1m");
    let mut waiter = scene.waits("RES.DLQ TAKE d w 10s WAIT 20s");
    scene.main.clock_at_ms(20_000);
    assert_eq!(waiter.reply(), "[TIMEOUT 40000]");
    let mut unblocked = scene.waits("RES.DLQ TAKE d w 10s WAIT 20s");
    assert_eq!(scene.main.integer(&format!("CLIENT UNBLOCK {}", unblocked.id)), 1);
    assert_eq!(unblocked.reply(), "[TIMEOUT 40000]");
    let mut failed = scene.waits("RES.DLQ TAKE d w 10s WAIT 20s");
    assert_eq!(scene.main.integer(&format!("CLIENT UNBLOCK {} ERROR", failed.id)), 1);
    assert!(failed.reply().starts_with("-UNBLOCKED "));
    scene.nobody_waits();
    assert_eq!(state(&mut scene, "d", "m"), "waiting");
}

#[test]
fn nobody_waits_inside_a_transaction_or_a_script() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    let replies = scene.at_once(&["RES.DLQ TAKE d a 1s WAIT 10s", "RES.DLQ FAIL d n ERROR e", "RES.DLQ GET d n STATE"]);
    assert_eq!(replies, "[[NONE 500] [RETRY 1 500] waiting]");
    let script = "return redis.call('RES.DLQ','TAKE','d','a','1s','WAIT','10s','COUNT','5')";
    scene.main.clock_at_ms(500);
    let taken = crate::scene::shown(&resil_harness::ok(&mut scene.main, &["EVAL", script, "1", "d"]));
    assert_eq!(given(&taken).len(), 2, "{taken}");
}

#[test]
fn the_verdict_of_an_asynchronous_wait_comes_with_the_entries() {
    let mut scene = ledger();
    let mut client = AsyncClient::new(&scene.server);
    assert_eq!(client.waits("RES.DLQ TAKE d b 10s WAIT 10m"), 1);
    assert_eq!(client.waits("RES.DLQ TAKE d c 10s WAIT 10m"), 2);
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    scene.main.clock_at_ms(500);
    let late = client.late();
    assert_eq!((late.kind.as_str(), late.key.as_str(), late.owner.as_str()), ("ledger", "d", "b"));
    assert!(late.reply.starts_with("[TAKEN 500 10000 [[m "), "{}", late.reply);
    scene.ask("RES.DLQ FAIL d n ERROR e");
    scene.main.clock_at_ms(1_000);
    assert_eq!(client.notified(), "c TAKEN");
    assert_eq!(client.waits("RES.DLQ TAKE d e 10s WAIT 1m"), 1);
    scene.main.clock_at_ms(9_000);
    client.is_silent();
}

#[test]
fn what_nobody_received_goes_to_the_next_and_counts_nothing() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    let gone = scene.waits("RES.DLQ TAKE d gone 10s WAIT 1m");
    let mut stays = scene.waits("RES.DLQ TAKE d stays 10s WAIT 1m");
    let mut director = scene.server.raw();
    // Read at once: the grant and the end of the connection are one turn of the server.
    let lines = format!("RES._CLOCK {}\r\nCLIENT KILL ID {}\r\n", crate::driven::START_US + 500_000, gone.id);
    director.write_all(lines.as_bytes()).expect("an open connection");
    let reply = stays.reply();
    assert!(reply.starts_with("[TAKEN 500 10000 [[m ") && reply.contains(" 1 0 p ["), "{reply}");
    assert_eq!(scene.ask("RES.DLQ TAKE d gone 10s"), "[NONE -1]");
    assert_eq!(count(&mut scene, "d", "taken"), 1);
}

#[test]
fn an_asynchronous_taker_that_left_frees_the_entries() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    let mut client = AsyncClient::new(&scene.server);
    client.waits("RES.DLQ TAKE d gone 10s WAIT 10m");
    let id = client.id;
    scene.main.say(&format!("CLIENT KILL ID {id}"));
    scene.main.clock_at_ms(500);
    assert_eq!(take(&mut scene, "d other 10s").0, "m");
}

#[test]
fn a_paused_ledger_gives_nothing_until_its_time_is_over() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e");
    scene.ask("RES.DLQ CONFIG d PAUSED yes FOR 10s ACTOR ann");
    scene.main.clock_at_ms(1_000);
    assert_eq!(scene.ask("RES.DLQ TAKE d t 10s"), "[NONE 9000]");
    let mut waiter = scene.waits("RES.DLQ TAKE d w 10s WAIT 1m");
    scene.main.clock_at_ms(9_999);
    scene.ask("PING");
    assert_eq!(scene.waiters(), 1);
    scene.main.clock_at_ms(10_000);
    assert_eq!(waiter.verdict(), "TAKEN");
    scene.ask("RES.DLQ CONFIG d PAUSED yes ACTOR ann");
    scene.ask("RES.DLQ FAIL d n ERROR e");
    let mut waiter = scene.waits("RES.DLQ TAKE d w2 10s WAIT 1m");
    scene.main.clock_at_ms(20_000);
    scene.ask("RES.DLQ CONFIG d PAUSED no ACTOR ann");
    assert_eq!(waiter.verdict(), "TAKEN");
}

#[test]
fn the_same_token_asked_again_takes_over_the_wait() {
    let mut scene = ledger();
    let mut first = scene.waits("RES.DLQ TAKE d t 10s WAIT 1m");
    let mut again = crate::scene::Caller::new(&scene.server);
    again.send("RES.DLQ TAKE d t 10s WAIT 1m");
    assert!(first.reply().starts_with("-SUPERSEDED "));
    scene.ask("RES.DLQ FAIL d m ERROR e");
    scene.main.clock_at_ms(500);
    assert_eq!(again.verdict(), "TAKEN");
}

#[test]
fn a_thousand_entries_at_most_are_taken_at_once() {
    let mut scene = ledger();
    for part in 0..12 {
        let mut pipe = redis::pipe();
        for n in 0..100 {
            pipe.cmd("RES.DLQ").arg("FAIL").arg("d").arg(format!("m{part:02}{n:02}")).arg("ERROR").arg("e").ignore();
        }
        pipe.query::<()>(&mut scene.main).expect("all are new");
    }
    scene.main.clock_at_ms(500);
    let taken = scene.ask("RES.DLQ TAKE d t 10s COUNT 5000");
    assert_eq!(given(&taken).len(), 1_000);
    assert_eq!(given(&scene.ask("RES.DLQ TAKE d u 10s COUNT 5000")).len(), 200);
    let pairs: Vec<String> = given(&taken).iter().map(|(id, fence)| format!("{id} {fence}")).collect();
    let ended = scene.ask(&format!("RES.DLQ DONE d {}", pairs.join(" ")));
    assert_eq!(ended.matches("[DONE]").count(), 1_000);
    assert_eq!(scene.ask(&format!("RES.DLQ DONE d {} x 1", pairs.join(" "))).split(' ').next(), Some("-ERR"));
    assert_eq!(count(&mut scene, "d", "entries"), 200);
}
