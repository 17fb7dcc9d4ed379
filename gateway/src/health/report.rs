//! One event for each change of a service, however many gateways look at it.
//!
//! # How
//! What was reported is a chain of records in the server, one key for each: `<service>/<day>/<number>`. A change is reported by writing the
//! next record, and a key is written once (RES.IDEMP): the one that comes second finds the record of the other, takes it for the last known
//! state, and compares again. So two gateways cannot both report a change, nor report it differently. A lock keeps all but one from trying.
//! Each day begins with a record that repeats the last state, so that the end of a chain is found by looking at some days and some numbers.
//!
//! # What holds
//! - Events of a service are a chain: `previous` is the `state` of the one before. The first state that is ever known is no change.
//! - A webhook gets every event at least once, with the same `jti` each time. A gateway that dies in between has an heir: the next reporter
//!   delivers what is not marked as delivered.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use parking_lot::Mutex;
use resil::idempotency::{IdempotencySettings, Idempotent, RecordedState};
use resil::lock::LockSettings;
use resil::{Client, Error, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
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
const LOOK_BACK: u64 = 10;
const AGAIN: Duration = Duration::from_secs(1);
/// A webhook is tried so often at once; the next look at the chain tries again.
const ATTEMPTS: u32 = 5;
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

    async fn send(&self, hook: usize, event: &HealthEvent) -> Result<(), String> {
        let (url, token) = &self.hooks[hook];
        let body = Bytes::from(self.token_bytes(event));
        let mut request = Request::post(url.expose())
            .header("content-type", "application/json")
            .header("x-resil-event-id", event.id())
            .body(Full::new(body))
            .map_err(|_| "the address of the webhook cannot be used".to_owned())?;
        if let Some(token) = token
            && let Ok(value) = http::HeaderValue::from_str(&format!("Bearer {}", token.expose()))
        {
            request.headers_mut().insert(http::header::AUTHORIZATION, value);
        }
        let Some(client) = &self.client else { return Ok(()) };
        let sent = tokio::time::timeout(WEBHOOK_TIMEOUT, client.request(request)).await;
        match sent {
            Ok(Ok(response)) if response.status().is_success() => Ok(()),
            Ok(Ok(response)) => Err(format!("it answered {}", response.status().as_u16())),
            Ok(Err(_)) => Err("it cannot be reached".to_owned()),
            Err(_) => Err("it did not answer in time".to_owned()),
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

    /// Writes `event`, or finds what another wrote in its place: then false.
    async fn append(&self, event: &HealthEvent) -> Result<(HealthEvent, bool), Error> {
        let key = HealthEvent::key(&event.service, event.day, event.number);
        let written = self.chains.run_json(&key, b"", async |_| Ok::<_, Infallible>(event.clone())).await;
        match written {
            Ok(outcome) => {
                let found = outcome.value.ok_or_else(|| Error::Internal("a record is small".to_owned()))?;
                Ok((found, !outcome.replayed))
            }
            Err(Failure::Resil(error)) => Err(error),
            Err(failure) => {
                Err(failure.error().unwrap_or_else(|| Error::Internal("a record was not written".to_owned())))
            }
        }
    }

    /// Reports the state of a service, if it is another than the one reported last. The event, if this call made it.
    /// Only after [`take_over`](Self::take_over), and for as long as nobody else does.
    pub async fn report(
        &self,
        service: &str,
        state: HealthState,
        detail: &str,
        at_ms: u64,
    ) -> Result<Option<HealthEvent>, Error> {
        let today = at_ms / DAY_MS;
        let known = self.heads.lock().get(service).cloned();
        let mut head = match known {
            Some(known) if known.state == state && known.day >= today => return Ok(None),
            Some(known) => Some(known),
            None => self.head(service, today).await?,
        };
        loop {
            let (day, number) = match &head {
                Some(head) if head.day >= today => (head.day, head.number + 1),
                _ => (today, 1),
            };
            // The first of a day repeats what was known; then the change comes.
            let carried = head.as_ref().filter(|head| head.day < today).map(|head| head.state);
            let next = HealthEvent {
                service: service.to_owned(),
                previous: head.as_ref().map(|head| head.state).filter(|_| carried.is_none()),
                state: carried.unwrap_or(state),
                at_ms,
                detail: detail.to_owned(),
                day,
                number,
            };
            if head.as_ref().is_some_and(|head| head.state == state && carried.is_none()) {
                self.heads.lock().insert(service.to_owned(), head.unwrap_or(next));
                return Ok(None);
            }
            let (found, is_ours) = self.append(&next).await?;
            self.heads.lock().insert(service.to_owned(), found.clone());
            if is_ours && found.is_change() {
                return Ok(Some(found));
            }
            head = Some(found);
        }
    }

    /// Sends an event to every webhook that has not had it.
    pub async fn deliver(&self, event: &HealthEvent) -> Result<(), Error> {
        for hook in 0..self.webhooks.hooks.len() {
            let key = format!("{}/{hook}", event.id());
            let sent = self.delivered.run(&key, b"", async |_| {
                let mut last = String::new();
                for attempt in 0..ATTEMPTS {
                    match self.webhooks.send(hook, event).await {
                        Ok(()) => return Ok(Bytes::from_static(b"sent")),
                        Err(why) => last = why,
                    }
                    tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
                }
                Err(last)
            });
            match sent.await {
                Ok(_) => {}
                Err(Failure::Resil(error)) => return Err(error),
                Err(failure) => {
                    let why = failure.into_inner().unwrap_or_default();
                    tracing::warn!(event = event.id(), hook, why, "an event was not delivered; it is tried again");
                    return Err(Error::Timeout { after: WEBHOOK_TIMEOUT });
                }
            }
        }
        Ok(())
    }

    /// Begins to report: what others have reported meanwhile is looked up, and what they left undelivered is delivered.
    pub async fn take_over(&self, service: &str, at_ms: u64) -> Result<(), Error> {
        self.heads.lock().remove(service);
        let Some(head) = self.head(service, at_ms / DAY_MS).await? else { return Ok(()) };
        for number in head.number.saturating_sub(LOOK_BACK).max(1)..=head.number {
            if let Some(event) = self.record(service, head.day, number).await?
                && event.is_change()
            {
                self.deliver(&event).await?;
            }
        }
        self.heads.lock().insert(service.to_owned(), head);
        Ok(())
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
        self.is_reporter.store(true, Ordering::Relaxed);
        tracing::info!("this gateway reports changes of health");
        for view in book.views() {
            self.take_over(&view.service, now_ms()).await?;
        }
        let mut changes = book.changes();
        let lost = guard.held().lost();
        let mut undelivered: Vec<HealthEvent> = Vec::new();
        loop {
            changes.borrow_and_update();
            for view in book.views() {
                let Some(state) = view.state else { continue };
                if let Some(event) = self.report(&view.service, state, &view.detail, now_ms()).await? {
                    tracing::info!(target: "resil::caep", event = %event.token(&self.webhooks.issuer), "a service has changed");
                    undelivered.push(event);
                }
            }
            let mut left = Vec::new();
            for event in undelivered.drain(..) {
                if self.deliver(&event).await.is_err() {
                    left.push(event);
                }
            }
            undelivered = left;
            let pause = if undelivered.is_empty() { Duration::from_secs(60) } else { AGAIN };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return Ok(()) },
                () = lost.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}
