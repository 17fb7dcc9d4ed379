//! Waiting for one's turn.
//!
//! A bucket books: RESERVE takes the cell now and says when it may be used. Turns are spread evenly and come in the order
//! in which they were booked, by all processes. A caller that stops waiting gives its booking back, in the background.
//!
//! An exact window cannot book. There a waiter asks, sleeps for `retry_after`, and asks again: in no particular order.

use std::time::Duration;

use resil_core::limits::RESERVE_MAX;
use resil_core::rate_limit::Ask;

use super::limit::{Shape, span};
use super::{DecidedBy, Key, Limiter, Verdict, cells};
use crate::breaker::finish::{Finishing, in_background};
use crate::error::Error;
use crate::telemetry::{CallEnding, watched};

impl Limiter {
    /// Waits until one cell may be used: until it has been taken, and its turn has come. Fails at once with
    /// [`Error::RateLimitExceeded`] if that is not within `max_wait` (of at most a day).
    ///
    /// Dropping the future gives the turn back.
    pub async fn until_ready(&self, key: impl AsRef<[u8]>, max_wait: Duration) -> Result<(), Error> {
        self.until_ready_n(key, 1, max_wait).await
    }

    /// Waits until `cost` cells may be used together: all of them are booked, or none. Otherwise as
    /// [`until_ready`](Self::until_ready). More cells than the bucket holds fail at once.
    pub async fn until_ready_n(&self, key: impl AsRef<[u8]>, cost: u32, max_wait: Duration) -> Result<(), Error> {
        let cost = cells("cost", cost)?;
        let waiting = self.until_ready_unwatched(key.as_ref(), cost, max_wait);
        watched!(Limiter, "until_ready", &self.0.name, waiting, |result| CallEnding::or(result, |()| {
            CallEnding::GRANTED
        }))
    }

    async fn until_ready_unwatched(&self, key: &[u8], cost: u32, max_wait: Duration) -> Result<(), Error> {
        let _pass = self.0.client.inner().gate.enter()?;
        let ahead = span(max_wait).min(RESERVE_MAX);
        if ahead.is_zero() {
            return self.acquire_n(key, cost).await;
        }
        if let Shape::Window { .. } = self.0.limit.shape {
            return self.until_granted(key, cost, max_wait).await;
        }
        let key = self.key(key);
        let (limiter, own_key) = (self.clone(), key.clone());
        // A booking that is dropped before its reply is there would otherwise never be given back.
        let booking = Finishing::new(&self.0.client, async move {
            let verdict = limiter.decide(&own_key, Ask::Reserve { cells: cost, within: ahead }).await?;
            Ok::<_, Error>(Booking { limiter, key: own_key, cost, verdict, is_used: false })
        });
        let mut booking = booking.await?;
        let wait = booking.verdict.retry_after;
        if !booking.verdict.is_granted() {
            self.count(&booking.verdict, Ask::Reserve { cells: cost, within: ahead });
            return Err(self.exceeded(wait));
        }
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            self.0.client.clock().sleep(wait).await;
            self.0.waits.record(wait);
        }
        self.count(&booking.verdict, Ask::Reserve { cells: cost, within: ahead });
        booking.is_used = true;
        Ok(())
    }

    async fn until_granted(&self, key: &[u8], cost: u32, max_wait: Duration) -> Result<(), Error> {
        let clock = self.0.client.clock();
        let deadline = clock.now().saturating_add(max_wait);
        loop {
            let verdict = self.check_n(key, cost).await?;
            if verdict.is_granted() {
                return Ok(());
            }
            let left = deadline.saturating_sub(clock.now());
            match verdict.retry_after {
                // Never zero after a refusal; if it were, this would spin.
                Some(wait) if wait <= left => clock.sleep(wait.max(Duration::from_millis(1))).await,
                other => return Err(self.exceeded(other)),
            }
        }
    }
}

/// A turn that was booked. Dropped unused, it is given back.
struct Booking {
    limiter: Limiter,
    key: Key,
    cost: u32,
    verdict: Verdict,
    is_used: bool,
}

impl Drop for Booking {
    fn drop(&mut self) {
        if self.is_used || !self.verdict.is_granted() {
            return;
        }
        let (limiter, refund) = (&self.limiter, Ask::Refund(self.cost));
        match self.verdict.decided_by {
            DecidedBy::AwayOpen | DecidedBy::DenyCache => {}
            DecidedBy::Local => drop(limiter.local(&limiter.0.limit.part.command(&self.key, refund))),
            DecidedBy::Server => {
                let command = limiter.0.limit.shape.command(&self.key, refund);
                if limiter.0.client.backend().call_now(&command).is_some() {
                    limiter.denied().forget(&self.key);
                    return;
                }
                let (limiter, key) = (limiter.clone(), self.key.clone());
                in_background(&self.limiter.0.client, async move {
                    // Best effort: a turn that is not given back is only lost.
                    let command = limiter.0.limit.shape.command(&key, refund);
                    let _ = limiter.0.client.backend().call(&command).await;
                    limiter.denied().forget(&key);
                });
            }
        }
    }
}
