//! A command, and then, on the same connection, what makes it safe: WAIT and WAITAOF count from the last change that their connection made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Value as Given;
use redis::aio::MultiplexedConnection;
use resil_wire::command::{Command, Reply};
use tokio::time::{Instant, timeout_at};

use super::speech::{packed, understood};
use super::trouble::{Trouble, judged};
use super::waiting::{SLACK, WaitingCommand};
use super::{Redis, is_in_a_runtime, read};
use crate::backend::safety::{Safety, SafetyReached, WantedReplicas};
use crate::error::Error;

const NO_WAITAOF: &str = "fsync needs a server that has WAITAOF, with appendonly yes: Redis 7.2 or later, or Valkey; with older ones say appendfsync always there, and not \
     fsync here";

impl Redis {
    /// The reply, and how safe it is after at most `patience`.
    pub async fn made_safe(
        &self,
        command: &Command<'_>,
        safety: Safety,
        patience: Duration,
    ) -> Result<(Reply, SafetyReached), Error> {
        let asking = self.made_safe_here(command, safety, patience);
        if is_in_a_runtime() { asking.await } else { self.outside(asking).await }
    }

    async fn made_safe_here(
        &self,
        command: &Command<'_>,
        safety: Safety,
        patience: Duration,
    ) -> Result<(Reply, SafetyReached), Error> {
        let shared = &*self.shared;
        let session = shared.session()?;
        let deadline = Instant::now() + patience + shared.command_timeout + SLACK;
        let late = || Trouble::Late.into_error(None);
        let _place = match timeout_at(deadline, shared.waiting.places.acquire()).await {
            Ok(Ok(place)) => place,
            _ => return Err(late()),
        };
        let mut asking = WaitingCommand::new(shared, command, deadline);
        let both = async {
            let (mut connection, node) = asking.connection(&session).await?;
            let reply = judged(connection.send_packed_command(&packed(command)).await)?;
            let reached = reach(&mut connection, safety, patience).await?;
            shared.waiting.put_back(connection, session.generation, node);
            Ok::<_, Trouble>((reply, reached))
        };
        match timeout_at(deadline, both).await {
            Ok(Ok((reply, reached))) => Ok((read(command, understood(reply))?, reached)),
            Ok(Err(trouble)) => {
                shared.suspect(&trouble, command);
                Err(trouble.into_error(command.key()))
            }
            Err(_) => Err(late()),
        }
    }
}

async fn reach(
    connection: &mut MultiplexedConnection,
    safety: Safety,
    patience: Duration,
) -> Result<SafetyReached, Trouble> {
    let begun = Instant::now();
    let wanted = match safety.replicas {
        WantedReplicas::AtLeast(count) => count,
        WantedReplicas::OneIfAny => u32::from(has_replicas(connection).await?),
    };
    let left = || u64::try_from(patience.saturating_sub(begun.elapsed()).as_millis()).unwrap_or(u64::MAX).max(1);
    let mut reached = SafetyReached { wanted, replicas: 0, is_on_disk: false };
    if wanted > 0 {
        let have_it = judged(connection.send_packed_command(redis::cmd("WAIT").arg(wanted).arg(left())).await)?;
        reached.replicas = count_of(&have_it);
    }
    if safety.fsync && reached.replicas >= wanted {
        let mut wait = redis::cmd("WAITAOF");
        reached.is_on_disk = match judged(connection.send_packed_command(wait.arg(1).arg(0).arg(left())).await) {
            Ok(Given::Array(counts)) => counts.first().is_some_and(|local| count_of(local) >= 1),
            Ok(_) => false,
            // It does not know the command, or has no file that it could write to.
            Err(Trouble::Refused(Error::ModuleMissing | Error::InvalidArgument(_))) => {
                return Err(Trouble::Refused(Error::InvalidArgument(NO_WAITAOF.to_owned())));
            }
            Err(Trouble::Refused(Error::PermissionDenied(_))) => {
                return Err(Trouble::Refused(Error::PermissionDenied("WAITAOF, which fsync needs")));
            }
            Err(trouble) => return Err(trouble),
        };
    }
    Ok(reached)
}

fn count_of(value: &Given) -> u32 {
    match value {
        Given::Int(count) => u32::try_from(*count).unwrap_or_default(),
        _ => 0,
    }
}

/// Whether the primary has replicas. One that may not be asked has none, as far as anybody here can know.
async fn has_replicas(connection: &mut MultiplexedConnection) -> Result<bool, Trouble> {
    let text = match judged(connection.send_packed_command(redis::cmd("INFO").arg("replication")).await) {
        Ok(Given::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Ok(Given::VerbatimString { text, .. } | Given::SimpleString(text)) => text,
        Ok(_) => String::new(),
        Err(Trouble::Refused(Error::PermissionDenied(_))) => {
            static HAS_WARNED: AtomicBool = AtomicBool::new(false);
            if !HAS_WARNED.swap(true, Ordering::Relaxed) {
                tracing::warn!("INFO is not allowed, so replicas are not waited for: allow it, or say how many");
            }
            return Ok(false);
        }
        Err(trouble) => return Err(trouble),
    };
    let connected = text.lines().find_map(|line| line.trim_end().strip_prefix("connected_slaves:"));
    Ok(connected.and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count > 0))
}
