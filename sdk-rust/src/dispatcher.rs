//! Many pieces of the same work, a few at a time.
//!
//! The promise: every item is begun at most once, never more than `workers` are running, and whatever one of them does
//! (fails, panics) is its own result and nobody else's. An item that was not begun says so.
//!
//! - [`Dispatcher::run`]: a batch, spread over tasks; the results in the order of the items.
//! - [`Dispatcher::run_unordered`]: the same, in the order of completion.
//! - [`Dispatcher::run_local`]: a batch inside the calling task, for futures that borrow or cannot be sent.
//! - [`Dispatcher::stream`], [`Dispatcher::stream_unordered`]: items that are still coming. Nothing is taken from the
//!   source unless a worker is free for it.
//!
//! Dropping the future or the stream cancels what is in flight. To end in good order, cancel the token of
//! [`Dispatcher::stop_with`]: what is running runs to its end, nothing more is begun. A batch is a handful of tasks that take items from one
//! queue, not a task per item.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::dispatcher::{Dispatcher, DispatcherSettings, ItemError};
//!
//! let results = Dispatcher::new(DispatcherSettings::new(4))?
//!     .run(["1", "2", "three"], |text| async move { text.parse::<u32>() })
//!     .await;
//! assert_eq!(results[..2], [Ok(1), Ok(2)]);
//! assert!(matches!(results[2], Err(ItemError::Failed(_))));
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::future::Future;
use std::sync::Arc;

use futures_util::stream::{self, Stream, StreamExt};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::error::{Error, Failure};
use crate::isolate::{self, Ended};
use crate::settings::setters;
use crate::settings::span_text::check_number;

/// Why there is no result of an item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemError<E> {
    /// It ran and returned this.
    #[error("{0}")]
    Failed(E),
    /// It ran and panicked, with this text.
    #[error("the item crashed: {0}")]
    Crashed(String),
    /// It was running when the batch was stopped. What it did until then is done.
    #[error("the item was cancelled while it was running")]
    Cancelled,
    /// It never began, because the batch was stopped before, or there is no tokio runtime to run it.
    #[error("the item was not begun")]
    NotRun,
}

impl<E> ItemError<E> {
    /// Whether the item was begun: it may have done something.
    pub fn was_begun(&self) -> bool {
        !matches!(self, Self::NotRun)
    }
}

impl<E> From<ItemError<E>> for Failure<E> {
    fn from(error: ItemError<E>) -> Self {
        match error {
            ItemError::Failed(error) => Self::Inner(error),
            ItemError::Crashed(text) => Self::Resil(Error::Crashed(text)),
            ItemError::Cancelled | ItemError::NotRun => Self::Resil(Error::Cancelled),
        }
    }
}

/// What becomes of the others when an item fails or crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// They run.
    #[default]
    Continue,
    /// Nothing more is begun; what is running runs to its end.
    Stop,
    /// Nothing more is begun, and what is running is cancelled.
    Cancel,
}

/// How many items run at once, and what becomes of the others when one fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DispatcherSettings {
    /// 1 to 1,000,000.
    pub workers: usize,
    #[serde(default)]
    pub on_error: OnError,
}

setters! { DispatcherSettings { on_error: OnError } }

impl DispatcherSettings {
    pub fn new(workers: usize) -> Self {
        Self { workers, on_error: OnError::default() }
    }

    pub fn validate(&self) -> Result<(), Error> {
        check_number("workers", self.workers, 1, 1_000_000)
    }
}

/// What one item came to.
pub type ItemResult<R, E> = Result<R, ItemError<E>>;

/// Runs items, a few at a time. Cheap to clone; has no tasks of its own between runs.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    settings: DispatcherSettings,
    cancel: CancellationToken,
    stop: CancellationToken,
}

impl Dispatcher {
    pub fn new(settings: DispatcherSettings) -> Result<Self, Error> {
        settings.validate()?;
        Ok(Self { settings, cancel: CancellationToken::new(), stop: CancellationToken::new() })
    }

    /// When `token` is cancelled, running items are cancelled and no more are begun.
    pub fn cancel_with(mut self, token: &CancellationToken) -> Self {
        self.cancel = token.clone();
        self
    }

    /// When `token` is cancelled, no more items are begun; those that are running run to their end. For a graceful stop:
    /// items that were not begun say so, and a stream takes nothing more from its source.
    pub fn stop_with(mut self, token: &CancellationToken) -> Self {
        self.stop = token.clone();
        self
    }

