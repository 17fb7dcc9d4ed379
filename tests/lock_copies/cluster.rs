//! Locks in a cluster: a slot that moves takes its locks along, those who wait are sent after it, and no node ever
//! hands out what might live on another.

use std::time::Duration;

use redis::{Connection, Value};
use resil_harness::{Cluster, Options, Server, eventually, ok, wait_for_sync};

use crate::asked::{Asked, Caller, Ear, waiters};
use crate::driven::{SOON, Say};

fn node_id(node: &Server) -> String {
    node.connect().text("CLUSTER MYID")
}

/// A slot's home and where it shall go.
struct Move<'a> {
    slot: usize,
    from: &'a Server,
    to: &'a Server,
    here: Connection,
    there: Connection,
}

impl<'a> Move<'a> {
    fn of(cluster: &'a Cluster, key: &str) -> Self {
        let from = cluster.node_for_key(key);
        let to = cluster.nodes().iter().find(|node| node.port() != from.port()).expect("there are two");
        Self { slot: cluster.slot_of(key), from, to, here: from.connect(), there: to.connect() }
    }

    fn begin(&mut self) {
        self.there.say(&format!("CLUSTER SETSLOT {} IMPORTING {}", self.slot, node_id(self.from)));
        self.here.say(&format!("CLUSTER SETSLOT {} MIGRATING {}", self.slot, node_id(self.to)));
    }

    fn migrate(&mut self, key: &str) {
        self.here.say(&format!("MIGRATE 127.0.0.1 {} {key} 0 10000", self.to.port()));
    }

    fn end(&mut self) {
        let order = format!("CLUSTER SETSLOT {} NODE {}", self.slot, node_id(self.to));
        self.there.say(&order);
        self.here.say(&order);
    }

    fn moved(&self) -> String {
        format!("MOVED {} 127.0.0.1:{}", self.slot, self.to.port())
    }

    /// Every one of them is sent after the key.
    #[track_caller]
    fn assert_sent_after(&self, callers: &mut [Caller]) {
        for caller in callers {
            let reply = caller.reply();
            assert!(reply.starts_with("TRYAGAIN ") || reply == self.moved(), "{reply}");
        }
    }
}

#[test]
fn a_slot_moved_by_key_takes_lock_and_waiters_along() {
    let cluster = Cluster::start(2, Options::default());
    let mut moving = Move::of(&cluster, "k");
    let mut ear = Ear::at(moving.from);
    let fence = moving.here.hold("k a 1h META m");
    let mut callers = waiters(moving.from, "k", 50, "1h WAIT 60s");
    moving.begin();
    // Those who wait go on waiting while the key is still here.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(moving.here.look("k").waiters.len(), 50);
    moving.migrate("k");
    moving.assert_sent_after(&mut callers);
    moving.there.say("ASKING");
    assert_eq!(moving.there.ask("RES.LOCK CHECK k a"), "1");
    moving.end();
    eventually("the new home serves the slot", SOON, || moving.there.ask("EXISTS k") == "1");
    let look = moving.there.look("k");
    assert_eq!((look.owners(), look.holders[0].fence), (vec!["a"], fence));
    assert_eq!(moving.here.ask("RES.LOCK CHECK k a"), moving.moved());
    assert_eq!(ear.losses(), Vec::<String>::new(), "it moved: it is not lost");
    // They ask again, and it goes on in order and upwards.
    let mut callers = waiters(moving.to, "k", 3, "1h WAIT 60s");
    assert!(moving.there.ask("RES.LOCK RELEASE k a").starts_with("RELEASED "));
    assert!(callers[0].granted() > fence);
    assert_eq!(moving.here.integer("DBSIZE"), 0, "the old home has nothing of it");
}

#[test]
fn waiters_of_a_key_that_moves_are_not_granted_here() {
    let cluster = Cluster::start(2, Options::default());
    let mut moving = Move::of(&cluster, "k");
    let fence = moving.here.hold("k a 1h");
    let mut callers = waiters(moving.from, "k", 20, "1h WAIT 60s");
    // Faster than this node looks at its slots.
    moving.begin();
    moving.migrate("k");
    moving.end();
    moving.assert_sent_after(&mut callers);
    eventually("the new home serves the slot", SOON, || moving.there.ask("EXISTS k") == "1");
    assert_eq!(moving.there.look("k").holders[0].fence, fence);
    assert_eq!(moving.here.integer("DBSIZE"), 0);
}

