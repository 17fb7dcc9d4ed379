//! One event for each change of a service, however many gateways look at it.
//!
//! # How
//! What was reported is a chain of records in the server, one key for each: `<service>/<day>/<number>`. A change is reported by writing the
//! next record, and a key is written once (RES.IDEMP): the one that comes second finds the record of the other, takes it for the last known
//! state, and compares again. So two gateways cannot both report a change, nor report it differently. A lock keeps all but one from trying.
//! Each day begins with a record that repeats the last state, so that the end of a chain is found by looking at some days and some numbers. The last
//! record of the day before says which day it is: so there is one place for the next record, whatever day a gateway believes to have.
//!
//! A gateway that was stopped for a while (a debugger, a pause of the machine) does not know yet that another has its lock. So every record has
//! the fence of its writer's lock, and the process that takes over writes one first: the other finds it in the place of what it wanted to write, sees the higher
//! fence, and stops. What the one who has the lock remembers of a chain is therefore true. A chain that is empty begins with such a record, too: else
//! one that has lost its lock could begin it.
//!
//! # What holds
//! - Events of a service are a chain: `previous` is the `state` of the one before. The first state that is ever known is no change.
//! - After a take-over nothing of an earlier reporter is added.
//! - A webhook gets every event at least once, with the same `jti` each time, and in order; one that it refuses (4xx) waits until the others are
//!   sent. Webhooks do not wait for each other. A gateway that dies in between has an heir: the next reporter delivers what is not marked as
//!   delivered, of the last [`LOOK_BACK`] records of each service.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::Full;
use parking_lot::Mutex;
use resil::idempotency::{IdempotencySettings, Idempotent, RecordedState};
use resil::lock::LockSettings;
use resil::{Client, Error, Failure, Leased};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{HealthBook, HealthState};
use crate::config::{Config, ConfigError, Secret};
use crate::now_ms;
use crate::upstream::build_client;

/// Days that the end of a chain is looked for.
const DAYS: u64 = 30;
const KEEP: Duration = Duration::from_secs((DAYS + 10) * 86_400);
const DAY_MS: u64 = 86_400_000;
/// What was not delivered is looked for in so many records before the last.
const LOOK_BACK: usize = 100;
const AGAIN: Duration = Duration::from_secs(1);
/// The first pause after a webhook that failed; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Events that wait for one webhook. Beyond it the oldest are given up.
const UNSENT_MAX: usize = 10_000;
/// How often a reporter looks whether a new day has begun.
const EACH_DAY: Duration = Duration::from_secs(60);
const LOCK: &str = "resil-gateway-reporter";
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// One record of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthEvent {
    pub service: String,
    /// `None`: not a change, but the beginning of a chain or of a day.
    pub previous: Option<HealthState>,
    pub state: HealthState,
    pub at_ms: u64,
    pub detail: String,
    day: u64,
    number: u64,
    /// Of the lock of the one who wrote it.
    #[serde(default)]
    fence: u64,
    /// The last of its day: the day on which the chain goes on.
    #[serde(default)]
    goes_on: Option<u64>,
    /// Nothing was reported before it, and it says nothing but who reports from now on: its state means nothing.
    #[serde(default)]
    is_blank: bool,
}

/// Why a webhook has not got an event.
#[derive(Debug)]
struct Unsent {
    why: String,
    /// It was there and does not want this one.
    is_refused: bool,
}

impl Unsent {
    fn because(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_refused: false }
    }
}

impl HealthEvent {
    pub fn is_change(&self) -> bool {
        self.previous.is_some_and(|previous| previous != self.state)
    }

    fn key(service: &str, day: u64, number: u64) -> String {
        format!("{service}/{day}/{number}")
    }

