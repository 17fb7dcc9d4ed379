//! Asynchronous waits on bad days: killed connections, transactions and scripts, pauses, demotions, restarts, readers that do
//! not read. Every wait ends in exactly one verdict or its connection is gone, and what is free is held by the next.

use std::io::Write;
use std::time::{Duration, Instant};

use resil_harness::{Cluster, Options, Server, eventually, ok};

use crate::async_client::AsyncClient;
use crate::async_walk::walk;
use crate::driven::{SOON, Say};
use crate::scene::{Caller, Scene};

/// A port where nobody listens.
const NOWHERE: &str = "127.0.0.1 1";

fn nobody_waits(scene: &mut Scene) {
    let main = &mut scene.main;
    eventually("nobody waits", SOON, || {
        main.info_number("resil", "async_waiters") + main.info_number("resil", "blocked_waiters") == 0
    });
}

#[test]
fn a_connections_close_removes_its_waits_from_queues() {
    let mut scene = Scene::driven();
    let (mut goes, mut stays) = (AsyncClient::new(&scene.server), AsyncClient::new(&scene.server));
    for key in ["k", "l"] {
        scene.ask(&format!("RES.LOCK ACQUIRE {key} a 1h"));
        goes.waits(&format!("RES.LOCK ACQUIRE {key} b 1h WAIT 1m"));
        stays.waits(&format!("RES.LOCK ACQUIRE {key} c 1h WAIT 1m"));
        goes.waits(&format!("RES.LOCK ACQUIRE {key} d 1h WAIT 1m"));
    }
    drop(goes);
    let main = &mut scene.main;
    eventually("its waits have left", SOON, || main.info_number("resil", "async_waiters") == 2);
    for key in ["k", "l"] {
        assert_eq!(scene.who(key).1, ["c"]);
        scene.ask(&format!("RES.LOCK RELEASE {key} a"));
        assert_eq!(stays.notified(), "c GRANTED");
        assert_eq!(scene.who(key), (vec!["c".to_owned()], vec![]));
    }
    stays.is_silent();
}

#[test]
fn readers_behind_a_writer_whose_connection_closed_are_let_in() {
    let mut scene = Scene::driven();
    let (mut writer, mut reader) = (AsyncClient::new(&scene.server), AsyncClient::new(&scene.server));
    scene.ask("RES.LOCK ACQUIRE k r0 1h SHARED");
    writer.waits("RES.LOCK ACQUIRE k w 1h WAIT 1m");
    reader.waits("RES.LOCK ACQUIRE k r1 1h SHARED WAIT 1m");
    drop(writer);
    assert_eq!(reader.notified(), "r1 GRANTED");
}

#[test]
fn a_grant_to_a_killed_connection_goes_on() {
    const ROUNDS: usize = 100;
    let mut scene = Scene::real();
    let mut stays = AsyncClient::new(&scene.server);
    let mut director = scene.server.raw();
    for round in 0..ROUNDS {
        let mut killed = AsyncClient::new(&scene.server);
        assert_eq!(scene.verdict("RES.LOCK ACQUIRE k a 1h"), "GRANTED", "round {round}");
        killed.waits("RES.LOCK ACQUIRE k b 1h WAIT 10m");
        killed.waits("RES.LOCK ACQUIRE k c 1h WAIT 10m");
        stays.waits("RES.LOCK ACQUIRE k d 1h WAIT 10m");
        killed.waits("RES.LOCK ACQUIRE k e 1h WAIT 10m");
        let (release, kill) = ("RES.LOCK RELEASE k a", format!("CLIENT KILL ID {}", killed.id));
        // Both are read at once: the grant is published, and the server does not sleep before its connection is killed.
        let lines = match round % 4 {
            0 => format!("{release}\r\n{kill}\r\n"),
            1 => format!("MULTI\r\n{release}\r\n{kill}\r\nEXEC\r\n"),
            2 => format!("{kill}\r\n{release}\r\n"),
            _ => format!("MULTI\r\n{kill}\r\n{release}\r\nEXEC\r\n"),
        };
        director.write_all(lines.as_bytes()).expect("an open connection");
        assert_eq!(stays.notified(), "d GRANTED", "round {round}");
        let (holders, _) = scene.who("k");
        assert_eq!(holders, ["d"], "round {round}");
        assert_eq!(scene.verdict("RES.LOCK RELEASE k d"), "RELEASED", "round {round}");
        stays.is_silent();
        nobody_waits(&mut scene);
    }
    assert_eq!(scene.main.info_number("resil", "internal_errors"), 0);
}

