//! Middleware for tower and axum, asked over real HTTP: limits by tier, and `Idempotency-Key`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{any, post};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Full};
use resil::Client;
use resil::http::{HttpRateLimitLayer, HttpTier, IdempotencyLayer, Shown, header_text};
use resil::idempotency::{IdempotencySettings, Run};
use resil::limiter::{Limit, Limiter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use tower::{ServiceBuilder, ServiceExt, service_fn};

const BOUND: Duration = Duration::from_secs(20);

async fn memory() -> Client {
    resil::connect("memory://").await.expect("a client")
}

/// Serves it on a port of its own.
async fn serve(router: Router) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    tokio::spawn(async move { axum::serve(listener, router).await });
    port
}

#[derive(Debug, Clone, PartialEq)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    fn is_replayed(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }
}

fn words(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
}

async fn ask(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let asked = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
        stream.write_all(words(method, path, headers, body).as_bytes()).await.expect("sent");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.expect("a response");
        String::from_utf8(said).expect("text")
    };
    let said = timeout(BOUND, asked).await.expect("in time");
    let (head, body) = said.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Reply { status, headers, body: body.to_owned() }
}

fn tiers(free: Limiter, pro: Limiter) -> HttpRateLimitLayer {
    HttpRateLimitLayer::new(move |request| {
        let user = header_text(request, "x-user")?;
        let limiter = if user.starts_with("pro-") { &pro } else { &free };
        let cost = match request.uri.path() {
            "/dear" => 3,
            "/free" => 0,
            "/too-dear" => 5,
            _ => 1,
        };
        Some(HttpTier::new(limiter, user).cost(cost))
    })
}

async fn limited(change: impl Fn(HttpRateLimitLayer) -> HttpRateLimitLayer) -> u16 {
    let client = memory().await;
    let free = client.limiter("free", Limit::per_minute(4)).expect("a limit");
    let pro = client.limiter("pro", Limit::per_minute(100)).expect("a limit");
    let status = async |uri: axum::http::Uri, headers: HeaderMap| {
        assert_ne!(uri.path(), "/panics", "on purpose");
        if uri.path() == "/hangs" {
            std::future::pending::<()>().await;
        }
        let status = headers.get("x-status").and_then(|status| status.to_str().ok()?.parse().ok());
        StatusCode::from_u16(status.unwrap_or(200)).expect("a status")
    };
    serve(Router::new().fallback(any(status)).layer(change(tiers(free, pro)))).await
}