    /// Runs `work` on every item, on as many tasks as there are workers. The results are in the order of the items.
    pub async fn run<T, R, E, Fut>(
        &self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> Fut + Send + Sync + 'static,
    ) -> Vec<ItemResult<R, E>>
    where
        T: Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        in_order(self.run_unordered(items, work).await)
    }

    /// The same as [`run`](Self::run), in the order of completion; each result with the number of its item, from 0.
    /// Items that were not begun come last.
    pub async fn run_unordered<T, R, E, Fut>(
        &self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> Fut + Send + Sync + 'static,
    ) -> Vec<(usize, ItemResult<R, E>)>
    where
        T: Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        let queue: Vec<T> = items.into_iter().collect();
        let count = queue.len();
        let shared = Arc::new(BatchState {
            batch: self.begin(),
            queue: Mutex::new(queue.into_iter().enumerate()),
            results: Mutex::new(Vec::with_capacity(count)),
            work,
        });
        // Dropping this future drops the tasks with it.
        let _cancel_when_dropped: DropGuard = shared.batch.cancel.clone().drop_guard();
        let mut workers = JoinSet::new();
        // Without a runtime nothing begins, and every item says so.
        let tasks = if Handle::try_current().is_ok() { self.settings.workers.min(count) } else { 0 };
        for _ in 0..tasks {
            let shared = Arc::clone(&shared);
            workers.spawn(async move { shared.work_until_empty().await }.in_current_span());
        }
        while workers.join_next().await.is_some() {}

        let mut results = std::mem::take(&mut *shared.results.lock());
        let left = std::mem::take(&mut *shared.queue.lock());
        results.extend(left.map(|(index, _)| (index, Err(ItemError::NotRun))));
        results
    }

    /// The same as [`run`](Self::run) inside the calling task: concurrent, but on one thread, so the work may borrow and
    /// need not be `Send`.
    pub async fn run_local<T, R, E, Fut>(
        &self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> Fut,
    ) -> Vec<ItemResult<R, E>>
    where
        Fut: Future<Output = Result<R, E>>,
    {
        in_order(self.run_unordered_local(items, work).await)
    }

    /// The same as [`run_unordered`](Self::run_unordered) inside the calling task.
    pub async fn run_unordered_local<T, R, E, Fut>(
        &self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> Fut,
    ) -> Vec<(usize, ItemResult<R, E>)>
    where
        Fut: Future<Output = Result<R, E>>,
    {
        let batch = self.begin();
        let (batch, work) = (&batch, &work);
        let mut items = items.into_iter().enumerate();
        let taken = std::iter::from_fn(|| if batch.is_stopped() { None } else { items.next() });
        let running = taken.map(|(index, item)| async move { (index, batch.run_unless_stopped(|| work(item)).await) });
        let mut results: Vec<_> = stream::iter(running).buffer_unordered(self.settings.workers).collect().await;
        results.extend(items.map(|(index, _)| (index, Err(ItemError::NotRun))));
        results
    }

    /// Runs `work` on items as they come. The results are in the order of the items: a slow one holds back those after
    /// it, and never are more than `workers` items begun whose results were not taken.
    ///
    /// If the dispatcher stops at an error, no more is taken from the source; it is not known how much there would have
    /// been. The stream ends with the results of what was taken.
    pub fn stream<T, R, E, S, F, Fut>(
        &self,
        items: S,
        work: F,
    ) -> impl Stream<Item = ItemResult<R, E>> + Send + use<T, R, E, S, F, Fut>
    where
        S: Stream<Item = T> + Send,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        T: Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.spawn_each(items, work).buffered(self.settings.workers)
    }

    /// The same in the order of completion: a slow item holds back nobody.
    pub fn stream_unordered<T, R, E, S, F, Fut>(
        &self,
        items: S,
        work: F,
    ) -> impl Stream<Item = ItemResult<R, E>> + Send + use<T, R, E, S, F, Fut>
    where
        S: Stream<Item = T> + Send,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        T: Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.spawn_each(items, work).buffer_unordered(self.settings.workers)
    }

    /// The same as [`stream`](Self::stream) inside the calling task: what was begun goes on only while results are asked for.
    pub fn stream_local<T, R, E, Fut>(
        &self,
        items: impl Stream<Item = T>,
        work: impl Fn(T) -> Fut,
    ) -> impl Stream<Item = ItemResult<R, E>>
    where
        Fut: Future<Output = Result<R, E>>,
    {
        self.each_local(items, work).buffered(self.settings.workers)
    }

    /// The same as [`stream_unordered`](Self::stream_unordered) inside the calling task.
    pub fn stream_unordered_local<T, R, E, Fut>(
        &self,
        items: impl Stream<Item = T>,
        work: impl Fn(T) -> Fut,
    ) -> impl Stream<Item = ItemResult<R, E>>
    where
        Fut: Future<Output = Result<R, E>>,
    {
        self.each_local(items, work).buffer_unordered(self.settings.workers)
    }

    fn each_local<T, R, E, Fut>(
        &self,
        items: impl Stream<Item = T>,
        work: impl Fn(T) -> Fut,
    ) -> impl Stream<Item = impl Future<Output = ItemResult<R, E>>>
    where
        Fut: Future<Output = Result<R, E>>,
    {
        let (batch, work) = (Arc::new(self.begin()), Arc::new(work));
        items.take_until(batch.stopped()).map(move |item| {
            let (batch, work) = (Arc::clone(&batch), Arc::clone(&work));
            async move { batch.run_unless_stopped(|| work(item)).await }
        })
    }

    /// One task per item, begun when the item is taken from the source.
    fn spawn_each<T, R, E, S, F, Fut>(
        &self,
        items: S,
        work: F,
    ) -> impl Stream<Item = impl Future<Output = ItemResult<R, E>> + Send + use<T, R, E, S, F, Fut>>
    + Send
    + use<T, R, E, S, F, Fut>
    where
        S: Stream<Item = T> + Send,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        T: Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        let (batch, work) = (Arc::new(self.begin()), Arc::new(work));
        // Looks at the token before the source: what is not begun stays there.
        items.take_until(batch.stopped()).map(move |item| {
            let (batch, work) = (Arc::clone(&batch), Arc::clone(&work));
            let item = async move { batch.run_unless_stopped(|| work(item)).await };
            let spawn = |runtime: Handle| AbortOnDropHandle::new(runtime.spawn(item.in_current_span()));
            let task = Handle::try_current().map(spawn);
            async move {
                let Ok(task) = task else { return Err(ItemError::NotRun) };
                // No panic gets out of the task: what is left is that its runtime was closed.
                task.await.unwrap_or(Err(ItemError::Cancelled))
            }
        })
    }

    fn begin(&self) -> Batch {
        let cancel = self.cancel.child_token();
        let stop = cancel.child_token();
        Batch { on_error: self.settings.on_error, stop, stop_from_outside: self.stop.clone(), cancel }
    }
}

