//! The question that begins a flight, JOIN. The callers that wait for its reply drive it, each in place: a hit, as most replies are,
//! costs neither a task nor a way between threads. A reply that takes more to be done goes on in a task, and so does a question that all
//! its callers have left: a caller that is cancelled ends nobody's load, and what the server grants has somebody to use it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use resil_wire::command::Reply;
use tokio::runtime::Handle;
use tracing::{Instrument, Span};

use super::flight::Flight;
use super::table::{Landing, LandingReceiver};
use crate::clock::Moment;
use crate::error::Error;

pub(super) type Asking = Shared<BoxFuture<'static, Asked>>;
pub(super) type WeakAsking = WeakShared<BoxFuture<'static, Asked>>;

/// What became of the question.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    /// Nothing more is to be done.
    Landed(Landing),
    Flies(LandingReceiver),
    /// The runtime of the caller that asked is gone.
    Vanished,
}

/// When JOIN was sent, and its reply.
pub(super) type FirstReply = (Moment, Result<Reply, Error>);

/// What a flight does in its task.
pub(super) type Fly<L> = fn(Flight<L>, Option<FirstReply>) -> BoxFuture<'static, ()>;

/// Nothing happens before it is polled.
pub(super) fn ask<L: Send + 'static>(make: impl FnOnce() -> Flight<L> + Send + 'static, fly: Fly<L>) -> Asking {
    let span = Span::current();
    let asking = async move {
        match Takeoff::begin(make(), fly, span) {
            Ok(mut takeoff) => {
                let reply = takeoff.ask().await;
                takeoff.answered(reply)
            }
            Err(asked) => asked,
        }
    };
    // The timer of a runtime that is no more panics.
    AssertUnwindSafe(asking).catch_unwind().map(|asked| asked.unwrap_or(Asked::Vanished)).boxed().shared()
}

/// For those who join. `None` if the reply was there before they came: it may have been invalidated in between.
pub(super) async fn asked_since(mut asking: Asking) -> Option<Asked> {
    match (&mut asking).now_or_never() {
        Some(Asked::Landed(_)) => None,
        Some(asked) => Some(asked),
        None => Some(asking.await),
    }
}

/// A flight that goes on in a task, unless its reply is a hit.
struct Takeoff<L> {
    waiting: Option<Flight<L>>,
    fly: Fly<L>,
    runtime: Handle,
    span: Span,
}

impl<L> Takeoff<L> {
    /// `Err` if nobody is to be asked: in memory the reply is there at once.
    fn begin(flight: Flight<L>, fly: Fly<L>, span: Span) -> Result<Self, Asked> {
        let sent = flight.core.client.clock().now();
        let at_once = flight.core.client.backend().call_now(&flight.join_command(Duration::ZERO));
        if let Some(landing) = flight.hit_in(at_once.as_ref()) {
            return Err(Asked::Landed(landing));
        }
        let Ok(runtime) = Handle::try_current() else {
            flight.give_up_at_once();
            let why = "a value can only be loaded inside of a tokio runtime".to_owned();
            return Err(Asked::Landed(Landing::Failed(Error::InvalidArgument(why))));
        };
        let mut takeoff = Self { waiting: Some(flight), fly, runtime, span };
        match at_once {
            None => Ok(takeoff),
            Some(reply) => Err(takeoff.answered((sent, reply))),
        }
    }

    async fn ask(&self) -> FirstReply {
        match &self.waiting {
            Some(flight) => {
                // A lease is counted from here, whenever its holder hears of it.
                let sent = flight.core.client.clock().now();
                (sent, flight.core.client.backend().call(&flight.join_command(Duration::ZERO)).await)
            }
            None => (Moment::ZERO, Err(Error::Cancelled)),
        }
    }

    fn answered(&mut self, reply: FirstReply) -> Asked {
        let landing = self.waiting.as_ref().and_then(|flight| flight.hit_in(Some(&reply.1)));
        if let Some(landing) = landing {
            self.waiting = None;
            return Asked::Landed(landing);
        }
        self.take_off(Some(reply)).map_or(Asked::Vanished, Asked::Flies)
    }

    fn take_off(&mut self, first: Option<FirstReply>) -> Option<LandingReceiver> {
        let mut flight = self.waiting.take()?;
        let landing = flight.lead.takes_off();
        let tasks = flight.core.client.inner().tasks.clone();
        tasks.spawn_on((self.fly)(flight, first).instrument(self.span.clone()), &self.runtime);
        Some(landing)
    }
}

/// Everybody left. The same question gets the same reply.
impl<L> Drop for Takeoff<L> {
    fn drop(&mut self) {
        self.take_off(None);
    }
}
