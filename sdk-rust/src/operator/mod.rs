//! For those who run the fleet: lists of what there is and what stands out, without knowing a name; breakers, locks, bulkheads and limits by
//! their keys, whatever bytes those are; and what the server says of itself. The command line tool `resil` is made of it.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::breaker::{Force, State};
//! use resil::operator::{ForceOrder, KeyFilter, KeyKind, KeyRow};
//!
//! let client = resil::connect("memory://").await?;
//! let key = KeyKind::Breaker.key("payments")?;
//! let order = ForceOrder::new(Force::Open).actor("ann").reason("bank maintenance");
//! client.operator().force(&key, &order).await?;
//! assert_eq!(client.operator().breaker(&key).await?.state, State::ForcedOpen);
//!
//! let _held = client.lock("reports", resil::lock::LockSettings::new())?.acquire().await?;
//! let locks = client.operator().locks(&KeyFilter::default()).await?;
//! assert_eq!((locks[0].name().as_deref(), locks[0].state, locks[0].waiters), (Some("reports"), "held", 0));
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! # What holds
//! - A look changes nothing, also for a key that is not there: `exists` says so.
//! - A key that is there the whole time is listed exactly once. Of a cluster every primary is asked; a key that moves meanwhile, or that
//!   another one replaces, may be missing, or come twice. You see the keys that your user may read.
//! - No call of a list holds a server for longer than a millisecond: lists are read in pages.
//! - [`Operator::denied`] estimates, and each row says by how much it may be off.
//! - What changes something is asked once, with the actor and the reason that the caller names.
//! - Keys are bytes. [`KeyKind::key`] makes the one that the SDKs use for a name, [`KeyKind::name`] reads it back.

mod feed;
mod overview;
mod server;

#[cfg(feature = "redis")]
use std::sync::Arc;
use std::time::Duration;

use resil_core::limits::{INFO_LIMIT_DEFAULT, TEXT_MAX};
use resil_core::rate_limit::Ask;
use resil_wire::breaker::{ForceCall, Forced};
use resil_wire::command::{Command, Reply};
use resil_wire::holding::InfoCall;
use resil_wire::lock::BreakCall;

pub use self::feed::{EventFeed, ServerMessage};
pub use self::overview::{
    BreakerRow, BulkheadRow, DeniedRow, HeldRow, KeyFilter, KeyRow, LedgerRow, LoadRow, LockRow, PolicyRow, RowField,
    RunRow, WaitingRow,
};
#[cfg(feature = "redis")]
use crate::backend::redis::lost::LostNodes;
use crate::breaker::{Force, Snapshot, State};
use crate::client::Client;
use crate::dead_letters::{DeadLetters, DeadLettersSettings};
use crate::error::Error;
use crate::holding::span;
use crate::keys;
use crate::limiter::{Limit, Verdict};
use crate::lock::Info;
use crate::settings::span_text::check_span;

/// The longest time that a state is forced for.
const FORCE_MAX: Duration = Duration::from_secs(366 * 86_400);

/// What a key is for: the part of it that the SDKs put before the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    Breaker,
    Lock,
    Bulkhead,
    Policy,
    DeadLetters,
}

impl KeyKind {
    fn text(self) -> &'static str {
        match self {
            Self::Breaker => "breaker",
            Self::Lock => "lock",
            Self::Bulkhead => "bulkhead",
            Self::Policy => "policy",
            Self::DeadLetters => "dlq",
        }
    }

    /// The key of this name, for example `resil:breaker:{payments}`.
    pub fn key(self, name: &str) -> Result<Vec<u8>, Error> {
        keys::check_name(name)?;
        Ok(keys::named(self.text(), name).into_bytes())
    }

    /// The name in a key that the SDKs made; `None` for others.
    pub fn name(self, key: &[u8]) -> Option<String> {
        keys::name_in(self.text(), key)
    }
}

/// The key of a limit: `resil:limit:<name>:{<key>}`.
pub fn limit_key(name: &str, key: &[u8]) -> Result<Vec<u8>, Error> {
    keys::check_name(name)?;
    Ok([format!("resil:limit:{name}:{{").as_bytes(), key, b"}"].concat())
}

/// A state that a breaker is put into by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForceOrder {
    pub force: Force,
    /// `None`: until [`Force::Auto`].
    pub duration: Option<Duration>,
    /// The user of the connection by default.
    pub actor: Option<String>,
    pub reason: Option<String>,
}

impl ForceOrder {
    pub fn new(force: Force) -> Self {
        Self { force, duration: None, actor: None, reason: None }
    }

