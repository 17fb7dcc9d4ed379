//! What the server publishes, passed on: to those who watch one circuit, and to the dashboards.
//!
//! One subscription for the whole gateway. A watcher or a dashboard that does not keep up is warned of the gap; it never
//! holds up the others.
//!
//! # What holds
//! - Everybody hears what they hear in the order in which it was published.
//! - When the connection is back after a loss, every subscriber gets a message: what was published meanwhile is unknown.
//! - The last [`REMEMBERED`] events are kept, so that a dashboard that reconnects misses nothing of them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use resil::Client;
use resil::breaker::State;
use resil::operator::{KeyKind, ServerMessage};
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{now_ms, random_id};

/// Events that a dashboard can catch up with.
pub const REMEMBERED: usize = 1_000;
/// Transitions of a circuit that are shown.
const SHOWN_MOVES: usize = 50;
/// Circuits whose transitions are remembered.
const CIRCUITS_MAX: usize = 1_000;
/// What a watcher may be behind.
const BEHIND_MAX: usize = 1_024;
/// A feed that cannot be opened is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// One transition of a circuit, as it was published.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    pub key: String,
    pub previous: State,
    pub state: State,
    pub previous_generation: u64,
    pub generation: u64,
    pub at_ms: u64,
    pub reason: String,
    pub correlation_id: String,
    pub actor: Option<String>,
    pub note: Option<String>,
}

impl Move {
    fn read(event: &Value) -> Option<Self> {
        let text = |name: &str| event[name].as_str().map(str::to_owned);
        let state = |name: &str| State::from_text(event[name].as_str()?.as_bytes());
        let generation = event["generation"].as_u64()?;
        Some(Self {
            key: text("service")?,
            previous: state("previous")?,
            state: state("new")?,
            // A module of an earlier version does not say; then nobody can tell what was missed.
            previous_generation: event["previous_generation"].as_u64().unwrap_or(u64::MAX),
            generation,
            at_ms: event["time_ms"].as_u64().unwrap_or(0),
            reason: text("reason").unwrap_or_default(),
            correlation_id: text("correlation").unwrap_or_default(),
            actor: text("actor"),
            note: text("note"),
        })
    }

    pub fn json(&self) -> Value {
        json!({
            "key": self.key,
            "name": circuit_name(&self.key),
            "previous": self.previous.text(),
            "state": self.state.text(),
            "previousGeneration": self.previous_generation,
            "generation": self.generation,
            "reason": self.reason,
            "at": self.at_ms,
            "actor": self.actor,
            "note": self.note,
            "correlationId": self.correlation_id,
        })
    }
}

/// The name by which SDKs know the circuit at a key.
pub fn circuit_name(key: &str) -> Option<String> {
    KeyKind::Policy.name(key.as_bytes()).or_else(|| KeyKind::Breaker.name(key.as_bytes()))
}

/// What a watcher of one circuit hears.
#[derive(Debug, Clone)]
pub enum Heard {
    Move(Arc<Move>),
    /// Some may have been missed.
    Missed,
}

/// An event for dashboards.
#[derive(Debug, Clone)]
pub struct Happening {
    pub id: u64,
    pub kind: &'static str,
    pub data: Arc<str>,
}

struct Watcher {
    sender: mpsc::Sender<Heard>,
    /// It was full: the next thing it hears is that it has missed something.
    is_behind: bool,
}

#[derive(Default)]
struct Book {
    last_id: u64,
    remembered: VecDeque<Happening>,
    watchers: HashMap<String, Vec<Watcher>>,
    moves: HashMap<String, VecDeque<Arc<Move>>>,
}

/// Where everything that happens is published.
pub struct Feed {
    book: Mutex<Book>,
    happenings: broadcast::Sender<Happening>,
    is_listening: watch::Sender<bool>,
    watching: AtomicUsize,
    most: usize,
}

impl Feed {
    pub fn new(most_watchers: usize) -> Arc<Self> {
        // Numbers begin anywhere: a client that comes from another gateway, or from before a restart, has an id that is not known here.
        let last_id = u64::from_str_radix(&random_id()[..12], 16).unwrap_or_default();
        Arc::new(Self {
            book: Mutex::new(Book { last_id, ..Book::default() }),
            happenings: broadcast::Sender::new(REMEMBERED),
            is_listening: watch::Sender::new(false),
            watching: AtomicUsize::new(0),
            most: most_watchers,
        })
    }

    /// Tells the dashboards.
    pub fn tell(&self, kind: &'static str, data: &Value) {
        let mut book = self.book.lock();
        book.last_id += 1;
        let happening = Happening { id: book.last_id, kind, data: data.to_string().into() };
        if book.remembered.len() == REMEMBERED {
            book.remembered.pop_front();
        }
        book.remembered.push_back(happening.clone());
        // While the book is held: what is remembered and what is sent are in one order.
        let _ = self.happenings.send(happening);
    }

    /// What happened after `last`, and what will. `None` in place of the first if some of it is not remembered.
    pub fn since(&self, last: Option<u64>) -> (Option<Vec<Happening>>, broadcast::Receiver<Happening>) {
        let book = self.book.lock();
        let receiver = self.happenings.subscribe();
        let Some(last) = last else { return (Some(Vec::new()), receiver) };
        let first = book.remembered.front().map_or(book.last_id + 1, |first| first.id);
        let is_known = last <= book.last_id && last + 1 >= first;
        let missed = || book.remembered.iter().filter(|happening| happening.id > last).cloned().collect();
        (is_known.then(missed), receiver)
    }

    /// One more who watches, a circuit or everything; `None` if they are too many.
    pub fn place(self: &Arc<Self>) -> Option<WatchPlace> {
        let grown = |watching: usize| (watching < self.most).then_some(watching + 1);
        self.watching.fetch_update(Ordering::AcqRel, Ordering::Acquire, grown).ok()?;
        Some(WatchPlace(Arc::clone(self)))
    }

