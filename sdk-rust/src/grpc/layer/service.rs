//! One call through the layer.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::{Code as TonicCode, Status};
use tower_service::Service;

use super::request::{OutgoingRequest, Whole, look};
use super::response::{AnyError, Deadline, ResponseBody, report, status_of};
use super::{Attempts, GrpcLayer, LayerParts, deadline};
use crate::error::{Code, Error, Failure};
use crate::grpc::{CODE_KEY, PUSHBACK_KEY, RetryStatuses};
use crate::policy::Class;
use crate::policy::timeout::SLACK;
use crate::tower::{Wrapped, call_ready};

const PREVIOUS_ATTEMPTS_KEY: &str = "grpc-previous-rpc-attempts";

/// A channel inside of a [`GrpcLayer`].
#[derive(Debug, Clone)]
pub struct GrpcService<S> {
    service: S,
    layer: GrpcLayer,
}

impl<S> GrpcService<S> {
    pub(super) fn new(service: S, layer: GrpcLayer) -> Self {
        Self { service, layer }
    }
}

/// The future of a call.
pub type GrpcFuture<B> = Pin<Box<dyn Future<Output = Result<http::Response<ResponseBody<B>>, Status>> + Send>>;

impl<S, B> Service<http::Request<Body>> for GrpcService<S>
where
    S: Wrapped<http::Request<Body>> + Service<http::Request<Body>, Response = http::Response<B>>,
    <S as Service<http::Request<Body>>>::Error: Into<AnyError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<AnyError>,
{
    type Response = http::Response<ResponseBody<B>>;
    type Error = Status;
    type Future = GrpcFuture<B>;

    /// Always: see [`tower`](crate::tower).
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> GrpcFuture<B> {
        let (layer, service) = (self.layer.clone(), self.service.clone());
        Box::pin(async move { layer.0.run(service, request).await })
    }
}

/// An attempt that came to nothing: what the server answered, or what came instead.
struct Refused<B> {
    reply: Option<Box<http::Response<B>>>,
    status: Status,
}

type Attempted<B> = Result<http::Response<ResponseBody<B>>, Failure<Refused<B>>>;

impl LayerParts {
    async fn run<S, B>(
        &self,
        service: S,
        request: http::Request<Body>,
    ) -> Result<http::Response<ResponseBody<B>>, Status>
    where
        S: Wrapped<http::Request<Body>> + Service<http::Request<Body>, Response = http::Response<B>>,
        <S as Service<http::Request<Body>>>::Error: Into<AnyError>,
        B: http_body::Body + Send + 'static,
    {
        let method = self.method(request.uri().path());
        let after = [method.timeout, deadline::asked(request.headers())].into_iter().flatten().min();
        let deadline = after.map(|after| Deadline { at: self.clock.now().saturating_add(after), after });
        let deadline = deadline.as_ref();
        let attempts = async {
            match (look(request).await, &method.attempts) {
                (OutgoingRequest::Stream(request), _) => self.attempt(service, request, 0, deadline).await,
                (OutgoingRequest::Whole(whole), Attempts::One) => {
                    self.attempt(service, whole.into_request(), 0, deadline).await
                }
                (OutgoingRequest::Whole(whole), Attempts::Retry(retry, statuses)) => {
                    let mut previous = 0;
                    let again = move || {
                        let attempt = self.attempt(service.clone(), whole.request(), previous, deadline);
                        previous += 1;
                        attempt
                    };
                    retry.run(by_status(*statuses), deadline.map(|deadline| deadline.at), again).await
                }
                (OutgoingRequest::Whole(whole), Attempts::Hedge(hedge, statuses)) => {
                    let previous = AtomicU32::new(0);
                    // Not shared by anybody; the lock only spares services from having to be `Sync`.
                    let original = Mutex::new((service, whole));
                    let beside = move || {
                        let (service, whole): (S, Whole) = original.lock().clone();
                        self.attempt(service, whole.into_request(), previous.fetch_add(1, Relaxed), deadline)
                    };
                    hedge.around(by_status(*statuses), beside).await
                }
            }
        };
        settle(match deadline {
            None => attempts.await,
            // Attempts keep the deadline themselves. This is for what comes before them.
            Some(Deadline { after, .. }) => tokio::select! {
                biased;
                attempted = attempts => attempted,
                timeout = self.timed_out(*after, after.saturating_add(SLACK)) => Err(timeout.into()),
            },
        })
    }

