//! Queues inside the process: of those who want the same thing, one at a time asks the server.
//!
//! The head of a line waits in the server, on one connection. The moment it has its answer the next one goes, so that ten
//! thousand tasks need one waiting connection, and are served in the order they came. A caller that gives up leaves at once.
//!
//! A line exists while it has a head. Tickets are handed the turn and taken off the line in one step, under one lock, so a
//! ticket that is no longer on the line has been handed the turn: it takes it, or passes it on when it is dropped.

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

/// Whether the line was found empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    First,
    Later,
}

/// The right to ask the server. Dropping it hands it to the next.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    lines: &'a CallerQueues,
    key: QueueKey,
    pub came: Arrived,
}

/// The line has no room.
#[derive(Debug)]
pub(crate) struct Full;

impl CallerQueues {
    /// Waits for the turn, in a line of at most `most`, its head included.
    pub async fn stand(&self, key: QueueKey, most: usize) -> Result<Turn<'_>, Full> {
        let (ticket, receiver) = {
            let mut lines = self.0.lock();
            let Some(line) = lines.get_mut(&key) else {
                lines.insert(key.clone(), CallerQueue::default());
                return Ok(Turn { lines: self, key, came: Arrived::First });
            };
            if line.waiting.len() + 1 >= most {
                return Err(Full);
            }
            let (sender, receiver) = oneshot::channel();
            line.last_ticket += 1;
            line.waiting.insert(line.last_ticket, sender);
            (line.last_ticket, receiver)
        };
        let mut place = QueueTicket { lines: self, key: Some(key), ticket, receiver };
        // An error would mean that the line was dropped, and it is not while somebody stands in it.
        let _ = (&mut place.receiver).await;
        match place.key.take() {
            Some(key) => Ok(Turn { lines: self, key, came: Arrived::Later }),
            None => Err(Full),
        }
    }

    fn pass(&self, key: &QueueKey) {
        Self::pass_in(&mut self.0.lock(), key);
    }

    fn pass_in(lines: &mut HashMap<QueueKey, CallerQueue>, key: &QueueKey) {
        let Some(line) = lines.get_mut(key) else { return };
        while let Some((_, sender)) = line.waiting.pop_first() {
            if sender.send(()).is_ok() {
                return;
            }
        }
        lines.remove(key);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lines.pass(&self.key);
    }
}

struct QueueTicket<'a> {
    lines: &'a CallerQueues,
    /// `None` once the turn was taken.
    key: Option<QueueKey>,
    ticket: u64,
    receiver: oneshot::Receiver<()>,
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let Some(key) = &self.key else { return };
        let mut lines = self.lines.0.lock();
        let left = lines.get_mut(key).is_some_and(|line| line.waiting.remove(&self.ticket).is_some());
        if !left {
            CallerQueues::pass_in(&mut lines, key);
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
    fn those_who_wait_are_served_in_the_order_they_came() {
        let lines = CallerQueues::default();
        let first = lines.stand(key(), 10).now_or_never().expect("nobody is before it").expect("there is room");
        let mut others: Vec<_> = (0..3).map(|_| Box::pin(lines.stand(key(), 10))).collect();
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
    fn who_is_dropped_with_the_turn_in_hand_passes_it_on() {
        let lines = CallerQueues::default();
        let first = lines.stand(key(), 10).now_or_never().expect("free").expect("room");
        let mut second = Box::pin(lines.stand(key(), 10));
        let mut third = Box::pin(lines.stand(key(), 10));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(first); // the turn is the second's, who has not looked yet
        drop(second);
        drop((&mut third).now_or_never().expect("its turn").expect("room"));
        drop(third);
        assert!(lines.is_empty(), "a line that nobody stands in is forgotten");
    }

    #[test]
    fn a_line_has_no_more_places_than_was_said() {
        let lines = CallerQueues::default();
        let _head = lines.stand(key(), 2).now_or_never().expect("free").expect("room");
        let mut second = Box::pin(lines.stand(key(), 2));
        assert!((&mut second).now_or_never().is_none());
        assert!(lines.stand(key(), 2).now_or_never().expect("told at once").is_err());
        drop(second);
        assert!(lines.stand(key(), 2).now_or_never().is_none(), "the place of one who left is free");
    }
}
