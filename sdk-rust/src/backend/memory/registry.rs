//! Stores that are shared by name, in the whole process. One goes when the last who has it goes.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

use super::store::Store;
use crate::clock::Clock;

static STORES: LazyLock<Mutex<HashMap<String, Weak<Store>>>> = LazyLock::new(Mutex::default);

/// The store of that name; a new one, with `clock`, if nobody has it.
pub(super) fn shared(name: &str, clock: Clock) -> Arc<Store> {
    let mut stores = STORES.lock();
    if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
        return store;
    }
    stores.retain(|_, store| store.strong_count() > 0);
    let store = Store::new(clock);
    stores.insert(name.to_owned(), Arc::downgrade(&store));
    store
}
