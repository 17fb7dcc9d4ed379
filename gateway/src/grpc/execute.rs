//! One call to an upstream under a policy.
//!
//! All that a policy decides is decided by the SDK: retries, breaker, limits, places, timeouts. Here a request is checked, sent, and what
//! came of it is reported. The caller's own deadline is around all of it: when it is over, the call is dropped, and what it held is given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message;
use resil::correlation::{correlated, trace_id};
use resil::idempotency::Remember;
use resil::policy::{CallSettings, Priority};
use resil::{Error, Failure};
use sha2::{Digest, Sha256};
use tonic::Status;
use tonic::metadata::MetadataMap;
use tracing::Instrument;

use super::calls::CallView;
use crate::errors::{status_of, with_code};
use crate::proto::resil::v1 as proto;
use crate::roles::Caller;
use crate::run::Gateway;
use crate::upstream::{
    CallError, GrpcUpstream, HttpUpstream, Judge, Link, RequestParts, Upstream, UpstreamReply, check_metadata,
};
use crate::{random_id, telemetry};

/// How much later than the caller's an upstream's deadline is.
const GRACE: Duration = Duration::from_millis(50);
const KEY_MAX: usize = 255;
const SUBJECT_MAX: usize = 255;
const CORRELATION_MAX: usize = 128;
const COST_MAX: u32 = 1_000_000;

/// A request that was checked, and can be made again.
enum Prepared<'a> {
    Grpc { link: &'a GrpcUpstream, path: PathAndQuery, message: Bytes, metadata: MetadataMap },
    Http { link: &'a HttpUpstream, parts: RequestParts },
}

impl<'a> Prepared<'a> {
    fn of(upstream: &'a Upstream, request: &mut proto::ExecuteWithResilienceRequest) -> Result<Self, Status> {
        let call = request.call.take();
        match (&upstream.link, call) {
            (Link::Grpc(link), Some(proto::execute_with_resilience_request::Call::Grpc(call))) => Ok(Self::Grpc {
                link,
                path: link.method(&call.method)?,
                message: call.message,
                metadata: check_metadata(request.metadata.iter())?,
            }),
            (Link::Http(link), Some(proto::execute_with_resilience_request::Call::Http(call))) => {
                Ok(Self::Http { link, parts: link.request(call)? })
            }
            (_, None) => Err(Status::invalid_argument("call must have grpc or http")),
            (Link::Grpc(_), _) => Err(Status::invalid_argument("this upstream speaks gRPC: call.grpc is needed")),
            (Link::Http(_), _) => Err(Status::invalid_argument("this upstream speaks HTTP: call.http is needed")),
        }
    }

    fn method(&self) -> String {
        match self {
            Self::Grpc { path, .. } => path.path().trim_start_matches('/').to_owned(),
            // Without its query, which may have secrets.
            Self::Http { parts, .. } => format!("{} {}", parts.method, parts.uri.path()),
        }
    }

    fn is_repeatable(&self) -> bool {
        match self {
            Self::Grpc { .. } => false,
            Self::Http { parts, .. } => parts.is_repeatable(),
        }
    }

    /// What makes a request the same as another.
    fn fingerprint(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        };
        match self {
            Self::Grpc { path, message, .. } => {
                add(path.as_str().as_bytes());
                add(message);
            }
            Self::Http { parts, .. } => {
                add(parts.method.as_str().as_bytes());
                add(parts.uri.path_and_query().map_or("", PathAndQuery::as_str).as_bytes());
                add(&parts.body);
            }
        }
        digest.finalize().into()
    }

    async fn send(&self, context: &CallContext<'_>) -> Result<UpstreamReply, CallError> {
        match self {
            Self::Grpc { link, path, message, metadata } => {
                let mut headers = metadata.clone().into_headers();
                context.propagate(&mut headers);
                let metadata = MetadataMap::from_headers(headers);
                link.call(path.clone(), message.clone(), metadata, Some(context.left())).await.map(UpstreamReply::Grpc)
            }
            Self::Http { link, parts } => {
                let mut headers = http::HeaderMap::new();
                context.propagate(&mut headers);
                link.call(parts, &headers).await.map(UpstreamReply::Http)
            }
        }
    }
}

struct CallContext<'a> {
    traceparent: Option<&'a str>,
    correlation_id: &'a str,
    idempotency_key: Option<&'a str>,
    ends: std::time::Instant,
}

impl CallContext<'_> {
    /// What an upstream is given. A little more than is left: when the time is over it is we who say so.
    fn left(&self) -> Duration {
        self.ends.saturating_duration_since(std::time::Instant::now()) + GRACE
    }

    /// What an upstream gets with the call: its trace, its correlation id, its key.
    fn propagate(&self, headers: &mut http::HeaderMap) {
        telemetry::propagate(self.traceparent, headers);
        let mut add = |name: &'static str, value: &str| {
            if let Ok(value) = http::HeaderValue::from_str(value) {
                headers.entry(name).or_insert(value);
            }
        };
        add("x-correlation-id", self.correlation_id);
        if let Some(key) = self.idempotency_key {
            add("idempotency-key", key);
        }
    }
}

