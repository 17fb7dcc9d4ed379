//! What a service config says, as settings of our own policies.
//!
//! gRPC retries after `random(0, min(initialBackoff * backoffMultiplier^(n-1), maxBackoff))`: that is full jitter. Where
//! gRPC allows what ours do not (a multiplier below 1, delays above an hour), it is refused by name.
//!
//! Two things are not quite the same. gRPC's throttle counts tokens, ours is a budget over a window: what comes out lets
//! through about the same share of extra calls. And hedges are always under a budget, with or without a throttle.

use std::time::Duration;

use super::service_config::{HedgingPolicy, MethodConfig, RetryPolicy, RetryThrottling, ServiceConfig};
use crate::error::Error;
use crate::policy::{BudgetSettings, HedgeSettings, Jitter, RetrySettings, TimeoutSettings};
use crate::settings::InPart;

/// The shortest delay our hedging has. gRPC's zero sends all attempts at once; so, nearly, does this.
const AT_ONCE: Duration = Duration::from_micros(1);

/// What applies to one method. Which statuses are worth an attempt is in the config itself.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MethodSettings {
    pub retry: Option<RetrySettings>,
    pub hedge: Option<HedgeSettings>,
    pub timeouts: TimeoutSettings,
}

impl ServiceConfig {
    /// The settings for the method of this path (`/package.Service/Method`), throttle included. Without an entry for it
    /// there is neither retry nor hedging nor timeout, as in gRPC.
    pub fn settings(&self, path: &str) -> Result<MethodSettings, Error> {
        let none = MethodConfig { timeout: None, policy: None };
        let mut settings = self.method(path).unwrap_or(&none).settings()?;
        let budget = self.retry_throttling.as_ref().map(BudgetSettings::from);
        if let Some(retry) = &mut settings.retry {
            retry.budget.clone_from(&budget);
        }
        if let (Some(hedge), Some(budget)) = (&mut settings.hedge, budget) {
            hedge.budget = budget;
        }
        Ok(settings)
    }
}

impl MethodConfig {
    /// Without the throttle, which is one for all methods.
    pub(crate) fn settings(&self) -> Result<MethodSettings, Error> {
        let retry = self.retry().map(RetrySettings::try_from).transpose()?;
        let hedge = self.hedging().map(HedgeSettings::try_from).transpose()?;
        let timeouts = TimeoutSettings { total: self.timeout, ..TimeoutSettings::default() };
        timeouts.validate().in_part("timeout")?;
        Ok(MethodSettings { retry, hedge, timeouts })
    }
}

impl TryFrom<&RetryPolicy> for RetrySettings {
    type Error = Error;

    /// Without a budget: gRPC has none unless it is throttled.
    fn try_from(policy: &RetryPolicy) -> Result<Self, Error> {
        let settings = Self {
            max_attempts: policy.max_attempts,
            initial_backoff: policy.initial_backoff.min(policy.max_backoff),
            max_backoff: policy.max_backoff,
            backoff_multiplier: policy.backoff_multiplier,
            jitter: Jitter::Full,
            budget: None,
            ..Self::default()
        };
        settings.validate().in_part("retry")?;
        Ok(settings)
    }
}

impl TryFrom<&HedgingPolicy> for HedgeSettings {
    type Error = Error;

    fn try_from(policy: &HedgingPolicy) -> Result<Self, Error> {
        let settings = Self {
            hedging_delay: policy.hedging_delay.max(AT_ONCE),
            max_hedges: policy.max_attempts.saturating_sub(1),
            ..Self::default()
        };
        settings.validate().in_part("hedge")?;
        Ok(settings)
    }
}

impl From<&RetryThrottling> for BudgetSettings {
    /// In the long run gRPC allows `token_ratio` failures per success; at first, half of its tokens.
    fn from(throttling: &RetryThrottling) -> Self {
        let window = Self::default().ttl;
        let at_first_per_second = throttling.max_tokens / 2.0 / window.as_secs_f64();
        Self {
            ttl: window,
            min_per_second: at_first_per_second.ceil() as u32,
            percent: (throttling.token_ratio * 100.0).ceil().clamp(1.0, 1000.0) as u32,
        }
    }
}
