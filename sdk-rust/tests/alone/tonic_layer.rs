//! The gRPC layer and single flight between a real client and a real server, over loopback.
//!
//! The service is written by hand, as generated code would be: no protoc is needed.

mod time;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use resil::breaker::BreakerSettings;
use resil::clock::Clock;
use resil::grpc::{GrpcLayer, GrpcLayerBuilder, GrpcPolicy, GrpcService, RetryStatuses, ServiceConfig};
use resil::policy::{RetrySettings, TimeoutSettings};
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Layer, Service};

const MS: Duration = Duration::from_millis(1);
const GET: &str = "/shop.v1.Items/Get";
const PUT_ALL: &str = "/shop.v1.Items/PutAll";
const LIST: &str = "/shop.v1.Items/List";

#[derive(Clone, PartialEq, prost::Message)]
struct Item {
    #[prost(string, tag = "1")]
    name: String,
}

fn item(name: &str) -> Item {
    Item { name: name.to_owned() }
}

type Reply = Pin<Box<dyn Future<Output = Result<Response<Item>, Status>> + Send>>;
type Items = Pin<Box<dyn Stream<Item = Result<Item, Status>> + Send>>;

/// A call as the server saw it, and the how many-th it was, from 1.
struct Seen {
    number: u32,
    metadata: MetadataMap,
    items: Vec<Item>,
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        self.metadata.get(name)?.to_str().ok()
    }
}

/// What the server does.
#[derive(Clone)]
struct Shop {
    calls: Arc<AtomicU32>,
    reply: Arc<dyn Fn(Seen) -> Reply + Send + Sync>,
    list: Arc<dyn Fn() -> Items + Send + Sync>,
}

impl Shop {
    fn new<Fut>(reply: impl Fn(Seen) -> Fut + Send + Sync + 'static) -> Self
    where
        Fut: Future<Output = Result<Response<Item>, Status>> + Send + 'static,
    {
        let reply = Arc::new(move |seen| -> Reply { Box::pin(reply(seen)) });
        Self { calls: Arc::default(), reply, list: Arc::new(|| Box::pin(stream::empty())) }
    }

    /// Fails so often, then responds.
    fn failing(times: u32, status: Status) -> Self {
        Self::new(move |seen| {
            let status = status.clone();
            async move { if seen.number > times { Ok(Response::new(item("here"))) } else { Err(status) } }
        })
    }

    fn listing<St>(list: impl Fn() -> St + Send + Sync + 'static) -> Self
    where
        St: Stream<Item = Result<Item, Status>> + Send + 'static,
    {
        let shop = Self::new(async |_seen| Err(Status::unimplemented("")));
        Self { list: Arc::new(move || Box::pin(list())), ..shop }
    }

    fn calls(&self) -> u32 {
        self.calls.load(SeqCst)
    }

    async fn start(&self) -> Channel {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let port = incoming.local_addr().expect("bound").port();
        tokio::spawn(Server::builder().add_service(self.clone()).serve_with_incoming(incoming));
        let channel = Channel::from_shared(format!("http://127.0.0.1:{port}")).expect("a URL");
        channel.connect().await.expect("it listens")
    }

    fn seen(&self, metadata: MetadataMap, items: Vec<Item>) -> Reply {
        (self.reply)(Seen { number: self.calls.fetch_add(1, SeqCst) + 1, metadata, items })
    }
}

impl tonic::server::NamedService for Shop {
    const NAME: &'static str = "shop.v1.Items";
}

impl tonic::server::UnaryService<Item> for Shop {
    type Response = Item;
    type Future = Reply;

    fn call(&mut self, request: Request<Item>) -> Reply {
        let (metadata, _, item) = request.into_parts();
        self.seen(metadata, vec![item])
    }
}

impl tonic::server::ClientStreamingService<Item> for Shop {
    type Response = Item;
    type Future = Reply;

    fn call(&mut self, request: Request<Streaming<Item>>) -> Reply {
        let (shop, (metadata, _, items)) = (self.clone(), request.into_parts());
        Box::pin(async move {
            let items = items.filter_map(async |item| item.ok()).collect().await;
            shop.seen(metadata, items).await
        })
    }
}

impl tonic::server::ServerStreamingService<Item> for Shop {
    type Response = Item;
    type ResponseStream = Items;
    type Future = std::future::Ready<Result<Response<Items>, Status>>;

    fn call(&mut self, _request: Request<Item>) -> Self::Future {
        self.calls.fetch_add(1, SeqCst);
        std::future::ready(Ok(Response::new((self.list)())))
    }
}

impl Service<http::Request<Body>> for Shop {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let shop = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Item, Item>::default());
            Ok(match request.uri().path() {
                GET => grpc.unary(shop, request).await,
                PUT_ALL => grpc.client_streaming(shop, request).await,
                LIST => grpc.server_streaming(shop, request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// As a generated client.
#[derive(Clone)]
struct ShopClient(tonic::client::Grpc<GrpcService<Channel>>);

impl ShopClient {
    fn new(channel: Channel, layer: &GrpcLayer) -> Self {
        Self(tonic::client::Grpc::new(layer.layer(channel)))
    }

    async fn get(&self, name: &str) -> Result<Response<Item>, Status> {
        self.get_with(Request::new(item(name))).await
    }

    async fn get_with(&self, request: Request<Item>) -> Result<Response<Item>, Status> {
        let mut grpc = self.0.clone();
        grpc.ready().await?;
        grpc.unary(request, PathAndQuery::from_static(GET), ProstCodec::default()).await
    }

    async fn put_all(&self, items: impl Stream<Item = Item> + Send + 'static) -> Result<Response<Item>, Status> {
        let mut grpc = self.0.clone();
        grpc.ready().await?;
        let path = PathAndQuery::from_static(PUT_ALL);
        grpc.client_streaming(Request::new(items), path, ProstCodec::default()).await
    }

    async fn list(&self) -> Result<Vec<Result<Item, Status>>, Status> {
        let mut grpc = self.0.clone();
        grpc.ready().await?;
        let path = PathAndQuery::from_static(LIST);
        let reply = grpc.server_streaming(Request::new(item("")), path, ProstCodec::default()).await?;
        Ok(reply.into_inner().collect().await)
    }
}

fn retrying(max_attempts: u32, more: &str) -> ServiceConfig {
    let json = format!(
        r#"{{ "methodConfig": [{{ "name": [{{ "service": "shop.v1.Items" }}] {more}, "retryPolicy": {{
            "maxAttempts": {max_attempts}, "initialBackoff": "0.001s", "maxBackoff": "0.002s", "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"] }} }}] }}"#
    );
    ServiceConfig::parse(&json).expect("valid")
}

