//! A call that waits. If it is dropped, it leaves the queue; a grant it had not read goes to the next.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use resil_core::Span;
use resil_core::limits::WAITERS_DEFAULT;
use resil_core::waited::{Asked, WaiterId, Waiting};
use resil_wire::command::Reply;
use tokio::runtime::Handle;
use tokio::sync::oneshot::Receiver;

use super::Memory;
use super::store::Store;
use super::waited::{Delivery, MemoryMachine, Replied};
use crate::error::Error;

/// A position in the queue.
struct Queued<'a, M: MemoryMachine> {
    store: &'a Store,
    key: &'a [u8],
    id: WaiterId,
    reply: Receiver<Delivery>,
    has_reply: bool,
    machine: PhantomData<fn() -> M>,
}

impl<M: MemoryMachine> Drop for Queued<'_, M> {
    fn drop(&mut self) {
        if self.has_reply {
            return;
        }
        // Nothing can be sent from here on: a sender that tries takes it back.
        self.reply.close();
        match self.reply.try_recv() {
            Ok(Delivery { fence: Some(fence), .. }) => self.store.take_back::<M>(self.key, fence),
            Ok(_) => {}
            Err(_) => self.store.leave::<M>(self.key, self.id),
        }
    }
}

impl Memory {
    /// Asks, and waits for the reply if it has to. `most`: how many may wait.
    pub(super) async fn wait_in_queue<M: MemoryMachine>(
        &self,
        (key, wait, most): (&[u8], Span, u32),
        ask: impl FnOnce(Waiting) -> Result<Replied<Asked<M>>, Error>,
        read: impl FnOnce(Asked<M>) -> Result<Reply, Error>,
    ) -> Result<Reply, Error> {
        let store = &self.store;
        if Handle::try_current().is_err() {
            return Err(Error::Internal("waiting needs a tokio runtime".to_owned()));
        }
        let nudge = &store.keeper.nudge;
        let mut nudged = std::pin::pin!(nudge.notified());
        let id = store.next_waiter();
        let most = most.min(WAITERS_DEFAULT) as usize;
        let asked = ask(Waiting { id, wait, most })?;
        let Some(reply) = asked.reply else { return read(asked.verdict) };
        let mut queued = Queued::<M> { store, key, id, reply, has_reply: false, machine: PhantomData };
        loop {
            // The runtime that polls this now may be another than before.
            if let Ok(runtime) = Handle::try_current() {
                store.keeper.run_on(&runtime, store);
            }
            tokio::select! {
                biased;
                delivery = &mut queued.reply => {
                    queued.has_reply = true;
                    let gone = || Error::Internal("the store is gone".to_owned());
                    return delivery.map_err(|_| gone())?.reply;
                }
                () = &mut nudged => {
                    if self.closed.load(Relaxed) {
                        return Err(super::closed());
                    }
                    nudged.set(nudge.notified());
                }
            }
        }
    }
}