#[test]
fn waiters_of_a_slot_that_left_learn_where() {
    let cluster = Cluster::start(2, Options::default());
    let mut moving = Move::of(&cluster, "k");
    moving.here.hold("k a 1h");
    let mut callers = waiters(moving.from, "k", 5, "1h WAIT 60s");
    // An operator that forgot the keys: this node deletes them when it learns of it.
    moving.there.say(&format!("CLUSTER SETSLOT {} IMPORTING {}", moving.slot, node_id(moving.from)));
    moving.end_without_source();
    moving.assert_sent_after(&mut callers);
}

impl Move<'_> {
    /// Only the new home is notified; the old one learns of it by gossip.
    fn end_without_source(&mut self) {
        let order = format!("CLUSTER SETSLOT {} NODE {}", self.slot, node_id(self.to));
        self.there.say(&order);
        self.there.say("CLUSTER BUMPEPOCH");
    }
}

#[test]
fn timers_leave_a_moving_slot_alone() {
    let cluster = Cluster::start(2, Options::default());
    let mut moving = Move::of(&cluster, "k");
    let mut ear = Ear::at(moving.from);
    let mut holder = moving.from.connect();
    let fence = moving.here.hold("k a 700ms");
    holder.hold("{k}b b 1h BOUND");
    let mut impatient = Caller::calls(moving.from, "RES.LOCK ACQUIRE k c 1h WAIT 900ms");
    eventually("it waits", SOON, || moving.here.look("k").waiters.len() == 1);
    moving.begin();
    let before = [moving.here.digest("k"), moving.here.digest("{k}b")];
    std::thread::sleep(Duration::from_millis(60));
    drop(holder);
    let reply = impatient.reply();
    assert!(reply.starts_with("TIMEOUT "), "{reply}");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!([moving.here.digest("k"), moving.here.digest("{k}b")], before);
    assert_eq!(ear.losses(), Vec::<String>::new());
    // It stays after all: what was to be done is done.
    moving.here.say(&format!("CLUSTER SETSLOT {} STABLE", moving.slot));
    moving.there.say(&format!("CLUSTER SETSLOT {} STABLE", moving.slot));
    eventually("the lease is ended", SOON, || ear.losses().contains(&format!("k a {fence} expired")));
}

#[test]
fn a_bound_holder_closed_during_a_move_is_not_forgotten() {
    let cluster = Cluster::start(2, Options::default());
    let mut moving = Move::of(&cluster, "k");
    let mut ear = Ear::at(moving.from);
    let mut holder = moving.from.connect();
    let fence = holder.hold("k a 1h BOUND");
    moving.begin();
    let before = moving.here.digest("k");
    std::thread::sleep(Duration::from_millis(60));
    drop(holder);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(moving.here.digest("k"), before);
    // It stays after all: its holder is gone all the same.
    moving.here.say(&format!("CLUSTER SETSLOT {} STABLE", moving.slot));
    moving.there.say(&format!("CLUSTER SETSLOT {} STABLE", moving.slot));
    assert_eq!(ear.hear_one(Duration::from_secs(3)), format!("k a {fence} closed"));
}

#[test]
fn a_deleted_key_is_granted_to_nobody_from_memory() {
    let cluster = Cluster::start(2, Options::default());
    let node = cluster.node_for_key("k");
    let (mut connection, mut holder, mut ear) = (node.connect(), node.connect(), Ear::at(node));
    for line in ["DEL k", "UNLINK k", "PEXPIRE k 1", "FLUSHALL", "SET k text"] {
        println!("{line}");
        connection.ask("DEL k");
        let fence = holder.hold("k a 1h BOUND");
        let before = ear.losses().len();
        let mut callers = waiters(node, "k", 3, "1h WAIT 60s");
        connection.say(line);
        for caller in &mut callers {
            let reply = caller.reply();
            assert!(reply.starts_with("TRYAGAIN "), "{line}: {reply}");
        }
        let losses = ear.losses().split_off(before);
        assert!(losses.contains(&format!("k a {fence} absent")), "{line}: {losses:?}");
        assert_eq!(holder.ask("RES.HEARTBEAT"), format!("[0, [k {fence} absent]]"));
        if line != "SET k text" {
            assert_eq!(connection.integer("EXISTS k"), 0);
        }
    }
    connection.say("DEL k");
    assert!(connection.hold("k b 1h") > 0);
}

