//! How stages that hold something are entered and left.
//!
//! A list of such stages is entered in turn by one future, however many there are. A call that is refused half-way gives back what
//! was taken so far; to a breaker that is a cancelled call.
//!
//! Types of futures are kept shallow on purpose: the callers of a policy have them in the type of their own future, and compilers
//! have a limit on how deep that may be. So what asks a server is in a box of its own.

use std::future::Future;

use futures_util::FutureExt;
use resil_core::circuit_breaker::Report;

use super::builder::PolicyParts;
use super::bulkhead::BulkheadPermit;
use super::chain::Call;
use super::stage::Stage;
use super::until::Until;
use crate::breaker::Permit;
use crate::clock::{Clock, Moment};
use crate::error::Error;
use crate::shared_bulkhead::BulkheadGuard;

/// What a call holds.
#[derive(Default)]
pub(super) struct Holds {
    /// When all was had, if places adapt.
    began: Option<(Clock, Moment)>,
    permit: Option<Permit>,
    shared: Option<BulkheadGuard>,
    place: Option<BulkheadPermit>,
    shed: Option<BulkheadPermit>,
    /// This process' part of the shared bulkhead.
    share: Option<BulkheadPermit>,
}

impl PolicyParts {
    /// Enters these stages, one after the other.
    pub(super) async fn enter<C>(&self, stages: &[Stage], call: &Call<'_, C>) -> Result<Holds, Error> {
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
                        holds.place = Some(bulkhead.acquire_in(call.options.partition.as_deref()).await?);
                    }
                }
                Stage::Shed => {
                    if let Some(shed) = &self.shed {
                        holds.shed = Some(shed.try_acquire()?);
                    }
                }
                Stage::SharedBulkhead => {
                    if let Some(share) = &self.share {
                        holds.share = Some(share.try_acquire()?);
                    }
                    if let Some(bulkhead) = &self.shared_bulkhead {
                        holds.shared = Some(Box::pin(bulkhead.enter_inside()).await?);
                    }
                }
                Stage::Total | Stage::Retry | Stage::Hedge | Stage::Attempt => {}
            }
        }
        if self.places_adapt {
            holds.began = Some((self.clock.clone(), self.clock.now()));
        }
        Ok(holds)
    }
}

impl Holds {
    /// Runs `inside`, and drops it if the permit of the shared bulkhead is lost.
    pub fn unless_lost<F: Future>(&self, inside: F) -> Until<F, impl Future<Output = Error> + use<F>> {
        let lost = self.shared.as_ref().map(|guard| (guard.lost_error(), guard.held().until_lost()));
        Until::strictly(inside, lost.map(|(error, lost)| lost.map(|_| error)))
    }

    /// Gives everything back, and reports the outcome to the breaker.
    pub async fn leave(self, report: Report) {
        let Self { permit, shared, place, shed, share, began } = self;
        if let Some((clock, began)) = began.filter(|_| report != Report::Cancel) {
            let took = clock.now().saturating_sub(began);
            place.iter().chain(&share).for_each(|place| place.learn(took, report == Report::Fail));
        }
        drop((place, shed, share));
        if let Some(guard) = shared {
            // If it is not heard, it is said again in the background.
            let _ = Box::pin(guard.leave()).await;
        }
        if let Some(permit) = permit.and_then(|permit| permit.report_now(report)) {
            Box::pin(permit.report(report)).await;
        }
    }
}
