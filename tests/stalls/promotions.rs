//! A replica with very many leases takes over. All of them start anew there, a slice at a time.

use std::time::Duration;

use redis::Connection;
use resil_harness::{Server, eventually, wait_for_sync};

use crate::driven::{SOON, Say, driven};
use crate::pinger::{during, each};
use crate::sessions::dlq;
use crate::{compare, size};

const MINUTE_MS: i64 = 60_000;

/// A primary and its replica, both at 0.
fn pair() -> (Server, Connection, Server) {
    let primary = Server::start(driven().measured());
    let mut here = primary.connect();
    here.clock_at_ms(0);
    let replica = Server::replica_of(&primary, driven().measured());
    replica.connect().clock_at_ms(0);
    (primary, here, replica)
}

/// The replica takes over, five minutes later.
fn promote(connection: &mut Connection) {
    connection.clock_at_ms(5 * MINUTE_MS);
    connection.say("REPLICAOF NO ONE");
}

#[test]
fn a_promotion_with_many_leases_is_no_stall() {
    let count = size(100_000, 100_000);
    let ours = || {
        let (mut primary, mut here, replica) = pair();
        here.say("RES.DLQ CONFIG d JITTER none ACTOR a");
        each(&mut here, count, |number| format!("RES.DLQ FAIL d m{number} ERROR e TYPE t PAYLOAD p"));
        here.clock_at_ms(1_000);
        each(&mut here, count, |number| format!("RES.DLQ TAKE d t{number} 10m"));
        assert_eq!(dlq(&mut here, "taken"), count);
        wait_for_sync(&primary, &replica);
        primary.kill9();
        let promoted = during(&replica, |connection| {
            promote(connection);
            // Callers ask at once. They would have ended a minute ago; here they have all of their ten minutes again.
            connection.clock_at_ms(11 * MINUTE_MS);
            for number in 0..1_000 {
                connection.say(&format!("RES.DLQ RENEW d t{number} 10m"));
            }
            assert_eq!(dlq(connection, "taken"), count);
        });
        let ended = during(&replica, |connection| {
            connection.clock_at_ms(22 * MINUTE_MS);
            eventually("all leases end", SOON * 10, || dlq(connection, "waiting") == count);
        });
        println!("the promotion held the server for {promoted:?}, the end of all leases for {ended:?}");
        promoted.max(ended)
    };
    compare("a promotion with many leases of one ledger", || Duration::ZERO, ours);
}
