//! `Idempotency-Key`: what is asked under a key is done once, and every duplicate gets the first response.
//!
//! # The way of a request
//! The work runs in a task of its own, so that a client that hangs up does not cut it in half. A response whose length is known, and that is
//! not too large, is held back until it is recorded. Any other is a stream: it goes out as it comes, and its end is held back until it
//! is recorded. The task hands the response to the request either way. A stream whose task ends without its end (a panic) breaks off: a response
//! that is cut short never looks whole.

use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited as LimitedBody, StreamBody};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tower_layer::Layer;
use tower_service::Service;

use super::{AnsweredBody, BoxError, problem, whole};
use crate::error::{Error, Failure};
use crate::http::{IdempotencyKey, Problem, REPLAYED_HEADER, RecordedResponse, fingerprint, is_final};
use crate::idempotency::Idempotent;
use crate::tower::call_ready;

/// The body of a request: read, if it has a key, or as it came.
pub type KeyedBody<B> = Either<Full<Bytes>, B>;

const BYTES_MAX: usize = 1 << 20;

type TenantOf = dyn Fn(&Parts) -> Option<String> + Send + Sync;
type Requires = dyn Fn(&Parts) -> bool + Send + Sync;
type Keeps = dyn Fn(u16) -> bool + Send + Sync;

/// Does what is asked under an `Idempotency-Key` once, and gives every duplicate the first response. See the [module](crate::http).
///
/// - The same request is one of the same tenant, key, method, path, query and body. Another one under its key is 422.
/// - While it is being worked on, a duplicate waits (the `wait` of the settings) and then is 409. Where a key is required, none is
///   400. A malformed one is always 400, and so are two.
/// - Handlers find their [`Run`](crate::idempotency::Run) (fence, attempt) in the extensions of the request.
/// - A client that hangs up does not cut the work in half. A panic of the service is passed on.
///
/// Put it on the outermost router: a nested one sees only a part of the path.
#[derive(Clone)]
pub struct IdempotencyLayer {
    work: Idempotent,
    tenant: Arc<TenantOf>,
    required: Arc<Requires>,
    methods: Arc<[Method]>,
    max_body: usize,
    max_response: usize,
    keeps: Arc<Keeps>,
}

