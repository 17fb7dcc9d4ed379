//! A replica, and the proof that it has seen what its primary has.

use std::time::Duration;

use crate::command::ok;
use crate::options::Options;
use crate::server::Server;
use crate::wait::becomes_true;

const SYNC_BOUND: Duration = Duration::from_secs(20);

impl Server {
    /// Starts a replica and waits until it is in step with `primary`.
    pub fn replica_of(primary: &Server, options: Options) -> Self {
        let replica = Self::start(options.config("replicaof", format!("127.0.0.1 {}", primary.port())));
        wait_for_sync(primary, &replica);
        replica
    }
}

/// Waits until `replica` has applied everything `primary` had written when this was called.
#[track_caller]
pub fn wait_for_sync(primary: &Server, replica: &Server) {
    let written = offset(&replication_info(primary), "master_repl_offset").unwrap_or(0);
    let mut last_seen = String::new();
    let in_step = becomes_true(SYNC_BOUND, || {
        last_seen = replication_info(replica);
        let link_is_up = last_seen.lines().any(|line| line == "master_link_status:up");
        link_is_up && offset(&last_seen, "slave_repl_offset").is_some_and(|applied| applied >= written)
    });
    if !in_step {
        replica.fail(&format!("did not reach offset {written} of its primary within {SYNC_BOUND:?}:\n{last_seen}"));
    }
}

/// Waits until the primary counts on the replica: from then on WAIT does. A primary first hears of a new one after up to a second.
pub fn wait_until_counted(primary: &Server, replica: &Server) {
    wait_for_sync(primary, replica);
    // It is called online before it is sent anything; then it says how far it has come.
    let online = format!("port={},state=online,offset=", replica.port());
    let mut last_seen = String::new();
    let is_counted = becomes_true(SYNC_BOUND, || {
        last_seen = replication_info(primary);
        last_seen.lines().any(|line| line.split_once(&online).is_some_and(|(_, offset)| !offset.starts_with("0,")))
    });
    if !is_counted {
        primary.fail(&format!("does not count on its replica within {SYNC_BOUND:?}:\n{last_seen}"));
    }
}

fn replication_info(server: &Server) -> String {
    let info = ok(&mut server.connect(), &["INFO", "replication"]);
    redis::from_redis_value(info).expect("INFO is text")
}

fn offset(info: &str, field: &str) -> Option<i64> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.parse().ok())
}
