//! A long random walk over a few keys in two databases: whatever was done, the replica and the file say the same.

use std::collections::BTreeMap;
use std::fs;

use fastrand::Rng;
use redis::Connection;
use resil_harness::{Server, eventually, ok, wait_for_sync};

use crate::asked::{Asked, Caller};
use crate::driven::{SOON, Say, driven, start_with};
use crate::seed::seeded;
use crate::shapes::seen;

const STEPS: usize = 1_000;

struct Walk {
    server: Server,
    connection: Connection,
    /// Connections that hold by BOUND.
    keepers: Vec<Connection>,
    callers: Vec<Caller>,
    now_ms: i64,
    db: i32,
}

impl Walk {
    fn step(&mut self, rng: &mut Rng) {
        let key = format!("k{}", rng.u32(..4));
        let room = format!("b{}", rng.u32(..3));
        let owner = format!("o{}", rng.u32(..5));
        let lease = ["10ms", "500ms", "2s", "10s", "60s"][rng.usize(..5)];
        let mode = if rng.bool() { "SHARED" } else { "" };
        let line = match rng.u32(..26) {
            0..4 => format!("RES.LOCK ACQUIRE {key} {owner} {lease} {mode}"),
            4..6 => format!("RES.LOCK RENEW {key} {owner} {lease}"),
            6..8 => format!("RES.LOCK RELEASE {key} {owner}"),
            8 => format!("RES.LOCK BREAK {key}"),
            9..11 => format!("RES.BULKHEAD ENTER {room} {owner} {} {lease}", rng.u32(1..4)),
            11 => format!("RES.BULKHEAD LEAVE {room} {owner}"),
            12 => format!("DEL {key} {room}"),
            13 => format!("RENAME {key} k{}", rng.u32(..4)),
            14 => format!("COPY {key} k{} REPLACE", rng.u32(..4)),
            15 => format!("PEXPIREAT {key} {}", [1, 4_200_000_000_000i64][rng.usize(..2)]),
            16 => return self.wait(&format!("RES.LOCK ACQUIRE {key} {owner} {lease} WAIT {lease} {mode}"), rng),
            17 => return self.wait(&format!("RES.BULKHEAD ENTER {room} {owner} 1 {lease} WAIT 2s"), rng),
            18 => return self.bind(&format!("RES.LOCK ACQUIRE {key} {owner} {lease} {mode} BOUND"), rng),
            19 => {
                let script = "redis.call('RES.LOCK', 'RELEASE', KEYS[1], ARGV[1]) \
                              return redis.call('RES.LOCK', 'ACQUIRE', KEYS[1], ARGV[2], '5s')";
                let next = format!("o{}", rng.u32(..5));
                drop(resil_harness::reply(&mut self.connection, &["EVAL", script, "1", &key, &owner, &next]));
                return;
            }
            20 => {
                self.db = 3 - self.db;
                format!("SELECT {}", self.db)
            }
            21 => format!("MOVE {key} {}", 3 - self.db),
            22 if rng.u32(..4) == 0 => {
                ["FLUSHDB", "FLUSHALL ASYNC", "SWAPDB 0 3", "SWAPDB 3 0"][rng.usize(..4)].to_owned()
            }
            _ => {
                self.now_ms += [1, 9, 100, 700, 3_000, 20_000][rng.usize(..6)];
                return self.connection.clock_at_ms(self.now_ms);
            }
        };
        self.connection.ask(&line);
    }

    /// Somebody else asks, and may have to wait; sometimes the one who asked longest ago goes away.
    fn wait(&mut self, line: &str, rng: &mut Rng) {
        self.callers.push(Caller::calls_in(&self.server, self.db, line));
        if self.callers.len() > 10 || rng.u32(..3) == 0 {
            drop(self.callers.remove(0));
        }
    }

    /// The same by a connection of its own, which closes some time.
    fn bind(&mut self, line: &str, rng: &mut Rng) {
        let mut keeper = self.server.connect();
        keeper.say(&format!("SELECT {}", self.db));
        keeper.ask(line);
        self.keepers.push(keeper);
        if self.keepers.len() > 5 {
            let index = rng.usize(..self.keepers.len());
            self.keepers[index].ask("RES.HEARTBEAT");
            drop(self.keepers.remove(0));
        }
    }
}

fn both(connection: &mut Connection) -> BTreeMap<i32, BTreeMap<Vec<u8>, (String, i64)>> {
    let of = |db: i32, connection: &mut Connection| {
        connection.say(&format!("SELECT {db}"));
        (db, seen(connection))
    };
    [of(0, connection), of(3, connection)].into()
}

#[test]
fn after_a_thousand_steps_replica_and_file_are_equal() {
    let mut rng = seeded("a walk over locks");
    let options = driven().config("appendonly", "yes").config("appendfsync", "always");
    let (server, connection) = start_with(options.config("auto-aof-rewrite-percentage", "0"));
    let replica = Server::replica_of(&server, driven());
    let mut walk = Walk { server, connection, keepers: vec![], callers: vec![], now_ms: 0, db: 0 };
    for _ in 0..STEPS {
        walk.step(&mut rng);
    }
    // A walk may end right after a flush: what is compared must never be nothing.
    walk.connection.ask("RES.LOCK ACQUIRE last o 60s");
    walk.callers.clear();
    walk.keepers.clear();
    let Walk { mut server, mut connection, .. } = walk;
    let mut before = both(&mut connection);
    eventually("all who went are gone", SOON, || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        let now = both(&mut connection);
        let idle =
            connection.info_number("resil", "blocked_waiters") == 0 && connection.info_number("resil", "bound") == 0;
        std::mem::replace(&mut before, now.clone()) == now && idle
    });
    assert!(before.values().any(|keys| !keys.is_empty()));
    wait_for_sync(&server, &replica);
    assert_eq!(both(&mut replica.connect()), before, "on the replica");
    assert_eq!(replica.connect().info_number("resil", "apply_refused"), 0);
    assert_eq!(connection.info_number("resil", "internal_errors"), 0);
    // One who loads the file as a replica of nobody looks at it and changes nothing.
    server.kill9();
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("appendonlydir");
    fs::create_dir(&target).unwrap();
    for entry in fs::read_dir(server.dir().join("appendonlydir")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
    }
    let options = driven().config("appendonly", "yes").config("replicaof", "127.0.0.1 1").dir(folder.path());
    let from_file = Server::start(options);
    assert_eq!(both(&mut from_file.connect()), before, "from the file");
    drop(ok(&mut from_file.connect(), &["PING"]));
}
