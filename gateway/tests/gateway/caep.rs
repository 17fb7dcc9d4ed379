//! Changes of health: one event for each, from one of several gateways, delivered at least once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::routing::post;
use parking_lot::Mutex;
use resil_gateway::config::Config;
use resil_gateway::health::HealthState;
use resil_gateway::run;
use resil_harness::Server;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::scene::{config, store_policies, within, within_time};

#[derive(Default)]
struct Inbox {
    events: Mutex<Vec<Value>>,
    refuses: AtomicBool,
}

/// Somebody who wants to know.
async fn webhook(inbox: Arc<Inbox>) -> String {
    let take = async |State(inbox): State<Arc<Inbox>>, headers: http::HeaderMap, body: String| {
        if headers.get("authorization").is_none_or(|value| value != "Bearer hook-secret") {
            return http::StatusCode::UNAUTHORIZED;
        }
        if inbox.refuses.load(Ordering::Relaxed) {
            return http::StatusCode::SERVICE_UNAVAILABLE;
        }
        inbox.events.lock().push(serde_json::from_str(&body).expect("JSON"));
        http::StatusCode::ACCEPTED
    };
    let router = axum::Router::new().route("/events", post(take)).with_state(inbox);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/events")
}

fn reported(event: &Value) -> (String, String, String) {
    let (_, reported) = event["events"].as_object().and_then(|events| events.iter().next()).expect("one event");
    let text = |name: &str| reported[name].as_str().unwrap_or_default().to_owned();
    (text("service"), text("previous_status"), text("current_status"))
}

