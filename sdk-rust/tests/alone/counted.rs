//! A recorder of metrics that remembers what was counted, for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// What was counted, by name and labels.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<BTreeMap<String, f64>>>, Histograms);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Histograms {
    #[default]
    Ignored,
    /// By the sum of what was recorded.
    Summed,
}

struct One(Seen, String);

impl One {
    fn add(&self, value: f64) {
        *self.0.0.lock().expect("not poisoned").entry(self.1.clone()).or_default() += value;
    }
}

impl CounterFn for One {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _value: u64) {}
}

impl GaugeFn for One {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _value: f64) {}
}

impl HistogramFn for One {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Seen {
    pub fn with_histograms() -> Self {
        Self(Arc::default(), Histograms::Summed)
    }

    fn one(&self, key: &Key) -> Arc<One> {
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(One(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    pub fn is(&self, expected: &[(&str, f64)]) {
        let expected = expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        assert_eq!(*self.0.lock().expect("not poisoned"), expected);
    }
}

impl Recorder for Seen {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        if self.1 == Histograms::Ignored { Histogram::noop() } else { Histogram::from_arc(self.one(key)) }
    }
}