fn layer() -> GrpcLayerBuilder {
    GrpcLayer::builder("shop")
}

fn retry_layer(max_attempts: u32) -> GrpcLayer {
    layer().service_config(retrying(max_attempts, "")).build().expect("valid")
}

async fn bounded<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("over in time")
}

async fn eventually(is_so: impl Fn() -> bool) {
    bounded(async {
        while !is_so() {
            tokio::time::sleep(MS).await;
        }
    })
    .await;
}

fn said<'a>(status: &'a Status, key: &str) -> Option<&'a str> {
    status.metadata().get(key)?.to_str().ok()
}

#[tokio::test]
async fn unavailable_is_retried_and_the_server_learns_the_attempts() {
    let previous = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&previous);
    let shop = Shop::new(move |seen| {
        reported.lock().push(seen.header("grpc-previous-rpc-attempts").map(str::to_owned));
        assert_eq!(seen.items, [item("apple")], "the whole message comes each time");
        async move { if seen.number < 3 { Err(Status::unavailable("")) } else { Ok(Response::new(item("here"))) } }
    });
    let client = ShopClient::new(shop.start().await, &retry_layer(4));
    assert_eq!(bounded(client.get("apple")).await.expect("the third").into_inner(), item("here"));
    assert_eq!(*previous.lock(), [None, Some("1".to_owned()), Some("2".to_owned())]);
}

#[tokio::test]
async fn an_unlisted_status_is_not_retried_and_comes_unchanged() {
    let mut metadata = MetadataMap::new();
    metadata.insert("why", MetadataValue::from_static("empty name"));
    let status = Status::with_details_and_metadata(Code::InvalidArgument, "bad", vec![1, 2].into(), metadata);
    let shop = Shop::failing(9, status);
    let client = ShopClient::new(shop.start().await, &retry_layer(4));
    let got = bounded(client.get("")).await.expect_err("refused");
    assert_eq!((got.code(), got.message(), got.details()), (Code::InvalidArgument, "bad", &[1, 2][..]));
    assert_eq!((said(&got, "why"), said(&got, "resil-code")), (Some("empty name"), None));
    assert_eq!(shop.calls(), 1);
}

