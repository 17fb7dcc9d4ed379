//! The JSON API: every view and action of the dashboard, as docs/gateway-api.md says it.

use std::time::Duration;

use http::{Request, StatusCode};
use resil::dead_letters::{DeadLettersSettings, FailureNote, Letter};
use resil::lock::LockSettings;
use resil_harness::Server;
use serde_json::{Value, json};

use crate::scene::{Scene, send, within};

fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        value.as_object().map(|map| map.keys().map(String::as_str).collect()).unwrap_or_default();
    names.sort_unstable();
    names
}

fn because(more: Value) -> Value {
    let mut body = json!({"actor": "ann", "reason": "bank maintenance"});
    body.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn circuits_are_listed_shown_forced_and_reset() {
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let key = "resil:policy:%7Bstrict%7D";
    let (status, forced) =
        scene.post(&format!("/api/circuits/{key}/force"), &because(json!({"state": "open", "forMs": 60_000}))).await;
    assert_eq!((status, forced), (StatusCode::OK, json!({"state": "forced-open"})));
    let (_, list) = scene.get("/api/circuits?state=forced-open").await;
    let row = &list["circuits"][0];
    assert_eq!(
        (row["name"].as_str(), row["key"].as_str(), row["policy"].as_bool()),
        (Some("strict"), Some("resil:policy:{strict}"), Some(true))
    );
    assert_eq!((row["forcedBy"].as_str(), row["forcedReason"].as_str()), (Some("ann"), Some("bank maintenance")));
    let expected = [
        "calls",
        "failureRatePct",
        "failures",
        "forcedBy",
        "forcedReason",
        "forcedUntilMs",
        "key",
        "name",
        "policy",
        "sinceMs",
        "state",
        "trips",
    ];
    assert_eq!(fields(row), expected);
    within("the transition is shown", || async {
        scene.get(&format!("/api/circuits/{key}")).await.1["transitions"].as_array().is_some_and(|all| !all.is_empty())
    })
    .await;
    let (_, circuit) = scene.get(&format!("/api/circuits/{key}")).await;
    assert_eq!(
        (circuit["state"].as_str(), circuit["admits"].as_bool(), circuit["forced"]["by"].as_str()),
        (Some("forced-open"), Some(false), Some("ann"))
    );
    assert_eq!(
        (&circuit["transitions"][0]["state"], &circuit["transitions"][0]["actor"]),
        (&json!("forced-open"), &json!("ann"))
    );
    let (status, problem) =
        scene.post(&format!("/api/circuits/{key}/force"), &json!({"state": "open", "actor": "ann"})).await;
    assert_eq!((status, problem["field"].as_str()), (StatusCode::BAD_REQUEST, Some("reason")), "{problem}");
    let (status, problem) = scene.post(&format!("/api/circuits/{key}/force"), &because(json!({"state": "ajar"}))).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::BAD_REQUEST, Some("INVALID_ARGUMENT")));
    assert_eq!(scene.post(&format!("/api/circuits/{key}/reset"), &because(json!({}))).await.1, json!({"reset": true}));
    let (_, audit) = scene.get("/api/audit").await;
    let newest = &audit["audit"][0];
    assert_eq!(
        (newest["type"].as_str(), newest["actor"].as_str(), newest["outcome"].as_str()),
        (Some("circuit.reset"), Some("ann"), Some("done"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_bulkheads_limits_and_work_are_shown() {
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let client = resil::connect(&server.url()).await.expect("the server");
    let lock = client.lock("reports", LockSettings::new().meta("nightly")).expect("settings");
    let held = lock.acquire().await.expect("free");
    let waiting = tokio::spawn({
        let other = resil::connect(&server.url())
            .await
            .expect("the server")
            .lock("reports", LockSettings::new())
            .expect("settings");
        async move { other.acquire_within(Duration::from_secs(20)).await.map(|_| ()) }
    });
    within("it is contended", || async { scene.get("/api/locks").await.1["locks"][0]["waiters"] == 1 }).await;
    let (_, lock) = scene.get("/api/locks/resil:lock:%7Breports%7D").await;
    assert_eq!(
        (lock["holdersTotal"].as_u64(), lock["waitersTotal"].as_u64(), lock["holders"][0]["meta"].as_str()),
        (Some(1), Some(1), Some("nightly"))
    );
    let (_, work) = scene.get("/api/work").await;
    assert!(work["waiting"][0]["kind"] == "lock" && work["held"][0]["kind"] == "lock", "{work}");
    assert_eq!((&work["runs"], &work["loads"]), (&json!([]), &json!([])), "{work}");
    let (status, broken) = scene.post("/api/locks/resil:lock:%7Breports%7D/break", &because(json!({}))).await;
    assert_eq!((status, broken), (StatusCode::OK, json!({"broken": 1})));
    assert!(waiting.await.expect("no panic").is_ok(), "the next one has it");
    drop(held);
    let limiter = client.limiter("api", resil::limiter::Limit::new(1, Duration::from_secs(60))).expect("a limit");
    // An SDK that was refused does not ask again for a while, so many callers are refused once each.
    for number in 0..300 {
        for _ in 0..2 {
            let _ = limiter.check(format!("u{number}")).await;
        }
    }
    let (_, peek) = scene.get("/api/limits/peek?name=api&subject=u42&limit=1&periodMs=60000&burst=&window=").await;
    assert_eq!(
        (peek["allowed"].as_bool(), peek["limit"].as_u64(), peek["remaining"].as_u64()),
        (Some(false), Some(1), Some(0)),
        "{peek}"
    );
    let (_, limits) = scene.get("/api/limits?limit=128").await;
    let refused = limits["denied"].as_array().expect("a list").iter().filter(|row| row["kind"] == "limit").count();
    assert!(refused > 0, "{limits}");
    let (_, overview) = scene.get("/api/overview").await;
    assert_eq!(
        (overview["policies"]["live"].as_u64(), overview["redis"]["status"].as_str()),
        (Some(2), Some("healthy")),
        "{overview}"
    );
    assert_eq!(scene.get("/api/bulkheads").await.1, json!({"bulkheads": []}));
    let upstreams = scene.get("/api/upstreams").await.1;
    assert_eq!(upstreams["upstreams"][0]["name"], "echo");
    assert!(!upstreams.to_string().contains("127.0.0.1"), "no addresses: {upstreams}");
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_checked_compared_stored_and_rolled_back() {
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let (_, checked) = scene.post("/api/policies/check", &json!({"document": "retry: { maxAttempts: 0 }"})).await;
    assert_eq!(
        (checked["valid"].as_bool(), checked["field"].as_str()),
        (Some(false), Some("retry.maxAttempts")),
        "{checked}"
    );
    let document = "retry: { maxAttempts: 4 }";
    assert_eq!(scene.post("/api/policies/check", &json!({ "document": document })).await.1["valid"], true);
    let body = because(json!({"document": document, "expectedVersion": 0}));
    assert_eq!(scene.post("/api/policies/shop", &body).await.1, json!({"version": 1, "action": "created"}));
    let (status, conflict) =
        scene.post("/api/policies/shop", &body_with(&body, "document", json!("retry: { maxAttempts: 5 }"))).await;
    assert_eq!((status, conflict["code"].as_str()), (StatusCode::CONFLICT, Some("VERSION_CONFLICT")), "{conflict}");
    let (_, diff) = scene.post("/api/policies/shop/diff", &json!({"document": "retry: { maxAttempts: 7 }"})).await;
    assert_eq!(
        (diff["from"].as_u64(), &diff["changes"]),
        (Some(1), &json!([{"path": "retry.maxAttempts", "before": 4, "after": 7}]))
    );
    let second = because(json!({"document": "retry: { maxAttempts: 7 }", "expectedVersion": 1}));
    assert_eq!(scene.post("/api/policies/shop", &second).await.1["version"], 2);
    let back = because(json!({"version": 1, "expectedVersion": 2}));
    assert_eq!(scene.post("/api/policies/shop/rollback", &back).await.1, json!({"version": 3, "action": "changed"}));
    let (_, policy) = scene.get("/api/policies/shop").await;
    assert!(
        policy["version"] == 3 && policy["document"].as_str().is_some_and(|text| text.contains("\"maxAttempts\": 4")),
        "{policy}"
    );
    assert_eq!(scene.get("/api/policies/shop/history").await.1["versions"].as_array().map(Vec::len), Some(3));
    assert_eq!(scene.get("/api/policies/shop/versions/2").await.1["version"], 2);
    assert_eq!(
        scene.post("/api/policies/shop/delete", &because(json!({}))).await.1,
        json!({"version": 4, "action": "deleted"})
    );
    assert_eq!(scene.get("/api/policies/shop").await.0, StatusCode::NOT_FOUND);
    assert_eq!(scene.post("/api/policies/shop/delete", &because(json!({}))).await.0, StatusCode::NOT_FOUND);
    let no_version = because(json!({"version": 99}));
    assert_eq!(scene.post("/api/policies/shop/rollback", &no_version).await.0, StatusCode::NOT_FOUND);
    assert_eq!(scene.get("/api/policies").await.1["policies"].as_array().map(Vec::len), Some(2));
}

fn body_with(body: &Value, name: &str, value: Value) -> Value {
    let mut body = body.clone();
    body[name] = value;
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_redriven_until_it_is_verified() {
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let client = resil::connect(&server.url()).await.expect("the server");
    let orders = client.dead_letters("orders", DeadLettersSettings::new()).expect("settings");
    for number in 0..3 {
        let letter = Letter::of("orders", &number.to_string())
            .payload(format!("order {number}"))
            .kind("OrderCreated")
            .aggregate("o-1");
        orders
            .fail(&letter, FailureNote::new(format!("timeout after {number} ms")).dead_at_once())
            .await
            .expect("stored");
    }
    let ledger = "/api/ledgers/resil:dlq:%7Borders%7D";
    let (_, list) = scene.get("/api/ledgers").await;
    assert_eq!(
        (list["ledgers"][0]["name"].as_str(), list["ledgers"][0]["dead"].as_u64()),
        (Some("orders"), Some(3)),
        "{list}"
    );
    let (_, groups) = scene.get(&format!("{ledger}/groups")).await;
    let group = groups["groups"][0]["group"].as_str().expect("a group").to_owned();
    assert_eq!((groups["groups"].as_array().map(Vec::len), groups["groups"][0]["dead"].as_u64()), (Some(1), Some(3)));
    let (_, entries) = scene.get(&format!("{ledger}/entries?state=dead&kind=OrderCreated&limit=2")).await;
    assert_eq!(entries["entries"].as_array().map(Vec::len), Some(2));
    let cursor = entries["cursor"].as_str().expect("there is more").to_owned();
    let (_, rest) = scene.get(&format!("{ledger}/entries?state=dead&limit=2&cursor={cursor}")).await;
    assert_eq!(rest["entries"].as_array().map(Vec::len), Some(1), "{rest}");
    let (_, entry) = scene.get(&format!("{ledger}/entries/orders%2F1")).await;
    assert_eq!(
        (entry["payload"]["text"].as_str(), entry["state"].as_str()),
        (Some("order 1"), Some("dead")),
        "{entry}"
    );
    let steps: Vec<&str> =
        entry["timeline"].as_array().expect("a list").iter().filter_map(|step| step["what"].as_str()).collect();
    assert!(steps.contains(&"failed") && steps.contains(&"died") && steps.last() == Some(&"now"), "{steps:?}");
    assert_eq!(scene.get(&format!("{ledger}/entries/nothing")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        scene.post(&format!("{ledger}/hold"), &because(json!({"id": "orders/2", "on": true}))).await.1,
        json!({"count": 1})
    );
    let diagnosis = json!({"groups": [group], "category": "infrastructure", "cause": "the bank was away", "fix": "it is back", "actor": "ann"});
    let (status, case) = scene.post(&format!("{ledger}/cases"), &diagnosis).await;
    assert_eq!((status, case["case"].as_u64()), (StatusCode::OK, Some(1)), "{case}");
    let (_, dry) = scene.post(&format!("{ledger}/cases/1/dry-run"), &json!({})).await;
    assert_eq!(
        (dry["matched"].as_u64(), dry["complete"].as_bool()),
        (Some(2), Some(true)),
        "the held one is left out: {dry}"
    );
    let (status, refused) = scene.post(&format!("{ledger}/cases/9/redrive"), &json!({"actor": "ann"})).await;
    assert_eq!((status, refused["code"].as_str()), (StatusCode::CONFLICT, Some("REDRIVE_REFUSED")), "{refused}");
    let redrive = json!({"actor": "ann", "rate": {"count": 1_000, "periodMs": 60_000}, "first": 1});
    assert_eq!(scene.post(&format!("{ledger}/cases/1/redrive"), &redrive).await.1["matched"], 2);
    let progress = scene.get(&format!("{ledger}/cases/1/progress")).await.1;
    assert_eq!(
        (progress["verified"].as_bool(), progress["progress"]["rate"]["periodMs"].as_u64()),
        (Some(false), Some(60_000)),
        "{progress}"
    );
    let worker = tokio::spawn(async move {
        let stop = tokio_util::sync::CancellationToken::new();
        let judge = |_: &std::io::Error| -> resil::dead_letters::Settlement { unreachable!("nothing fails") };
        orders.run_until(&stop, judge, async |_| Ok::<_, std::io::Error>(())).await
    });
    within("it is verified", || async { scene.get(&format!("{ledger}/cases/1/progress")).await.1["verified"] == true })
        .await;
    worker.abort();
    assert_eq!(
        scene.post(&format!("{ledger}/hold"), &because(json!({"id": "orders/2", "on": false}))).await.1,
        json!({"count": 1})
    );
    let (_, audit) = scene.get(&format!("{ledger}/audit")).await;
    assert!(audit["audit"].as_array().is_some_and(|audit| audit.len() >= 3), "{audit}");
    assert_eq!(scene.get("/api/alerts?seen=true").await.0, StatusCode::OK);
    assert_eq!(scene.post(&format!("{ledger}/pause"), &because(json!({"paused": true}))).await.1, json!({"ok": true}));
    assert_eq!(scene.get("/api/ledgers").await.1["ledgers"][0]["state"], "paused");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_streamed_and_caught_up_with() {
    use http_body_util::BodyExt;
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let open = async |last: Option<&str>| {
        let mut request = Request::get(format!("http://{}/api/events", scene.running.http_address));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let request = request.body(http_body_util::Full::default()).expect("a request");
        crate::scene::http_client().request(request).await.expect("a stream")
    };
    let mut response = open(None).await;
    assert_eq!(
        (response.status(), &response.headers()["content-type"]),
        (StatusCode::OK, &"text/event-stream".parse::<http::HeaderValue>().expect("a value"))
    );
    let mut text = String::new();
    let mut read = async |text: &mut String, wanted: &str| {
        while !text.contains(wanted) {
            let frame = tokio::time::timeout(Duration::from_secs(10), response.frame())
                .await
                .unwrap_or_else(|_| panic!("{wanted} in {text}"));
            let frame = frame.expect("the stream goes on").expect("no error");
            text.push_str(&String::from_utf8_lossy(frame.data_ref().map_or(&[][..], |data| &data[..])));
        }
    };
    read(&mut text, "event: hello").await;
    within("the feed listens", || async { *scene.running.gateway.feed.listening().borrow() }).await;
    scene.post("/api/circuits/resil:policy:%7Bstrict%7D/force", &because(json!({"state": "open"}))).await;
    read(&mut text, "event: circuit").await;
    read(&mut text, "event: audit").await;
    scene.post("/api/policies/shop", &because(json!({"document": "{}"}))).await;
    read(&mut text, "event: policy").await;
    let last = text.split("id: ").nth(1).and_then(|rest| rest.lines().next()).expect("an id").to_owned();
    let mut again = open(Some(&last)).await;
    let mut missed = String::new();
    while !missed.contains("event: policy") {
        let frame = tokio::time::timeout(Duration::from_secs(10), again.frame())
            .await
            .expect("in time")
            .expect("goes on")
            .expect("no error");
        missed.push_str(&String::from_utf8_lossy(frame.data_ref().map_or(&[][..], |data| &data[..])));
    }
    assert!(!missed.contains("event: gap"), "{missed}");
    let mut lost = open(Some("999999")).await;
    let frame = lost.frame().await.expect("goes on").expect("no error");
    let mut begun = String::from_utf8_lossy(frame.data_ref().map_or(&[][..], |data| &data[..])).into_owned();
    if !begun.contains("event: gap") {
        let frame = lost.frame().await.expect("goes on").expect("no error");
        begun.push_str(&String::from_utf8_lossy(frame.data_ref().map_or(&[][..], |data| &data[..])));
    }
    assert!(begun.contains("event: gap"), "{begun}");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_metrics_tell_how_it_is() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let call = crate::scene::echo_call(&resil_gateway::proto::resil::example::v1::EchoRequest::default());
    scene.grpc.execute_with_resilience(call).await.expect("a response");
    let (status, headers, page) = send(&scene, Request::get("/metrics"), "").await;
    assert_eq!(
        (status, headers["content-type"].to_str().is_ok_and(|kind| kind.starts_with("text/plain; version=0.0.4"))),
        (StatusCode::OK, true)
    );
    let page = page.as_str().expect("text");
    for line in [
        "# TYPE resil_gateway_call_seconds histogram",
        r#"resil_gateway_call_seconds_count{upstream="echo",outcome="ok"} 1"#,
        "resil_gateway_redis_up 1",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    let families: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let mut unique = families.clone();
    unique.dedup();
    assert_eq!(families, unique, "each family once");
    let (status, headers, health) = send(&scene, Request::get("/health"), "").await;
    assert_eq!(
        (status, &headers["content-type"], health["status"].as_str()),
        (StatusCode::OK, &"application/health+json".parse::<http::HeaderValue>().expect("a value"), Some("pass"))
    );
    assert_eq!(send(&scene, Request::get("/readyz"), "").await.2, json!("ready\n"));
}