fn text_within(field: &str, text: &str, most: usize) -> Result<(), Status> {
    if text.len() > most || text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err(Status::invalid_argument(format!(
            "{field} must have at most {most} bytes and no control characters"
        )));
    }
    Ok(())
}

fn priority(number: i32) -> Result<Priority, Status> {
    Ok(match proto::Priority::try_from(number) {
        Ok(proto::Priority::Unspecified | proto::Priority::Normal) => Priority::Normal,
        Ok(proto::Priority::Critical) => Priority::Critical,
        Ok(proto::Priority::High) => Priority::High,
        Ok(proto::Priority::Low) => Priority::Low,
        Ok(proto::Priority::Background) => Priority::Background,
        Err(_) => return Err(Status::invalid_argument("priority is not one of the definition")),
    })
}

/// The shortest of what the caller, its connection and the configuration allow.
fn deadline(
    asked: Option<&prost_types::Duration>,
    timeout: Option<Duration>,
    most: Duration,
) -> Result<Duration, Status> {
    let asked = match asked {
        None => None,
        Some(span) => {
            // The library's conversion overflows at the lowest number there is.
            let is_positive = span.seconds >= 0 && span.nanos >= 0;
            let span = is_positive.then(|| Duration::try_from(*span).ok()).flatten().filter(|span| !span.is_zero());
            Some(span.ok_or_else(|| Status::invalid_argument("deadline must be above zero"))?)
        }
    };
    let deadline = [asked, timeout].into_iter().flatten().fold(most, Duration::min);
    // A caller that has no time left gets no call.
    if deadline.is_zero() { Err(status_of(&Error::Timeout { after: deadline })) } else { Ok(deadline) }
}

pub async fn execute(
    gateway: &Arc<Gateway>,
    mut request: proto::ExecuteWithResilienceRequest,
    caller: &Caller,
    timeout: Option<Duration>,
    traceparent: Option<String>,
) -> Result<proto::ExecuteWithResilienceResponse, Status> {
    let Some(upstream) = gateway.upstreams.get(&request.upstream) else {
        return Err(with_code(Status::not_found("there is no such upstream in the configuration"), "NOT_FOUND"));
    };
    let policy_name = super::policy_name(&request.policy, upstream)?.to_owned();
    let chosen = super::chosen(gateway, &policy_name)?;
    text_within("idempotency_key", &request.idempotency_key, KEY_MAX)?;
    text_within("subject", &request.subject, SUBJECT_MAX)?;
    text_within("correlation_id", &request.correlation_id, CORRELATION_MAX)?;
    if request.cost > COST_MAX {
        return Err(Status::invalid_argument(format!("cost must be at most {COST_MAX}")));
    }
    let deadline = deadline(request.deadline.as_ref(), timeout, gateway.config.limits.deadline.0)?;
    let prepared = Prepared::of(upstream, &mut request)?;
    let correlation_id = match (request.correlation_id.as_str(), traceparent.as_deref().and_then(trace_id)) {
        ("", Some(trace)) => trace.to_owned(),
        ("", None) => random_id(),
        (given, _) => given.to_owned(),
    };
    let mut settings = CallSettings::new().priority(priority(request.priority)?);
    if !request.subject.is_empty() {
        settings = settings.key(request.subject.as_str());
    }
    if request.cost > 0 {
        settings = settings.cost(request.cost);
    }
    let has_key = !request.idempotency_key.is_empty();
    let _begun = upstream.begin();
    let entry = gateway.calls.begin(CallView {
        upstream: upstream.name.clone(),
        policy: policy_name.clone(),
        method: prepared.method(),
        started_ms: 0,
        attempts: AtomicU32::new(0),
        has_key,
        correlation_id: correlation_id.clone(),
    });
    let judge = Judge { is_repeatable: upstream.config.repeatable || prepared.is_repeatable() };
    let classify = |error: &CallError| judge.class(error);
    let idempotency_key = has_key.then_some(request.idempotency_key.as_str());
    let context = CallContext {
        traceparent: traceparent.as_deref(),
        correlation_id: &correlation_id,
        idempotency_key,
        ends: std::time::Instant::now() + deadline,
    };
    let attempt = || {
        entry.view.attempts.fetch_add(1, Relaxed);
        // A box: the type of what happens inside of an upstream's client is deep.
        Box::pin(prepared.send(&context))
    };
    let span = tracing::info_span!(
        "resil.gateway.call",
        otel.kind = "client",
        upstream = upstream.name,
        policy = policy_name,
        correlation_id,
        attempts = tracing::field::Empty,
        outcome = tracing::field::Empty,
    );
    telemetry::continue_trace(&span, traceparent.as_deref());
    let work = async {
        match idempotency_key {
            None => chosen.policy.call_with(settings, classify, attempt).await.map(|reply| (reply, false)),
            Some(key) => {
                let key = once_key(&upstream.name, caller, key);
                let operation = |_run| async { attempt().await.map(|reply| written(&reply)).map_err(Failure::Inner) };
                let remember = Remember::with(|_: &Failure<CallError>| None, |_: &[u8]| None);
                let fingerprint = prepared.fingerprint();
                let outcome = chosen
                    .policy
                    .around_once(&gateway.idempotent, &key, &fingerprint, settings, classify, &remember, operation)
                    .await?;
                let reply = outcome.value.as_deref().and_then(read).ok_or_else(|| {
                    let (name, reason) =
                        (upstream.name.as_str().into(), "its response was too large to be kept".to_owned());
                    Failure::Resil(Error::ResultUnrecorded { name, reason })
                })?;
                Ok((reply, outcome.replayed))
            }
        }
    };
    let begun_at = std::time::Instant::now();
    let limited = tokio::time::timeout(deadline, correlated(&correlation_id, work)).instrument(span.clone());
    let outcome = limited.await.unwrap_or_else(|_| Err(Failure::Resil(Error::Timeout { after: deadline })));
    let attempts = entry.view.attempts.load(Relaxed);
    let (outcome, word) = reported(outcome);
    span.record("attempts", attempts);
    span.record("outcome", word);
    gateway.count(upstream, word, begun_at.elapsed());
    let (reply, is_replay) = outcome?;
    Ok(proto::ExecuteWithResilienceResponse {
        reply: Some(match reply {
            UpstreamReply::Grpc(reply) => proto::execute_with_resilience_response::Reply::Grpc(reply),
            UpstreamReply::Http(reply) => proto::execute_with_resilience_response::Reply::Http(reply),
        }),
        attempts,
        is_replay,
        policy: policy_name,
        policy_version: chosen.version.unwrap_or(0),
        correlation_id,
    })
}

