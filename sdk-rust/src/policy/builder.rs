//! What a whole policy is made of.
//!
//! Everything is checked when it is built, by the name of the field; what is odd is said then, and once.

use std::sync::Arc;

use resil_core::policy::{Chaos, ChaosKind, Shedding, Throttle};

use super::adapting::Adapting;
use super::budget::Budget;
use super::bulkhead::{BulkheadSettings, LocalBulkhead};
use super::chain::Policy;
use super::fleet::FleetGuard;
use super::hedge::{Hedge, HedgeSettings};
use super::in_flight::{CallSeconds, is_same};
use super::retry::{Retry, RetrySettings};
use super::settings::PolicySettings;
use super::stage::{self, Stage, StagePlan};
use super::timeout::{MAX_TIMEOUT, Timeout, TimeoutSettings};
use crate::breaker::Breaker;
use crate::client::Client;
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::shared_bulkhead::SharedBulkhead;

/// Makes a [`Policy`]. What is not named is not there; without anything a policy only counts.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct PolicyBuilder {
    /// The stages that this makes itself. The others are handles, which stand below.
    settings: PolicySettings,
    budget: Option<Budget>,
    breaker: Option<Breaker>,
    limiter: Option<Limiter>,
    bulkhead: Option<LocalBulkhead>,
    shared_bulkhead: Option<SharedBulkhead>,
    client: Option<Client>,
    clock: Option<Clock>,
    seed: Option<u64>,
    kept: KeptParts,
    fleet: Option<FleetGuard>,
}

/// What goes on in a policy that was changed.
#[derive(Debug, Clone, Default)]
struct KeptParts {
    hedge: Option<Hedge>,
    shed: Option<LocalBulkhead>,
    share: Option<LocalBulkhead>,
    adapting: Option<Arc<Adapting>>,
}

/// Everything of a policy that was built.
#[derive(Debug)]
pub(super) struct PolicyParts {
    pub name: Arc<str>,
    pub timeouts: TimeoutSettings,
    /// There even if the policy has none: a call may ask for one.
    pub total: Timeout,
    pub attempt: Timeout,
    pub retry: Option<Retry>,
    pub hedge: Option<Hedge>,
    pub breaker: Option<Breaker>,
    pub limiter: Option<Limiter>,
    pub bulkhead: Option<LocalBulkhead>,
    pub shared_bulkhead: Option<SharedBulkhead>,
    pub shed: Option<LocalBulkhead>,
    /// This process' part of the shared bulkhead, if that adapts, or shedding looks at it.
    pub share: Option<LocalBulkhead>,
    pub adapting: Option<Arc<Adapting>>,
    /// What the server does, in place of breaker, limiter and shared bulkhead.
    pub fleet: Option<FleetGuard>,
    /// Whether a bulkhead learns from calls.
    pub places_adapt: bool,
    /// The stages that are there.
    pub order: Vec<Stage>,
    pub plan: StagePlan,
    pub warnings: Vec<String>,
    /// For whom a call is in flight. The first also lets in what the call asks of it while it shuts down.
    pub clients: Vec<Client>,
    pub clock: Clock,
    pub seconds: CallSeconds,
}

