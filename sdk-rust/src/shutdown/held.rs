//! What this process holds on the server, and how each is given back.
//!
//! A holder registers a hook when it takes something, and unregisters it when it gives that back by itself. Whichever of
//! holder and shutdown takes the hook out of the registry gives the thing back: never both, never neither.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Error;

pub(crate) type Release = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
pub(super) type Hook = Box<dyn FnOnce() -> Release + Send>;

/// What this process holds, and how each is given back.
#[derive(Default)]
pub(crate) struct HeldRegistry {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order they were taken.
    hooks: BTreeMap<u64, (Arc<str>, Hook)>,
    last_id: u64,
    /// Everything was taken out to be released.
    is_closed: bool,
}

impl std::fmt::Debug for HeldRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<Arc<str>> = self.state.lock().hooks.values().map(|(name, _)| Arc::clone(name)).collect();
        f.debug_tuple("HeldRegistry").field(&names).finish()
    }
}

/// What a registration is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldId(u64);

#[allow(dead_code, reason = "locks and bulkheads register what they hold")]
impl HeldRegistry {
    /// `name` is held (for example `lock:orders`), and `hook` gives it back. Refused when everything was released
    /// already: then the holder has to give it back at once, by itself.
    pub fn register(&self, name: Arc<str>, hook: impl FnOnce() -> Release + Send + 'static) -> Result<HeldId, Error> {
        let mut held = self.state.lock();
        if held.is_closed {
            return Err(Error::ShuttingDown);
        }
        held.last_id += 1;
        let id = held.last_id;
        held.hooks.insert(id, (name, Box::new(hook)));
        Ok(HeldId(id))
    }

    /// Whether it was still the holder's to give back. If not, a shutdown is doing it.
    pub fn unregister(&self, id: HeldId) -> bool {
        // The hook is dropped after the lock is open again: it may hold whatever it likes.
        let removed = self.state.lock().hooks.remove(&id.0);
        removed.is_some()
    }

    /// Everything that is held, in the order it was taken. Nothing can be registered any more.
    pub(super) fn close(&self) -> Vec<(Arc<str>, Hook)> {
        let mut held = self.state.lock();
        held.is_closed = true;
        std::mem::take(&mut held.hooks).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Release {
        Box::pin(async { Ok(()) })
    }

    #[test]
    fn what_is_held_is_given_back_by_the_holder_or_by_the_shutdown_and_never_by_both() {
        let held = HeldRegistry::default();
        let first = held.register("lock:a".into(), nothing).unwrap();
        let second = held.register("lock:b".into(), nothing).unwrap();
        assert!(held.unregister(first), "the holder does it");
        assert!(!held.unregister(first), "once");
        let names: Vec<_> = held.close().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [Arc::<str>::from("lock:b")]);
        assert!(!held.unregister(second), "the shutdown does it");
    }

    #[test]
    fn what_is_taken_after_everything_was_released_is_refused() {
        let held = HeldRegistry::default();
        held.close();
        assert_eq!(held.register("lock:late".into(), nothing), Err(Error::ShuttingDown));
        assert!(held.close().is_empty());
    }
}