#[tokio::test]
async fn an_exhausted_tier_is_429_and_replies_say_whats_left() {
    let port = limited(|layer| layer).await;
    let first = ask(port, "GET", "/", &[("x-user", "ann")], "").await;
    assert_eq!(first.status, 200);
    assert_eq!(first.header("ratelimit-policy"), Some(r#""free";q=4;w=60"#));
    assert_eq!((first.header("x-ratelimit-limit"), first.header("x-ratelimit-remaining")), (Some("4"), Some("3")));
    let dear = ask(port, "GET", "/dear", &[("x-user", "ann")], "").await;
    assert_eq!((dear.status, dear.header("x-ratelimit-remaining")), (200, Some("0")));
    let refused = ask(port, "GET", "/", &[("x-user", "ann")], "").await;
    assert_eq!((refused.status, refused.header("content-type")), (429, Some("application/problem+json")));
    assert_eq!(refused.header("retry-after"), Some("15"));
    assert_eq!(refused.headers.iter().filter(|(name, _)| name == "retry-after").count(), 1);
    assert!(refused.body.contains("RATE_LIMIT_EXCEEDED") && refused.body.contains(r#""violated-policies":["free"]"#));
    assert_eq!(ask(port, "GET", "/", &[("x-user", "pro-pat")], "").await.header("x-ratelimit-limit"), Some("100"));
    let unlimited = ask(port, "GET", "/", &[], "").await;
    assert_eq!((unlimited.status, unlimited.header("ratelimit")), (200, None));
}

#[tokio::test]
async fn what_failed_is_given_back_where_that_is_asked_for() {
    let port = limited(|layer| layer.refund(|status| status >= 500)).await;
    for _ in 0..10 {
        assert_eq!(ask(port, "GET", "/dear", &[("x-user", "ann"), ("x-status", "503")], "").await.status, 503);
    }
    for status in [200, 200, 404, 200, 429] {
        let reply = ask(port, "GET", "/", &[("x-user", "ann"), ("x-status", &status.to_string())], "").await;
        assert_eq!(reply.status, status, "of four, none was used up by failures");
    }
}

/// Sends a request and hangs up without waiting for more than its head to be read.
async fn hang_up(port: u16, path: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    stream.write_all(words("GET", path, &[("x-user", "ann")], "").as_bytes()).await.expect("sent");
    let _ = timeout(Duration::from_millis(100), stream.read_u8()).await;
}

#[tokio::test]
async fn a_panic_is_refunded_and_a_disconnect_is_not() {
    let port = limited(|layer| layer.refund(|status| status >= 500)).await;
    for _ in 0..6 {
        hang_up(port, "/panics").await;
    }
    assert_eq!(ask(port, "GET", "/", &[ANN], "").await.header("x-ratelimit-remaining"), Some("3"));
    for _ in 0..3 {
        hang_up(port, "/hangs").await;
    }
    assert_eq!(ask(port, "GET", "/", &[ANN], "").await.status, 429, "a limit is not evaded by hanging up");
}

#[tokio::test]
async fn a_cost_no_limit_takes_is_the_services_fault() {
    let port = limited(|layer| layer).await;
    let wrong = ask(port, "GET", "/free", &[ANN], "").await;
    assert_eq!((wrong.status, wrong.body.contains("cost")), (500, false), "{wrong:?}");
    let never = ask(port, "GET", "/too-dear", &[ANN], "").await;
    assert_eq!((never.status, never.header("retry-after")), (429, None));
    assert!(never.body.contains(r#""retryable":false"#), "coming back does not help: {never:?}");
}

#[tokio::test]
async fn headers_can_be_chosen() {
    let port = limited(|layer| layer.headers(Shown::Legacy).reset_at()).await;
    let reply = ask(port, "GET", "/", &[("x-user", "ann")], "").await;
    assert_eq!(reply.header("ratelimit"), None);
    let reset: u64 = reply.header("x-ratelimit-reset").and_then(|reset| reset.parse().ok()).expect("a number");
    assert!(reset > 1_700_000_000, "seconds since 1970: {reset}");
}

/// What the handlers of these tests do, by path; each run counts.
#[derive(Default)]
struct Shop {
    made: AtomicU32,
    has_begun: Notify,
    may_continue: Notify,
}

async fn shop(change: impl Fn(IdempotencyLayer) -> IdempotencyLayer) -> (u16, Arc<Shop>) {
    let shop = Arc::<Shop>::default();
    let handler = {
        let shop = Arc::clone(&shop);
        async move |request: Request<Body>| made(&shop, request).await
    };
    let orders =
        memory().await.idempotent("orders", IdempotencySettings::new().wait(Duration::ZERO)).expect("settings");
    let layer = IdempotencyLayer::new(orders, |request| header_text(request, "x-user"));
    (serve(Router::new().fallback(any(handler)).layer(change(layer))).await, shop)
}

async fn made(shop: &Shop, request: Request<Body>) -> Response<Body> {
    let number = shop.made.fetch_add(1, SeqCst) + 1;
    let attempt = request.extensions().get::<Run>().and_then(Run::attempt).unwrap_or(0);
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let head = Response::builder().status(201).header("x-attempt", attempt).header("set-cookie", "a=1");
    let head = head.header("set-cookie", "b=2");
    match path.as_str() {
        "/slow" => {
            shop.has_begun.notify_one();
            shop.may_continue.notified().await;
        }
        "/fails" => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        "/panics" => panic!("on purpose"),
        "/stream" => {
            let parts = [format!("order {number}, "), "in ".to_owned(), "parts".to_owned()];
            let parts = stream::iter(parts.map(|part| Ok::<_, Infallible>(Bytes::from(part))));
            return head.body(Body::from_stream(parts)).expect("a response");
        }
        "/panics-late" => {
            // The first half is on its way by then.
            let parts = stream::iter(0..2).then(async |part| {
                tokio::time::sleep(Duration::from_millis(part * 100)).await;
                assert_eq!(part, 0, "on purpose");
                Ok::<_, Infallible>(Bytes::from("half"))
            });
            return head.body(Body::from_stream(parts)).expect("a response");
        }
        "/breaks" => {
            let parts: [Result<_, &str>; 2] = [Ok(Bytes::from("half")), Err("broken")];
            return head.body(Body::from_stream(stream::iter(parts))).expect("a response");
        }
        _ => {}
    }
    let text = format!("order {number} of {}", String::from_utf8_lossy(&body));
    head.body(text.into()).expect("a response")
}

const ANN: (&str, &str) = ("x-user", "ann");
const KEY: (&str, &str) = ("idempotency-key", "\"k1\"");

#[tokio::test]
async fn a_duplicate_gets_the_first_reply() {
    let (port, shop) = shop(|layer| layer).await;
    let first = ask(port, "POST", "/orders?a=1", &[ANN, KEY], "tea").await;
    assert_eq!((first.status, first.body.as_str(), first.header("x-attempt")), (201, "order 1 of tea", Some("1")));
    assert!(!first.is_replayed());
    let again = ask(port, "POST", "/orders?a=1", &[ANN, KEY], "tea").await;
    assert_eq!((again.status, &again.body, again.is_replayed()), (201, &first.body, true));
    assert_eq!(again.headers.iter().filter(|(name, _)| name == "set-cookie").count(), 2);
    let mismatch = ask(port, "POST", "/orders?a=1", &[ANN, KEY], "coffee").await;
    assert_eq!((mismatch.status, mismatch.header("content-type")), (422, Some("application/problem+json")));
    let others = ask(port, "POST", "/orders?a=1", &[("x-user", "bob"), KEY], "tea").await;
    assert_eq!(others.body, "order 2 of tea", "keys of another tenant are others");
    assert_eq!(ask(port, "POST", "/orders", &[ANN], "tea").await.body, "order 3 of tea", "no key, no memory");
    assert_eq!(ask(port, "PUT", "/orders?a=1", &[ANN, KEY], "tea").await.body, "order 4 of tea", "another method");
    assert_eq!(shop.made.load(SeqCst), 4);
}

#[tokio::test]
async fn keys_that_are_missing_malformed_or_two_are_400() {
    let (port, shop) = shop(|layer| layer.required()).await;
    for headers in [&[ANN][..], &[ANN, ("idempotency-key", "\"a")], &[ANN, KEY, KEY]] {
        let refused = ask(port, "POST", "/orders", headers, "tea").await;
        assert_eq!((refused.status, refused.header("content-type")), (400, Some("application/problem+json")));
    }
    assert_eq!(ask(port, "GET", "/orders", &[ANN], "").await.status, 201, "required where there are keys at all");
    assert_eq!(shop.made.load(SeqCst), 1);
}

#[tokio::test]
async fn while_the_first_runs_a_duplicate_is_409() {
    let (port, shop) = shop(|layer| layer).await;
    let first = tokio::spawn(async move { ask(port, "POST", "/slow", &[ANN, KEY], "tea").await });
    timeout(BOUND, shop.has_begun.notified()).await.expect("it begins");
    let busy = ask(port, "POST", "/slow", &[ANN, KEY], "tea").await;
    assert_eq!((busy.status, busy.header("retry-after").is_some()), (409, true));
    shop.may_continue.notify_one();
    assert_eq!(first.await.expect("the first").body, "order 1 of tea");
    assert!(ask(port, "POST", "/slow", &[ANN, KEY], "tea").await.is_replayed());
}

#[tokio::test]
async fn a_client_that_hangs_up_cuts_no_work_short() {
    let (port, shop) = shop(|layer| layer).await;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    stream.write_all(words("POST", "/slow", &[ANN, KEY], "tea").as_bytes()).await.expect("sent");
    timeout(BOUND, shop.has_begun.notified()).await.expect("it begins");
    drop(stream);
    tokio::time::sleep(Duration::from_millis(50)).await;
    shop.may_continue.notify_one();
    let deadline = tokio::time::Instant::now() + BOUND;
    loop {
        let again = ask(port, "POST", "/slow", &[ANN, KEY], "tea").await;
        if again.is_replayed() {
            break assert_eq!(again.body, "order 1 of tea");
        }
        assert_eq!(again.status, 409, "not run twice: {again:?}");
        assert!(tokio::time::Instant::now() < deadline);
    }
    assert_eq!(shop.made.load(SeqCst), 1);
}

#[tokio::test]
async fn replies_that_may_differ_the_next_time_are_not_kept() {
    let (port, made) = shop(|layer| layer).await;
    for number in 1..=3 {
        assert_eq!(ask(port, "POST", "/fails", &[ANN, KEY], "").await.status, 503);
        assert_eq!(made.made.load(SeqCst), number);
    }
    let (port, made) = shop(|layer| layer.keep_responses(|status| status == 503)).await;
    for _ in 0..3 {
        assert_eq!(ask(port, "POST", "/fails", &[ANN, KEY], "").await.status, 503);
    }
    assert_eq!(made.made.load(SeqCst), 1, "which ones are kept is for the service to say");
}

#[tokio::test]
async fn a_stream_is_kept_as_it_goes_by() {
    let (port, shop) = shop(|layer| layer).await;
    let first = ask(port, "POST", "/stream", &[ANN, KEY], "").await;
    assert!(first.header("transfer-encoding") == Some("chunked") && first.body.contains("order 1, "), "{first:?}");
    let again = ask(port, "POST", "/stream", &[ANN, KEY], "").await;
    assert_eq!((again.body.as_str(), again.is_replayed()), ("order 1, in parts", true));
    assert_eq!(shop.made.load(SeqCst), 1);
}

#[tokio::test]
async fn a_stream_that_breaks_off_frees_its_key() {
    let (port, shop) = shop(|layer| layer).await;
    for number in 1..=2 {
        let broken = ask(port, "POST", "/breaks", &[ANN, KEY], "").await;
        assert!(!broken.body.ends_with("0\r\n\r\n"), "its end must not come: {broken:?}");
        assert_eq!(shop.made.load(SeqCst), number);
    }
}

#[tokio::test]
async fn a_stream_that_panics_never_looks_whole() {
    let (port, _) = shop(|layer| layer).await;
    let cut = ask(port, "POST", "/panics-late", &[ANN, KEY], "").await;
    assert!(cut.body.contains("half") && !cut.body.ends_with("0\r\n\r\n"), "its end must not come: {cut:?}");
}

#[tokio::test]
async fn bodies_and_replies_have_a_largest_size() {
    let (port, shop) = shop(|layer| layer.max_body(4).max_response(90)).await;
    assert_eq!(ask(port, "POST", "/orders", &[ANN, KEY], "12345").await.status, 413);
    assert_eq!(shop.made.load(SeqCst), 0);
    let large = ask(port, "POST", "/orders", &[ANN, KEY], "1234").await;
    assert_eq!((large.status, large.body.contains("order 1 of 1234")), (201, true), "too large to keep, not to send");
    let again = ask(port, "POST", "/orders", &[ANN, KEY], "1234").await;
    assert_eq!((again.status, again.body.contains("was not kept")), (409, true));
    assert_eq!(shop.made.load(SeqCst), 1);
}

#[tokio::test]
async fn plain_tower_services_keep_their_errors() {
    let client = memory().await;
    let free = client.limiter("free", Limit::per_minute(4)).expect("a limit");
    let orders = client.idempotent("orders", IdempotencySettings::new()).expect("settings");
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let layers = ServiceBuilder::new()
        .layer(HttpRateLimitLayer::new(move |_| Some(HttpTier::new(&free, "all").name("everybody"))))
        .layer(IdempotencyLayer::new(orders, |_| None));
    let service = layers.service(service_fn(move |request: Request<_>| {
        counted.fetch_add(1, SeqCst);
        let fails = request.uri().path() == "/fails";
        async move { if fails { Err("down") } else { Ok(Response::new(Full::new(Bytes::from("made")))) } }
    }));
    let ask = async |path: &str| {
        let request =
            Request::builder().method(Method::POST).uri(path).header("idempotency-key", format!("\"{path}\""));
        service.clone().oneshot(request.body(Full::new(Bytes::new())).expect("a request")).await
    };
    assert_eq!(ask("/fails").await.err(), Some("down"));
    assert_eq!(ask("/fails").await.err(), Some("down"), "a failure frees the key");
    let first = ask("/").await.expect("a response");
    assert_eq!(first.headers().get("ratelimit-policy").expect("a policy"), r#""everybody";q=4;w=60"#);
    let again = ask("/").await.expect("a response");
    assert_eq!(again.into_body().collect().await.expect("a body").to_bytes(), "made");
    assert_eq!(ask("/").await.expect("a response").status(), 429);
    assert_eq!(calls.load(SeqCst), 3);
}

/// The example of the module, over HTTP.
#[tokio::test]
async fn two_lines_are_enough() {
    let client = memory().await;
    let free = client.limiter("free", Limit::per_minute(2)).expect("a limit");
    let orders = client.idempotent("orders", IdempotencySettings::new()).expect("settings");
    let app = Router::new()
        .route("/orders", post(async || "made"))
        .layer(IdempotencyLayer::new(orders, |request| header_text(request, "x-user")))
        .layer(HttpRateLimitLayer::new(move |request| Some(HttpTier::new(&free, header_text(request, "x-user")?))));
    let port = serve(app).await;
    let replies = [
        ask(port, "POST", "/orders", &[ANN, KEY], "tea").await,
        ask(port, "POST", "/orders", &[ANN, KEY], "tea").await,
        ask(port, "POST", "/orders", &[ANN, KEY], "tea").await,
    ];
    assert_eq!(
        replies.each_ref().map(|reply| (reply.status, reply.is_replayed())),
        [(200, false), (200, true), (429, false)]
    );
    assert_eq!(replies[1].header("x-ratelimit-remaining"), Some("0"), "a replay has its own headers");
}

#[tokio::test]
async fn a_panic_of_the_service_is_passed_on() {
    let (port, _shop) = shop(|layer| layer).await;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    stream.write_all(words("POST", "/panics", &[ANN, KEY], "").as_bytes()).await.expect("sent");
    let mut said = Vec::new();
    timeout(BOUND, stream.read_to_end(&mut said)).await.expect("in time").expect("the end");
    assert_eq!(said, b"", "the connection ends, as it does without the layer");
    assert_eq!(ask(port, "POST", "/orders", &[ANN], "tea").await.status, 201, "and only that one");
}
