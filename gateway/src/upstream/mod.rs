//! What calls are made to: the upstreams of the configuration, and nothing else. A caller names one; it never names an address.

mod channel;
mod grpc;
mod http;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use resil::grpc::{RetryStatuses, StatusCode};
use resil::policy::Class;
use tonic::Status;

pub use self::grpc::{BytesCodec, GrpcUpstream, check_metadata};
pub use self::http::{HttpClient, HttpUpstream, RequestParts, build_client, check_path};
use crate::config::{Config, ConfigError, UpstreamConfig, UpstreamKind};
use crate::proto::resil::v1::{GrpcReply, HttpReply};

/// How a call to an upstream failed.
#[derive(Debug, Clone)]
pub enum CallError {
    /// gRPC: it answered with this.
    Status(Status),
    /// HTTP: it answered, with a status that says that it is in trouble.
    Reply(HttpReply),
    /// No connection: nothing was sent.
    Unreachable,
    /// The connection broke after something was sent: nobody knows what was done.
    Broken,
    /// The response is larger than the configuration allows.
    TooLarge,
    /// The method streams.
    Streams,
}

/// What an upstream answered.
#[derive(Debug, Clone)]
pub enum UpstreamReply {
    Grpc(GrpcReply),
    Http(HttpReply),
}

/// Which failures are worth another attempt. A call that must not be made twice is repeated only if it was not made.
#[derive(Debug, Clone, Copy)]
pub struct Judge {
    pub is_repeatable: bool,
}

impl Judge {
    pub fn class(self, error: &CallError) -> Class {
        let repeated = if self.is_repeatable { Class::Retry } else { Class::Permanent };
        match error {
            CallError::Unreachable => Class::Retry,
            CallError::Broken => repeated,
            CallError::Status(status) => {
                let statuses = if self.is_repeatable {
                    RetryStatuses::default()
                } else {
                    RetryStatuses::of(&[StatusCode::Unavailable, StatusCode::ResourceExhausted])
                };
                statuses.class(status)
            }
            CallError::Reply(reply) => match reply.status {
                // It says that it has not done it.
                429 | 503 => retry_after(reply).map_or(Class::Retry, Class::RetryAfter),
                _ => repeated,
            },
            CallError::TooLarge | CallError::Streams => Class::Ignore,
        }
    }
}

fn retry_after(reply: &HttpReply) -> Option<Duration> {
    reply.headers.get("retry-after")?.trim().parse().ok().map(Duration::from_secs)
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Counts {
    pub calls: AtomicU64,
    pub failed: AtomicU64,
    pub refused: AtomicU64,
    pub in_flight: AtomicU64,
}

pub enum Link {
    Grpc(GrpcUpstream),
    Http(Box<HttpUpstream>),
}

pub struct Upstream {
    pub name: String,
    pub config: UpstreamConfig,
    /// The policy of calls that name none.
    pub policy: String,
    pub link: Link,
    pub counts: Counts,
}

impl Upstream {
    /// Whether a caller may name this policy.
    pub fn allows_policy(&self, policy: &str) -> bool {
        policy == self.policy || self.config.allow_policies.iter().any(|allowed| allowed == "*" || allowed == policy)
    }

    /// One in flight, until this is dropped.
    pub fn begin(self: &Arc<Self>) -> BegunCall {
        self.counts.calls.fetch_add(1, Relaxed);
        self.counts.in_flight.fetch_add(1, Relaxed);
        BegunCall(Arc::clone(self))
    }
}

pub struct BegunCall(Arc<Upstream>);

impl Drop for BegunCall {
    fn drop(&mut self) {
        self.0.counts.in_flight.fetch_sub(1, Relaxed);
    }
}

/// All upstreams, by name.
pub struct Upstreams(BTreeMap<String, Arc<Upstream>>);

impl Upstreams {
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let mut upstreams = BTreeMap::new();
        for (name, own) in &config.upstreams {
            let path = format!("upstreams.{name}");
            let link = match own.kind {
                UpstreamKind::Grpc => Link::Grpc(GrpcUpstream::new(&path, own)?),
                UpstreamKind::Http => Link::Http(Box::new(HttpUpstream::new(&path, own)?)),
            };
            let policy = own.policy.clone().or_else(|| config.policies.default.clone());
            let policy = policy.ok_or_else(|| ConfigError::new(format!("{path}.policy"), "is missing"))?;
            let (name, config) = (name.clone(), own.clone());
            let upstream = Upstream { name: name.clone(), config, policy, link, counts: Counts::default() };
            upstreams.insert(name, Arc::new(upstream));
        }
        Ok(Self(upstreams))
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.0.values()
    }
}
