//! What is limited: so many calls per period, in one tier or in several that must all agree.

use std::time::Duration;

use resil_core::Span;
use resil_core::limits::{COST_MAX, PERIOD_MAX, TIERS_NAMED_MAX, WINDOW_LIMIT_CEILING};
use resil_core::rate_limit::{Ask, Quota};
use resil_core::window::Rule;
use resil_wire::command::Command;
use resil_wire::gcra::{Gcra, Quotas};
use resil_wire::window::Windowed;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::error::Error;
use crate::health::Away;
use crate::keys;
use crate::settings::InPart;
use crate::settings::span_text::{self, check_number, check_span};

/// How a rate is limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitKind {
    /// It fills evenly, and holds a burst.
    #[default]
    Bucket,
    /// Never more than the limit in any period, at the price of memory for each call.
    Window,
}

/// How many calls per how long.
///
/// A limit made by [`new`](Self::new) or `per_…` is a bucket: it fills evenly, and holds `burst` cells. One made by
/// [`window`](Self::window) is exact: never more than `limit` in any period, at the price of remembering each call.
///
/// ```
/// use resil::limiter::Limit;
/// // Ten a second with bursts of twenty, and never more than a thousand an hour.
/// let limit = Limit::per_second(10).burst(20).and(Limit::per_hour(1_000));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    /// In a policy: which limiter it is, by default the one of the policy's name. Policies that name the same one share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "is_bucket")]
    pub kind: LimitKind,
    /// Cells per `period`.
    pub limit: u32,
    #[serde(with = "span_text")]
    pub period: Duration,
    /// How many cells the bucket holds; as many as `limit` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Further limits that must all agree, each with a period of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<LimitTier>,
    /// What happens while the server cannot be reached. [`Away::Local`] by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_away: Option<Away>,
}

/// A further tier of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitTier {
    pub limit: u32,
    #[serde(with = "span_text")]
    pub period: Duration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

fn is_bucket(kind: &LimitKind) -> bool {
    *kind == LimitKind::Bucket
}

impl Limit {
    /// `limit` cells per `period`.
    pub fn new(limit: u32, period: Duration) -> Self {
        let (name, kind, tiers) = (None, LimitKind::Bucket, Vec::new());
        Self { name, kind, limit, period, burst: None, tiers, when_away: None }
    }

    pub fn per_second(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(1))
    }

    pub fn per_minute(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(60))
    }

    pub fn per_hour(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(3_600))
    }

    pub fn per_day(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(86_400))
    }

    /// Exactly: never more than `limit` in any `period`, wherever it begins. Takes memory for each call, knows no burst,
    /// no further tiers and no refund.
    pub fn window(limit: u32, period: Duration) -> Self {
        Self { kind: LimitKind::Window, ..Self::new(limit, period) }
    }

    /// How many cells the bucket holds: of the tier named last.
    #[must_use]
    pub fn burst(mut self, cells: u32) -> Self {
        let burst = self.tiers.last_mut().map_or(&mut self.burst, |tier| &mut tier.burst);
        *burst = Some(cells);
        self
    }

    /// Both must grant, or none is taken from. Two tiers must differ in their periods.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        // Two kinds in one limit are refused when it is checked.
        self.kind = if other.kind == LimitKind::Window { LimitKind::Window } else { self.kind };
        self.tiers.push(LimitTier { limit: other.limit, period: other.period, burst: other.burst });
        self.tiers.extend(other.tiers);
        self
    }

    /// See the [field](Self#structfield.when_away).
    #[must_use]
    pub fn when_away(mut self, away: Away) -> Self {
        self.when_away = Some(away);
        self
    }
}

/// A limit that was checked: what is sent, and what is granted here while the server is away.
#[derive(Debug)]
pub(crate) struct CheckedLimit {
    pub shape: Shape,
    /// This process' part of it.
    pub part: Shape,
    pub when_away: Away,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    Bucket(Quotas),
    Window { limit: u32, period: Span },
}

