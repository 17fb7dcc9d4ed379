//! What `INFO resil` shows: counters since the server started, and gauges of what is there now.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use redis_module::raw;
use resil_core::Span;
use resil_core::circuit_breaker::StateName;
use resil_core::dead_letters::Ledgers;

use crate::datatype;
use crate::edge::guard;
use crate::edge::report::Section;
use crate::machines::{Kind, ServerMachine, for_kind};
use crate::{blocked_clients, clock, queues};

/// Counts up. Commands run on one thread, so a plain load and store will do.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, number: u64) {
        self.0.store(self.get().wrapping_add(number), Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Goes up and down, also on the server's background threads, where values are freed.
#[derive(Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    pub fn raise(&self, number: i64) {
        self.0.fetch_add(number, Relaxed);
    }

    pub fn lower(&self, number: i64) {
        self.0.fetch_sub(number, Relaxed);
    }

    pub fn set(&self, number: i64) {
        self.0.store(number, Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// Granted, denied and peeked calls of one kind of limiter, and the cells they moved.
#[derive(Default)]
pub struct Limiter {
    pub granted: Counter,
    pub denied: Counter,
    pub peeked: Counter,
    pub refunded: Counter,
    pub cells: Counter,
}

/// What breakers answered, and how often they changed.
#[derive(Default)]
pub struct Breakers {
    pub admitted: Counter,
    pub denied: Counter,
    pub counted: Counter,
    pub stale: Counter,
    pub not_counted: Counter,
    pub trips: Counter,
    pub transitions: Counter,
    /// How many there are in each state, as stored: an open one whose time is over is open until somebody asks. As `StateName::ALL`.
    pub states: [Gauge; StateName::ALL.len()],
}

/// How often something took how long. Bounds are in milliseconds.
#[derive(Default)]
pub struct Histogram {
    buckets: [Counter; HISTOGRAM_BOUNDS_MS.len() + 1],
    count: Counter,
    total_ms: Counter,
}

const HISTOGRAM_BOUNDS_MS: [i64; 15] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 600_000];

impl Histogram {
    pub fn add(&self, span: Span) {
        let ms = span.ceil_ms();
        self.buckets[HISTOGRAM_BOUNDS_MS.partition_point(|bound| *bound < ms)].add(1);
        self.count.add(1);
        self.total_ms.add(ms as u64);
    }
}

/// What a machine that can be waited for answered, and how long things took.
#[derive(Default)]
pub struct Holdings {
    pub granted: Counter,
    pub denied: Counter,
    pub waited: Counter,
    pub timed_out: Counter,
    pub renewed: Counter,
    pub released: Counter,
    pub lost: Counter,
    pub stale: Counter,
    pub wait: Histogram,
    pub hold: Histogram,
}

/// What ledgers answered, and what they hold.
#[derive(Default)]
pub struct LedgerCounters {
    pub retried: Counter,
    pub died: Counter,
    pub known: Counter,
    pub conflicts: Counter,
    pub full: Counter,
    pub parked: Counter,
    pub taken: Counter,
    pub done: Counter,
    pub returned: Counter,
    /// Deaths of entries: by FAIL, and by leases that lapsed.
    pub deaths: Counter,
    pub alerts: Counter,
}

#[derive(Default)]
pub struct Counters {
    pub waiters: Gauge,
    pub async_waiters: Gauge,
    pub sessions: Gauge,
    pub bound: Gauge,
    pub taken_back: Counter,
    pub replayed: Counter,
    pub committed: Counter,
    pub results_dropped: Counter,
    pub once_first: Counter,
    pub once_again: Counter,
    pub hits: Counter,
    pub stale_hits: Counter,
    pub published: Counter,
    pub invalidated: Counter,
    pub cleared: Counter,
    pub gcra: Limiter,
    pub mgcra: Limiter,
    pub window: Limiter,
    pub throttle: Limiter,
    pub throttle_adopted: Counter,
    pub breaker: Breakers,
    pub applied: Counter,
    pub apply_refused: Counter,
    pub apply_unknown_version: Counter,
    pub refused: Counter,
    pub panics: Counter,
    pub gcra_keys: Gauge,
    pub gcra_bytes: Gauge,
    pub eviction_risk: AtomicBool,
    /// Any key can be evicted, not only those with an expiry.
    pub evicts_all_keys: AtomicBool,
    pub ledgers: LedgerCounters,
    pub guard_retries: Counter,
    pub guard_stops: Counter,
}

static COUNTERS: std::sync::LazyLock<Counters> = std::sync::LazyLock::new(Counters::default);

pub fn counters() -> &'static Counters {
    &COUNTERS
}

