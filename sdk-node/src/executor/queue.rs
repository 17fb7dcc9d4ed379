//! Messages to one thread of JavaScript, from any thread: "poll this call", "start this load", "this happened".
//!
//! However many messages there are, Node is woken once: a flag says that it is coming already.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Duration;

use parking_lot::Mutex;
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
    /// For telemetry.
    Event(Box<resil::telemetry::Event>),
}

const EVENTS_MAX: usize = 10_000;

pub enum Message {
    Poll(u32),
    /// Run the loader that JavaScript keeps under this number.
    Load(u32, oneshot::Sender<Settled>),
    Notify(u32, Notification),
    /// JavaScript keeps something under this number that nobody will ask for.
    Forget(u32),
}

pub struct Queue {
    messages: Mutex<Vec<Message>>,
    is_coming: AtomicBool,
    signal: Signal,
}

impl Queue {
    pub fn new(signal: Signal) -> Self {
        Self { messages: Mutex::default(), is_coming: AtomicBool::new(false), signal }
    }

    pub fn signal(&self) -> &Signal {
        &self.signal
    }

    pub fn post(&self, message: Message) {
        self.messages.lock().push(message);
        if !self.is_coming.swap(true, Ordering::AcqRel) {
            self.signal.send();
        }
    }

    /// The same for telemetry, of which so many wait at most: a thread that does not turn its loop does not fill the memory.
    pub fn post_event(&self, message: Message) {
        if self.messages.lock().len() < EVENTS_MAX {
            self.post(message);
        }
    }

    /// All messages; one that is posted from now on wakes the thread again.
    pub fn drain(&self) -> Vec<Message> {
        self.is_coming.store(false, Ordering::Release);
        std::mem::take(&mut *self.messages.lock())
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
