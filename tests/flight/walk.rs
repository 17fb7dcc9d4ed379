//! A random walk over a few keys: whatever was done, the replica says the same.

use std::collections::BTreeMap;

use redis::Connection;
use resil_harness::{Server, eventually, wait_for_sync};

use crate::asked::{Asked, Caller};
use crate::driven::{SOON, Say, driven, start_with};
use crate::seed::seeded;
use crate::shapes::seen;

const STEPS: usize = 600;

fn both(connection: &mut Connection) -> BTreeMap<i32, BTreeMap<Vec<u8>, (String, i64)>> {
    let of = |db: i32, connection: &mut Connection| {
        connection.say(&format!("SELECT {db}"));
        (db, seen(connection))
    };
    [of(0, connection), of(3, connection)].into()
}

#[test]
fn after_six_hundred_steps_replica_and_file_are_equal() {
    let mut rng = seeded("a walk over idempotency keys and single flights");
    let options = driven().config("appendonly", "yes").config("appendfsync", "always");
    let (mut server, mut connection) = start_with(options);
    let replica = Server::replica_of(&server, driven());
    let (mut callers, mut keepers): (Vec<Caller>, Vec<Connection>) = (vec![], vec![]);
    let (mut now_ms, mut db) = (0, 0);
    for _ in 0..STEPS {
        let (work, flight) = (format!("i{}", rng.u32(..4)), format!("s{}", rng.u32(..4)));
        let token = format!("t{}", rng.u32(..4));
        let time = ["10ms", "500ms", "2s", "10s", "60s"][rng.usize(..5)];
        let rest = ["", "FINGERPRINT f", "FINGERPRINT g", "ONLAPSE HOLD", "KEEP 1s"][rng.usize(..5)];
        let line = match rng.u32(..32) {
            0..4 => format!("RES.IDEMP BEGIN {work} {token} {time} {rest}"),
            4..6 => format!("RES.IDEMP COMMIT {work} {token} {time} result {}", ["", "ERROR"][rng.usize(..2)]),
            6 => format!("RES.IDEMP ABORT {work} {token}"),
            7 => format!("RES.IDEMP RENEW {work} {token} {time}"),
            8 => format!("RES.IDEMP ONCE i{} {time} TOKEN {token}", rng.u32(3..6)),
            9..13 => format!("RES.SFLIGHT JOIN {flight} {token} {time}"),
            13 => format!("RES.SFLIGHT PUBLISH {flight} {token} {time} VALUE v STALE {time}"),
            14 => format!("RES.SFLIGHT PUBLISH {flight} {token} 0 VALUE v"),
            15 => format!("RES.SFLIGHT PUBLISH {flight} {token} {time} EMPTY"),
            16 => format!("RES.SFLIGHT PUBLISH {flight} {token} {time} ERROR why"),
            17 => format!("RES.SFLIGHT ABANDON {flight} {token} {}", ["", "RETRY 2s"][rng.usize(..2)]),
            18 => format!("RES.SFLIGHT INVALIDATE {flight} {}", ["", "SOFT"][rng.usize(..2)]),
            19 => format!("RES.SFLIGHT RENEW {flight} {token} {time}"),
            20 => format!("DEL {work} {flight}"),
            21 => format!("RENAME {work} i{}", rng.u32(..4)),
            22 => format!("COPY {flight} s{} REPLACE", rng.u32(..4)),
            23 => format!("PEXPIREAT {flight} {}", [1, 4_200_000_000_000i64][rng.usize(..2)]),
            24 | 25 => {
                let line = if rng.bool() {
                    format!("RES.IDEMP BEGIN {work} {token} {time} WAIT {time}")
                } else {
                    format!("RES.SFLIGHT JOIN {flight} {token} {time} WAIT {time}")
                };
                callers.push(Caller::calls_in(&server, db, &line));
                if callers.len() > 10 {
                    drop(callers.remove(0));
                }
                continue;
            }
            26 => {
                let mut keeper = server.connect();
                keeper.say(&format!("SELECT {db}"));
                keeper.ask(&format!("RES.IDEMP BEGIN {work} {token} {time} BOUND"));
                keeper.ask(&format!("RES.SFLIGHT JOIN {flight} {token} {time} BOUND"));
                keepers.push(keeper);
                if keepers.len() > 4 {
                    keepers[rng.usize(1..4)].ask("RES.HEARTBEAT");
                    drop(keepers.remove(0));
                }
                continue;
            }
            27 => {
                db = 3 - db;
                format!("SELECT {db}")
            }
            28 if rng.u32(..3) == 0 => ["FLUSHDB", "FLUSHALL ASYNC", "SWAPDB 0 3"][rng.usize(..3)].to_owned(),
            28 => format!("MOVE {flight} {}", 3 - db),
            _ => {
                now_ms += [1, 9, 100, 700, 3_000, 20_000][rng.usize(..6)];
                connection.clock_at_ms(now_ms);
                continue;
            }
        };
        connection.ask(&line);
    }
    // A walk may end right after a flush: what is compared must never be nothing.
    connection.ask("RES.IDEMP ONCE last 60s TOKEN t");
    callers.clear();
    keepers.clear();
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
    std::fs::create_dir(&target).unwrap();
    for entry in std::fs::read_dir(server.dir().join("appendonlydir")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
    }
    let options = driven().config("appendonly", "yes").config("replicaof", "127.0.0.1 1").dir(folder.path());
    let from_file = Server::start(options);
    assert_eq!(both(&mut from_file.connect()), before, "from the file");
}