impl IdempotencyLayer {
    /// `tenant` is the caller that was authenticated: nobody can use the keys, and get the responses, of another. `None` is a scope
    /// of its own, which no tenant can name.
    pub fn new(work: Idempotent, tenant: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            work,
            tenant: Arc::new(tenant),
            required: Arc::new(|_| false),
            methods: [Method::POST, Method::PATCH].into(),
            max_body: BYTES_MAX,
            max_response: BYTES_MAX,
            keeps: Arc::new(is_final),
        }
    }

    /// A request without a key is 400.
    #[must_use]
    pub fn required(self) -> Self {
        self.required_if(|_| true)
    }

    /// Such a request without a key is 400.
    #[must_use]
    pub fn required_if(mut self, required: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.required = Arc::new(required);
        self
    }

    /// Requests with other methods are passed. `POST` and `PATCH` by default.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// The longest body of a request with a key, in bytes; a longer one is 413. 1 MiB by default.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Bytes of a response that is kept, headers included; of a larger one duplicates learn by 409 that it is done. 1 MiB by
    /// default.
    #[must_use]
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.max_response = bytes;
        self
    }

    /// Which responses are kept, by status. By default all but those that may differ the next time ([`is_final`]). After those, and
    /// after an error of the service, the next request runs again.
    #[must_use]
    pub fn keep_responses(mut self, keeps: impl Fn(u16) -> bool + Send + Sync + 'static) -> Self {
        self.keeps = Arc::new(keeps);
        self
    }

    /// The key to work under; `None` for requests that are passed.
    fn key_of(&self, parts: &Parts) -> Result<Option<String>, Error> {
        if !self.methods.contains(&parts.method) {
            return Ok(None);
        }
        let headers = parts.headers.get_all("idempotency-key");
        let key = match IdempotencyKey::only(headers.iter().map(HeaderValue::as_bytes))? {
            None if !(self.required)(parts) => return Ok(None),
            None => IdempotencyKey::required(None)?,
            Some(key) => key,
        };
        Ok(Some(key.scoped((self.tenant)(parts).as_deref())))
    }

    async fn reply<S, B, R>(self, service: S, request: Request<B>) -> Result<Response<AnsweredBody<R>>, S::Error>
    where
        S: Service<Request<KeyedBody<B>>, Response = Response<R>, Error: Send + 'static, Future: Send> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (parts, body) = request.into_parts();
        let key = match self.key_of(&parts) {
            Ok(Some(key)) => key,
            Ok(None) => {
                let answered = call_ready(service, Request::from_parts(parts, Either::Right(body))).await;
                return answered.map(|response| response.map(Either::Left));
            }
            Err(error) => return Ok(problem(&Problem::of(&error))),
        };
        let body = match LimitedBody::new(body, self.max_body).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Ok(problem(&Problem::body_too_large(self.max_body)));
            }
            // The client left before it had said all.
            Err(_) => return Ok(problem(&Problem::of(&Error::Cancelled))),
        };
        let (tells, outcome) = oneshot::channel();
        let teller = Teller { tells: Mutex::new(Some(tells)), ..Teller::default() };
        let task = tokio::spawn(self.run(service, key, (parts, body), teller));
        match outcome.await {
            Ok(reply) => reply,
            Err(_) => match task.await.map_err(|error| error.try_into_panic()) {
                Err(Ok(panic)) => resume_unwind(panic),
                _ => Ok(problem(&Problem::of(&Error::Cancelled))),
            },
        }
    }

    async fn run<S, B, R>(self, service: S, key: String, request: (Parts, Bytes), teller: Teller<R, S::Error>)
    where
        S: Service<Request<KeyedBody<B>>, Response = Response<R>, Error: Send + 'static, Future: Send> + Send + 'static,
        B: Send + 'static,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (mut parts, body) = request;
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let print = fingerprint(parts.method.as_str(), target, &body);
        let work = self.work.run(&key, print.as_bytes(), async |run| {
            parts.extensions.insert(run);
            let request = Request::from_parts(parts, Either::Left(Full::new(body)));
            let response = call_ready(service, request).await.map_err(Undone::Failed)?;
            self.record(response, &teller).await
        });
        // A shutdown waits for it.
        let ended = match self.work.client().in_flight(work).await {
            Ok(ended) => ended,
            Err(error) => Err(Failure::Resil(error)),
        };
        match ended {
            Ok(outcome) if outcome.replayed => teller.tell(Ok(replayed(outcome.value.as_deref()))),
            Ok(_) | Err(Failure::Inner(Undone::NotFinal)) => teller.pass_on().await,
            Err(Failure::Inner(Undone::Failed(error))) => teller.tell(Err(error)),
            Err(Failure::Inner(Undone::BrokeOff(error))) => teller.break_off(error).await,
            Err(Failure::Resil(Error::ResultUnrecorded { .. })) if !teller.is_streamed() => {
                teller.tell(Ok(problem(&Problem::response_not_kept())));
            }
            Err(Failure::Resil(error)) => teller.refuse(error).await,
            Err(Failure::Exhausted { .. }) => teller.refuse(Error::Internal("nothing is tried again".to_owned())).await,
        }
    }

    /// What to keep of a response; empty for one that is too large. The teller has the rest.
    async fn record<R, E>(&self, response: Response<R>, teller: &Teller<R, E>) -> Result<Bytes, Undone<E>>
    where
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (head, body) = response.into_parts();
        let body = body.map_err(Into::<BoxError>::into);
        let is_kept = (self.keeps)(head.status.as_u16());
        let left = self.max_response.checked_sub(kept(&head, Bytes::new()).len());
        let length = body.size_hint().exact();
        let is_whole = length.zip(left).is_some_and(|(length, left)| length <= left as u64);
        let bytes = if is_whole {
            match body.collect().await {
                Ok(body) => {
                    let bytes = body.to_bytes();
                    *teller.made.lock() = Some(Response::from_parts(head.clone(), bytes.clone()));
                    Some(bytes)
                }
                Err(error) => {
                    teller.stream(head);
                    return Err(Undone::BrokeOff(error));
                }
            }
        } else {
            let sends = teller.stream(head.clone());
            copied(body, &sends, left).await.map_err(Undone::BrokeOff)?
        };
        match bytes {
            _ if !is_kept => Err(Undone::NotFinal),
            Some(bytes) => Ok(kept(&head, bytes)),
            None => Ok(Bytes::new()),
        }
    }
}

/// Sends a stream on, and copies it; `None` if it has more than `left` bytes.
async fn copied(
    body: impl Body<Data = Bytes, Error = BoxError>,
    sends: &Sends,
    mut left: Option<usize>,
) -> Result<Option<Bytes>, BoxError> {
    let mut body = pin!(body);
    let mut copy = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        if let Some(data) = frame.data_ref() {
            left = left.and_then(|left| left.checked_sub(data.len()));
            match left {
                Some(_) => copy.extend_from_slice(data),
                None => copy = BytesMut::new(),
            }
        }
        // Nobody listens any more once the client has left; the work goes on.
        let _ = sends.send(Part::Frame(frame)).await;
    }
    Ok(left.map(|_| copy.freeze()))
}

