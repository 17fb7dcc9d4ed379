//! What `INFO resil` shows: counters since the server started, and gauges of what is there now.

use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use redis_module::raw;
use resil_core::Span;

use crate::datatype;
use crate::edge::{api, guard};
use crate::machines::{Kind, ServerMachine, for_kind};

/// Counts up. Commands run on one thread, so a plain load and store will do.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, number: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(number), Relaxed);
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

#[derive(Default)]
pub struct Counters {
    pub waiters: Gauge,
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
    pub eviction_risk: AtomicBool,
}

static COUNTERS: std::sync::LazyLock<Counters> = std::sync::LazyLock::new(Counters::default);

pub fn counters() -> &'static Counters {
    &COUNTERS
}

pub extern "C" fn report(ctx: *mut raw::RedisModuleInfoCtx, _for_crash_report: c_int) {
    guard((), || {
        let counters = counters();
        let section = Section(ctx);
        section.open();
        section.flag("eviction_risk", counters.eviction_risk.load(Relaxed));
        datatype::for_each_count(|name, keys| section.gauge(&format!("{name}_keys"), keys));
        section.gauge("blocked_waiters", &counters.waiters);
        section.gauge("sessions", &counters.sessions);
        section.gauge("bound", &counters.bound);
        section.limiter("gcra", &counters.gcra);
        section.limiter("mgcra", &counters.mgcra);
        section.limiter("window", &counters.window);
        section.limiter("throttle", &counters.throttle);
        section.counter("throttle_adopted", &counters.throttle_adopted);
        section.counter("breaker_admitted", &counters.breaker.admitted);
        section.counter("breaker_denied", &counters.breaker.denied);
        section.counter("breaker_reports_counted", &counters.breaker.counted);
        section.counter("breaker_reports_stale", &counters.breaker.stale);
        section.counter("breaker_reports_not_counted", &counters.breaker.not_counted);
        section.counter("breaker_trips", &counters.breaker.trips);
        section.counter("breaker_transitions", &counters.breaker.transitions);
        for kind in Kind::ALL {
            for_kind!(kind, M => section.holdings(M::INFO_NAME, M::counters()));
        }
        section.counter("idemp_replayed", &counters.replayed);
        section.counter("idemp_committed", &counters.committed);
        section.counter("idemp_results_dropped", &counters.results_dropped);
        section.counter("idemp_once_first", &counters.once_first);
        section.counter("idemp_once_again", &counters.once_again);
        section.counter("sflight_hits", &counters.hits);
        section.counter("sflight_served_stale", &counters.stale_hits);
        section.counter("sflight_published", &counters.published);
        section.counter("sflight_invalidated", &counters.invalidated);
        section.counter("grants_taken_back", &counters.taken_back);
        section.counter("applied", &counters.applied);
        section.counter("apply_refused", &counters.apply_refused);
        section.counter("apply_unknown_version", &counters.apply_unknown_version);
        section.counter("requests_refused", &counters.refused);
        section.counter("internal_errors", &counters.panics);
    });
}

struct Section(*mut raw::RedisModuleInfoCtx);

impl Section {
    fn open(&self) {
        // SAFETY: the server's context for this report; an empty name is the module's own section.
        unsafe { api!(RedisModule_InfoAddSection)(self.0, c"".as_ptr()) };
    }

    fn limiter(&self, name: &str, limiter: &Limiter) {
        self.counter(&format!("{name}_granted"), &limiter.granted);
        self.counter(&format!("{name}_denied"), &limiter.denied);
        self.counter(&format!("{name}_peeked"), &limiter.peeked);
        self.counter(&format!("{name}_refunded"), &limiter.refunded);
        self.counter(&format!("{name}_cells"), &limiter.cells);
    }

    fn holdings(&self, name: &str, holdings: &Holdings) {
        self.counter(&format!("{name}_granted"), &holdings.granted);
        self.counter(&format!("{name}_denied"), &holdings.denied);
        self.counter(&format!("{name}_waited"), &holdings.waited);
        self.counter(&format!("{name}_timed_out"), &holdings.timed_out);
        self.counter(&format!("{name}_renewed"), &holdings.renewed);
        self.counter(&format!("{name}_released"), &holdings.released);
        self.counter(&format!("{name}_lost"), &holdings.lost);
        self.counter(&format!("{name}_stale"), &holdings.stale);
        self.histogram(&format!("{name}_wait_ms"), &holdings.wait);
        self.histogram(&format!("{name}_hold_ms"), &holdings.hold);
    }

    /// `name:count=3,sum=17,le_1=0,...,inf=0`; the buckets are not cumulative.
    fn histogram(&self, name: &str, histogram: &Histogram) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: as above; the field is ended before another begins.
        unsafe { api!(RedisModule_InfoBeginDictField)(self.0, name.as_ptr()) };
        self.counter("count", &histogram.count);
        self.counter("sum", &histogram.total_ms);
        for (bound, bucket) in HISTOGRAM_BOUNDS_MS.iter().zip(&histogram.buckets) {
            self.counter(&format!("le_{bound}"), bucket);
        }
        if let Some(rest) = histogram.buckets.last() {
            self.counter("inf", rest);
        }
        // SAFETY: as above.
        unsafe { api!(RedisModule_InfoEndDictField)(self.0) };
    }

    fn counter(&self, name: &str, counter: &Counter) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: as above; the server copies the name.
        unsafe { api!(RedisModule_InfoAddFieldULongLong)(self.0, name.as_ptr(), counter.0.load(Relaxed)) };
    }

    fn gauge(&self, name: &str, gauge: &Gauge) {
        self.number(name, gauge.0.load(Relaxed));
    }

    fn flag(&self, name: &str, flag: bool) {
        self.number(name, flag as i64);
    }

    fn number(&self, name: &str, number: i64) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: as above.
        unsafe { api!(RedisModule_InfoAddFieldLongLong)(self.0, name.as_ptr(), number) };
    }
}
