//! Sleeping where there is no tokio runtime: in a test that polls by hand, under another executor, in a destructor.
//!
//! tokio's timers panic there, and nobody who retries or waits for a turn expects that of a pause. So there is one thread
//! for all who sleep outside, started by the first of them: it drives a clock by the machine's time.

use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::{Clock, Driven, Moment, SleepKind};

pub(super) struct Outside {
    wheel: Arc<Driven>,
    begun: Instant,
}

impl Outside {
    /// Sleeps for `span`. At once if the system has no thread left: better than never.
    pub fn sleep(span: Duration) -> SleepKind {
        let (outside, is_running) = Self::running();
        let span = if is_running { span } else { Duration::ZERO };
        SleepKind::Driven { until: outside.now().saturating_add(span), driven: Arc::clone(&outside.wheel), id: None }
    }

    fn now(&self) -> Moment {
        self.begun.elapsed()
    }

    fn running() -> (&'static Self, bool) {
        static OUTSIDE: OnceLock<(Outside, bool)> = OnceLock::new();
        let (outside, is_running) = OUTSIDE.get_or_init(|| {
            let wheel = Arc::new(Driven::default());
            let (begun, clock) = (Instant::now(), Clock(Some(Arc::clone(&wheel))));
            let thread = std::thread::Builder::new().name("resil-clock".to_owned()).spawn(move || drive(&clock, begun));
            let is_running = thread.is_ok_and(|thread| wheel.driver.set(thread.thread().clone()).is_ok());
            (Self { wheel, begun }, is_running)
        });
        (outside, *is_running)
    }
}

/// For ever: a sleep that begins wakes this thread, so that it looks when to end it.
fn drive(clock: &Clock, begun: Instant) {
    loop {
        clock.advance(begun.elapsed().saturating_sub(clock.now()));
        match clock.next_wake() {
            Some(at) => std::thread::park_timeout(at.saturating_sub(begun.elapsed())),
            None => std::thread::park(),
        }
    }
}

/// The thread that drives a clock by the machine's time, if there is one.
pub(super) type Driver = OnceLock<Thread>;
