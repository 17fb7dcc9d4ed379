//! After a load or a promotion: finds every key with leases, a slice of the keys at a time, so that leases end by a timer
//! and not only by the next command.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use redis_module::raw;

use crate::datatype::handle_of;
use crate::datatype::waited::Waited;
use crate::edge::{ERR, api, bytes_of, guard};
use crate::machines::{Kind, ServerMachine, for_kind};
use crate::pending::{self, Task};
use crate::queues::KeyName;

/// Buckets of the key space in one slice: well below a millisecond.
const BUCKETS: usize = 1_000;

struct Search {
    db: c_int,
    cursor: *mut raw::RedisModuleScanCursor,
}

thread_local! {
    static SEARCH: RefCell<Option<Search>> = const { RefCell::new(None) };
}

pub fn start() {
    stop();
    if Kind::ALL.iter().copied().any(|kind| for_kind!(kind, M => M::keys().get() > 0)) {
        // SAFETY: freed by `stop`.
        let cursor = unsafe { api!(RedisModule_ScanCursorCreate)() };
        SEARCH.set(Some(Search { db: 0, cursor }));
    }
}

pub fn stop() {
    if let Some(search) = SEARCH.take() {
        // SAFETY: made by `start`, freed once.
        unsafe { api!(RedisModule_ScanCursorDestroy)(search.cursor) };
    }
}

/// Searches a slice. True if there is more to search.
pub fn slice(ctx: *mut raw::RedisModuleCtx) -> bool {
    let Some(mut search) = SEARCH.take() else { return false };
    // SAFETY: the context is that of the timer; the cursor is live.
    unsafe {
        for _ in 0..BUCKETS {
            if api!(RedisModule_SelectDb)(ctx, search.db) == ERR {
                api!(RedisModule_ScanCursorDestroy)(search.cursor);
                return false;
            }
            let db = &mut search.db;
            if api!(RedisModule_Scan)(ctx, search.cursor, Some(found), std::ptr::from_mut(db).cast()) == 0 {
                api!(RedisModule_ScanCursorRestart)(search.cursor);
                search.db += 1;
            }
        }
    }
    SEARCH.set(Some(search));
    true
}

extern "C" fn found(
    ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    db: *mut c_void,
) {
    guard((), || {
        // SAFETY: the number that `slice` passes.
        let db = unsafe { *db.cast::<c_int>() };
        if key.is_null() {
            // SAFETY: opened and closed here, only to see its type.
            unsafe {
                let key = api!(RedisModule_OpenKey)(ctx, name, raw::REDISMODULE_READ as c_int);
                note(key, name, db);
                api!(RedisModule_CloseKey)(key);
            }
        } else {
            note(key, name, db);
        }
    });
}

fn note(key: *mut raw::RedisModuleKey, name: *mut raw::RedisModuleString, db: c_int) {
    // SAFETY: null is allowed; the name lives as long as the callback.
    let (kind, name) = unsafe { (api!(RedisModule_ModuleTypeGetType)(key), bytes_of(name)) };
    if kind.is_null() {
        return;
    }
    let ours = Kind::ALL.iter().copied().find(|ours| for_kind!(*ours, M => handle_of::<Waited<M>>() == kind));
    if let Some(ours) = ours {
        pending::add(KeyName::new(ours, db, name), Task::Rearm);
    }
}
