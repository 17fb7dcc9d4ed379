//! A gRPC client that does not wait for stragglers and leaves a broken server alone.
//!
//! From the outside in, and why in this order. All but the first are one [`GrpcLayer`] around the channel:
//! - **fallback**: if all else fails, the last price that was seen;
//! - **hedging**: a response that is late is asked for a second time, and the first of the two counts;
//! - **breaker**: shared by all processes. Inside of hedging, so that each of the two calls is admitted and counted by
//!   itself, and outside of the timeout, so that a call that was cut off counts as a failure;
//! - **timeout** of each call.
//!
//! `cargo run -p resil-examples --bin grpc_client [url]`

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use resil::breaker::{Breaker, BreakerSettings, State};
use resil::grpc::{CODE_KEY, GrpcLayer, GrpcService, RetryStatuses};
use resil::policy::{Fallback, HedgeSettings, TimeoutSettings};
use resil::{Client, Code, Failure};
use resil_examples::{Problem, connect, url};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Layer, Service, service_fn};

// ---- the protocol, as protoc would have written it -----------------------------------------------------------------------------

#[derive(Clone, PartialEq, prost::Message)]
pub struct PriceRequest {
    #[prost(string, tag = "1")]
    pub product: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Price {
    #[prost(int64, tag = "1")]
    pub cents: i64,
}

const GET_PRICE: &str = "/shop.Prices/GetPrice";

// ---- the server: fast, slow once, or broken ------------------------------------------------------------------------------------

#[derive(Debug, Default)]
pub struct Condition {
    is_broken: Mutex<bool>,
    /// How many of the next calls hang.
    stragglers: AtomicU32,
    calls: AtomicU64,
}

impl Condition {
    async fn price(&self, _request: PriceRequest) -> Result<Price, Status> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if *self.is_broken.lock().expect("nobody panics in here") {
            return Err(Status::unavailable("restarting"));
        }
        let less = |left: u32| left.checked_sub(1);
        if self.stragglers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        Ok(Price { cents: 420 })
    }

    fn breaks(&self, is_broken: bool) {
        *self.is_broken.lock().expect("nobody panics in here") = is_broken;
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
struct Prices(Arc<Condition>);

impl NamedService for Prices {
    const NAME: &'static str = "shop.Prices";
}

impl Service<tonic::codegen::http::Request<Body>> for Prices {
    type Response = tonic::codegen::http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: tonic::codegen::http::Request<Body>) -> Self::Future {
        let condition = Arc::clone(&self.0);
        Box::pin(async move {
            let reply = service_fn(move |request: Request<PriceRequest>| {
                let condition = Arc::clone(&condition);
                async move { condition.price(request.into_inner()).await.map(Response::new) }
            });
            Ok(tonic::server::Grpc::new(ProstCodec::<Price, PriceRequest>::default()).unary(reply, request).await)
        })
    }
}

// ---- the client ----------------------------------------------------------------------------------------------------------------

/// A client as protoc would have made it, over a channel with a [`GrpcLayer`].
#[derive(Clone)]
struct PriceClient {
    channel: GrpcService<Channel>,
    breaker: Breaker,
    fallback: Fallback<Price, Status>,
    last_seen: Arc<Mutex<Option<Price>>>,
}

impl PriceClient {
    fn new(client: &Client, channel: Channel, breaker: &str) -> Result<Self, resil::Error> {
        let hedging = HedgeSettings { hedging_delay: Duration::from_millis(100), ..HedgeSettings::default() };
        let breaker =
            client.breaker(breaker, BreakerSettings::new().consecutive_failures(5).open_for(Duration::from_secs(3)))?;
        let layer = GrpcLayer::builder("prices")
            // After which statuses the other of the two calls goes on: UNAVAILABLE, say, and not NOT_FOUND.
            .hedge(&hedging, RetryStatuses::default())
            .breaker(breaker.clone())
            .timeouts(TimeoutSettings { attempt: Some(Duration::from_secs(10)), total: None })
            .build()?;
        let last_seen = Arc::new(Mutex::new(None));
        let remembered = Arc::clone(&last_seen);
        let fallback = Fallback::async_function(move |failure: Failure<Status>| {
            let known = remembered.lock().expect("nobody panics in here").clone();
            std::future::ready(known.ok_or(failure))
        });
        Ok(Self { channel: layer.layer(channel), breaker, fallback, last_seen })
    }

