//! What a source fetched and nobody has begun: a bounded buffer between the task that fetches and the workers that take.
//!
//! Taking from a buffer that is not empty is one lock, which nobody holds while waiting. A push wakes as many workers as there are messages, and
//! a worker that takes wakes the task that fetches once as much is free as that one waits for.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::source::Incoming;

#[derive(Debug)]
struct Buffer<R> {
    queue: Mutex<BufferQueue<R>>,
    filled: Notify,
    freed: Notify,
    held: watch::Sender<bool>,
    capacity: usize,
}

#[derive(Debug)]
struct BufferQueue<R> {
    fetched: VecDeque<Incoming<R>>,
    is_closed: bool,
    /// The worker is paused: nothing is fetched for it.
    is_held: bool,
    /// It will be closed: what is held stays held.
    is_closing: bool,
    /// How many free slots the feeder waits for. 0: it does not wait.
    wanted: usize,
    /// Workers that wait for a message.
    waiting: usize,
}

/// What there is to take.
enum Taken<R> {
    Message(Incoming<R>),
    Nothing,
    Closed,
}

impl<R> Buffer<R> {
    fn take(&self) -> Taken<R> {
        let mut queue = self.queue.lock();
        match queue.fetched.pop_front() {
            _ if queue.is_closed => Taken::Closed,
            None => Taken::Nothing,
            Some(incoming) => {
                if queue.wanted > 0 && self.capacity - queue.fetched.len() >= queue.wanted {
                    queue.wanted = 0;
                    drop(queue);
                    self.freed.notify_one();
                }
                Taken::Message(incoming)
            }
        }
    }

    fn close(&self) -> VecDeque<Incoming<R>> {
        let left = {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            std::mem::take(&mut queue.fetched)
        };
        self.filled.notify_waiters();
        self.freed.notify_one();
        left
    }
}

/// A worker that waits, for as long as this lives.
struct WaitingTaker<'a, R>(&'a Buffer<R>);

impl<'a, R> WaitingTaker<'a, R> {
    fn new(buffer: &'a Buffer<R>) -> Self {
        buffer.queue.lock().waiting += 1;
        Self(buffer)
    }
}

impl<R> Drop for WaitingTaker<'_, R> {
    fn drop(&mut self) {
        self.0.queue.lock().waiting -= 1;
    }
}

/// The end of the workers.
#[derive(Debug)]
pub(crate) struct Feed<R> {
    buffer: Arc<Buffer<R>>,
    closed: CancellationToken,
}

/// The end of the task that fetches, of which there is one. It is to stop when `closed` is cancelled.
#[derive(Debug)]
pub(crate) struct Feeder<R> {
    buffer: Arc<Buffer<R>>,
    pub closed: CancellationToken,
}

/// A buffer for so many messages.
pub(crate) fn feed<R>(capacity: usize) -> (Feeder<R>, Feed<R>) {
    let capacity = capacity.max(1);
    let queue = Mutex::new(BufferQueue {
        fetched: VecDeque::new(),
        is_closed: false,
        is_held: false,
        is_closing: false,
        wanted: 0,
        waiting: 0,
    });
    let held = watch::Sender::new(false);
    let buffer = Arc::new(Buffer { queue, filled: Notify::new(), freed: Notify::new(), held, capacity });
    let closed = CancellationToken::new();
    (Feeder { buffer: Arc::clone(&buffer), closed: closed.clone() }, Feed { buffer, closed })
}

impl<R> Feed<R> {
    /// Dropping this future loses nothing.
    pub async fn next(&self) -> Option<Incoming<R>> {
        let buffer = &*self.buffer;
        match buffer.take() {
            Taken::Message(incoming) => return Some(incoming),
            Taken::Closed => return None,
            Taken::Nothing => {}
        }
        let _waiting = WaitingTaker::new(buffer);
        loop {
            let mut filled = std::pin::pin!(buffer.filled.notified());
            // What is pushed from here on wakes it.
            filled.as_mut().enable();
            match buffer.take() {
                Taken::Message(incoming) => return Some(incoming),
                Taken::Closed => return None,
                Taken::Nothing => filled.await,
            }
        }
    }

    #[cfg(feature = "amqp")]
    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// No more is fetched until [`release`](Self::release). What was is returned, as far as it may go back.
    pub fn hold(&self, may_go_back: impl Fn(&Incoming<R>) -> bool) -> Vec<Incoming<R>> {
        let back = {
            let mut queue = self.buffer.queue.lock();
            queue.is_held = true;
            let (back, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut queue.fetched).into_iter().partition(may_go_back);
            queue.fetched = kept.into();
            self.buffer.held.send_replace(true);
            back
        };
        // What waits for a slot comes back.
        self.buffer.freed.notify_one();
        back
    }

    /// No more is fetched until it is closed, and the end of a pause changes nothing. What was fetched is returned.
    #[cfg(feature = "amqp")]
    pub fn hold_until_closed(&self) -> Vec<Incoming<R>> {
        self.buffer.queue.lock().is_closing = true;
        self.hold(|_| true)
    }

