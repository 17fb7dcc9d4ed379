//! Letters to one thread of JavaScript, from any thread: "poll this call again", "start this load", "this happened".
//!
//! However many letters there are, Node is woken once: a flag says that it is coming already. It is woken through a
//! threadsafe function that does not keep the process alive, but for as long as somebody waits for an answer.
//!
//! This is the only file that speaks to Node-API without a wrapper: the wrapper's threadsafe function cannot begin and
//! cease to keep the process alive.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use napi::sys;
use parking_lot::Mutex;

use super::desk::Desk;

/// Something that happened outside of any call.
#[derive(Debug)]
pub enum Event {
    /// A breaker changed its state: previous, new, generation.
    Transition(&'static str, &'static str, u64),
    /// What was held is lost, and why.
    Lost(Box<resil::Error>),
    /// A server is away, and why. The address has no password in it.
    Away { address: String, reason: String },
}

pub enum Letter {
    /// Poll the call at this key.
    Poll(u32),
    /// A load in the background has orders for JavaScript.
    Orders(Arc<Desk>),
    Event(u32, Event),
    /// JavaScript keeps something under this number that nobody will ask for any more.
    Forget(u32),
}

/// Wakes the thread; gone when the thread is.
struct Bell(sys::napi_threadsafe_function);

// SAFETY: a threadsafe function is made to be called from every thread.
unsafe impl Send for Bell {}

pub struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    is_coming: AtomicBool,
    bell: Mutex<Option<Bell>>,
}

impl Mailbox {
    /// `on_wake` is called on the thread of `env` when there are letters.
    pub fn new(env: sys::napi_env, on_wake: sys::napi_value) -> napi::Result<Arc<Self>> {
        let mut name = null_mut();
        let mut bell = null_mut();
        // SAFETY: `env` and `on_wake` are of the call that is under way; the pointers are to locals.
        unsafe {
            check(sys::napi_create_string_utf8(env, c"resil".as_ptr(), 5, &mut name))?;
            check(sys::napi_create_threadsafe_function(
                env,
                on_wake,
                null_mut(),
                name,
                0,
                1,
                null_mut(),
                None,
                null_mut(),
                None,
                &mut bell,
            ))?;
            check(sys::napi_unref_threadsafe_function(env, bell))?;
        }
        let mailbox = Arc::new(Self {
            letters: Mutex::default(),
            is_coming: AtomicBool::new(false),
            bell: Mutex::new(Some(Bell(bell))),
        });
        let kept = Arc::into_raw(Arc::clone(&mailbox)).cast_mut().cast::<c_void>();
        // SAFETY: the hook gets back the reference that is given here, once. It was added after the function was made, so
        // it runs before Node takes the function away.
        unsafe { check(sys::napi_add_env_cleanup_hook(env, Some(close), kept))? };
        Ok(mailbox)
    }

    pub fn post(&self, letter: Letter) {
        self.letters.lock().push(letter);
        if !self.is_coming.swap(true, Ordering::AcqRel)
            && let Some(bell) = &*self.bell.lock()
        {
            // SAFETY: the bell is there until `close`, which takes the same lock. A thread that goes away refuses; then
            // nobody is waiting.
            unsafe { sys::napi_call_threadsafe_function(bell.0, null_mut(), 1) };
        }
    }

    /// All letters; whoever posts from now on wakes the thread again.
    pub fn empty(&self) -> Vec<Letter> {
        self.is_coming.store(false, Ordering::Release);
        std::mem::take(&mut *self.letters.lock())
    }

    /// From now on the process stays for as long as this thread waits, or does not.
    pub fn keep_alive(&self, env: sys::napi_env, stay: bool) {
        let Some(bell) = &*self.bell.lock() else { return };
        // SAFETY: called on the thread of `env`, with a bell that is still there.
        unsafe {
            if stay {
                sys::napi_ref_threadsafe_function(env, bell.0);
            } else {
                sys::napi_unref_threadsafe_function(env, bell.0);
            }
        }
    }
}

fn check(status: sys::napi_status) -> napi::Result<()> {
    match status {
        sys::Status::napi_ok => Ok(()),
        other => Err(napi::Error::new(napi::Status::from(other), "Node refused to make a threadsafe function")),
    }
}

/// The thread goes away: nobody rings it any more, and what it was running is dropped.
unsafe extern "C" fn close(kept: *mut c_void) {
    // SAFETY: the reference that `new` gave.
    let mailbox = unsafe { Arc::from_raw(kept.cast::<Mailbox>()) };
    let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        mailbox.bell.lock().take();
        drop(mailbox.empty());
        super::close();
    }));
    drop(closed);
}
