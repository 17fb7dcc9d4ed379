//! All of it in one process, so that the first look shows life: a gateway on `memory://`, two upstreams, callers, locks, and a ledger with
//! messages that died.
//!
//! The gRPC upstream is fine. The HTTP one fails for some seconds of each minute, so its circuit opens and closes.

mod upstreams;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prost::Message;
use resil::Client;
use resil::dead_letters::{DeadLettersSettings, FailureNote, Letter};
use resil::lock::LockSettings;
use resil::settings::SharedBulkheadSettings;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Endpoint;

pub use self::upstreams::{EchoUpstream, HttpExample};
use crate::config::{Config, Secret, Span};
use crate::proto::resil::example::v1::EchoRequest;
use crate::proto::resil::v1 as proto;
use crate::proto::resil::v1::resilience_service_client::ResilienceServiceClient;
use crate::run::{self, Running, StartError};

const PAYMENTS: &str = r#"{"retry": {"maxAttempts": 3}, "timeout": {"attempt": "500ms", "total": "2s"},
    "breaker": {"consecutiveFailures": 5, "openFor": "5s"}, "rateLimit": {"limit": 600, "period": "1m", "burst": 60}}"#;
const CATALOG: &str = r#"{"retry": {"maxAttempts": 2}, "timeout": {"attempt": "300ms", "total": "1s"},
    "breaker": {"consecutiveFailures": 3, "openFor": "4s"}, "sharedBulkhead": {"maxConcurrentCalls": 4, "lease": "5s"}}"#;

/// A demo that runs.
pub struct Demo {
    pub running: Running,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Demo {
    pub async fn end(self) -> usize {
        self.stop.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await;
        self.running.end().await
    }
}

/// The configuration of the demo: `grpc` and `http` are the addresses of its upstreams.
pub fn config(grpc: &str, http: &str) -> Result<Config, StartError> {
    let text = format!(
        "redis: {{ url: \"memory://\" }}
instance: demo
upstreams:
  payments: {{ kind: grpc, address: \"http://{grpc}\", policy: payments }}
  catalog: {{ kind: http, address: \"http://{http}\", policy: catalog }}
services:
  payments: {{ probe: grpc, upstream: payments }}
  catalog: {{ probe: http, upstream: catalog, path: /health }}
  catalog-circuit: {{ probe: circuit, upstream: catalog }}
health: {{ every: 1s, after: 2 }}
drain: 3s
"
    );
    Ok(Config::from_text(&text)?)
}

pub async fn start(grpc_port: u16, http_port: u16) -> Result<Demo, StartError> {
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let is_broken = Arc::new(AtomicBool::new(false));
    let echo = EchoUpstream::start(stop.clone()).await;
    let example = HttpExample::start(Arc::clone(&is_broken), stop.clone()).await;
    let (echo, example) = match (echo, example) {
        (Ok(echo), Ok(example)) => (echo, example),
        (Err(error), _) | (_, Err(error)) => {
            return Err(StartError::Port("upstream", ([127, 0, 0, 1], 0).into(), error));
        }
    };
    let mut config = config(&echo.address.to_string(), &example.address.to_string())?;
    (config.grpc.port, config.http.port) = (grpc_port, http_port);
    config.redis.url = Secret::new("memory://");
    config.redis.command_timeout = Span(Duration::from_millis(500));
    let running = run::start(config).await?;
    let client = running.gateway.client.clone();
    client.policies().set("payments", PAYMENTS).actor("demo").reason("the first version").await?;
    client.policies().set("catalog", CATALOG).actor("demo").reason("the first version").await?;
    fill_ledger(&client).await?;
    let target = format!("http://{}", running.grpc_address);
    let work = |task| tasks.spawn(until(stop.clone(), task));
    work(Box::pin(break_now_and_then(is_broken)) as Task);
    work(Box::pin(call(target.clone(), true)));
    work(Box::pin(call(target.clone(), false)));
    work(Box::pin(call(target, false)));
    work(Box::pin(hold_locks(client.clone())));
    work(Box::pin(fill_bulkhead(client)));
    Ok(Demo { running, tasks, stop })
}

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

async fn until(stop: CancellationToken, task: Task) {
    tokio::select! {
        () = task => {}
        () = stop.cancelled() => {}
    }
}

async fn break_now_and_then(is_broken: Arc<AtomicBool>) {
    loop {
        tokio::time::sleep(Duration::from_secs(20)).await;
        is_broken.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(8)).await;
        is_broken.store(false, Ordering::Relaxed);
    }
}

async fn call(target: String, is_grpc: bool) {
    let Ok(endpoint) = Endpoint::from_shared(target) else { return };
    let mut client = ResilienceServiceClient::new(endpoint.connect_lazy());
    for number in 0_u64.. {
        let call = if is_grpc {
            let message = EchoRequest { text: format!("pay {number}"), ..Default::default() }.encode_to_vec().into();
            proto::execute_with_resilience_request::Call::Grpc(proto::GrpcCall {
                method: "resil.example.v1.EchoService/Echo".into(),
                message,
            })
        } else {
            proto::execute_with_resilience_request::Call::Http(proto::HttpCall {
                path: format!("/items/{}", number % 9),
                ..Default::default()
            })
        };
        let request = proto::ExecuteWithResilienceRequest {
            upstream: if is_grpc { "payments" } else { "catalog" }.to_owned(),
            call: Some(call),
            ..Default::default()
        };
        // What is refused is a part of the picture.
        let _ = client.execute_with_resilience(request).await;
        tokio::time::sleep(Duration::from_millis(rand::random_range(20..120))).await;
    }
}

async fn hold_locks(client: Client) {
    let Ok(lock) = client.lock("nightly-report", LockSettings::new().meta("demo")) else { return };
    loop {
        if let Ok(guard) = lock.acquire().await {
            let waits = lock.acquire_within(Duration::from_secs(8));
            let holds = async {
                tokio::time::sleep(Duration::from_secs(7)).await;
                let _ = guard.release().await;
            };
            let (waited, ()) = tokio::join!(waits, holds);
            if let Ok(guard) = waited {
                let _ = guard.release().await;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn fill_bulkhead(client: Client) {
    let Ok(bulkhead) = client.shared_bulkhead("exports", SharedBulkheadSettings::new(3)) else { return };
    loop {
        let stay = || async {
            if let Ok(guard) = bulkhead.enter().await {
                tokio::time::sleep(Duration::from_millis(rand::random_range(500..3_000))).await;
                let _ = guard.leave().await;
            }
        };
        tokio::join!(stay(), stay(), stay(), stay());
    }
}

/// Some messages that died of two causes.
async fn fill_ledger(client: &Client) -> Result<(), resil::Error> {
    let ledger = client.dead_letters("orders", DeadLettersSettings::new())?;
    for number in 0..14_u32 {
        let (kind, error) = match number % 3 {
            0 => ("InvoiceDue", "the tax service answered 500"),
            _ => ("OrderCreated", "timeout after 30 ms"),
        };
        let letter = Letter::of("orders", &number.to_string())
            .payload(format!(r#"{{"order":{number},"amount":{}}}"#, 10 + number))
            .kind(kind)
            .aggregate(format!("order-{}", number % 5));
        ledger.fail(&letter, FailureNote::new(error).dead_at_once()).await?;
    }
    Ok(())
}
