//! Every way a key can leave, or be replaced: a caller that waits gets exactly one reply, and a loss is reported once.

use redis::Connection;
use resil_harness::{Flavor, Server, eventually, ok};

use crate::asked::Ear;
use crate::driven::{SOON, Say};
use crate::scene::Caller;
use crate::talk::{all_wait, ask, number};

/// What is asked of both machines in the same way.
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    name: &'static str,
    begin: &'static str,
    granted: &'static str,
    end: &'static str,
    reported: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "idempotency",
        begin: "RES.IDEMP BEGIN",
        granted: "RUN",
        end: "RES.IDEMP COMMIT k TOKEN 1h done",
        reported: "[REPLAY ok done ",
    },
    Kind {
        name: "flight",
        begin: "RES.SFLIGHT JOIN",
        granted: "LEAD",
        end: "RES.SFLIGHT PUBLISH k TOKEN 1h VALUE done",
        reported: "[VALUE done ",
    },
];

/// A key `k` that `a` has, and `w0`, `w1`, `w2` wait for.
struct Place {
    kind: Kind,
    server: Server,
    connection: Connection,
    fence: i64,
    waiters: Vec<Caller>,
    ear: Ear,
}

impl Place {
    fn of(kind: Kind) -> Self {
        let server = Server::fresh();
        let mut connection = server.connect();
        let ear = Ear::at(&server);
        let fence = number(&ask(&mut connection, &format!("{} k a 1h", kind.begin)), 1);
        let mut waiters = Vec::new();
        for index in 0..3 {
            let mut caller = Caller::new(&server);
            caller.send(&format!("{} k w{index} 1h WAIT 60s", kind.begin));
            all_wait(&mut connection, index + 1);
            waiters.push(caller);
        }
        Self { kind, server, connection, fence, waiters, ear }
    }

    /// The first in the queue has it, and ends it; the others learn what it brought.
    #[track_caller]
    fn is_handed_on(&mut self, reasons: &[&str]) {
        let granted = self.waiters[0].reply();
        assert!(granted.starts_with(&format!("[{} ", self.kind.granted)), "{granted}");
        assert!(number(&granted, 1) > self.fence, "{granted} after {}", self.fence);
        self.waiters[0].is_in_step();
        all_wait(&mut self.connection, 2);
        let ended = ask(&mut self.connection, &self.kind.end.replace("TOKEN", "w0"));
        assert!(!ended.starts_with("[LOST"), "{ended}");
        for waiter in &mut self.waiters[1..] {
            let reported = waiter.reply();
            assert!(reported.starts_with(self.kind.reported), "{reported}");
            waiter.is_in_step();
        }
        self.loss_is_reported_once(reasons);
    }

    #[track_caller]
    fn loss_is_reported_once(&mut self, reasons: &[&str]) {
        let losses = self.ear.losses();
        let wanted: Vec<String> = reasons.iter().map(|reason| format!("k a {} {reason}", self.fence)).collect();
        assert!(losses.len() == wanted.len().min(1) && losses.iter().all(|loss| wanted.contains(loss)), "{losses:?}");
    }

