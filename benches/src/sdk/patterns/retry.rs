//! Retry around a call that succeeds the first time: three attempts, exponential delays with jitter.

use std::future::Ready;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use resil::policy::{Retry, RetrySettings, retry_all};
use tower::retry::backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff};
use tower::retry::budget::{Budget, TpsBudget};
use tower::util::rng::HasherRng;
use tower::{Layer, Service, ServiceExt};
use tower_resilience_retry::{RetryBudgetBuilder, RetryLayer};

use super::{Never, Reply, call, service};
use crate::contest::{Bar, Contest};
use crate::row;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// tower has no policy of its own: this one is as its documentation shows, with its backoff and its budget.
#[derive(Clone)]
pub struct ByTower {
    left: u32,
    backoff: ExponentialBackoff<HasherRng>,
    budget: Option<std::sync::Arc<TpsBudget>>,
}

impl ByTower {
    pub fn new(budget: Option<TpsBudget>) -> Self {
        let mut maker = ExponentialBackoffMaker::new(FIRST, LONGEST, 0.5, HasherRng::default()).expect("valid");
        Self { left: 2, backoff: maker.make_backoff(), budget: budget.map(std::sync::Arc::new) }
    }
}

impl tower::retry::Policy<u64, u64, Never> for ByTower {
    type Future = <ExponentialBackoff<HasherRng> as Backoff>::Future;

    fn retry(&mut self, _request: &mut u64, result: &mut Reply) -> Option<Self::Future> {
        match result {
            Ok(_) => {
                if let Some(budget) = &self.budget {
                    budget.deposit();
                }
                None
            }
            Err(_) => {
                self.left = self.left.checked_sub(1)?;
                if self.budget.as_ref().is_some_and(|budget| !budget.withdraw()) {
                    return None;
                }
                Some(self.backoff.next_backoff())
            }
        }
    }

    fn clone_request(&mut self, request: &u64) -> Option<u64> {
        Some(*request)
    }
}

async fn through<S: Service<u64, Response = u64, Error: std::fmt::Debug>>(service: &mut S) -> Result<u64, S::Error> {
    service.ready().await?.call(1).await
}

pub fn contest() -> Contest {
    let retry = Retry::new(&RetrySettings { budget: None, ..RetrySettings::default() }).expect("valid");
    let backon =
        ExponentialBuilder::default().with_min_delay(FIRST).with_max_delay(LONGEST).with_max_times(2).with_jitter();
    let mut tower = tower::retry::Retry::new(ByTower::new(None), service());
    let layer = RetryLayer::<u64, u64, Never>::builder().max_attempts(3).exponential_backoff(FIRST).build();
    let mut resilience = layer.layer(service());
    Contest {
        name: "retry",
        bar: Bar::NoSlowerThanBestPeer,
        rows: vec![
            row!(Measure, "the call alone", call()),
            row!(Ours, "Retry, no budget", retry.call(retry_all, call)),
            row!(Peer, "backon", (call as fn() -> Ready<Reply>).retry(backon)),
            row!(Peer, "tower", through(&mut tower)),
            row!(Peer, "tower-resilience", through(&mut resilience)),
        ],
    }
}

/// With a limit on the retries of all calls together. backon has none.
pub fn budgeted() -> Contest {
    let retry = Retry::new(&RetrySettings::default()).expect("valid");
    let budget = TpsBudget::new(Duration::from_secs(10), 10, 0.2);
    let mut tower = tower::retry::Retry::new(ByTower::new(Some(budget)), service());
    let budget =
        RetryBudgetBuilder::new().token_bucket().tokens_per_second(10.0).max_tokens(100).build().expect("valid");
    let layer = RetryLayer::<u64, u64, Never>::builder().max_attempts(3).exponential_backoff(FIRST).budget(budget);
    let mut resilience = layer.build().layer(service());
    Contest {
        name: "retry with a budget",
        bar: Bar::NoSlowerThanBestPeer,
        rows: vec![
            row!(Measure, "the call alone", call()),
            row!(Ours, "Retry", retry.call(retry_all, call)),
            row!(Peer, "tower, TpsBudget", through(&mut tower)),
            row!(Peer, "tower-resilience, token bucket", through(&mut resilience)),
        ],
    }
}
