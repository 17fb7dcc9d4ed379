//! A few different tasks that belong together.
//!
//! The promise: no task of a group outlives it, and a panic is an error of its task. [`Group::wait`] stops at the first
//! error and cancels the others; [`Group::wait_all`] lets all of them end. Either returns when every task is gone.
//! Dropping the group cancels its tasks.
//!
//! For many items of one kind there is the [`dispatcher`](crate::dispatcher).
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::group::Group;
//! use resil::{Code, Error};
//!
//! let mut group = Group::new();
//! group.spawn(async { Ok::<_, Error>("profile") });
//! group.spawn(async { Ok("orders") });
//! assert_eq!(group.wait().await.unwrap(), ["profile", "orders"]);
//!
//! let mut group = Group::<(), Error>::new();
//! group.spawn(async { panic!("no such table") });
//! assert_eq!(group.wait().await.unwrap_err().code(), Some(Code::Crashed));
//! # });
//! ```

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::error::{Error, Failure};
use crate::isolate::{self, Ended};

type OnPanic = Arc<dyn Fn(&str) + Send + Sync>;
type Outcome<T, E> = Result<T, Failure<E>>;

/// Tasks that return `Result<T, E>`. See [`group`](crate::group).
pub struct Group<T, E> {
    tasks: JoinSet<(usize, Outcome<T, E>)>,
    /// How many were spawned: the number of the next.
    spawned: usize,
    cancel: CancellationToken,
    places: Option<Arc<Semaphore>>,
    on_panic: Option<OnPanic>,
    /// A task could not begin, since there was no runtime.
    is_outside: bool,
}

impl<T, E> std::fmt::Debug for Group<T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("spawned", &self.spawned).field("running", &self.tasks.len()).finish()
    }
}

impl<T: Send + 'static, E: Send + 'static> Default for Group<T, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + 'static, E: Send + 'static> Group<T, E> {
    pub fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            spawned: 0,
            cancel: CancellationToken::new(),
            places: None,
            on_panic: None,
            is_outside: false,
        }
    }

    /// At most `tasks` of those spawned from now on run at once; at least one. The others wait for their turn, in order.
    pub fn limit(mut self, tasks: usize) -> Self {
        self.places = Some(Arc::new(Semaphore::new(tasks.clamp(1, Semaphore::MAX_PERMITS))));
        self
    }

    /// Called with a panic's text, in the task that panicked: for an alert. The panic is an error of the task all the same.
    pub fn on_panic(mut self, callback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_panic = Some(Arc::new(callback));
        self
    }

    /// Cancels the group when `token` is cancelled, as if a task had failed.
    pub fn cancel_with(mut self, token: &CancellationToken) -> Self {
        self.cancel = token.child_token();
        self
    }

    /// Cancelled when the first error is found by [`wait`](Self::wait), or when the group is dropped.
    pub fn token(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// How many tasks have not ended.
    pub fn running(&self) -> usize {
        self.tasks.len()
    }

    /// Begins a task. When the group is cancelled it is dropped where it stands.
    pub fn spawn(&mut self, task: impl Future<Output = Result<T, E>> + Send + 'static) {
        let cancel = self.cancel.clone();
        self.begin(cancel, |_| task);
    }

    /// Begins a task that is not dropped when the group is cancelled, but gets a cancelled token, and is waited for: it can put
    /// things in order. Only dropping the group drops it.
    pub fn spawn_with_token<Fut>(&mut self, task: impl FnOnce(CancellationToken) -> Fut + Send + 'static)
    where
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.begin(CancellationToken::new(), task);
    }

    /// `dropped_by` is what drops it once it has begun.
    fn begin<Fut>(
        &mut self,
        dropped_by: CancellationToken,
        make: impl FnOnce(CancellationToken) -> Fut + Send + 'static,
    ) where
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        let index = self.spawned;
        self.spawned += 1;
        let (cancel, places, on_panic) = (self.cancel.clone(), self.places.clone(), self.on_panic.clone());
        let task = async move {
            let turn = async {
                match places {
                    Some(places) => places.acquire_owned().await.ok(),
                    None => None,
                }
            };
            let _place = tokio::select! {
                biased;
                () = cancel.cancelled() => return (index, Err(Error::Cancelled.into())),
                place = turn => place,
            };
            let outcome = match isolate::run(&dropped_by, || make(cancel)).await {
                Ended::Returned(outcome) => outcome.map_err(Failure::Inner),
                Ended::Cancelled => Err(Error::Cancelled.into()),
                Ended::Panicked(text) => {
                    tell(on_panic.as_ref(), &text);
                    Err(Error::Crashed(text).into())
                }
            };
            (index, outcome)
        };
        match Handle::try_current() {
            Ok(runtime) => drop(self.tasks.spawn_on(task.in_current_span(), &runtime)),
            Err(_) => self.is_outside = true,
        }
    }

    /// What the tasks returned, in the order they were spawned; or the first error, after which the others are cancelled.
    /// Returns when all of them are gone.
    pub async fn wait(mut self) -> Result<Vec<T>, Failure<E>> {
        let mut results: Vec<Option<T>> = (0..self.spawned).map(|_| None).collect();
        let mut first: Option<Failure<E>> = self.is_outside.then(|| outside().into());
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok((index, Ok(result))) => results[index] = Some(result),
                Ok((_, Err(failure))) => {
                    self.cancel.cancel();
                    first.get_or_insert(failure);
                }
                // Nobody aborts tasks but the runtime when it closes.
                Err(_) => {
                    first.get_or_insert(Error::Cancelled.into());
                }
            }
        }
        match first {
            Some(failure) => Err(failure),
            None => Ok(results.into_iter().flatten().collect()),
        }
    }

    /// What every task came to, in the order they were spawned. An error cancels nobody.
    pub async fn wait_all(mut self) -> Vec<Result<T, Failure<E>>> {
        let mut outcomes: Vec<Outcome<T, E>> = (0..self.spawned).map(|_| Err(self.unheard_of())).collect();
        while let Some(ended) = self.tasks.join_next().await {
            if let Ok((index, outcome)) = ended {
                outcomes[index] = outcome;
            }
        }
        outcomes
    }

    /// What became of a task that says nothing: it never began, or its runtime closed.
    fn unheard_of(&self) -> Failure<E> {
        if self.is_outside { outside().into() } else { Error::Cancelled.into() }
    }
}

#[cold]
fn outside() -> Error {
    Error::InvalidArgument("tasks can only be begun inside of a tokio runtime".to_owned())
}

impl<T, E> Drop for Group<T, E> {
    fn drop(&mut self) {
        // The tasks themselves are aborted by their set; this is for work that they gave the token to.
        self.cancel.cancel();
    }
}

/// A callback that panics has only itself to blame.
fn tell(on_panic: Option<&OnPanic>, text: &str) {
    let Some(callback) = on_panic else { return };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| callback(text))) {
        tracing::warn!(panic = isolate::panic_text(payload), "the panic callback of a group panicked");
    }
}
