//! What a source fetched and nobody has begun: a bounded buffer between the task that fetches and the workers that take.

use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::source::Incoming;

/// The end of the workers.
#[derive(Debug)]
pub(crate) struct Feed<R> {
    fetched: Mutex<mpsc::Receiver<Incoming<R>>>,
    closed: CancellationToken,
}

/// The end of the task that fetches. It is to stop when `closed` is cancelled.
#[derive(Debug, Clone)]
pub(crate) struct Feeder<R> {
    sender: mpsc::Sender<Incoming<R>>,
    pub closed: CancellationToken,
}

/// A buffer for so many messages.
pub(crate) fn feed<R>(capacity: usize) -> (Feeder<R>, Feed<R>) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    let closed = CancellationToken::new();
    (Feeder { sender, closed: closed.clone() }, Feed { fetched: Mutex::new(receiver), closed })
}

impl<R> Feed<R> {
    /// Dropping this future loses nothing.
    pub async fn next(&self) -> Option<Incoming<R>> {
        if self.closed.is_cancelled() {
            return None;
        }
        let mut fetched = self.fetched.lock().await;
        tokio::select! {
            biased;
            () = self.closed.cancelled() => None,
            incoming = fetched.recv() => incoming,
        }
    }

    /// No more is fetched, and what was is returned.
    pub async fn close(&self) -> Vec<Incoming<R>> {
        self.closed.cancel();
        let mut fetched = self.fetched.lock().await;
        fetched.close();
        let mut left = Vec::new();
        while let Some(incoming) = fetched.recv().await {
            left.push(incoming);
        }
        left
    }
}

impl<R> Drop for Feed<R> {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl<R> Feeder<R> {
    /// Waits for a free slot. What cannot be handed over any more comes back.
    pub async fn push(&self, incoming: Incoming<R>) -> Result<(), Incoming<R>> {
        // Once closed the buffer is drained by the other end, which frees a slot or closes it.
        self.sender.send(incoming).await.map_err(|refused| refused.0)
    }

    /// Slots that are free now.
    pub fn free(&self) -> usize {
        self.sender.capacity()
    }

    /// Waits until half of them are: a question for one message costs as much as one for many, and the other half keeps the workers busy. False once
    /// it is closed.
    pub async fn has_much_capacity(&self) -> bool {
        let half = self.sender.max_capacity().div_ceil(2);
        tokio::select! {
            biased;
            () = self.closed.cancelled() => false,
            permits = self.sender.reserve_many(half) => permits.is_ok(),
        }
    }

    /// Waits until one is.
    pub async fn has_capacity(&self) -> bool {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => false,
            permit = self.sender.reserve() => permit.is_ok(),
        }
    }
}