impl PolicyBuilder {
    pub(super) fn new(settings: PolicySettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Keeps what `before` has counted, where the settings that made it are the same.
    pub(super) fn keeping(mut self, old: &PolicySettings, before: &Policy) -> Self {
        let (parts, new) = (&*before.0, &self.settings);
        if old.name != new.name {
            return self;
        }
        let budget = |settings: &PolicySettings| settings.retry.as_ref().and_then(|retry| retry.budget.clone());
        if budget(new).is_some() && budget(old) == budget(new) {
            self.budget = parts.retry.as_ref().and_then(Retry::budget).cloned();
        }
        if old.bulkhead == new.bulkhead && parts.bulkhead.is_some() {
            self.bulkhead = parts.bulkhead.clone();
        }
        let adapts_alike = old.throttle == new.throttle
            && old.shedding == new.shedding
            && old.chaos == new.chaos
            && old.rate_limit.is_some() == new.rate_limit.is_some();
        let is_same_share = old.shared_bulkhead == new.shared_bulkhead;
        self.kept = KeptParts {
            hedge: parts.hedge.clone().filter(|_| old.hedge == new.hedge),
            shed: parts.shed.clone().filter(|_| old.shed == new.shed),
            share: parts.share.clone().filter(|_| is_same_share),
            adapting: parts.adapting.clone().filter(|_| adapts_alike),
        };
        self
    }

    /// What the fleet shares is asked of the server, by the policy's key. Its stages stand where they do by default.
    pub(super) fn fleet(mut self, fleet: FleetGuard) -> Self {
        self.client = Some(fleet.client().clone());
        self.fleet = Some(fleet);
        self
    }

    /// For each attempt, and for everything. What a call says beats it.
    pub fn timeout(mut self, timeout: TimeoutSettings) -> Self {
        self.settings.timeout = timeout;
        self
    }

    pub fn retry(mut self, settings: &RetrySettings) -> Self {
        self.settings.retry = Some(settings.clone());
        self
    }

    /// A budget of retries shared with other policies, in place of one of its own.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Only for operations that may be made twice.
    pub fn hedge(mut self, settings: &HedgeSettings) -> Self {
        self.settings.hedge = Some(settings.clone());
        self
    }

    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    pub fn limiter(mut self, limiter: Limiter) -> Self {
        self.limiter = Some(limiter);
        self
    }

    /// The one of this process.
    pub fn bulkhead(mut self, bulkhead: LocalBulkhead) -> Self {
        self.bulkhead = Some(bulkhead);
        self
    }

    /// The one of the fleet.
    pub fn shared_bulkhead(mut self, bulkhead: SharedBulkhead) -> Self {
        self.shared_bulkhead = Some(bulkhead);
        self
    }

    /// Refuses calls by itself while too few are accepted.
    pub fn throttle(mut self, throttle: Throttle) -> Self {
        self.settings.throttle = Some(throttle);
        self
    }

    /// Refuses less important calls while places of the bulkhead are scarce: see [`CallSettings::priority`].
    ///
    /// [`CallSettings::priority`]: super::CallSettings#structfield.priority
    pub fn shedding(mut self, shedding: Shedding) -> Self {
        self.settings.shedding = Some(shedding);
        self
    }

    /// Makes calls fail on purpose, for a time.
    pub fn chaos(mut self, chaos: Chaos) -> Self {
        self.settings.chaos = Some(chaos);
        self
    }

    /// At most so many calls in the whole policy at once, those that wait for a retry included. One more is refused at once
    /// with `BULKHEAD_FULL` before anybody is asked anything: nothing is queued.
    pub fn shed(mut self, max_in_flight: u32) -> Self {
        self.settings.shed = Some(max_in_flight);
        self
    }

    /// Another order than [`Stage::DEFAULT_ORDER`], outermost first. It has to name every stage that the policy has, to begin
    /// with the total deadline and to end with the timeout of an attempt; retry is outside of hedge. The others may stand
    /// anywhere: [`Policy::warnings`] says what comes of it.
    pub fn order(mut self, order: impl IntoIterator<Item = Stage>) -> Self {
        self.settings.order = Some(order.into_iter().collect());
        self
    }

    /// Calls are in flight for this client: its shutdown waits for them. Not needed with a breaker, a limiter or a shared
    /// bulkhead, which have theirs.
    pub fn client(mut self, client: &Client) -> Self {
        self.client = Some(client.clone());
        self
    }

    /// Another clock than the client's (or, without one, the machine's), for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Jitter that repeats itself, for tests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Checks everything, naming the field that is wrong. Logs what is odd; see [`Policy::warnings`].
    pub fn build(self) -> Result<Policy, Error> {
        self.settings.validate_stages()?;
        let asked = self.settings.order.as_deref().filter(|_| self.fleet.is_none());
        let order = stage::arrange(asked, |stage| self.has(stage))?;
        if self.fleet.is_none()
            && self.settings.shedding.is_some()
            && self.bulkhead.is_none()
            && self.shared_bulkhead.is_none()
        {
            return Err(Error::invalid(
                "shedding",
                "needs a bulkhead or a sharedBulkhead: it looks at the places taken",
            ));
        }
        let clients = self.clients();
        let clock = self.clock.or_else(|| clients.first().map(|client| client.clock().clone())).unwrap_or_default();
        let name: Arc<str> = self.settings.name.clone().unwrap_or_default().into();
        let kept = self.kept;
        let bulkhead = self.bulkhead.filter(|_| self.fleet.is_none() || is_beside_the_fleet(&self.settings));
        let adapting = kept.adapting.or_else(|| {
            let here = if self.fleet.is_some() { what_strikes_here(&self.settings) } else { self.settings.clone() };
            Adapting::of(&here, &name, &clock, self.seed).map(Arc::new)
        });
        let PolicySettings { timeout: timeouts, shed, retry, hedge, shared_bulkhead: shared, shedding, .. } =
            self.settings;
        let adaptive = shared.and_then(|shared| shared.adaptive);
        let is_counted = adaptive.is_some() || shedding.is_some();
        let share = self.shared_bulkhead.as_ref().filter(|_| is_counted).map(|shared| {
            if let Some(share) = kept.share {
                return Ok(share);
            }
            let settings =
                BulkheadSettings { max_concurrent_calls: shared.max(), adaptive, ..BulkheadSettings::default() };
            LocalBulkhead::from_settings(&format!("{name}/share"), &settings, clock.clone())
        });
        let share = share.transpose()?;
        let places_adapt = [&bulkhead, &share].into_iter().flatten().any(LocalBulkhead::adapts);
        let mut warnings = stage::warnings(&order);
        warnings.extend(self.fleet.as_ref().and_then(FleetGuard::warning));
        for warning in &warnings {
            tracing::warn!(name: "resil.policy.odd", policy = &*name, "{warning}");
        }
        let timeout = |made: Result<Timeout, Error>| made.map(|made| made.named(&name).with_clock(clock.clone()));
        let retry = retry.map(|settings| {
            let retry = Retry::new(&settings)?.named(&name).with_clock(clock.clone());
            let retry = self.budget.into_iter().fold(retry, Retry::with_budget);
            Ok::<_, Error>(self.seed.into_iter().fold(retry, Retry::with_seed))
        });
        let hedge = hedge.map(|settings| match kept.hedge {
            Some(hedge) => Ok::<_, Error>(hedge),
            None => Ok(Hedge::new(&settings)?.named(&name).with_clock(clock.clone())),
        });
        let shed = shed.map(|max| {
            if let Some(shed) = kept.shed {
                return Ok(shed);
            }
            let settings = BulkheadSettings { max_concurrent_calls: max, ..BulkheadSettings::default() };
            LocalBulkhead::from_settings(&format!("{name}/shed"), &settings, clock.clone())
        });
        Ok(Policy(Arc::new(PolicyParts {
            total: timeout(Timeout::total(timeouts.total.unwrap_or(MAX_TIMEOUT)))?,
            attempt: timeout(Timeout::attempt(timeouts.attempt.unwrap_or(MAX_TIMEOUT)))?,
            timeouts,
            retry: retry.transpose()?,
            hedge: hedge.transpose()?,
            breaker: self.breaker,
            limiter: self.limiter,
            bulkhead,
            shared_bulkhead: self.shared_bulkhead,
            shed: shed.transpose()?,
            share,
            adapting,
            fleet: self.fleet,
            places_adapt,
            plan: StagePlan::of(&order),
            seconds: CallSeconds::new(&name),
            order,
            warnings,
            clients,
            clock,
            name,
        })))
    }

    fn has(&self, stage: Stage) -> bool {
        match stage {
            _ if self.fleet.is_some() => self.settings.has(stage),
            Stage::Breaker => self.breaker.is_some(),
            Stage::RateLimit => self.limiter.is_some(),
            Stage::Bulkhead => self.bulkhead.is_some(),
            Stage::SharedBulkhead => self.shared_bulkhead.is_some(),
            made_here => self.settings.has(made_here),
        }
    }

    /// All clients that something of this belongs to, each once.
    fn clients(&self) -> Vec<Client> {
        let parts = [
            self.client.as_ref(),
            self.breaker.as_ref().map(Breaker::client),
            self.limiter.as_ref().map(Limiter::client),
            self.shared_bulkhead.as_ref().map(SharedBulkhead::client),
        ];
        let mut clients: Vec<Client> = Vec::new();
        for client in parts.into_iter().flatten() {
            if !clients.iter().any(|known| is_same(known, client)) {
                clients.push(client.clone());
            }
        }
        clients
    }
}

/// Whether the bulkhead of this process is another than that of the fleet.
fn is_beside_the_fleet(settings: &PolicySettings) -> bool {
    let has_partitions = settings.bulkhead.as_ref().is_some_and(|bulkhead| !bulkhead.partitions.is_empty());
    settings.shared_bulkhead.is_some() || has_partitions
}

/// The server refuses by itself; only delays are made where the call is made. Without a rate limit it does not know whom a call is for.
fn what_strikes_here(settings: &PolicySettings) -> PolicySettings {
    let is_here = |chaos: &Chaos| {
        chaos.kind() == ChaosKind::Latency || (chaos.subjects.is_some() && settings.rate_limit.is_none())
    };
    let chaos = settings.chaos.clone().filter(is_here);
    PolicySettings { chaos, ..PolicySettings::default() }
}