    /// The same for everybody who delivers it.
    pub fn id(&self) -> String {
        let digest = Sha256::digest(Self::key(&self.service, self.day, self.number).as_bytes());
        digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// As a security event token (RFC 8417) in the shape of CAEP.
    pub fn token(&self, issuer: &str) -> Value {
        json!({
            "iss": issuer,
            "jti": self.id(),
            "iat": self.at_ms / 1_000,
            "sub_id": { "format": "opaque", "id": self.service },
            "events": {
                format!("{}/event-type/service-health-change", issuer.trim_end_matches('/')): {
                    "event_timestamp": self.at_ms,
                    "previous_status": self.previous.map(HealthState::text),
                    "current_status": self.state.text(),
                    "service": self.service,
                    "initiating_entity": "system",
                    "reason_admin": { "en": self.detail },
                }
            }
        })
    }
}

/// Where events are sent.
pub struct Webhooks {
    hooks: Vec<(Secret, Option<Secret>)>,
    /// None where nobody wants to know.
    client: Option<crate::upstream::HttpClient>,
    issuer: String,
}

impl Webhooks {
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let hooks = config.health.webhooks.iter().map(|hook| (hook.url.clone(), hook.token.clone()));
        let hooks: Vec<_> = hooks.collect();
        let is_wanted = !hooks.is_empty();
        let client = is_wanted.then(|| build_client("health.webhooks", None, Duration::from_secs(2))).transpose()?;
        Ok(Self { hooks, client, issuer: config.health.issuer.clone() })
    }

    async fn send(&self, hook: usize, event: &HealthEvent) -> Result<(), Unsent> {
        let (url, token) = &self.hooks[hook];
        let body = Bytes::from(self.token_bytes(event));
        let mut request = Request::post(url.expose())
            .header("content-type", "application/json")
            .header("x-resil-event-id", event.id())
            .body(Full::new(body))
            .map_err(|_| Unsent::because("the address of the webhook cannot be used"))?;
        if let Some(token) = token
            && let Ok(value) = http::HeaderValue::from_str(&format!("Bearer {}", token.expose()))
        {
            request.headers_mut().insert(http::header::AUTHORIZATION, value);
        }
        let Some(client) = &self.client else { return Ok(()) };
        let sent = tokio::time::timeout(WEBHOOK_TIMEOUT, client.request(request)).await;
        match sent {
            Ok(Ok(response)) if response.status().is_success() => Ok(()),
            // A redirect is not followed: the address is the configuration's.
            Ok(Ok(response)) => {
                let status = response.status();
                let is_refused = status.is_client_error() && ![408, 425, 429].contains(&status.as_u16());
                Err(Unsent { why: format!("it answered {}", status.as_u16()), is_refused })
            }
            Ok(Err(_)) => Err(Unsent::because("it cannot be reached")),
            Err(_) => Err(Unsent::because("it did not answer in time")),
        }
    }

    fn token_bytes(&self, event: &HealthEvent) -> Vec<u8> {
        event.token(&self.issuer).to_string().into_bytes()
    }
}

/// What one gateway knows of the chains.
pub struct Reporter {
    client: Client,
    chains: Idempotent,
    delivered: Idempotent,
    webhooks: Webhooks,
    heads: Mutex<HashMap<String, HealthEvent>>,
    /// Of our lock; 0 before the first.
    fence: AtomicU64,
    is_reporter: AtomicBool,
}

impl Reporter {
    pub fn new(client: &Client, webhooks: Webhooks) -> Result<Arc<Self>, Error> {
        let settings = IdempotencySettings::new().keep(KEEP).lease(Duration::from_secs(10));
        Ok(Arc::new(Self {
            client: client.clone(),
            chains: client.idempotent("gateway-health", settings.clone())?,
            delivered: client.idempotent("gateway-webhook", settings.abort_on_cancel())?,
            webhooks,
            heads: Mutex::default(),
            fence: AtomicU64::new(0),
            is_reporter: AtomicBool::new(false),
        }))
    }

    pub fn is_reporter(&self) -> bool {
        self.is_reporter.load(Ordering::Relaxed)
    }

    async fn record(&self, service: &str, day: u64, number: u64) -> Result<Option<HealthEvent>, Error> {
        match self.chains.get(&HealthEvent::key(service, day, number)).await? {
            RecordedState::Done { result: Some(result), .. } => {
                serde_json::from_slice(&result).map(Some).map_err(|error| Error::Internal(error.to_string()))
            }
            _ => Ok(None),
        }
    }

