//! A server.
use resil_wire::answer::Answer;
use resil_wire::command::Command;
use resil_wire::holding::Bind;
use tokio::sync::watch;

use super::Reach;
use crate::client::ConnectOptions;
use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Redis {
    reach: watch::Sender<Reach>,
}

impl Redis {
    pub async fn connect(_options: &ConnectOptions) -> Result<Self, Error> {
        Ok(Self { reach: watch::Sender::new(Reach::Here) })
    }

    pub async fn call(&self, _command: &Command<'_>) -> Result<Answer, Error> {
        todo!()
    }

    pub async fn wait(&self, _command: &Command<'_>) -> Result<Answer, Error> {
        todo!()
    }

    pub async fn replicated(
        &self,
        _command: &Command<'_>,
        _replicas: u32,
        _timeout: std::time::Duration,
    ) -> Result<(Answer, u32), Error> {
        todo!()
    }

    pub fn bind(&self) -> Bind {
        Bind::None
    }

    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    pub async fn close(&self) {}
}
