//! Running a future under a driven clock: whenever it waits, the clock goes on to the next wake-up.

pub mod tasks;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use resil::clock::Clock;

/// How every property test of this repository runs.
#[path = "../../../../core/tests/seed/mod.rs"]
pub mod seed;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// Polls only when woken, so a future that forgets to be woken fails here.
pub fn drive<F: Future>(clock: &Clock, future: F) -> F::Output {
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut future = pin!(future);
    for _ in 0..100_000 {
        if flag.0.swap(false, SeqCst) {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
        } else {
            let next = clock.next_wake().expect("nobody will ever wake this future");
            clock.advance(next - clock.now());
        }
    }
    panic!("the future is not over after 100,000 steps");
}

/// One poll, woken or not.
pub fn poll_now<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
