//! Which locks a call begins inside of: asking for one of them again is granted at once, as within one task of Rust.
//!
//! JavaScript knows, by its async context. It says so right before it begins a call.

use std::cell::RefCell;

use napi_derive::napi;
use resil::lock;

use crate::executor::Running;
use crate::holding::Held;

thread_local! {
    static INSIDE: RefCell<Vec<lock::Held>> = const { RefCell::new(Vec::new()) };
}

/// The call that is begun next is inside of these, outermost first. What was let go of meanwhile is not held.
#[napi]
pub fn step_inside(all: Vec<&Held>) {
    let held = all.iter().map(|held| held.0.clone()).filter(lock::Held::is_held).collect();
    INSIDE.with_borrow_mut(|inside| *inside = held);
}

/// `running` inside of what was said.
pub fn around(running: Running) -> Running {
    let inside = INSIDE.with_borrow_mut(std::mem::take);
    inside.into_iter().fold(running, |running, held| match running {
        Running::Attempts(future) => Running::Attempts(Box::pin(async move { held.reentrant(future).await })),
        Running::Ours(future) => Running::Ours(Box::pin(async move { held.reentrant(future).await })),
    })
}