pub extern "C" fn report(ctx: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    guard((), || {
        let counters = counters();
        let section = Section::open(ctx);
        section.text("version", env!("CARGO_PKG_VERSION"));
        section.number("eviction_risk", counters.eviction_risk.load(Relaxed) as i64);
        datatype::for_each_count(|name, keys, _| section.number(&format!("{name}_keys"), keys.get()));
        section.dictionary("bytes", |section| {
            datatype::for_each_count(|name, _, bytes| section.number(name, bytes.get()));
        });
        let gauges = [
            ("blocked_waiters", &counters.waiters),
            ("async_waiters", &counters.async_waiters),
            ("sessions", &counters.sessions),
            ("bound", &counters.bound),
            ("dlq_bytes", Ledgers::bytes()),
        ];
        gauges.iter().for_each(|(name, gauge)| section.number(name, gauge.get()));
        section.dictionary("breakers", |section| {
            for (state, count) in StateName::ALL.into_iter().zip(&counters.breaker.states) {
                section.number(&state.text().replace('-', "_"), count.get());
            }
        });
        // A report of a crash may come in the middle of anything.
        let oldest = if for_crash_report == 0 { oldest_wait() } else { None };
        section.number("oldest_wait_ms", oldest.map_or(0, Span::ceil_ms));
        let counts = |counts: &[(&str, &Counter)]| {
            counts.iter().for_each(|(name, counter)| section.count(name, counter.get()));
        };
        limiter(&section, "gcra", &counters.gcra);
        limiter(&section, "mgcra", &counters.mgcra);
        limiter(&section, "window", &counters.window);
        limiter(&section, "throttle", &counters.throttle);
        counts(&[
            ("throttle_adopted", &counters.throttle_adopted),
            ("breaker_admitted", &counters.breaker.admitted),
            ("breaker_denied", &counters.breaker.denied),
            ("breaker_reports_counted", &counters.breaker.counted),
            ("breaker_reports_stale", &counters.breaker.stale),
            ("breaker_reports_not_counted", &counters.breaker.not_counted),
            ("breaker_trips", &counters.breaker.trips),
            ("breaker_transitions", &counters.breaker.transitions),
        ]);
        for kind in Kind::ALL {
            for_kind!(kind, M => holdings(&section, M::INFO_NAME, M::counters()));
        }
        counts(&[
            ("idemp_replayed", &counters.replayed),
            ("idemp_committed", &counters.committed),
            ("idemp_results_dropped", &counters.results_dropped),
            ("idemp_once_first", &counters.once_first),
            ("idemp_once_again", &counters.once_again),
        ]);
        counts(&[
            ("sflight_hits", &counters.hits),
            ("sflight_served_stale", &counters.stale_hits),
            ("sflight_published", &counters.published),
            ("sflight_invalidated", &counters.invalidated),
            ("sflight_cleared", &counters.cleared),
            ("dlq_retried", &counters.ledgers.retried),
            ("dlq_died", &counters.ledgers.died),
            ("dlq_known", &counters.ledgers.known),
            ("dlq_conflicts", &counters.ledgers.conflicts),
            ("dlq_full", &counters.ledgers.full),
            ("dlq_parked", &counters.ledgers.parked),
            ("dlq_taken", &counters.ledgers.taken),
            ("dlq_done", &counters.ledgers.done),
            ("dlq_returned", &counters.ledgers.returned),
            ("dlq_deaths", &counters.ledgers.deaths),
            ("dlq_alerts", &counters.ledgers.alerts),
            ("guard_retries", &counters.guard_retries),
            ("guard_stops", &counters.guard_stops),
            ("grants_taken_back", &counters.taken_back),
            ("applied", &counters.applied),
            ("apply_refused", &counters.apply_refused),
            ("apply_unknown_version", &counters.apply_unknown_version),
            ("requests_refused", &counters.refused),
            ("internal_errors", &counters.panics),
        ]);
    });
}

/// How long the call that came first has waited.
fn oldest_wait() -> Option<Span> {
    let (id, name) = blocked_clients::longest_waiting(8).into_iter().next()?;
    queues::waiter(&name, id, clock::now()).map(|(_, waited)| waited)
}

fn limiter(section: &Section, name: &str, limiter: &Limiter) {
    let Limiter { granted, denied, peeked, refunded, cells } = limiter;
    let fields =
        [("granted", granted), ("denied", denied), ("peeked", peeked), ("refunded", refunded), ("cells", cells)];
    fields.iter().for_each(|(field, counter)| section.count(&format!("{name}_{field}"), counter.get()));
}

fn holdings(section: &Section, name: &str, holdings: &Holdings) {
    let Holdings { granted, denied, waited, timed_out, renewed, released, lost, stale, wait, hold } = holdings;
    let fields = [
        ("granted", granted),
        ("denied", denied),
        ("waited", waited),
        ("timed_out", timed_out),
        ("renewed", renewed),
        ("released", released),
        ("lost", lost),
        ("stale", stale),
    ];
    fields.iter().for_each(|(field, counter)| section.count(&format!("{name}_{field}"), counter.get()));
    histogram(section, &format!("{name}_wait_ms"), wait);
    histogram(section, &format!("{name}_hold_ms"), hold);
}

/// `name:count=3,sum=17,le_1=0,le_2=1,...,le_inf=3`; the buckets are cumulative, as Prometheus has them.
fn histogram(section: &Section, name: &str, Histogram { buckets, count, total_ms }: &Histogram) {
    section.dictionary(name, |section| {
        section.count("count", count.get());
        section.count("sum", total_ms.get());
        let mut up_to = 0;
        for (bound, bucket) in HISTOGRAM_BOUNDS_MS.iter().zip(buckets) {
            up_to += bucket.get();
            section.count(&format!("le_{bound}"), up_to);
        }
        section.count("le_inf", up_to + buckets[HISTOGRAM_BOUNDS_MS.len()].get());
    });
}
