//! Where commands go: a server, the state machines in this process, or a script of a test.
//!
//! A backend takes a typed [`Command`] and gives a typed [`Reply`]; which one it is makes no difference to the caller.

pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod quorum;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod safety;
pub(crate) mod scripted;

use std::time::{Duration, SystemTime};

use resil_wire::command::{Command, Reply};
use resil_wire::heartbeat::HeartbeatCall;
use resil_wire::holding::Bind;
use tokio::sync::watch;

use self::safety::{Safety, SafetyReached};
use crate::error::Error;

/// Whether the backend can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Here,
    Away,
}

/// Why a backend is away, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WhyAway {
    pub error: Error,
    pub since: SystemTime,
}

#[cfg(test)]
impl WhyAway {
    pub fn test() -> Self {
        Self { error: Error::BackendUnavailable("it is a test"), since: SystemTime::UNIX_EPOCH }
    }
}

#[derive(Debug)]
pub(crate) enum Backend {
    Memory(memory::Memory),
    #[cfg(feature = "redis")]
    Redis(redis::Redis),
    #[cfg(feature = "redis")]
    Quorum(Box<quorum::Quorum>),
    Scripted(scripted::Scripted),
    #[cfg(test)]
    Faulty(crate::holding::tests::faulty::Faulty),
}

impl Backend {
    /// A command that is answered at once: it has no WAIT. On the shared connection.
    pub async fn call(&self, command: &Command<'_>) -> Result<Reply, Error> {
        match self {
            Self::Memory(memory) => memory.call(command),
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.call(command).await,
            #[cfg(feature = "redis")]
            Self::Quorum(quorum) => Box::pin(quorum.call(command)).await,
            Self::Scripted(scripted) => scripted.call(command).await,
            #[cfg(test)]
            Self::Faulty(faulty) => faulty.call(command).await,
        }
    }

