//! What a call begins inside of: locks, which are granted to it again at once, and a trace, which reports to breakers carry.
//!
//! JavaScript knows both by its async context. It says so right before it begins a call.

use std::cell::RefCell;

use napi_derive::napi;
use resil::correlation::correlated;
use resil::lock;

use crate::executor::Running;
use crate::holding::Held;

#[derive(Default)]
struct Scope {
    /// Outermost first.
    held: Vec<lock::Held>,
    trace: Option<String>,
}

thread_local! {
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// The next call begins inside of these. Locks that were released meanwhile are not held.
#[napi]
pub fn enter_scope(held: Vec<&Held>, trace: Option<String>) {
    let held = held.iter().map(|held| held.0.clone()).filter(lock::Held::is_held).collect();
    SCOPE.set(Some(Scope { held, trace }));
}

#[napi]
pub fn leave_scope() {
    SCOPE.set(None);
}

/// `running` inside of what JavaScript said.
pub fn around(running: Running) -> Running {
    let Some(Scope { held, trace }) = SCOPE.take() else { return running };
    let inside = held.into_iter().fold(running, |running, held| Box::pin(async move { held.reentrant(running).await }));
    match trace {
        Some(trace) => Box::pin(correlated(trace, inside)),
        None => inside,
    }
}
