//! Many keys leave at once, or change places.

use redis::Connection;

use crate::driven::Say;
use crate::pinger::{all_lost, during, leases, our_server, plain_keys, plain_server};
use crate::{compare, size};

/// Does `line` with plain keys, and with locks, whose losses are all announced if `are_lost`.
fn with_keys(what: &str, count: usize, are_lost: bool, act: impl Fn(&mut Connection)) {
    let plain = || {
        let server = plain_server();
        plain_keys(&server, count);
        during(&server, |connection| act(connection))
    };
    let ours = || {
        let server = our_server();
        leases(&server, count);
        during(&server, |connection| {
            act(connection);
            if are_lost {
                all_lost(connection, count);
            }
        })
    };
    compare(what, plain, ours);
}

#[test]
fn a_flush_of_many_leases_is_no_stall() {
    let count = size(100_000, 1_000_000);
    with_keys("FLUSHALL", count, true, |connection| drop(connection.say("FLUSHALL")));
}

#[test]
fn a_background_flush_of_many_leases_is_no_stall() {
    let count = size(100_000, 1_000_000);
    with_keys("FLUSHALL ASYNC", count, true, |connection| drop(connection.say("FLUSHALL ASYNC")));
}

#[test]
fn a_deletion_of_many_leases_is_no_stall() {
    let count = size(10_000, 100_000);
    let names: Vec<String> = (0..count).map(|number| format!("k{number}")).collect();
    let line = format!("DEL {}", names.join(" "));
    with_keys("DEL", count, true, |connection| drop(connection.say(&line)));
}

#[test]
fn a_swap_of_databases_with_many_leases_is_no_stall() {
    let count = size(100_000, 500_000);
    with_keys("SWAPDB", count, false, |connection| drop(connection.say("SWAPDB 0 1")));
}
