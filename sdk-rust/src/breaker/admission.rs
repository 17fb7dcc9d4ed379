//! Leave that this process gives by itself, without a future: for who calls so often that making one is felt.

use resil_core::circuit_breaker::Report;

use super::permit::{Permit, Way};
use super::{Breaker, judge};
use crate::error::Failure;
use crate::policy::classify::Classify;
use crate::shutdown::gate::OwnedPass;
use std::sync::Arc;

/// Leave to make one call, to be told what came of it. In flight for a shutdown until then; dropped, it was cancelled.
#[derive(Debug)]
#[must_use = "leave that is dropped is a call that was cancelled"]
pub struct Admission {
    permit: Permit,
    _pass: OwnedPass,
}

impl Breaker {
    /// Leave to make a call if this process can give it without asking anybody, as it nearly always can while the circuit is
    /// closed. `None` says nothing: ask with [`admit`](Self::admit), or call through.
    pub fn admit_at_once(&self) -> Option<Admission> {
        let pass = self.0.client.inner().gate.enter_owned().ok()?;
        let (tag, started) = self.0.admit_here()?;
        Some(Admission { permit: Permit::new(Arc::clone(&self.0), Way::Here(tag), started), _pass: pass })
    }
}

impl Admission {
    /// What came of the call, judged as [`Breaker::around`] does.
    pub fn tell<T, E>(self, classify: &impl Classify<E>, result: &Result<T, Failure<E>>) {
        let report = match result {
            Ok(_) => Report::Ok,
            Err(failure) => judge(classify, failure),
        };
        // It was admitted here, so nobody has to be waited for.
        let told = self.permit.report_now(report);
        debug_assert!(told.is_none(), "only what a server admitted is reported to one");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::breaker::{BreakerOptions, State};
    use crate::policy::{retry_all, retry_none};
    use crate::{ConnectOptions, Failure};

    #[tokio::test]
    async fn leave_given_at_once_counts_as_a_call_does_and_ends_when_the_circuit_opens() {
        let client = ConnectOptions::new("memory://").connect().await.unwrap();
        let breaker = client.breaker("b", BreakerOptions::new().consecutive(2)).unwrap();
        breaker.call(async || Ok::<_, ()>(())).await.unwrap();
        for _ in 0..2 {
            let admitted = breaker.admit_at_once();
            let leave = match admitted {
                Some(leave) => leave,
                // A failure of ours has not been answered yet: that is asked for.
                None => {
                    let _ = breaker.call(async || Err::<(), _>(())).await;
                    continue;
                }
            };
            leave.tell(&retry_all, &Err::<(), _>(Failure::Inner(())));
        }
        let _ = breaker.call(async || Err::<(), _>(())).await;
        assert_eq!(breaker.state().await.unwrap().state, State::Open);
        assert!(breaker.admit_at_once().is_none());
    }

    #[tokio::test]
    async fn leave_given_at_once_is_in_flight_until_it_is_told() {
        let client = ConnectOptions::new("memory://").connect().await.unwrap();
        let breaker = client.breaker("b", BreakerOptions::new()).unwrap();
        breaker.call(async || Ok::<_, ()>(())).await.unwrap();
        let leave = breaker.admit_at_once().expect("closed");
        let gone = tokio::spawn({
            let client = client.clone();
            async move { client.shutdown(Duration::from_secs(5)).await }
        });
        while !client.is_shutting_down() {
            tokio::task::yield_now().await;
        }
        assert!(breaker.admit_at_once().is_none(), "nothing new begins");
        leave.tell(&retry_none, &Ok::<_, Failure<()>>(()));
        let report = gone.await.unwrap();
        assert_eq!((report.drained, report.cut_off), (1, 0));
    }
}
