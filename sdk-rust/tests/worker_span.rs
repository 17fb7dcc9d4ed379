//! The span of a handler. A process of its own: who listens is the same for all of it.

use std::sync::{Arc, Mutex};

use resil::dead_letters::{DeadLettersSettings, Letter};
use resil::worker::{Headers, LedgerSource, WorkerSettings};

/// Writes down the spans of workers.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

struct SpanText(String);

impl tracing::field::Visit for SpanText {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.name() == "resil.work"
    }

    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut text = SpanText(attributes.metadata().name().to_owned());
        attributes.record(&mut text);
        self.0.lock().unwrap().push(text.0);
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_handlers_span_has_its_messages_trace() {
    let spans = Spans::default();
    tracing::subscriber::set_global_default(spans.clone()).unwrap();
    let client = resil::connect("memory://").await.unwrap();
    let ledger = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers: Headers = [("traceparent", parent), ("HeaderID", "request-7")].into_iter().collect();
    let letter = Letter::of("shop", "a").payload("x").headers(headers.to_bytes().unwrap());
    ledger.fail(&letter, "before").await.unwrap();
    let worker = client.worker("orders", WorkerSettings::new()).unwrap();
    let stop = worker.stopper();
    let source = LedgerSource::new(&client, "orders").unwrap();
    let handled = worker.run(source, move |_| {
        stop.cancel();
        async { Ok(()) }
    });
    handled.await.unwrap();
    let span = spans.0.lock().unwrap().concat();
    for part in ["resil.work", "queue=\"orders\"", "id=\"shop/a\"", "0af7651916cd43dd8448eb211c80319c", "request-7"] {
        assert!(span.contains(part), "{part} in {span}");
    }
}
