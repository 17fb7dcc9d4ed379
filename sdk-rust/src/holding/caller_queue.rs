//! Queues inside the process: of those who want the same thing, one at a time asks the server.
//!
//! The head of a queue waits in the server, on one connection. The moment it has its reply the next one goes, so that ten
//! thousand tasks need one waiting connection, and are served in the order they came. A caller that gives up leaves at once.
//!
//! A queue exists while it has a head. A ticket gets the turn and leaves the queue in one step, under one lock, so a ticket
//! that is no longer in the queue has the turn: it takes it, or passes it on when it is dropped.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::HoldingKind;

#[derive(Debug, Default)]
pub(crate) struct CallerQueues(Mutex<HashMap<QueueKey, CallerQueue>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct QueueKey {
    pub kind: HoldingKind,
    /// Those of another priority do not wait for each other here; the server knows who is first.
    pub priority: u8,
    pub name: Arc<str>,
}

#[derive(Debug, Default)]
struct CallerQueue {
    last_ticket: u64,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

/// Whether the queue was found empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    First,
    Later,
}

/// The right to ask the server. Dropping it hands it to the next.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    queues: &'a CallerQueues,
    key: QueueKey,
    pub came: Arrived,
}

/// The queue is full.
#[derive(Debug)]
pub(crate) struct Full;

impl CallerQueues {
    /// Waits for the turn, in a queue of at most `most`, its head included.
    pub async fn join(&self, key: QueueKey, most: usize) -> Result<Turn<'_>, Full> {
        let (ticket, receiver) = {
            let mut queues = self.0.lock();
            let Some(queue) = queues.get_mut(&key) else {
                queues.insert(key.clone(), CallerQueue::default());
                return Ok(Turn { queues: self, key, came: Arrived::First });
            };
            if queue.waiting.len() + 1 >= most {
                return Err(Full);
            }
            let (sender, receiver) = oneshot::channel();
            queue.last_ticket += 1;
            queue.waiting.insert(queue.last_ticket, sender);
            (queue.last_ticket, receiver)
        };
        let mut waiter = QueueTicket { queues: self, key: Some(key), ticket, receiver };
        // An error would mean that the queue was dropped, and it is not while it has a waiter.
        let _ = (&mut waiter.receiver).await;
        match waiter.key.take() {
            Some(key) => Ok(Turn { queues: self, key, came: Arrived::Later }),
            None => Err(Full),
        }
    }

    fn pass(&self, key: &QueueKey) {
        Self::pass_in(&mut self.0.lock(), key);
    }

    fn pass_in(queues: &mut HashMap<QueueKey, CallerQueue>, key: &QueueKey) {
        let Some(queue) = queues.get_mut(key) else { return };
        while let Some((_, sender)) = queue.waiting.pop_first() {
            if sender.send(()).is_ok() {
                return;
            }
        }
        queues.remove(key);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queues.pass(&self.key);
    }
}

struct QueueTicket<'a> {
    queues: &'a CallerQueues,
    /// `None` once the turn was taken.
    key: Option<QueueKey>,
    ticket: u64,
    receiver: oneshot::Receiver<()>,
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let Some(key) = &self.key else { return };
        let mut queues = self.queues.0.lock();
        let left = queues.get_mut(key).is_some_and(|queue| queue.waiting.remove(&self.ticket).is_some());
        if !left {
            CallerQueues::pass_in(&mut queues, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn key() -> QueueKey {
        QueueKey { kind: HoldingKind::Lock, priority: 0, name: "orders".into() }
    }

    #[test]
    fn waiters_are_served_in_the_order_they_came() {
        let queues = CallerQueues::default();
        let first = queues.join(key(), 10).now_or_never().expect("nobody is before it").expect("there is room");
        let mut others: Vec<_> = (0..3).map(|_| Box::pin(queues.join(key(), 10))).collect();
        for other in &mut others {
            assert!(other.now_or_never().is_none());
        }
        drop(first);
        assert!((&mut others[1]).now_or_never().is_none() && (&mut others[2]).now_or_never().is_none());
        let second = (&mut others[0]).now_or_never().expect("its turn").expect("room");
        assert_eq!(second.came, Arrived::Later);
        drop(second);
        assert!((&mut others[2]).now_or_never().is_none());
        assert!((&mut others[1]).now_or_never().is_some());
    }

    #[test]
    fn a_waiter_dropped_in_its_turn_passes_it_on() {
        let queues = CallerQueues::default();
        let first = queues.join(key(), 10).now_or_never().expect("free").expect("room");
        let mut second = Box::pin(queues.join(key(), 10));
        let mut third = Box::pin(queues.join(key(), 10));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(first); // the turn is the second's, who has not looked yet
        drop(second);
        drop((&mut third).now_or_never().expect("its turn").expect("room"));
        drop(third);
        assert!(queues.is_empty(), "a queue without waiters is forgotten");
    }

    #[test]
    fn a_queue_has_no_more_positions_than_configured() {
        let queues = CallerQueues::default();
        let _head = queues.join(key(), 2).now_or_never().expect("free").expect("room");
        let mut second = Box::pin(queues.join(key(), 2));
        assert!((&mut second).now_or_never().is_none());
        assert!(queues.join(key(), 2).now_or_never().expect("a reply at once").is_err());
        drop(second);
        assert!(queues.join(key(), 2).now_or_never().is_none(), "the position of one who left is free");
    }
}
