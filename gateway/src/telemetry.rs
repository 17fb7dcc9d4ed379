//! Logs, traces and metrics of the gateway itself.
//!
//! Logs are one JSON object a line, on the standard error. Traces go to an OTLP endpoint if one is configured; W3C `traceparent` is passed on
//! either way. Metrics are counted once ([`MetricCounts`]), shown at `/metrics`, and sent by OTLP.

use opentelemetry::global;
use opentelemetry::propagation::{Extractor, Injector};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::{ConfigError, LogFormat, TelemetryConfig};

const SERVICE: &str = "resil-gateway";

/// What has to be ended so that the last spans are sent.
#[derive(Default)]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
}

impl Telemetry {
    /// For the whole process; once.
    pub fn start(config: &TelemetryConfig, instance: &str) -> Result<Self, ConfigError> {
        let level = config.log_level.as_deref().unwrap_or("info");
        let filter = EnvFilter::try_new(level)
            .map_err(|error| ConfigError::new("telemetry.logLevel", format!("{level:?} is no level: {error}")))?;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = match config.log_format {
            LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
            LogFormat::Text => lines.with_ansi(false).boxed(),
        };
        global::set_text_map_propagator(TraceContextPropagator::new());
        let mut telemetry = Self::default();
        let mut layers = Vec::new();
        if let Some(endpoint) = &config.otlp_endpoint {
            let wrong = |error: &dyn std::fmt::Display| {
                ConfigError::new("telemetry.otlpEndpoint", format!("cannot be used: {error}"))
            };
            let resource = Resource::builder()
                .with_service_name(SERVICE)
                .with_attribute(opentelemetry::KeyValue::new("service.instance.id", instance.to_owned()))
                .build();
            let spans =
                opentelemetry_otlp::SpanExporter::builder().with_tonic().with_endpoint(endpoint.clone()).build();
            let spans = spans.map_err(|error| wrong(&error))?;
            let provider =
                SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource.clone()).build();
            // Our own spans: those of the libraries below say how bytes travel, and each costs as much.
            let is_ours = filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with("resil"));
            let is_ours = is_ours.with_max_level_hint(LevelFilter::DEBUG);
            let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer(SERVICE));
            layers.push(traces.with_filter(LevelFilter::DEBUG.and(is_ours)).boxed());
            telemetry.traces = Some(provider);
            let points =
                opentelemetry_otlp::MetricExporter::builder().with_tonic().with_endpoint(endpoint.clone()).build();
            let points = points.map_err(|error| wrong(&error))?;
            let provider = SdkMeterProvider::builder().with_periodic_exporter(points).with_resource(resource).build();
            global::set_meter_provider(provider.clone());
            telemetry.metrics = Some(provider);
        }
        // Lines show no spans, so nothing is formatted for them: a span costs something only where it is sent. The hint keeps what is below every
        // level from being looked at: the libraries say a hundred things about each call.
        let is_event = filter_fn(|metadata| metadata.is_event()).with_max_level_hint(LevelFilter::TRACE);
        layers.push(lines.with_filter(filter.and(is_event)).boxed());
        let registry = tracing_subscriber::registry().with(layers);
        // In tests several gateways are one process.
        let _ = registry.try_init();
        Ok(telemetry)
    }

    pub fn has_metrics(&self) -> bool {
        self.metrics.is_some()
    }

    /// Sends what is left.
    pub fn end(self) {
        if let Some(traces) = self.traces {
            let _ = traces.shutdown();
        }
        if let Some(metrics) = self.metrics {
            let _ = metrics.shutdown();
        }
    }
}

struct Headers<'a>(&'a mut http::HeaderMap);

impl Injector for Headers<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) =
            (http::HeaderName::from_bytes(key.as_bytes()), http::HeaderValue::from_str(&value))
        {
            self.0.insert(name, value);
        }
    }
}

struct Parent<'a>(&'a str);

impl Extractor for Parent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == "traceparent").then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}

/// Passes the trace on to an upstream: that of the current span, else the caller's as it came.
pub fn propagate(traceparent: Option<&str>, headers: &mut http::HeaderMap) {
    let context = tracing::Span::current().context();
    global::get_text_map_propagator(|propagator| propagator.inject_context(&context, &mut Headers(headers)));
    if !headers.contains_key("traceparent")
        && let Some(value) = traceparent.and_then(|text| http::HeaderValue::from_str(text).ok())
    {
        headers.insert("traceparent", value);
    }
}

/// Makes a span a child of the caller's.
pub fn continue_trace(span: &tracing::Span, traceparent: Option<&str>) {
    if let Some(traceparent) = traceparent {
        let context = global::get_text_map_propagator(|propagator| propagator.extract(&Parent(traceparent)));
        let _ = span.set_parent(context);
    }
}