/// One run: what stops it.
#[derive(Debug)]
struct Batch {
    on_error: OnError,
    /// Nothing more is begun. A child of `cancel`.
    stop: CancellationToken,
    /// The same, by [`Dispatcher::stop_with`].
    stop_from_outside: CancellationToken,
    /// What is running is dropped.
    cancel: CancellationToken,
}

impl Batch {
    fn is_stopped(&self) -> bool {
        self.stop.is_cancelled() || self.stop_from_outside.is_cancelled()
    }

    /// Returns when nothing more is to be begun.
    fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let (stop, stop_from_outside) = (self.stop.clone(), self.stop_from_outside.clone());
        async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = stop_from_outside.cancelled() => {}
            }
        }
    }

    /// For items that are taken some time before they are first polled: another may have failed since.
    async fn run_unless_stopped<R, E, Fut>(&self, make: impl FnOnce() -> Fut) -> ItemResult<R, E>
    where
        Fut: Future<Output = Result<R, E>>,
    {
        if self.is_stopped() { Err(ItemError::NotRun) } else { self.run(make).await }
    }

    async fn run<R, E, Fut>(&self, make: impl FnOnce() -> Fut) -> ItemResult<R, E>
    where
        Fut: Future<Output = Result<R, E>>,
    {
        let error = match isolate::run(&self.cancel, make).await {
            Ended::Returned(Ok(result)) => return Ok(result),
            Ended::Cancelled => return Err(ItemError::Cancelled),
            Ended::Returned(Err(error)) => ItemError::Failed(error),
            Ended::Panicked(text) => ItemError::Crashed(text),
        };
        match self.on_error {
            OnError::Continue => {}
            OnError::Stop => self.stop.cancel(),
            OnError::Cancel => self.cancel.cancel(),
        }
        Err(error)
    }
}

/// What the tasks of one batch share.
struct BatchState<T, R, E, F> {
    batch: Batch,
    queue: Mutex<std::iter::Enumerate<std::vec::IntoIter<T>>>,
    results: Mutex<Vec<(usize, ItemResult<R, E>)>>,
    work: F,
}

impl<T, R, E, F> BatchState<T, R, E, F> {
    async fn work_until_empty<Fut>(&self)
    where
        F: Fn(T) -> Fut,
        Fut: Future<Output = Result<R, E>>,
    {
        while !self.batch.is_stopped() {
            let Some((index, item)) = self.queue.lock().next() else { return };
            let result = self.batch.run(|| (self.work)(item)).await;
            self.results.lock().push((index, result));
            // Items that never wait would keep everybody else, and the end of this task, waiting.
            tokio::task::coop::consume_budget().await;
        }
    }
}

fn in_order<R, E>(mut results: Vec<(usize, ItemResult<R, E>)>) -> Vec<ItemResult<R, E>> {
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
