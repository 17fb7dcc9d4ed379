//! Events, for listeners.
//!
//! # The promise
//! - With nobody listening nothing is made: [`is_wanted`] is one load.
//! - A listener runs where the event happens, on any thread, and must not block. Bindings put the event into a queue of their own.
//! - A listener that panics breaks nothing: the call goes on, the other listeners hear the event, and the log has one line for each listener.
//! - A listener gets no events that it causes itself: no listener can make events without end.
//! - A listener that is removed while it is called ends that call; it is not called again.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::Primitive;
use crate::breaker::State;
use crate::error::Code;
use crate::isolate::panic_text;

/// Something that happened. Names are those of handles; there are no keys, payloads or passwords in it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A call of a primitive is over.
    Call(CallEnded),
    /// An attempt failed, and the next one comes after `delay`.
    Retry { name: Arc<str>, attempt: u32, delay: Duration },
    /// A call is late, and is made once more beside the first.
    Hedge { name: Arc<str> },
    /// A call was cut off. The scope is `attempt` or `total`.
    Timeout { name: Arc<str>, scope: &'static str, after: Duration },
    /// A circuit changed its state.
    Transition { name: Arc<str>, previous: State, new: State, generation: u64 },
    /// A lock or a permit is not held any more, though nobody released it.
    Lost { primitive: Primitive, name: Arc<str>, reason: &'static str },
    /// A handler of a worker dropped a message, whose id this is. The reason is in the handler's words.
    Dropped { name: Arc<str>, id: String, reason: String },
    /// A message of a worker died, for this reason: `retries`, `final`, `crash` or `age`. The ledger has its error.
    Dead { name: Arc<str>, id: String, deaths: u32, reason: &'static str },
    /// An attempt under the stored policy of this name took longer than its ticket lasts: nobody counted it. Once for each version.
    Outlived { name: Arc<str>, took: Duration },
    /// The server, or the broker of a source or publisher, cannot be reached, or cannot help. The address has no user and no password in it.
    Away { address: String, reason: String },
    /// The server refuses a command. Once for each command.
    Refused { address: String, reason: String },
    /// The server, or the broker, is used again.
    Back { address: String },
}

/// A call that is over, as a span has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnded {
    pub primitive: Primitive,
    /// Of the handle.
    pub name: Arc<str>,
    /// The method: `check`, `acquire`, `call`.
    pub operation: &'static str,
    /// A word of a fixed list: `granted`, `denied`, `ok`, `error` and others; see `docs/telemetry.md`.
    pub outcome: &'static str,
    /// Of the error, if it ended with one of ours.
    pub error: Option<Code>,
    /// Whether it ended with an error, ours or the function's.
    pub is_error: bool,
    /// By the machine's clock.
    pub began: SystemTime,
    pub took: Duration,
    /// The context of the caller: a W3C `traceparent`, or what [`correlated`](crate::correlation::correlated) said.
    pub parent: Option<Arc<str>>,
}

/// What a listener wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Every call: what spans are made of.
    Calls,
    /// Everything but calls: what is worth a hook or a line in the log.
    Happenings,
}

impl Interest {
    fn bit(self) -> u8 {
        match self {
            Self::Calls => 1,
            Self::Happenings => 2,
        }
    }
}

impl Event {
    pub fn interest(&self) -> Interest {
        if matches!(self, Self::Call(_)) { Interest::Calls } else { Interest::Happenings }
    }

    /// Of the handle it happened to; servers have none.
    pub fn name(&self) -> Option<&Arc<str>> {
        match self {
            Self::Call(CallEnded { name, .. })
            | Self::Retry { name, .. }
            | Self::Hedge { name }
            | Self::Timeout { name, .. }
            | Self::Transition { name, .. }
            | Self::Lost { name, .. }
            | Self::Dropped { name, .. }
            | Self::Dead { name, .. }
            | Self::Outlived { name, .. } => Some(name),
            Self::Away { .. } | Self::Refused { .. } | Self::Back { .. } => None,
        }
    }
}

/// Which thread of another language a client belongs to, where that language has several.
pub(crate) type Home = Option<u64>;