#[tokio::test]
async fn exhausted_attempts_end_in_the_last_status() {
    let shop = Shop::failing(9, Status::unavailable("restarting"));
    let client = ShopClient::new(shop.start().await, &retry_layer(3));
    let got = bounded(client.get("x")).await.expect_err("never up");
    assert_eq!((got.code(), got.message()), (Code::Unavailable, "restarting"));
    assert_eq!(said(&got, "resil-code"), Some("RETRY_EXHAUSTED"));
    assert_eq!(said(&got, "grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!(shop.calls(), 3);
}

#[tokio::test]
async fn a_server_that_pushes_back_is_called_when_asked() {
    let mut status = Status::unavailable("busy");
    status.metadata_mut().insert("grpc-retry-pushback-ms", MetadataValue::from_static("7000"));
    let shop = Shop::failing(1, status);
    let clock = Clock::driven();
    let layer = layer().service_config(retrying(2, "")).clock(clock.clone()).build().expect("valid");
    let client = ShopClient::new(shop.start().await, &layer);
    let call = tokio::spawn(async move { client.get("x").await });
    eventually(|| clock.next_wake().is_some()).await;
    assert_eq!(clock.next_wake().expect("it waits") - clock.now(), Duration::from_secs(7));
    assert_eq!(shop.calls(), 1);
    clock.advance(Duration::from_secs(7));
    assert!(bounded(call).await.expect("no panic").is_ok());
    assert_eq!(shop.calls(), 2);
}

#[tokio::test]
async fn a_server_that_pushes_back_finally_is_not_recalled() {
    let mut status = Status::unavailable("go away");
    status.metadata_mut().insert("grpc-retry-pushback-ms", MetadataValue::from_static("-1"));
    let shop = Shop::failing(9, status);
    let client = ShopClient::new(shop.start().await, &retry_layer(4));
    assert_eq!(bounded(client.get("x")).await.expect_err("refused").message(), "go away");
    assert_eq!(shop.calls(), 1);
}

#[tokio::test]
async fn a_single_message_is_sent_again_a_stream_once() {
    let shop = Shop::failing(1, Status::unavailable(""));
    let client = ShopClient::new(shop.start().await, &retry_layer(4));
    let two = stream::iter([item("a"), item("b")]);
    assert_eq!(bounded(client.put_all(two)).await.expect_err("once").code(), Code::Unavailable);
    assert_eq!(shop.calls(), 1);
    let shop = Shop::failing(1, Status::unavailable(""));
    let client = ShopClient::new(shop.start().await, &retry_layer(4));
    assert!(bounded(client.put_all(stream::iter([item("a")]))).await.is_ok());
    assert_eq!(shop.calls(), 2);
}

#[tokio::test]
async fn a_stream_with_late_messages_arrives_whole_without_waiting() {
    let shop = Shop::new(async |seen| Ok(Response::new(item(&seen.items.len().to_string()))));
    let client = ShopClient::new(shop.start().await, &retry_layer(4));
    let slow = stream::iter(["a", "b", "c"]).then(async |name| {
        tokio::time::sleep(5 * MS).await;
        item(name)
    });
    assert_eq!(bounded(client.put_all(slow)).await.expect("all three").into_inner(), item("3"));
}

#[tokio::test]
async fn an_open_circuit_is_unavailable_and_request_statuses_keep_it() {
    let resil = resil::connect("memory://").await.expect("memory");
    for (status, is_open) in [(Status::internal("broken"), true), (Status::not_found("no"), false)] {
        let name = format!("{:?}", status.code());
        let breaker = resil.breaker(&name, BreakerSettings::new().consecutive_failures(3)).expect("valid");
        let layer = layer().breaker(breaker).build().expect("valid");
        let shop = Shop::failing(9, status.clone());
        let client = ShopClient::new(shop.start().await, &layer);
        for _ in 0..3 {
            assert_eq!(bounded(client.get("x")).await.expect_err("fails").code(), status.code());
        }
        let got = bounded(client.get("x")).await.expect_err("fails");
        if is_open {
            assert_eq!((got.code(), said(&got, "resil-code")), (Code::Unavailable, Some("CIRCUIT_OPEN")));
        }
        assert_eq!(shop.calls(), if is_open { 3 } else { 4 }, "{name}");
    }
}

#[tokio::test]
async fn the_breaker_is_inside_retries_and_ends_them() {
    let resil = resil::connect("memory://").await.expect("memory");
    let breaker = resil.breaker("c", BreakerSettings::new().consecutive_failures(2)).expect("valid");
    let layer = layer().service_config(retrying(5, "")).breaker(breaker).build().expect("valid");
    let shop = Shop::failing(9, Status::unavailable(""));
    let client = ShopClient::new(shop.start().await, &layer);
    let got = bounded(client.get("x")).await.expect_err("fails");
    assert_eq!(said(&got, "resil-code"), Some("CIRCUIT_OPEN"));
    assert_eq!(shop.calls(), 2);
}

#[tokio::test]
async fn what_only_the_trailers_say_reaches_the_breaker_too() {
    let resil = resil::connect("memory://").await.expect("memory");
    let breaker = resil.breaker("c", BreakerSettings::new().consecutive_failures(2)).expect("valid");
    let layer = layer().breaker(breaker).build().expect("valid");
    let shop = Shop::listing(|| stream::iter([Err(Status::internal("half-way"))]));
    let client = ShopClient::new(shop.start().await, &layer);
    for _ in 0..2 {
        let items = bounded(client.list()).await.expect("the response begins");
        assert_eq!(items.last().and_then(|item| item.as_ref().err()).map(Status::code), Some(Code::Internal));
    }
    let got = bounded(client.list()).await.expect_err("open");
    assert_eq!(said(&got, "resil-code"), Some("CIRCUIT_OPEN"));
    assert_eq!(shop.calls(), 2);
}

#[tokio::test]
async fn an_absent_server_is_unavailable_and_tried_again() {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let port = incoming.local_addr().expect("bound").port();
    drop(incoming);
    let channel = Channel::from_shared(format!("http://127.0.0.1:{port}")).expect("a URL").connect_lazy();
    let got = bounded(ShopClient::new(channel, &retry_layer(3)).get("x")).await.expect_err("nobody there");
    assert_eq!((got.code(), said(&got, "resil-code")), (Code::Unavailable, Some("RETRY_EXHAUSTED")));
}

#[test]
fn a_wrong_config_is_refused_when_the_layer_is_made() {
    let error = |json: &str| GrpcLayer::from_service_config(json).expect_err("refused").to_string();
    assert!(error("{").contains("JSON"));
    assert!(error(r#"{ "methodConfig": [{ "name": [{}], "timeout": "3600s" }] }"#).contains("timeout"));
    let settings = (RetrySettings::default(), Default::default());
    let both = layer().retry(&settings.0, RetryStatuses::default()).hedge(&settings.1, RetryStatuses::default());
    assert!(both.build().expect_err("refused").to_string().contains("hedge"));
}

#[tokio::test]
async fn a_hundred_identical_calls_at_once_reach_the_server_once() {
    let shop = Shop::new(async |_seen| {
        tokio::time::sleep(100 * MS).await;
        let mut reply = Response::new(item("one for all"));
        reply.metadata_mut().insert("etag", MetadataValue::from_static("7"));
        Ok(reply)
    });
    let client = ShopClient::new(shop.start().await, &layer().build().expect("valid"));
    let policy = GrpcPolicy::new();
    let calls = (0..100).map(|number| {
        let (policy, client) = (policy.clone(), client.clone());
        let ids = if number % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
        tokio::spawn(async move { policy.unary(GET, ids, move || async move { client.get("a,b").await }).await })
    });
    for reply in bounded(futures_util::future::join_all(calls)).await {
        let reply = reply.expect("no panic").expect("a response");
        assert_eq!(reply.metadata().get("etag").expect("metadata is shared, too"), "7");
        assert_eq!(reply.into_inner(), item("one for all"));
    }
    assert_eq!(shop.calls(), 1);
    let later = client.clone();
    assert!(bounded(policy.unary(GET, ["a", "b"], move || async move { later.get("x").await })).await.is_ok());
    assert_eq!(shop.calls(), 2, "a caller that comes afterwards calls anew");
}
