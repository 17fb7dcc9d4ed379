//! How stages that hold something are gone through, and orders other than the default one.
//!
//! A list of such stages is one future, however many there are: each is entered in turn, what is inside runs, and what was
//! taken is given back. Whoever is refused half-way gives back what was taken so far; to a breaker that is a cancelled
//! call.

use std::future::Future;
use std::pin::pin;

use super::builder::Parts;
use super::chain::Call;
use super::classify::Classify;
use super::stage::{Plan, Stage};
use crate::breaker::{Permit, judge};
use crate::error::Failure;
use crate::shared_bulkhead::BulkheadGuard;

impl Parts {
    /// Enters `stages`, and runs `inside` there.
    pub(super) async fn guarded<T, E, C, Fut>(
        &self,
        stages: &[Stage],
        call: &Call<'_, C>,
        inside: impl FnOnce() -> Fut,
    ) -> Result<T, Failure<E>>
    where
        C: Classify<E>,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let mut permit: Option<Permit> = None;
        let mut shared: Option<BulkheadGuard> = None;
        let (mut _place, mut _shed_place) = (None, None);
        for stage in stages {
            match stage {
                Stage::Breaker => {
                    if let Some(breaker) = &self.breaker {
                        permit = Some(breaker.admit_inside().await?);
                    }
                }
                Stage::RateLimit => {
                    if let Some(limiter) = &self.limiter {
                        let key = call.options.key.unwrap_or(&self.name);
                        limiter.acquire_inside(key.as_bytes(), call.options.cost.unwrap_or(1)).await?;
                    }
                }
                Stage::Bulkhead => {
                    if let Some(bulkhead) = &self.bulkhead {
                        _place = Some(bulkhead.place(call.options.partition).await?);
                    }
                }
                Stage::Shed => {
                    if let Some(shed) = &self.shed {
                        _shed_place = Some(shed.place_now()?);
                    }
                }
                Stage::SharedBulkhead => {
                    if let Some(bulkhead) = &self.shared_bulkhead {
                        shared = Some(Box::pin(bulkhead.enter_inside()).await?);
                    }
                }
                Stage::Total | Stage::Retry | Stage::Hedge | Stage::Attempt => {}
            }
        }
        let outcome = match shared {
            None => inside().await,
            Some(guard) => {
                let lost = guard.lost();
                let mut inside = pin!(inside());
                let outcome = tokio::select! {
                    biased;
                    () = lost.cancelled() => Err(Failure::Resil(guard.lost_error())),
                    outcome = inside.as_mut() => outcome,
                };
                // If it is not heard, it is said again in the background.
                let _ = Box::pin(guard.leave()).await;
                outcome
            }
        };
        if let Some(permit) = permit {
            let report = match &outcome {
                Ok(_) => resil_core::circuit_breaker::Report::Ok,
                Err(failure) => judge(&|error: &E| call.classify.classify(error), failure),
            };
            permit.report(report).await;
        }
        outcome
    }

    /// Follows an order that is not the default one.
    pub(super) async fn run_in_order<T, E, C, Fut>(
        &self,
        plan: &Plan,
        call: &Call<'_, C>,
        operation: &impl Fn() -> Fut,
    ) -> Result<T, Failure<E>>
    where
        C: Classify<E>,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let innermost = || self.guarded(&plan.guards[4], call, operation);
        let third = || self.level(plan, 3, call, &innermost);
        let second = || self.level(plan, 2, call, &third);
        let first = || self.level(plan, 1, call, &second);
        self.level(plan, 0, call, &first).await
    }

    /// `guards[depth]`, then `wraps[depth]`, then `inside`.
    async fn level<T, E, C, Fut>(
        &self,
        plan: &Plan,
        depth: usize,
        call: &Call<'_, C>,
        inside: &impl Fn() -> Fut,
    ) -> Result<T, Failure<E>>
    where
        C: Classify<E>,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        self.guarded(&plan.guards[depth], call, || self.wrapped(plan.wraps[depth], call, inside)).await
    }

    async fn wrapped<T, E, C, Fut>(
        &self,
        wrap: Option<Stage>,
        call: &Call<'_, C>,
        inside: &impl Fn() -> Fut,
    ) -> Result<T, Failure<E>>
    where
        C: Classify<E>,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let classify = |error: &E| call.classify.classify(error);
        match (wrap, &self.retry, &self.hedge) {
            (Some(Stage::Total), ..) => self.total.limit_to(call.total, inside()).await,
            (Some(Stage::Attempt), ..) => self.attempt.limit_to(call.attempt, inside()).await,
            (Some(Stage::Retry), Some(retry), _) => {
                // A deadline further in is none of all attempts.
                let deadline = call.deadline.filter(|_| self.total_is_outside_of_retry());
                retry.run(classify, deadline, inside).await
            }
            (Some(Stage::Hedge), _, Some(hedge)) => hedge.around(classify, inside).await,
            _ => inside().await,
        }
    }

    fn total_is_outside_of_retry(&self) -> bool {
        let at = |stage| self.order.iter().position(|other| *other == stage);
        at(Stage::Total) < at(Stage::Retry)
    }
}
