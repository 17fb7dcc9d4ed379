//! A question for messages, and what becomes of it without a reply.

use std::sync::Arc;
use std::time::Duration;

use resil_wire::command::{Command, Reply};
use resil_wire::dead_letters::{ReturnCall, TakeCall, TakenReply};
use resil_wire::holding::{Bind, Wait};

use super::LedgerCore;
use crate::backend::Backend;
use crate::holding::span;
use crate::idempotency::token::fresh_token;
use crate::insisting::Insisting;

/// When a token of which the server knew nothing is asked for again: by then it has read all that was sent before.
const ASKED_AGAIN_AFTER: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// If it is dropped without a reply, the server may have given messages to nobody.
pub(super) struct Asking<'a> {
    core: &'a LedgerCore,
    question: TakeQuestion,
    is_answered: bool,
}

/// What is asked, without the client.
#[derive(Default)]
struct TakeQuestion {
    key: Arc<str>,
    token: String,
    lease: Duration,
    grace: Duration,
    meta: Arc<str>,
    count: u32,
}

impl TakeQuestion {
    fn command(&self, bind: Bind, wait: Duration) -> Command<'_> {
        Command::DlqTake(TakeCall {
            key: self.key.as_bytes(),
            token: self.token.as_bytes(),
            lease: span(self.lease),
            count: self.count,
            wait: Wait::blocked(span(wait)),
            bind: bind.with_grace(span(self.grace)),
            meta: self.meta.as_bytes(),
        })
    }
}

impl<'a> Asking<'a> {
    pub fn new(core: &'a LedgerCore, count: u32) -> Self {
        let question = TakeQuestion {
            key: Arc::clone(&core.key),
            token: fresh_token(&core.client),
            lease: core.settings.lease,
            grace: core.settings.grace,
            meta: Arc::clone(&core.client.inner().name),
            count,
        };
        Self { core, question, is_answered: false }
    }

    pub fn command(&self, wait: Duration) -> Command<'_> {
        self.question.command(self.core.client.backend().bind(), wait)
    }

    /// Nothing is left to be given back. The token.
    pub fn answered(mut self) -> String {
        self.is_answered = true;
        std::mem::take(&mut self.question.token)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let client = &self.core.client;
        // In memory who leaves the queue gives back what it was given.
        if self.is_answered || matches!(client.backend(), Backend::Memory(_)) {
            return;
        }
        let Some(runtime) = client.background() else { return };
        let question = TakeQuestion { count: 1, ..std::mem::take(&mut self.question) };
        let (insisting, bind, name) = (Insisting::new(client), client.backend().bind(), Arc::clone(&self.core.name));
        let leaving = async move { leave(insisting, question, bind, &name).await };
        client.inner().tasks.spawn_on(leaving, &runtime);
    }
}

/// The same token without a wait leaves the queue, and gets what was given to it meanwhile: that goes back.
async fn leave(mut insisting: Insisting, question: TakeQuestion, bind: Bind, ledger: &str) {
    let mut later = ASKED_AGAIN_AFTER.into_iter();
    loop {
        if let Ok(Reply::Taken(TakenReply::Taken { entries, .. })) =
            insisting.say(&question.command(bind, Duration::ZERO)).await
        {
            let entries = entries.iter().map(|given| (given.message.id(), given.fence)).collect();
            let call = ReturnCall { key: question.key.as_bytes(), delay: span(Duration::ZERO), entries };
            if let Err(error) = insisting.say(&Command::DlqReturn(call)).await {
                tracing::warn!(%error, ledger, "messages that nobody took could not be given back");
            }
            return;
        }
        // This may have overtaken the question.
        let Some(later) = later.next() else { return };
        if !insisting.sleep(later).await {
            return;
        }
    }
}
