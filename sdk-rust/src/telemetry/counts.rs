//! A recorder of metrics that keeps what is counted in this process, to be read at any time: what the other languages show.
//!
//! A count is one atomic addition, a histogram three, and nobody is called. What is read is never torn within one number; numbers of one
//! reading may be a few calls apart.
//!
//! # Bounds
//! [`SERIES_MAX`] series. Those that come later, because names are made of ids, are counted together under the name `other`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use parking_lot::Mutex;

use super::{METRICS, MetricKind};

/// The upper bounds of the buckets of histograms; the last one is without bound.
pub const BUCKETS_SECONDS: [f64; 15] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

const SERIES_MAX: usize = 10_000;
const NAME_OF_OTHERS: &str = "other";

/// One series and what it stands at.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    /// One of [`METRICS`].
    pub metric: &'static str,
    pub labels: Vec<(String, String)>,
    pub value: MetricValue,
}

#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue {
    Counter(u64),
    Gauge(i64),
    /// How many were at most as large as each of [`BUCKETS_SECONDS`], and in all; and their sum.
    Histogram {
        cumulative: Vec<u64>,
        count: u64,
        sum_seconds: f64,
    },
}

#[derive(Debug)]
enum MetricCell {
    Counter(Arc<AtomicU64>),
    Gauge(Arc<Level>),
    Histogram(Arc<Buckets>),
}

#[derive(Debug, Default)]
struct Level(AtomicI64);

impl GaugeFn for Level {
    fn increment(&self, value: f64) {
        self.0.fetch_add(value as i64, Relaxed);
    }

    fn decrement(&self, value: f64) {
        self.0.fetch_sub(value as i64, Relaxed);
    }

    fn set(&self, value: f64) {
        self.0.store(value as i64, Relaxed);
    }
}

#[derive(Debug, Default)]
struct Buckets {
    counts: [AtomicU64; BUCKETS_SECONDS.len() + 1],
    sum_nanos: AtomicU64,
}

impl HistogramFn for Buckets {
    fn record(&self, seconds: f64) {
        let at = BUCKETS_SECONDS.partition_point(|bound| seconds > *bound);
        self.counts[at].fetch_add(1, Relaxed);
        self.sum_nanos.fetch_add((seconds * 1e9) as u64, Relaxed);
    }
}

impl Buckets {
    fn read(&self) -> MetricValue {
        let mut count = 0;
        let running = self.counts.iter().map(|bucket| {
            count += bucket.load(Relaxed);
            count
        });
        let mut cumulative: Vec<u64> = running.collect();
        cumulative.pop();
        MetricValue::Histogram { cumulative, count, sum_seconds: self.sum_nanos.load(Relaxed) as f64 / 1e9 }
    }
}

/// By metric and labels.
type Series = BTreeMap<(&'static str, Vec<(String, String)>), MetricCell>;

/// The recorder. Cheap to clone; all clones are one.
///
/// ```
/// use resil::limiter::Limit;
/// use resil::telemetry::{MetricCounts, MetricValue};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let counts = MetricCounts::new();
/// metrics::set_global_recorder(counts.clone()).unwrap(); // before what is to be counted is made
/// let client = resil::connect("memory://").await?;
/// client.limiter("api", Limit::per_second(2))?.check("alice").await?;
/// let granted = counts.read().into_iter().find(|sample| sample.metric == "resil_granted_total");
/// assert_eq!(granted.unwrap().value, MetricValue::Counter(1));
/// # Ok::<(), resil::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct MetricCounts(Arc<Mutex<Series>>);

impl MetricCounts {
    pub fn new() -> Self {
        Self::default()
    }

    /// All series that ever moved, ordered by metric and labels.
    pub fn read(&self) -> Vec<MetricSample> {
        let series = self.0.lock();
        let samples = series.iter().map(|((metric, labels), cell)| {
            let value = match cell {
                MetricCell::Counter(count) => MetricValue::Counter(count.load(Relaxed)),
                MetricCell::Gauge(level) => MetricValue::Gauge(level.0.load(Relaxed)),
                MetricCell::Histogram(buckets) => buckets.read(),
            };
            MetricSample { metric, labels: labels.clone(), value }
        });
        samples.filter(|sample| !sample.value.is_nothing()).collect()
    }

    fn cell<T>(
        &self,
        key: &Key,
        kind: MetricKind,
        make: fn() -> MetricCell,
        found: fn(&MetricCell) -> Option<T>,
    ) -> Option<T> {
        // Another library may count through the same facade.
        let metric = METRICS.iter().find(|metric| metric.name == key.name() && metric.kind == kind)?;
        let mut labels: Vec<(String, String)> =
            key.labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
        let mut series = self.0.lock();
        if series.len() >= SERIES_MAX && !series.contains_key(&(metric.name, labels.clone())) {
            labels.iter_mut().filter(|(label, _)| label == "name").for_each(|(_, name)| *name = NAME_OF_OTHERS.into());
        }
        found(series.entry((metric.name, labels)).or_insert_with(make))
    }
}

impl MetricValue {
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Counter(0) | Self::Gauge(0) | Self::Histogram { count: 0, .. })
    }
}

/// As the facade adds to it.
struct Count(Arc<AtomicU64>);

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Relaxed);
    }
}

impl Recorder for MetricCounts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let found = |cell: &MetricCell| match cell {
            MetricCell::Counter(count) => Some(Arc::clone(count)),
            _ => None,
        };
        let count = self.cell(key, MetricKind::Counter, || MetricCell::Counter(Arc::default()), found);
        count.map_or_else(Counter::noop, |count| Counter::from_arc(Arc::new(Count(count))))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let found = |cell: &MetricCell| match cell {
            MetricCell::Gauge(level) => Some(Arc::clone(level)),
            _ => None,
        };
        let level = self.cell(key, MetricKind::Gauge, || MetricCell::Gauge(Arc::default()), found);
        level.map_or_else(Gauge::noop, Gauge::from_arc)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let found = |cell: &MetricCell| match cell {
            MetricCell::Histogram(buckets) => Some(Arc::clone(buckets)),
            _ => None,
        };
        let buckets = self.cell(key, MetricKind::Histogram, || MetricCell::Histogram(Arc::default()), found);
        buckets.map_or_else(Histogram::noop, Histogram::from_arc)
    }
}
