//! A backend with the replies that a test lists, in that order. It remembers the commands.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use resil_wire::command::{Command, Reply};
use tokio::sync::{Semaphore, watch};

use super::Reach;
use crate::error::Error;

#[derive(Debug, Clone)]
pub(crate) struct Scripted {
    pub lines: Arc<Mutex<Lines>>,
    reach: Arc<watch::Sender<Reach>>,
}

type Respond = dyn FnMut(&Command<'_>) -> Result<Reply, Error> + Send;

/// Replies by looking at what is asked.
pub(crate) struct Replying(pub Box<Respond>);

impl std::fmt::Debug for Replying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Replying")
    }
}

#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// What is to be said; when nothing is left, the backend is away.
    pub replies: VecDeque<Result<Reply, Error>>,
    /// Replies instead of the script.
    pub by: Option<Replying>,
    /// Each reply takes one before it is given; while there is none it is on its way.
    pub deliveries: Option<Arc<Semaphore>>,
    /// The connection that holdings hang on, if there is one.
    pub connection: Option<u64>,
    /// What was asked, in words.
    pub asked: Vec<Vec<Vec<u8>>>,
}

impl Scripted {
    pub fn new() -> Self {
        Self { lines: Arc::default(), reach: Arc::new(watch::Sender::new(Reach::Here)) }
    }

    pub async fn call(&self, command: &Command<'_>) -> Result<Reply, Error> {
        let (reply, deliveries) = {
            let mut lines = self.lines.lock();
            lines.asked.push(command.words());
            let reply = match &mut lines.by {
                Some(by) => (by.0)(command),
                None => lines.replies.pop_front().unwrap_or(Err(Error::BackendUnavailable("the script is over"))),
            };
            (reply, lines.deliveries.clone())
        };
        if let Some(deliveries) = deliveries
            && let Ok(delivery) = deliveries.acquire().await
        {
            delivery.forget();
        }
        reply
    }

    pub fn set_reach(&self, reach: Reach) {
        self.reach.send_replace(reach);
    }

    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }
}
