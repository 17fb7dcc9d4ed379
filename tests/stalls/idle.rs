//! A server that nobody asks anything has nothing to do.

use std::time::Duration;

use crate::TRIES;
use crate::driven::Say;
use crate::pinger::{on_cpu, our_server};

/// Redis 7.0 spins if a timer ends before another one that is more than 35 minutes away.
#[test]
fn a_long_lease_leaves_an_idle_server_idle() {
    const LOOKED_AT: Duration = Duration::from_millis(300);
    let server = our_server();
    let (mut connection, mut lost) = (server.connect(), 0);
    for lease in ["40m", "1h", "2h", "1d"] {
        connection.say("RES.LOCK ACQUIRE short owner 20ms");
        connection.say(&format!("RES.LOCK ACQUIRE long owner {lease}"));
        lost += 1;
        resil_harness::eventually("the short one has ended", crate::driven::SOON, || {
            connection.info_number("resil", "lock_lost") == lost
        });
        let busy = (0..TRIES).map(|_| {
            let before = on_cpu(server.pid());
            std::thread::sleep(LOOKED_AT);
            on_cpu(server.pid()).saturating_sub(before)
        });
        let least = busy.min().unwrap_or_default();
        assert!(least < LOOKED_AT / 10, "{lease}: {least:?} of {LOOKED_AT:?}");
        connection.say("RES.LOCK RELEASE long owner");
    }
}
