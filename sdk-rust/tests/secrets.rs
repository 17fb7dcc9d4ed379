//! Secrets in every place that takes one, and none of them in what the SDK says: log lines, spans, metrics, errors, `{:?}`, names of connections.
//! A program of its own: recorder and subscriber are the process's.
//!
//! Names of handles, and ids of messages, are no secrets: operators find things by them.
#![cfg(all(feature = "redis", feature = "amqp", feature = "postgres"))]

use std::fmt::{Debug, Display};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use resil::dead_letters::{DeadLettersSettings, Letter};
use resil::limiter::Limit;
use resil::lock::LockSettings;
use resil::policy::retry_all;
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::telemetry::{Interest, MetricCounts, subscribe};
use resil::worker::postgres::{OutboxSettings, OutboxSource};
use resil::worker::rabbit::{RabbitPublisher, RabbitSettings, RabbitSource};
use resil::worker::{Headers, LedgerSource, WorkError, WorkerSettings};
use resil::{Client, ConnectSettings};
use resil_harness::{Options, Server};

/// In every secret.
const SECRET: &str = "hunter2";

/// All that was said, by whatever way.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl Said {
    fn put(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn recorded(&self, name: &str, record: impl FnOnce(&mut Line)) {
        let mut line = Line(name.to_owned());
        record(&mut line);
        self.put(line.0);
    }

    fn debug(&self, what: &str, value: &dyn Debug) {
        self.put(format!("{what}: {value:?} {value:#?}"));
    }

    fn error<E: Display + Debug>(&self, what: &str, error: &E) {
        self.put(format!("{what}: {error} {error:?}"));
    }

    fn has(&self, part: &str) -> bool {
        self.any(|line| line.contains(part))
    }

    fn any(&self, is_it: impl Fn(&str) -> bool) -> bool {
        self.0.lock().unwrap().iter().any(|line| is_it(line))
    }
}

/// Every level: what is only said while somebody debugs is said, too.
impl tracing::Subscriber for Said {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("resil")
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        self.recorded(span.metadata().name(), |line| span.record(line));
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        self.recorded("record", |line| values.record(line));
    }

    fn event(&self, event: &tracing::Event<'_>) {
        self.recorded("event", |line| event.record(line));
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what} does not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Messages with secrets in payload, headers and aggregate, whose handlers fail, drop and give up with secrets in their errors.
async fn work(client: &Client, said: &Said) {
    let ledger = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    let headers: Headers = [("Authorization", "Bearer hunter2-token")].into_iter().collect();
    for fate in ["done", "retried", "dead", "dropped"] {
        let letter = Letter::of("shop", fate)
            .payload(format!("{fate} hunter2-payload"))
            .headers(headers.to_bytes().unwrap())
            .aggregate("hunter2-customer");
        said.debug("a letter", &letter);
        ledger.fail(&letter, "hunter2-first-error").await.unwrap();
    }
    let worker = client.worker("orders", WorkerSettings::new()).unwrap();
    let source = LedgerSource::new(client, "orders").unwrap();
    said.debug("a worker", &worker);
    said.debug("a source", &source);
    let (stop, seen, heard) = (worker.stopper(), Arc::new(Mutex::new(0)), said.clone());
    let running = worker.run(source, move |message| {
        heard.debug("a message", &message);
        let mut seen = seen.lock().unwrap();
        *seen += 1;
        if *seen == 4 {
            stop.cancel();
        }
        let fate = message.id().trim_start_matches("shop/").to_owned();
        async move {
            match &*fate {
                "done" => Ok(()),
                "retried" => Err(WorkError::retry("hunter2-error")),
                "dead" => Err(WorkError::permanent("hunter2-error")),
                _ => Err(WorkError::drop_message("hunter2-error")),
            }
        }
    });
    said.debug("a report", &running.await.unwrap());
    for line in ["a message was dropped", "a message is dead", "a message failed, and is retried"] {
        assert!(said.has(line), "{line} is in the log");
    }
    let taken = ledger.get("shop/dead").await.unwrap().expect("it is dead");
    assert!(taken.payload.as_ref().is_some_and(|payload| payload.ends_with(b"hunter2-payload")), "it was planted");
    let shown = format!("{taken:?}");
    assert!(!shown.contains("hunter2-payload") && !shown.contains("hunter2-token"), "{shown}");
}

