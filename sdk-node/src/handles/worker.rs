//! Messages of a queue, handled by a function: workers, publishers, and the texts of what belongs in a database.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use napi::bindgen_prelude::{Buffer, Env};
use napi_derive::napi;
use resil::settings::{OutgoingSettings, VerdictSettings};
use resil::worker::{
    self, AnyPublisher, ForeignError, OutgoingMessage, SourceSettings, Upcasters, WorkError, WorkerMessage, postgres,
};
use resil::{Error, Failure};
use serde_json::{Value, json};

use crate::client::Client;
use crate::convert::{DIALECT, now, run, run_with, settings, shown};
use crate::executor::Word;
use crate::executor::attempt::Detail;
use crate::thrown::Thrown;

fn value_of(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|error| Error::InvalidArgument(format!("the settings are not JSON: {error}")))
}

/// A message, as its handler sees it.
#[napi(object, object_from_js = false)]
pub struct WorkParts {
    pub json: String,
    pub payload: Buffer,
}

fn parts(message: &WorkerMessage) -> WorkParts {
    let headers: serde_json::Map<String, Value> =
        message.headers().iter().map(|(name, text)| (name.to_owned(), text.into())).collect();
    let json = json!({
        "id": message.id(),
        "headers": headers,
        "kind": message.kind(),
        "source": message.source(),
        "aggregate": message.aggregate(),
        "schema": message.schema(),
        "attempt": message.attempt(),
        "isRedelivered": message.is_redelivered(),
        "traceparent": message.traceparent(),
        "traceId": message.trace_id(),
        "headerId": message.header_id(),
        "steps": [message.steps().start, message.steps().end],
    });
    WorkParts { json: json.to_string(), payload: Buffer::from(message.payload().to_vec()) }
}

/// The messages that are being handled, by their numbers.
#[derive(Default)]
struct UnderWork {
    all: HashMap<u32, Arc<WorkerMessage>>,
    last: u32,
}

type SharedHandled = Rc<RefCell<UnderWork>>;

/// One of them, for as long as this lives.
struct Entered {
    handled: SharedHandled,
    number: u32,
}

impl Entered {
    fn new(handled: &SharedHandled, message: &Arc<WorkerMessage>) -> Self {
        let mut all = handled.borrow_mut();
        all.last = all.last.wrapping_add(1);
        let number = all.last;
        all.all.insert(number, Arc::clone(message));
        Self { handled: Rc::clone(handled), number }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.handled.borrow_mut().all.remove(&self.number);
    }
}

/// Where JavaScript asks for the messages that its handlers were given numbers of.
#[napi]
pub struct HandledWork(SharedHandled);

#[napi]
impl HandledWork {
    #[napi(factory)]
    pub fn make() -> Self {
        Self(Rc::default())
    }

    #[napi]
    pub fn parts(&self, number: u32) -> Option<WorkParts> {
        self.0.borrow().all.get(&number).map(|message| parts(message))
    }

    #[napi]
    pub fn time_left_ms(&self, number: u32) -> f64 {
        let left = self.0.borrow().all.get(&number).map(|message| message.time_left());
        left.unwrap_or_default().as_secs_f64() * 1_000.0
    }
}

/// What JavaScript wrote of an error: a verdict, or what it knows.
fn judged(said: &str) -> Result<worker::WorkVerdict, Error> {
    let said = value_of(said)?;
    if let Some(verdict) = said.get("verdict") {
        return DIALECT.read::<VerdictSettings>(verdict.clone()).map(|said| said.verdict());
    }
    let text = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    let is = |name: &str| said.get(name).and_then(Value::as_bool).unwrap_or(false);
    let status = said.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
    let known = ForeignError {
        sql_state: text("sqlState"),
        errno: text("errno"),
        is_unreadable: is("isUnreadable"),
        is_cancelled: is("isCancelled"),
        status,
        ..ForeignError::default()
    };
    Ok(known.verdict())
}

fn work_error(failure: Failure<Thrown>) -> WorkError {
    match failure {
        Failure::Resil(error) => error.into(),
        Failure::Inner(thrown) => {
            let said = thrown.recorded.as_deref().and_then(|said| std::str::from_utf8(said).ok()).unwrap_or("{}");
            match judged(said) {
                Ok(verdict) => WorkError::new(verdict, thrown.message.to_string()),
                // A verdict that nobody knows says nothing of the message but that it failed.
                Err(wrong) => WorkError::retry(format!("{}; and its judge: {wrong}", thrown.message)),
            }
        }
        Failure::Exhausted { last, .. } => work_error(*last),
    }
}

#[napi]
pub struct Worker {
    client: resil::Client,
    worker: worker::Worker,
    source: SourceSettings,
}

#[napi]
impl Worker {
    #[napi(getter)]
    pub fn name(&self) -> String {
        self.worker.name().to_owned()
    }

    /// Runs the function for each message, until it is stopped: an item is a message, whose parts are asked for by its number.
    #[napi]
    pub fn run(&self, handled: &HandledWork) -> napi::Result<Word> {
        let (client, worker, source) = (self.client.clone(), self.worker.clone(), self.source.clone());
        let handled = Rc::clone(&handled.0);
        run_with(|call| async move {
            let source = source.open(&client).map_err(|error| Failure::Resil(DIALECT.spell_error(error)))?;
            let handler = |message: Arc<WorkerMessage>| {
                let entered = Entered::new(&handled, &message);
                let detail = Detail { item: Some(entered.number), attempt: message.attempt(), ..Detail::default() };
                let attempt = call.attempt(Some(detail)).warned_by(message.cancelled().clone().cancelled_owned());
                async move {
                    let settled = attempt.await;
                    drop(entered);
                    settled.map(drop).map_err(work_error)
                }
            };
            let report = worker.run_local(source, handler).await;
            report.and_then(|report| shown(&report)).map_err(Failure::Resil)
        })
    }