    async fn attempt<S, B>(
        &self,
        service: S,
        mut request: http::Request<Body>,
        previous: u32,
        deadline: Option<&Deadline>,
    ) -> Attempted<B>
    where
        S: Wrapped<http::Request<Body>> + Service<http::Request<Body>, Response = http::Response<B>>,
        <S as Service<http::Request<Body>>>::Error: Into<AnyError>,
        B: http_body::Body + Send + 'static,
    {
        let permit = match &self.breaker {
            Some(breaker) => Some(breaker.admit().await?),
            None => None,
        };
        let headers = request.headers_mut();
        // Metadata about attempts that the caller got is about other attempts.
        headers.remove(PREVIOUS_ATTEMPTS_KEY);
        if previous > 0 {
            headers.insert(PREVIOUS_ATTEMPTS_KEY, previous.into());
        }
        let left = deadline.map(|deadline| deadline.at.saturating_sub(self.clock.now()));
        if let Some(left) = left {
            deadline::tell(headers, left);
        }
        let limit = match (self.attempt_timeout, left, deadline) {
            (Some(attempt), Some(left), _) if attempt < left => Some((attempt, attempt)),
            (_, Some(left), Some(deadline)) => Some((deadline.after, left)),
            (attempt, _, _) => attempt.map(|attempt| (attempt, attempt)),
        };
        let reply = tokio::select! {
            biased;
            reply = call_ready(service, request) => reply.map_err(|error| Status::from_error(error.into())),
            timeout = async {
                match limit {
                    Some((after, left)) => self.timed_out(after, left).await,
                    None => std::future::pending().await,
                }
            } => {
                if let Some(permit) = permit {
                    permit.failure().await;
                }
                return Err(timeout.into());
            }
        };
        let refused = match reply {
            Err(status) => Refused { reply: None, status },
            Ok(response) => match status_of(&response) {
                None => {
                    let deadline = deadline.cloned();
                    return Ok(
                        response.map(|body| ResponseBody::coming(body, permit, deadline, &self.clock, &self.timeouts))
                    );
                }
                Some(status) if status.code() == TonicCode::Ok => {
                    if let Some(permit) = permit {
                        permit.success().await;
                    }
                    return Ok(response.map(ResponseBody::known));
                }
                Some(status) => Refused { reply: Some(Box::new(response)), status },
            },
        };
        // Channel and server keep the deadline, too, and call it a cancellation.
        let is_late = refused.status.code() == TonicCode::Cancelled
            && deadline.is_some_and(|deadline| self.clock.now().saturating_add(SLACK) >= deadline.at);
        let status = if is_late { Status::deadline_exceeded("") } else { refused.status.clone() };
        if let Some(permit) = permit {
            report(permit, &status).await;
        }
        match deadline {
            Some(deadline) if is_late => Err(Error::Timeout { after: deadline.after }.into()),
            _ => Err(Failure::Inner(refused)),
        }
    }

    /// Comes to an end when `left` is over.
    async fn timed_out(&self, after: Duration, left: Duration) -> Error {
        self.clock.sleep(left).await;
        self.timeouts.increment(1);
        Error::Timeout { after }
    }
}

fn by_status<B>(statuses: RetryStatuses) -> impl Fn(&Refused<B>) -> Class {
    move |refused| statuses.class(&refused.status)
}

/// What the server answered, as it came; or the status that comes instead.
fn settle<B>(attempted: Attempted<B>) -> Result<http::Response<ResponseBody<B>>, Status> {
    match attempted {
        Ok(response) => Ok(response),
        Err(Failure::Inner(Refused { reply: Some(response), .. })) => Ok(response.map(ResponseBody::known)),
        Err(Failure::Inner(Refused { reply: None, status })) => Err(status),
        Err(Failure::Resil(error)) => Err(error.into()),
        Err(Failure::Exhausted { last, .. }) => match settle(Err(*last)) {
            Ok(mut response) => {
                mark_exhausted(response.headers_mut());
                Ok(response)
            }
            Err(mut status) => {
                let metadata = status.metadata_mut();
                metadata.insert(CODE_KEY, MetadataValue::from_static(Code::RetryExhausted.text()));
                metadata.insert(PUSHBACK_KEY, MetadataValue::from_static("-1"));
                Err(status)
            }
        },
    }
}

/// A service that passes the response on does not want the next hop to begin anew.
fn mark_exhausted(headers: &mut HeaderMap) {
    headers.insert(CODE_KEY, HeaderValue::from_static(Code::RetryExhausted.text()));
    headers.insert(PUSHBACK_KEY, HeaderValue::from_static("-1"));
}
