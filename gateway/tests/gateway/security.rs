//! Who is let in: roles, CSRF, origins, hosts, headers, sizes, garbage.

use http::{Request, StatusCode};
use resil_gateway::proto::resil::example::v1::EchoRequest;
use resil_gateway::proto::resil::v1 as proto;
use serde_json::{Value, json};
use tonic::Code;

use crate::scene::{Scene, echo_call, send};

const TOKENS: &str = "tokens:
  - { name: viewer, role: look, token: look-0123456789abcdef }
  - { name: operator, role: operate, token: operate-0123456789abcdef }
  - { name: governor, role: govern, token: govern-0123456789abcdef }
";

/// Every route that acts, and the role it needs.
const ACTS: [(&str, &str); 13] = [
    ("/api/circuits/k/force", "operate"),
    ("/api/circuits/k/reset", "operate"),
    ("/api/locks/k/break", "operate"),
    ("/api/ledgers/k/hold", "operate"),
    ("/api/ledgers/k/pause", "operate"),
    ("/api/ledgers/k/cases/1/stop", "operate"),
    ("/api/ledgers/k/alerts/1/seen", "operate"),
    ("/api/policies/p", "govern"),
    ("/api/policies/p/rollback", "govern"),
    ("/api/policies/p/delete", "govern"),
    ("/api/ledgers/k/cases", "govern"),
    ("/api/ledgers/k/cases/1/redrive", "govern"),
    ("/api/ledgers/k/cases/1/close", "govern"),
];

/// Routes that are posted to and change nothing but a session.
const LOOKS: [&str; 5] = [
    "/api/session",
    "/api/session/end",
    "/api/policies/check",
    "/api/policies/p/diff",
    "/api/ledgers/k/cases/1/dry-run",
];

#[test]
fn every_route_that_is_posted_to_is_known_here() {
    let router = include_str!("../../src/http/mod.rs");
    let mut known = 0;
    for line in router.lines().filter(|line| line.contains(".route(") && line.contains("post(")) {
        let route = format!("/api{}", line.split('"').nth(1).expect("a path"));
        let path = [("{key}", "k"), ("{name}", "p"), ("{case}", "1"), ("{alert}", "1")]
            .iter()
            .fold(route, |path, (part, own)| path.replace(part, own));
        let listed = ACTS.iter().map(|(path, _)| *path).chain(LOOKS).filter(|own| *own == path).count();
        assert_eq!(listed, 1, "{path} is either in ACTS, with its role, or in LOOKS");
        known += 1;
    }
    assert_eq!(known, ACTS.len() + LOOKS.len(), "the router is read whole");
}

fn post(path: &str) -> http::request::Builder {
    Request::post(path).header("content-type", "application/json")
}