    /// The last record there is: the newest day that has a first one, and its highest number.
    async fn head(&self, service: &str, today: u64) -> Result<Option<HealthEvent>, Error> {
        for day in (today.saturating_sub(DAYS)..=today).rev() {
            let Some(mut best) = self.record(service, day, 1).await? else { continue };
            // Twice as far each time, then halves: a day may have many.
            let (mut low, mut high) = (1, 2);
            while let Some(found) = self.record(service, day, high).await? {
                (best, low, high) = (found, high, high * 2);
            }
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                match self.record(service, day, middle).await? {
                    Some(found) => (best, low) = (found, middle),
                    None => high = middle,
                }
            }
            return Ok(Some(best));
        }
        Ok(None)
    }

    /// Writes `event`, or finds what another wrote in its place: then false. An error if that one has a later lock than ours.
    async fn append(&self, event: &HealthEvent) -> Result<(HealthEvent, bool), Error> {
        let key = HealthEvent::key(&event.service, event.day, event.number);
        let written = self.chains.run_json(&key, b"", async |_| Ok::<_, Infallible>(event.clone())).await;
        let outcome = match written {
            Ok(outcome) => outcome,
            Err(Failure::Resil(error)) => return Err(error),
            Err(failure) => {
                return Err(failure.error().unwrap_or_else(|| Error::Internal("a record was not written".to_owned())));
            }
        };
        let found: HealthEvent = outcome.value.ok_or_else(|| Error::Internal("a record is small".to_owned()))?;
        if found.fence > event.fence {
            let reason = "another gateway reports now";
            return Err(Error::LockLost { what: Leased::Lock, name: LOCK.into(), reason });
        }
        Ok((found, !outcome.replayed))
    }

    /// What comes after `head`, with the state that was reported last; who has a change puts it in.
    fn next(head: Option<&HealthEvent>, service: &str, fence: u64, today: u64, at_ms: u64) -> HealthEvent {
        let (day, number, goes_on) = match head {
            None => (today, 1, None),
            Some(HealthEvent { goes_on: Some(day), .. }) => (*day, 1, None),
            Some(head) => (head.day, head.number + 1, Some(today).filter(|today| head.day < *today)),
        };
        let state = head.map_or(HealthState::Healthy, |head| head.state);
        let is_blank = head.is_none_or(|head| head.is_blank);
        let detail = if is_blank { "nothing was reported before" } else { "as reported before" }.to_owned();
        let service = service.to_owned();
        HealthEvent { service, previous: None, state, at_ms, detail, day, number, fence, goes_on, is_blank }
    }

    /// Reports the state of a service, if it is another than the one reported last. The event, if this call made it.
    /// Only after [`take_over`](Self::take_over). An error if another gateway has taken over since.
    pub async fn report(
        &self,
        service: &str,
        state: HealthState,
        detail: &str,
        at_ms: u64,
    ) -> Result<Option<HealthEvent>, Error> {
        let (today, fence) = (at_ms / DAY_MS, self.fence.load(Ordering::Acquire));
        let known = self.heads.lock().get(service).cloned();
        let mut head = match known {
            Some(known) => Some(known),
            None => self.head(service, today).await?,
        };
        loop {
            let is_carried = head.as_ref().is_some_and(|head| head.day < today || head.goes_on.is_some());
            let known = head.as_ref().filter(|head| !head.is_blank).map(|head| head.state);
            if !is_carried && known == Some(state) {
                return Ok(None);
            }
            let mut next = Self::next(head.as_ref(), service, fence, today, at_ms);
            // The last and the first of a day repeat what was known; then the change comes.
            if !is_carried {
                (next.previous, next.is_blank) = (known, false);
                (next.state, next.detail) = (state, detail.to_owned());
            }
            let (found, is_ours) = self.append(&next).await?;
            self.heads.lock().insert(service.to_owned(), found.clone());
            if is_ours && found.is_change() {
                return Ok(Some(found));
            }
            head = Some(found);
        }
    }

    /// Sends an event to a webhook that has not had it.
    async fn deliver(&self, hook: usize, event: &HealthEvent) -> Result<(), Unsent> {
        let key = format!("{}/{hook}", event.id());
        let sent = self
            .delivered
            .run(&key, b"", async |_| self.webhooks.send(hook, event).await.map(|()| Bytes::from_static(b"sent")));
        match sent.await {
            Ok(_) => Ok(()),
            Err(Failure::Resil(error)) => Err(Unsent::because(error.code().text())),
            Err(failure) => Err(failure.into_inner().unwrap_or_else(|| Unsent::because("it was not sent"))),
        }
    }

    /// Sends what comes to one webhook, until nothing comes any more.
    async fn deliver_all(&self, hook: usize, mut events: mpsc::UnboundedReceiver<HealthEvent>) {
        let (mut unsent, mut pause) = (VecDeque::new(), PAUSE);
        loop {
            if unsent.is_empty() {
                let Some(event) = events.recv().await else { return };
                unsent.push_back(event);
            }
            while let Ok(event) = events.try_recv() {
                if unsent.len() == UNSENT_MAX {
                    tracing::error!(hook, "an event was given up: too many wait for this webhook");
                    unsent.pop_front();
                }
                unsent.push_back(event);
            }
            let Some(event) = unsent.front() else { continue };
            let Err(Unsent { why, is_refused }) = self.deliver(hook, event).await else {
                unsent.pop_front();
                pause = PAUSE;
                continue;
            };
            tracing::warn!(event = event.id(), hook, why, "an event was not delivered; it is tried again");
            if is_refused {
                unsent.rotate_left(1);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Begins to report, with a lock of this fence: writes so, for those who had it before. The last changes, the oldest first: some may not
    /// have been delivered.
    pub async fn take_over(&self, service: &str, fence: u64, at_ms: u64) -> Result<Vec<HealthEvent>, Error> {
        self.fence.store(fence, Ordering::Release);
        self.heads.lock().remove(service);
        let today = at_ms / DAY_MS;
        let mut head = match self.head(service, today).await? {
            Some(head) => head,
            None => self.append(&Self::next(None, service, fence, today, at_ms)).await?.0,
        };
        while head.fence != fence {
            head = self.append(&Self::next(Some(&head), service, fence, today, at_ms)).await?.0;
        }
        self.heads.lock().insert(service.to_owned(), head.clone());
        self.changes_until(head).await
    }

    async fn changes_until(&self, head: HealthEvent) -> Result<Vec<HealthEvent>, Error> {
        let (mut found, mut at) = (VecDeque::new(), Some(head));
        for _ in 0..LOOK_BACK {
            let Some(event) = at else { break };
            at = match (event.number, event.day.checked_sub(1)) {
                (2.., _) => self.record(&event.service, event.day, event.number - 1).await?,
                (_, Some(before)) => self.head(&event.service, before).await?,
                (_, None) => None,
            };
            if event.is_change() {
                found.push_front(event);
            }
        }
        Ok(found.into())
    }

    /// Reports for as long as this gateway is the one who does, until it ends.
    pub async fn run(self: Arc<Self>, book: Arc<HealthBook>, stop: CancellationToken) {
        if book.views().is_empty() {
            return;
        }
        while !stop.is_cancelled() {
            let reported = tokio::select! {
                reported = self.serve(&book) => reported,
                () = stop.cancelled() => break,
            };
            self.is_reporter.store(false, Ordering::Relaxed);
            if let Err(error) = reported {
                tracing::debug!(%error, "health is not reported now; trying again");
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = stop.cancelled() => break,
            }
        }
        self.is_reporter.store(false, Ordering::Relaxed);
    }

    async fn serve(&self, book: &HealthBook) -> Result<(), Error> {
        let lock = self.client.lock(LOCK, LockSettings::new())?;
        let guard = lock.until_acquired().await?;
        let held = guard.held();
        let fence = held.fence().ok_or(Error::BackendUnavailable("nobody can say who reports"))?;
        self.is_reporter.store(true, Ordering::Relaxed);
        tracing::info!("this gateway reports changes of health");
        let (senders, receivers): (Vec<_>, Vec<_>) =
            self.webhooks.hooks.iter().map(|_| mpsc::unbounded_channel()).unzip();
        let deliver = |event: HealthEvent| senders.iter().for_each(|hook| drop(hook.send(event.clone())));
        let report = async {
            for view in book.views() {
                self.take_over(&view.service, fence, now_ms()).await?.into_iter().for_each(deliver);
            }
            let mut changes = book.changes();
            loop {
                changes.borrow_and_update();
                for view in book.views() {
                    let Some(state) = view.state else { continue };
                    if let Some(event) = self.report(&view.service, state, &view.detail, now_ms()).await? {
                        tracing::info!(target: "resil::caep", event = %event.token(&self.webhooks.issuer), "a service has changed");
                        deliver(event);
                    }
                }
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return Ok(()) },
                    () = held.until_lost() => return Ok(()),
                    // A new day has a record of its own.
                    () = tokio::time::sleep(EACH_DAY) => {}
                }
            }
        };
        let send = join_all(receivers.into_iter().enumerate().map(|(hook, events)| self.deliver_all(hook, events)));
        tokio::select! {
            reported = report => reported,
            // Without webhooks there is nothing to wait for.
            _ = async { send.await; std::future::pending::<()>().await } => Ok(()),
        }
    }
}
