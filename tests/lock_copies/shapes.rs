//! Keys of every shape a lock or a bulkhead can have, and how a copy of them is compared.

use std::collections::BTreeMap;

use redis::Connection;
use resil_harness::{Server, eventually, ok};

use crate::asked::{Asked, Caller, waiters};
use crate::driven::{SOON, Say};

/// What keeps the shapes as they are: connections that hold or wait.
pub struct Filled {
    _keeper: Connection,
    _callers: Vec<Caller>,
}

/// Fills the server's first database. Leases last an hour by the real clock, so that nothing changes by itself later.
pub fn fill(server: &Server) -> Filled {
    let mut connection = server.connect();
    let mut keeper = server.connect();
    connection.hold("held a 1h META deploy:17");
    for number in 0..50 {
        connection.hold(&format!("shared reader{number} {}m SHARED", 60 + number));
    }
    connection.hold("released a 1h");
    connection.say("RES.LOCK RELEASE released a");
    for number in 0..40 {
        connection.hold(&format!("often a{number} 1h"));
        connection.say(&format!("RES.LOCK RELEASE often a{number}"));
    }
    for number in 0..5 {
        connection.hold(&format!("broken a{number} 1h SHARED"));
    }
    connection.say("RES.LOCK BREAK broken ACTOR me REASON test");
    connection.hold("downgraded a 1h");
    connection.hold("downgraded a 1h SHARED");
    connection.hold("renewed a 10m");
    connection.say("RES.LOCK RENEW renewed a 1h");
    connection.hold("expired a 10ms");
    connection.hold("inherited a 10ms");
    let mut callers = vec![Caller::calls(server, "RES.LOCK ACQUIRE inherited b 1h WAIT 60s")];
    callers[0].granted();
    connection.hold("waited a 1h");
    callers.extend(waiters(server, "waited", 3, "1h WAIT 600s"));
    keeper.hold("bound a 300ms BOUND META kept");
    let before = connection.digest("bound");
    eventually("the bound lease was renewed", SOON, || {
        assert_eq!(keeper.ask("RES.HEARTBEAT"), "[1, ]");
        connection.digest("bound") != before
    });
    keeper.say("RES.LOCK RENEW bound a 1h BOUND");
    {
        let mut gone = server.connect();
        gone.hold("closed a 1h BOUND");
        gone.hold("cut a 1h BOUND GRACE 30m");
    }
    for number in 0..20 {
        let lease = if number % 3 == 0 { "10ms" } else { "1h" };
        assert!(connection.ask(&format!("RES.BULKHEAD ENTER room o{number} 30 {lease}")).starts_with("GRANTED "));
    }
    for number in 10..14 {
        connection.say(&format!("RES.BULKHEAD LEAVE room o{number}"));
    }
    connection.say("RES.BULKHEAD ENTER empty a 3 1h");
    connection.say("RES.BULKHEAD LEAVE empty a");
    connection.say("RES.BULKHEAD ENTER full a 1 1h");
    callers.push(Caller::calls(server, "RES.BULKHEAD ENTER full b 1 1h WAIT 600s PRIORITY 0"));
    let words: [&[u8]; 7] =
        [b"RES.LOCK", b"ACQUIRE", b"\x00bin\xff\r\n", b"\x00\xfe owner\n", b"1h", b"META", b"\xff\x00"];
    ok(&mut connection, &words);
    eventually("what was to end has ended", SOON, || {
        !connection.holds("expired", "a")
            && !connection.holds("closed", "a")
            && connection.look("cut").holders[0].remaining_ms <= 30 * 60_000
            && !connection.look_into("room").owners().contains(&"o18")
            && connection.look_into("full").waiters.len() == 1
    });
    settle(&mut connection);
    Filled { _keeper: keeper, _callers: callers }
}

/// Waits until nothing more changes by itself: timers have noted every end.
fn settle(connection: &mut Connection) {
    let mut before = seen(connection);
    eventually("nothing changes any more", SOON, || {
        std::thread::sleep(std::time::Duration::from_millis(40));
        let now = seen(connection);
        std::mem::replace(&mut before, now.clone()) == now
    });
}

/// Digest and expiry of every key of the database.
pub fn seen(connection: &mut Connection) -> BTreeMap<Vec<u8>, (String, i64)> {
    let keys: Vec<Vec<u8>> = redis::from_redis_value(connection.say("KEYS *")).expect("keys are bytes");
    let mut look = |key: &Vec<u8>| {
        let digest = ok(connection, &[b"DEBUG", b"DIGEST-VALUE".as_slice(), key]);
        let digests: Vec<String> = redis::from_redis_value(digest).expect("digests are text");
        let expiry = redis::from_redis_value(ok(connection, &[b"PEXPIRETIME".as_slice(), key])).expect("a number");
        (digests[0].clone(), expiry)
    };
    keys.iter().map(|key| (key.clone(), look(key))).collect()
}