/// Brokers and databases that are not there, with passwords in their addresses.
async fn connect_elsewhere(client: &Client, said: &Said) {
    let rabbit = RabbitSettings::new("amqp://shop:hunter2@127.0.0.1:1/%2f", "orders");
    said.debug("settings", &rabbit);
    let source = RabbitSource::new(client, rabbit.clone()).unwrap();
    let publisher = RabbitPublisher::new(client, &rabbit).unwrap();
    let outbox = OutboxSettings::new("postgres://shop:hunter2@127.0.0.1:1/shop");
    said.debug("settings", &outbox);
    let claims = OutboxSource::new(client, outbox).unwrap();
    let is_away = |name: &str| said.any(|line| line.contains("the broker is away") && line.contains(name));
    until("both are tried", || is_away("name=\"orders\"") && is_away("name=\"resil_outbox\"")).await;
    said.debug("a source", &source);
    said.debug("a publisher", &publisher);
    said.debug("its health", &publisher.health());
    said.debug("an outbox", &claims);
    for wrong in ["amqp://shop:hunter2@", "ftp://shop:hunter2@h/", "shop:hunter2"] {
        if let Err(error) = RabbitSource::new(client, RabbitSettings::new(wrong, "orders")) {
            said.error("a wrong broker", &error);
        }
        let error = OutboxSource::new(client, OutboxSettings::new(wrong)).expect_err("no database");
        said.error("a wrong database", &error);
        let error = ConnectSettings::new(wrong).connect().await.expect_err("no server");
        said.error("a wrong server", &error);
    }
}

/// A policy that is followed, around a function that fails.
async fn follow(client: &Client, said: &Said) {
    let policies = client.policies();
    policies.set("pay", r#"{"retry":{"maxAttempts":2,"initialBackoff":"1ms"}}"#).await.unwrap();
    let policy = client.policy("pay").await.unwrap();
    said.debug("a policy", &policy.now());
    let failed = policy.call(retry_all, || async { Err::<(), _>("hunter2-error".to_owned()) }).await.unwrap_err();
    // The caller's own error is the caller's; what is said of it is not.
    said.put(format!("{:?}", failed.code()));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_anything_that_is_said() {
    let (counts, said) = (MetricCounts::new(), Said::default());
    metrics::set_global_recorder(counts.clone()).unwrap();
    tracing::subscriber::set_global_default(said.clone()).unwrap();
    let calls = said.clone();
    let _calls = subscribe(Interest::Calls, move |event| calls.debug("a call", event));
    let server = Server::start(Options::default().config("requirepass", "hunter2-password"));
    let url = server.url().replace("redis://", "redis://:hunter2-password@");
    let settings = ConnectSettings::new(url.clone()).name("shop");
    said.debug("settings", &settings);
    let client = settings.connect().await.unwrap();

    work(&client, &said).await;
    connect_elsewhere(&client, &said).await;
    follow(&client, &said).await;
    let limiter = client.limiter("api", Limit::per_hour(1)).unwrap();
    let lock = client.lock("hunter2-lock", LockSettings::new().meta("hunter2-meta")).unwrap();
    let bulkhead = client.shared_bulkhead("hunter2-pool", SharedBulkheadSettings::new(1)).unwrap();
    limiter.check("hunter2-key").await.unwrap();
    said.error("a limit", &limiter.acquire("hunter2-key").await.unwrap_err());
    let _held = lock.acquire().await.unwrap();
    let _inside = bulkhead.enter().await.unwrap();

    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let listed: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).unwrap();
    said.put(listed);
    said.debug("a client", &client);
    said.debug("its health", &client.health());
    said.debug("a limiter", &limiter);
    said.debug("counts", &counts.read());
    let lines = said.0.lock().unwrap();
    assert!(lines.len() > 50, "{}", lines.len());
    // As text, and as `{:?}` shows bytes.
    let bytes = format!("{:?}", SECRET.as_bytes());
    let shown = bytes.trim_matches(['[', ']']);
    let leaks: Vec<&String> = lines.iter().filter(|line| line.contains(SECRET) || line.contains(shown)).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}
