//! Upstreams that speak gRPC. Messages are bytes: the gateway needs no definition of them.
//!
//! Only methods with one request and one response. Which methods stream cannot be known from outside, so the configuration may list them;
//! one that it does not list is noticed when a second message comes, and refused then.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::Uri;
use http::uri::PathAndQuery;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{Ascii, MetadataKey, MetadataMap, MetadataValue};
use tonic::{Code, Request, Status};
use tonic_health::pb::health_client::HealthClient;

use super::CallError;
use super::channel::{GrpcChannel, NotConnected};
use crate::config::{ConfigError, UpstreamConfig};
use crate::proto::resil::v1::GrpcReply;
use crate::tls::Protocol;

/// What a caller may add to a request, in all.
const METADATA_MAX: usize = 8 << 10;

/// Messages as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        *self
    }

    fn decoder(&mut self) -> Self::Decoder {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

pub struct GrpcUpstream {
    channel: GrpcChannel,
    /// Scheme, host and port.
    origin: Uri,
    allowed: Vec<String>,
    streaming: Vec<String>,
    max_response: usize,
}

impl GrpcUpstream {
    pub fn new(path: &str, config: &UpstreamConfig) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::new(format!("{path}.address"), "is not usable");
        let address: Uri = config.address.parse().map_err(|_| wrong())?;
        let (Some(scheme), Some(authority)) = (address.scheme(), address.authority()) else { return Err(wrong()) };
        let origin = Uri::builder().scheme(scheme.clone()).authority(authority.clone()).path_and_query("/");
        let origin = origin.build().map_err(|_| wrong())?;
        let ca_path = format!("{path}.caFile");
        let connector =
            super::http::connector(&ca_path, config.ca_file.as_deref(), config.connect_timeout.0, Protocol::Http2)?;
        Ok(Self {
            channel: GrpcChannel::new(origin.clone(), connector),
            origin,
            allowed: config.allow.clone(),
            streaming: config.streaming.clone(),
            max_response: config.max_response,
        })
    }

    pub fn health(&self) -> HealthClient<GrpcChannel> {
        HealthClient::with_origin(self.channel.clone(), self.origin.clone())
    }

    /// The path of a method that may be called.
    pub fn method(&self, method: &str) -> Result<PathAndQuery, Status> {
        let name = method.strip_prefix('/').unwrap_or(method);
        let is_part = |part: &str| {
            !part.is_empty()
                && part.len() <= 256
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte))
        };
        let parts = name.split_once('/').filter(|(service, method)| is_part(service) && is_part(method));
        let Some((service, _)) = parts else {
            return Err(Status::invalid_argument("method must be package.Service/Method"));
        };
        let fits =
            |listed: &String| listed == name || listed.strip_suffix("/*").is_some_and(|listed| listed == service);
        if self.streaming.iter().any(fits) {
            return Err(Status::unimplemented("methods that stream are not called through the gateway"));
        }
        if !self.allowed.is_empty() && !self.allowed.iter().any(fits) {
            return Err(Status::permission_denied("the configuration does not allow this method"));
        }
        format!("/{name}").parse().map_err(|_| Status::invalid_argument("method must be package.Service/Method"))
    }

    pub async fn call(
        &self,
        path: PathAndQuery,
        message: Bytes,
        metadata: MetadataMap,
        timeout: Option<Duration>,
    ) -> Result<GrpcReply, CallError> {
        let mut grpc = tonic::client::Grpc::with_origin(self.channel.clone(), self.origin.clone())
            .max_decoding_message_size(self.max_response)
            .max_encoding_message_size(64 << 20);
        let mut request = Request::from_parts(metadata, Default::default(), message);
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        let response = grpc.server_streaming(request, path, BytesCodec).await.map_err(failed)?;
        let (metadata, mut messages, _) = response.into_parts();
        let Some(message) = messages.message().await.map_err(failed)? else {
            return Err(CallError::Status(Status::internal("the upstream answered without a message")));
        };
        if messages.message().await.map_err(failed)?.is_some() {
            return Err(CallError::Streams);
        }
        Ok(GrpcReply { message, metadata: shown(&metadata) })
    }
}

/// What a client of tonic makes of a failure: a status of the upstream, or one that it made itself, which may name an address.
fn failed(status: Status) -> CallError {
    let source = std::error::Error::source(&status);
    match (status.code(), source.is_some()) {
        (Code::OutOfRange, _) if status.message().contains("decoded message length too large") => CallError::TooLarge,
        (_, false) => CallError::Status(status),
        // The deadline that was sent along is over.
        (Code::Cancelled | Code::DeadlineExceeded, true) => {
            let late = Status::deadline_exceeded("the upstream did not respond in time");
            CallError::Status(crate::errors::with_code(late, "TIMEOUT"))
        }
        (_, true) if source.is_some_and(|source| source.is::<NotConnected>()) => CallError::Unreachable,
        (_, true) => CallError::Broken,
    }
}

fn shown(metadata: &MetadataMap) -> std::collections::HashMap<String, String> {
    let mut all = std::collections::HashMap::new();
    for entry in metadata.iter() {
        if let tonic::metadata::KeyAndValueRef::Ascii(key, value) = entry
            && let Ok(value) = value.to_str()
            && !["content-type", "date"].contains(&key.as_str())
        {
            all.entry(key.as_str().to_owned())
                .and_modify(|known: &mut String| {
                    known.push_str(", ");
                    known.push_str(value);
                })
                .or_insert_with(|| value.to_owned());
        }
    }
    all
}

/// What a caller adds to a request. What belongs to a connection, or to gRPC itself, is refused.
pub fn check_metadata<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> Result<MetadataMap, Status> {
    let (mut metadata, mut size) = (MetadataMap::new(), 0);
    for (name, value) in pairs {
        size += name.len() + value.len();
        let lower = name.to_ascii_lowercase();
        let is_reserved = lower.starts_with("grpc-")
            || lower.ends_with("-bin")
            || ["content-type", "user-agent"].contains(&&*lower)
            || super::http::OURS.contains(&&*lower);
        let key = lower.parse::<MetadataKey<Ascii>>().ok().filter(|_| !is_reserved);
        let (Some(key), Ok(value)) = (key, value.parse::<MetadataValue<Ascii>>()) else {
            return Err(Status::invalid_argument(format!(
                "metadata {name:?} is not a name and a value that may be sent"
            )));
        };
        metadata.append(key, value);
    }
    if size > METADATA_MAX {
        return Err(Status::invalid_argument(format!("metadata must have at most {METADATA_MAX} bytes, got {size}")));
    }
    Ok(metadata)
}
