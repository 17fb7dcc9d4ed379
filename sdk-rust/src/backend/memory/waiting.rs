//! A call that waits. Whoever drops it has left the line; a grant it had not read goes to the next.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use resil_core::Span;
use resil_core::limits::WAITERS_DEFAULT;
use resil_core::queue::{WaiterId, Waiting};
use resil_wire::command::Reply;
use tokio::runtime::Handle;
use tokio::sync::oneshot::Receiver;

use super::Memory;
use super::room::{Asked, Delivery, Machine};
use super::store::Store;
use crate::error::Error;

/// A place in line.
struct Place<'a, M: Machine> {
    store: &'a Store,
    key: &'a [u8],
    id: WaiterId,
    answer: Receiver<Delivery>,
    is_answered: bool,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Drop for Place<'_, M> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        // Nothing can be sent from here on: whoever tries takes it back.
        self.answer.close();
        match self.answer.try_recv() {
            Ok(Delivery { fence: Some(fence), .. }) => self.store.take_back::<M>(self.key, fence),
            Ok(_) => {}
            Err(_) => self.store.leave::<M>(self.key, self.id),
        }
    }
}

impl Memory {
    /// Asks, and waits for the answer if it has to. `most`: how many may wait.
    pub(super) async fn stand_in_line<M: Machine, V>(
        &self,
        (key, wait, most): (&[u8], Span, u32),
        ask: impl FnOnce(Waiting) -> Result<Asked<V>, Error>,
        answer: impl FnOnce(V) -> Result<Reply, Error>,
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
        let Some(receiver) = asked.answer else { return answer(asked.verdict) };
        let mut place = Place::<M> { store, key, id, answer: receiver, is_answered: false, machine: PhantomData };
        loop {
            // The one that polls this now: it may be another than before.
            if let Ok(runtime) = Handle::try_current() {
                store.keeper.run_on(&runtime, store);
            }
            tokio::select! {
                biased;
                delivery = &mut place.answer => {
                    place.is_answered = true;
                    let gone = || Error::Internal("the store is gone".to_owned());
                    return delivery.map_err(|_| gone())?.answer;
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