#[test]
fn a_connection_that_closes_beside_a_release_leaves_one_holder() {
    const ROUNDS: usize = 200;
    let mut scene = Scene::real();
    let mut stays = AsyncClient::new(&scene.server);
    for round in 0..ROUNDS {
        let mut goes = AsyncClient::new(&scene.server);
        scene.ask("RES.LOCK ACQUIRE k a 1h");
        assert_eq!(goes.ask("RES.LOCK ACQUIRE k b 1h WAIT 10m ASYNC BOUND"), "[QUEUED 1]");
        stays.waits("RES.LOCK ACQUIRE k c 1h WAIT 10m");
        let ends = std::thread::spawn(move || drop(goes));
        scene.ask("RES.LOCK RELEASE k a");
        // Reported or not, it is gone, and what it held hung on its connection.
        assert_eq!(stays.notified(), "c GRANTED", "round {round}");
        assert_eq!(scene.who("k"), (vec!["c".to_owned()], vec![]), "round {round}");
        scene.ask("RES.LOCK RELEASE k c");
        stays.is_silent();
        ends.join().expect("a thread that closes");
    }
}

#[test]
fn a_verdict_does_not_come_in_the_middle_of_exec() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    let ways: [(&str, &str, &str); 6] = [
        ("RES.LOCK RELEASE k a", "[RELEASED 0]", "b GRANTED"),
        ("RES.LOCK BREAK k", "1", "b GRANTED"),
        ("RES.LOCK ACQUIRE k b 1h", "[TAKEN a ", "b -SUPERSEDED"),
        ("RES.LOCK RELEASE k b", "[RELEASED 0]", "b -SUPERSEDED"),
        ("DEL k", "1", "b GRANTED"),
        ("FLUSHALL", "OK", "b GRANTED"),
    ];
    for (line, reply, reported) in ways {
        scene.ask("FLUSHALL");
        scene.ask("RES.LOCK ACQUIRE k a 1h");
        client.waits("RES.LOCK ACQUIRE k b 1h WAIT 10m");
        assert_eq!(client.ask("MULTI"), "OK");
        for line in ["ECHO before", line, "ECHO after"] {
            assert_eq!(client.ask(line), "QUEUED");
        }
        let all = client.ask("EXEC");
        assert!(all.starts_with(&format!("[before {reply}")) && all.ends_with(" after]"), "{line}: {all}");
        assert!(!all.contains('>'), "{line}: {all}");
        assert_eq!(client.notified(), reported, "{line}");
        client.is_silent();
    }
}

#[test]
fn an_ending_that_a_transaction_meets_is_reported_after_it() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    for line in ["RES.LOCK CHECK k b", "RES.LOCK INFO k", "RES.LOCK ACQUIRE k x 1h", "RES.LOCK RELEASE k x", "EXISTS k"]
    {
        scene.ask("FLUSHALL");
        let mut holder = Caller::new(&scene.server);
        holder.send("RES.LOCK ACQUIRE k a 1h BOUND");
        assert_eq!(holder.verdict(), "GRANTED");
        client.waits("RES.LOCK ACQUIRE k b 1h WAIT 10m");
        client.ask("MULTI");
        client.ask(&format!("CLIENT KILL ID {}", holder.id));
        client.ask(line);
        client.ask("ECHO after");
        let all = client.ask("EXEC");
        assert!(all.starts_with("[1 ") && all.ends_with(" after]") && !all.contains('>'), "{line}: {all}");
        assert_eq!(client.notified(), "b GRANTED", "{line}");
        client.is_silent();
    }
}

