//! What can be asked for, each as a user of the SDK would write it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use resil::breaker::{Breaker, BreakerSettings, CountingMode};
use resil::cache::CacheSettings;
use resil::correlation::correlated;
use resil::dead_letters::{DeadLettersSettings, Letter};
use resil::idempotency::IdempotencySettings;
use resil::limiter::Limit;
use resil::lock::LockSettings;
use resil::policy::retry_all;
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::{Client, Failure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::stage::{OwnError, Stage};
use crate::witness::Witness;

/// Longer than any test: who waits is to be served, or to be killed.
const PATIENCE: Duration = Duration::from_secs(60);

static KEPT: Mutex<BTreeMap<String, Breaker>> = Mutex::new(BTreeMap::new());

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    Lock { name: String, lease_ms: Option<u64> },
    Bulkhead { name: String, max: u32, queue: Option<u32>, priority: Option<u8> },
    Breaker { name: String, consecutive: u32, traceparent: Option<String> },
    Limit { name: String, key: String },
    Cached { name: String, key: String, codec: Codec },
    Idempotent { name: String, key: String, codec: Codec, lease_ms: u64 },
    FailLetter { name: String, id: String, payload: Value },
    TakeLetter { name: String },
    Follow { name: String, until: u64 },
    Said {},
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    Json,
    Bytes,
}

impl Ask {
    /// The value, or the code of what went wrong.
    pub async fn perform(
        self,
        client: &Client,
        stage: &Arc<Stage>,
        witness: &Witness,
        tag: u64,
    ) -> Result<Value, &'static str> {
        match self {
            Self::Lock { name, lease_ms } => {
                let lease = Duration::from_millis(lease_ms.unwrap_or(10_000));
                let lock = client.lock(&name, LockSettings::new().wait(PATIENCE).lease(lease)).unwrap();
                lock.with_lock(|held| stage.inside(tag, json!({ "fence": held.fence() }))).await.map_err(code)
            }
            Self::Bulkhead { name, max, queue, priority } => {
                let (queue, priority) = (queue.unwrap_or(1_000), priority.unwrap_or(5));
                let settings = SharedBulkheadSettings::new(max).max_wait(PATIENCE).max_queue(queue).priority(priority);
                let bulkhead = client.shared_bulkhead(&name, settings).unwrap();
                bulkhead.run(|| stage.inside(tag, json!({}))).await.map_err(code)
            }
            Self::Said {} => Ok(witness.said()),
            Self::Breaker { name, consecutive, traceparent } => {
                let options = BreakerSettings::new()
                    .consecutive_failures(consecutive)
                    .open_for(PATIENCE)
                    .mode(CountingMode::Exact);
                let breaker = client.breaker(&name, options).map_err(own_code)?;
                // Kept, as a service does: it hears of what the others do to it.
                KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(name, breaker.clone());
                let call = breaker.call(|| stage.inside(tag, json!({})));
                match traceparent {
                    Some(parent) => correlated(parent, call).await.map_err(code),
                    None => call.await.map_err(code),
                }
            }
            Self::Limit { name, key } => {
                let limit = client.limiter(&name, Limit::per_hour(1)).map_err(own_code)?;
                limit.acquire(&key).await.map_err(own_code).map(|()| Value::Null)
            }
            Self::Cached { name, key, codec } => cached(client, stage.clone(), tag, &name, &key, codec).await,
            Self::FailLetter { name, id, payload } => {
                let letters = client.dead_letters(&name, DeadLettersSettings::new()).map_err(own_code)?;
                let letter = Letter::new(id).payload(bytes_of(&payload)).kind("order");
                let verdict = letters.fail(&letter, "no paper").await.map_err(own_code)?;
                let verdict = serde_json::to_value(verdict).unwrap_or_default();
                Ok(verdict["verdict"].clone())
            }
            Self::Follow { name, until } => follow(client, stage, tag, &name, until).await,
            Self::TakeLetter { name } => {
                let letters = client.dead_letters(&name, DeadLettersSettings::new()).map_err(own_code)?;
                let letter = letters.take(1, PATIENCE).await.map_err(own_code)?.letters.remove(0);
                let seen = json!({
                    "id": letter.id(),
                    "payload": letter.payload().map(|payload| STANDARD.encode(payload)),
                    "kind": letter.kind(),
                    "error": letter.error(),
                });
                letter.done().await.map_err(own_code)?;
                Ok(seen)
            }
            Self::Idempotent { name, key, codec, lease_ms } => {
                let lease = Duration::from_millis(lease_ms);
                let settings = IdempotencySettings::new().lease(lease).wait(PATIENCE);
                let payments = client.idempotent(&name, settings).map_err(|error| error.code().text())?;
                let seen = |run: &resil::idempotency::Run| json!({ "attempt": run.attempt() });
                match codec {
                    Codec::Json => {
                        let run = payments.run_json(&key, b"", async |run| stage.inside(tag, seen(&run)).await);
                        Ok(run.await.map_err(code)?.value.unwrap_or_default())
                    }
                    Codec::Bytes => {
                        let work = async |run| stage.inside(tag, seen(&run)).await.map(|value| bytes_of(&value));
                        Ok(run_value(payments.run(&key, b"", work).await.map_err(code)?.value))
                    }
                }
            }
        }
    }
}

