//! [`LocalBulkhead`] around a service: the whole of it, or the partition that a request belongs to.

use std::borrow::Cow;
use std::marker::PhantomData;

use super::guarded::{Guard, Innermost, Nesting, Wrapped, ask};
use super::layer::layer;
use crate::error::Failure;
use crate::policy::LocalBulkhead;

/// So many calls at once, so many more in line, and the rest is refused.
#[derive(Debug, Clone)]
pub struct BulkheadLayer<P = OnePartition, N = Innermost> {
    bulkhead: LocalBulkhead,
    partition: P,
    nesting: PhantomData<N>,
}

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

layer!(
    BulkheadLayer<; P = OnePartition>,
    ".",
    (bulkhead: LocalBulkhead) { partition: OnePartition }
);

impl<P, N> BulkheadLayer<P, N> {
    /// Which partition a request belongs to: `|request: &Request| Some(request.tenant.as_str().into())`. A name that the
    /// bulkhead's settings do not have is refused as `INVALID_ARGUMENT`; `None` is the bulkhead itself.
    pub fn partition_by<Req, F>(self, partition: F) -> BulkheadLayer<F, N>
    where
        F: for<'a> Fn(&'a Req) -> Option<Cow<'a, str>>,
    {
        BulkheadLayer { bulkhead: self.bulkhead, partition, nesting: PhantomData }
    }
}

impl<S, Req, P, N> Guard<S, Req> for BulkheadLayer<P, N>
where
    S: Wrapped<Req>,
    N: Nesting<S::Error>,
    P: Partition<Req> + Send + Sync + 'static,
    Req: Send + 'static,
{
    type Own = N::Own;

    async fn guard(&self, service: S, request: Req) -> Result<S::Response, Failure<N::Own>> {
        let of_its_own = match self.partition.partition(&request) {
            None => None,
            Some(name) => Some(self.bulkhead.partition(&name)?),
        };
        let bulkhead = of_its_own.as_ref().unwrap_or(&self.bulkhead);
        bulkhead.around(|| ask::<N, S, Req>(service, request)).await
    }
}