#[test]
fn a_demotion_inside_of_a_transaction_is_reported_after_it() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    client.waits("RES.LOCK ACQUIRE k b 1h WAIT 10m");
    client.ask("MULTI");
    client.ask("ECHO before");
    client.ask(&format!("REPLICAOF {NOWHERE}"));
    client.ask("ECHO after");
    assert_eq!(client.ask("EXEC"), "[before OK after]");
    assert_eq!(client.notified(), "b -UNBLOCKED");
    client.is_silent();
}

#[test]
fn inside_multi_and_scripts_wait_means_try_once() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    client.ask("MULTI");
    client.ask("RES.LOCK ACQUIRE k b 1h WAIT 1m ASYNC");
    assert_eq!(client.ask("EXEC"), "[[TAKEN a 3600000 0]]");
    let script = "return redis.call('RES.LOCK','ACQUIRE',KEYS[1],ARGV[1],'1h','WAIT','1m','ASYNC')";
    client.send_words(&[b"EVAL", script.as_bytes(), b"1", b"k", b"b"]);
    assert_eq!(client.reply(), "[TAKEN a 3600000 0]");
    assert_eq!(scene.who("k").1, Vec::<String>::new());
    // A script that lets go serves those who wait, after its own reply has begun or not.
    client.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    let script = "redis.call('RES.LOCK','RELEASE',KEYS[1],'a'); return {1, {2, 3}}";
    client.send_words(&[b"EVAL", script.as_bytes(), b"1", b"k"]);
    assert_eq!(client.reply(), "[1 [2 3]]");
    assert_eq!(client.notified(), "b GRANTED");
    client.is_silent();
}

#[test]
fn a_wait_ends_in_a_pause_and_hands_over_later() {
    let mut scene = Scene::real();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let mut holder = scene.server.connect();
    holder.say("RES.LOCK ACQUIRE l a 1h BOUND");
    client.waits("RES.LOCK ACQUIRE l c 1h WAIT 10m");
    client.waits("RES.LOCK ACQUIRE k b 1h WAIT 300ms");
    let began = Instant::now();
    scene.ask("CLIENT PAUSE 1500 WRITE");
    drop(holder);
    assert_eq!(client.notified(), "b TIMEOUT");
    assert!(began.elapsed() < Duration::from_millis(1_400), "{:?}", began.elapsed());
    assert_eq!(client.notified(), "c GRANTED");
    assert!(began.elapsed() >= Duration::from_millis(1_400), "{:?}", began.elapsed());
    client.is_silent();
}

#[test]
fn a_demotion_ends_every_wait_and_a_promotion_begins_anew() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    for number in 0..500 {
        client.waits(&format!("RES.LOCK ACQUIRE k w{number} 1h WAIT 10m"));
    }
    scene.ask(&format!("REPLICAOF {NOWHERE}"));
    for number in 0..500 {
        assert_eq!(client.notified(), format!("w{number} -UNBLOCKED"));
    }
    client.is_silent();
    nobody_waits(&mut scene);
    assert!(client.ask("RES.LOCK ACQUIRE k b 1h WAIT 10m ASYNC").starts_with("-READONLY "));
    scene.ask("REPLICAOF NO ONE");
    assert_eq!(client.waits("RES.LOCK ACQUIRE k b 1h WAIT 10m"), 1);
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(client.notified(), "b GRANTED");
    client.is_silent();
}

#[test]
fn a_connection_that_closes_on_a_replica_leaves_nothing_behind() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    for number in 0..500 {
        client.waits(&format!("RES.LOCK ACQUIRE k w{number} 1h WAIT 10m"));
    }
    let id = client.id;
    scene.at_once(&[&format!("REPLICAOF {NOWHERE}"), &format!("CLIENT KILL ID {id}")]);
    nobody_waits(&mut scene);
    scene.ask("REPLICAOF NO ONE");
    let mut next = AsyncClient::new(&scene.server);
    assert_eq!(next.waits("RES.LOCK ACQUIRE k b 1h WAIT 10m"), 1);
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(next.notified(), "b GRANTED");
}