#[test]
fn a_slot_moved_as_a_whole_takes_its_locks_along() {
    let cluster = Cluster::start(2, Options::default());
    let known = ok(&mut cluster.nodes()[0].connect(), &["COMMAND", "INFO", "CLUSTER|MIGRATESLOTS"]);
    if known == Value::Array(vec![Value::Nil]) {
        return println!("skipped: this server cannot move a slot as a whole");
    }
    let mut moving = Move::of(&cluster, "k");
    let mut holder = moving.from.connect();
    let fence = holder.hold("k a 1h BOUND");
    for number in 0..200 {
        moving.here.hold(&format!("{{k}}{number} a 1h"));
    }
    // A short lease that is renewed and one that ends while the snapshot is on its way.
    let mut keeper = moving.from.connect();
    keeper.hold("{k}bound a 300ms BOUND");
    moving.here.hold("{k}short a 300ms");
    let mut callers = waiters(moving.from, "k", 50, "1h WAIT 60s");
    moving.here.say("CONFIG SET rdb-key-save-delay 2500");
    let (slot, to) = (moving.slot, node_id(moving.to));
    moving.here.say(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {to}"));
    eventually("the new home serves the slot", SOON, || {
        keeper.ask("RES.HEARTBEAT");
        moving.there.ask("EXISTS k") == "1"
    });
    moving.assert_sent_after(&mut callers);
    let look = moving.there.look("k");
    assert_eq!((look.owners(), look.holders[0].fence), (vec!["a"], fence));
    assert!((0..200).all(|number| moving.there.holds(&format!("{{k}}{number}"), "a")));
    assert!(!moving.there.holds("{k}short", "a"));
    eventually("the old home has nothing left", SOON, || moving.here.integer("DBSIZE") == 0);
    moving.there.say("RES.LOCK BREAK k");
    assert!(moving.there.hold("k b 1h") > fence);
    assert_eq!(moving.there.info_number("resil", "apply_refused"), 0);
    eventually("the short bound lease ends", SOON, || !moving.there.holds("{k}bound", "a"));
}

/// The one case in which fences can fall, as docs/guarantees.md says it: a node was loaded or promoted within `fence-jump`,
/// and the key did not move along with its slot. A key that moves carries its fence.
#[test]
fn a_fence_falls_only_for_keys_deleted_before_moving() {
    const JUMP_US: u64 = 60_000_000;
    let cluster = Cluster::start(2, Options::default());
    for deleted in [false, true] {
        let mut moving = Move::of(&cluster, "k");
        // As after a restart: its fences start a jump ahead of the clock.
        moving.here.say("DEBUG RELOAD");
        let before = moving.here.hold("k a 1h");
        if deleted {
            moving.here.say("DEL k");
        }
        moving.begin();
        if !deleted {
            moving.migrate("k");
        }
        moving.end();
        eventually("the new home serves the slot", SOON, || moving.there.ask("EXISTS k") != "CLUSTERDOWN");
        if !deleted {
            moving.there.say("RES.LOCK BREAK k");
        }
        let after = moving.there.hold("k b 1h");
        moving.there.say("RES.LOCK RELEASE k b");
        if deleted {
            assert!(
                after < before && before - after < JUMP_US,
                "{after} after {before}: then say so in the guarantees"
            );
        } else {
            assert!(after > before, "{after} after {before}");
            return_home(&mut moving);
        }
    }
}

/// The slot goes back to where it was, without its key.
fn return_home(moving: &mut Move<'_>) {
    moving.there.say("DEL k");
    let (slot, home) = (moving.slot, node_id(moving.from));
    moving.here.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", node_id(moving.to)));
    moving.there.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {home}"));
    for connection in [&mut moving.here, &mut moving.there] {
        connection.say(&format!("CLUSTER SETSLOT {slot} NODE {home}"));
    }
}

/// Nobody asks for them at their new home: they end by its timer, and their owners hear of it.
#[test]
fn leases_in_a_moved_slot_end_with_their_events() {
    let cluster = Cluster::start(2, Options::default());
    let known = ok(&mut cluster.nodes()[0].connect(), &["COMMAND", "INFO", "CLUSTER|MIGRATESLOTS"]);
    if known == Value::Array(vec![Value::Nil]) {
        return println!("skipped: this server cannot move a slot as a whole");
    }
    let mut moving = Move::of(&cluster, "k");
    let mut ear = Ear::at(moving.to);
    let fence = moving.here.hold("k a 4s");
    let mut keeper = moving.from.connect();
    let bound = keeper.hold("{k}bound b 1h BOUND GRACE 4s");
    moving.here.say("RES.IDEMP BEGIN {k}run c 4s");
    moving.here.say("RES.SFLIGHT JOIN {k}lead d 4s");
    moving.here.say("RES.BULKHEAD ENTER {k}room e 3 4s");
    drop(keeper);
    let (slot, to) = (moving.slot, node_id(moving.to));
    moving.here.say(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {to}"));
    eventually("the new home serves the slot", SOON, || moving.there.ask("EXISTS k") == "1");
    eventually("all have ended", SOON, || ear.losses().len() >= 5);
    let losses = ear.losses();
    assert!(losses.contains(&format!("k a {fence} expired")), "{losses:?}");
    assert!(losses.contains(&format!("{{k}}bound b {bound} expired")), "{losses:?}");
    assert_eq!(losses.len(), 5, "{losses:?}");
}

/// A replica of the key's home, in step with it.
fn replica_for(cluster: &Cluster, key: &str) -> Server {
    let primary = cluster.node_for_key(key);
    let replica = Server::start(Options::default().cluster());
    let mut on_replica = replica.connect();
    for node in cluster.nodes() {
        on_replica.say(&format!("CLUSTER MEET 127.0.0.1 {} {}", node.port(), node.cluster_bus_port()));
    }
    let known = format!("cluster_known_nodes:{}\r", cluster.nodes().len() + 1);
    eventually("everybody knows everybody", SOON, || {
        let mut all = cluster.nodes().iter().chain([&replica]).map(|node| node.connect().text("CLUSTER INFO"));
        all.all(|info| info.contains(&known) && info.contains("cluster_state:ok"))
    });
    on_replica.say(&format!("CLUSTER REPLICATE {}", node_id(primary)));
    eventually("the replica follows", SOON, || on_replica.info("replication", "master_link_status") == "up");
    replica
}

#[test]
fn the_replica_of_a_node_that_died_keeps_its_locks() {
    let cluster = Cluster::start(3, Options::default());
    let primary = cluster.node_for_key("k");
    let replica = replica_for(&cluster, "k");
    let (mut connection, mut on_replica) = (primary.connect(), replica.connect());
    let fence = connection.hold("k a 1h BOUND");
    connection.say("RES.BULKHEAD ENTER {k}b a 2 1h");
    wait_for_sync(primary, &replica);
    // As if it had died: nothing replies any more.
    primary.pause();
    on_replica.say("CLUSTER FAILOVER TAKEOVER");
    eventually("the replica serves", SOON, || on_replica.ask("RES.LOCK CHECK k a") == "1");
    let look = on_replica.look("k");
    assert_eq!((look.owners(), look.holders[0].fence, look.holders[0].bound), (vec!["a"], fence, false));
    assert!(on_replica.ask("RES.LOCK ACQUIRE k b 1h").starts_with("TAKEN a "));
    let renewed = on_replica.ask("RES.LOCK RENEW k a 1h BOUND");
    assert!(renewed.starts_with(&format!("GRANTED {fence} ")), "{renewed}");
    assert!(on_replica.ask("RES.LOCK RELEASE k a").starts_with("RELEASED "));
    assert!(on_replica.hold("k b 1h") > fence);
    // The old one comes back and follows.
    primary.resume();
    eventually("it follows the new one", SOON, || primary.connect().info("replication", "role") == "slave");
    wait_for_sync(&replica, primary);
    assert_eq!(primary.connect().digest("k"), on_replica.digest("k"));
}

#[test]
fn a_waiter_at_a_replaced_primary_is_sent_away() {
    let cluster = Cluster::start(2, Options::default());
    let primary = cluster.node_for_key("k");
    let replica = replica_for(&cluster, "k");
    primary.connect().hold("k a 1h");
    let mut callers = waiters(primary, "k", 3, "1h WAIT 3s");
    wait_for_sync(primary, &replica);
    replica.connect().say("CLUSTER FAILOVER TAKEOVER");
    eventually("the old primary follows", SOON, || primary.connect().info("replication", "role") == "slave");
    for caller in &mut callers {
        // Longer than their patience.
        let reply = caller.reply_within(Duration::from_secs(6));
        let sent_away = ["UNBLOCKED ", "MOVED ", "TRYAGAIN ", "closed"].iter().any(|word| reply.starts_with(word));
        assert!(sent_away, "who waited at the old primary heard {reply}");
    }
    assert_eq!(primary.connect().info_number("resil", "blocked_waiters"), 0);
}
