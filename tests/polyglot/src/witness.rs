//! What this process says about itself: lines of its log, spans of its calls and what it counted, kept until the test asks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use resil::telemetry::{MetricCounts, MetricValue};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A subscriber of `tracing` and a recorder of `metrics`, as a user would install them.
#[derive(Clone, Default)]
pub struct Witness {
    counts: MetricCounts,
    spans: Arc<Mutex<BTreeMap<u64, Fields>>>,
    lines: Arc<Mutex<Vec<Fields>>>,
    last: Arc<AtomicU64>,
}

/// By name. What is not known of a span yet is empty.
#[derive(Clone, Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Witness {
    /// Before the client is made.
    pub fn install(&self) -> Result<(), Box<dyn std::error::Error>> {
        metrics::set_global_recorder(self.counts.clone())?;
        tracing::subscriber::set_global_default(self.clone())?;
        Ok(())
    }

    pub fn said(&self) -> Value {
        let spans = locked(&self.spans)
            .values()
            .filter(|span| span.0.contains_key("outcome"))
            .map(|span| &span.0)
            .cloned()
            .collect::<Vec<_>>();
        let logs: Vec<_> = locked(&self.lines).iter().map(|line| line.0.clone()).collect();
        let mut counts = BTreeMap::new();
        for sample in self.counts.read() {
            let labels: Vec<String> = sample.labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
            if let MetricValue::Counter(count) = sample.value {
                counts.insert(format!("{}{{{}}}", sample.metric, labels.join(",")), count);
            }
        }
        json!({ "spans": spans, "logs": logs, "counts": counts })
    }
}

impl Subscriber for Witness {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("resil")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = Fields::default();
        fields.0.insert("span".to_owned(), attributes.metadata().name().to_owned());
        attributes.record(&mut fields);
        locked(&self.spans).insert(id, fields);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some(fields) = locked(&self.spans).get_mut(&span.into_u64()) {
            values.record(fields);
        }
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        fields.0.insert("level".to_owned(), event.metadata().level().to_string());
        event.record(&mut fields);
        locked(&self.lines).push(fields);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
