//! Leave for several calls at once, without a future: for who runs many between two looks at the outside, as a thread of
//! JavaScript does within one turn of its loop.
//!
//! # What is promised
//! - Every call counts as it would alone: those that went well, failed, or were not made after all.
//! - All belong to the generation in which leave was given. Whatever is told after the circuit changed is not counted.
//! - Each is in flight for a shutdown until it is told, or given back.
//! - A breaker that counts slow calls times each of them, so it gives leave for one at a time.

use std::sync::Arc;

use resil_core::circuit_breaker::Report;

use super::batch::Tag;
use super::core::Core;
use super::{Breaker, judge};
use crate::clock::Moment;
use crate::error::Failure;
use crate::policy::classify::Classify;
use crate::shutdown::gate::OwnedPasses;

/// How many at most: as many as may come without a look at the clock.
const MOST: u32 = 32;

/// Leave to make some calls, each to be told or given back. Dropped, what is left of it was cancelled.
#[derive(Debug)]
#[must_use = "leave that is dropped is calls that were cancelled"]
pub struct Admissions {
    core: Arc<Core>,
    tag: Tag,
    started: Moment,
    /// For each call that is neither told nor given back.
    passes: OwnedPasses,
}

impl Breaker {
    /// Leave for up to `most` calls, and at least for one, if this process can give it without asking anybody. `None` says
    /// nothing: see [`admit_at_once`](Self::admit_at_once).
    pub fn admit_several_at_once(&self, most: u32) -> Option<Admissions> {
        let most = if self.0.times_calls() { 1 } else { most.min(MOST) };
        let mut passes = OwnedPasses::new(&self.0.client.inner().gate);
        if passes.more(most) == 0 {
            return None;
        }
        let (tag, started) = self.0.admit_here()?;
        Some(Admissions { core: Arc::clone(&self.0), tag, started, passes })
    }
}

impl Core {
    fn times_calls(&self) -> bool {
        self.options.patch.slow.is_some()
    }
}

