//! The state machines in this process.
use resil_wire::answer::Answer;
use resil_wire::command::Command;
use tokio::sync::watch;

use super::Reach;
use crate::clock::Clock;
use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Memory {
    reach: watch::Sender<Reach>,
}

impl Memory {
    pub fn new(_clock: Clock) -> Self {
        Self { reach: watch::Sender::new(Reach::Here) }
    }

    pub fn call(&self, _command: &Command<'_>) -> Result<Answer, Error> {
        todo!()
    }

    pub async fn wait(&self, _command: &Command<'_>) -> Result<Answer, Error> {
        todo!()
    }

    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    pub fn close(&self) {}
}
