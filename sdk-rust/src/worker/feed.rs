//! What a source fetched and nobody has begun: a bounded buffer between the task that fetches and the workers that take.
//!
//! Taking from a buffer that is not empty waits for nobody, so workers do not wake each other. The two semaphores count what is there and what is
//! free; the queue itself is behind a lock that nobody holds while waiting.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::source::Incoming;

#[derive(Debug)]
struct Buffer<R> {
    queue: Mutex<BufferQueue<R>>,
    filled: Semaphore,
    free: Semaphore,
    capacity: usize,
}

#[derive(Debug)]
struct BufferQueue<R> {
    fetched: VecDeque<Incoming<R>>,
    is_closed: bool,
}

/// The end of the workers.
#[derive(Debug)]
pub(crate) struct Feed<R> {
    buffer: Arc<Buffer<R>>,
    closed: CancellationToken,
}

/// The end of the task that fetches. It is to stop when `closed` is cancelled.
#[derive(Debug)]
pub(crate) struct Feeder<R> {
    buffer: Arc<Buffer<R>>,
    pub closed: CancellationToken,
}

/// A buffer for so many messages.
pub(crate) fn feed<R>(capacity: usize) -> (Feeder<R>, Feed<R>) {
    let capacity = capacity.max(1);
    let queue = Mutex::new(BufferQueue { fetched: VecDeque::new(), is_closed: false });
    let buffer = Arc::new(Buffer { queue, filled: Semaphore::new(0), free: Semaphore::new(capacity), capacity });
    let closed = CancellationToken::new();
    (Feeder { buffer: Arc::clone(&buffer), closed: closed.clone() }, Feed { buffer, closed })
}

impl<R> Feed<R> {
    /// Dropping this future loses nothing.
    pub async fn next(&self) -> Option<Incoming<R>> {
        if self.closed.is_cancelled() {
            return None;
        }
        let filled = match self.buffer.filled.try_acquire() {
            Ok(filled) => filled,
            Err(_) => tokio::select! {
                biased;
                () = self.closed.cancelled() => return None,
                filled = self.buffer.filled.acquire() => filled.ok()?,
            },
        };
        filled.forget();
        let incoming = self.buffer.queue.lock().fetched.pop_front();
        self.buffer.free.add_permits(1);
        incoming
    }

    /// No more is fetched, and what was is returned.
    pub async fn close(&self) -> Vec<Incoming<R>> {
        self.closed.cancel();
        let left = {
            let mut queue = self.buffer.queue.lock();
            queue.is_closed = true;
            std::mem::take(&mut queue.fetched)
        };
        self.buffer.free.close();
        self.buffer.filled.close();
        left.into()
    }
}

impl<R> Drop for Feed<R> {
    fn drop(&mut self) {
        self.closed.cancel();
        self.buffer.queue.lock().is_closed = true;
        self.buffer.free.close();
    }
}

impl<R> Feeder<R> {
    /// Waits for a free slot. What cannot be handed over any more comes back.
    pub async fn push(&self, incoming: Incoming<R>) -> Result<(), Incoming<R>> {
        match self.buffer.free.acquire().await {
            Ok(slot) => slot.forget(),
            Err(_) => return Err(incoming),
        }
        let mut queue = self.buffer.queue.lock();
        if queue.is_closed {
            return Err(incoming);
        }
        queue.fetched.push_back(incoming);
        drop(queue);
        self.buffer.filled.add_permits(1);
        Ok(())
    }

    /// All at once where there are as many free slots, which is when they were asked for.
    pub async fn push_all(&self, mut all: Vec<Incoming<R>>) -> Vec<Incoming<R>> {
        let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        if let Ok(slots) = self.buffer.free.try_acquire_many(count) {
            slots.forget();
            let mut queue = self.buffer.queue.lock();
            if queue.is_closed {
                return all;
            }
            queue.fetched.extend(all.drain(..));
            drop(queue);
            self.buffer.filled.add_permits(count as usize);
            return all;
        }
        let mut refused = Vec::new();
        for incoming in all {
            refused.extend(self.push(incoming).await.err());
        }
        refused
    }

    /// Slots that are free now.
    pub fn free(&self) -> usize {
        self.buffer.free.available_permits()
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
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        tokio::select! {
            biased;
            () = self.closed.cancelled() => false,
            permits = self.buffer.free.acquire_many(slots) => permits.is_ok(),
        }
    }
}
