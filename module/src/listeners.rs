//! Does anybody listen? Whether a change must be spelled out for replicas and files, or only be counted.
//!
//! Building the effect of a change costs a third of a whole call. Where there is no append-only file, no replica and
//! no backlog, nobody would ever read it, and it is enough to tell the server that the data set is dirty.
//!
//! The result may only err on one side. It is looked up again whenever a listener can begin to need changes, and that
//! is never between two commands: a replica, or a file that is switched on, starts from a snapshot, so the server
//! forks first (the fork event comes before the next command); a promoted replica already has a backlog (the role
//! event). In a cluster the result is always yes, because slots can be migrated by other means.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use crate::server;

static LISTENED: AtomicBool = AtomicBool::new(true);

/// Set where the server does not tell us of everything: then the result stays yes.
static IN_THE_DARK: AtomicBool = AtomicBool::new(false);

pub fn assume_somebody() {
    IN_THE_DARK.store(true, Relaxed);
    LISTENED.store(true, Relaxed);
}

/// True unless it is certain that no one reads what is replicated.
pub fn anybody() -> bool {
    LISTENED.load(Relaxed)
}

/// Looks who listens now.
pub fn look(ctx: *mut raw::RedisModuleCtx) {
    let needs_all = raw::REDISMODULE_CTX_FLAGS_AOF | raw::REDISMODULE_CTX_FLAGS_CLUSTER;
    let fields = server::info(ctx, c"replication", [c"connected_slaves", c"repl_backlog_active"]);
    let nobody = fields.iter().all(|field| field.as_deref() == Some(c"0"));
    let listened = !nobody || server::flags(ctx) & needs_all != 0;
    LISTENED.store(listened || IN_THE_DARK.load(Relaxed), Relaxed);
}
