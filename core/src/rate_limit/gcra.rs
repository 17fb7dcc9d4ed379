//! The step of GCRA: read every tier, decide for all, write all or nothing.

use core::cmp::Ordering;
use core::fmt;

use smallvec::SmallVec;

use super::quota::{Quota, div_ceil};
use super::tier::{Debt, Tier};
use crate::limits::{TIERS_NAMED_MAX, TIERS_STORED_MAX};
use crate::step::Step;
use crate::time::{Instant, Span};

/// The state of a key: its tiers, sorted by period. Empty means there is no key.
///
/// Three tiers stay off the heap. More would make every move dearer for the one tier most keys have.
pub type TierSet = SmallVec<[Tier; 3]>;

/// What a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// `n` cells or nothing.
    Take(u32),
    /// As many as there are, up to `n`.
    UpTo(u32),
    /// `cells` or nothing: taken now, to be used together when their turn comes, if that is within the span.
    Reserve { cells: u32, within: Span },
    /// Give `n` cells back.
    Refund(u32),
    /// Take nothing; say what is there.
    Peek,
}

/// How long until what was asked for can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    For(Span),
    /// It can never be: the cost is above the capacity.
    Never,
}

impl Wait {
    pub const NONE: Self = Self::For(Span::ZERO);

    /// As replies have it: milliseconds rounded up, -1 for never.
    pub fn ms(self) -> i64 {
        match self {
            Self::For(span) => span.ceil_ms(),
            Self::Never => -1,
        }
    }
}

impl PartialOrd for Wait {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Wait {
    /// Never is longer than any span.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::For(a), Self::For(b)) => a.cmp(b),
            (Self::For(_), Self::Never) => Ordering::Less,
            (Self::Never, Self::For(_)) => Ordering::Greater,
            (Self::Never, Self::Never) => Ordering::Equal,
        }
    }
}

/// What one tier looks like after the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    pub capacity: u32,
    pub remaining: u32,
    pub retry_after: Wait,
    pub reset_after: Span,
}

/// The reply: how many cells were granted, and each named tier in the order it was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub granted: u32,
    pub tiers: SmallVec<[Reading; 3]>,
}

impl Verdict {
    /// The tier whose numbers speak for all: the longest wait, or else the smallest remainder; the first of equals.
    pub fn binding(&self) -> Reading {
        let mut binding = self.tiers[0];
        for reading in &self.tiers[1..] {
            let tighter = match reading.retry_after.cmp(&binding.retry_after) {
                Ordering::Greater => true,
                Ordering::Less => false,
                Ordering::Equal => reading.retry_after == Wait::NONE && reading.remaining < binding.remaining,
            };
            if tighter {
                binding = *reading;
            }
        }
        binding
    }
}

/// The key would hold more tiers in debt than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyTiers;

impl fmt::Display for TooManyTiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key already holds tiers of other periods still in debt; it can hold {TIERS_STORED_MAX} in all")
    }
}

/// A named tier beside the stored one it continues, if any.
struct Account {
    quota: Quota,
    stored: Option<Tier>,
    debt: Debt,
    /// The debt in grains of the named quota.
    owed: u128,
}

impl Account {
    fn open(quota: Quota, stored: Option<Tier>, now: Instant) -> Self {
        let debt = stored.map_or(Debt { grains: 0, cut: false }, |tier| tier.debt(now));
        let owed = match &stored {
            Some(tier) if tier.quota.period_us != quota.period_us => convert_up(debt.grains, tier, &quota),
            _ => debt.grains,
        };
        Self { quota, stored, debt, owed }
    }

    /// How long until the debt is at most `allowed` grains of the named quota, at the rate that is in force.
    fn wait_for(&self, allowed: u128) -> Span {
        if self.owed <= allowed {
            return Span::ZERO;
        }
        match &self.stored {
            Some(tier) => {
                let allowed = if tier.quota.period_us == self.quota.period_us {
                    allowed
                } else {
                    allowed * tier.quota.period_us as u128 / self.quota.period_us as u128
                };
                tier.quota.drain_time(self.debt.grains.saturating_sub(allowed))
            }
            None => self.quota.drain_time(self.owed - allowed),
        }
    }

