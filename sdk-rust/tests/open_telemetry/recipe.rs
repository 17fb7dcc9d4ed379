use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use opentelemetry::trace::Tracer;
use resil::telemetry::{BUCKETS_SECONDS, METRICS, MetricCounts, MetricKind, MetricSample, MetricValue};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

/// Call it once, before you make clients and policies.
pub fn instrument<T>(tracer: T, meter: &Meter)
where
    T: Tracer + Send + Sync + 'static,
    T::Span: Send + Sync,
{
    // Spans: one for each call of a primitive, at debug level.
    let spans = tracing_opentelemetry::layer().with_tracer(tracer);
    let subscriber = tracing_subscriber::registry().with(LevelFilter::DEBUG).with(spans);
    tracing::subscriber::set_global_default(subscriber).expect("called once");
    // Metrics: what is counted is read when the reader of the meter asks for it.
    let counts = MetricCounts::new();
    metrics::set_global_recorder(counts.clone()).expect("called once");
    for metric in METRICS {
        let (name, counts) = (metric.name, counts.clone());
        let samples = move || counts.read().into_iter().filter(move |sample| sample.metric == name);
        match metric.kind {
            MetricKind::Counter => {
                let counter = meter.u64_observable_counter(name).with_description(metric.help);
                counter.with_callback(move |observer| {
                    for sample in samples() {
                        if let MetricValue::Counter(count) = sample.value {
                            observer.observe(count, &labels(&sample));
                        }
                    }
                })
                .build();
            }
            MetricKind::Gauge => {
                let gauge = meter.i64_observable_gauge(name).with_description(metric.help);
                gauge.with_callback(move |observer| {
                    for sample in samples() {
                        if let MetricValue::Gauge(level) = sample.value {
                            observer.observe(level, &labels(&sample));
                        }
                    }
                })
                .build();
            }
            // OpenTelemetry has no histogram that can be read at any time: the buckets are a counter with the label `le`.
            MetricKind::Histogram => {
                let counter = meter.u64_observable_counter(format!("{name}_bucket")).with_description(metric.help);
                counter.with_callback(move |observer| {
                    for sample in samples() {
                        if let MetricValue::Histogram { cumulative, count, .. } = &sample.value {
                            let bounds = BUCKETS_SECONDS.iter().map(f64::to_string).zip(cumulative);
                            for (bound, up_to) in bounds.chain([("+Inf".to_owned(), count)]) {
                                let mut labels = labels(&sample);
                                labels.push(KeyValue::new("le", bound));
                                observer.observe(*up_to, &labels);
                            }
                        }
                    }
                })
                .build();
            }
        }
    }
}

fn labels(sample: &MetricSample) -> Vec<KeyValue> {
    sample.labels.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone())).collect()
}