/// A body that every route can read.
fn body() -> String {
    json!({"state": "open", "actor": "ann", "reason": "test", "on": true, "id": "x", "paused": false, "document": "{}", "version": 1,
        "groups": ["g"], "category": "poison", "cause": "c", "fix": "f"})
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_acts_without_its_role() {
    let scene = Scene::start("memory://roles", TOKENS).await;
    let order = ["look", "operate", "govern"];
    let rank = |role: &str| order.iter().position(|known| *known == role);
    for (path, needed) in ACTS {
        assert_eq!(send(&scene, post(path), &body()).await.0, StatusCode::UNAUTHORIZED, "{path}");
        let wrong = post(path).header("authorization", "Bearer govern-0123456789abcdeg");
        assert_eq!(send(&scene, wrong, &body()).await.0, StatusCode::UNAUTHORIZED, "{path}");
        for role in order {
            let request = post(path).header("authorization", format!("Bearer {role}-0123456789abcdef"));
            let (status, _, reply) = send(&scene, request, &body()).await;
            if rank(role) < rank(needed) {
                assert_eq!(
                    (status, reply["code"].as_str(), reply["needs"].as_str()),
                    (StatusCode::FORBIDDEN, Some("FORBIDDEN"), Some(needed)),
                    "{path} as {role}"
                );
            } else {
                assert_ne!(status, StatusCode::FORBIDDEN, "{path} as {role}: {reply}");
                assert_ne!(status, StatusCode::UNAUTHORIZED, "{path} as {role}: {reply}");
            }
        }
    }
    let refused =
        send(&scene, Request::get("/api/audit").header("authorization", "Bearer look-0123456789abcdef"), "").await.2;
    let refused =
        refused["audit"].as_array().expect("a list").iter().filter(|event| event["outcome"] == "refused").count();
    assert_eq!(refused, 7 + 6 * 2, "each refusal is written down");
    for path in [
        "/api/circuits",
        "/api/overview",
        "/api/policies",
        "/api/events",
        "/api/audit",
        "/api/ledgers",
        "/api/work",
        "/api/runs",
        "/api/loads",
        "/api/nothing",
    ] {
        assert_eq!(send(&scene, Request::get(path), "").await.0, StatusCode::UNAUTHORIZED, "{path}");
    }
    for path in ["/livez", "/readyz", "/health", "/metrics", "/", "/api/session"] {
        assert_eq!(send(&scene, Request::get(path), "").await.0, StatusCode::OK, "{path}");
    }
}

fn bearer<T>(token: &str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a value"));
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn the_grpc_port_needs_the_same_roles() {
    let mut scene = Scene::start("memory://grpc-roles", TOKENS).await;
    let call = || echo_call(&EchoRequest::default());
    assert_eq!(scene.grpc.execute_with_resilience(call()).await.expect_err("nobody").code(), Code::Unauthenticated);
    let looks = bearer("look-0123456789abcdef", call());
    assert_eq!(scene.grpc.execute_with_resilience(looks).await.expect_err("looks").code(), Code::PermissionDenied);
    let operates = bearer("operate-0123456789abcdef", call());
    // There is no policy in this store, but it is let in.
    assert_eq!(
        scene.grpc.execute_with_resilience(operates).await.expect_err("no policy").code(),
        Code::InvalidArgument
    );
    let update = proto::UpdatePolicyRequest { name: "plain".into(), document: "{}".into(), ..Default::default() };
    let operates = bearer("operate-0123456789abcdef", update.clone());
    assert_eq!(scene.grpc.update_policy(operates).await.expect_err("operates").code(), Code::PermissionDenied);
    assert!(scene.grpc.update_policy(bearer("govern-0123456789abcdef", update)).await.is_ok());
    // Orchestrators ask for health without a token.
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", scene.running.grpc_address))
        .expect("an address")
        .connect_lazy();
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    let request = tonic_health::pb::HealthCheckRequest { service: "resil.v1.ResilienceService".into() };
    assert_eq!(health.check(request).await.expect("served").into_inner().status, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_needs_its_session_our_page_and_csrf() {
    let scene = Scene::start("memory://csrf", TOKENS).await;
    let login = |token: &str| json!({ "token": token }).to_string();
    assert_eq!(send(&scene, post("/api/session"), &login("wrong-0123456789abcdef")).await.0, StatusCode::UNAUTHORIZED);
    let (status, headers, session) = send(&scene, post("/api/session"), &login("operate-0123456789abcdef")).await;
    assert_eq!(
        (status, session["role"].as_str(), session["name"].as_str()),
        (StatusCode::OK, Some("operate"), Some("operator"))
    );
    let cookie = headers["set-cookie"].to_str().expect("a cookie").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie.split(';').next().expect("a pair").to_owned();
    let csrf = session["csrf"].as_str().expect("a text").to_owned();
    let host = scene.running.http_address.to_string();
    let act = |csrf: &str, origin: &str, site: &str| {
        let mut request = post("/api/circuits/k/force").header("cookie", &cookie);
        for (name, value) in [("x-resil-csrf", csrf), ("origin", origin), ("sec-fetch-site", site)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        request
    };
    let ours = format!("http://{host}");
    assert_eq!(send(&scene, act(&csrf, &ours, "same-origin"), &body()).await.0, StatusCode::OK);
    for (csrf, origin, site, what) in [
        ("", ours.as_str(), "same-origin", "no header"),
        ("x", ours.as_str(), "same-origin", "a wrong one"),
        (csrf.as_str(), "http://evil.test", "", "another origin"),
        (csrf.as_str(), "null", "", "no origin"),
        (csrf.as_str(), ours.as_str(), "cross-site", "another site"),
        (csrf.as_str(), "", "same-site", "a neighbour"),
    ] {
        assert_eq!(send(&scene, act(csrf, origin, site), &body()).await.0, StatusCode::FORBIDDEN, "{what}");
    }
    let form = Request::post("/api/circuits/k/force")
        .header("cookie", &cookie)
        .header("x-resil-csrf", &csrf)
        .header("content-type", "text/plain");
    assert_eq!(send(&scene, form, &body()).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let forged = cookie.replace("operate", "govern");
    assert_eq!(
        send(&scene, Request::get("/api/circuits").header("cookie", forged), "").await.0,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(send(&scene, Request::get("/api/circuits").header("cookie", &cookie), "").await.0, StatusCode::OK);
    let (_, headers, _) = send(&scene, act(&csrf, &ours, "same-origin").uri("/api/session/end"), "{}").await;
    assert!(headers["set-cookie"].to_str().expect("a cookie").contains("Max-Age=0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_host_is_not_served_and_headers_are_strict() {
    let scene = Scene::start("memory://hosts", "").await;
    for host in ["evil.test", "evil.test:8056", "127.0.0.1.evil.test"] {
        for path in ["/", "/api/session", "/api/circuits"] {
            let (status, _, _) = send(&scene, Request::get(path).header("host", host), "").await;
            assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{host} {path}");
        }
        assert_eq!(
            send(&scene, Request::get("/livez").header("host", host), "").await.0,
            StatusCode::OK,
            "probes come by any name"
        );
    }
    for path in ["/", "/api/session", "/api/nothing", "/nothing.js", "/livez"] {
        let (_, headers, _) = send(&scene, Request::get(path), "").await;
        let policy = headers["content-security-policy"].to_str().expect("a policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(headers[name], value, "{path}");
        }
        assert!(headers.contains_key("x-request-id"), "{path}");
    }
    for path in [
        "/../Cargo.toml",
        "/..%2fCargo.toml",
        "/%2e%2e/Cargo.toml",
        "/etc/passwd",
        "//etc/passwd",
        "/index.html/../../src/main.rs",
    ] {
        assert_eq!(send(&scene, Request::get(path), "").await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_refused_and_nothing_breaks() {
    let scene = Scene::start("memory://garbage", "").await;
    let seed = std::env::var("RESIL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("RESIL_SEED={seed}");
    let mut random = <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(seed);
    let csrf = scene.get("/api/session").await.1["csrf"].as_str().expect("a text").to_owned();
    for _ in 0..150 {
        use rand::RngExt;
        let (path, _) = ACTS[random.random_range(0..ACTS.len())];
        let junk: String = match random.random_range(0..4) {
            0 => (0..random.random_range(0..200)).map(|_| char::from(random.random_range(32..127_u8))).collect(),
            1 => json!({"actor": random.random::<f64>(), "reason": [1], "state": null}).to_string(),
            2 => "[".repeat(random.random_range(1..5_000)),
            _ => json!({"actor": "x".repeat(random.random_range(0..2_000)), "reason": "\u{0}\n", "on": true, "document": "{", "state": "open"}).to_string(),
        };
        let (status, _, reply) = send(&scene, post(path).header("x-resil-csrf", &csrf), &junk).await;
        // To have seen an alert that is not there is no error.
        let is_said = path.ends_with("/seen") || (status.is_client_error() && reply["detail"].is_string());
        assert!(is_said, "{path} {junk:.60} → {status} {reply}");
    }
    let (status, _, reply) =
        send(&scene, post("/api/policies/p").header("x-resil-csrf", &csrf), &"x".repeat(300 << 10)).await;
    assert!(status == StatusCode::PAYLOAD_TOO_LARGE || status == StatusCode::TOO_MANY_REQUESTS, "{status} {reply}");
    let mut grpc = scene.grpc.clone();
    let huge = EchoRequest { text: "x".repeat(5 << 20), ..Default::default() };
    let status = grpc.execute_with_resilience(echo_call(&huge)).await.expect_err("too large");
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    assert_eq!(scene.get("/livez").await.0, StatusCode::OK);
    let _: Value = reply;
}