    /// How long until `cells` can be taken on the spot.
    fn wait_to_take(&self, cells: u32) -> Wait {
        match self.quota.capacity.checked_sub(cells) {
            Some(rest) => Wait::For(self.wait_for(self.quota.grains(rest))),
            None => Wait::Never,
        }
    }

    /// How long until `cells` can be reserved whose turn comes within `ahead`. They are used together, so that more than
    /// the bucket holds never have a turn.
    fn wait_to_reserve(&self, cells: u32, ahead: Span) -> Wait {
        let Some(rest) = self.quota.capacity.checked_sub(cells) else { return Wait::Never };
        let allowed = self.quota.grains(rest) + self.reach(ahead);
        Wait::For(if self.carried() <= allowed { Span::ZERO } else { self.wait_for(allowed) })
    }

    fn reach(&self, ahead: Span) -> u128 {
        ahead.as_us() as u128 * self.quota.limit as u128
    }

    /// The debt as a reservation or a refund carries it over: what is owed beyond the named capacity (and beyond what
    /// was reserved) is let go.
    fn carried(&self) -> u128 {
        let reserved = self.stored.map_or(0, |tier| tier.overhang_ms as i64);
        self.owed.min(self.quota.full_grains() + self.reach(Span::from_ms(reserved)))
    }

    fn remaining(&self) -> u32 {
        self.quota.room(self.owed)
    }

    /// The reading while the stored tier stays as it is.
    fn untouched(&self, retry_after: Wait) -> Reading {
        Reading {
            capacity: self.quota.capacity,
            remaining: self.remaining(),
            retry_after,
            reset_after: self.wait_for(0),
        }
    }

    /// The reading once the tier owes `owed` grains under the named quota.
    fn settled(&self, owed: u128, retry_after: Wait) -> Reading {
        Reading {
            capacity: self.quota.capacity,
            remaining: self.quota.room(owed),
            retry_after,
            reset_after: self.quota.drain_time(owed),
        }
    }
}

/// Debt in grains of another quota: the same cells, rounded up by less than a grain.
fn convert_up(grains: u128, from: &Tier, to: &Quota) -> u128 {
    div_ceil(grains * to.period_us as u128, from.quota.period_us as u64)
}

type Accounts = SmallVec<[Account; 3]>;

/// Decides `ask` for all of `quotas` against the stored `tiers`. `quotas` are one to eight, of distinct periods.
pub fn step(tiers: &[Tier], quotas: &[Quota], ask: Ask, now: Instant) -> Result<Step<Verdict, TierSet>, TooManyTiers> {
    debug_assert!((1..=TIERS_NAMED_MAX).contains(&quotas.len()));
    debug_assert!(tiers.windows(2).all(|pair| pair[0].quota.period_us < pair[1].quota.period_us));
    let accounts = open_accounts(tiers, quotas, now);
    let step = match ask {
        Ask::Take(cells) => take(tiers, &accounts, cells, now),
        Ask::UpTo(cells) => take_up_to(tiers, &accounts, cells, now),
        Ask::Reserve { cells, within } => reserve(tiers, &accounts, cells, within, now),
        Ask::Refund(cells) => refund(tiers, &accounts, cells, now),
        Ask::Peek => Ok(Step::unchanged(peek(&accounts))),
    };
    if let (true, Ok(Step { change: Some(tiers), .. })) = (cfg!(debug_assertions), &step) {
        check_invariants(tiers, now);
    }
    step
}

/// Panics in debug builds if `tiers`, written at `now`, are what must not be: the invariants of the top of this folder.
fn check_invariants(tiers: &[Tier], now: Instant) {
    debug_assert!(tiers.len() <= TIERS_STORED_MAX);
    debug_assert!(tiers.windows(2).all(|pair| pair[0].quota.period_us < pair[1].quota.period_us), "{tiers:?}");
    debug_assert!(tiers.iter().all(|tier| tier.frac < tier.quota.limit && !tier.debt(now).cut), "{tiers:?}");
}

