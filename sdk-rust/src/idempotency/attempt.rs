//! One attempt at a piece of work, from BEGIN to its end, whatever happens to the caller.
//!
//! ```text
//! Asking ---RUN---> Running ---ok / final error---> Committing ---> Over
//!    |                 |  \---other error---> Aborting ---> Over
//! ```
//! The future that drives it may be dropped in any stage. What is then right differs, and is done in the background:
//! - Asking: a RUN may be on its way to nobody, and nothing has happened: ABORT, which also takes one that waits out of the
//!   server's queue. It was asked for on another connection, so that the ABORT can overtake the question itself. Then the
//!   server knows nothing of it yet, and it is said again.
//! - Running: **it is not known what the function did**. The lease is left to lapse, so that the next runner gets attempt 2
//!   and can look first. With [`abort_on_cancel`](super::IdempotencySettings::abort_on_cancel) the author vouches that a function cut short has had no effect: ABORT.
//! - Committing: the work is done and its result is known: it is committed all the same.
//! - Aborting: ABORT.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use resil_wire::command::{Command, Reply};
use resil_wire::holding::{Bind, Renewed, Wait};
use resil_wire::idempotency::{BeginCall, Begun, CommitCall, Committed, TokenCall, TokenRenewCall};

use super::IdempotencySettings;
use super::token::{from_ms, odd, span};
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, Leased};

/// How often a question is asked again that got no reply at all.
const REPEATS: u32 = 2;
/// How often a result is brought at least, and the pauses between: doubled from the first to the last.
const COMMIT_TRIES: u32 = 4;
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_millis(800);
/// When an ABORT is said again of a wait that was dropped and of which the server knew nothing: by then it has read
/// everything that was sent on its connection.
const AGAIN_AFTER: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

#[derive(Debug, Clone)]
enum AttemptStage {
    Asking,
    Running,
    Committing(Ending),
    Aborting,
    Over,
}

/// What is brought to the server.
#[derive(Debug, Clone)]
pub(super) struct Ending {
    pub result: Bytes,
    pub is_error: bool,
    /// Worth bringing until then even if nothing replies, and a few times in any case.
    pub until: Moment,
}

pub(super) struct Attempt<'a> {
    client: &'a Client,
    settings: &'a IdempotencySettings,
    /// Of the handle, for errors.
    name: &'a Arc<str>,
    key: &'a str,
    pub token: String,
    stage: AttemptStage,
    has_waited: bool,
}

impl<'a> Attempt<'a> {
    pub fn new(client: &'a Client, settings: &'a IdempotencySettings, name: &'a Arc<str>, key: &'a str) -> Self {
        let token = super::token::fresh_token(client);
        Self { client, settings, name, key, token, stage: AttemptStage::Asking, has_waited: false }
    }

