//! When a failure counts as recorded: the primary has it, and as many replicas as asked, and its disk if that was asked.
//!
//! FAIL and PARK may be said again. The server says that it knows the message, and replicates that it was asked: so a WAIT behind it
//! counts for what was recorded the first time, also on another connection.

use std::time::Duration;

use resil_wire::command::{Command, Reply};
use resil_wire::dead_letters::{EntryCall, Parked};

use super::{DeadLetters, LedgerCore};
use crate::backend::Backend;
use crate::backend::safety::{Safety, SafetyReached, WantedReplicas};
use crate::error::Error;
use crate::telemetry::{CallEnding, watched};

/// The primary has it, and may forget it in a failover.
const TOO_FEW_REPLICAS: &str =
    "too few replicas know of the failure in time: do not acknowledge the message, say it again";
/// The primary has it, and may forget it when its machine dies.
const NOT_ON_DISK: &str =
    "the failure is not on the primary's disk in time: do not acknowledge the message, say it again";
/// For how long a primary without replicas is taken to have none: a new one has to copy everything first.
const ALONE_FOR: Duration = Duration::from_secs(1);

/// It was recorded, and is not safe yet.
pub(super) fn is_unsafe(error: &Error) -> bool {
    matches!(error, Error::BackendUnavailable(why) if [TOO_FEW_REPLICAS, NOT_ON_DISK].contains(why))
}

/// What a ledger in memory cannot be.
pub(super) fn check(backend: &Backend, safety: Safety) -> Result<(), Error> {
    if !matches!(backend, Backend::Memory(_)) {
        return Ok(());
    }
    if matches!(safety.replicas, WantedReplicas::AtLeast(1..)) {
        return Err(Error::invalid("replicas", "must be 0 in memory: there are none"));
    }
    if safety.fsync {
        return Err(Error::invalid("fsync", "must be off in memory: there is no disk"));
    }
    Ok(())
}

impl DeadLetters {
    /// The same ledger, with other wishes.
    pub(crate) fn with_safety(&self, safety: Safety) -> Result<Self, Error> {
        check(self.0.client.backend(), safety)?;
        let mut core = LedgerCore::clone(&self.0);
        core.safety = safety;
        Ok(Self(core.into()))
    }

    /// Whether the server can do what is asked. One that is away may be able to.
    pub(crate) async fn check_safety(&self) -> Result<(), Error> {
        if !self.0.safety.fsync {
            return Ok(());
        }
        let look = Command::DlqGet(EntryCall { key: self.0.key.as_bytes(), id: b"-", only_state: true });
        match self.0.made_safe(&look).await {
            Err(error @ (Error::InvalidArgument(_) | Error::PermissionDenied(_))) => Err(error),
            _ => Ok(()),
        }
    }
}

impl LedgerCore {
    /// Whether more is asked than that the primary has it, as far as there is more to be had.
    pub(super) fn is_made_safe(&self) -> bool {
        match self.safety {
            Safety { replicas: WantedReplicas::OneIfAny, fsync: false } => {
                let is_memory = matches!(self.client.backend(), Backend::Memory(_));
                let alone = *self.seen_alone.lock();
                let now = self.client.clock().now();
                !is_memory && alone.is_none_or(|alone| now.saturating_sub(alone) > ALONE_FOR)
            }
            other => other.is_asked(),
        }
    }

    /// Asks, and comes back only when it is as safe as asked. What may be asked twice is: if the connection broke, and nobody knows what
    /// came of it.
    pub(super) async fn ask_safely(&self, command: &Command<'_>) -> Result<Reply, Error> {
        let asking = self.ask_safely_unwatched(command);
        watched!(DeadLetters, command.name(), &self.name, asking, CallEnding::of)
    }

    async fn ask_safely_unwatched(&self, command: &Command<'_>) -> Result<Reply, Error> {
        if !self.is_made_safe() {
            return self.ask_again(command).await;
        }
        match self.ask_made_safe(command).await {
            Err(error) if error.says_away() && !is_unsafe(&error) => self.ask_made_safe(command).await,
            reply => reply,
        }
    }

    /// Asks once, and waits for it to be safe at most as long as for a reply.
    pub(super) async fn ask_made_safe(&self, command: &Command<'_>) -> Result<Reply, Error> {
        let (reply, reached) = self.made_safe(command).await?;
        // Nothing was stored, so there is nothing to know of.
        if matches!(reply, Reply::Parked(Parked::Free)) {
            return Ok(reply);
        }
        if reached.replicas < reached.wanted {
            return Err(Error::BackendUnavailable(TOO_FEW_REPLICAS));
        }
        if self.safety.fsync && !reached.is_on_disk {
            return Err(Error::BackendUnavailable(NOT_ON_DISK));
        }
        Ok(reply)
    }

    async fn made_safe(&self, command: &Command<'_>) -> Result<(Reply, SafetyReached), Error> {
        let patience = self.client.inner().options.command_timeout;
        let made = self.client.backend().made_safe(command, self.safety, patience).await;
        let (reply, reached) = made.map_err(|error| error.of_ledger(&self.name))?;
        if self.safety.replicas == WantedReplicas::OneIfAny {
            *self.seen_alone.lock() = (reached.wanted == 0).then(|| self.client.clock().now());
        }
        Ok((reply, reached))
    }
}