    #[napi]
    pub fn stop(&self) {
        self.worker.stopper().cancel();
    }

    /// As JSON.
    #[napi]
    pub fn health(&self, env: Env) -> napi::Result<String> {
        now(&env, shown(&self.worker.health()))
    }
}

/// A message, and how it is sent. `cause`: the headers of the message that it is sent because of, as JSON.
fn outgoing(payload: &Buffer, said: &str, headers: &str) -> Result<(OutgoingMessage, OutgoingSettings), Error> {
    let how: OutgoingSettings = settings(said)?;
    let mut message = how.message(Bytes::from(payload.to_vec()));
    let texts: HashMap<String, String> = serde_json::from_value(value_of(headers)?)
        .map_err(|_| Error::InvalidArgument("headers must be an object of texts".to_owned()))?;
    for (name, text) in texts {
        message = message.header(name, text);
    }
    Ok((message, how))
}

#[napi]
pub struct Publisher(AnyPublisher);

#[napi]
impl Publisher {
    /// The id of the message, once it is confirmed. `cause`: one that is being handled.
    #[napi]
    pub fn publish(
        &self,
        payload: Buffer,
        said: String,
        headers: String,
        cause: Option<&HandledWork>,
        number: Option<u32>,
    ) -> napi::Result<Word> {
        let publisher = self.0.clone();
        let message = outgoing(&payload, &said, &headers).map(|(message, how)| (caused(message, cause, number), how));
        run(async move {
            let (message, how) = message?;
            publisher.publish(&message, &how).await.map(|()| message.id)
        })
    }

    /// As JSON.
    #[napi]
    pub fn health(&self, env: Env) -> napi::Result<String> {
        now(&env, shown(&self.0.health()))
    }

    #[napi]
    pub fn close(&self) -> napi::Result<Word> {
        let publisher = self.0.clone();
        run(async move {
            publisher.close().await;
            Ok(())
        })
    }
}

fn caused(message: OutgoingMessage, cause: Option<&HandledWork>, number: Option<u32>) -> OutgoingMessage {
    let cause = cause.zip(number).and_then(|(handled, number)| handled.0.borrow().all.get(&number).cloned());
    match cause {
        Some(cause) => message.caused_by(&cause),
        None => message,
    }
}

/// The values of a row of an outbox.
#[napi(object, object_from_js = false)]
pub struct OutboxRow {
    pub id: String,
    pub kind: Option<String>,
    pub aggregate: Option<String>,
    pub schema: Option<u32>,
    pub headers: Option<String>,
    pub payload: Buffer,
}

#[napi]
pub struct Outbox(postgres::Outbox);

#[napi]
impl Outbox {
    #[napi(factory)]
    pub fn make(env: Env, table: Option<String>) -> napi::Result<Self> {
        let outbox = table.map_or_else(|| Ok(postgres::Outbox::default()), |table| postgres::Outbox::new(&table));
        now(&env, outbox).map(Self)
    }

    #[napi]
    pub fn migration(&self) -> String {
        self.0.migration()
    }

    #[napi]
    pub fn insert(&self) -> String {
        self.0.insert()
    }

    #[napi]
    pub fn row(
        &self,
        env: Env,
        payload: Buffer,
        said: String,
        headers: String,
        cause: Option<&HandledWork>,
        number: Option<u32>,
    ) -> napi::Result<OutboxRow> {
        let (message, _) = now(&env, outgoing(&payload, &said, &headers))?;
        let OutgoingMessage { id, payload, headers, kind, aggregate, schema } = caused(message, cause, number);
        let headers = headers.to_bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(OutboxRow { id, kind, aggregate, schema, headers, payload: Buffer::from(payload.to_vec()) })
    }
}

/// What makes the table of processed events, and what adds one.
#[napi]
pub fn processed_events() -> Vec<&'static str> {
    vec![postgres::ProcessedEvents::MIGRATION, postgres::ProcessedEvents::INSERT]
}

#[napi]
impl Client {
    #[napi]
    pub fn worker(
        &self,
        env: Env,
        name: String,
        source: Option<String>,
        said: String,
        steps: String,
    ) -> napi::Result<Worker> {
        let made = || {
            let steps: Vec<(String, u32)> = serde_json::from_str(&steps)
                .map_err(|error| Error::InvalidArgument(format!("upcasters are not steps: {error}")))?;
            let upcasters = steps.iter().fold(Upcasters::new(), |all, (kind, from)| all.step_elsewhere(kind, *from));
            let source = match source {
                None => SourceSettings::Ledger(name.clone()),
                Some(source) => SourceSettings::read(&DIALECT, value_of(&source)?)?,
            };
            let worker = self.0.worker(&name, settings(&said)?)?.upcasters(upcasters);
            Ok(Worker { client: self.0.clone(), worker, source })
        };
        now(&env, made())
    }

    #[napi]
    pub fn publisher(&self, env: Env, to: String) -> napi::Result<Publisher> {
        let made = value_of(&to).and_then(|to| AnyPublisher::new(&self.0, &DIALECT, to));
        now(&env, made).map(Publisher)
    }
}