fn kept(head: &response::Parts, body: Bytes) -> Bytes {
    let headers = head.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    RecordedResponse::new(head.status.as_u16(), headers, body).to_bytes()
}

/// The response to a duplicate: what was kept, and a header that says so. If nothing was, a problem.
fn replayed<R>(bytes: Option<&[u8]>) -> Response<AnsweredBody<R>> {
    let Some(kept) = bytes.and_then(RecordedResponse::read) else { return problem(&Problem::response_not_kept()) };
    let mut response = Response::new(whole(kept.body().clone()));
    *response.status_mut() = StatusCode::from_u16(kept.status()).unwrap_or(StatusCode::OK);
    let headers: &mut HeaderMap = response.headers_mut();
    for (name, value) in kept.headers() {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&name), HeaderValue::from_bytes(&value)) {
            headers.append(name, value);
        }
    }
    headers.insert(REPLAYED_HEADER.0, HeaderValue::from_static(REPLAYED_HEADER.1));
    response
}

/// Why there is nothing to keep: the key is free again.
enum Undone<E> {
    /// The response may be another the next time.
    NotFinal,
    /// The service failed without a response.
    Failed(E),
    /// Its response did.
    BrokeOff(BoxError),
}

/// What goes out of a stream.
enum Part {
    Frame(Frame<Bytes>),
    BrokeOff(BoxError),
    End,
}

const CUT_SHORT: &str = "the service ended before its response did";

type Sends = mpsc::Sender<Part>;
type HttpOutcome<R, E> = Result<Response<AnsweredBody<R>>, E>;

/// Hands the response to the request: once, and not before it may go out.
struct Teller<R, E> {
    tells: Mutex<Option<oneshot::Sender<HttpOutcome<R, E>>>>,
    /// A whole response, until it is recorded.
    made: Mutex<Option<Response<Bytes>>>,
    /// A stream that has begun. Dropped without a [`Part::End`], it breaks off.
    sends: Mutex<Option<Sends>>,
}

impl<R, E> Default for Teller<R, E> {
    fn default() -> Self {
        Self { tells: Mutex::new(None), made: Mutex::new(None), sends: Mutex::new(None) }
    }
}

impl<R, E> Teller<R, E> {
    fn tell(&self, reply: HttpOutcome<R, E>) {
        if let Some(tells) = self.tells.lock().take() {
            // The client may have left.
            let _ = tells.send(reply);
        }
    }

    fn is_streamed(&self) -> bool {
        self.sends.lock().is_some()
    }

    /// From here on the head is said.
    fn stream(&self, head: response::Parts) -> Sends {
        let (sends, frames) = mpsc::channel(1);
        *self.sends.lock() = Some(sends.clone());
        let frames = stream::unfold(Some(frames), async |frames: Option<mpsc::Receiver<Part>>| {
            let mut frames = frames?;
            match frames.recv().await {
                Some(Part::Frame(frame)) => Some((Ok(frame), Some(frames))),
                Some(Part::BrokeOff(error)) => Some((Err(error), None)),
                Some(Part::End) => None,
                None => Some((Err(CUT_SHORT.into()), None)),
            }
        });
        let body = StreamBody::new(frames).boxed_unsync();
        self.tell(Ok(Response::from_parts(head, Either::Right(body))));
        sends
    }

    /// It is recorded, or need not be: the rest may be heard.
    async fn pass_on(&self) {
        let (made, sends) = (self.made.lock().take(), self.sends.lock().take());
        if let Some(made) = made {
            self.tell(Ok(made.map(whole)));
        }
        if let Some(sends) = sends {
            let _ = sends.send(Part::End).await;
        }
    }

    /// The rest of a stream never comes.
    async fn break_off(&self, error: BoxError) {
        let sends = self.sends.lock().take();
        if let Some(sends) = sends {
            let _ = sends.send(Part::BrokeOff(error)).await;
        }
    }

    async fn refuse(&self, error: Error) {
        self.tell(Ok(problem(&Problem::of(&error))));
        self.break_off(error.into()).await;
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("methods", &self.methods).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotentService<S>;

    fn layer(&self, service: S) -> Self::Service {
        IdempotentService { service, layer: self.clone() }
    }
}

/// A service whose requests are done once per `Idempotency-Key`.
#[derive(Debug, Clone)]
pub struct IdempotentService<S> {
    service: S,
    layer: IdempotencyLayer,
}

impl<S, B, R> Service<Request<B>> for IdempotentService<S>
where
    S: Service<Request<KeyedBody<B>>, Response = Response<R>, Error: Send + 'static, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<AnsweredBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(self.layer.clone().reply(self.service.clone(), request))
    }
}