/// The key of a call that is made once. Another caller that guesses the key gets nothing of it: the length of a caller's name says where it
/// ends, as names and keys may both have slashes.
fn once_key(upstream: &str, caller: &Caller, key: &str) -> String {
    let name = caller.name.as_deref().or(caller.spiffe_id.as_deref()).unwrap_or_default();
    format!("{upstream}/{}/{name}/{key}", name.len())
}

/// The response to the caller, and the word for it in metrics: ok, error, refused or timeout.
fn reported(
    outcome: Result<(UpstreamReply, bool), Failure<CallError>>,
) -> (Result<(UpstreamReply, bool), Status>, &'static str) {
    let failure = match outcome {
        Ok(reply) => return (Ok(reply), "ok"),
        Err(failure) => failure,
    };
    // A response of HTTP is a response, also if it is an error.
    if let Some(CallError::Reply(reply)) = failure.inner() {
        return (Ok((UpstreamReply::Http(reply.clone()), false)), "error");
    }
    let word = match &failure {
        Failure::Inner(_) | Failure::Exhausted { .. } => "error",
        Failure::Resil(Error::Timeout { .. }) => "timeout",
        Failure::Resil(_) => "refused",
    };
    (Err(status_of_failure(failure)), word)
}

/// The status of a call that failed. What an upstream says is passed on; what the gateway itself found says nothing of addresses.
pub fn status_of_failure(failure: Failure<CallError>) -> Status {
    match failure {
        Failure::Resil(error) => status_of(&error),
        Failure::Inner(error) => status_of_call(error),
        Failure::Exhausted { attempts, last } => {
            let last = last.into_inner().map_or_else(
                || Failure::Resil(Error::RetryExhausted { attempts }),
                |error| Failure::Inner(status_of_call(error)),
            );
            Status::from(Failure::Exhausted { attempts, last: Box::new(last) })
        }
    }
}

fn status_of_call(error: CallError) -> Status {
    match error {
        CallError::Status(status) => status,
        CallError::Reply(reply) => Status::unavailable(format!("the upstream answered {}", reply.status)),
        CallError::Unreachable => {
            with_code(Status::unavailable("the upstream cannot be reached"), "UPSTREAM_UNREACHABLE")
        }
        CallError::Broken => with_code(Status::unavailable("the upstream did not respond"), "UPSTREAM_BROKEN"),
        CallError::TooLarge => {
            with_code(Status::out_of_range("the response of the upstream is too large"), "RESPONSE_TOO_LARGE")
        }
        CallError::Streams => with_code(
            Status::unimplemented("methods that stream are not called through the gateway"),
            "STREAMING_REFUSED",
        ),
    }
}

/// A response as it is remembered.
fn written(reply: &UpstreamReply) -> Bytes {
    let reply = match reply {
        UpstreamReply::Grpc(reply) => proto::execute_with_resilience_response::Reply::Grpc(reply.clone()),
        UpstreamReply::Http(reply) => proto::execute_with_resilience_response::Reply::Http(reply.clone()),
    };
    proto::ExecuteWithResilienceResponse { reply: Some(reply), ..Default::default() }.encode_to_vec().into()
}

fn read(bytes: &[u8]) -> Option<UpstreamReply> {
    match proto::ExecuteWithResilienceResponse::decode(bytes).ok()?.reply? {
        proto::execute_with_resilience_response::Reply::Grpc(reply) => Some(UpstreamReply::Grpc(reply)),
        proto::execute_with_resilience_response::Reply::Http(reply) => Some(UpstreamReply::Http(reply)),
    }
}
