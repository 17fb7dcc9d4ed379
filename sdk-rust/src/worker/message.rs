//! A message as its handler sees it.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::headers::{HEADER_ID, Headers, TRACEPARENT, made_of};
use super::source::IncomingMessage;
use crate::clock::{Clock, Moment};

/// A message, with what its handler needs to know.
pub struct WorkerMessage {
    incoming: Arc<IncomingMessage>,
    payload: Bytes,
    steps: Range<u32>,
    header_id: OnceLock<String>,
    cancel: CancellationToken,
    until: Moment,
    clock: Clock,
}

/// Without the payload.
impl std::fmt::Debug for WorkerMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerMessage")
            .field("incoming", &self.incoming)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

impl WorkerMessage {
    pub(super) fn new(
        incoming: Arc<IncomingMessage>,
        payload: Bytes,
        steps: Range<u32>,
        cancel: CancellationToken,
        until: Moment,
        clock: Clock,
    ) -> Self {
        Self { incoming, payload, steps, header_id: OnceLock::new(), cancel, until, clock }
    }

    /// `source/id`. The key for whatever is to be done once.
    pub fn id(&self) -> &str {
        &self.incoming.id
    }

    /// In the newest form that the upcasters know.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    pub fn headers(&self) -> &Headers {
        &self.incoming.headers
    }

    pub fn kind(&self) -> Option<&str> {
        self.incoming.kind.as_deref()
    }

    /// Where it came from.
    pub fn source(&self) -> Option<&str> {
        self.incoming.source.as_deref()
    }

    pub fn aggregate(&self) -> Option<&str> {
        self.incoming.aggregate.as_deref()
    }

    /// The version that it was sent in.
    pub fn schema(&self) -> Option<u32> {
        self.incoming.schema
    }

    /// The versions that upcasters lead from, the oldest first. Those of Rust were applied already.
    pub fn steps(&self) -> Range<u32> {
        self.steps.clone()
    }

    /// Failures that counted so far.
    pub fn attempt(&self) -> u32 {
        self.incoming.attempt
    }

    /// Whether it may have been delivered before.
    pub fn is_redelivered(&self) -> bool {
        self.incoming.is_redelivered
    }

    /// The W3C trace context that it came with.
    pub fn traceparent(&self) -> Option<&str> {
        self.headers().get(TRACEPARENT)
    }

    pub fn trace_id(&self) -> Option<&str> {
        self.headers().trace_id()
    }

    /// The id of the request that it began with. If it came without, one that is made of the message's id: the same at every attempt.
    pub fn header_id(&self) -> &str {
        self.headers().get(HEADER_ID).unwrap_or_else(|| self.header_id.get_or_init(|| made_of(self.id())))
    }

    /// Cancelled when the handler should stop: its deadline, the end of a drain, or the message is not ours any more.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }

    /// How long the handler may still take.
    pub fn time_left(&self) -> Duration {
        self.until.saturating_sub(self.clock.now())
    }

    /// What the handler's reports to breakers are about: the trace; without one, the id of the request.
    pub(crate) fn correlation(&self) -> &str {
        self.traceparent().filter(|_| self.trace_id().is_some()).unwrap_or_else(|| self.header_id())
    }

    /// What goes along with a message that is sent because of this one: see [`OutgoingMessage::caused_by`](super::OutgoingMessage::caused_by).
    pub(super) fn caused(&self) -> Headers {
        let mut caused = self.headers().caused();
        caused.set(HEADER_ID, self.header_id());
        caused
    }
}