/// Calls under a stored policy, and says which version it is each time that it is another.
async fn follow(client: &Client, stage: &Arc<Stage>, tag: u64, name: &str, until: u64) -> Result<Value, &'static str> {
    let policy = client.policy(name).await.map_err(own_code)?;
    let (is_over, orders) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeSet::new())));
    let calling = (0..8).map(|_| {
        let (policy, is_over, orders) = (policy.clone(), Arc::clone(&is_over), Arc::clone(&orders));
        tokio::spawn(async move {
            let mut calls = 0u64;
            while !is_over.load(Ordering::Relaxed) {
                let now = policy.now();
                let order: Vec<&str> = now.order().iter().map(|stage| stage.text()).collect();
                orders.lock().unwrap_or_else(PoisonError::into_inner).insert(order.join(" "));
                policy.call(retry_all, || async { Ok::<_, OwnError>(()) }).await.map_err(code)?;
                calls += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok::<_, &'static str>(calls)
        })
    });
    let calling: Vec<_> = calling.collect();
    let mut last = 0;
    while last < until {
        while policy.version().unwrap_or_default() <= last {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        last = policy.version().unwrap_or_default();
        stage.inside(tag, json!({ "version": last })).await.map_err(|_| "OWN")?;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut calls = 0;
    for task in calling {
        calls += task.await.map_err(|_| "PANIC")??;
    }
    Ok(json!({ "calls": calls, "orders": &*orders.lock().unwrap_or_else(PoisonError::into_inner) }))
}

async fn cached(
    client: &Client,
    stage: Arc<Stage>,
    tag: u64,
    name: &str,
    key: &str,
    codec: Codec,
) -> Result<Value, &'static str> {
    // A load waits for a word, which a test may hold back for longer than a source would take.
    let settings = CacheSettings::new().load_timeout(PATIENCE);
    let cached = client.cached(name, settings).map_err(|error| error.code().text())?;
    match codec {
        Codec::Json => {
            let load = move |_| async move { stage.inside(tag, json!({})).await.map(Some) };
            Ok(cached.get_json(key, load).await.map_err(code)?.into_value().unwrap_or_default())
        }
        Codec::Bytes => {
            let load = move |_| async move { stage.inside(tag, json!({})).await.map(|value| Some(bytes_of(&value))) };
            Ok(run_value(cached.get(key, load).await.map_err(code)?.into_value()))
        }
    }
}

fn bytes_of(value: &Value) -> Bytes {
    STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default().into()
}

fn run_value(bytes: Option<Bytes>) -> Value {
    bytes.map_or(Value::Null, |bytes| STANDARD.encode(bytes).into())
}

fn own_code(error: resil::Error) -> &'static str {
    error.code().text()
}

fn code<E>(failure: Failure<E>) -> &'static str {
    match failure {
        Failure::Inner(_) => "OWN",
        Failure::Resil(error) => error.code().text(),
        Failure::Exhausted { .. } => resil::Code::RetryExhausted.text(),
    }
}

/// Its words cross processes; its type does not matter.
impl std::error::Error for OwnError {}