type Listen = dyn Fn(&Event, Home) + Send + Sync;

struct EventListener {
    id: u64,
    interest: Interest,
    has_panicked: AtomicBool,
    is_removed: AtomicBool,
    listen: Box<Listen>,
}

static WANTED: AtomicU8 = AtomicU8::new(0);
static LISTENERS: std::sync::LazyLock<ArcSwap<Vec<Arc<EventListener>>>> = std::sync::LazyLock::new(Default::default);
static CHANGING: Mutex<()> = Mutex::new(());
static LAST_ID: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Dropped, the listener hears nothing any more.
#[derive(Debug)]
#[must_use = "a subscription that is dropped is over"]
pub struct Subscribed(u64);

impl Subscribed {
    /// For as long as the process lives.
    pub fn forever(self) {
        std::mem::forget(self);
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        let _changing = CHANGING.lock();
        let (gone, left): (Vec<_>, Vec<_>) =
            LISTENERS.load().iter().cloned().partition(|listener| listener.id == self.0);
        gone.iter().for_each(|listener| listener.is_removed.store(true, Ordering::Release));
        publish(left);
    }
}

fn publish(listeners: Vec<Arc<EventListener>>) {
    let wanted = listeners.iter().fold(0, |bits, listener| bits | listener.interest.bit());
    LISTENERS.store(Arc::new(listeners));
    WANTED.store(wanted, Ordering::Release);
}

/// `listen` hears of what happens in this process from now on, to any client and any policy.
///
/// ```
/// use resil::telemetry::{Event, Interest, subscribe};
///
/// let subscription = subscribe(Interest::Happenings, |event| {
///     if let Event::Retry { name, attempt, delay } = event {
///         println!("{name}: attempt {attempt} failed, the next one in {delay:?}");
///     }
/// });
/// drop(subscription);
/// ```
pub fn subscribe(interest: Interest, listen: impl Fn(&Event) + Send + Sync + 'static) -> Subscribed {
    subscribe_at_home(interest, move |event, _| listen(event))
}

/// The same, with the home also that the client of the event was given, if it has one.
#[doc(hidden)]
pub fn subscribe_at_home(
    interest: Interest,
    listen: impl Fn(&Event, Option<u64>) + Send + Sync + 'static,
) -> Subscribed {
    let id = LAST_ID.fetch_add(1, Ordering::Relaxed) + 1;
    let (has_panicked, is_removed) = (AtomicBool::new(false), AtomicBool::new(false));
    let listener = EventListener { id, interest, has_panicked, is_removed, listen: Box::new(listen) };
    let _changing = CHANGING.lock();
    let mut listeners = LISTENERS.load().to_vec();
    listeners.push(Arc::new(listener));
    publish(listeners);
    Subscribed(id)
}

/// Whether anybody listens for it.
#[inline]
pub(super) fn is_wanted(interest: Interest) -> bool {
    WANTED.load(Ordering::Relaxed) & interest.bit() != 0
}

/// Sends it to all listeners. `make` is only called if there are any.
#[inline]
pub(crate) fn emit(interest: Interest, home: Home, make: impl FnOnce() -> Event) {
    if is_wanted(interest) {
        tell(&make(), home);
    }
}

#[cold]
fn tell(event: &Event, home: Home) {
    // Also where a thread ends, and has no such flag any more.
    if IS_TELLING.try_with(|flag| flag.replace(true)) != Ok(false) {
        return;
    }
    let listeners = LISTENERS.load();
    let interest = event.interest();
    for listener in listeners.iter().filter(|listener| listener.interest == interest) {
        if listener.is_removed.load(Ordering::Acquire) {
            continue;
        }
        let notified = catch_unwind(AssertUnwindSafe(|| (listener.listen)(event, home)));
        if let Err(panic) = notified {
            // Its text may be anything; the process's panic hook has shown it.
            drop(panic_text(panic));
            if !listener.has_panicked.swap(true, Ordering::Relaxed) {
                tracing::error!("a hook panicked; what it was notified of goes on");
            }
        }
    }
    let _ = IS_TELLING.try_with(|flag| flag.set(false));
}
