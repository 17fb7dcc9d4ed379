//! [`SharedBulkhead`] around a service: so many calls at once, of a whole fleet.

use std::marker::PhantomData;

use super::guarded::{Guard, Innermost, Nesting, Wrapped, ask};
use super::layer::layer;
use super::response::flatten;
use crate::error::Failure;
use crate::shared_bulkhead::SharedBulkhead;

/// So many calls at once, wherever they run. A call whose permit is lost is dropped.
#[derive(Debug, Clone)]
pub struct SharedBulkheadLayer<N = Innermost> {
    bulkhead: SharedBulkhead,
    nesting: PhantomData<N>,
}

layer!(
    SharedBulkheadLayer<;>,
    ".",
    (bulkhead: SharedBulkhead) {}
);

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