/// When a key with these tiers may be collected: after all debt is gone, on a grid so coarse that a busy key's
/// expiry is re-armed about twice per fill time and not with every call. A pure function of the state, so that a
/// replica arrives at the same instant.
pub fn gc_at(tiers: &[Tier], salt: u64) -> Instant {
    let collectable = |tier: &Tier| tier.drained_at().next_on_grid(Span::from_us(tier.fill_time().as_us() / 2), salt);
    tiers.iter().map(collectable).max().unwrap_or(Instant::EPOCH)
}

fn take(tiers: &[Tier], accounts: &Accounts, cells: u32, now: Instant) -> Result<Step<Verdict, TierSet>, TooManyTiers> {
    let admitted = accounts.iter().all(|account| account.wait_to_take(cells) == Wait::NONE);
    if !admitted {
        let readings = accounts.iter().map(|a| a.untouched(a.wait_to_take(cells))).collect();
        return refused(tiers, accounts, Verdict { granted: 0, tiers: readings }, now);
    }
    granted(tiers, accounts, cells, now, |account| {
        let owed = account.owed + account.quota.grains(cells);
        (owed, account.settled(owed, Wait::NONE))
    })
}

fn take_up_to(
    tiers: &[Tier],
    accounts: &Accounts,
    cells: u32,
    now: Instant,
) -> Result<Step<Verdict, TierSet>, TooManyTiers> {
    let available = accounts.iter().map(Account::remaining).min().unwrap_or(0);
    let taken = available.min(cells);
    if taken == 0 {
        let readings = accounts.iter().map(|a| a.untouched(a.wait_to_take(1))).collect();
        return refused(tiers, accounts, Verdict { granted: 0, tiers: readings }, now);
    }
    granted(tiers, accounts, taken, now, |account| {
        let owed = account.owed + account.quota.grains(taken);
        let retry_after = if taken == cells {
            Wait::NONE
        } else {
            let room_for_one = account.quota.grains(account.quota.capacity - 1);
            Wait::For(account.quota.drain_time(owed.saturating_sub(room_for_one)))
        };
        (owed, account.settled(owed, retry_after))
    })
}

fn reserve(
    tiers: &[Tier],
    accounts: &Accounts,
    cells: u32,
    ahead: Span,
    now: Instant,
) -> Result<Step<Verdict, TierSet>, TooManyTiers> {
    let in_reach = accounts.iter().all(|account| account.wait_to_reserve(cells, ahead) == Wait::NONE);
    if !in_reach {
        let readings = accounts.iter().map(|a| a.untouched(a.wait_to_reserve(cells, ahead))).collect();
        return refused(tiers, accounts, Verdict { granted: 0, tiers: readings }, now);
    }
    granted(tiers, accounts, cells, now, |account| {
        let owed = account.carried() + account.quota.grains(cells);
        let turn = account.quota.drain_time(owed.saturating_sub(account.quota.full_grains()));
        (owed, account.settled(owed, Wait::For(turn)))
    })
}

fn refund(
    tiers: &[Tier],
    accounts: &Accounts,
    cells: u32,
    now: Instant,
) -> Result<Step<Verdict, TierSet>, TooManyTiers> {
    // Debt is never whole cells for long: a caller that gives back what it took a moment ago gave it back, so a started
    // cell counts. That way the cells reported are never fewer than the debt that was forgiven.
    let owed_cells = |a: &Account| div_ceil(a.carried(), a.quota.period_us as u64).min(u32::MAX as u128) as u32;
    let returned = accounts.iter().map(owed_cells).max().unwrap_or(0).min(cells);
    if returned == 0 {
        let readings = accounts.iter().map(|a| a.untouched(Wait::NONE)).collect();
        return Ok(Step::unchanged(Verdict { granted: 0, tiers: readings }));
    }
    granted(tiers, accounts, returned, now, |account| {
        let owed = account.carried().saturating_sub(account.quota.grains(returned));
        (owed, account.settled(owed, Wait::NONE))
    })
}

