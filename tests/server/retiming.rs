//! A user's EXPIRE or PERSIST, or a move that brings another expiry along: it changes the time and nothing else, and
//! the next change of the limit undoes it.

use redis::Connection;
use resil_harness::{Server, wait_for_sync};

use crate::driven::{START_US, driven, integer, say, set_clock, start_driven};
use crate::replication::assert_same_keys;
use crate::samples::{Sample, fill_all};

/// Ways to re-time a key or to bring it back with another expiry than its own; `{}` stands for the key.
const RETIMED: &[&[&str]] = &[
    &["PERSIST {}"],
    &["EXPIRE {} 1000000"],
    &["PEXPIREAT {} 5000000000000"],
    &["EXPIRE {} 1000000", "PERSIST {}"],
    &["PERSIST {}", "RENAME {} other", "RENAME other {}"],
    &["EXPIRE {} 1000000", "MOVE {} 3", "SELECT 3", "MOVE {} 0", "SELECT 0"],
    &["PERSIST {}", "COPY {} other", "COPY other {} REPLACE", "DEL other"],
    &["PERSIST {}", "SWAPDB 0 4", "SWAPDB 4 0"],
    &["EXPIRE {} 1000000", "DEBUG RELOAD"],
    &["MULTI", "EXPIRE {} 1000000", "EXEC"],
];

/// The expiry depends on the name too, so the twin that nobody touches has the same name in another database.
const TWINS: u32 = 9;

#[test]
fn a_users_expiry_lasts_until_the_next_change() {
    for retime in RETIMED {
        let (_server, mut connection) = start_driven();
        let samples = fill_all(&mut connection);
        for Sample { key, .. } in &samples {
            say(&mut connection, &format!("COPY {key} {key} DB {TWINS}"));
            for line in *retime {
                say(&mut connection, &line.replace("{}", key));
            }
        }
        // The first change comes after a while, the second at once: it must not take the first one's word for it.
        for pass in 0..2 {
            set_clock(&mut connection, START_US + 600_000_000);
            for Sample { key, kind, .. } in &samples {
                let ask = |connection: &mut Connection| {
                    let reply = say(connection, &kind.ask.replace("{}", key));
                    (reply, integer(connection, &format!("PEXPIRETIME {key}")))
                };
                let touched = ask(&mut connection);
                say(&mut connection, &format!("SELECT {TWINS}"));
                let untouched = ask(&mut connection);
                say(&mut connection, "SELECT 0");
                assert_eq!(touched, untouched, "{retime:?}, {}, change {pass}", kind.name);
            }
        }
    }
}

/// Changes that leave the expiry where it is when they come at the same instant, a new word for each `{n}`.
const UNMOVING: &[(&str, &str)] = &[
    ("packed", "RES.GCRA {} 1000 1h"),
    ("large", "RES.GCRA {} 1000000 1h"),
    ("tiers", "RES.GCRA {} 1000 1h AND 9000 2h"),
    ("window", "RES.WINDOW {} 1000 1h"),
    ("cell", "CL.THROTTLE {} 999 1000 3600"),
    ("breaker", "RES.BREAKER TALLY {} 0 me {n} OK 1 FAIL 0"),
];

#[test]
fn even_a_change_without_expiry_undoes_a_users() {
    for retime in RETIMED {
        let (_server, mut connection) = start_driven();
        let change = |connection: &mut Connection, (key, line): &(&str, &str), number: u32| {
            say(connection, &line.replace("{}", key).replace("{n}", &number.to_string()));
            integer(connection, &format!("PEXPIRETIME {key}"))
        };
        for limit in UNMOVING {
            let own = change(&mut connection, limit, 1);
            assert_eq!(change(&mut connection, limit, 2), own, "{} should not be moved by a change", limit.0);
            for line in *retime {
                say(&mut connection, &line.replace("{}", limit.0));
            }
            assert_eq!(change(&mut connection, limit, 3), own, "{retime:?}, {}", limit.0);
            assert_eq!(change(&mut connection, limit, 4), own, "{retime:?}, {}", limit.0);
        }
    }
}

#[test]
fn a_renamed_limit_gets_its_new_names_expiry() {
    let (_server, mut connection) = start_driven();
    for (key, line) in UNMOVING {
        say(&mut connection, &line.replace("{}", "old").replace("{n}", "1"));
        say(&mut connection, &format!("RENAME old {key}"));
        say(&mut connection, &line.replace("{}", key).replace("{n}", "2"));
        let renamed = integer(&mut connection, &format!("PEXPIRETIME {key}"));
        say(&mut connection, &format!("DEL {key}"));
        for number in ["1", "2"] {
            say(&mut connection, &line.replace("{}", key).replace("{n}", number));
        }
        assert_eq!(integer(&mut connection, &format!("PEXPIRETIME {key}")), renamed, "{key}");
    }
}

/// A user re-times every limit, and a change that does not move the expiry undoes it.
fn retime_and_undo(connection: &mut Connection, retime: &str) {
    for (key, line) in UNMOVING {
        say(connection, &line.replace("{}", key).replace("{n}", "1"));
        say(connection, &retime.replace("{}", key));
        say(connection, &line.replace("{}", key).replace("{n}", "2"));
        assert!(![-1, 5_000_000_000_000].contains(&integer(connection, &format!("PEXPIRETIME {key}"))));
    }
}

const PLAIN_RETIMES: &[&str] = &["PERSIST {}", "PEXPIREAT {} 5000000000000"];

#[test]
fn a_users_expiry_is_undone_on_a_replica_too() {
    for retime in PLAIN_RETIMES {
        let (primary, mut connection) = start_driven();
        let replica = Server::replica_of(&primary, driven());
        retime_and_undo(&mut connection, retime);
        wait_for_sync(&primary, &replica);
        assert_same_keys(&mut connection, &mut replica.connect());
    }
}

#[test]
fn a_users_expiry_from_a_snapshot_is_undone() {
    for retime in PLAIN_RETIMES {
        let (primary, mut connection) = start_driven();
        for (key, line) in UNMOVING {
            say(&mut connection, &line.replace("{}", key).replace("{n}", "1"));
            say(&mut connection, &retime.replace("{}", key));
        }
        let replica = Server::replica_of(&primary, driven());
        for (key, line) in UNMOVING {
            say(&mut connection, &line.replace("{}", key).replace("{n}", "2"));
        }
        wait_for_sync(&primary, &replica);
        assert_same_keys(&mut connection, &mut replica.connect());
    }
}

#[test]
fn an_undone_expiry_stays_undone_after_a_load() {
    for retime in PLAIN_RETIMES {
        let with_file = driven().config("appendonly", "yes").config("appendfsync", "always");
        let mut server = Server::start(with_file);
        let mut connection = server.connect();
        set_clock(&mut connection, START_US);
        retime_and_undo(&mut connection, retime);
        let expiries = |connection: &mut Connection| {
            UNMOVING.iter().map(|(key, _)| integer(connection, &format!("PEXPIRETIME {key}"))).collect::<Vec<_>>()
        };
        let before = expiries(&mut connection);
        server.restart_after_kill();
        assert_eq!(expiries(&mut server.connect()), before, "{retime}");
    }
}