impl Admissions {
    /// How many are neither told nor given back.
    pub fn len(&self) -> u32 {
        self.passes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Leave for up to `most` more calls, as if asked anew. How many: 0 says nothing.
    pub fn more(&mut self, most: u32) -> u32 {
        if self.core.times_calls() {
            return 0;
        }
        match self.core.admit_here() {
            Some((tag, _)) if tag == self.tag => self.passes.more(most.min(MOST)),
            _ => 0,
        }
    }

    /// So many of the calls went well.
    pub fn tell_ok(&mut self, calls: u32) {
        let calls = self.leave(calls);
        if self.core.times_calls() {
            (0..calls).for_each(|_| self.core.count(self.tag, self.started, Report::Ok));
        } else {
            self.core.record_ok(self.tag, calls);
        }
    }

    /// What came of one call, judged as [`Breaker::around`] does.
    pub fn tell<T, E>(&mut self, classify: &impl Classify<E>, result: &Result<T, Failure<E>>) {
        let report = match result {
            Ok(_) => Report::Ok,
            Err(failure) => judge(classify, failure),
        };
        if self.leave(1) == 1 {
            self.core.count(self.tag, self.started, report);
        }
    }

    /// So many were not made after all, or nobody waits for them any more.
    pub fn give_back(&mut self, calls: u32) {
        self.leave(calls);
    }

    /// How many of them there were.
    fn leave(&mut self, calls: u32) -> u32 {
        self.passes.less(calls)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use crate::breaker::{Breaker, BreakerOptions, State};
    use crate::policy::retry_all;
    use crate::{Client, ConnectOptions, Failure};

    async fn closed(options: BreakerOptions) -> (Client, Breaker) {
        let client = ConnectOptions::new("memory://").connect().await.unwrap();
        let breaker = client.breaker("b", options).unwrap();
        breaker.call(async || Ok::<_, ()>(())).await.unwrap();
        (client, breaker)
    }

    const FAILED: Result<(), Failure<()>> = Err(Failure::Inner(()));

    #[tokio::test]
    async fn each_of_several_counts_as_it_would_alone() {
        let (_client, breaker) = closed(BreakerOptions::new().consecutive(100)).await;
        let mut all = breaker.admit_several_at_once(10).expect("closed");
        assert_eq!(all.len(), 10);
        all.tell_ok(4);
        all.tell(&retry_all, &FAILED);
        all.give_back(2);
        assert_eq!(all.len(), 3);
        drop(all);
        // The next call sends what is unsent.
        breaker.call(async || Ok::<_, ()>(())).await.unwrap();
        let _ = breaker.call(async || Err::<(), _>(())).await;
        let state = breaker.state().await.unwrap();
        assert_eq!((state.calls, state.failures, state.failures_in_a_row), (8, 2, 1));
    }

    #[tokio::test]
    async fn successes_told_before_a_failure_end_the_row_of_those_before() {
        let (_client, breaker) = closed(BreakerOptions::new().consecutive(2)).await;
        let _ = breaker.call(async || Err::<(), _>(())).await;
        breaker.call(async || Ok::<_, ()>(())).await.unwrap();
        let mut all = breaker.admit_several_at_once(3).expect("closed");
        all.tell_ok(1);
        all.tell(&retry_all, &FAILED);
        assert!(breaker.admit().await.is_ok(), "one failure in a row");
        assert_eq!(breaker.state().await.unwrap().failures_in_a_row, 1);
    }

    #[tokio::test]
    async fn leave_of_an_old_generation_counts_nothing_and_gets_no_more() {
        let (_client, breaker) = closed(BreakerOptions::new().consecutive(1).open_for(Duration::from_secs(60))).await;
        let mut old = breaker.admit_several_at_once(3).expect("closed");
        let _ = breaker.call(async || Err::<(), _>(())).await;
        assert_eq!(breaker.state().await.unwrap().state, State::Open);
        assert_eq!(old.more(5), 0);
        assert!(breaker.admit_several_at_once(5).is_none());
        breaker.reset().await.unwrap();
        breaker.call(async || Ok::<_, ()>(())).await.unwrap();
        old.tell(&retry_all, &FAILED);
        assert!(breaker.admit().await.is_ok(), "it failed in another generation");
    }

    #[tokio::test]
    async fn a_breaker_that_counts_slow_calls_gives_leave_for_one_at_a_time() {
        let slow = BreakerOptions::new().consecutive(5).slow_calls(Duration::from_secs(1), 50);
        let (_client, breaker) = closed(slow).await;
        let mut one = breaker.admit_several_at_once(10).expect("closed");
        assert_eq!((one.len(), one.more(10)), (1, 0));
        one.tell_ok(1);
        assert!(one.is_empty());
    }

    #[tokio::test]
    async fn each_of_several_is_in_flight_until_it_is_told_or_given_back() {
        let (client, breaker) = closed(BreakerOptions::new()).await;
        let mut all = breaker.admit_several_at_once(3).expect("closed");
        assert_eq!(all.more(2), 2);
        all.give_back(1);
        let gone = tokio::spawn({
            let client = client.clone();
            async move { client.shutdown(Duration::from_secs(5)).await }
        });
        while !client.is_shutting_down() {
            tokio::task::yield_now().await;
        }
        assert_eq!(all.more(1), 0, "nothing new begins");
        all.tell_ok(4);
        let report = gone.await.unwrap();
        assert_eq!((report.drained, report.cut_off), (4, 0));
    }

    #[tokio::test]
    async fn who_runs_calls_elsewhere_hears_when_a_shutdown_gives_them_up() {
        let (client, breaker) = closed(BreakerOptions::new()).await;
        let all = breaker.admit_several_at_once(3).expect("closed");
        assert_eq!(client.cut_off().now_or_never(), None);
        let report = client.shutdown(Duration::ZERO).await;
        assert_eq!((report.drained, report.cut_off), (0, 3));
        assert_eq!(client.cut_off().now_or_never(), Some(()));
        drop(all);
    }
}
