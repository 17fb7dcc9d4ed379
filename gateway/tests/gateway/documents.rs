//! What callers write, at its worst: depth, bombs, odd bytes, numbers out of bounds, two writers at once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use resil_gateway::proto::resil::example::v1::EchoRequest;
use resil_gateway::proto::resil::v1 as proto;
use resil_harness::Server;
use serde_json::{Value, json};
use tonic::Code;

use crate::scene::{Scene, code, echo_call, send, within};

fn bombs() -> Vec<(&'static str, String)> {
    let laughs: String =
        (1..12).map(|at| format!("a{at}: &a{at} [{}]\n", vec![format!("*a{}", at - 1); 12].join(", "))).collect();
    vec![
        ("lists in lists", "[".repeat(60_000)),
        ("closed lists in lists", format!("{}{}", "[".repeat(50_000), "]".repeat(50_000))),
        ("maps in maps", "{a: ".repeat(40_000)),
        ("maps of JSON", "{\"a\":".repeat(20_000)),
        ("items in items", "- ".repeat(60_000)),
        ("keys in keys", "? ".repeat(60_000)),
        ("a map that grows to the right", (0..600).map(|at| format!("{}a:\n", " ".repeat(at))).collect()),
        ("names for names", format!("a0: &a0 [x, x]\n{laughs}")),
        ("an anchor of itself", "a: &a [*a]".to_owned()),
        ("a merge of itself", "a: &a\n  <<: *a".to_owned()),
        ("a long number", "retry: { maxAttempts: ".to_owned() + &"9".repeat(100_000) + " }"),
        ("many documents", "---\n".repeat(20_000)),
        ("a name of NUL", "\"\\0\": 1".to_owned()),
        ("tags", "!!binary x".repeat(5_000)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_document_breaks_the_gateway() {
    let scene = Scene::start("memory://bombs", "").await;
    for (what, document) in bombs() {
        let begun = Instant::now();
        let (status, checked) = scene.post("/api/policies/check", &json!({ "document": document })).await;
        assert_eq!((status, checked["valid"].as_bool()), (StatusCode::OK, Some(false)), "{what}: {checked:.300}");
        let update = proto::UpdatePolicyRequest { name: "p".into(), document, ..Default::default() };
        let status = scene.grpc.clone().update_policy(update).await.expect_err(what);
        assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{what}: {:?}", begun.elapsed());
    }
    // The largest that a message of gRPC can have.
    let update = proto::UpdatePolicyRequest { name: "p".into(), document: "[".repeat(4_000_000), ..Default::default() };
    assert!(scene.grpc.clone().update_policy(update).await.is_err());
    assert_eq!(scene.get("/livez").await.0, StatusCode::OK);
}

/// CPU time of this thread: what other threads do, and what else the machine does, is not counted.
fn own_cpu() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(told.split(' ').next().and_then(|first| first.parse().ok()).expect("nanoseconds"))
}

/// Calls and the connection to Redis share the threads of requests. Here there is one, and a task that looks what the others take in between.
#[tokio::test]
async fn a_large_document_is_read_beside_the_calls() {
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let document: String = (0..5_000).map(|at| format!("key{at}: {{ a: [x, y], b: {at} }}\n")).collect();
    let begun = own_cpu();
    serde_saphyr::from_str::<Value>(&document).expect("YAML");
    let reading = own_cpu().saturating_sub(begun);
    let longest = AtomicU64::new(0);
    let looking = async {
        let mut last = own_cpu();
        loop {
            tokio::task::yield_now().await;
            let now = own_cpu();
            longest.fetch_max(now.saturating_sub(last).as_nanos().try_into().expect("short"), Relaxed);
            last = now;
        }
    };
    let because = json!({"document": document, "actor": "ann", "reason": "test"});
    let asking = async {
        for path in ["/api/policies/check", "/api/policies/strict/diff", "/api/policies/strict"] {
            let (status, told) = scene.post(path, &because).await;
            assert!(status == StatusCode::OK || status == StatusCode::BAD_REQUEST, "{path}: {status} {told:.300}");
            let held = Duration::from_nanos(longest.swap(0, Relaxed));
            assert!(held < reading / 2, "{path} held the thread for {held:?}; reading takes {reading:?}");
        }
        let update =
            proto::UpdatePolicyRequest { name: "strict".into(), document: document.clone(), ..Default::default() };
        let status = scene.grpc.clone().update_policy(update).await.expect_err("no policy has such fields");
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        let held = Duration::from_nanos(longest.load(Relaxed));
        assert!(held < reading / 2, "UpdatePolicy held the thread for {held:?}; reading takes {reading:?}");
    };
    tokio::select! {
        () = asking => {}
        () = looking => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_writers_of_one_version_one_wins() {
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let mut writers = tokio::task::JoinSet::new();
    for number in 1..=20_u32 {
        let mut grpc = scene.grpc.clone();
        let document = json!({"retry": {"maxAttempts": number + 1}}).to_string();
        let update = proto::UpdatePolicyRequest {
            name: "strict".into(),
            document,
            expected_version: Some(1),
            actor: format!("writer {number}"),
            ..Default::default()
        };
        writers.spawn(async move { (number, grpc.update_policy(update).await) });
    }
    let (mut won, mut lost) = (Vec::new(), 0);
    while let Some(written) = writers.join_next().await {
        match written.expect("no panic") {
            (number, Ok(response)) => won.push((number, response.into_inner().version)),
            (_, Err(status)) => {
                assert_eq!((status.code(), code(&status)), (Code::Aborted, "VERSION_CONFLICT"), "{status:?}");
                lost += 1;
            }
        }
    }
    assert_eq!((won.len(), lost), (1, 19));
    let (_, stored) = scene.get("/api/policies/strict").await;
    assert_eq!((stored["version"].as_u64(), won[0].1), (Some(2), 2));
    assert_eq!(stored["actor"], format!("writer {}", won[0].0));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_one_caller_say_nothing_to_another() {
    let tokens = "tokens:
  - { name: shop, role: operate, token: shop-0123456789abcdef }
  - { name: shop/cart, role: operate, token: cart-0123456789abcdef }
";
    let scene = Scene::start("memory://keys", tokens).await;
    scene.running.gateway.client.policies().set("plain", "{}").await.expect("valid");
    scene.knows("plain").await;
    let call = async |token: &str, key: &str| {
        let mut call = echo_call(&EchoRequest { text: "secret".into(), ..Default::default() });
        call.idempotency_key = key.into();
        let mut request = tonic::Request::new(call);
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a value"));
        scene.grpc.clone().execute_with_resilience(request).await.expect("a reply").into_inner().is_replay
    };
    assert!(!call("shop-0123456789abcdef", "cart/7").await);
    assert!(!call("cart-0123456789abcdef", "7").await, "the same letters, and another caller");
    assert!(call("cart-0123456789abcdef", "7").await, "its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlines_of_nothing_and_of_years_are_understood() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let span = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    for (deadline, expected) in [
        (span(0, 0), Code::InvalidArgument),
        (span(-1, 0), Code::InvalidArgument),
        (span(0, -1), Code::InvalidArgument),
        (span(10_000_000_000, 0), Code::Ok),
        (span(i64::MAX, 999_999_999), Code::Ok),
        (span(i64::MIN, i32::MIN), Code::InvalidArgument),
    ] {
        let call = proto::ExecuteWithResilienceRequest { deadline, ..echo_call(&EchoRequest::default()) };
        let called = scene.grpc.execute_with_resilience(call).await;
        assert_eq!(called.map_or_else(|status| status.code(), |_| Code::Ok), expected, "{deadline:?}");
    }
    let before = scene.echo.calls.load(std::sync::atomic::Ordering::Relaxed);
    let slow = EchoRequest { delay: span(60, 0), ..Default::default() };
    let call = proto::ExecuteWithResilienceRequest { deadline: span(0, 1), ..echo_call(&slow) };
    assert_eq!(scene.grpc.execute_with_resilience(call).await.expect_err("no time").code(), Code::DeadlineExceeded);
    let mut none = tonic::Request::new(echo_call(&slow));
    none.metadata_mut().insert("grpc-timeout", "0n".parse().expect("a value"));
    // The client's own clock may be first.
    let code = scene.grpc.execute_with_resilience(none).await.expect_err("no time").code();
    assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&code), "{code:?}");
    let made = scene.echo.calls.load(std::sync::atomic::Ordering::Relaxed) - before;
    assert!(made <= 1, "without any time no call is made: {made}");
    for (timeout, expected) in
        [("99999999H", Code::Ok), ("123456789S", Code::Ok), ("soon", Code::Ok), ("-1S", Code::Ok)]
    {
        let mut request = tonic::Request::new(echo_call(&EchoRequest::default()));
        request.metadata_mut().insert("grpc-timeout", timeout.parse().expect("a value"));
        let called = scene.grpc.execute_with_resilience(request).await;
        assert_eq!(called.map_or_else(|status| status.code(), |_| Code::Ok), expected, "{timeout}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_gives_back_what_it_held() {
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let one = r#"{"bulkhead": {"maxConcurrentCalls": 1}}"#;
    scene.running.gateway.client.policies().set("strict", one).await.expect("valid");
    within("it is known", || async {
        scene.running.gateway.policies.choose("strict").is_ok_and(|chosen| chosen.version == Some(2))
    })
    .await;
    let slow = EchoRequest { delay: Some(prost_types::Duration { seconds: 60, nanos: 0 }), ..Default::default() };
    let call =
        |request: &EchoRequest| proto::ExecuteWithResilienceRequest { policy: "strict".into(), ..echo_call(request) };
    let mut grpc = scene.grpc.clone();
    let begun = tokio::spawn({
        let call = call(&slow);
        async move { grpc.execute_with_resilience(call).await }
    });
    let calls = || scene.echo.calls.load(std::sync::atomic::Ordering::Relaxed);
    within("it has begun", || async { calls() == 1 }).await;
    let status = scene.grpc.clone().execute_with_resilience(call(&EchoRequest::default())).await.expect_err("full");
    assert_eq!(code(&status), "BULKHEAD_FULL", "{status:?}");
    begun.abort();
    within("nothing is left", || async { scene.running.gateway.drain.in_flight() == 0 }).await;
    within("the next one gets the place", || async {
        scene.grpc.clone().execute_with_resilience(call(&EchoRequest::default())).await.is_ok()
    })
    .await;
}

/// A value of any kind, often at a bound.
fn odd(random: &mut StdRng) -> Value {
    const TEXTS: [&str; 10] =
        ["", "0", "-1", "\u{0}", "\u{202e}\u{feff}\u{1f4a9}", "resil:policy:{strict}", "*", "null", "NaN", "../../x"];
    match random.random_range(0..9) {
        0 => Value::Null,
        1 => json!(random.random::<bool>()),
        2 => json!(random.random::<i64>()),
        3 => json!(u64::MAX),
        4 => json!(random.random::<f64>() * 1e300),
        5 => json!(TEXTS[random.random_range(0..TEXTS.len())]),
        6 => json!("x".repeat(random.random_range(0..3_000))),
        7 => json!([odd(random), 1]),
        _ => json!({"count": odd(random), "periodMs": odd(random)}),
    }
}

fn pick<'a>(random: &mut StdRng, all: &[&'a str]) -> &'a str {
    all[random.random_range(0..all.len())]
}

/// One segment of a path, or a value of a query.
fn segment(random: &mut StdRng) -> String {
    let known = [
        "resil:policy:%7Bstrict%7D",
        "resil:dlq:%7Borders%7D",
        "strict",
        "orders%2F1",
        "1",
        "0",
        "18446744073709551615",
        "-1",
    ];
    match random.random_range(0..4) {
        0 | 1 => pick(random, &known).to_owned(),
        2 => (0..random.random_range(1..12)).map(|_| format!("%{:02X}", random.random::<u8>())).collect(),
        _ => "x".repeat(random.random_range(1..2_000)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fuzzed_requests_of_the_api_get_a_reply() {
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let orders = resil::connect(&server.url()).await.expect("the server");
    let orders = orders.dead_letters("orders", Default::default()).expect("settings");
    let letter = resil::dead_letters::Letter::of("orders", "1").payload("order 1").kind("OrderCreated");
    orders.fail(&letter, resil::dead_letters::FailureNote::new("timeout").dead_at_once()).await.expect("stored");
    let seed = std::env::var("RESIL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("RESIL_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let csrf = scene.get("/api/session").await.1["csrf"].as_str().expect("a text").to_owned();
    const ROUTES: [&str; 44] = [
        "session",
        "session/end",
        "overview",
        "circuits",
        "circuits/*",
        "circuits/*/force",
        "circuits/*/reset",
        "limits",
        "limits/peek",
        "locks",
        "locks/*",
        "locks/*/break",
        "bulkheads",
        "bulkheads/*",
        "work",
        "policies",
        "policies/check",
        "policies/*",
        "policies/*/versions/*",
        "policies/*/history",
        "policies/*/diff",
        "policies/*/rollback",
        "policies/*/delete",
        "ledgers",
        "ledgers/*",
        "ledgers/*/groups",
        "ledgers/*/entries",
        "ledgers/*/entries/*",
        "ledgers/*/cases",
        "ledgers/*/cases/*",
        "ledgers/*/cases/*/dry-run",
        "ledgers/*/cases/*/redrive",
        "ledgers/*/cases/*/progress",
        "ledgers/*/cases/*/stop",
        "ledgers/*/cases/*/close",
        "ledgers/*/hold",
        "ledgers/*/pause",
        "ledgers/*/alerts",
        "ledgers/*/alerts/*/seen",
        "ledgers/*/audit",
        "alerts",
        "audit",
        "health",
        "upstreams",
    ];
    const FIELDS: [&str; 30] = [
        "state",
        "match",
        "limit",
        "periodMs",
        "name",
        "subject",
        "key",
        "burst",
        "window",
        "cursor",
        "kind",
        "group",
        "since",
        "until",
        "seen",
        "actor",
        "reason",
        "forMs",
        "document",
        "version",
        "expectedVersion",
        "against",
        "groups",
        "category",
        "rate",
        "first",
        "count",
        "id",
        "on",
        "paused",
    ];
    for _ in 0..1_500 {
        let mut path = "/api".to_owned();
        for part in pick(&mut random, &ROUTES).split('/') {
            path.push('/');
            path.push_str(&if part == "*" { segment(&mut random) } else { part.to_owned() });
        }
        for at in 0..random.random_range(0..4_usize) {
            let (field, value) = (pick(&mut random, &FIELDS), segment(&mut random));
            path.push_str(&format!("{}{field}={value}", if at == 0 { '?' } else { '&' }));
        }
        let method = [Method::GET, Method::POST, Method::POST, Method::PUT][random.random_range(0..4_usize)].clone();
        let mut body = json!({"actor": "fuzz", "reason": "fuzz"});
        for _ in 0..random.random_range(0..6) {
            body[pick(&mut random, &FIELDS)] = odd(&mut random);
        }
        let body = if method == Method::GET { String::new() } else { body.to_string() };
        let request = Request::builder()
            .method(method.clone())
            .uri(path.as_str())
            .header("content-type", "application/json")
            .header("x-resil-csrf", &csrf);
        let (status, _, answer) = send(&scene, request, &body).await;
        assert!(status.as_u16() < 500, "{method} {path:.300} {body:.300} → {status} {answer:.300}");
        assert!(status.is_success() || answer["code"].is_string(), "{method} {path:.300} → {status} {answer:.300}");
    }
    assert_eq!(scene.get("/readyz").await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_grpc_is_refused_before_anything_is_done() {
    let scene = Scene::start("memory://not-grpc", "").await;
    let update = proto::UpdatePolicyRequest { name: "p".into(), document: "{}".into(), ..Default::default() };
    let message = prost::Message::encode_to_vec(&update);
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(message.len()).expect("small").to_be_bytes());
    framed.extend_from_slice(&message);
    let client: hyper_util::client::legacy::Client<_, http_body_util::Full<bytes::Bytes>> =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).http2_only(true).build_http();
    let target = format!("http://{}/resil.v1.ResilienceService/UpdatePolicy", scene.running.grpc_address);
    // What a page of another origin can make a browser send without asking.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/grpcx", ""] {
        let request = Request::post(&target).header("content-type", kind).header("origin", "https://evil.test");
        let request = request.body(bytes::Bytes::from(framed.clone()).into()).expect("a request");
        let response = client.request(request).await.expect("a reply");
        assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    let policies = scene.running.gateway.client.policies().list().await.expect("a list");
    assert!(policies.is_empty(), "{policies:?}");
}
