//! Where Redis and Valkey differ: which of them this is, what it can do, and which of its faults to avoid.

use std::ffi::c_int;

use redis_module::raw;

use super::server;

/// Valkey's version, or `None` on Redis.
pub fn valkey_version(ctx: *mut raw::RedisModuleCtx) -> Option<(u32, u32, u32)> {
    let [version] = server::info(ctx, c"server", [c"valkey_version"]);
    version?.to_str().ok().map(parse)
}

fn parse(text: &str) -> (u32, u32, u32) {
    let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// The option that lets Valkey 9 migrate slots with our keys in them, where the server knows it. The keys need nothing
/// special: they travel as RESTORE and `RES._APPLY`.
pub fn atomic_slot_migration(ctx: *mut raw::RedisModuleCtx) -> c_int {
    const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;
    // SAFETY: a read of a binding filled at load, and a call without arguments.
    let known = unsafe { raw::RedisModule_GetModuleOptionsAll }.map_or(0, |all| unsafe { all() });
    if valkey_version(ctx).is_some() { known & HANDLE_ATOMIC_SLOT_MIGRATION } else { 0 }
}

/// Valkey 8.1 to 9.1.1 leave a client in the database of a key event that a module listened to: `COPY a b DB 9` would
/// move the client to database 9. There we do not listen.
pub fn key_events_are_harmless(ctx: *mut raw::RedisModuleCtx) -> bool {
    valkey_version(ctx).is_none_or(|version| !((8, 1, 0)..(9, 1, 2)).contains(&version))
}
