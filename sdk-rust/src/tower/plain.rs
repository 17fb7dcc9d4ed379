//! Policies that pass on whatever the service responds: timeout, bulkheads, rate limit, lock, fallback.

use std::borrow::Cow;
use std::marker::PhantomData;

use smallvec::SmallVec;

use super::guarded::{Around, Guard, GuardLayer, Innermost, Nesting, Wrapped, ask};
use crate::error::{Error, Failure};
use crate::limiter::Limiter;
use crate::lock::Lock;
use crate::policy::{Fallback, LocalBulkhead, Timeout};
use crate::shared_bulkhead::SharedBulkhead;

/// No call takes longer than agreed. Waiting until the service is ready counts.
pub type TimeoutLayer<N = Innermost> = GuardLayer<Timeout, N>;

/// So many calls at once, wherever they run. A call whose permit is lost is dropped.
pub type SharedBulkheadLayer<N = Innermost> = GuardLayer<SharedBulkhead, N>;

/// Another response in place of a failure. `Res` is the service's response, `E` its own error.
pub type FallbackLayer<Res, E, N = Innermost> = GuardLayer<Fallback<Res, E>, N>;

/// So many calls at once, so many more in the queue, and the rest is refused.
pub type BulkheadLayer<P = OnePartition, N = Innermost> = GuardLayer<Partitioned<P>, N>;

/// No more requests of one key than the limit allows, over all processes.
pub type RateLimitLayer<K, N = Innermost> = GuardLayer<LimitedBy<K>, N>;

/// Requests with the same lock come one after the other, wherever they run. A call whose lock is lost is dropped, unless the
/// lock says otherwise.
pub type LockLayer<L, N = Innermost> = GuardLayer<LockedBy<L>, N>;

/// The guard of a [`BulkheadLayer`].
#[derive(Debug, Clone)]
pub struct Partitioned<P> {
    bulkhead: LocalBulkhead,
    partition: P,
}

/// The guard of a [`RateLimitLayer`].
#[derive(Debug, Clone)]
pub struct LimitedBy<K> {
    limiter: Limiter,
    key: K,
}

/// The guard of a [`LockLayer`].
#[derive(Debug, Clone)]
pub struct LockedBy<L>(L);

/// Which partition a request belongs to. Every `Fn(&Req) -> Option<Cow<str>>` says so; `None` is the bulkhead itself.
pub trait Partition<Req> {
    fn partition<'a>(&self, request: &'a Req) -> Option<Cow<'a, str>>;
}

impl<Req, F: for<'a> Fn(&'a Req) -> Option<Cow<'a, str>>> Partition<Req> for F {
    fn partition<'a>(&self, request: &'a Req) -> Option<Cow<'a, str>> {
        self(request)
    }
}

/// All requests share the bulkhead itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnePartition;

impl<Req> Partition<Req> for OnePartition {
    fn partition<'a>(&self, _request: &'a Req) -> Option<Cow<'a, str>> {
        None
    }
}

constructors!([] Timeout, ".", (timeout: Timeout) => timeout);
constructors!([] SharedBulkhead, ".", (bulkhead: SharedBulkhead) => bulkhead);
constructors!([Res, E] Fallback<Res, E>, ".", (fallback: Fallback<Res, E>) => fallback);
constructors!(
    [] Partitioned<OnePartition>, ".",
    (bulkhead: LocalBulkhead) => Partitioned { bulkhead, partition: OnePartition }
);
constructors!(
    [K] LimitedBy<K>,
    ". `key` says whom a request is counted for: `|request: &Request| request.tenant.as_str().into()`.",
    (limiter: Limiter, key: K) => LimitedBy { limiter, key }, <Req> where K: for<'a> Fn(&'a Req) -> Cow<'a, str>
);
constructors!(
    [L] LockedBy<L>,
    ". `lock` says which lock a request needs: `move |request: &Request| client.lock(&request.order, LockSettings::new())`.",
    (lock: L) => LockedBy(lock), <Req> where L: Fn(&Req) -> Result<Lock, Error>
);

impl<P, N> BulkheadLayer<P, N> {
    /// Which partition a request belongs to: `|request: &Request| Some(request.tenant.as_str().into())`. A name that the
    /// bulkhead's settings do not have is refused as `INVALID_ARGUMENT`; `None` is the bulkhead itself.
    pub fn partition_by<Req, F>(self, partition: F) -> BulkheadLayer<F, N>
    where
        F: for<'a> Fn(&'a Req) -> Option<Cow<'a, str>>,
    {
        self.map(|guard| Partitioned { bulkhead: guard.bulkhead, partition })
    }
}

/// `guard!([parameters] Guard: |guard, service, request| what it does)`.
macro_rules! guard {
    ([$($own:tt)*] $guard:ty: |$this:ident, $service:ident, $request:ident| $does:expr) => {
        impl<S, Req, N, $($own)*> Guard<S, Req, N> for $guard
        where
            S: Wrapped<Req>,
            N: Nesting<S::Error>,
            Req: Send + 'static,
        {
            async fn guard(&self, $service: S, $request: Req) -> Result<S::Response, Failure<N::Own>> {
                let $this = self;
                $does
            }
        }
    };
}

guard!([] Timeout: |timeout, service, request| timeout.around(|| ask::<N, S, Req>(service, request)).await);
guard!([] Fallback<S::Response, N::Own>: |fallback, service, request| {
    fallback.around(|| ask::<N, S, Req>(service, request)).await
});
guard!([] SharedBulkhead: |bulkhead, service, request| {
    flat(bulkhead.run(|| ask::<N, S, Req>(service, request)).await)
});
guard!([P: Partition<Req> + Send + Sync + 'static] Partitioned<P>: |guard, service, request| {
    let _place = guard.bulkhead.acquire_in(guard.partition.partition(&request).as_deref()).await?;
    ask::<N, S, Req>(service, request).await
});
guard!([K: for<'a> Fn(&'a Req) -> Cow<'a, str> + Send + Sync + 'static] LimitedBy<K>: |guard, service, request| {
    // A copy, so that requests need not be `Sync`; off the heap unless it is long.
    let key = SmallVec::<[u8; 64]>::from_slice((guard.key)(&request).as_bytes());
    guard.limiter.acquire(key).await?;
    ask::<N, S, Req>(service, request).await
});
guard!([L: Fn(&Req) -> Result<Lock, Error> + Send + Sync + 'static] LockedBy<L>: |guard, service, request| {
    let lock = (guard.0)(&request)?;
    flat(lock.with_lock(|_held| ask::<N, S, Req>(service, request)).await)
});

/// `around` for policies that only have a `run` for plain errors.
fn flat<T, E>(result: Result<T, Failure<Failure<E>>>) -> Result<T, Failure<E>> {
    result.map_err(|failure| failure.flat_map(|inner| inner))
}
