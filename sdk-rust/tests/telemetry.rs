//! Telemetry as an operator sees it, on a real server: the scene of `tests/telemetry_scene.json`, names of connections, spans, hooks, and that
//! no secret is in any of it. A program of its own: recorder, subscriber and listeners are the process's.
#![cfg(feature = "redis")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use resil::breaker::BreakerSettings;
use resil::idempotency::IdempotencySettings;
use resil::limiter::Limit;
use resil::lock::LockSettings;
use resil::operator::KeyKind;
use resil::policy::{Hedge, HedgeSettings, Retry, RetrySettings, Timeout, retry_all};
use resil::telemetry::{Event, Hooks, Interest, MetricCounts, MetricValue, Primitive, subscribe};
use resil::{Client, ConnectSettings, Status};
use resil_harness::{Options, Server};

/// Every span and event, with all of its fields, as text.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl Said {
    fn put(&self, name: &str, record: impl FnOnce(&mut Line)) {
        let mut line = Line(name.to_owned());
        record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn all(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

impl tracing::Subscriber for Said {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("resil")
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        self.put(span.metadata().name(), |line| span.record(line));
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        self.put("record", |line| values.record(line));
    }

    fn event(&self, event: &tracing::Event<'_>) {
        self.put("event", |line| event.record(line));
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

fn series(counts: &MetricCounts) -> BTreeMap<String, u64> {
    let text = |(label, value): &(String, String)| format!("{label}={value}");
    let one = |sample: resil::telemetry::MetricSample| {
        let labels: Vec<String> = sample.labels.iter().map(text).collect();
        let MetricValue::Counter(count) = sample.value else { return None };
        Some((format!("{}{{{}}}", sample.metric, labels.join(",")), count))
    };
    counts.read().into_iter().filter_map(one).collect()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} does not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The steps of the scene.
async fn play(client: &Client, server: &mut Server) {
    let limit = client.limiter("scene", Limit::per_minute(2)).unwrap();
    for granted in [true, true, false] {
        assert_eq!(limit.check("secret-key").await.unwrap().is_granted(), granted);
    }
    let settings = RetrySettings { initial_backoff: Duration::from_millis(1), ..RetrySettings::default() };
    let (retry, attempts) = (Retry::new(&settings).unwrap().named("scene"), AtomicU32::new(0));
    let attempt = || async { if attempts.fetch_add(1, Ordering::Relaxed) == 0 { Err("secret-error") } else { Ok(()) } };
    retry.call(retry_all, attempt).await.unwrap();
    let settings = HedgeSettings { hedging_delay: Duration::from_millis(5), ..HedgeSettings::default() };
    let (hedge, calls) = (Hedge::new(&settings).unwrap().named("scene"), AtomicU32::new(0));
    let call = || async {
        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        Ok::<_, ()>(())
    };
    hedge.call(retry_all, call).await.unwrap();
    let timeout = Timeout::attempt(Duration::from_millis(5)).unwrap().named("scene");
    timeout.call(std::future::pending::<Result<(), ()>>).await.unwrap_err();
    let breaker = client.breaker("scene", BreakerSettings::new().consecutive_failures(1)).unwrap();
    breaker.call(async || Err::<(), _>("secret-error")).await.unwrap_err();
    breaker.state().await.unwrap();
    breaker.call(async || Ok::<_, &str>(())).await.unwrap_err();
    server.kill9();
    until("away", || client.health().overall != Status::Healthy).await;
    assert!(limit.check("another").await.unwrap().is_granted());
    server.start_again();
    until("back", || client.health().overall == Status::Healthy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_spans_and_hooks_show_the_scene_without_secrets() {
    let (counts, said) = (MetricCounts::new(), Said::default());
    metrics::set_global_recorder(counts.clone()).unwrap();
    tracing::subscriber::set_global_default(said.clone()).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hear = |kind: &'static str| {
        let heard = Arc::clone(&heard);
        move || heard.lock().unwrap().push(kind)
    };
    let (sleep, hedge, timeout, open, away, back, lost) =
        (hear("sleep"), hear("hedge"), hear("timeout"), hear("open"), hear("away"), hear("back"), hear("lost"));
    let panicking = Hooks::new().before_sleep(|_, _, _| panic!("secret-panic")).on_hedge(|_| panic!("again")).install();
    let _hooks = Hooks::new()
        .only("scene")
        .before_sleep(move |_, _, _| sleep())
        .on_hedge(move |_| hedge())
        .on_timeout(move |_, _, _| timeout())
        .on_open(move |_| open())
        .on_away(move |_, _| away())
        .on_back(move |_| back())
        .on_lost(move |primitive, _, reason| {
            assert_eq!((primitive, reason), (Primitive::Lock, "broken"));
            lost();
        })
        .install();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let called = Arc::clone(&calls);
    let _calls = subscribe(Interest::Calls, move |event| called.lock().unwrap().push(event.clone()));

    let mut server = Server::start(Options::default().config("requirepass", "secret-password"));
    let url = server.url().replace("redis://", "redis://:secret-password@");
    let client = ConnectSettings::new(url).name("scene").connect().await.unwrap();
    play(&client, &mut server).await;

    let scene: serde_json::Value = serde_json::from_str(include_str!("../../tests/telemetry_scene.json")).unwrap();
    let found = series(&counts);
    for (name, count) in scene["expected"].as_object().unwrap() {
        assert_eq!(found.get(name), count.as_u64().as_ref(), "{name} in {found:#?}");
    }
    let mut heard_once = heard.lock().unwrap().clone();
    heard_once.sort_unstable();
    assert_eq!(heard_once, ["away", "back", "hedge", "open", "sleep", "timeout"]);
    drop(panicking);

    // A lock that is taken away.
    let mine = client.lock("secret-42", LockSettings::new()).unwrap().labelled("scene");
    let held = mine.acquire().await.unwrap();
    client.operator().break_lock(&KeyKind::Lock.key("secret-42").unwrap(), "ann", "it hangs").await.unwrap();
    until("it is notified", || heard.lock().unwrap().contains(&"lost")).await;
    drop(held);

    // The other primitives, with secrets in every place that takes one.
    let pay = client.idempotent("pay", IdempotencySettings::new()).unwrap();
    pay.run("secret-key", b"secret-body", async |_| Ok::<_, String>("secret-result")).await.unwrap();
    let lock = client.lock("secret-lock", LockSettings::new().meta("secret-meta")).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    let all = said.all();
    for part in [
        "resil.limiter",
        "resil.breaker",
        "resil.lock",
        "resil.idempotency",
        "outcome=\"denied\"",
        "error.type",
        "otel.status_code",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
    let hooks_that_panicked = all.matches("a hook panicked").count();
    assert_eq!(hooks_that_panicked, 1, "once for each listener");
    let calls = std::mem::take(&mut *calls.lock().unwrap());
    assert!(calls.iter().any(|event| matches!(event, Event::Call(call) if call.outcome == "denied")), "{calls:?}");
    for text in [all, format!("{calls:?}"), format!("{found:?}"), format!("{:?}", client.health())] {
        assert!(!text.contains("secret"), "{text}");
    }
    let url = server.url().replace("redis://", "redis://:secret-password@");
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let listed: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).unwrap();
    let nameless: Vec<&str> =
        listed.lines().filter(|line| !line.contains("name=scene") && !line.contains("cmd=client")).collect();
    assert!(listed.contains("name=scene") && nameless.is_empty(), "{listed}");
    connecting_fails_with_a_reason_and_without_the_password().await;
    no_error_names_a_key_or_a_payload().await;
    assert!(!said.all().contains("secret"), "{}", said.all());
}

/// Not beside the scene, which would hear of this server, too.
async fn connecting_fails_with_a_reason_and_without_the_password() {
    let url = "redis://user:secret-password@127.0.0.1:1";
    let error = ConnectSettings::new(url).require_server().connect().await.unwrap_err();
    assert!(!error.to_string().contains("secret") && !error.to_string().contains("user"), "{error}");
    let away = ConnectSettings::new(url).connect().await.unwrap();
    let late = away.wait_ready(Duration::from_millis(50)).await.unwrap_err();
    assert!(!late.to_string().contains("secret"), "{late}");
    let health = away.health();
    assert!(health.since.is_some() && health.reason.is_some_and(|reason| !reason.contains("secret")));
}

/// Whatever a caller gets reported when something is refused, lost or full: the name of the handle, and nothing that it was asked with.
async fn no_error_names_a_key_or_a_payload() {
    let server = Server::start(Options::default());
    let client = ConnectSettings::new(server.url()).connect().await.unwrap();
    let mut errors: Vec<String> = Vec::new();
    let mut said = |error: &dyn std::fmt::Display, debug: &dyn std::fmt::Debug| {
        errors.push(format!("{error} / {debug:?}"));
    };
    // Idempotent work: another request, a run that lasts, one that was lost, one that is held, one that failed.
    let settings = IdempotencySettings::new().wait(Duration::ZERO).lease(Duration::from_secs(5));
    let pay = client.idempotent("pay", settings.clone()).unwrap();
    pay.run("secret-key", b"secret-body", async |_| Ok::<_, String>("secret-result")).await.unwrap();
    let other = pay.run("secret-key", b"secret-other", async |_| Ok::<_, String>("x")).await.unwrap_err();
    said(&other, &other);
    let (begun, is_begun) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn({
        let pay = pay.clone();
        async move {
            let work = async |_| {
                begun.send(()).ok();
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok::<_, String>("x")
            };
            pay.run("secret-busy", b"", work).await
        }
    });
    is_begun.await.unwrap();
    let elsewhere = ConnectSettings::new(server.url()).connect().await.unwrap();
    for client in [&client, &elsewhere] {
        let pay = client.idempotent("pay", settings.clone()).unwrap();
        let busy = pay.run("secret-busy", b"", async |_| Ok::<_, String>("x")).await.unwrap_err();
        said(&busy, &busy);
    }
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd("DEL").arg("resil:idemp:pay:{secret-busy}").exec(&mut connection).unwrap();
    let lost = running.await.unwrap().unwrap_err();
    said(&lost, &lost);
    // A cache whose loader fails elsewhere.
    let cached = |client: &Client| client.cached("user", resil::cache::CacheSettings::new()).unwrap();
    let (begun, is_begun) = tokio::sync::oneshot::channel::<()>();
    let there = tokio::spawn({
        let user = cached(&elsewhere);
        async move {
            let loader = |_| async move {
                begun.send(()).ok();
                tokio::time::sleep(Duration::from_millis(200)).await;
                Err::<Option<bytes::Bytes>, _>("the store is away")
            };
            user.get("secret-key", loader).await.map(drop).map_err(|error| error.to_string())
        }
    });
    is_begun.await.unwrap();
    let failed = cached(&client).get("secret-key", |_| async { Ok::<_, String>(None) }).await.unwrap_err();
    assert_eq!(failed.code(), Some(resil::Code::LoadFailed));
    said(&failed, &failed);
    there.await.unwrap().unwrap_err();
    // A ledger that knows other bytes under an id.
    let letters = client.dead_letters("orders", resil::dead_letters::DeadLettersSettings::new()).unwrap();
    let letter = |payload: &'static str| resil::dead_letters::Letter::new("secret-id").payload(payload);
    letters.fail(&letter("secret-payload"), "boom").await.unwrap();
    let conflict = letters.fail(&letter("secret-other"), "boom").await.unwrap_err();
    said(&conflict, &conflict);
    assert_eq!(errors.len(), 6, "{errors:#?}");
    for error in errors {
        assert!(!error.contains("secret"), "{error}");
    }
}
