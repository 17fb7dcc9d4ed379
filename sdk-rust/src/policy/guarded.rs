//! How stages that hold something are entered and left.
//!
//! A list of such stages is entered in turn by one future, however many there are. A call that is refused half-way gives back what
//! was taken so far; to a breaker that is a cancelled call.
//!
//! Types of futures are kept shallow on purpose: the callers of a policy have them in the type of their own future, and compilers
//! have a limit on how deep that may be. So what asks a server is in a box of its own.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use resil_core::circuit_breaker::Report;

use super::builder::PolicyParts;
use super::bulkhead::CallPermit;
use super::chain::Call;
use super::classify::Classify;
use super::stage::Stage;
use crate::breaker::{Permit, judge};
use crate::error::{Error, Failure};
use crate::holding::UntilLost;
use crate::shared_bulkhead::BulkheadGuard;

/// What a call holds.
#[derive(Default)]
pub(super) struct Holds<'a> {
    permit: Option<Permit>,
    shared: Option<BulkheadGuard>,
    place: Option<CallPermit<'a>>,
    shed: Option<CallPermit<'a>>,
}

impl PolicyParts {
    /// Enters these stages, one after the other.
    pub(super) async fn enter<C>(&self, stages: &[Stage], call: &Call<'_, C>) -> Result<Holds<'_>, Error> {
        let mut holds = Holds::default();
        for stage in stages {
            match stage {
                Stage::Breaker => {
                    if let Some(breaker) = &self.breaker {
                        holds.permit = Some(breaker.admit_inside().await?);
                    }
                }
                Stage::RateLimit => {
                    if let Some(limiter) = &self.limiter {
                        let key = call.options.key.as_deref().unwrap_or(&self.name);
                        let cost = call.options.cost.unwrap_or(1);
                        Box::pin(limiter.acquire_inside(key.as_bytes(), cost)).await?;
                    }
                }
                Stage::Bulkhead => {
                    if let Some(bulkhead) = &self.bulkhead {
                        holds.place = Some(bulkhead.place(call.options.partition.as_deref()).await?);
                    }
                }
                Stage::Shed => {
                    if let Some(shed) = &self.shed {
                        holds.shed = Some(shed.place_now()?);
                    }
                }
                Stage::SharedBulkhead => {
                    if let Some(bulkhead) = &self.shared_bulkhead {
                        holds.shared = Some(Box::pin(bulkhead.enter_inside()).await?);
                    }
                }
                Stage::Total | Stage::Retry | Stage::Hedge | Stage::Attempt => {}
            }
        }
        Ok(holds)
    }
}

impl Holds<'_> {
    /// Runs `inside`, and drops it if the place in the shared bulkhead is lost.
    pub fn unless_lost<T, E, F>(&self, inside: F) -> UnlessLost<F>
    where
        F: Future<Output = Result<T, Failure<E>>>,
    {
        let lost = self.shared.as_ref().map(|guard| (guard.lost_error(), guard.held().until_lost()));
        let (error, lost) = lost.unzip();
        UnlessLost { inner: Some(inside), lost, error }
    }

    /// What a breaker is told of `outcome`.
    pub fn judged<T, E>(classify: &impl Classify<E>, outcome: &Result<T, Failure<E>>) -> Report {
        match outcome {
            Ok(_) => Report::Ok,
            Err(failure) => judge(&|error: &E| classify.classify(error), failure),
        }
    }

    /// Gives everything back, and tells the breaker what it came to.
    pub async fn leave(self, report: Report) {
        let Self { permit, shared, place, shed } = self;
        drop((place, shed));
        if let Some(guard) = shared {
            // If it is not heard, it is said again in the background.
            let _ = Box::pin(guard.leave()).await;
        }
        if let Some(permit) = permit.and_then(|permit| permit.report_now(report)) {
            Box::pin(permit.report(report)).await;
        }
    }
}

pin_project! {
    /// See [`Holds::unless_lost`].
    pub(super) struct UnlessLost<F> {
        #[pin]
        inner: Option<F>,
        #[pin]
        lost: Option<UntilLost>,
        error: Option<Error>,
    }
}

impl<T, E, F> Future for UnlessLost<F>
where
    F: Future<Output = Result<T, Failure<E>>>,
{
    type Output = Result<T, Failure<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(lost) = this.lost.as_mut().as_pin_mut()
            && lost.poll(context).is_ready()
            && let Some(error) = this.error.take()
        {
            this.inner.set(None);
            return Poll::Ready(Err(Failure::Resil(error)));
        }
        match this.inner.as_pin_mut() {
            Some(inner) => inner.poll(context),
            None => Poll::Pending,
        }
    }
}