    /// Asks for the work, and waits for the present runner until `deadline`. With the reply: from when a lease counts.
    ///
    /// It asks on the shared connection first, which settles most calls; only who has to wait takes a connection for that.
    pub async fn begin(&mut self, fingerprint: &[u8], deadline: Moment) -> Result<(Begun, Moment), Error> {
        let (client, clock) = (self.client, self.client.clock());
        let mut repeats = 0;
        self.stage = AttemptStage::Asking;
        loop {
            let mut sent = clock.now();
            let mut reply = client.backend().call(&self.begin_command(fingerprint, Duration::ZERO)).await;
            let patience = deadline.saturating_sub(clock.now());
            if matches!(reply, Ok(Reply::Begun(Begun::Busy { .. }))) && !patience.is_zero() {
                self.has_waited = true;
                sent = clock.now();
                reply = client.wait(&self.begin_command(fingerprint, patience)).await;
            }
            match reply {
                Ok(Reply::Begun(begun)) => {
                    let waited = match &begun {
                        Begun::Run { waited_ms, .. } => from_ms(*waited_ms),
                        _ => Duration::ZERO,
                    };
                    // From here on the caller that was answered decides what a drop means.
                    self.stage =
                        if matches!(begun, Begun::Run { .. }) { AttemptStage::Running } else { AttemptStage::Over };
                    return Ok((begun, sent.saturating_add(waited)));
                }
                Ok(other) => return Err(odd(&other)),
                // The same token gets the same reply: the first one may have been lost. A call that waited goes on waiting.
                Err(error) if error.says_away() => {
                    let goes_on = if self.has_waited { clock.now() < deadline } else { repeats < REPEATS };
                    if !goes_on {
                        return Err(error);
                    }
                    if repeats > 0 {
                        clock.sleep(pause(repeats)).await;
                    }
                    repeats += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn begin_command(&self, fingerprint: &'a [u8], wait: Duration) -> Command<'_> {
        Command::IdempBegin(BeginCall {
            key: self.key.as_bytes(),
            token: self.token.as_bytes(),
            lease: span(self.settings.lease),
            fingerprint,
            wait: Wait::blocked(span(wait)),
            keep: span(self.settings.keep),
            on_lapse: self.settings.on_lapse.into(),
            // Not bound to the connection: one that is cut and made again would let a second runner in beside the first.
            bind: Bind::None,
        })
    }

    /// So many replicas know that it runs. From when its lease counts; if they are too few, it is given back.
    pub async fn confirm(&mut self, replicas: u32) -> Result<Moment, Error> {
        let (backend, sent) = (self.client.backend(), self.client.clock().now());
        let (key, token) = (self.key.as_bytes(), self.token.as_bytes());
        let call = TokenRenewCall { key, token, lease: span(self.settings.lease), bind: Bind::None };
        // Nothing has happened yet: a call that is dropped here has had no effect.
        self.stage = AttemptStage::Asking;
        let patience = self.client.inner().options.command_timeout;
        let short = match backend.replicated(&Command::IdempRenew(call), replicas, patience).await {
            Ok((Reply::Renewed(Renewed::Granted { .. }), have_it)) if have_it >= replicas => {
                self.stage = AttemptStage::Running;
                return Ok(sent);
            }
            Ok((Reply::Renewed(Renewed::Lost(reason)), _)) => {
                Error::LockLost { what: Leased::Work, name: Arc::clone(self.name), reason: reason.text() }
            }
            Ok(_) => Error::BackendUnavailable("too few replicas know of the work; it was given back"),
            Err(error) => error,
        };
        self.abort().await;
        Err(short)
    }

    pub async fn commit(&mut self, ending: Ending) -> Result<Committed, Error> {
        self.stage = AttemptStage::Committing(ending.clone());
        let committed = bring(self.client, self.key, &self.token, self.settings.keep, &ending).await;
        self.stage = AttemptStage::Over;
        committed
    }

    /// Frees the key: nothing happened. If the server does not hear of it, the lease lapses.
    pub async fn abort(&mut self) {
        self.stage = AttemptStage::Aborting;
        give_up(self.client, self.key, &self.token).await;
        self.stage = AttemptStage::Over;
    }

    /// Nothing is to be done any more when this is dropped.
    pub fn leave(&mut self) {
        self.stage = AttemptStage::Over;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut self.stage, AttemptStage::Over);
        let ending = match &stage {
            AttemptStage::Over => return,
            AttemptStage::Running if !self.settings.abort_on_cancel => return,
            AttemptStage::Committing(ending) => Some(ending.clone()),
            AttemptStage::Asking | AttemptStage::Running | AttemptStage::Aborting => None,
        };
        // Where nothing runs nothing can be sent, and the lease lapses.
        let Some(runtime) = self.client.background() else { return };
        let (client, key, token) = (self.client.clone(), self.key.to_owned(), std::mem::take(&mut self.token));
        let keep = self.settings.keep;
        let may_come_late = self.has_waited && matches!(stage, AttemptStage::Asking);
        let task = async move {
            match ending {
                None => {
                    let mut is_known = give_up(&client, &key, &token).await;
                    for later in AGAIN_AFTER.into_iter().filter(|_| may_come_late) {
                        if is_known {
                            return;
                        }
                        tokio::select! {
                            () = client.clock().sleep(later) => is_known = give_up(&client, &key, &token).await,
                            () = client.inner().closing.cancelled() => return,
                        }
                    }
                }
                Some(ending) => {
                    if let Err(error) = bring(&client, &key, &token, keep, &ending).await {
                        tracing::warn!(%error, "work was done and could not be recorded");
                    }
                }
            }
        };
        self.client.inner().tasks.spawn_on(task, &runtime);
    }
}

fn pause(repeats: u32) -> Duration {
    PAUSE_FIRST.saturating_mul(1 << repeats.min(8)).min(PAUSE_LAST)
}

/// COMMIT, asked again while nothing replies: the same token committing again is the first commit again.
async fn bring(client: &Client, key: &str, token: &str, keep: Duration, ending: &Ending) -> Result<Committed, Error> {
    let Ending { result, is_error, until } = ending;
    let call = CommitCall { key: key.as_bytes(), token: token.as_bytes(), ttl: span(keep), result, failed: *is_error };
    let command = Command::IdempCommit(call);
    let mut tries = 0;
    loop {
        tries += 1;
        match client.backend().call(&command).await {
            Ok(Reply::Committed(committed)) => return Ok(committed),
            Ok(other) => return Err(odd(&other)),
            Err(error) if error.says_away() && (tries < COMMIT_TRIES || client.clock().now() < *until) => {
                if tries > 1 {
                    client.clock().sleep(pause(tries - 2)).await;
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// True if the server knew of the token, and will not give it anything any more.
async fn give_up(client: &Client, key: &str, token: &str) -> bool {
    let command = Command::IdempAbort(TokenCall { key: key.as_bytes(), token: token.as_bytes() });
    for _ in 0..=REPEATS {
        match client.backend().call(&command).await {
            Err(error) if error.says_away() => {}
            Err(error) => {
                tracing::debug!(%error, "an abort was refused");
                return false;
            }
            Ok(reply) => return matches!(reply, Reply::Aborted(None)),
        }
    }
    false
}
