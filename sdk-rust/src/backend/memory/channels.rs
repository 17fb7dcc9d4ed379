//! What others of the same store did, published at once: a holding was lost, a breaker was changed. On a server, published messages do that.
//!
//! Those who hear are called by the caller that made the change, after its key was unlocked. They must not wait for anything.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use resil_core::circuit_breaker::Transition as BreakerTransition;
use resil_core::waited::Ending;

use crate::policies::watch::PolicyMessage;

/// What a server would publish on `resil:events`, as far as memory publishes it.
#[derive(Debug, Clone)]
pub(crate) enum MemoryEvent {
    Moved { key: Vec<u8>, transition: BreakerTransition },
    Policy(PolicyMessage),
}

/// What is published on a channel. False: nobody hears it any more.
pub(crate) type Hear<T> = Arc<dyn Fn(&T) -> bool + Send + Sync>;

type ByChannel<T> = HashMap<Box<[u8]>, Vec<Hear<T>>>;

pub(super) struct Channels<T>(Mutex<ByChannel<T>>);

impl<T> Default for Channels<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Channels<T> {
    pub fn subscribe(&self, channel: &[u8], hear: Hear<T>) {
        self.0.lock().entry(channel.into()).or_default().push(hear);
    }

    pub fn publish(&self, channel: &[u8], what: &T) {
        let Some(hearing) = self.0.lock().get(channel).cloned() else { return };
        let gone: Vec<Hear<T>> = hearing.into_iter().filter(|hear| !hear(what)).collect();
        if gone.is_empty() {
            return;
        }
        let mut channels = self.0.lock();
        if let Some(hearing) = channels.get_mut(channel) {
            hearing.retain(|hear| !gone.iter().any(|gone| Arc::ptr_eq(gone, hear)));
            if hearing.is_empty() {
                channels.remove(channel);
            }
        }
    }
}

/// The channel of all [`MemoryEvent`].
pub(super) const EVERYTHING: &[u8] = b"";

/// The channel of losses: what the owners of one client begin with, as on a server.
pub(super) fn owners_of(ending: &Ending) -> &[u8] {
    let colon = ending.owner.iter().rposition(|byte| *byte == b':');
    colon.map_or(&ending.owner, |colon| &ending.owner[..colon])
}
