//! One layer and one service for all policies: what differs between them is a [`Guard`].
//!
//! # The state
//! A [`Guarded`] is the service below, never asked whether it is ready, and the guard, shared by all clones. A call clones the
//! one, counts a reference to the other, and leaves the rest to the future.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::error::Failure;

/// What the services below must be, said once: any service that can be cloned and sent.
pub trait Wrapped<Req>:
    Service<Req, Response: Send + 'static, Error: Send + 'static, Future: Send> + Clone + Send + 'static
{
}

impl<Req, S> Wrapped<Req> for S where
    S: Service<Req, Response: Send + 'static, Error: Send + 'static, Future: Send> + Clone + Send + 'static
{
}

/// How the errors of the service below become failures.
pub trait Nesting<E>: Send + Sync + 'static {
    /// The error of the service itself, however many layers are between.
    type Own: Send + 'static;

    fn failure(error: E) -> Failure<Self::Own>;
}

/// The service below has errors of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Innermost;

/// The service below gives failures already: it is another layer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Around;

impl<E: Send + 'static> Nesting<E> for Innermost {
    type Own = E;

    fn failure(error: E) -> Failure<E> {
        Failure::Inner(error)
    }
}

impl<E: Send + 'static> Nesting<Failure<E>> for Around {
    type Own = E;

    fn failure(failure: Failure<E>) -> Failure<E> {
        failure
    }
}

/// What a layer does around one call of the service `S`.
pub trait Guard<S: Service<Req>, Req, N: Nesting<S::Error>>: Send + Sync + 'static {
    /// Makes `service` ready, if it comes to that, and calls it.
    fn guard(&self, service: S, request: Req) -> impl Future<Output = Result<S::Response, Failure<N::Own>>> + Send;
}

/// A policy as a layer. See the [module](super).
#[derive(Debug, Clone)]
pub struct GuardLayer<G, N = Innermost> {
    pub(super) guard: G,
    pub(super) nesting: PhantomData<N>,
}

impl<G, N> GuardLayer<G, N> {
    pub(super) fn map<F>(self, map: impl FnOnce(G) -> F) -> GuardLayer<F, N> {
        GuardLayer { guard: map(self.guard), nesting: PhantomData }
    }
}

/// `constructors!([parameters] Guard, "what more there is to say", (argument: Type, ...) => guard)`: the two of a layer. A closure that
/// judges requests has its bound at the end: `, <Req> where K: Fn(&Req) -> ...`.
macro_rules! constructors {
    (
        [$($own:ident),*] $guard:ty, $note:literal, ($($argument:ident: $type:ty),*) => $made:expr
        $(, <$req:ident> where $($bound:tt)+)?
    ) => {
        impl<$($own),*> GuardLayer<$guard, Innermost> {
            #[doc = concat!("Directly around a service with errors of its own", $note)]
            pub fn new$(<$req>)?($($argument: $type),*) -> Self $(where $($bound)+)? {
                Self { guard: $made, nesting: PhantomData }
            }
        }

        impl<$($own),*> GuardLayer<$guard, Around> {
            #[doc = concat!("Around another layer of this module", $note)]
            pub fn around$(<$req>)?($($argument: $type),*) -> Self $(where $($bound)+)? {
                Self { guard: $made, nesting: PhantomData }
            }
        }
    };
}

impl<S, G: Clone, N> Layer<S> for GuardLayer<G, N> {
    type Service = Guarded<S, G, N>;

    fn layer(&self, service: S) -> Self::Service {
        Guarded { service, guard: Arc::new(self.guard.clone()), nesting: PhantomData }
    }
}

/// The future of a call.
pub type CallFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, Failure<E>>> + Send>>;

/// A service inside of a policy. See the [module](super).
#[derive(Debug)]
pub struct Guarded<S, G, N> {
    service: S,
    guard: Arc<G>,
    nesting: PhantomData<N>,
}

impl<S: Clone, G, N> Clone for Guarded<S, G, N> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), guard: Arc::clone(&self.guard), nesting: PhantomData }
    }
}

impl<S, G, N, Req> Service<Req> for Guarded<S, G, N>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    G: Guard<S, Req, N>,
    Req: Send + 'static,
{
    type Response = S::Response;
    type Error = Failure<N::Own>;
    type Future = CallFuture<S::Response, N::Own>;

    /// Always: see the [module](super).
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (guard, service) = (Arc::clone(&self.guard), self.service.clone());
        Box::pin(async move { guard.guard(service, request).await })
    }
}

/// Makes the service ready and calls it. It is gone before the response is waited for: whatever readiness reserved is the
/// call's alone.
pub(crate) async fn call_ready<S: Service<Req>, Req>(mut service: S, request: Req) -> Result<S::Response, S::Error> {
    poll_fn(|context| service.poll_ready(context)).await?;
    let reply = service.call(request);
    drop(service);
    reply.await
}

pub(super) async fn ask<N, S, Req>(service: S, request: Req) -> Result<S::Response, Failure<N::Own>>
where
    S: Service<Req>,
    N: Nesting<S::Error>,
{
    call_ready(service, request).await.map_err(N::failure)
}