fn peek(accounts: &Accounts) -> Verdict {
    Verdict {
        granted: accounts.iter().map(Account::remaining).min().unwrap_or(0),
        tiers: accounts.iter().map(|a| a.untouched(a.wait_to_take(1))).collect(),
    }
}

/// Settles every account at what `settle` says it owes.
fn granted(
    tiers: &[Tier],
    accounts: &Accounts,
    cells: u32,
    now: Instant,
    settle: impl Fn(&Account) -> (u128, Reading),
) -> Result<Step<Verdict, TierSet>, TooManyTiers> {
    let mut next = TierSet::with_capacity(accounts.len());
    let mut readings = SmallVec::with_capacity(accounts.len());
    for account in accounts {
        let (owed, reading) = settle(account);
        readings.push(reading);
        if owed > 0 {
            next.push(Tier::owing(account.quota, owed, now));
        }
    }
    if tiers.len() > 1 || (tiers.len() == 1 && accounts.iter().all(|a| a.stored.is_none())) {
        keep_unnamed(&mut next, tiers, accounts, now);
    }
    if next.len() > 1 {
        next.sort_unstable_by_key(|tier| tier.quota.period_us);
    }
    if next.len() > TIERS_STORED_MAX {
        return Err(TooManyTiers);
    }
    Ok(Step::changed(Verdict { granted: cells, tiers: readings }, next))
}

/// A refusal changes nothing, unless the clock was set back: then the cut is stored.
#[cold]
fn refused(
    tiers: &[Tier],
    accounts: &Accounts,
    verdict: Verdict,
    now: Instant,
) -> Result<Step<Verdict, TierSet>, TooManyTiers> {
    if accounts.iter().any(|account| account.debt.cut) {
        let owing = tiers.iter().map(|tier| (tier.quota, tier.debt(now).grains));
        let cut = owing.filter(|(_, grains)| *grains > 0);
        let cut = cut.map(|(quota, grains)| Tier::owing(quota, grains, now)).collect();
        return Ok(Step::changed(verdict, cut));
    }
    Ok(Step::unchanged(verdict))
}

/// Stored tiers that no account continues stay while they owe something.
fn keep_unnamed(next: &mut TierSet, tiers: &[Tier], accounts: &Accounts, now: Instant) {
    for tier in tiers {
        let period_us = tier.quota.period_us;
        let continued = |a: &Account| a.stored.is_some_and(|s| s.quota.period_us == period_us);
        let debt = tier.debt(now);
        if debt.grains > 0 && !accounts.iter().any(continued) {
            next.push(if debt.cut { Tier::owing(tier.quota, debt.grains, now) } else { *tier });
        }
    }
}

fn open_accounts(tiers: &[Tier], quotas: &[Quota], now: Instant) -> Accounts {
    if let ([quota], [] | [_]) = (quotas, tiers) {
        return SmallVec::from_iter([Account::open(*quota, tiers.first().copied(), now)]);
    }
    let same_period = |quota: &Quota| tiers.iter().find(|tier| tier.quota.period_us == quota.period_us);
    let is_named = |tier: &Tier| quotas.iter().any(|quota| quota.period_us == tier.quota.period_us);
    // A tier that has drained is as good as gone, though it is dropped only by the next grant.
    let mut unmatched_tiers = tiers.iter().filter(|tier| !is_named(tier) && tier.debt(now).grains > 0);
    let renamed = match (unmatched_tiers.next(), unmatched_tiers.next()) {
        (Some(only), None) if quotas.iter().filter(|q| same_period(q).is_none()).count() == 1 => Some(*only),
        _ => None,
    };
    quotas.iter().map(|quota| Account::open(*quota, same_period(quota).copied().or(renamed), now)).collect()
}
