//! [`Lock`] around a service: one request at a time, of those that have to do with the same thing.

use std::marker::PhantomData;

use super::guarded::{Guard, Innermost, Nesting, Wrapped, ask};
use super::layer::layer;
use super::response::flatten;
use crate::error::{Error, Failure};
use crate::lock::Lock;

/// Requests with the same lock come one after the other, wherever they run. A call whose lock is lost is dropped, unless the
/// lock says otherwise.
#[derive(Debug, Clone)]
pub struct LockLayer<L, N = Innermost> {
    lock: L,
    nesting: PhantomData<N>,
}

layer!(
    LockLayer<L;>,
    ". `lock` says which lock a request needs: `move |request: &Request| client.lock(&request.order, LockSettings::new())`.",
    (lock: L) {} <Req> where L: Fn(&Req) -> Result<Lock, Error>
);

impl<S, Req, L, N> Guard<S, Req> for LockLayer<L, N>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    L: Fn(&Req) -> Result<Lock, Error> + Send + Sync + 'static,
    Req: Send + 'static,
{
    type Own = N::Own;

    async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
        let lock = (self.lock)(&request)?;
        flatten(lock.with_lock(|_held| ask::<N, S, Req>(service, request)).await)
    }
}
