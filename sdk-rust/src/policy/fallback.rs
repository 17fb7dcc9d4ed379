//! Fallback: another result in place of a failure.
//!
//! A value, a function of the failure, or an asynchronous function of it that may fail itself. By default it applies to every
//! failure but bad settings and arguments (`INVALID_*`): those are mistakes to be seen, not weather to be hidden.
//! [`when`](Fallback::when) chooses otherwise. A call that succeeds costs one comparison.
//!
//! ```
//! use resil::policy::Fallback;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let prices = Fallback::value(vec![0]);
//! let result = prices.call(|| async { Err::<Vec<u32>, _>("down") }).await;
//! assert_eq!(result, Ok(vec![0]));
//! # });
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::TryFutureExt;
use metrics::Counter;

use crate::error::{Code, Failure};
use crate::telemetry;

type Reply<T, E> = Pin<Box<dyn Future<Output = Result<T, Failure<E>>> + Send>>;
type Function<T, E> = Arc<dyn Fn(Failure<E>) -> Result<T, Failure<E>> + Send + Sync>;
type Predicate<E> = Arc<dyn Fn(&Failure<E>) -> bool + Send + Sync>;
type AsyncFunction<T, E> = Arc<dyn Fn(Failure<E>) -> Reply<T, E> + Send + Sync>;

/// The policy. Cheap to clone.
pub struct Fallback<T, E> {
    instead: Instead<T, E>,
    applies: Predicate<E>,
    name: Arc<str>,
    used: Counter,
}

enum Instead<T, E> {
    Function(Function<T, E>),
    AsyncFunction(AsyncFunction<T, E>),
}

impl<T, E> Clone for Fallback<T, E> {
    fn clone(&self) -> Self {
        let instead = match &self.instead {
            Instead::Function(function) => Instead::Function(Arc::clone(function)),
            Instead::AsyncFunction(function) => Instead::AsyncFunction(Arc::clone(function)),
        };
        let (applies, name, used) = (Arc::clone(&self.applies), Arc::clone(&self.name), self.used.clone());
        Self { instead, applies, name, used }
    }
}

impl<T, E> std::fmt::Debug for Fallback<T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fallback").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a fallback applies to by default.
pub fn all_but_invalid<E>(failure: &Failure<E>) -> bool {
    !matches!(failure.code(), Some(Code::InvalidPolicy | Code::InvalidArgument))
}

impl<T: 'static, E: 'static> Fallback<T, E> {
    fn new(instead: Instead<T, E>) -> Self {
        let name = telemetry::UNNAMED.into();
        let used = telemetry::fallbacks(&name);
        Self { instead, applies: Arc::new(all_but_invalid), name, used }
    }

    /// Always the same result.
    pub fn value(value: T) -> Self
    where
        T: Clone + Send + Sync,
    {
        Self::function(move |_| value.clone())
    }

    /// A result made of the failure.
    pub fn function(function: impl Fn(&Failure<E>) -> T + Send + Sync + 'static) -> Self {
        Self::new(Instead::Function(Arc::new(move |failure| Ok(function(&failure)))))
    }

    /// A result that takes time to make, and may fail in turn. The function gets the failure that it stands in for: return that to
    /// keep it, or keep it as the source of an error of your own ([`Failure`] is an [`std::error::Error`]), so that both are seen.
    pub fn async_function<Fut>(function: impl Fn(Failure<E>) -> Fut + Send + Sync + 'static) -> Self
    where
        Fut: Future<Output = Result<T, Failure<E>>> + Send + 'static,
    {
        Self::new(Instead::AsyncFunction(Arc::new(move |failure| Box::pin(function(failure)))))
    }

    /// Applies only to failures for which `applies` is true, in place of [`all_but_invalid`].
    pub fn when(mut self, applies: impl Fn(&Failure<E>) -> bool + Send + Sync + 'static) -> Self {
        self.applies = Arc::new(applies);
        self
    }

    /// What it is called in metrics and events.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self.used = telemetry::fallbacks(&self.name);
        self
    }

    /// Runs `operation`; if it fails, returns something in its place.
    pub async fn call<Fut>(&self, operation: impl FnOnce() -> Fut) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        self.around(|| operation().map_err(Failure::Inner)).await
    }

    /// The same around another policy: `fallback.around(|| retry.call(classify, || fetch()))`.
    pub async fn around<Fut>(&self, operation: impl FnOnce() -> Fut) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let failure = match operation().await {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        if !(self.applies)(&failure) {
            return Err(failure);
        }
        self.used.increment(1);
        tracing::debug!(name: "resil.fallback", policy = &*self.name, code = failure.code().map(Code::text), "falling back");
        match &self.instead {
            Instead::Function(function) => function(failure),
            Instead::AsyncFunction(function) => function(failure).await,
        }
    }
}
