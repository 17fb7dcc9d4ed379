//! The page of `/metrics`, and the same numbers by OTLP: what the SDK counts in this process, and what the gateway counts itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use opentelemetry::{KeyValue, global};
use parking_lot::Mutex;
use resil::telemetry::{BUCKETS_SECONDS, METRICS, MetricCounts, MetricValue};

use crate::run::Gateway;

/// Connections that were closed because there are too many.
pub static CONNECTIONS_REFUSED: AtomicU64 = AtomicU64::new(0);
/// Requests of somebody who may do nothing.
pub static UNAUTHENTICATED: AtomicU64 = AtomicU64::new(0);

/// Calls of the gateway by upstream and outcome.
#[derive(Debug, Default)]
pub struct CallMetrics(Mutex<BTreeMap<(String, &'static str), Arc<Outcomes>>>);

#[derive(Debug, Default)]
struct Outcomes {
    buckets: [AtomicU64; BUCKETS_SECONDS.len() + 1],
    sum_us: AtomicU64,
}

impl CallMetrics {
    /// Upstreams are of the configuration and outcomes of a fixed list, so the series are bounded.
    pub fn count(&self, upstream: &str, outcome: &'static str, took: Duration) {
        let outcomes = Arc::clone(self.0.lock().entry((upstream.to_owned(), outcome)).or_default());
        let seconds = took.as_secs_f64();
        let at = BUCKETS_SECONDS.partition_point(|bound| seconds > *bound);
        outcomes.buckets[at].fetch_add(1, Relaxed);
        outcomes.sum_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    fn samples(&self) -> Vec<(String, &'static str, Vec<u64>, u64, f64)> {
        let all = self.0.lock();
        all.iter()
            .map(|((upstream, outcome), outcomes)| {
                let mut count = 0;
                let mut cumulative: Vec<u64> = outcomes
                    .buckets
                    .iter()
                    .map(|bucket| {
                        count += bucket.load(Relaxed);
                        count
                    })
                    .collect();
                cumulative.pop();
                (upstream.clone(), *outcome, cumulative, count, outcomes.sum_us.load(Relaxed) as f64 / 1e6)
            })
            .collect()
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn labels(pairs: &[(String, String)], more: Option<(&str, &str)>) -> String {
    let own = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    let all: Vec<String> = own.chain(more.map(|(name, value)| format!("{name}=\"{value}\""))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

/// A page in the text format of Prometheus: every family once, with HELP and TYPE.
struct Page(BTreeMap<&'static str, (&'static str, &'static str, String)>);

impl Page {
    fn lines(&mut self, name: &'static str, kind: &'static str, help: &'static str) -> &mut String {
        &mut self.0.entry(name).or_insert((kind, help, String::new())).2
    }

    fn add(
        &mut self,
        (name, kind, help): (&'static str, &'static str, &'static str),
        pairs: &[(String, String)],
        value: &str,
    ) {
        let part = labels(pairs, None);
        let _ = writeln!(self.lines(name, kind, help), "{name}{part} {value}");
    }

    fn histogram(
        &mut self,
        (name, help): (&'static str, &'static str),
        pairs: &[(String, String)],
        cumulative: &[u64],
        count: u64,
        sum: f64,
    ) {
        let lines = self.lines(name, "histogram", help);
        for (bound, below) in BUCKETS_SECONDS.iter().zip(cumulative) {
            let part = labels(pairs, Some(("le", &bound.to_string())));
            let _ = writeln!(lines, "{name}_bucket{part} {below}");
        }
        let _ = writeln!(lines, "{name}_bucket{} {count}", labels(pairs, Some(("le", "+Inf"))));
        let _ = writeln!(lines, "{name}_sum{} {sum}", labels(pairs, None));
        let _ = writeln!(lines, "{name}_count{} {count}", labels(pairs, None));
    }
}

/// What a scrape gets.
pub fn page(gateway: &Gateway) -> String {
    let mut page = Page(BTreeMap::new());
    for sample in gateway.counts.read() {
        let Some(metric) = METRICS.iter().find(|metric| metric.name == sample.metric) else { continue };
        match &sample.value {
            MetricValue::Counter(count) => {
                page.add((metric.name, "counter", metric.help), &sample.labels, &count.to_string())
            }
            MetricValue::Gauge(level) => {
                page.add((metric.name, "gauge", metric.help), &sample.labels, &level.to_string())
            }
            MetricValue::Histogram { cumulative, count, sum_seconds } => {
                page.histogram((metric.name, metric.help), &sample.labels, cumulative, *count, *sum_seconds);
            }
        }
    }
    for (upstream, outcome, cumulative, count, sum) in gateway.call_metrics.samples() {
        let pairs = [("upstream".to_owned(), upstream), ("outcome".to_owned(), outcome.to_owned())];
        let help = "Calls to an upstream. outcome: ok, error, refused, timeout.";
        page.histogram(("resil_gateway_call_seconds", help), &pairs, &cumulative, count, sum);
    }
    for (name, help, count) in [
        ("resil_gateway_connections_refused_total", "Connections beyond the limit.", &CONNECTIONS_REFUSED),
        ("resil_gateway_unauthenticated_total", "Requests without a token that is known.", &UNAUTHENTICATED),
    ] {
        page.add((name, "counter", help), &[], &count.load(Relaxed).to_string());
    }
    let gauges = gauges(gateway);
    for (name, help, value) in gauges {
        page.add((name, "gauge", help), &[], &value.to_string());
    }
    for view in gateway.health.views() {
        let value = view.state.map_or(-1, |state| 2 - state as i64);
        let pairs = [("service".to_owned(), view.service)];
        page.add(
            ("resil_gateway_service_health", "gauge", "2 healthy, 1 degraded, 0 unhealthy, -1 not known."),
            &pairs,
            &value.to_string(),
        );
    }
    let mut text = String::new();
    for (name, (kind, help, lines)) in &page.0 {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
    }
    text
}

fn gauges(gateway: &Gateway) -> [(&'static str, &'static str, i64); 5] {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let is_healthy = gateway.client.health().reason.is_none();
    [
        ("resil_gateway_calls_in_flight", "Calls to upstreams that have not ended.", number(gateway.drain.in_flight())),
        ("resil_gateway_watchers", "Watchers of circuits and readers of events.", number(gateway.feed.watching())),
        ("resil_gateway_redis_up", "Whether the server with the shared state can be reached.", i64::from(is_healthy)),
        (
            "resil_gateway_reporter",
            "Whether this gateway reports changes of health.",
            i64::from(gateway.reporter.is_reporter()),
        ),
        (
            "resil_gateway_policies_problem",
            "Whether the file of policies is bad, and the last good one in use.",
            i64::from(gateway.policies.file_problem().is_some()),
        ),
    ]
}

/// The same numbers for OTLP. Histograms become a counter and a sum: OpenTelemetry has none that can be read.
pub fn export(gateway: &Arc<Gateway>) {
    let meter = global::meter("resil-gateway");
    let weak = Arc::downgrade(gateway);
    meter
        .u64_observable_counter("resil.gateway.calls")
        .with_description("Calls to upstreams, by outcome.")
        .with_callback(move |observer| {
            let Some(gateway) = weak.upgrade() else { return };
            for (upstream, outcome, _, count, _) in gateway.call_metrics.samples() {
                observer.observe(count, &[KeyValue::new("upstream", upstream), KeyValue::new("outcome", outcome)]);
            }
        })
        .build();
    let weak = Arc::downgrade(gateway);
    meter
        .f64_observable_counter("resil.gateway.call_seconds")
        .with_description("Seconds spent in calls to upstreams, by outcome.")
        .with_callback(move |observer| {
            let Some(gateway) = weak.upgrade() else { return };
            for (upstream, outcome, _, _, sum) in gateway.call_metrics.samples() {
                observer.observe(sum, &[KeyValue::new("upstream", upstream), KeyValue::new("outcome", outcome)]);
            }
        })
        .build();
    for at in 0..gauges(gateway).len() {
        let (name, help, _) = gauges(gateway)[at];
        let weak = Arc::downgrade(gateway);
        meter
            .i64_observable_gauge(name)
            .with_description(help)
            .with_callback(move |observer| {
                if let Some(gateway) = weak.upgrade() {
                    observer.observe(gauges(&gateway)[at].2, &[]);
                }
            })
            .build();
    }
    for metric in METRICS {
        let weak = Arc::downgrade(gateway);
        let read = move |observer: &dyn opentelemetry::metrics::AsyncInstrument<f64>| {
            let Some(gateway) = weak.upgrade() else { return };
            for sample in gateway.counts.read().into_iter().filter(|sample| sample.metric == metric.name) {
                let value = match sample.value {
                    MetricValue::Counter(count) => count as f64,
                    MetricValue::Gauge(level) => level as f64,
                    MetricValue::Histogram { sum_seconds, .. } => sum_seconds,
                };
                let pairs: Vec<KeyValue> =
                    sample.labels.into_iter().map(|(name, value)| KeyValue::new(name, value)).collect();
                observer.observe(value, &pairs);
            }
        };
        match metric.kind {
            resil::telemetry::MetricKind::Gauge => {
                meter.f64_observable_gauge(metric.name).with_description(metric.help).with_callback(read).build();
            }
            _ => {
                meter.f64_observable_counter(metric.name).with_description(metric.help).with_callback(read).build();
            }
        }
    }
}

/// The recorder of this process. Only the first gateway of a process counts what the SDK says.
pub fn recorder() -> MetricCounts {
    static COUNTS: std::sync::OnceLock<MetricCounts> = std::sync::OnceLock::new();
    let counts = COUNTS.get_or_init(|| {
        let counts = MetricCounts::new();
        let _ = metrics::set_global_recorder(counts.clone());
        counts
    });
    counts.clone()
}