    /// Without the fallback, to see what happens.
    async fn fresh_price(&self, product: &str) -> Result<Price, Status> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let request = Request::new(PriceRequest { product: product.to_owned() });
        let path = PathAndQuery::from_static(GET_PRICE);
        let price = grpc.unary(request, path, ProstCodec::<PriceRequest, Price>::default()).await?.into_inner();
        *self.last_seen.lock().expect("nobody panics in here") = Some(price.clone());
        Ok(price)
    }

    async fn price(&self, product: &str) -> Result<Price, Failure<Status>> {
        self.fallback.around(|| async { self.fresh_price(product).await.map_err(Failure::Inner) }).await
    }
}

/// Which of our errors a status was made of, if it was.
fn code_of(status: &Status) -> Option<Code> {
    let text = status.metadata().get(CODE_KEY)?.to_str().ok()?;
    Code::all().find(|code| code.text() == text)
}

// ---- the story -----------------------------------------------------------------------------------------------------------------

/// What was seen, for the tests to judge.
#[derive(Debug)]
pub struct Seen {
    pub straggler_took: Duration,
    pub calls_for_straggler: u64,
    pub doomed_calls: u64,
    pub refused_here: Option<Code>,
    pub refused_there: Option<Code>,
    pub status: Option<tonic::Code>,
    pub calls_while_open: u64,
    pub remembered: Price,
    pub closed_again: bool,
}

pub async fn story(url: &str) -> Result<Seen, Problem> {
    let condition = Arc::new(Condition::default());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder().add_service(Prices(Arc::clone(&condition)));
    let server = tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    // A server remembers earlier runs of this program; the breaker of this one is another.
    let run = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_micros();
    let breaker = format!("prices-{run}");
    let here = PriceClient::new(&connect(url, "grpc_client", "shop-1").await?, channel.clone(), &breaker)?;
    let there = PriceClient::new(&connect(url, "grpc_client", "shop-2").await?, channel, &breaker)?;

    println!("Twenty prices of a healthy server:");
    for _ in 0..20 {
        here.fresh_price("tea").await?;
        there.fresh_price("tea").await?;
    }
    println!("  {} calls", condition.calls());

    println!("One call hangs for a minute:");
    let (before, begun) = (condition.calls(), Instant::now());
    condition.stragglers.store(1, Ordering::SeqCst);
    let price = here.fresh_price("tea").await?;
    let (straggler_took, calls_for_straggler) = (begun.elapsed(), condition.calls() - before);
    println!(
        "  {} cents after {} ms, from the second of {calls_for_straggler}",
        price.cents,
        straggler_took.as_millis()
    );

    println!("The server breaks; a thousand prices are asked for by each of two processes:");
    condition.breaks(true);
    let before = condition.calls();
    let mut failed_with = (None, None, None);
    for _ in 0..1_000 {
        let status = here.fresh_price("tea").await.err();
        failed_with.0 = status.as_ref().and_then(code_of);
        failed_with.1 = status.map(|status| status.code());
    }
    // The other process trusts what it last heard for a second at most; its first failure tells it.
    for _ in 0..1_000 {
        failed_with.2 = there.fresh_price("tea").await.err().as_ref().and_then(code_of);
    }
    let (refused_here, status, refused_there) = failed_with;
    let doomed_calls = condition.calls() - before;
    println!("  {doomed_calls} calls were made; then {}", refused_here.map_or("nothing", Code::text));
    let before = condition.calls();
    let remembered = there.price("tea").await?;
    let calls_while_open = condition.calls() - before;
    println!("  with the fallback it is still {} cents, and {calls_while_open} more calls", remembered.cents);

    println!("The server is back:");
    condition.breaks(false);
    let begun = Instant::now();
    let mut closed_again = false;
    while !closed_again && begun.elapsed() < Duration::from_secs(30) {
        let reply = here.fresh_price("tea").await;
        closed_again = reply.is_ok() && here.breaker.last_known_state() == Some(State::Closed);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("  after a few probes the circuit is closed: {closed_again}");
    server.abort();
    Ok(Seen {
        straggler_took,
        calls_for_straggler,
        doomed_calls,
        refused_here,
        refused_there,
        status,
        calls_while_open,
        remembered,
        closed_again,
    })
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    story(&url()).await.map(|_| ())
}
