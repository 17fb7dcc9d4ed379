//! What the key of a policy holds.

use alloc::boxed::Box;

use super::budget::FleetBudget;
use super::edit::PolicyEdit;
use super::learned::Learned;
use super::settings::{LimitRule, Settings};
use super::ticket::Tickets;
use super::versions::Versions;
use crate::circuit_breaker::{Breaker, Edit as BreakerEdit};
use crate::policy::retry_budget::BudgetRules;
use crate::rate_limit::TierSet;
use crate::time::Instant;
use crate::window::Window;

/// A policy and all that lives under it. The default is what a missing key means.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    pub versions: Versions,
    /// What the current version says; `None` if there is no live policy.
    pub(super) settings: Option<Box<Settings>>,
    /// As the policy has one.
    pub(super) breaker: Option<Box<Breaker>>,
    /// The policy's own limit: tiers, or a log of a window.
    pub(super) tiers: TierSet,
    pub(super) log: Option<Box<Window>>,
    pub(super) tickets: Tickets,
    pub(super) budget: FleetBudget,
    pub(super) last_fence: u64,
    /// Volatile: never stored, never replicated.
    /// Apart, because it is large: a key that is opened is moved a few times.
    pub(super) learned: Box<Learned>,
}

/// By what is stored.
impl PartialEq for Guard {
    fn eq(&self, other: &Self) -> bool {
        self.versions == other.versions
            && self.breaker == other.breaker
            && self.tiers == other.tiers
            && self.log == other.log
            && self.tickets == other.tickets
            && self.budget == other.budget
            && self.last_fence == other.last_fence
    }
}

impl Eq for Guard {}

impl Guard {
    /// What the live policy says.
    pub fn settings(&self) -> Option<&Settings> {
        self.settings.as_deref()
    }

    pub fn version(&self) -> u64 {
        self.versions.number()
    }

    pub fn breaker(&self) -> Option<&Breaker> {
        self.breaker.as_deref()
    }

    pub fn tickets(&self) -> &Tickets {
        &self.tickets
    }

    /// How many more retries would be granted; `None`: there is no budget.
    pub fn budget_left(&self, now: Instant) -> Option<u64> {
        let rule = self.budget_rule()?;
        Some(self.budget.available(rule, self.tickets.waiting(), now))
    }

    pub(super) fn budget_rule(&self) -> Option<&BudgetRules> {
        self.settings()?.retry.as_ref()?.budget.as_ref()
    }

    /// A new version holds from here on. What was counted stays, as far as the new version counts it.
    pub(super) fn publish(&mut self, PolicyEdit { version, settings }: PolicyEdit) {
        let (at, number) = (version.at, version.version);
        if !self.versions.push(version) {
            return;
        }
        let Some(settings) = settings else {
            let (versions, last_fence) = (core::mem::take(&mut self.versions), self.last_fence);
            let learned = Learned::keep_leftovers(core::mem::take(&mut self.tickets), self.learned.has_steps());
            *self = Self { versions, last_fence, learned: Box::new(learned), ..Self::default() };
            return;
        };
        match (&settings.breaker, &mut self.breaker) {
            (Some(config), breaker) => {
                let breaker = breaker.get_or_insert_default();
                if !breaker.is_configured() || breaker.config() != config {
                    let (config, at_us) = (Box::new(*config), at.as_us());
                    breaker.apply(&BreakerEdit::Configure { config, version: number, lasting: true, at_us });
                }
            }
            (None, breaker) => *breaker = None,
        }
        if !matches!(settings.limit, Some(LimitRule::Gcra(_))) {
            self.tiers.clear();
        }
        if !matches!(settings.limit, Some(LimitRule::Window(_))) {
            self.log = None;
        }
        match (self.budget_rule().copied(), settings.retry.as_ref().and_then(|retry| retry.budget)) {
            (Some(from), Some(to)) => self.budget.resize(&from, &to, at),
            _ => self.budget = FleetBudget::default(),
        }
        self.settings = Some(settings);
    }

    /// Panics in debug builds if it is one that must not be: the invariants of the top of this folder.
    pub fn check_invariants(&self) {
        self.tickets.check_invariants();
        debug_assert_eq!(self.settings.is_some(), self.versions.document().is_some());
        debug_assert_eq!(self.breaker.is_some(), self.settings().is_some_and(|settings| settings.breaker.is_some()));
        debug_assert!(self.budget.is_sound(), "{:?}", self.budget);
        debug_assert!(self.settings.is_some() || self.tickets.is_empty());
        debug_assert!(self.tickets.iter().next_back().is_none_or(|last| last.number <= self.last_fence));
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.versions.heap_bytes() + self.tickets.heap_bytes() + self.learned.heap_bytes() + self.own_bytes()
    }

    /// About the same: versions, and the owners of tickets, are of about one length.
    pub(super) fn bytes_about(&self) -> usize {
        self.versions.bytes_about() + self.tickets.bytes_about() + self.own_bytes()
    }

    fn own_bytes(&self) -> usize {
        let breaker = self.breaker.as_ref().map_or(0, |breaker| size_of::<Breaker>() + breaker.heap_bytes());
        let log = self.log.as_ref().map_or(0, |log| size_of::<Window>() + log.heap_bytes());
        let settings = self.settings.as_ref().map_or(0, |_| size_of::<Settings>());
        breaker + log + settings + size_of::<Learned>()
    }
}
