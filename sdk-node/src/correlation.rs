//! The trace that a call belongs to: reports to breakers carry it.
//!
//! JavaScript knows, by its async context. It says so right before it begins a call.

use std::cell::RefCell;

use napi_derive::napi;
use resil::correlation::correlated;

use crate::executor::Running;

thread_local! {
    static TRACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The call that is begun next belongs to this trace; `None`: to none.
#[napi]
pub fn correlate(trace: Option<String>) {
    TRACE.with_borrow_mut(|current| *current = trace);
}

/// `running` as part of the trace that was said.
pub fn around(running: Running) -> Running {
    match (TRACE.with_borrow_mut(Option::take), running) {
        (None, running) => running,
        (Some(trace), Running::Attempts(future)) => Running::Attempts(Box::pin(correlated(trace, future))),
        (Some(trace), Running::Ours(future)) => Running::Ours(Box::pin(correlated(trace, future))),
    }
}
