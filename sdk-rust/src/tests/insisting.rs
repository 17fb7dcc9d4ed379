//! What is given to nobody goes back. The machines in memory are the server, and the way to it loses requests and replies; the clock is driven.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use resil_wire::command::Command;

use super::PENDING_MAX;
use crate::backend::memory::Memory;
use crate::backend::scripted::{Replying, Scripted};
use crate::backend::{Backend, Reach};
use crate::cache::CacheSettings;
use crate::client::{Client, ConnectSettings, WeakClient};
use crate::clock::Clock;
use crate::dead_letters::{DeadLetters, DeadLettersSettings, Letter};
use crate::error::Error;
use crate::health::Away;
use crate::scripted_scene::settle;

const DAY: Duration = Duration::from_secs(86_400);
const STEP: Duration = Duration::from_millis(10);

/// A client on a connection that stays, and a neighbour who sees what the server has.
struct Scene {
    clock: Clock,
    script: Scripted,
    client: Option<Client>,
    neighbour: Client,
    /// The subcommands that were asked, and when.
    asked: Arc<Mutex<Vec<(String, Duration)>>>,
    /// So many requests are not read by the server: of one subcommand, or of all.
    deaf: Arc<AtomicU32>,
    deaf_to: Arc<Mutex<&'static str>>,
}

/// The reply to the first question for messages, or for a lead, is always lost.
fn is_question(words: &[Vec<u8>], known: &mut Vec<Vec<u8>>) -> bool {
    let is_one = matches!(words[1].as_slice(), b"TAKE" | b"JOIN") && !known.contains(&words[3]);
    if is_one {
        known.push(words[3].clone());
    }
    is_one
}

impl Scene {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = format!("insisting-{}", NEXT.fetch_add(1, SeqCst));
        let (clock, script) = (Clock::driven(), Scripted::new());
        let (asked, deaf) = (Arc::<Mutex<Vec<(String, Duration)>>>::default(), Arc::new(AtomicU32::new(0)));
        let server = Memory::named(&name, clock.clone());
        let deaf_to = Arc::new(Mutex::new(""));
        let lost_of = Arc::clone(&deaf_to);
        let (log, lost, at, mut known) = (Arc::clone(&asked), Arc::clone(&deaf), clock.clone(), Vec::new());
        let respond = move |command: &Command<'_>| {
            let words = command.words();
            log.lock().push((String::from_utf8_lossy(&words[1]).into_owned(), at.now()));
            if is_question(&words, &mut known) {
                let _ = server.call(command);
                return Err(Error::Timeout { after: Duration::from_secs(1) });
            }
            if words[1] != lost_of.lock().as_bytes() && !lost_of.lock().is_empty() {
                return server.call(command);
            }
            match lost.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
                Ok(left) if left % 2 == 0 => Err(Error::BackendUnavailable("it is busy")),
                Ok(_) => Err(Error::Timeout { after: Duration::from_secs(1) }),
                Err(_) => server.call(command),
            }
        };
        script.lines.lock().by = Some(Replying(Box::new(respond)));
        script.lines.lock().connection = Some(7);
        let options = || ConnectSettings::new("memory://").clock(clock.clone());
        let client = Some(Client::with_backend(Backend::Scripted(script.clone()), options()));
        let memory = Memory::named(&name, clock.clone());
        let neighbour = Client::with_backend(Backend::Memory(memory), options());
        Self { clock, script, client, neighbour, asked, deaf, deaf_to }
    }

    fn ledger_of(client: &Client) -> DeadLetters {
        client.dead_letters("orders", DeadLettersSettings::new().lease(DAY)).unwrap()
    }

    fn ledger(&self) -> DeadLetters {
        Self::ledger_of(self.client.as_ref().unwrap())
    }

    /// Messages that are due.
    async fn has_letters(&self, count: u32) {
        for id in 0..count {
            let letter = Letter::of("shop", &id.to_string()).payload("x");
            Self::ledger_of(&self.neighbour).fail(&letter, "before").await.unwrap();
        }
        self.clock.advance(Duration::from_secs(3_600));
        settle().await;
    }

    /// How many messages the neighbour can have.
    async fn free_letters(&self) -> usize {
        let (ledger, mut all) = (Self::ledger_of(&self.neighbour), Vec::new());
        loop {
            let batch = ledger.take(1_000, Duration::ZERO).await.unwrap();
            if batch.letters.is_empty() {
                return all.len();
            }
            all.extend(batch.letters);
        }
    }

    async fn drive(&self, span: Duration) {
        settle().await;
        let end = self.clock.now() + span;
        while self.clock.now() < end {
            self.clock.advance(STEP);
            settle().await;
        }
    }

    /// Between one try and the next of this subcommand, in milliseconds.
    fn pauses(&self, name: &str) -> Vec<u128> {
        let asked = self.asked.lock();
        let at: Vec<Duration> = asked.iter().filter(|(asked, _)| asked == name).map(|(_, at)| *at).collect();
        at.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect()
    }

    fn count(&self) -> usize {
        self.asked.lock().len()
    }
}

#[tokio::test]
async fn a_message_given_to_nobody_is_returned_despite_failures() {
    let scene = Scene::new();
    scene.has_letters(1).await;
    scene.deaf.store(9, SeqCst);
    assert!(scene.ledger().take(1, Duration::ZERO).await.is_err());
    assert_eq!(scene.free_letters().await, 0, "nobody has it, and nobody else gets it");
    scene.drive(Duration::from_secs(8)).await;
    scene.deaf.store(9, SeqCst);
    assert_eq!(scene.free_letters().await, 1);
    // The question, and ten tries to leave the queue.
    assert_eq!(scene.pauses("TAKE"), [0, 50, 100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000]);
}

