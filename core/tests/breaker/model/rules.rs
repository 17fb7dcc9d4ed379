//! What a breaker hears, in plain numbers.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// The last so many calls.
    Count(usize),
    /// The calls of the last so many microseconds.
    Time(i64),
}

/// Everything that can be configured; times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub window: Window,
    pub rate_pct: u32,
    pub slow_us: i64,
    pub slow_rate_pct: u32,
    pub consecutive: u32,
    pub min_calls: u32,
    pub open_us: i64,
    pub factor_milli: u32,
    pub max_us: i64,
    pub probes: u32,
    pub successes: u32,
    pub lease_us: i64,
    pub quorum: u32,
    pub ramp_us: i64,
    pub idle_us: i64,
}

/// The options of one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Named {
    pub window: Option<Window>,
    pub rate_pct: Option<u32>,
    pub slow_us: Option<i64>,
    pub slow_rate_pct: Option<u32>,
    pub consecutive: Option<u32>,
    pub min_calls: Option<u32>,
    pub open_us: Option<i64>,
    pub factor_milli: Option<u32>,
    pub max_us: Option<i64>,
    pub probes: Option<u32>,
    pub successes: Option<u32>,
    pub lease_us: Option<i64>,
    pub quorum: Option<u32>,
    pub ramp_us: Option<i64>,
    pub idle_us: Option<i64>,
}

const SECOND_US: i64 = 1_000_000;

impl Rules {
    /// "Defaults: 5 consecutive failures, or 50 % of the last 100 with at least 10 calls; 3 successes; open 30 s;
    /// 3 probes."
    pub fn standard() -> Self {
        Self {
            window: Window::Count(100),
            rate_pct: 50,
            slow_us: 0,
            slow_rate_pct: 100,
            consecutive: 5,
            min_calls: 10,
            open_us: 30 * SECOND_US,
            factor_milli: 1_000,
            max_us: 30 * SECOND_US,
            probes: 3,
            successes: 3,
            lease_us: 30 * SECOND_US,
            quorum: 1,
            ramp_us: 0,
            idle_us: 3_600 * SECOND_US,
        }
    }

    /// These rules with what is named changed; `None` if they contradict each other.
    pub fn with(self, named: &Named) -> Option<Self> {
        let open_us = named.open_us.unwrap_or(self.open_us);
        let rules = Self {
            window: named.window.unwrap_or(self.window),
            rate_pct: named.rate_pct.unwrap_or(self.rate_pct),
            slow_us: named.slow_us.unwrap_or(self.slow_us),
            slow_rate_pct: named.slow_rate_pct.unwrap_or(self.slow_rate_pct),
            consecutive: named.consecutive.unwrap_or(self.consecutive),
            min_calls: named.min_calls.unwrap_or(self.min_calls),
            open_us,
            factor_milli: named.factor_milli.unwrap_or(self.factor_milli),
            max_us: named.max_us.unwrap_or(if self.max_us < open_us { open_us } else { self.max_us }),
            probes: named.probes.unwrap_or(self.probes),
            successes: named.successes.unwrap_or(self.successes),
            lease_us: named.lease_us.unwrap_or(self.lease_us),
            quorum: named.quorum.unwrap_or(self.quorum),
            ramp_us: named.ramp_us.unwrap_or(self.ramp_us),
            idle_us: named.idle_us.unwrap_or(self.idle_us),
        };
        let trips = rules.rate_pct > 0 || rules.consecutive > 0 || rules.slow_trips();
        let room =
            if rules.factor_milli > 1_000 { rules.max_us > rules.open_us } else { rules.max_us >= rules.open_us };
        (room && trips).then_some(rules)
    }

    /// Whether slow calls can trip it.
    pub fn slow_trips(&self) -> bool {
        self.slow_us > 0 && self.slow_rate_pct > 0
    }

    /// How long the `trips`-th trip in a row lasts.
    pub fn open_time_us(&self, trips: u32) -> i64 {
        let mut length_us = self.open_us as i128;
        for _ in 1..trips.min(30_000) {
            length_us = (length_us * self.factor_milli as i128 / 1_000).min(self.max_us as i128);
        }
        length_us.min(self.max_us as i128) as i64
    }
}
