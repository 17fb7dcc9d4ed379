//! What `INFO resil` shows: counters since the server started, and gauges of what is there now.

use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use redis_module::raw;

use crate::edge::{api, guard};

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
    pub fn raise(&self, number: i64) {
        self.0.fetch_add(number, Relaxed);
    }

    pub fn lower(&self, number: i64) {
        self.0.fetch_sub(number, Relaxed);
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

#[derive(Default)]
pub struct Counters {
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
    pub window_keys: Gauge,
    pub breaker_keys: Gauge,
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
        section.gauge("gcra_keys", &counters.gcra_keys);
        section.gauge("window_keys", &counters.window_keys);
        section.gauge("breaker_keys", &counters.breaker_keys);
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