    /// Nothing happened: they wait on, until it is done.
    #[track_caller]
    fn is_untouched(&mut self) {
        for _ in 0..20 {
            ask(&mut self.connection, "PING");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        all_wait(&mut self.connection, 3);
        let ended = ask(&mut self.connection, &self.kind.end.replace("TOKEN", "a"));
        assert!(!ended.starts_with("[LOST"), "{ended}");
        for waiter in &mut self.waiters {
            let reported = waiter.reply();
            assert!(reported.starts_with(self.kind.reported), "{reported}");
            waiter.is_in_step();
        }
        self.loss_is_reported_once(&[]);
    }
}

#[test]
fn a_key_that_leaves_is_handed_on() {
    for kind in KINDS {
        for line in [
            "DEL k",
            "UNLINK k",
            "PEXPIRE k 1",
            "PEXPIREAT k 1",
            "RENAME k elsewhere",
            "MOVE k 3",
            "FLUSHDB",
            "FLUSHALL",
            "FLUSHALL ASYNC",
        ] {
            println!("{}: {line}", kind.name);
            let mut place = Place::of(kind);
            place.connection.say(line);
            place.is_handed_on(&["absent"]);
        }
    }
}

#[test]
fn waiters_of_a_replaced_key_are_asked_to_retry() {
    for kind in KINDS {
        for line in ["SET k text", "RENAME list k", "COPY list k REPLACE"] {
            println!("{}: {line}", kind.name);
            let mut place = Place::of(kind);
            place.connection.say("RPUSH list x");
            place.connection.say(line);
            for waiter in &mut place.waiters {
                let reply = waiter.reply();
                assert!(reply.starts_with("-TRYAGAIN "), "{reply}");
                waiter.is_in_step();
            }
            place.loss_is_reported_once(&["absent"]);
        }
    }
}

#[test]
fn swapped_databases_leave_waiters_where_they_asked() {
    for kind in KINDS {
        let mut place = Place::of(kind);
        place.connection.say("SWAPDB 0 5");
        place.is_handed_on(&[]);
        place.connection.say("SELECT 5");
        let again = ask(&mut place.connection, &format!("{} k a 1h", kind.begin));
        assert_eq!(number(&again, 1), place.fence, "it still has it there");
    }
}

#[test]
fn a_reload_or_equal_restore_changes_nothing() {
    for kind in KINDS {
        let mut place = Place::of(kind);
        place.connection.say("DEBUG RELOAD");
        place.is_untouched();
        let mut place = Place::of(kind);
        let dump: Vec<u8> = redis::from_redis_value(place.connection.say("DUMP k")).expect("a payload");
        ok(&mut place.connection, &[b"RESTORE", b"k".as_slice(), b"0", &dump, b"REPLACE"]);
        place.is_untouched();
    }
}

#[test]
fn a_key_restored_over_it_replies_a_caller_that_waits() {
    for kind in KINDS {
        let mut place = Place::of(kind);
        ask(&mut place.connection, &format!("{} other a 1h", kind.begin));
        ask(&mut place.connection, &kind.end.replace("TOKEN", "a").replace(" k ", " other "));
        let dump: Vec<u8> = redis::from_redis_value(place.connection.say("DUMP other")).expect("a payload");
        ok(&mut place.connection, &[b"RESTORE", b"k".as_slice(), b"0", &dump, b"REPLACE"]);
        for waiter in &mut place.waiters {
            let reported = waiter.reply();
            assert!(reported.starts_with(kind.reported), "{}: {reported}", kind.name);
            waiter.is_in_step();
        }
        place.loss_is_reported_once(&["absent"]);
    }
}

/// Valkey 8.1 to 9.1.1 do not tell us of keys that were evicted: see `module/src/vendor.rs`.
fn tells_of_keys(flavor: &Flavor) -> bool {
    !flavor.is_valkey() || !((8, 1, 0)..(9, 1, 2)).contains(&flavor.version())
}

#[test]
fn an_evicted_key_is_handed_on() {
    for kind in KINDS {
        let mut place = Place::of(kind);
        let used = place.connection.info_number("memory", "used_memory");
        let mut filler = place.server.connect();
        place.connection.say(&format!("CONFIG SET maxmemory {} maxmemory-policy allkeys-lru", used + 2_000_000));
        let mut count = 0;
        eventually("the key is evicted", SOON, || {
            // One at a time, so that a caller that has it next is not evicted with it.
            (0..500).any(|_| {
                count += 1;
                ok(&mut filler, &["SET".to_owned(), format!("filler:{count}"), "x".repeat(2_000)]);
                let gone = filler.info_number("resil", "blocked_waiters") < 3 || filler.integer("EXISTS k") == 0;
                if gone {
                    filler.say("CONFIG SET maxmemory 0");
                }
                gone
            })
        });
        let reported = tells_of_keys(place.server.flavor());
        place.is_handed_on(if reported { &["evicted"] } else { &["absent", "evicted"] });
    }
}

#[test]
fn a_demotion_sends_a_caller_that_waits_away() {
    for kind in KINDS {
        let mut place = Place::of(kind);
        let before = place.connection.digest("k");
        place.connection.say("REPLICAOF 127.0.0.1 1");
        for waiter in &mut place.waiters {
            let reply = waiter.reply();
            assert!(reply.starts_with("-UNBLOCKED "), "{reply}");
        }
        assert_eq!(place.connection.info_number("resil", "blocked_waiters"), 0);
        assert_eq!(place.connection.digest("k"), before);
        place.loss_is_reported_once(&[]);
        // As a primary again it goes on with the same runner.
        place.connection.say("REPLICAOF NO ONE");
        let again = ask(&mut place.connection, &format!("{} k a 1h", kind.begin));
        assert_eq!(number(&again, 1), place.fence);
    }
}