#[test]
fn nobody_waits_after_a_restart() {
    let mut server = Server::start(Options::default().config("appendonly", "yes"));
    let mut client = AsyncClient::new(&server);
    client.ask("RES.LOCK ACQUIRE k a 1h");
    client.waits("RES.LOCK ACQUIRE k b 1h WAIT 10m");
    server.restart_after_terminate();
    assert_eq!(client.reply(), "closed");
    let mut scene = Scene { main: server.connect(), server };
    assert_eq!(scene.who("k"), (vec!["a".to_owned()], vec![]));
    assert_eq!(scene.verdict("RES.LOCK RELEASE k a"), "RELEASED");
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k c 1h"), "GRANTED");
}

#[test]
fn a_reader_that_does_not_read_hurts_only_itself() {
    const MANY: usize = 2_000;
    let mut scene = Scene::real();
    ok(&mut scene.main, &["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0"]);
    ok(&mut scene.main, &["SET", "large", &"x".repeat(1 << 20)]);
    let (mut slow, mut other) = (AsyncClient::new(&scene.server), AsyncClient::new(&scene.server));
    scene.ask("RES.LOCK ACQUIRE k writer 1h");
    for number in 0..MANY {
        slow.ask(&format!("RES.LOCK ACQUIRE k r{number} 1h SHARED WAIT 10m ASYNC"));
    }
    scene.ask("RES.LOCK ACQUIRE l a 1h");
    slow.waits("RES.LOCK ACQUIRE l b 1h WAIT 10m");
    other.waits("RES.LOCK ACQUIRE l c 1h WAIT 10m");
    // Its socket is full from now on.
    for _ in 0..20 {
        slow.send("GET large");
    }
    let mut main = scene.server.connect();
    eventually("its socket is full", SOON, || {
        let list = main.text(&format!("CLIENT LIST ID {}", slow.id));
        let unsent = list.split(' ').find_map(|word| word.strip_prefix("omem=")?.parse::<u64>().ok());
        unsent.is_some_and(|unsent| unsent > 1 << 20)
    });
    let began = Instant::now();
    scene.ask("RES.LOCK RELEASE k writer");
    scene.ask("RES.LOCK RELEASE l a");
    nobody_waits_but(&mut scene, 1);
    // It holds what it was granted, as far as the server knows, until it is gone.
    assert_eq!(scene.who("l").0, ["b"]);
    scene.ask("RES.LOCK RELEASE l b");
    assert_eq!(other.notified(), "c GRANTED");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // It reads after all: nothing was lost, and nothing came twice.
    for _ in 0..20 {
        assert_eq!(slow.reply().len(), 1 << 20);
    }
    let mut reported: Vec<String> = (0..=MANY).map(|_| slow.notified()).collect();
    reported.sort();
    let mut expected: Vec<String> = (0..MANY).map(|number| format!("r{number} GRANTED")).collect();
    expected.push("b GRANTED".to_owned());
    expected.sort();
    assert_eq!(reported, expected);
    slow.is_silent();
}

fn nobody_waits_but(scene: &mut Scene, count: i64) {
    let main = &mut scene.main;
    eventually("all others are served", SOON, || main.info_number("resil", "async_waiters") == count);
}

/// It listens to the channel of a key in a cluster.
fn in_cluster(node: &Server, tag: &str) -> AsyncClient {
    let mut client = AsyncClient::deaf(node);
    let id = client.id;
    client.send(&format!("SSUBSCRIBE resil:wait:{id}:{{{tag}}}"));
    client.is_silent();
    client
}

