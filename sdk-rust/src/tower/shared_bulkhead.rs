//! [`SharedBulkhead`] around a service: so many calls at once, of a whole fleet.

use std::marker::PhantomData;

use tower_layer::Layer;

use super::guarded::{Around, Guard, Guarded, Innermost, Nesting, Wrapped, ask};
use super::response::flatten;
use crate::error::Failure;
use crate::shared_bulkhead::SharedBulkhead;

/// So many calls at once, wherever they run. A call whose permit is lost is dropped.
#[derive(Debug, Clone)]
pub struct SharedBulkheadLayer<N = Innermost> {
    bulkhead: SharedBulkhead,
    nesting: PhantomData<N>,
}

impl SharedBulkheadLayer {
    /// Directly around a service with errors of its own.
    pub fn new(bulkhead: SharedBulkhead) -> Self {
        Self { bulkhead, nesting: PhantomData }
    }
}

impl SharedBulkheadLayer<Around> {
    /// Around another layer of this module.
    pub fn around(bulkhead: SharedBulkhead) -> Self {
        Self { bulkhead, nesting: PhantomData }
    }
}

impl<S, N: Clone> Layer<S> for SharedBulkheadLayer<N> {
    type Service = Guarded<S, Self>;

    fn layer(&self, service: S) -> Self::Service {
        Guarded::new(service, self.clone())
    }
}

impl<S, Req, N> Guard<S, Req> for SharedBulkheadLayer<N>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    Req: Send + 'static,
{
    type Own = N::Own;

    async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
        flatten(self.bulkhead.run(|| ask::<N, S, Req>(service, request)).await)
    }
}
