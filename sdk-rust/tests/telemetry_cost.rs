//! What telemetry costs a limiter call of a server, each kind beside a client of the same process without any.
//!
//! | switched on | what it is |
//! | --- | --- |
//! | counting | a recorder of `metrics` |
//! | watching | the same, with a subscriber of `tracing` at its usual level, INFO, and hooks for everything: what a service has |
//! | listening | the same, with a listener of every call: what spans in Python and Node are made of |
//! | tracing | the same, with a subscriber at debug level, so that every call is a span; what a subscriber does with it is its own |
//!
//! Each costs at most a twentieth of the call. Tests are built with an SDK that is not optimised, in which a listener alone costs a tenth: it is held
//! to the bound where `RESIL_OPTIMISED` says that the SDK is, which `scripts/bench` does.
//!
//! A program of its own, in which nothing else runs. Rounds take turns, and each is compared with the round without telemetry beside it: what
//! disturbs the machine disturbs both. The median of many such ratios is compared, of the processor time that the process took; that of the
//! time that passed, which depends on what else the machine does, is printed.
#![cfg(feature = "redis")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use resil::limiter::{Limit, Limiter};
use resil::telemetry::{Hooks, Interest, MetricCounts, Subscribed, subscribe};
use resil_harness::{Options, Server};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;

const ROUNDS: usize = 150;
const CALLS: u32 = 200;
/// A call with it to a call without.
const BOUND: f64 = 1.05;

/// What a round took for each call.
#[derive(Clone, Copy)]
struct Cost {
    cpu: f64,
    wall: f64,
}

/// The processor time of all threads: the connection has one of its own.
fn cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

async fn round(limiter: &Limiter) -> Cost {
    let (began, worked) = (Instant::now(), cpu());
    for _ in 0..CALLS {
        limiter.check("ann").await.unwrap();
    }
    let each = |span: Duration| span.as_secs_f64() * 1e6 / f64::from(CALLS);
    Cost { cpu: each(cpu() - worked), wall: each(began.elapsed()) }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// What was heard of: nothing is measured that does not happen.
static SPANS: AtomicU64 = AtomicU64::new(0);
static HEARD: AtomicU64 = AtomicU64::new(0);

/// A subscriber that keeps nothing: what is left is the SDK's own share.
struct Nothing(LevelFilter);

impl tracing::Subscriber for Nothing {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= self.0
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0)
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        SPANS.fetch_add(1, Ordering::Relaxed);
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum On {
    Counting,
    Watching,
    Listening,
    Tracing,
}

/// Switched on for as long as it is kept.
struct Switched {
    _subscribed: Vec<Subscribed>,
    _subscriber: Option<DefaultGuard>,
}

impl Switched {
    fn on(what: On) -> Self {
        let mut subscribed = Vec::new();
        if what != On::Counting {
            let hooks =
                Hooks::new().before_sleep(|_, _, _| {}).on_hedge(|_| {}).on_timeout(|_, _, _| {}).on_open(|_| {});
            subscribed.push(hooks.on_lost(|_, _, _| {}).on_away(|_, _| {}).on_back(|_| {}).install());
        }
        if what == On::Listening {
            subscribed.push(subscribe(Interest::Calls, |event| {
                HEARD.fetch_add(1, Ordering::Relaxed);
                std::hint::black_box(event);
            }));
        }
        let level = match what {
            On::Counting => None,
            On::Watching | On::Listening => Some(LevelFilter::INFO),
            On::Tracing => Some(LevelFilter::DEBUG),
        };
        Self {
            _subscribed: subscribed,
            _subscriber: level.map(|level| tracing::subscriber::set_default(Nothing(level))),
        }
    }
}

#[test]
fn telemetry_costs_at_most_a_twentieth_of_a_limiter_call() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::start(Options::default());
        let limit = || Limit::per_second(1_000_000_000);
        let off = resil::connect(&server.url()).await.unwrap().limiter("off", limit()).unwrap();
        // What was made before stays silent.
        metrics::set_global_recorder(MetricCounts::new()).unwrap();
        let on = resil::connect(&server.url()).await.unwrap().limiter("on", limit()).unwrap();
        for limiter in [&off, &on] {
            round(limiter).await;
        }
        for what in [On::Counting, On::Watching, On::Listening, On::Tracing] {
            let (mut cpu, mut wall, mut bare) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let without = round(&off).await;
                let switched = Switched::on(what);
                let with = round(&on).await;
                drop(switched);
                bare.push(without.cpu);
                cpu.push(with.cpu / without.cpu);
                wall.push(with.wall / without.wall);
            }
            let (bare, cpu, wall) = (median(bare), median(cpu), median(wall));
            println!("{what:?}: {bare:.1} µs of processor without, {cpu:.3} of it with, {wall:.3} of the time");
            if what != On::Listening || std::env::var_os("RESIL_OPTIMISED").is_some() {
                assert!(cpu <= BOUND, "{what:?} takes {cpu:.3} of the processor time without it");
            }
        }
        let calls = ROUNDS as u64 * u64::from(CALLS);
        let seen = (HEARD.load(Ordering::Relaxed), SPANS.load(Ordering::Relaxed));
        assert_eq!(seen, (calls, calls), "what was measured did happen");
    });
}