#[test]
fn in_a_cluster_verdicts_use_the_slots_channel() {
    let cluster = Cluster::start(2, Options::default());
    let node = cluster.node_for_key("k");
    let mut scene = node.connect();
    scene.say("RES.LOCK ACQUIRE k a 1h");
    scene.say("RES.LOCK ACQUIRE x{k}y a 1h");
    let mut client = in_cluster(node, "k");
    client.waits("RES.LOCK ACQUIRE k b 1h WAIT 10m");
    client.waits("RES.LOCK ACQUIRE x{k}y b 1h WAIT 10m");
    scene.say("RES.LOCK RELEASE k a");
    scene.say("RES.LOCK RELEASE x{k}y a");
    assert_eq!((client.late().key, client.late().key), ("k".to_owned(), "x{k}y".to_owned()));
    // No other channel counts, and no hash tag leads to this key.
    let mut elsewhere = in_cluster(node, "k");
    elsewhere.send(&format!("SUNSUBSCRIBE resil:wait:{}:{{k}}", elsewhere.id));
    elsewhere.is_silent();
    assert!(elsewhere.ask("RES.LOCK ACQUIRE k c 1h WAIT 10m ASYNC").starts_with("-NOTLISTENING "));
    client.is_silent();
}

#[test]
fn no_cluster_verdict_comes_in_the_middle_of_exec() {
    let cluster = Cluster::start(1, Options::default());
    let mut client = in_cluster(&cluster.nodes()[0], "k");
    client.ask("RES.LOCK ACQUIRE k a 1h");
    client.waits("RES.LOCK ACQUIRE k b 1h WAIT 10m");
    client.ask("MULTI");
    for line in ["ECHO before", "DEL k", "RES.LOCK ACQUIRE k c 1h", "ECHO after"] {
        assert_eq!(client.ask(line), "QUEUED");
    }
    let all = client.ask("EXEC");
    assert!(all.starts_with("[before 1 [GRANTED ") && all.ends_with(" after]") && !all.contains('>'), "{all}");
    assert_eq!(client.notified(), "b -TRYAGAIN");
    client.is_silent();
}

#[test]
fn a_slot_that_moves_sends_asynchronous_waiters_after_it() {
    let cluster = Cluster::start(2, Options::default());
    let from = cluster.node_for_key("k");
    let to = cluster.nodes().iter().find(|node| node.port() != from.port()).expect("there are two");
    let (mut here, mut there) = (from.connect(), to.connect());
    let (from_id, to_id, slot) = (here.text("CLUSTER MYID"), there.text("CLUSTER MYID"), cluster.slot_of("k"));
    here.say("RES.LOCK ACQUIRE k a 1h");
    here.say("RES.LOCK ACQUIRE {k}2 a 1h");
    let mut client = in_cluster(from, "k");
    for owner in ["b", "c", "d"] {
        client.waits(&format!("RES.LOCK ACQUIRE k {owner} 1h WAIT 10m"));
    }
    there.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
    here.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
    here.say(&format!("MIGRATE 127.0.0.1 {} k 0 10000", to.port()));
    for owner in ["b", "c", "d"] {
        let late = client.late();
        assert_eq!((late.owner.as_str(), &late.reply[..10]), (owner, "-TRYAGAIN "), "{}", late.reply);
    }
    // This one is overtaken by the move itself: the server ends the subscription with the slot, and says so.
    let moving = client.ask("RES.LOCK ACQUIRE {k}2 b 1h WAIT 10m ASYNC");
    assert_eq!(moving, "[QUEUED 1]");
    here.say(&format!("MIGRATE 127.0.0.1 {} {{k}}2 0 10000", to.port()));
    for connection in [&mut there, &mut here] {
        connection.say(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
    }
    eventually("it is notified, or its channel is gone", SOON, || {
        client.poll();
        !client.take_late().is_empty() || client.has_lost_a_channel
    });
    eventually("nobody waits here", SOON, || here.info_number("resil", "async_waiters") == 0);
    eventually("the new home serves the slot", SOON, || there.outcome("EXISTS k") == "int(1)");
    let mut anew = in_cluster(to, "k");
    anew.waits("RES.LOCK ACQUIRE k b 1h WAIT 10m");
    there.say("RES.LOCK RELEASE k a");
    assert_eq!(anew.notified(), "b GRANTED");
}

#[test]
fn every_wait_of_a_walk_ends_in_one_verdict() {
    walk(Options::default(), 6_000);
}