impl Shape {
    pub fn command<'a>(&self, key: &'a [u8], ask: Ask) -> Command<'a> {
        match self {
            Self::Bucket(quotas) => Command::Gcra(Gcra { key, quotas: quotas.clone(), ask }),
            Self::Window { limit, period } => {
                Command::Window(Windowed { key, rule: Rule { limit: *limit, period: *period }, ask })
            }
        }
    }

    /// What each tier holds when it is full.
    pub fn capacities(&self) -> SmallVec<[u32; 3]> {
        match self {
            Self::Bucket(quotas) => quotas.iter().map(Quota::capacity).collect(),
            Self::Window { limit, .. } => smallvec::smallvec![*limit],
        }
    }

    /// The most that can ever be granted at once.
    pub fn capacity(&self) -> u32 {
        match self {
            Self::Bucket(quotas) => quotas.iter().map(Quota::capacity).min().unwrap_or(0),
            Self::Window { limit, .. } => *limit,
        }
    }

    /// How many in how long: of the tier with this number, counted from 0.
    pub fn rate(&self, tier: usize) -> (u32, Duration) {
        let (limit, period) = match self {
            Self::Bucket(quotas) => quotas.get(tier).map_or((0, Span::ZERO), |quota| (quota.limit(), quota.period())),
            Self::Window { limit, period } => (*limit, *period),
        };
        (limit, Duration::from_micros(period.as_us().unsigned_abs()))
    }

    /// The part of one of `instances` processes.
    ///
    /// A bucket fills `instances` times slower, which is exact, and holds its part of the burst, rounded down. A window
    /// grants its part of the limit, rounded down. Each is at least one cell: with more processes than cells the parts
    /// are more than the whole.
    fn divided(&self, instances: u32) -> Result<Self, Error> {
        let part = |cells: u32| (cells / instances).max(1);
        match self {
            Self::Window { limit, period } => Ok(Self::Window { limit: part(*limit), period: *period }),
            Self::Bucket(quotas) => {
                let mut parts = Quotas::new();
                for quota in quotas {
                    let (capacity, slower_us) =
                        (part(quota.capacity()), quota.period().as_us().saturating_mul(i64::from(instances)));
                    let slower = Quota::new(quota.limit(), Span::from_us(slower_us), capacity);
                    // Where the period would be too long to be one, the limit is rounded instead.
                    let coarser = || Quota::new(part(quota.limit()), quota.period(), capacity);
                    let taken = |quota: &Quota| parts.iter().any(|other| other.period() == quota.period());
                    let fits = slower.ok().filter(|quota| quota.period() <= PERIOD_MAX && !taken(quota));
                    match fits.map_or_else(coarser, Ok) {
                        Ok(quota) if taken(&quota) => {}
                        Ok(quota) => parts.push(quota),
                        Err(reason) => return Err(Error::invalid("limit", reason.to_string())),
                    }
                }
                Ok(Self::Bucket(parts))
            }
        }
    }
}

impl Limit {
    pub fn validate(&self) -> Result<(), Error> {
        self.check(1).map(drop)
    }

    /// Checks every number, naming the one that is wrong.
    pub(crate) fn check(&self, instances: u32) -> Result<CheckedLimit, Error> {
        if let Some(name) = &self.name {
            keys::check_name(name)?;
        }
        let shape = self.shape()?;
        let part = shape.divided(instances.max(1))?;
        Ok(CheckedLimit { shape, part, when_away: self.when_away.unwrap_or(Away::Local) })
    }

    fn shape(&self) -> Result<Shape, Error> {
        let (limit, period) = (self.limit, span(self.period));
        if self.kind == LimitKind::Window {
            if !self.tiers.is_empty() {
                return Err(Error::invalid("tiers", "do not go with an exact window: it has one tier"));
            }
            if self.burst.is_some() {
                return Err(Error::invalid("burst", "does not go with an exact window: nothing is saved up there"));
            }
            check_number("limit", limit, 1, WINDOW_LIMIT_CEILING)?;
            check_period(self.period)?;
            return Ok(Shape::Window { limit, period });
        }
        if self.tiers.len() >= TIERS_NAMED_MAX {
            return Err(Error::invalid("tiers", format!("can be at most {} more", TIERS_NAMED_MAX - 1)));
        }
        let mut quotas: Quotas = smallvec::smallvec![quota(limit, self.period, self.burst)?];
        for (index, tier) in self.tiers.iter().enumerate() {
            let quota = quota(tier.limit, tier.period, tier.burst).in_part(&format!("tiers[{index}]"))?;
            if quotas.iter().any(|other| other.period() == quota.period()) {
                return Err(Error::invalid("tiers", "names a period twice; tiers are distinguished by it"));
            }
            quotas.push(quota);
        }
        Ok(Shape::Bucket(quotas))
    }
}

fn quota(limit: u32, period: Duration, burst: Option<u32>) -> Result<Quota, Error> {
    check_number("limit", limit, 1, COST_MAX)?;
    check_number("burst", burst.unwrap_or(limit), 1, COST_MAX)?;
    check_period(period)?;
    Quota::new(limit, span(period), burst.unwrap_or(limit)).map_err(|reason| {
        let reason = reason.to_string();
        let (field, rest) = reason.split_once(' ').unwrap_or(("limit", &reason));
        Error::invalid(field, rest)
    })
}

fn check_period(period: Duration) -> Result<(), Error> {
    let most = Duration::from_micros(PERIOD_MAX.as_us().unsigned_abs());
    check_span("period", period, Duration::from_micros(1), most)
}

/// Microseconds; what is finer is cut off.
pub(crate) fn span(duration: Duration) -> Span {
    Span::from_us(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[path = "tests/limit.rs"]
mod tests;