    pub fn watching(&self) -> usize {
        self.watching.load(Ordering::Acquire)
    }

    /// Hears of one circuit from now on.
    pub fn watch(&self, key: &str) -> mpsc::Receiver<Heard> {
        let (sender, receiver) = mpsc::channel(BEHIND_MAX);
        let mut book = self.book.lock();
        book.watchers.entry(key.to_owned()).or_default().push(Watcher { sender, is_behind: false });
        receiver
    }

    pub fn listening(&self) -> watch::Receiver<bool> {
        self.is_listening.subscribe()
    }

    /// The last transitions of a circuit that were heard of, the newest last.
    pub fn moves(&self, key: &str) -> Vec<Arc<Move>> {
        self.book.lock().moves.get(key).map(|moves| moves.iter().cloned().collect()).unwrap_or_default()
    }

    fn moved(&self, moved: Move) {
        if moved.previous == moved.state {
            return;
        }
        let moved = Arc::new(moved);
        {
            let mut book = self.book.lock();
            if book.moves.len() < CIRCUITS_MAX || book.moves.contains_key(&moved.key) {
                let moves = book.moves.entry(moved.key.clone()).or_default();
                if moves.len() == SHOWN_MOVES {
                    moves.pop_front();
                }
                moves.push_back(Arc::clone(&moved));
            }
            if let Some(watchers) = book.watchers.get_mut(&moved.key) {
                watchers.retain_mut(|watcher| watcher.hear(&Heard::Move(Arc::clone(&moved))));
                if watchers.is_empty() {
                    book.watchers.remove(&moved.key);
                }
            }
        }
        self.tell("circuit", &moved.json());
    }

    fn missed(&self, reason: &str) {
        self.book.lock().watchers.retain(|_, watchers| {
            watchers.retain_mut(|watcher| watcher.hear(&Heard::Missed));
            !watchers.is_empty()
        });
        self.tell("gap", &json!({ "reason": reason }));
    }

    /// What was published, in the form of dashboards.
    fn publish(&self, payload: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Value>(payload) else { return };
        let at = event["time_ms"].as_u64().unwrap_or_else(now_ms);
        let ledger = || event["ledger"].as_str().and_then(|key| KeyKind::DeadLetters.name(key.as_bytes()));
        match event["event"].as_str() {
            Some("breaker") => {
                if let Some(moved) = Move::read(&event) {
                    self.moved(moved);
                }
            }
            Some("lost") => self.tell(
                "lost",
                &json!({"kind": event["kind"], "key": event["key"], "owner": event["owner"], "fence": event["fence"],
                    "reason": event["reason"], "at": at}),
            ),
            Some("policy") => {
                let name = event["key"].as_str().and_then(|key| KeyKind::Policy.name(key.as_bytes()));
                self.tell(
                    "policy",
                    &json!({"key": event["key"], "name": name, "action": event["action"], "version": event["version"],
                        "actor": event["actor"], "reason": event["reason"], "at": at}),
                );
            }
            Some("dlq.dead") => self.tell(
                "dead",
                &json!({"ledgerKey": event["ledger"], "ledger": ledger(), "id": event["id"], "kind": event["type"],
                    "group": event["group"], "reason": event["reason"], "at": at}),
            ),
            Some("dlq.alert") => self.tell(
                "alert",
                &json!({"ledgerKey": event["ledger"], "ledger": ledger(), "alert": event["alert"], "kind": event["kind"],
                    "severity": event["severity"], "subject": event["subject"], "count": event["count"], "at": at}),
            ),
            Some("dlq.audit") => self.tell("audit", &crate::audit::of_ledger_event(&event, ledger(), at)),
            _ => {}
        }
    }

    /// Listens until the gateway ends.
    pub async fn listen(self: Arc<Self>, client: Client, stop: CancellationToken) {
        let mut is_first = true;
        while !stop.is_cancelled() {
            let heard = tokio::select! {
                heard = self.listen_once(&client, &mut is_first) => heard,
                () = stop.cancelled() => return,
            };
            self.is_listening.send_replace(false);
            if let Err(error) = heard {
                tracing::warn!(%error, "events of the server cannot be heard; trying again");
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn listen_once(&self, client: &Client, is_first: &mut bool) -> Result<(), resil::Error> {
        let mut events = client.operator().events()?;
        while let Some(message) = events.next().await? {
            match message {
                ServerMessage::Listening => {
                    if !std::mem::take(is_first) {
                        self.missed("the connection to the server was lost for a while");
                        self.tell("redis", &json!({"status": "healthy", "reason": null, "at": now_ms()}));
                    }
                    self.is_listening.send_replace(true);
                }
                ServerMessage::Lost => {
                    self.is_listening.send_replace(false);
                    self.tell(
                        "redis",
                        &json!({"status": "unhealthy", "reason": "the connection was lost", "at": now_ms()}),
                    );
                }
                ServerMessage::Event(payload) => self.publish(&payload),
            }
        }
        Ok(())
    }
}

impl Watcher {
    /// False if nobody hears it any more.
    fn hear(&mut self, heard: &Heard) -> bool {
        if self.is_behind {
            match self.sender.try_send(Heard::Missed) {
                Ok(()) => self.is_behind = false,
                Err(mpsc::error::TrySendError::Full(_)) => return true,
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
            }
        }
        match self.sender.try_send(heard.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.is_behind = true;
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}

/// A place among those who watch.
pub struct WatchPlace(Arc<Feed>);

impl Drop for WatchPlace {
    fn drop(&mut self) {
        self.0.watching.fetch_sub(1, Ordering::AcqRel);
    }
}
