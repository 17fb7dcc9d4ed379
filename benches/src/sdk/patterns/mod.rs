//! One pattern in one file: ours, and who else does it, around the same call.
//!
//! The call is ready at once: what is left is what the policy costs. Peers are set up as their documentation does, with what ours has
//! where they have it, and are given the same number of places, attempts and so on.

mod breaker;
mod bulkhead;
mod cache;
mod chain;
mod limiter;
mod retry;
mod timeout;

use std::fmt;
use std::future::{Ready, ready};
use std::hint::black_box;

use tower::util::{ServiceFn, service_fn};

use crate::contest::{Contest, runtime};

/// An error that never happens.
#[derive(Debug, Clone)]
pub struct Never;

impl fmt::Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("never")
    }
}

impl std::error::Error for Never {}

pub type Reply = Result<u64, Never>;

/// The call that is protected.
#[inline]
pub fn call() -> Ready<Reply> {
    ready(black_box(Ok(1)))
}

/// The same for tower.
pub fn service() -> ServiceFn<fn(u64) -> Ready<Reply>> {
    service_fn(|request| ready(black_box(Ok(request))))
}

/// Everything that is made with a runtime around it.
pub fn all() -> Vec<Contest> {
    let _inside = runtime().enter();
    let mut contests = vec![
        retry::contest(),
        retry::budgeted(),
        timeout::ready(),
        timeout::one_wait(),
        bulkhead::contest(),
        breaker::contest(),
    ];
    contests.extend(limiter::contests());
    contests.push(cache::contest());
    contests.push(chain::contest());
    contests
}

pub fn memory() -> resil::Client {
    runtime().block_on(resil::connect("memory://")).expect("memory is always there")
}
