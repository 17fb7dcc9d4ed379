//! A server behind a bad network: the machines in memory, requests and replies late or lost.
//!
//! Calls go over one connection: they arrive, and are answered, in the order they were sent. A request that was sent
//! arrives whether or not its caller is still there. Waits have a connection each, which is closed when its caller is
//! gone: then the server gives back what it could not tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use resil_wire::command::{Allowed, Command, Reply};
use tokio::sync::{mpsc, oneshot, watch};

use crate::backend::Reach;
use crate::backend::memory::Memory;
use crate::clock::Clock;
use crate::error::Error;

/// What becomes of one command.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fate {
    pub there: Duration,
    pub back: Duration,
    pub lost: Lost,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Lost {
    #[default]
    Nothing,
    Request,
    Reply,
    /// It arrives, and its caller is never notified of anything.
    Hangs,
}

pub(crate) type Fates = Box<dyn FnMut(&[Vec<u8>]) -> Fate + Send>;

type Words = Vec<Vec<u8>>;

#[derive(Clone)]
pub(crate) struct Faulty {
    memory: Arc<Memory>,
    clock: Clock,
    fates: Arc<Mutex<Fates>>,
    connection: Arc<Mutex<Option<mpsc::UnboundedSender<Sent>>>>,
    pub reach: Arc<watch::Sender<Reach>>,
    pub asked: Arc<Mutex<Vec<Words>>>,
    /// Waits under way now, and the most there were at once.
    pub waits: Arc<(AtomicUsize, AtomicUsize)>,
}

type Said = Result<Reply, Error>;

type Sent = (Words, Fate, oneshot::Sender<Said>);

const GONE: Error = Error::BackendUnavailable("the connection was lost");

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

fn perform(memory: &Memory, words: &Words) -> Said {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    memory.call(&Command::parse(&words, Allowed::CEILING).expect("what was written can be read"))
}

impl Faulty {
    pub fn new(memory: Arc<Memory>, clock: Clock, fates: Fates) -> Self {
        Self {
            memory,
            clock,
            fates: Arc::new(Mutex::new(fates)),
            connection: Arc::default(),
            reach: Arc::new(watch::Sender::new(Reach::Here)),
            asked: Arc::default(),
            waits: Arc::default(),
        }
    }

    pub fn set_fates(&self, fates: Fates) {
        *self.fates.lock() = fates;
    }

    fn fate(&self, command: &Command<'_>) -> (Words, Fate) {
        let words = command.words();
        self.asked.lock().push(words.clone());
        let fate = (self.fates.lock())(&words);
        (words, fate)
    }

    pub async fn call(&self, command: &Command<'_>) -> Said {
        let (words, fate) = self.fate(command);
        let (sender, receiver) = oneshot::channel();
        let sent = self.connection().send((words, fate, sender));
        if sent.is_err() {
            return Err(GONE);
        }
        // As a real one: no result within a second is none.
        tokio::select! {
            biased;
            said = receiver => said.unwrap_or(Err(GONE)),
            () = self.clock.sleep(Duration::from_secs(1)) => Err(GONE),
        }
    }

    fn connection(&self) -> mpsc::UnboundedSender<(Words, Fate, oneshot::Sender<Said>)> {
        let mut connection = self.connection.lock();
        connection
            .get_or_insert_with(|| {
                let (sender, mut receiver) = mpsc::unbounded_channel::<(Words, Fate, oneshot::Sender<Said>)>();
                let (memory, clock) = (Arc::clone(&self.memory), self.clock.clone());
                tokio::spawn(async move {
                    while let Some((words, fate, sender)) = receiver.recv().await {
                        clock.sleep(fate.there).await;
                        let said = (fate.lost != Lost::Request).then(|| perform(&memory, &words));
                        clock.sleep(fate.back).await;
                        match (fate.lost, said) {
                            (Lost::Nothing, Some(said)) => drop(sender.send(said)),
                            (Lost::Hangs, _) => std::mem::forget(sender),
                            _ => drop(sender.send(Err(GONE))),
                        }
                    }
                });
                sender
            })
            .clone()
    }

    pub async fn wait(&self, command: &Command<'_>) -> Said {
        let (_words, fate) = self.fate(command);
        let now = self.waits.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.waits.1.fetch_max(now, Ordering::SeqCst);
        let _leaves = Leaves(&self.waits.0);
        self.clock.sleep(fate.there).await;
        if fate.lost == Lost::Request {
            return Err(GONE);
        }
        let said = self.memory.wait(command).await?;
        // The connection closes with the caller, and the server takes back what could not be reported.
        let unread = Unread { faulty: self, words: release_of(command), reported: fate.lost != Lost::Nothing };
        self.clock.sleep(fate.back).await;
        if fate.lost == Lost::Hangs {
            std::future::pending::<()>().await;
        }
        if fate.lost == Lost::Reply {
            return Err(GONE);
        }
        std::mem::forget(unread);
        Ok(said)
    }

    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }
}

fn release_of(command: &Command<'_>) -> Words {
    let words = command.words();
    let verb: &[u8] = if words[0] == b"RES.LOCK" { b"RELEASE" } else { b"LEAVE" };
    vec![words[0].clone(), verb.to_vec(), words[2].clone(), words[3].clone()]
}

struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Unread<'a> {
    faulty: &'a Faulty,
    words: Words,
    /// The reply had left the server before it was lost.
    reported: bool,
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        if !self.reported {
            let _ = perform(&self.faulty.memory, &self.words);
        }
    }
}