/// A webhook that responds everything with this, after a while.
async fn bad_webhook(status: u16, after: std::time::Duration) -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let reply = async move || {
        counted.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(after).await;
        // To a place where it would be taken, if anybody followed.
        (http::StatusCode::from_u16(status).expect("a status"), [("location", "http://127.0.0.1:1/elsewhere")])
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = axum::Router::new().fallback(reply);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}/events"), asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_fails_holds_up_no_other() {
    use std::time::Duration;
    let inbox = Arc::new(Inbox::default());
    let good = webhook(Arc::clone(&inbox)).await;
    let mut bad = Vec::new();
    for (status, after) in [(500, 0), (302, 0), (400, 0), (200, 60_000)] {
        bad.push(bad_webhook(status, Duration::from_millis(after)).await);
    }
    let stop = CancellationToken::new();
    let is_broken = Arc::new(AtomicBool::new(false));
    let example = resil_gateway::demo::HttpExample::start(Arc::clone(&is_broken), stop.clone()).await.expect("a port");
    let text = "services: { example: { probe: http, upstream: example, path: /items/1 } }\n";
    let mut config = config("memory://bad-hooks", "127.0.0.1:1", &example.address.to_string(), text);
    let hook = |url: &str| {
        let secret = resil_gateway::config::Secret::new;
        resil_gateway::config::WebhookConfig { url: secret(url), token: Some(secret("hook-secret")), token_file: None }
    };
    config.health.webhooks = bad.iter().map(|(url, _)| hook(url)).chain([hook(&good)]).collect();
    let running = run::start(config).await.expect("started");
    let gateway = Arc::clone(&running.gateway);
    within("it is known", || async { gateway.health.views().iter().all(|view| view.state.is_some()) }).await;
    within("it reports", || async { gateway.reporter.is_reporter() }).await;
    for number in 0..4 {
        is_broken.store(number % 2 == 0, Ordering::Relaxed);
        within("the good one hears of it", || async { inbox.events.lock().len() > number }).await;
    }
    for (url, asked) in &bad {
        within("each is asked", || async { asked.load(Ordering::Relaxed) > 0 }).await;
        assert!(!url.contains("elsewhere"));
    }
    let order: Vec<String> = inbox.events.lock().iter().map(|event| reported(event).2).collect();
    assert_eq!(order, ["unhealthy", "healthy", "unhealthy", "healthy"]);
    // What cannot be sent does not keep it from ending.
    let ended = tokio::time::timeout(Duration::from_secs(10), running.end()).await;
    assert_eq!(ended.expect("in time"), 0);
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_was_away_gets_every_event_in_order() {
    const CHANGES: usize = 6;
    let (away, other) = (Arc::new(Inbox::default()), Arc::new(Inbox::default()));
    let (stop, is_broken) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
    let example = resil_gateway::demo::HttpExample::start(Arc::clone(&is_broken), stop.clone()).await.expect("a port");
    let text = "services: { example: { probe: http, upstream: example, path: /items/1 } }\n";
    let mut config = config("memory://away-hook", "127.0.0.1:1", &example.address.to_string(), text);
    for inbox in [&away, &other] {
        let secret = resil_gateway::config::Secret::new;
        let (url, token) = (secret(webhook(Arc::clone(inbox)).await), Some(secret("hook-secret".to_owned())));
        config.health.webhooks.push(resil_gateway::config::WebhookConfig { url, token, token_file: None });
    }
    let running = run::start(config).await.expect("started");
    let gateway = Arc::clone(&running.gateway);
    within("it is known", || async { gateway.health.views().iter().all(|view| view.state.is_some()) }).await;
    within("it reports", || async { gateway.reporter.is_reporter() }).await;
    away.refuses.store(true, Ordering::Relaxed);
    for number in 0..CHANGES {
        is_broken.store(number % 2 == 0, Ordering::Relaxed);
        within("it is reported", || async { other.events.lock().len() > number }).await;
    }
    away.refuses.store(false, Ordering::Relaxed);
    // The pause after a refusal grows up to 30 s.
    within_time("it gets them all", Duration::from_secs(45), || async { away.events.lock().len() >= CHANGES }).await;
    assert_eq!(*away.events.lock(), *other.events.lock());
    assert_eq!(running.end().await, 0);
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_send_one_event_for_each_change() {
    let server = Server::fresh();
    store_policies(&server.url()).await;
    let inbox = Arc::new(Inbox::default());
    let hook = webhook(Arc::clone(&inbox)).await;
    let (stop, is_broken) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
    let example = resil_gateway::demo::HttpExample::start(Arc::clone(&is_broken), stop.clone()).await.expect("a port");
    let own = || -> Config {
        let text = "services: { example: { probe: http, upstream: example, path: /items/1 } }\n";
        let mut config = config(&server.url(), "127.0.0.1:1", &example.address.to_string(), text);
        let url = resil_gateway::config::Secret::new(hook.clone());
        let token = Some(resil_gateway::config::Secret::new("hook-secret"));
        config.health.webhooks = vec![resil_gateway::config::WebhookConfig { url, token, token_file: None }];
        config
    };
    let one = run::start(own()).await.expect("started");
    let two = run::start(own()).await.expect("started");
    let both = |state: HealthState| {
        let (one, two) = (Arc::clone(&one.gateway), Arc::clone(&two.gateway));
        move || {
            let are = one.health.overall() == state && two.health.overall() == state;
            let known =
                [&one, &two].iter().all(|gateway| gateway.health.views().iter().all(|view| view.state.is_some()));
            async move { are && known }
        }
    };
    within("both know", both(HealthState::Healthy)).await;
    within("one reports", || async { one.gateway.reporter.is_reporter() != two.gateway.reporter.is_reporter() }).await;
    for number in 0..6 {
        let state = if number % 2 == 0 { HealthState::Unhealthy } else { HealthState::Healthy };
        is_broken.store(state == HealthState::Unhealthy, Ordering::Relaxed);
        within("both see it", both(state)).await;
        within("it is sent", || async { inbox.events.lock().len() > number }).await;
    }
    // The reporter goes, in the middle of a change that nobody could be notified of; the other one takes over.
    inbox.refuses.store(true, Ordering::Relaxed);
    is_broken.store(true, Ordering::Relaxed);
    within("both see it", both(HealthState::Unhealthy)).await;
    let (reporter, heir) = if one.gateway.reporter.is_reporter() { (one, two) } else { (two, one) };
    reporter.end().await;
    inbox.refuses.store(false, Ordering::Relaxed);
    within("the heir sends it", || async { inbox.events.lock().len() > 6 }).await;
    is_broken.store(false, Ordering::Relaxed);
    within("and goes on", || async { inbox.events.lock().len() > 7 }).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let events = inbox.events.lock().clone();
    // At least once, by one id: copies of one event are the same.
    let mut by_id: BTreeMap<String, Value> = BTreeMap::new();
    let mut order = Vec::new();
    for event in &events {
        let id = event["jti"].as_str().expect("an id").to_owned();
        match by_id.get(&id) {
            Some(known) => assert_eq!(known, event),
            None => {
                order.push(reported(event));
                by_id.insert(id, event.clone());
            }
        }
    }
    let (sick, well) = ("unhealthy".to_owned(), "healthy".to_owned());
    let expected: Vec<_> = (0..8)
        .map(|number| {
            let (before, after) = if number % 2 == 0 { (&well, &sick) } else { (&sick, &well) };
            ("example".to_owned(), before.clone(), after.clone())
        })
        .collect();
    assert_eq!(order, expected);
    println!("8 changes, {} deliveries", events.len());
    assert_eq!(heir.end().await, 0);
    stop.cancel();
}