    /// The pause is over.
    pub fn release(&self) {
        {
            let mut queue = self.buffer.queue.lock();
            if queue.is_closing {
                return;
            }
            queue.is_held = false;
            self.buffer.held.send_replace(false);
        }
        self.buffer.freed.notify_one();
    }

    /// No more is fetched, and what was is returned.
    pub async fn close(&self) -> Vec<Incoming<R>> {
        self.closed.cancel();
        self.buffer.close().into()
    }
}

impl<R> Drop for Feed<R> {
    fn drop(&mut self) {
        self.closed.cancel();
        self.buffer.close();
    }
}

impl<R> Feeder<R> {
    /// Returns when the worker is paused, and what is fetched goes to others.
    pub async fn held(&self) {
        // Its sender is here.
        let _ = self.buffer.held.subscribe().wait_for(|held| *held).await;
    }

    #[cfg(feature = "amqp")]
    pub async fn released(&self) {
        let _ = self.buffer.held.subscribe().wait_for(|held| !*held).await;
    }

    /// Waits for a free slot. What cannot be handed over any more, or not while the worker is paused, comes back.
    pub async fn push(&self, incoming: Incoming<R>) -> Result<(), Incoming<R>> {
        while self.is_full() {
            self.buffer.freed.notified().await;
        }
        self.push_now([incoming]).into_iter().next().map_or(Ok(()), Err)
    }

    /// A slot has to be waited for.
    fn is_full(&self) -> bool {
        let mut queue = self.buffer.queue.lock();
        let is_full = !queue.is_closed && !queue.is_held && queue.fetched.len() >= self.buffer.capacity;
        queue.wanted = usize::from(is_full);
        is_full
    }

    /// All at once where there are as many free slots, which is when they were asked for.
    pub async fn push_all(&self, all: Vec<Incoming<R>>) -> Vec<Incoming<R>> {
        if self.free() >= all.len() {
            return self.push_now(all);
        }
        let mut refused = Vec::new();
        for incoming in all {
            refused.extend(self.push(incoming).await.err());
        }
        refused
    }

    /// Nobody else pushes, so what was free still is.
    fn push_now(&self, all: impl IntoIterator<Item = Incoming<R>>) -> Vec<Incoming<R>> {
        let woken = {
            let mut queue = self.buffer.queue.lock();
            if queue.is_closed || queue.is_held {
                return all.into_iter().collect();
            }
            let before = queue.fetched.len();
            queue.fetched.extend(all);
            queue.waiting.min(queue.fetched.len() - before)
        };
        (0..woken).for_each(|_| self.buffer.filled.notify_one());
        Vec::new()
    }

    /// Slots that are free now.
    pub fn free(&self) -> usize {
        self.buffer.capacity.saturating_sub(self.buffer.queue.lock().fetched.len())
    }

    /// Waits until half of them are: a question for one message costs as much as one for many, and the other half keeps the workers busy. False once
    /// it is closed.
    pub async fn has_much_capacity(&self) -> bool {
        self.has(self.buffer.capacity.div_ceil(2)).await
    }

    /// Waits until one is.
    pub async fn has_capacity(&self) -> bool {
        self.has(1).await
    }

    async fn has(&self, slots: usize) -> bool {
        loop {
            {
                let mut queue = self.buffer.queue.lock();
                let is_free = !queue.is_held && self.buffer.capacity.saturating_sub(queue.fetched.len()) >= slots;
                queue.wanted = if is_free || queue.is_closed { 0 } else { slots };
                if queue.is_closed {
                    return false;
                }
                if is_free {
                    return true;
                }
            }
            self.buffer.freed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::source::{Incoming, IncomingMessage};
    use super::feed;

    fn numbered(numbers: std::ops::Range<u32>) -> Vec<Incoming<u32>> {
        numbers.map(|receipt| Incoming { message: IncomingMessage::default(), receipt }).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_message_reaches_one_worker_whatever_waits_and_is_dropped() {
        let (feeder, feed) = feed(10);
        let feed = std::sync::Arc::new(feed);
        let workers = (0..5).map(|worker| {
            let feed = std::sync::Arc::clone(&feed);
            tokio::spawn(async move {
                let mut taken = Vec::new();
                loop {
                    // Some give up waiting, as a worker does that turns.
                    match tokio::time::timeout(Duration::from_micros(50 * worker), feed.next()).await {
                        Ok(Some(incoming)) => taken.push(incoming.receipt),
                        Ok(None) => return taken,
                        Err(_) => {}
                    }
                }
            })
        });
        let workers: Vec<_> = workers.collect();
        for at in 0..2_000 {
            assert!(feeder.has_much_capacity().await);
            assert!(feeder.push_all(numbered(at * 5..at * 5 + 5)).await.is_empty());
        }
        let all_taken = async {
            while feeder.free() < 10 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), all_taken).await.expect("nobody sleeps beside a message");
        assert!(feed.close().await.is_empty());
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.await.unwrap());
        }
        all.sort_unstable();
        assert_eq!(all, (0..10_000).collect::<Vec<_>>());
        assert!(!feeder.has_capacity().await);
        assert_eq!(feeder.push_all(numbered(0..2)).await.len(), 2, "what comes too late comes back");
    }
}
