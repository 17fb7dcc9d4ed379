//! What is limited: so many calls per period, in one tier or in several that must all agree.

use std::time::Duration;

use resil_core::Span;
use resil_core::limits::{PERIOD_MAX, TIERS_NAMED_MAX, WINDOW_LIMIT_CEILING};
use resil_core::rate_limit::{Ask, Quota};
use resil_core::window::Rule;
use resil_wire::command::Command;
use resil_wire::gcra::{Gcra, Quotas};
use resil_wire::window::Windowed;
use smallvec::SmallVec;

use crate::error::Error;
use crate::health::Away;

/// How many calls per how long.
///
/// A limit made by [`new`](Self::new) or `per_…` is a bucket: it fills evenly, and holds `burst` cells (as many as the
/// limit unless said). One made by [`window`](Self::window) is exact: never more than `limit` in any period, at the price
/// of remembering each call.
///
/// ```
/// use resil::limiter::Limit;
/// // Ten a second with bursts of twenty, and never more than a thousand an hour.
/// let limit = Limit::per_second(10).burst(20).and(Limit::per_hour(1_000));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    tiers: Vec<Tier>,
    when_away: Away,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Tier {
    limit: u32,
    period: Duration,
    burst: Option<u32>,
    is_window: bool,
}

impl Limit {
    /// `limit` cells per `period`.
    pub fn new(limit: u32, period: Duration) -> Self {
        Self::of(Tier { limit, period, burst: None, is_window: false })
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
        Self::of(Tier { limit, period, burst: None, is_window: true })
    }

    fn of(tier: Tier) -> Self {
        Self { tiers: vec![tier], when_away: Away::Local }
    }

    /// How many cells the bucket holds: of the tier named last.
    pub fn burst(mut self, cells: u32) -> Self {
        if let Some(tier) = self.tiers.last_mut() {
            tier.burst = Some(cells);
        }
        self
    }

    /// Both must grant, or none is taken from. Tiers are told apart by their periods.
    pub fn and(mut self, other: Self) -> Self {
        self.tiers.extend(other.tiers);
        self
    }

    /// What happens while the server cannot be reached. [`Away::Local`] unless said.
    pub fn when_away(mut self, away: Away) -> Self {
        self.when_away = away;
        self
    }
}

/// A limit that was checked: what is sent, and what is granted here while the server is away.
#[derive(Debug)]
pub(crate) struct Checked {
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
    /// Checks every number, naming the one that is wrong.
    pub(crate) fn check(&self, instances: u32) -> Result<Checked, Error> {
        let shape = self.shape()?;
        let part = shape.divided(instances.max(1))?;
        Ok(Checked { shape, part, when_away: self.when_away })
    }

    fn shape(&self) -> Result<Shape, Error> {
        if let [Tier { limit, period, burst, is_window: true }] = self.tiers[..] {
            if burst.is_some() {
                return Err(Error::invalid("burst", "does not go with an exact window: nothing is saved up there"));
            }
            if !(1..=WINDOW_LIMIT_CEILING).contains(&limit) {
                return Err(Error::invalid("limit", format!("must be from 1 to {WINDOW_LIMIT_CEILING}, got {limit}")));
            }
            let period = span(period);
            // Whatever else a period has to be, it has to be for a bucket too.
            Quota::new(1, period, 1).map_err(|reason| Error::invalid("period", reason.to_string()))?;
            return Ok(Shape::Window { limit, period });
        }
        if self.tiers.iter().any(|tier| tier.is_window) {
            return Err(Error::invalid("and", "does not go with an exact window: it has one tier"));
        }
        if self.tiers.len() > TIERS_NAMED_MAX {
            return Err(Error::invalid("and", format!("can name at most {TIERS_NAMED_MAX} tiers")));
        }
        let mut quotas = Quotas::new();
        for tier in &self.tiers {
            let quota =
                Quota::new(tier.limit, span(tier.period), tier.burst.unwrap_or(tier.limit)).map_err(|reason| {
                    let reason = reason.to_string();
                    let (field, rest) = reason.split_once(' ').unwrap_or(("limit", &reason));
                    Error::invalid(field, rest)
                })?;
            if quotas.iter().any(|other| other.period() == quota.period()) {
                return Err(Error::invalid("and", "names a period twice; tiers are told apart by it"));
            }
            quotas.push(quota);
        }
        Ok(Shape::Bucket(quotas))
    }
}

/// Microseconds; what is finer is cut off.
pub(crate) fn span(duration: Duration) -> Span {
    Span::from_us(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(limit: &Limit) -> String {
        match limit.check(1) {
            Err(Error::InvalidPolicy { field, .. }) => field,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_the_name_of_its_field() {
        assert_eq!(refused(&Limit::per_second(0)), "limit");
        assert_eq!(refused(&Limit::per_second(1).burst(0)), "burst");
        assert_eq!(refused(&Limit::new(1, Duration::ZERO)), "period");
        assert_eq!(refused(&Limit::window(1, Duration::ZERO)), "period");
        assert_eq!(refused(&Limit::window(0, Duration::from_secs(1))), "limit");
        assert_eq!(refused(&Limit::window(1, Duration::from_secs(1)).burst(2)), "burst");
        assert_eq!(refused(&Limit::per_second(1).and(Limit::per_second(2))), "and");
        assert_eq!(refused(&Limit::per_second(1).and(Limit::window(2, Duration::from_secs(9)))), "and");
    }

    #[test]
    fn the_part_of_a_process_has_exactly_its_part_of_the_rate_and_at_least_one_cell() {
        let limit = Limit::per_second(10).burst(25).and(Limit::per_day(3)).check(4).unwrap();
        let Shape::Bucket(parts) = &limit.part else { panic!("{limit:?}") };
        let seen: Vec<_> = parts.iter().map(|quota| (quota.limit(), quota.period(), quota.capacity())).collect();
        assert_eq!(seen, [(10, Span::from_secs(4), 6), (3, Span::from_days(4), 1)]);
        let window = Limit::window(10, Duration::from_secs(1)).check(4).unwrap();
        assert_eq!(window.part, Shape::Window { limit: 2, period: Span::from_secs(1) });
        let alone = Limit::per_second(10).check(1).unwrap();
        assert_eq!(alone.part, alone.shape);
    }

    #[test]
    fn any_number_of_processes_can_share_any_limit() {
        for instances in [1, 2, 7, 1_000, u32::MAX] {
            for limit in [
                Limit::per_second(1),
                Limit::per_day(1).and(Limit::new(5, Duration::from_secs(366 * 86_400))),
                Limit::new(1_000_000_000, Duration::from_micros(1)),
                Limit::window(1, Duration::from_secs(366 * 86_400)),
            ] {
                let checked = limit.check(instances).unwrap();
                assert!(checked.part.capacity() >= 1);
            }
        }
    }
}
