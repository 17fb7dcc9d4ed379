//! What breaks around the gateway: the server, an upstream, a file of policies, its clients.

use std::time::{Duration, Instant};

use http::StatusCode;
use resil_gateway::proto::resil::example::v1::EchoRequest;
use resil_gateway::proto::resil::v1 as proto;
use resil_harness::Server;
use tonic::Code;

use crate::scene::{Scene, code, echo_call, http_call, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_is_survived_and_found_again() {
    let mut server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    scene.grpc.execute_with_resilience(echo_call(&EchoRequest::default())).await.expect("a response");
    server.kill9();
    let state = || proto::GetCircuitStateRequest { name: "strict".into() };
    // Policies go on by themselves; what only the server knows is refused.
    let begun = Instant::now();
    let status = scene.grpc.get_circuit_state(state()).await.expect_err("away");
    assert_eq!((status.code(), begun.elapsed() < Duration::from_secs(5)), (Code::Unavailable, true), "{status:?}");
    let mut answered = 0;
    for _ in 0..20 {
        answered += usize::from(scene.grpc.execute_with_resilience(echo_call(&EchoRequest::default())).await.is_ok());
    }
    assert_eq!(answered, 20, "calls under a policy without a shared part are made");
    let mut keyed = echo_call(&EchoRequest::default());
    keyed.idempotency_key = "k".into();
    let status = scene.grpc.execute_with_resilience(keyed).await.expect_err("nobody could vouch for it");
    assert_eq!(code(&status), "BACKEND_UNAVAILABLE", "{status:?}");
    let (status, problem) = scene.get("/api/circuits").await;
    assert_eq!(
        (status, problem["code"].as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, Some("BACKEND_UNAVAILABLE")),
        "{problem}"
    );
    assert_eq!(scene.get("/livez").await.0, StatusCode::OK);
    assert_eq!(scene.get("/readyz").await.0, StatusCode::OK, "it has been ready, and serves what it can");
    assert_eq!(scene.get("/health").await.1["checks"]["redis"][0]["status"], "warn");
    server.start_again();
    let grpc = scene.grpc.clone();
    within("the server is found again", || async { grpc.clone().get_circuit_state(state()).await.is_ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_is_survived() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let strict = || {
        let mut call = echo_call(&EchoRequest::default());
        call.policy = "strict".into();
        call
    };
    scene.grpc.execute_with_resilience(strict()).await.expect("a reply");
    // Connections stay open, and nothing is answered.
    server.pause();
    let mut waits = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        scene.grpc.execute_with_resilience(echo_call(&EchoRequest::default())).await.expect("it needs no server");
        // A shared circuit does: by default a call is made while nobody can be asked.
        let called = scene.grpc.execute_with_resilience(strict()).await;
        assert!(called.is_ok() || called.is_err_and(|status| status.code() == Code::Unavailable));
        waits.push(begun.elapsed());
    }
    waits.sort();
    println!("a frozen server: two calls take p50 {:?}, at most {:?}", waits[10], waits[19]);
    assert!(waits[19] < Duration::from_secs(5), "{waits:?}");
    let begun = Instant::now();
    let state = || proto::GetCircuitStateRequest { name: "strict".into() };
    assert_eq!(scene.grpc.get_circuit_state(state()).await.expect_err("frozen").code(), Code::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for path in ["/livez", "/readyz", "/api/session"] {
        assert_eq!(scene.get(path).await.0, StatusCode::OK, "{path}");
    }
    assert_eq!(scene.get("/api/circuits").await.0, StatusCode::SERVICE_UNAVAILABLE);
    server.resume();
    let grpc = scene.grpc.clone();
    within("it is found again", || async { grpc.clone().get_circuit_state(state()).await.is_ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_an_upstream_lacks_is_in_health() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("policies.yaml");
    std::fs::write(&path, "policies: { plain: {}, strict: {} }\n").expect("a file");
    let scene = Scene::start("memory://policy-lacks", &format!("policies: {{ file: {} }}\n", path.display())).await;
    let policies = || async { scene.get("/health").await.1["checks"]["policies"][0].clone() };
    assert_eq!(policies().await["status"], "pass");
    std::fs::write(&path, "policies: { plain: {} }\n").expect("a file");
    within("health names the policy", || async {
        let policies = policies().await;
        policies["status"] == "warn" && policies["output"].as_str().is_some_and(|said| said.contains("strict"))
    })
    .await;
    assert_eq!(scene.get("/health").await.1["status"], "warn");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_file_that_becomes_something_else_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, aside) = (folder.path().join("policies.yaml"), folder.path().join("aside.yaml"));
    let good = "policies: { default: { retry: { max_attempts: 3 } } }\n";
    std::fs::write(&path, good).expect("a file");
    let more = format!("policies: {{ file: {}, default: default }}\n", path.display());
    let scene = Scene::start("memory://policy-file-odd", &more).await;
    let gateway = &scene.running.gateway;
    let remove = || {
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir(&path);
    };
    type Change<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let changes: [Change<'_>; 7] = [
        ("truncated", Box::new(|| std::fs::write(&path, &good[..20]).expect("a file"))),
        ("empty", Box::new(|| std::fs::write(&path, "").expect("a file"))),
        ("not text", Box::new(|| std::fs::write(&path, [0xff, 0xfe, 0, 1]).expect("a file"))),
        ("gone", Box::new(remove)),
        (
            "a folder",
            Box::new(|| {
                remove();
                std::fs::create_dir(&path).expect("a folder");
            }),
        ),
        (
            "a link to nothing",
            Box::new(|| {
                remove();
                std::os::unix::fs::symlink("nowhere", &path).expect("a link");
            }),
        ),
        (
            "a link to itself",
            Box::new(|| {
                remove();
                std::os::unix::fs::symlink(&path, &path).expect("a link");
            }),
        ),
    ];
    for (what, change) in changes {
        change();
        within(what, || async { gateway.policies.file_problem().is_some() }).await;
        assert!(gateway.policies.choose("default").is_ok(), "{what}: the last good one stays");
        let (_, shown) = scene.get("/api/policies").await;
        let problem = shown["file"]["problem"].as_str().unwrap_or_default().to_owned();
        assert!(!problem.is_empty() && !problem.contains(&*folder.path().to_string_lossy()), "{what}: {problem}");
        // As an orchestrator does it: a link to another file.
        remove();
        std::fs::write(&aside, good).expect("a file");
        std::os::unix::fs::symlink(&aside, &path).expect("a link");
        within("it is good again", || async { gateway.policies.file_problem().is_none() }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_its_server_starts_and_waits() {
    let mut server = Server::fresh();
    let url = server.url();
    crate::scene::store_policies(&url).await;
    server.kill9();
    let scene = Scene::start(&url, "").await;
    assert_eq!(scene.get("/livez").await.0, StatusCode::OK);
    assert_eq!(scene.get("/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    server.start_again();
    within("it is ready", || async { scene.get("/readyz").await.0 == StatusCode::OK }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_or_slow_upstream_costs_only_its_calls() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let status = scene.grpc.execute_with_resilience(http_call("nowhere", "GET", "/")).await.expect_err("dead");
    assert_eq!(status.code(), Code::Unavailable);
    let slow = EchoRequest { delay: Some(prost_types::Duration { seconds: 3, nanos: 0 }), ..Default::default() };
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (mut grpc, mut call) = (scene.grpc.clone(), echo_call(&slow));
        call.deadline = Some(prost_types::Duration { seconds: 0, nanos: 700_000_000 });
        calls.spawn(async move { grpc.execute_with_resilience(call).await.is_err() });
    }
    let begun = Instant::now();
    let call = http_call("example", "GET", "/items/1");
    scene.grpc.execute_with_resilience(call).await.expect("the other one responds");
    assert!(begun.elapsed() < Duration::from_millis(600), "{:?}", begun.elapsed());
    while let Some(failed) = calls.join_next().await {
        assert!(failed.expect("no panic"), "each ends at its deadline");
    }
    within("nothing is left", || async {
        scene.running.gateway.drain.in_flight() == 0 && scene.running.gateway.calls.count() == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_policy_file_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("policies.yaml");
    // The seeds' default, verbatim.
    let good = "policies:
  default:
    circuit_breaker: { failure_threshold: 5, success_threshold: 3, timeout: 30s }
    retry: { max_attempts: 3, base_delay: 100ms, max_delay: 10s, multiplier: 2.0, jitter_percent: 0.1 }
    timeout: { default: 5s }
    bulkhead: { max_concurrent: 100, max_queue: 50, queue_timeout: 5s }
";
    std::fs::write(&path, good).expect("a file");
    let more = format!("policies: {{ file: {}, default: default }}\n", path.display());
    let scene = Scene::start("memory://policy-file", &more).await;
    let mut call = http_call("example", "GET", "/items/1");
    call.policy = "default".into();
    // The upstream's own policy is not in this file; a caller may not name another that is not allowed.
    let gateway = &scene.running.gateway;
    assert!(gateway.policies.choose("default").is_ok());
    std::fs::write(&path, "policies: { default: { retry: { max_attempts: 0 } } }").expect("a file");
    within("it is noticed", || async { gateway.policies.file_problem().is_some() }).await;
    assert!(gateway.policies.choose("default").is_ok(), "the last good one stays");
    assert_eq!(scene.get("/health").await.1["checks"]["policies"][0]["status"], "warn");
    let (_, shown) = scene.get("/api/policies").await;
    assert!(shown["file"]["problem"].as_str().is_some_and(|text| text.contains("maxAttempts")), "{shown}");
    std::fs::write(&path, good).expect("a file");
    within("and that it is good again", || async { gateway.policies.file_problem().is_none() }).await;
    let bad = folder.path().join("bad.yaml");
    std::fs::write(&bad, "policies: [").expect("a file");
    let config = crate::scene::config(
        "memory://",
        "127.0.0.1:1",
        "127.0.0.1:1",
        &format!("policies: {{ file: {} }}\n", bad.display()),
    );
    assert!(resil_gateway::run::start(config).await.is_err(), "the first time it has to be valid");
    let _ = call;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_calls_than_allowed_are_shed() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let most = scene.running.gateway.config.limits.calls;
    // One more is asked for than there may be, and not without end.
    let asked = (0..=most).map(|_| scene.running.gateway.drain.enter());
    let passes: Vec<_> = asked.filter_map(Result::ok).collect();
    assert_eq!(passes.len(), most);
    let status = scene.grpc.execute_with_resilience(echo_call(&EchoRequest::default())).await.expect_err("shed");
    assert_eq!((status.code(), code(&status)), (Code::ResourceExhausted, "OVERLOADED"));
    drop(passes);
    scene.grpc.execute_with_resilience(echo_call(&EchoRequest::default())).await.expect("a response");
}