    /// The same; it is sent although nobody may wait for the reply any more.
    pub async fn call_to_the_end<'a>(&'a self, command: Command<'a>) -> Result<Reply, Error> {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.begin_to_the_end(command).await,
            _ => self.call(&command).await,
        }
    }

    /// The same for what is worth nothing after `bound`.
    pub async fn call_within(&self, command: &Command<'_>, bound: Duration) -> Result<Reply, Error> {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.call_within(command, bound).await,
            _ => self.call(command).await,
        }
    }

    /// The same on another connection than the shared one, which may only seem to be there.
    pub async fn call_apart(&self, command: &Command<'_>, bound: Duration) -> Result<Reply, Error> {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(redis) => Box::pin(redis.call_apart(command, bound)).await,
            _ => self.call_within(command, bound).await,
        }
    }

    /// A command that may wait. Dropping this future leaves the queue; a grant that was on its way is given back.
    pub async fn wait(&self, command: &Command<'_>) -> Result<Reply, Error> {
        match self {
            Self::Memory(memory) => memory.wait(command).await,
            #[cfg(feature = "redis")]
            // On the heap: waits take long anyway, and futures of callers stay small and shallow.
            Self::Redis(redis) => Box::pin(redis.wait(command)).await,
            #[cfg(feature = "redis")]
            Self::Quorum(quorum) => Box::pin(quorum.call(command)).await,
            Self::Scripted(scripted) => scripted.call(command).await,
            #[cfg(test)]
            Self::Faulty(faulty) => faulty.wait(command).await,
        }
    }

    /// The reply to [`call`](Self::call), if it is to be had without waiting for anything.
    pub fn call_now(&self, command: &Command<'_>) -> Option<Result<Reply, Error>> {
        match self {
            Self::Memory(memory) => Some(memory.call(command)),
            _ => None,
        }
    }

    /// Whether every caller waits in the queue of the backend. Else a wait costs a connection, and of those who want the same one
    /// asks for all.
    pub fn queues_everybody(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.queues_everybody(),
            _ => false,
        }
    }

    /// Whether to ask and to wait is one question: somebody listens for verdicts already.
    pub fn hears_waits(&self) -> bool {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.hears_waits(),
            _ => false,
        }
    }

    /// Keys have slots, and those of one command have to be in the same.
    pub fn is_cluster(&self) -> bool {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.is_cluster(),
            _ => false,
        }
    }

    /// What a holding hangs on: the shared connection, if there is one whose number is known.
    pub fn bind(&self) -> Bind {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.bind(),
            // Nothing hangs on a connection that is away, as with a server.
            Self::Scripted(script) if *script.reach().borrow() == Reach::Here => {
                script.lines.lock().connection.map_or(Bind::None, Bind::to)
            }
            _ => Bind::None,
        }
    }

    /// What a holding asked for by [`call`](Self::call) hangs on: the connection it is asked on, where there is one.
    pub fn bind_here(&self) -> Bind {
        match self {
            Self::Memory(_) => Bind::None,
            #[cfg(feature = "redis")]
            Self::Quorum(_) => Bind::None,
            _ => Bind::HERE,
        }
    }

    /// `command`, and then, on the same connection, which nobody else needs meanwhile, a wait until it is as safe as asked, for at most
    /// `timeout`. The reply to the command, and how safe it is by then.
    #[cfg_attr(not(feature = "redis"), allow(unused_variables))]
    pub async fn made_safe(
        &self,
        command: &Command<'_>,
        safety: Safety,
        timeout: Duration,
    ) -> Result<(Reply, SafetyReached), Error> {
        match self {
            Self::Memory(memory) => memory.call(command).map(|reply| (reply, safety.alone())),
            #[cfg(feature = "redis")]
            Self::Redis(redis) => Box::pin(redis.made_safe(command, safety, timeout)).await,
            #[cfg(feature = "redis")]
            Self::Quorum(_) => Err(quorum::only_locks("a wait for replicas")),
            Self::Scripted(scripted) => {
                let (reply, alone) = (scripted.call(command).await?, safety.alone());
                if alone.wanted == 0 {
                    return Ok((reply, alone));
                }
                match scripted.call(&Command::Heartbeat(HeartbeatCall)).await? {
                    Reply::Number(number) => {
                        Ok((reply, SafetyReached { replicas: u32::try_from(number).unwrap_or(0), ..alone }))
                    }
                    other => Err(Error::Internal(format!("not a number of replicas: {other:?}"))),
                }
            }
            #[cfg(test)]
            Self::Faulty(faulty) => faulty.call(command).await.map(|reply| (reply, safety.alone())),
        }
    }

    /// The same for a number of replicas: how many have it.
    pub async fn replicated(
        &self,
        command: &Command<'_>,
        replicas: u32,
        timeout: Duration,
    ) -> Result<(Reply, u32), Error> {
        if matches!(self, Self::Memory(_)) {
            return Err(Error::invalid("replicas", "must be 0 in memory: there are none"));
        }
        let (reply, reached) = self.made_safe(command, Safety::at_least(replicas), timeout).await?;
        Ok((reply, reached.replicas))
    }

    /// Whether the server is reached at this moment: what [`reach`](Self::reach) says may be a moment old.
    pub async fn is_reached(&self) -> bool {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.is_reached().await,
            _ => true,
        }
    }

    pub fn reach(&self) -> watch::Receiver<Reach> {
        match self {
            Self::Memory(memory) => memory.reach(),
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.reach(),
            #[cfg(feature = "redis")]
            Self::Quorum(quorum) => quorum.reach(),
            Self::Scripted(scripted) => scripted.reach(),
            #[cfg(test)]
            Self::Faulty(faulty) => faulty.reach(),
        }
    }

    /// Why the backend is no help at the moment, if it is none.
    pub fn why_away(&self) -> Option<WhyAway> {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.why_away(),
            #[cfg(feature = "redis")]
            Self::Quorum(quorum) => quorum.why_away(),
            other => (*other.reach().borrow() == Reach::Away).then(|| WhyAway {
                error: Error::BackendUnavailable("the client was closed"),
                since: SystemTime::now(),
            }),
        }
    }

    /// Several servers together have locks only.
    #[cfg_attr(not(feature = "redis"), allow(unused_variables, clippy::unnecessary_wraps))]
    pub fn require_one_server(&self, what: &str) -> Result<(), Error> {
        match self {
            #[cfg(feature = "redis")]
            Self::Quorum(_) => Err(quorum::only_locks(what)),
            _ => Ok(()),
        }
    }

    /// Closes every connection. Later calls fail: it cannot be reached.
    pub async fn close(&self) {
        match self {
            Self::Memory(memory) => memory.close(),
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.close().await,
            #[cfg(feature = "redis")]
            Self::Quorum(quorum) => quorum.close().await,
            Self::Scripted(_) => {}
            #[cfg(test)]
            Self::Faulty(_) => {}
        }
    }
}
