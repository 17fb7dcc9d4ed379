//! An HTTP API: limits by tier, and orders that a client may send again.
//!
//! - Every response says what is left (`RateLimit`, `X-RateLimit-*`). A caller that has used it up gets 429, when to come back, and
//!   a body a program can read (`application/problem+json`).
//! - `POST /orders` needs an `Idempotency-Key`. Without one it is 400; while the first request is being worked on, 409;
//!   with the same key and another body, 422; afterwards, the first response again.
//!
//! All processes of the service share the limits and the keys: they are in Redis.
//!
//! `cargo run -p resil-examples --bin http_api [url]`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use resil::http::{Header, IdempotencyKey, Problem as ErrorReply, RateLimit, Reset, fingerprint};
use resil::idempotency::IdempotencySettings;
use resil::idempotency::Idempotent;
use resil::limiter::{Limit, Limiter};
use resil::{Client, Error, Failure};
use resil_examples::{Problem, connect, url};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

const MINUTE: Duration = Duration::from_secs(60);

// ---- the service ---------------------------------------------------------------------------------------------------------------

#[derive(Clone)]
struct Api {
    client: Client,
    free: Limiter,
    pro: Limiter,
    orders: Idempotent,
    warehouse: Arc<Warehouse>,
}

/// Where orders go. It can be held up, so that the story can look at an order that is being worked on.
#[derive(Default)]
pub struct Warehouse {
    orders: AtomicU32,
    has_begun: Notify,
    may_continue: Notify,
}

impl Warehouse {
    async fn ship(&self, body: &str) -> String {
        let number = self.orders.fetch_add(1, Ordering::SeqCst) + 1;
        if body.contains("slow") {
            self.has_begun.notify_one();
            self.may_continue.notified().await;
        }
        format!(r#"{{"order":{number}}}"#)
    }
}

impl Api {
    fn new(client: Client, warehouse: Arc<Warehouse>) -> Result<Self, Error> {
        Ok(Self {
            free: client.limiter("free", Limit::per_minute(5))?,
            // A burst of ten, a hundred a minute, and not more than two thousand a day.
            pro: client.limiter("pro", Limit::per_minute(100).burst(10).and(Limit::per_day(2_000)))?,
            // Duplicates are asked to come back instead of being kept waiting.
            orders: client.idempotent("orders", IdempotencySettings::new().wait(Duration::ZERO))?,
            client,
            warehouse,
        })
    }

