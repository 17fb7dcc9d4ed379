//! The recipe of docs/telemetry.md, with exporters in memory: what every primitive does is a span with an outcome, errors have the status
//! error, and what is counted is a metric. A program of its own: subscriber and recorder are the process's.

#[rustfmt::skip] // as the page has it
mod recipe;

use std::collections::BTreeMap;
use std::time::Duration;

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::{Status, TracerProvider as _};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use resil::breaker::BreakerSettings;
use resil::cache::CacheSettings;
use resil::dead_letters::{DeadLettersSettings, Letter};
use resil::idempotency::IdempotencySettings;
use resil::limiter::Limit;
use resil::lock::LockSettings;

const RECIPE: &str = include_str!("recipe.rs");
const PAGE: &str = include_str!("../../../docs/telemetry.md");

#[test]
fn the_recipe_is_that_of_the_page() {
    assert!(PAGE.contains(RECIPE.trim()), "docs/telemetry.md does not have sdk-rust/tests/open_telemetry/recipe.rs");
}

fn attribute(span: &SpanData, name: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
    found.map(|attribute| attribute.value.to_string()).unwrap_or_default()
}

/// One call of each primitive that goes well, and one that does not where that can be.
async fn play() {
    let client = resil::connect("memory://").await.unwrap();
    let limiter = client.limiter("api", Limit::per_hour(1)).unwrap();
    limiter.check("ann").await.unwrap();
    limiter.check("ann").await.unwrap();
    let breaker = client.breaker("bank", BreakerSettings::new().consecutive_failures(1)).unwrap();
    breaker.call(async || Ok::<_, &str>(())).await.unwrap();
    breaker.call(async || Err::<(), _>("refused")).await.unwrap_err();
    breaker.call(async || Ok::<_, &str>(())).await.unwrap_err();
    let lock = client.lock("stock", LockSettings::new().wait(Duration::ZERO)).unwrap();
    let held = lock.acquire().await.unwrap();
    lock.acquire().await.unwrap_err();
    held.release().await.unwrap();
    let pay = client.idempotent("pay", IdempotencySettings::new()).unwrap();
    pay.run("1", b"a", async |_| Ok::<_, String>("x")).await.unwrap();
    pay.run("1", b"b", async |_| Ok::<_, String>("x")).await.unwrap_err();
    let user = client.cached("user", CacheSettings::new()).unwrap();
    user.get("1", |_| async { Ok::<_, String>(Some(bytes::Bytes::from_static(b"x"))) }).await.unwrap();
    user.get("2", |_| async { Err::<Option<bytes::Bytes>, _>("away".to_owned()) }).await.unwrap_err();
    let letters = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    letters.fail(&Letter::new("1").payload("x"), "boom").await.unwrap();
    letters.fail(&Letter::new("1").payload("y"), "boom").await.unwrap_err();
}

#[tokio::test]
async fn every_primitive_is_a_span_and_a_metric() {
    let (spans, metrics) = (InMemorySpanExporter::default(), InMemoryMetricExporter::default());
    let traces = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    let meters = SdkMeterProvider::builder().with_periodic_exporter(metrics.clone()).build();
    recipe::instrument(traces.tracer("resil"), &meters.meter("resil"));
    play().await;
    meters.force_flush().unwrap();

    let mut seen: BTreeMap<(String, String), (String, bool)> = BTreeMap::new();
    for span in spans.get_finished_spans().unwrap() {
        if span.name.starts_with("resil.") {
            let is_error = matches!(span.status, Status::Error { .. });
            let name = attribute(&span, "name");
            assert!(!name.is_empty() && !attribute(&span, "operation").is_empty(), "{span:?}");
            seen.insert(
                (span.name.to_string(), attribute(&span, "outcome")),
                (attribute(&span, "error.type"), is_error),
            );
        }
    }
    for (span, outcome, error, is_error) in [
        ("resil.limiter", "granted", "", false),
        ("resil.limiter", "denied", "", false),
        ("resil.breaker", "ok", "", false),
        ("resil.breaker", "error", "error", true),
        ("resil.breaker", "denied", "CIRCUIT_OPEN", true),
        ("resil.lock", "denied", "LOCK_TIMEOUT", true),
        ("resil.idempotency", "ran", "", false),
        ("resil.idempotency", "denied", "IDEMPOTENCY_MISMATCH", true),
        ("resil.cache", "found", "", false),
        ("resil.cache", "error", "error", true),
        ("resil.dead_letters", "ok", "", false),
        ("resil.dead_letters", "error", "LEDGER_CONFLICT", true),
    ] {
        let found = seen.get(&(span.to_owned(), outcome.to_owned()));
        assert_eq!(found, Some(&(error.to_owned(), is_error)), "{span} {outcome} of {seen:#?}");
    }

    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    for resource in metrics.get_finished_metrics().unwrap() {
        for metric in resource.scope_metrics().flat_map(|scope| scope.metrics()) {
            if let AggregatedMetrics::U64(MetricData::Sum(sum)) = metric.data() {
                let total = sum.data_points().map(opentelemetry_sdk::metrics::data::SumDataPoint::value).sum();
                counted.insert(metric.name().to_owned(), total);
            }
        }
    }
    for (metric, least) in [
        ("resil_granted_total", 2),
        ("resil_denied_total", 2),
        ("resil_opened_total", 1),
        ("resil_cache_load_seconds_bucket", 1),
    ] {
        assert!(counted.get(metric).is_some_and(|count| *count >= least), "{metric} of {counted:#?}");
    }
}
