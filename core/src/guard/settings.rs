//! What a policy's document says, as far as the server acts on it, ready to be asked with every call.
//!
//! `order`, `hedge`, `whenAway`, `mode`, `flushInterval` and whatever else only an SDK can do is not here. Nor are names: the
//! breaker, the limit and the places of a stored policy are its own.

use alloc::string::String;

use smallvec::SmallVec;

use super::versions::DOCUMENT_MAX;
use crate::circuit_breaker::Config;
use crate::limits::{HOLDERS_MAX, LEASE_LEAST};
use crate::policy::backoff::Backoff;
use crate::policy::concurrency::ConcurrencyRules;
use crate::policy::retry_budget::BudgetRules;
use crate::policy::shedding::SheddingRules;
use crate::policy::throttle::ThrottleRules;
use crate::policy::{self, Chaos, Document, Invalid, LimitKind, RateLimit, Retry, WHOLE};
use crate::rate_limit::Quota;
use crate::time::Span;
use crate::window::Rule;

/// How long a ticket outlives the timeout of its attempt, or of its call.
pub const LEASE_MARGIN: Span = Span::from_secs(1);

/// The lease of a ticket where neither a timeout nor `sharedBulkhead.lease` says otherwise.
pub const LEASE_OTHERWISE: Span = Span::from_secs(10);

/// One policy, as the server acts on it. What is `None` is not asked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    pub breaker: Option<Config>,
    /// The breaker trips by what is usual, too.
    pub is_adaptive: bool,
    pub limit: Option<LimitRule>,
    pub places: Option<Places>,
    pub retry: Option<RetryRule>,
    /// How long one attempt may take.
    pub attempt: Option<Span>,
    /// How long all attempts of a call may take together.
    pub total: Option<Span>,
    pub shedding: Option<SheddingRules>,
    pub throttle: Option<ThrottleRules>,
    pub chaos: Option<Chaos>,
}

/// Numbers in documents are finite.
impl Eq for Settings {}

/// How often calls may be made, by either algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitRule {
    Gcra(SmallVec<[Quota; 3]>),
    Window(Rule),
}

/// How many calls may be inside at once, and how many may wait for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    pub max: u32,
    pub queue: u32,
    /// The longest WAIT; `None`: as the caller says.
    pub max_wait: Option<Span>,
    pub lease: Option<Span>,
    pub adaptive: Option<ConcurrencyRules>,
}

/// When and how a call that failed is made again.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryRule {
    /// The first included.
    pub max_attempts: u32,
    pub backoff: Backoff,
    /// A longer AFTER ends the call.
    pub retry_after_max: Span,
    /// No retry begins later than this after the first attempt did.
    pub max_elapsed: Option<Span>,
    pub budget: Option<BudgetRules>,
}

/// Reads a document: its canonical text, and what it says.
pub fn read_policy(json: &str) -> Result<(String, Settings), Invalid> {
    let document = policy::read(json)?;
    let (settings, canonical) = (Settings::of(&document)?, document.canonical());
    if canonical.len() > DOCUMENT_MAX {
        let text =
            alloc::format!("must be at most {} KB as it is stored, got {} bytes", DOCUMENT_MAX >> 10, canonical.len());
        return Err(Invalid::new(WHOLE, text));
    }
    Ok((canonical, settings))
}

impl Settings {
    fn of(document: &Document) -> Result<Self, Invalid> {
        let timeout = document.timeout.clone().unwrap_or_default();
        let mut settings = Self {
            limit: document.rate_limit.as_ref().map(limit_of).transpose().map_err(|wrong| wrong.inside("rateLimit"))?,
            places: places_of(document),
            retry: document.retry.as_ref().map(retry_of),
            attempt: timeout.attempt,
            total: timeout.total,
            shedding: document.shedding.as_ref().map(policy::Shedding::rules),
            throttle: document.throttle.as_ref().map(policy::Throttle::rules),
            chaos: document.chaos.clone(),
            ..Self::default()
        };
        if let Some(breaker) = &document.breaker {
            // A probe ends with its ticket.
            let config = breaker.config().map_err(|wrong| wrong.inside("breaker"))?;
            settings.breaker = Some(Config { lease: settings.lease(), ..config });
            settings.is_adaptive = breaker.adaptive();
        }
        Ok(settings)
    }

    /// How long a ticket, its place and its probe last.
    pub fn lease(&self) -> Span {
        let of_places = self.places.as_ref().and_then(|places| places.lease);
        let and_margin = |timeout: Span| Span::from_us(timeout.as_us().saturating_add(LEASE_MARGIN.as_us()));
        // No attempt lasts longer than its call.
        let of_timeout = self.attempt.map(and_margin).or(of_places).or(self.total.map(and_margin));
        of_timeout.unwrap_or(LEASE_OTHERWISE).clamp(LEASE_LEAST, Span::from_days(1))
    }
}

fn limit_of(limit: &RateLimit) -> Result<LimitRule, Invalid> {
    if limit.kind() == LimitKind::Window {
        return Ok(LimitRule::Window(Rule { limit: limit.limit(), period: limit.period() }));
    }
    let quota = |limit: u32, period, burst: Option<u32>| Quota::new(limit, period, burst.unwrap_or(limit));
    let further = limit.tiers.iter().flatten().map(|tier| quota(tier.limit(), tier.period(), tier.burst));
    let first = quota(limit.limit(), limit.period(), limit.burst);
    let quotas = core::iter::once(first).chain(further).collect::<Result<_, _>>();
    quotas.map(LimitRule::Gcra).map_err(|wrong| Invalid::new("limit", alloc::format!("{wrong}")))
}

/// Those of the fleet; a policy that only limits a process has that limit enforced for the fleet.
fn places_of(document: &Document) -> Option<Places> {
    let adaptive = |adaptive: &Option<policy::Adaptive>, max| adaptive.as_ref().map(|adaptive| adaptive.rules(max));
    if let Some(shared) = &document.shared_bulkhead {
        let max = shared.max_concurrent_calls();
        let queue = shared.max_queue.unwrap_or(max);
        let (max_wait, lease) = (shared.max_wait, shared.lease);
        return Some(Places { max, queue, max_wait, lease, adaptive: adaptive(&shared.adaptive, max) });
    }
    let local = document.bulkhead.as_ref()?;
    let max = local.max_concurrent_calls().min(HOLDERS_MAX as u32);
    let (queue, max_wait) = (local.max_queue(), local.max_wait);
    Some(Places { max, queue, max_wait, lease: None, adaptive: adaptive(&local.adaptive, max) })
}

fn retry_of(retry: &Retry) -> RetryRule {
    RetryRule {
        max_attempts: retry.max_attempts(),
        backoff: retry.backoff(),
        retry_after_max: retry.retry_after_max(),
        max_elapsed: retry.max_elapsed,
        budget: retry.budget().as_ref().map(policy::Budget::rules),
    }
}