    /// Sets [`duration`](Self#structfield.duration).
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// Sets [`actor`](Self#structfield.actor).
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// Sets [`reason`](Self#structfield.reason).
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

impl Client {
    /// What is asked by those who run the fleet.
    pub fn operator(&self) -> Operator {
        Operator {
            client: self.clone(),
            #[cfg(feature = "redis")]
            lost: None,
        }
    }
}

/// Looks at state by its key, and overrides it. Cheap to clone; see the [module](self).
#[derive(Debug, Clone)]
pub struct Operator {
    client: Client,
    /// Nodes that were lost, if it goes on without them.
    #[cfg(feature = "redis")]
    lost: Option<Arc<LostNodes>>,
}

fn said<'a>(field: &str, text: Option<&'a str>) -> Result<Option<&'a [u8]>, Error> {
    match text {
        Some(text) if text.len() > TEXT_MAX => {
            Err(Error::InvalidArgument(format!("{field} must have at most {TEXT_MAX} bytes, got {}", text.len())))
        }
        text => Ok(text.filter(|text| !text.is_empty()).map(str::as_bytes)),
    }
}

fn odd(what: &str, reply: &Reply) -> Error {
    Error::Internal(format!("{what} was answered {reply:?}"))
}

impl Operator {
    /// Goes on without nodes of a cluster that do not reply, and remembers them: lists, rankings and INFO are those of the others. Make a new
    /// one for each look.
    #[must_use]
    pub fn without_lost_nodes(self) -> Self {
        #[cfg(feature = "redis")]
        let this = Self { lost: Some(Arc::default()), ..self };
        #[cfg(not(feature = "redis"))]
        let this = self;
        this
    }

    /// The nodes that did not reply, as `host:port`, and why: see [`without_lost_nodes`](Self::without_lost_nodes).
    pub fn lost_nodes(&self) -> Vec<(String, String)> {
        #[cfg(feature = "redis")]
        let lost = self.lost.as_ref().map(|lost| lost.all()).unwrap_or_default();
        #[cfg(not(feature = "redis"))]
        let lost = Vec::new();
        lost
    }

    async fn call(&self, command: &Command<'_>) -> Result<Reply, Error> {
        self.client.backend().call(command).await
    }

    async fn number(&self, what: &str, command: &Command<'_>) -> Result<i64, Error> {
        match self.call(command).await? {
            Reply::Number(number) => Ok(number),
            other => Err(odd(what, &other)),
        }
    }

    /// What the server knows about a breaker.
    pub async fn breaker(&self, key: &[u8]) -> Result<Snapshot, Error> {
        match self.call(&Command::BreakerState(key)).await? {
            Reply::Map(map) => Snapshot::read(&map),
            other => Err(odd("the state of a breaker", &other)),
        }
    }

    /// Puts a breaker into a state, for all who share it. Its state afterwards.
    pub async fn force(&self, key: &[u8], order: &ForceOrder) -> Result<State, Error> {
        if order.force == Force::Auto && order.duration.is_some() {
            return Err(Error::InvalidArgument("duration does not go with the state auto".to_owned()));
        }
        if let Some(duration) = order.duration {
            check_span("duration", duration, Duration::from_millis(1), FORCE_MAX)?;
        }
        let actor = said("actor", order.actor.as_deref())?;
        let reason = said("reason", order.reason.as_deref())?;
        let (force, length) = (order.force.core(), order.duration.map(span));
        match self.call(&Command::BreakerForce(ForceCall { key, force, length, actor, reason })).await? {
            Reply::Forced(Forced { state, .. }) => Ok(state),
            other => Err(odd("a force", &other)),
        }
    }

    /// Closes a breaker, with nothing counted; its options stay. False if there was nothing to reset.
    pub async fn reset_breaker(&self, key: &[u8]) -> Result<bool, Error> {
        self.number("a reset", &Command::BreakerReset(key)).await.map(|number| number != 0)
    }

    /// Holders and waiters of a lock.
    pub async fn lock(&self, key: &[u8]) -> Result<Info, Error> {
        Info::read(self.call(&Command::LockInfo(InfoCall { key, limit: INFO_LIMIT_DEFAULT as usize })).await?)
    }

    /// Takes a lock from its holders: how many they were.
    pub async fn break_lock(&self, key: &[u8], actor: &str, reason: &str) -> Result<u64, Error> {
        let call = BreakCall { key, actor: said("actor", Some(actor))?, reason: said("reason", Some(reason))? };
        self.number("a break", &Command::LockBreak(call)).await.map(i64::unsigned_abs)
    }

    /// Holders and waiters of a shared bulkhead.
    pub async fn bulkhead(&self, key: &[u8]) -> Result<Info, Error> {
        Info::read(self.call(&Command::BulkheadInfo(InfoCall { key, limit: INFO_LIMIT_DEFAULT as usize })).await?)
    }

    /// What `limit` has left under a key, taking nothing. The server knows no limits, only what was taken: name the one that is used.
    pub async fn limit(&self, key: &[u8], limit: &Limit) -> Result<Verdict, Error> {
        let shape = limit.check(1)?.shape;
        let reply = self.call(&shape.command(key, Ask::Peek)).await?;
        crate::limiter::read_verdict(&reply, &shape)
    }

    /// The ledger under a key that is not made of a name; see [`Client::dead_letters`].
    pub fn ledger(&self, key: &str, settings: DeadLettersSettings) -> Result<DeadLetters, Error> {
        DeadLetters::at(&self.client, key, key, settings)
    }
}