#[tokio::test]
async fn a_return_of_messages_is_said_until_the_server_replies() {
    let scene = Scene::new();
    scene.has_letters(1).await;
    *scene.deaf_to.lock() = "RETURN";
    scene.deaf.store(9, SeqCst);
    assert!(scene.ledger().take(1, Duration::ZERO).await.is_err());
    scene.drive(Duration::from_secs(8)).await;
    assert_eq!(scene.free_letters().await, 1);
    assert_eq!(scene.pauses("RETURN"), [50, 100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000]);
}

#[tokio::test]
async fn a_lead_given_to_nobody_is_abandoned_despite_failures() {
    let scene = Scene::new();
    let settings = || CacheSettings::new().lease(DAY).load_timeout(Duration::from_secs(1)).when_away(Away::Closed);
    let users = scene.client.as_ref().unwrap().cached("user", settings()).unwrap();
    // The same question once more, and nine tries to give the lead up.
    scene.deaf.store(10, SeqCst);
    let failed = users.get("42", |_| async { Ok::<_, Error>(Some(Bytes::from_static(b"ours"))) });
    assert!(failed.await.is_err());
    let theirs = scene.neighbour.cached("user", settings()).unwrap();
    let load = || {
        let theirs = theirs.clone();
        tokio::spawn(async move {
            theirs.get("42", |_| async { Ok::<_, Error>(Some(Bytes::from_static(b"theirs"))) }).await
        })
    };
    let waiting = load();
    scene.drive(Duration::from_secs(2)).await;
    assert!(waiting.await.unwrap().is_err(), "the lead is nobody's, and nobody else gets it");
    scene.drive(Duration::from_secs(6)).await;
    let loading = load();
    scene.drive(Duration::from_secs(1)).await;
    assert_eq!(loading.await.unwrap().unwrap().into_value(), Some(Bytes::from_static(b"theirs")));
    assert_eq!(scene.pauses("ABANDON"), [50, 100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000]);
}

#[tokio::test]
async fn a_server_in_trouble_is_asked_singly() {
    const LOST: usize = PENDING_MAX + 200;
    let scene = Scene::new();
    scene.has_letters(LOST as u32).await;
    scene.deaf.store(u32::MAX, SeqCst);
    for _ in 0..LOST {
        assert!(scene.ledger().take(1, Duration::ZERO).await.is_err());
    }
    // Those on top of what may be pending are tried three times.
    scene.drive(Duration::from_secs(5)).await;
    let before = scene.count();
    scene.drive(Duration::from_secs(60)).await;
    assert_eq!(scene.count() - before, 60, "a minute, and a try in each second");
    scene.deaf.store(0, SeqCst);
    scene.drive(Duration::from_millis(1_000)).await;
    for _ in 0..10 {
        settle().await;
    }
    assert_eq!(scene.free_letters().await, PENDING_MAX, "the others hang on the connection");
}

#[tokio::test]
async fn a_connection_that_fell_silent_learns_when_it_speaks_again() {
    let scene = Scene::new();
    scene.has_letters(1).await;
    scene.deaf.store(u32::MAX, SeqCst);
    assert!(scene.ledger().take(1, Duration::ZERO).await.is_err());
    settle().await;
    scene.script.set_reach(Reach::Away);
    scene.drive(Duration::from_secs(60)).await;
    assert_eq!(scene.free_letters().await, 0);
    scene.deaf.store(0, SeqCst);
    scene.script.set_reach(Reach::Here);
    scene.drive(Duration::from_secs(1)).await;
    assert_eq!(scene.free_letters().await, 1);
}

#[tokio::test]
async fn what_hung_on_a_replaced_connection_is_not_insisted_on() {
    let scene = Scene::new();
    scene.has_letters(1).await;
    scene.deaf.store(u32::MAX, SeqCst);
    assert!(scene.ledger().take(1, Duration::ZERO).await.is_err());
    scene.drive(Duration::from_secs(5)).await;
    scene.script.lines.lock().connection = Some(8);
    scene.drive(Duration::from_secs(5)).await;
    let before = scene.count();
    scene.drive(Duration::from_secs(60)).await;
    assert_eq!(scene.count(), before);
}

#[tokio::test]
async fn what_is_given_back_does_not_keep_its_client() {
    let mut scene = Scene::new();
    scene.has_letters(3).await;
    scene.deaf.store(u32::MAX, SeqCst);
    for _ in 0..3 {
        assert!(scene.ledger().take(1, Duration::ZERO).await.is_err());
    }
    scene.drive(Duration::from_secs(5)).await;
    let weak: WeakClient = scene.client.take().unwrap().downgrade();
    scene.drive(Duration::from_secs(2)).await;
    let before = scene.count();
    assert!(weak.upgrade().is_none());
    scene.drive(Duration::from_secs(60)).await;
    assert_eq!(scene.count(), before);
}

#[tokio::test]
async fn a_shutdown_ends_what_is_given_back() {
    let scene = Scene::new();
    scene.has_letters(3).await;
    scene.deaf.store(u32::MAX, SeqCst);
    for _ in 0..3 {
        assert!(scene.ledger().take(1, Duration::ZERO).await.is_err());
    }
    scene.drive(Duration::from_secs(5)).await;
    let client = scene.client.clone().unwrap();
    let closing = tokio::spawn(async move { client.shutdown(Duration::from_secs(60)).await });
    settle().await;
    assert!(closing.is_finished(), "it does not wait for a reply");
    let before = scene.count();
    scene.drive(Duration::from_secs(60)).await;
    assert_eq!(scene.count(), before);
}
