//! Messages to one thread of JavaScript, from any thread: "poll this call", "start this load", "this happened".
//!
//! However many messages there are, Node is woken once: a flag says that it is coming already.
//!
//! Calls that ended are many, and not urgent: telemetry gets those of [`GATHERED_FOR`] at once. To report each by itself costs more than
//! the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Duration;

use parking_lot::Mutex;
use resil::telemetry::CallEnded;
use tokio::sync::oneshot;

use super::attempt::Settled;
use crate::edge::Signal;

/// Something that happened outside of any call.
#[derive(Debug)]
pub enum Notification {
    /// A breaker changed its state: previous, new, generation.
    Transition(&'static str, &'static str, u64),
    /// What was held is lost, and why.
    Lost(Box<resil::Error>),
    /// A server is away, and why. The address has no password in it.
    Away { address: String, reason: String },
    /// A server refuses a command, and why.
    Refused { address: String, reason: String },
    /// A server is back.
    Back { address: String },
    /// An attempt under the stored policy of this name took longer than its ticket lasts.
    Outlived { policy: Arc<str>, took: Duration },
    /// The broker of a source or publisher is away, and why.
    SourceAway { name: Arc<str>, address: String, reason: String },
    /// It is back.
    SourceBack { name: Arc<str>, address: String },
    /// A message of a worker died.
    Dead { worker: Arc<str>, id: String, deaths: u32, reason: &'static str },
    /// The ledger refuses a message of a worker, and why.
    NotRecorded { worker: Arc<str>, id: String, reason: String },
    /// For telemetry.
    Event(Box<resil::telemetry::Event>),
    /// The same of calls that ended, as many as there are.
    Calls(Vec<CallEnded>),
}

const EVENTS_MAX: usize = 10_000;
/// How long calls that ended wait for others.
const GATHERED_FOR: Duration = Duration::from_millis(20);

pub enum Message {
    Poll(u32),
    /// Run the loader that JavaScript keeps under this number.
    Load(u32, oneshot::Sender<Settled>),
    Notify(u32, Notification),
    /// JavaScript keeps something under this number that nobody will ask for.
    Forget(u32),
}

pub struct Queue {
    /// `None`: the thread is closing, and reads no more.
    messages: Mutex<Option<Vec<Message>>>,
    calls: Mutex<GatheredCalls>,
    is_coming: AtomicBool,
    signal: Signal,
}

#[derive(Default)]
struct GatheredCalls {
    ended: Vec<CallEnded>,
    /// They waited long enough.
    is_due: bool,
}

impl Queue {
    pub fn new(signal: Signal) -> Self {
        let (messages, calls) = (Mutex::new(Some(Vec::new())), Mutex::default());
        Self { messages, calls, is_coming: AtomicBool::new(false), signal }
    }

    pub fn signal(&self) -> &Signal {
        &self.signal
    }

    /// What nobody will read is dropped: so a load learns that nobody runs it.
    pub fn post(&self, message: Message) {
        let refused = match &mut *self.messages.lock() {
            Some(messages) => {
                messages.push(message);
                None
            }
            None => Some(message),
        };
        if refused.is_none() {
            self.wake();
        }
    }

    fn wake(&self) {
        if !self.is_coming.swap(true, Ordering::AcqRel) {
            self.signal.send();
        }
    }

    /// The same for telemetry, of which so many wait at most: a thread that does not turn its loop does not fill the memory.
    /// Behind many that come with each call there is still room for a circuit that opened, or a lock that was lost.
    pub fn post_event(&self, message: Message, is_frequent: bool) {
        let most = if is_frequent { EVENTS_MAX } else { 2 * EVENTS_MAX };
        if self.messages.lock().as_ref().is_some_and(|messages| messages.len() < most) {
            self.post(message);
        }
    }

    /// A call that ended, for telemetry.
    pub fn post_call(self: &Arc<Self>, call: CallEnded) {
        let mut calls = self.calls.lock();
        if calls.ended.len() >= EVENTS_MAX {
            return;
        }
        calls.ended.push(call);
        let is_first = calls.ended.len() == 1;
        drop(calls);
        if is_first && let Some(runtime) = crate::runtime::runtime() {
            let queue = Arc::downgrade(self);
            runtime.spawn(async move {
                tokio::time::sleep(GATHERED_FOR).await;
                if let Some(queue) = queue.upgrade() {
                    queue.calls.lock().is_due = true;
                    queue.wake();
                }
            });
        }
    }

    /// All messages; one that is posted from now on wakes the thread again.
    pub fn drain(&self) -> Vec<Message> {
        self.is_coming.store(false, Ordering::Release);
        self.messages.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Nothing is read any more.
    pub fn close(&self) {
        self.signal.close();
        let unread = self.messages.lock().take();
        drop(unread);
    }

    /// The calls that ended, if they waited long enough.
    pub fn drain_due_calls(&self) -> Vec<CallEnded> {
        let mut calls = self.calls.lock();
        if calls.is_due { std::mem::take(&mut *calls).ended } else { Vec::new() }
    }

    /// The calls that ended, however long they waited.
    pub fn drain_calls(&self) -> Vec<CallEnded> {
        std::mem::take(&mut *self.calls.lock()).ended
    }
}

/// Wakes a call.
pub struct CallWaker {
    pub queue: Arc<Queue>,
    pub call: u32,
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.queue.post(Message::Poll(self.call));
    }
}
