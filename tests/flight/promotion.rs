//! A replica takes over in the middle: what was committed stays so, what ran is known to have run.

use resil_harness::{Options, Server, wait_for_sync};

use crate::driven::Say;
use crate::talk::{ask, number};

#[test]
fn a_promotion_keeps_committed_results_and_counts_attempts_on() {
    let mut primary = Server::fresh();
    let replica = Server::replica_of(&primary, Options::default());
    let mut connection = primary.connect();
    for n in 0..20 {
        ask(&mut connection, &format!("RES.IDEMP BEGIN pay:{n} a 1h FINGERPRINT f{n}"));
        if n % 2 == 0 {
            ask(&mut connection, &format!("RES.IDEMP COMMIT pay:{n} a 1h receipt-{n}"));
        }
    }
    let fence = number(&ask(&mut connection, "RES.IDEMP BEGIN short a 300ms"), 1);
    ask(&mut connection, "RES.IDEMP ONCE event 1h");
    ask(&mut connection, "RES.SFLIGHT JOIN value a 1h");
    ask(&mut connection, "RES.SFLIGHT PUBLISH value a 1h VALUE bytes");
    wait_for_sync(&primary, &replica);
    primary.kill9();
    let mut promoted = replica.connect();
    promoted.say("REPLICAOF NO ONE");
    for n in 0..20 {
        let reported = ask(&mut promoted, &format!("RES.IDEMP BEGIN pay:{n} b 1h FINGERPRINT f{n}"));
        if n % 2 == 0 {
            assert!(reported.starts_with(&format!("[REPLAY ok receipt-{n} ")), "{reported}");
        } else {
            assert!(reported.starts_with("[BUSY "), "{reported}");
            assert_eq!(ask(&mut promoted, &format!("RES.IDEMP COMMIT pay:{n} a 1h late")), "[COMMITTED stored]");
        }
        assert_eq!(ask(&mut promoted, &format!("RES.IDEMP GET pay:{n} FINGERPRINT other")), "[MISMATCH]");
    }
    let run = ask(&mut promoted, "RES.IDEMP BEGIN short b 1h WAIT 10s");
    assert!(run.starts_with("[RUN ") && number(&run, 1) > fence && number(&run, 2) == 2, "{run}");
    assert_eq!(ask(&mut promoted, "RES.IDEMP ONCE event 1h"), "0");
    assert!(ask(&mut promoted, "RES.SFLIGHT GET value").starts_with("[VALUE bytes "));
}
