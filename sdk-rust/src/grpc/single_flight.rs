//! Unary calls to one dependency: identical ones at the same time are one, and a breaker stands before it.
//!
//! # What is promised
//! - Calls are identical if method and ids are, in whatever order the ids come. Of identical calls under way at the same time one
//!   is made; all get its response, or its status. A caller that comes after it ended makes a new one: nothing is kept.
//! - It belongs to all callers that wait for it: a caller that gives up leaves it to the others, and it is dropped only when none waits. It is never
//!   longer under way than [`timeout`](GrpcPolicy::timeout) says, so that nobody waits for a server that does not respond.
//! - A call that panics is `INTERNAL` for all who wait.
//!
//! Responses are shared by all callers that give the same ids. What else they depend on (the tenant, the user and what they may see) belongs among
//! the ids.
//!
//! # The state
//! A table of the calls under way, weakly held: the futures of the callers keep a call alive and drive it, no task does. A call
//! leaves the table before its response is handed out.
//!
//! ```
//! use resil::grpc::GrpcPolicy;
//! use tonic::Response;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let products = GrpcPolicy::new();
//! let response = products.unary("/shop.v1.Products/Get", ["p-2", "p-1"], || async { Ok(Response::new("two products")) });
//! assert_eq!(response.await.unwrap().into_inner(), "two products");
//! # });
//! ```

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Response, Status};

use super::RetryStatuses;
use crate::breaker::Breaker;
use crate::clock::Clock;
use crate::error::{Error, Failure};
use crate::isolate::panic_text;

/// How long a call may be under way by default.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// What keeps identical calls together. Cheap to clone; clones share the calls under way.
#[derive(Debug, Clone)]
pub struct GrpcPolicy {
    flights: Arc<SharedCalls>,
    breaker: Option<Breaker>,
    statuses: RetryStatuses,
    timeout: Duration,
    clock: Clock,
}

#[derive(Debug, Default)]
struct SharedCalls(Mutex<CallTable>);

#[derive(Debug, Default)]
struct CallTable {
    by_key: HashMap<Key, SharedCall>,
    last_number: u64,
}

/// The type of the response belongs to the key: what is found under it can be cast.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    reply: TypeId,
    method: Arc<str>,
    ids: [u8; 16],
}

#[derive(Debug)]
struct SharedCall {
    number: u64,
    /// A `WeakShared<Flight<T>>`, with the `T` of the key.
    flight: Box<dyn Any + Send>,
}

type Flight<T> = Pin<Box<dyn Future<Output = Result<Arc<Landed<T>>, Status>> + Send>>;

struct Landed<T> {
    metadata: MetadataMap,
    message: T,
    extensions: Extensions,
}

impl Default for GrpcPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl GrpcPolicy {
    /// Without a breaker.
    pub fn new() -> Self {
        Self {
            flights: Arc::default(),
            breaker: None,
            statuses: RetryStatuses::default(),
            timeout: DEFAULT_TIMEOUT,
            clock: Clock::system(),
        }
    }

    /// Asked once for each call that is made. While it is open the status is `UNAVAILABLE`.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// How long a call may be under way; then its status is `DEADLINE_EXCEEDED`. 5 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Another clock than the machine's, for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes `call`, or waits for the identical one that is under way. `method` is its path (`/package.Service/Method`) or any other name.
    pub async fn unary<T, Id, F, Fut>(
        &self,
        method: &str,
        ids: impl IntoIterator<Item = Id>,
        call: F,
    ) -> Result<Response<T>, Status>
    where
        T: Clone + Send + Sync + 'static,
        Id: AsRef<[u8]>,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<T>, Status>> + Send + 'static,
    {
        let key = Key { reply: TypeId::of::<T>(), method: method.into(), ids: digest(ids) };
        let landed = self.flight(key, call).await?;
        Ok(Response::from_parts(landed.metadata.clone(), landed.message.clone(), landed.extensions.clone()))
    }

    fn flight<T, F, Fut>(&self, key: Key, call: F) -> Shared<Flight<T>>
    where
        T: Send + Sync + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<T>, Status>> + Send + 'static,
    {
        let mut table = self.flights.0.lock();
        let found = table.by_key.get(&key).and_then(|entry| entry.flight.downcast_ref::<WeakShared<Flight<T>>>());
        if let Some(flight) = found.and_then(WeakShared::upgrade) {
            return flight;
        }
        table.last_number += 1;
        let number = table.last_number;
        let lead = CallLead { flights: Arc::clone(&self.flights), key: key.clone(), number };
        let policy = self.clone();
        let flight: Flight<T> = Box::pin(async move {
            let _lead = lead;
            let made = AssertUnwindSafe(policy.make(call)).catch_unwind().await;
            made.unwrap_or_else(|payload| Err(Error::Crashed(panic_text(payload)).into()))
        });
        let flight = flight.shared();
        if let Some(weak) = flight.downgrade() {
            table.by_key.insert(key, SharedCall { number, flight: Box::new(weak) });
        }
        flight
    }

    async fn make<T, F, Fut>(self, call: F) -> Result<Arc<Landed<T>>, Status>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let timeout = self.timeout;
        // Inside of the breaker: a server that does not respond is not healthy.
        let limited = async || {
            tokio::select! {
                biased;
                reply = async { call().await } => reply.map_err(Failure::Inner),
                () = async { self.clock.sleep(timeout).await } => Err(Error::Timeout { after: timeout }.into()),
            }
        };
        let reply = match &self.breaker {
            Some(breaker) => breaker.around(self.statuses, limited).await,
            None => limited().await,
        };
        let (metadata, message, extensions) = reply?.into_parts();
        Ok(Arc::new(Landed { metadata, message, extensions }))
    }
}

/// A call's entry in the table; it leaves with the call, however that ends.
struct CallLead {
    flights: Arc<SharedCalls>,
    key: Key,
    number: u64,
}

impl Drop for CallLead {
    fn drop(&mut self) {
        let mut table = self.flights.0.lock();
        // Another call may have taken the place of one that was dropped.
        if table.by_key.get(&self.key).is_some_and(|entry| entry.number == self.number) {
            table.by_key.remove(&self.key);
        }
    }
}

/// The same for the same ids in any order. Each is preceded by its length, so that no two lists read the same.
fn digest<Id: AsRef<[u8]>>(ids: impl IntoIterator<Item = Id>) -> [u8; 16] {
    let ids: Vec<Id> = ids.into_iter().collect();
    let mut sorted: Vec<&[u8]> = ids.iter().map(AsRef::as_ref).collect();
    sorted.sort_unstable();
    let mut hash = Sha256::new();
    for id in sorted {
        hash.update((id.len() as u64).to_be_bytes());
        hash.update(id);
    }
    let mut short = [0; 16];
    short.iter_mut().zip(hash.finalize()).for_each(|(place, byte)| *place = byte);
    short
}

#[cfg(test)]
#[path = "tests/single_flight.rs"]
mod tests;
