//! Messages to one thread of JavaScript, from any thread: "poll this call", "start this load", "this happened".
//!
//! However many messages there are, Node is woken once: a flag says that it is coming already. Calls that end while messages are read are
//! told with them: they do not wake it once more.

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
    /// For telemetry.
    Event(Box<resil::telemetry::Event>),
    /// The same of calls that ended, as many as there are.
    Calls(Vec<CallEnded>),
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
    calls: Mutex<Vec<CallEnded>>,
    is_coming: AtomicBool,
    /// Its thread reads messages just now. Of use on that thread alone.
    is_reading: AtomicBool,
    signal: Signal,
}

impl Queue {
    pub fn new(signal: Signal) -> Self {
        let (messages, calls) = (Mutex::default(), Mutex::default());
        Self { messages, calls, is_coming: AtomicBool::new(false), is_reading: AtomicBool::new(false), signal }
    }

    pub fn signal(&self) -> &Signal {
        &self.signal
    }

    pub fn post(&self, message: Message) {
        self.messages.lock().push(message);
        self.wake();
    }

    fn wake(&self) {
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

    /// A call that ended, for telemetry. `is_here`: on the thread of this queue.
    pub fn post_call(&self, call: CallEnded, is_here: bool) {
        let mut calls = self.calls.lock();
        if calls.len() < EVENTS_MAX {
            calls.push(call);
            drop(calls);
            if !is_here || !self.is_reading.load(Ordering::Relaxed) {
                self.wake();
            }
        }
    }

    /// All messages; one that is posted from now on wakes the thread again.
    pub fn drain(&self) -> Vec<Message> {
        self.is_coming.store(false, Ordering::Release);
        self.is_reading.store(true, Ordering::Relaxed);
        std::mem::take(&mut *self.messages.lock())
    }

    /// All messages were read: the calls that ended by then.
    pub fn drain_calls(&self) -> Vec<CallEnded> {
        self.is_reading.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.calls.lock())
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
