//! The time, as this crate sees it: the machine's, or one that a test drives.
//!
//! Everything here that waits or measures asks a [`Clock`]. The system's is monotonic and sleeps with tokio, or, where no runtime
//! is, with a thread of its own: see `outside`. A driven one
//! (see [`testing`](crate::testing)) stands still until it is advanced, and wakes all that slept until then.

mod outside;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use resil_core::Instant as CoreInstant;
use tokio::runtime::Handle;

use self::outside::{Driver, Outside};

/// A moment: how long after an arbitrary but fixed beginning.
pub type Moment = Duration;

#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<Driven>>);

#[derive(Debug, Default)]
struct Driven {
    wheel: Mutex<Wheel>,
    driver: Driver,
}

#[derive(Debug, Default)]
struct Wheel {
    now: Moment,
    sleepers: BTreeMap<(Moment, u64), Waker>,
    last_id: u64,
}

/// Where system moments count from: one beginning for the whole process, so that clocks agree.
#[inline]
fn beginning() -> &'static Beginning {
    static BEGINNING: OnceLock<Beginning> = OnceLock::new();
    BEGINNING.get_or_init(|| {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_us = u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX);
        Beginning { at: tokio::time::Instant::now(), epoch_us }
    })
}

struct Beginning {
    at: tokio::time::Instant,
    /// How long after the epoch, in microseconds.
    epoch_us: u64,
}

fn since_epoch_us() -> u64 {
    let beginning = beginning();
    let since_beginning = u64::try_from(beginning.at.elapsed().as_micros()).unwrap_or(u64::MAX);
    since_beginning.saturating_add(beginning.epoch_us)
}

impl Driven {
    #[cold]
    fn since_epoch_us(&self) -> u64 {
        let since_beginning = u64::try_from(self.wheel.lock().now.as_micros()).unwrap_or(u64::MAX);
        since_beginning.saturating_add(beginning().epoch_us)
    }
}

impl Clock {
    /// The machine's.
    pub fn system() -> Self {
        Self(None)
    }

    /// One that stands still until [`advance`](Self::advance).
    pub fn driven() -> Self {
        // Not at zero: a lease of an hour that ended before the beginning is a moment, too.
        let wheel = Wheel { now: Duration::from_secs(1_000_000), ..Wheel::default() };
        Self(Some(Arc::new(Driven { wheel: Mutex::new(wheel), driver: Driver::new() })))
    }

    pub fn now(&self) -> Moment {
        match &self.0 {
            None => beginning().at.elapsed(),
            Some(driven) => driven.wheel.lock().now,
        }
    }

    /// The same moment as the state machines count it: microseconds since the epoch, never set back by more than one of them.
    #[inline(always)]
    pub(crate) fn core_now(&self) -> CoreInstant {
        let us = match &self.0 {
            None => since_epoch_us(),
            Some(driven) => driven.since_epoch_us(),
        };
        CoreInstant::from_us(i64::try_from(us).unwrap_or(i64::MAX))
    }

    pub fn sleep(&self, span: Duration) -> Sleep {
        match &self.0 {
            None if !is_in_a_runtime() => Sleep(Outside::sleep(span)),
            None => Sleep(SleepKind::System(Box::pin(tokio::time::sleep(span)))),
            Some(driven) => {
                let until = driven.wheel.lock().now.saturating_add(span);
                Sleep(SleepKind::Driven { driven: Arc::clone(driven), until, id: None })
            }
        }
    }

    pub(crate) fn is_driven(&self) -> bool {
        self.0.is_some()
    }

    /// Advances the clock; all that slept until then wake. Does nothing to the machine's.
    pub fn advance(&self, span: Duration) {
        let Some(driven) = &self.0 else { return };
        let woken = {
            let mut wheel = driven.wheel.lock();
            let now = wheel.now.saturating_add(span);
            wheel.now = now;
            let later = wheel.sleepers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut wheel.sleepers, later)
        };
        woken.into_values().for_each(Waker::wake);
    }

    /// When the first sleeper of a driven clock wakes.
    pub fn next_wake(&self) -> Option<Moment> {
        self.0.as_ref()?.wheel.lock().sleepers.keys().next().map(|(at, _)| *at)
    }
}

/// A task is in one; only other callers have to ask for it, which takes longer.
fn is_in_a_runtime() -> bool {
    tokio::task::try_id().is_some() || Handle::try_current().is_ok()
}

/// See [`Clock::sleep`].
#[derive(Debug)]
pub struct Sleep(SleepKind);

#[derive(Debug)]
enum SleepKind {
    System(Pin<Box<tokio::time::Sleep>>),
    Driven { driven: Arc<Driven>, until: Moment, id: Option<u64> },
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            SleepKind::System(sleep) => sleep.as_mut().poll(context),
            SleepKind::Driven { driven, until, id } => {
                let mut wheel = driven.wheel.lock();
                if wheel.now >= *until {
                    return Poll::Ready(());
                }
                let own = *id.get_or_insert_with(|| {
                    wheel.last_id += 1;
                    wheel.last_id
                });
                wheel.sleepers.insert((*until, own), context.waker().clone());
                drop(wheel);
                if let Some(driver) = driven.driver.get() {
                    driver.unpark();
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let SleepKind::Driven { driven, until, id: Some(id) } = &self.0 {
            driven.wheel.lock().sleepers.remove(&(*until, *id));
        }
    }
}
