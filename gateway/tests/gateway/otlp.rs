//! Traces and metrics as a collector gets them: the program, a receiver of OTLP over gRPC, and a caller with a trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1 as metrics;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1 as traces;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use resil_gateway::demo::HttpExample;
use resil_harness::Server;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::process::Process;
use crate::scene::{client, http_call, replied, store_policies, within};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// What came, each with the attributes of its resource.
type Received<T> = Arc<Mutex<Vec<(Vec<KeyValue>, T)>>>;

/// What came, of both kinds.
#[derive(Clone, Default)]
struct Collector {
    spans: Received<Span>,
    metrics: Received<String>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<traces::ExportTraceServiceRequest>,
    ) -> Result<Response<traces::ExportTraceServiceResponse>, Status> {
        for part in request.into_inner().resource_spans {
            let resource = part.resource.map(|resource| resource.attributes).unwrap_or_default();
            let spans = part.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.spans.lock().extend(spans.map(|span| (resource.clone(), span)));
        }
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<metrics::ExportMetricsServiceRequest>,
    ) -> Result<Response<metrics::ExportMetricsServiceResponse>, Status> {
        for part in request.into_inner().resource_metrics {
            let resource = part.resource.map(|resource| resource.attributes).unwrap_or_default();
            let names = part.scope_metrics.into_iter().flat_map(|scope| scope.metrics).map(|metric| metric.name);
            self.metrics.lock().extend(names.map(|name| (resource.clone(), name)));
        }
        Ok(Response::new(Default::default()))
    }
}

impl Collector {
    async fn start(&self, stop: CancellationToken) -> String {
        let routes = tonic::service::Routes::new(TraceServiceServer::new(self.clone()))
            .add_service(MetricsServiceServer::new(self.clone()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let ended = async move { stop.cancelled().await };
        let served = axum::serve(listener, routes.prepare().into_axum_router()).with_graceful_shutdown(ended);
        tokio::spawn(async move { served.await });
        format!("http://{address}")
    }
}

fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == name)?.value.clone()?.value?;
    match value {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{name}: {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_the_callers_trace_and_the_metrics() {
    let server = Server::fresh();
    store_policies(&server.url()).await;
    let (stop, collector) = (CancellationToken::new(), Collector::default());
    let endpoint = collector.start(stop.clone()).await;
    let example = HttpExample::start(Arc::default(), stop.clone()).await.expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let text_of = format!(
        "instance: gw-7\nupstreams: {{ example: {{ kind: http, address: \"http://{}\", policy: plain }} }}\n",
        example.address
    );
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_METRIC_EXPORT_INTERVAL", "200")];
    let mut gateway = Process::with_variables(&folder, &text_of, &server.url(), &variables);
    let mut grpc = client(&format!("http://{}", gateway.grpc));
    let mut request = Request::new(http_call("example", "GET", "/items/1"));
    request.metadata_mut().insert("traceparent", format!("00-{TRACE}-{PARENT}-01").parse().expect("a value"));
    let response = grpc.execute_with_resilience(request).await.expect("a reply").into_inner();
    assert_eq!(response.correlation_id, TRACE);
    let seen: serde_json::Value = serde_json::from_slice(&replied(&response).body).expect("JSON");
    let passed_on = seen["headers"]["traceparent"].as_str().expect("a trace").to_owned();
    within("metrics come", || async {
        let names = collector.metrics.lock();
        ["resil.gateway.calls", "resil.gateway.call_seconds", "resil_gateway_calls_in_flight"]
            .iter()
            .all(|name| names.iter().any(|(_, known)| known == name))
    })
    .await;
    // What is left is sent at the end.
    gateway.signal("-TERM");
    assert_eq!(gateway.ended(), Some(0));
    let spans = collector.spans.lock().clone();
    let found = spans.iter().find(|(_, span)| span.name == "resil.gateway.call");
    let (resource, span) = found.unwrap_or_else(|| panic!("the call: {spans:?}"));
    assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
    // The upstream's parent is a span of this call: that of the attempt, below ours.
    let mut at = passed_on.split('-').nth(2).expect("a span").to_owned();
    while at != hex(&span.span_id) {
        let below = spans.iter().find(|(_, span)| hex(&span.span_id) == at);
        at = hex(&below.unwrap_or_else(|| panic!("{at} of {passed_on} is sent: {spans:?}")).1.parent_span_id);
    }
    assert!(passed_on.starts_with(&format!("00-{TRACE}-")) && passed_on.ends_with("-01"), "{passed_on}");
    assert_eq!(text(resource, "service.name").as_deref(), Some("resil-gateway"));
    assert_eq!(text(resource, "service.instance.id").as_deref(), Some("gw-7"));
    for (name, value) in [("upstream", "example"), ("policy", "plain"), ("outcome", "ok"), ("attempts", "1")] {
        assert_eq!(text(&span.attributes, name).as_deref(), Some(value), "{name} of {:?}", span.attributes);
    }
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_holds_up_nothing() {
    let server = Server::fresh();
    store_policies(&server.url()).await;
    let stop = CancellationToken::new();
    let example = HttpExample::start(Arc::default(), stop.clone()).await.expect("a port");
    // It takes connections, and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let text =
        format!("upstreams: {{ example: {{ kind: http, address: \"http://{}\", policy: plain }} }}\n", example.address);
    let endpoint = format!("http://{}", silent.local_addr().expect("an address"));
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())];
    let mut gateway = Process::with_variables(&folder, &text, &server.url(), &variables);
    let mut grpc = client(&format!("http://{}", gateway.grpc));
    for _ in 0..100 {
        grpc.execute_with_resilience(http_call("example", "GET", "/items/1")).await.expect("a reply");
    }
    let begun = Instant::now();
    gateway.signal("-TERM");
    assert_eq!(gateway.ended(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    stop.cancel();
}