    fn router(self) -> Router {
        Router::new()
            .route("/orders", post(create_order))
            .route("/prices", get(async || r#"{"tea":420}"#))
            .layer(middleware::from_fn_with_state(self.clone(), limited))
            .with_state(self)
    }
}

/// Who is asking. A real service would check a signature here.
fn user(headers: &HeaderMap) -> &str {
    headers.get("x-user").and_then(|user| user.to_str().ok()).unwrap_or("nobody")
}

async fn limited(State(api): State<Api>, request: Request, next: Next) -> Response {
    let user = user(request.headers());
    let is_pro = user.starts_with("pro-");
    let (tier, limiter, limit) = if is_pro { ("pro", &api.pro, 100) } else { ("free", &api.free, 5) };
    let verdict = match limiter.check(user).await {
        Ok(verdict) => verdict,
        // Only if something is wrong with the set-up: a server that is away is decided on by the limiter itself.
        Err(error) => return refused(&ErrorReply::of(&error)),
    };
    let rate_limit = RateLimit { limit, window: Some(MINUTE), ..RateLimit::of(tier, &verdict) };
    let headers = rate_limit.headers(Reset::After);
    let mut response = if verdict.is_granted() {
        next.run(request).await
    } else {
        let error = Error::RateLimitExceeded { name: tier.into(), retry_after: verdict.retry_after };
        refused(&ErrorReply::of(&error).violated_policies(&[tier]))
    };
    add(&mut response, headers);
    response
}

async fn create_order(State(api): State<Api>, headers: HeaderMap, body: Bytes) -> Response {
    let header = headers.get("idempotency-key").map(HeaderValue::as_bytes);
    let key = match IdempotencyKey::required(header) {
        Ok(key) => format!("{}:{key}", user(&headers)),
        Err(error) => return refused(&ErrorReply::of(&error)),
    };
    // A task of its own: a customer who hangs up does not cut an order in half. In flight: a shutdown waits for it.
    let order = tokio::spawn(async move {
        let request = fingerprint("POST", "/orders", &body);
        let work = api.orders.run(&key, request.as_bytes(), async |_run| {
            let body = String::from_utf8(body.to_vec()).map_err(|_| "the body is not text")?;
            Ok::<_, &str>(api.warehouse.ship(&body).await)
        });
        api.client.in_flight(work).await
    });
    match order.await {
        Ok(Ok(Ok(outcome))) => {
            let mut response = (StatusCode::CREATED, outcome.value.unwrap_or_default()).into_response();
            if outcome.replayed {
                add(&mut response, vec![("idempotency-replayed", "true".to_owned())]);
            }
            response
        }
        Ok(Ok(Err(Failure::Inner(reason)))) => (StatusCode::BAD_REQUEST, reason).into_response(),
        Ok(Ok(Err(Failure::Resil(error)))) | Ok(Err(error)) => refused(&ErrorReply::of(&error)),
        Ok(Ok(Err(Failure::Exhausted { .. }))) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn refused(reply: &ErrorReply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, reply.body()).into_response();
    add(&mut response, reply.headers.clone());
    response
}

fn add(response: &mut Response, headers: Vec<Header>) {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
}

// ---- the customers -------------------------------------------------------------------------------------------------------------

/// A response as it came over the wire.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn show(&self) -> String {
        let shown = ["ratelimit", "retry-after", "idempotency-replayed"];
        let headers = shown.into_iter().filter_map(|name| Some(format!("{name}: {}", self.header(name)?)));
        format!("{} {} [{}]", self.status, self.body, headers.collect::<Vec<_>>().join(", "))
    }
}

async fn ask(port: u16, user: &str, order: Option<(&str, &str)>) -> Result<Reply, Problem> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::builder().header("host", "localhost").header("x-user", user);
    let request = match order {
        None => request.uri("/prices").body(Full::new(Bytes::new()))?,
        Some((key, body)) => {
            let request = request.method("POST").uri("/orders");
            let request = if key.is_empty() { request } else { request.header("idempotency-key", key) };
            request.body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?
        }
    };
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = String::from_utf8(Body::new(body).collect().await?.to_bytes().to_vec())?;
    connection.abort();
    Ok(Reply { status: head.status.as_u16(), headers: head.headers, body })
}

// ---- the story -----------------------------------------------------------------------------------------------------------------

/// What was seen, for the tests to judge.
#[derive(Debug)]
pub struct Seen {
    pub free: Vec<Reply>,
    pub pro: Vec<Reply>,
    pub without_key: Reply,
    pub first: Reply,
    pub while_running: Reply,
    pub again: Reply,
    pub other_body: Reply,
    pub shipped: u32,
}

pub async fn story(url: &str) -> Result<Seen, Problem> {
    let (warehouse, mut ports) = (Arc::new(Warehouse::default()), Vec::new());
    let mut clients = Vec::new();
    for process in ["api-1", "api-2"] {
        let client = connect(url, "http_api", process).await?;
        let api = Api::new(client.clone(), Arc::clone(&warehouse))?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        ports.push(listener.local_addr()?.port());
        tokio::spawn(async move { axum::serve(listener, api.router()).await });
        clients.push(client);
    }
    let [one, two] = ports[..] else { return Err("two processes".into()) };
    // A server remembers earlier runs of this program; the customers of this one are others.
    let run = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_micros();
    let (ann, pat) = (format!("ann-{run}"), format!("pro-pat-{run}"));

    println!("ann is on the free tier, five a minute, wherever she asks:");
    let mut free = Vec::new();
    for turn in 0..7 {
        free.push(ask(if turn % 2 == 0 { one } else { two }, &ann, None).await?);
        println!("  {}", free[turn].show());
    }
    println!("pat pays for the pro tier:");
    let mut pro = Vec::new();
    for _ in 0..7 {
        pro.push(ask(one, &pat, None).await?);
    }
    println!("  {} responses of {} are 200", pro.iter().filter(|reply| reply.status == 200).count(), pro.len());

    println!("bob orders, and the connection is bad:");
    let (bob, key) = (format!("pro-bob-{run}"), format!("\"{run}\""));
    let without_key = ask(one, &bob, Some(("", "slow tea"))).await?;
    println!("  without a key:          {}", without_key.show());
    let first = {
        let (bob, key) = (bob.clone(), key.clone());
        tokio::spawn(async move { ask(one, &bob, Some((&key, "slow tea"))).await })
    };
    tokio::time::timeout(MINUTE, warehouse.has_begun.notified()).await?;
    let while_running = ask(two, &bob, Some((&key, "slow tea"))).await?;
    println!("  again, while it is made: {}", while_running.show());
    warehouse.may_continue.notify_one();
    let first = first.await??;
    println!("  the first response:       {}", first.show());
    let again = ask(two, &bob, Some((&key, "slow tea"))).await?;
    println!("  again:                  {}", again.show());
    let other_body = ask(two, &bob, Some((&key, "slow coffee"))).await?;
    println!("  coffee under that key:  {}", other_body.show());
    let shipped = warehouse.orders.load(Ordering::SeqCst);
    println!("The warehouse shipped {shipped}.");
    for client in clients {
        client.shutdown(Duration::from_secs(5)).await;
    }
    Ok(Seen { free, pro, without_key, first, while_running, again, other_body, shipped })
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    story(&url()).await.map(|_| ())
}
