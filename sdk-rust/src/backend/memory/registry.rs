//! Stores that are shared by name, in the whole process. One goes when the last who has it goes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

use super::store::Store;
use crate::clock::Clock;

/// How often this process came to be by a fork, and a name in it.
type StoreName = (u64, String);

static STORES: LazyLock<Mutex<HashMap<StoreName, Weak<Store>>>> = LazyLock::new(Mutex::default);
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A child of a fork has stores of its own: a thread of the parent may have locked one of those it inherited.
pub(crate) fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The store of that name; a new one, with `clock`, if nobody has it.
pub(super) fn shared(name: &str, clock: Clock) -> Arc<Store> {
    let (mut stores, key) = (STORES.lock(), (FORKS.load(Ordering::Relaxed), name.to_owned()));
    if let Some(store) = stores.get(&key).and_then(Weak::upgrade) {
        return store;
    }
    stores.retain(|_, store| store.strong_count() > 0);
    let store = Store::new(clock);
    stores.insert(key, Arc::downgrade(&store));
    store
}
