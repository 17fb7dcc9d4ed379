//! How a call comes in, and what becomes of it however it ends.
//!
//! A call takes a pass of every client its policy has something of, so that their shutdowns wait for it. While it runs, its
//! task is marked as inside of the first one's gate: what it asks of that client is let in until the shutdown's deadline, and
//! then the call is dropped. Its time is recorded when it ends, also if it is dropped.

use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::Map;
use metrics::Histogram;
use smallvec::SmallVec;
use tokio_util::sync::WaitForCancellationFuture;
use tracing::{Instrument, Span};

use super::builder::PolicyParts;
use super::until::Until;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, Failure};
use crate::shutdown::gate::{self, Pass};
use crate::telemetry::{self, CallEnding, CallWatch, Primitive, watch};

/// Comes when whatever is still in flight is to be dropped.
type CutOff<'a> = Map<WaitForCancellationFuture<'a>, fn(()) -> Error>;

/// A call that came in, or was refused.
pub(super) struct Arrival<'a> {
    parts: &'a PolicyParts,
    pub began: Moment,
    outcome: CallOutcome,
    first: Option<&'a Client>,
    /// Because a client shuts down.
    pub refused: Option<Error>,
    watch: Option<CallWatch>,
    _passes: SmallVec<[Pass<'a>; 2]>,
}

impl PolicyParts {
    /// A call comes in. `extra` is a client that this call alone brings along.
    pub(super) fn arrive<'a>(&'a self, extra: Option<&'a Client>) -> Arrival<'a> {
        let extra = extra.filter(|extra| !self.clients.iter().any(|known| is_same(known, extra)));
        let mut passes = SmallVec::new();
        let mut refused = None;
        for client in self.clients.iter().chain(extra) {
            match client.inner().gate.enter() {
                Ok(pass) => passes.push(pass),
                Err(error) => refused = Some(error),
            }
        }
        Arrival {
            parts: self,
            began: self.clock.now(),
            outcome: CallOutcome::Refused,
            first: self.clients.first().or(extra),
            refused,
            watch: watch(Primitive::Policy, "call", &self.name),
            _passes: passes,
        }
    }
}

pub(super) fn is_same(one: &Client, other: &Client) -> bool {
    std::ptr::eq(one.inner(), other.inner())
}

impl<'a> Arrival<'a> {
    /// Runs the call, in a span of its own.
    pub fn through<F: Future>(&mut self, future: F) -> Until<impl Future<Output = F::Output> + use<F>, CutOff<'a>> {
        self.outcome = CallOutcome::Cancelled;
        let mut inside = gate::inside();
        if let Some(client) = self.first {
            inside.push(client.inner().gate.id());
        }
        let span = self.watch.as_ref().map_or_else(Span::none, |watch| watch.span().clone());
        let traced = future.instrument(span);
        let cut_off = self.first.map(|client| client.inner().gate.cut_off().cancelled());
        let end: Option<CutOff<'a>> = cut_off.map(|cut_off| cut_off.map((|()| Error::ShuttingDown) as fn(()) -> Error));
        Until::new(gate::scope(inside, traced), end)
    }

    pub fn end<T, E>(mut self, outcome: Result<T, Failure<E>>) -> Result<T, Failure<E>> {
        self.outcome = CallOutcome::of(&outcome);
        if let Some(watch) = self.watch.take() {
            watch.end(CallEnding::of_work(&outcome, |_| CallEnding::OK));
        }
        outcome
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let took = self.parts.clock.now().saturating_sub(self.began);
        self.parts.seconds.0[self.outcome as usize].record(took);
    }
}

/// How long calls took, by how they ended.
#[derive(Debug)]
pub(super) struct CallSeconds([Histogram; 6]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallOutcome {
    Ok,
    Error,
    Exhausted,
    Timeout,
    Refused,
    /// Dropped before its end.
    Cancelled,
}

impl CallOutcome {
    fn of<T, E>(outcome: &Result<T, Failure<E>>) -> Self {
        match outcome {
            Ok(_) => Self::Ok,
            Err(Failure::Inner(_)) => Self::Error,
            Err(Failure::Exhausted { .. }) => Self::Exhausted,
            Err(Failure::Resil(Error::Timeout { .. })) => Self::Timeout,
            Err(Failure::Resil(_)) => Self::Refused,
        }
    }
}

impl CallSeconds {
    pub fn new(name: &Arc<str>) -> Self {
        // In the order of the outcomes.
        let texts = ["ok", "error", "exhausted", "timeout", "refused", "cancelled"];
        Self(texts.map(|outcome| telemetry::call_seconds(name, outcome)))
    }
}
