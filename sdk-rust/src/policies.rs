//! Policies that are stored in the server: set, read, listed, rolled back, deleted, checked and watched. Services without an SDK are held to them by
//! `RES.GUARD`; [`Client::policy`] follows one: see [`FollowedPolicy`].
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::policies::PolicyAction;
//!
//! let client = resil::connect("memory://").await?;
//! let policies = client.policies();
//! let stored = policies.set("payments", r#"{"retry": {"maxAttempts": 4}}"#).reason("the bank asked for it").await?;
//! assert_eq!((stored.version, stored.action), (1, PolicyAction::Created));
//! let payments = policies.get("payments").await?.expect("it was just stored");
//! assert_eq!(payments.policy, r#"{"retry":{"maxAttempts":4}}"#);
//! let wrong = policies.check(r#"{"retry": {"maxAttempts": 0}}"#).await.unwrap_err();
//! assert_eq!(wrong.to_string(), "retry.maxAttempts must be from 1 to 100, got 0");
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! # What holds
//! - A document that is wrong is refused with the path of what is wrong, and changes nothing.
//! - Versions count from 1 and never repeat. [`PolicyChange::expecting`] changes only what you have read.
//! - What was counted under a policy stays when it changes.

pub(crate) mod followed;
pub(crate) mod watch;

pub use followed::FollowedPolicy;
pub use watch::{PolicyEvent, PolicyWatch};

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use resil_core::guard::SetAction;
use resil_wire::command::{Command, Reply};
#[cfg(feature = "redis")]
use resil_wire::overview::{OverviewCall, OverviewKind, OverviewRow};
use resil_wire::policy::{PolicyAction as WireAction, PolicyCheckCall, PolicyDeleteCall, PolicyGetCall, PolicySetCall};
use resil_wire::reply::Value;
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::client::Client;
use crate::error::Error;
use crate::idempotency::token::odd;
use crate::keys;
use crate::settings::span_text;

/// How many policies of a list are read at once.
const READ_AT_ONCE: usize = 64;
/// How many rows the server puts into one reply.
#[cfg(feature = "redis")]
const LISTED_AT_ONCE: u32 = 1_000;

/// A version, and when it was stored: versions begin anew when a server loses its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VersionSeen {
    pub version: u64,
    /// Since the Unix epoch, where that is known.
    pub at_ms: Option<u64>,
}

impl VersionSeen {
    fn is_same(self, other: Self) -> bool {
        self.version == other.version && self.at_ms.zip(other.at_ms).is_none_or(|(at, other)| at == other)
    }

    /// It has no higher number, and was stored later.
    fn began_anew_after(self, other: Self) -> bool {
        self.version <= other.version && self.at_ms.zip(other.at_ms).is_some_and(|(at, other)| at > other)
    }
}

fn whole_ms(at: Duration) -> Option<u64> {
    u64::try_from(at.as_millis()).ok()
}

/// Which policies there are, in order.
enum Listed {
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only a server lists versions"))]
    Versions(Vec<(String, VersionSeen)>),
    /// Those of deleted ones among them.
    Names(Vec<String>),
}

impl Client {
    /// The policies that are stored in the server.
    pub fn policies(&self) -> Policies {
        Policies { client: self.clone() }
    }
}

/// The policies that are stored in the server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Policies {
    client: Client,
}

/// What happened to a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyAction {
    Created,
    Changed,
    /// The content was the same: nothing happened.
    Same,
    Deleted,
}

/// A change that was made, and the version it led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PolicyChanged {
    pub version: u64,
    pub action: PolicyAction,
}

/// A version of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredPolicy {
    pub name: String,
    pub version: u64,
    /// The canonical document.
    pub policy: String,
    /// When it was stored, since the Unix epoch.
    #[serde(serialize_with = "span_text::serialize")]
    pub at: Duration,
    pub actor: String,
    pub reason: String,
}

/// What is remembered of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyRecord {
    pub version: u64,
    /// This version was a deletion.
    #[serde(rename = "isDeleted")]
    pub is_deleted: bool,
    /// Since the Unix epoch.
    #[serde(serialize_with = "span_text::serialize")]
    pub at: Duration,
    pub actor: String,
    pub reason: String,
}

/// What a policy becomes.
#[derive(Debug, Clone)]
enum ChangeTo {
    Document(String),
    /// What it was in this version.
    Version(u64),
    Nothing,
}

/// A change that is made when it is awaited.
#[must_use = "nothing happens before it is awaited"]
#[derive(Debug, Clone)]
pub struct PolicyChange {
    client: Client,
    name: String,
    to: ChangeTo,
    expected: Option<u64>,
    actor: Option<String>,
    reason: Option<String>,
}

impl PolicyChange {
    /// Only if the policy has this version; 0: only if there is none.
    pub fn expecting(mut self, version: u64) -> Self {
        self.expected = Some(version);
        self
    }

    /// Who does it; by default the user of the connection.
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    async fn make(self) -> Result<PolicyChanged, Error> {
        keys::check_name(&self.name)?;
        if let Some(expected) = self.expected.filter(|expected| i64::try_from(*expected).is_err()) {
            let text = format!("expecting must be from 0 to {}, got {expected}", i64::MAX);
            return Err(Error::InvalidArgument(text));
        }
        let document = match &self.to {
            ChangeTo::Document(document) => Some(document.clone()),
            ChangeTo::Nothing => None,
            ChangeTo::Version(version) => {
                let found = self.client.policies().get_version(&self.name, *version).await?;
                let missing =
                    || format!("the policy of the name {:?} has no version {version}: history() lists them", self.name);
                Some(found.ok_or_else(|| Error::InvalidArgument(missing()))?.policy)
            }
        };
        let key = keys::named("policy", &self.name);
        let (actor, reason) = (self.actor.as_deref().map(str::as_bytes), self.reason.as_deref().map(str::as_bytes));
        let (key, expected) = (key.as_bytes(), self.expected);
        let command = match &document {
            Some(document) => {
                Command::PolicySet(PolicySetCall { key, json: document.as_bytes(), expected, actor, reason })
            }
            None => Command::PolicyDelete(PolicyDeleteCall { key, expected, actor, reason }),
        };
        match self.client.backend().call(&command).await {
            Ok(Reply::PolicyChanged(changed)) => {
                Ok(PolicyChanged { version: changed.version, action: changed.action.into() })
            }
            Ok(other) => Err(odd(&other)),
            Err(Error::InvalidArgument(text)) if text.starts_with("NOPOLICY") => {
                Err(Error::InvalidArgument(format!("{}: nothing to delete", followed::nothing_stored(&self.name))))
            }
            Err(Error::InvalidArgument(text)) if text.starts_with("VERSION") => {
                let named = format!("version {}, as expecting says", expected.unwrap_or_default());
                Err(Error::InvalidArgument(text.replace("the version that IF names", &named)))
            }
            Err(error) => Err(error),
        }
    }
}

impl From<WireAction> for PolicyAction {
    fn from(action: WireAction) -> Self {
        match action {
            WireAction::Set(SetAction::Created) => Self::Created,
            WireAction::Set(SetAction::Changed) => Self::Changed,
            WireAction::Set(SetAction::Same) => Self::Same,
            WireAction::Deleted => Self::Deleted,
        }
    }
}

impl IntoFuture for PolicyChange {
    type Output = Result<PolicyChanged, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.make())
    }
}

impl Policies {
    /// Stores a policy, or changes it. `document` is JSON.
    pub fn set(&self, name: &str, document: impl Into<String>) -> PolicyChange {
        self.change(name, ChangeTo::Document(document.into()))
    }

    /// Deletes a policy and all that lives under it.
    pub fn delete(&self, name: &str) -> PolicyChange {
        self.change(name, ChangeTo::Nothing)
    }

    /// Stores one of its last 20 versions again, as a new version. Without a [`reason`](PolicyChange::reason) it says which one.
    pub fn rollback(&self, name: &str, version: u64) -> PolicyChange {
        self.change(name, ChangeTo::Version(version)).reason(format!("rolled back to version {version}"))
    }

    fn change(&self, name: &str, to: ChangeTo) -> PolicyChange {
        let (client, name) = (self.client.clone(), name.to_owned());
        PolicyChange { client, name, to, expected: None, actor: None, reason: None }
    }

    /// The policy of this name, if there is one.
    pub async fn get(&self, name: &str) -> Result<Option<StoredPolicy>, Error> {
        self.shown(name, None).await
    }

    /// One of its last 20 versions.
    pub async fn get_version(&self, name: &str, version: u64) -> Result<Option<StoredPolicy>, Error> {
        self.shown(name, Some(version)).await
    }

    async fn shown(&self, name: &str, version: Option<u64>) -> Result<Option<StoredPolicy>, Error> {
        keys::check_name(name)?;
        let key = keys::named("policy", name);
        let row = match self.ask(&Command::PolicyGet(PolicyGetCall { key: key.as_bytes(), version })).await? {
            Value::Null => return Ok(None),
            value => PolicyRow::of(value)?,
        };
        Ok(Some(StoredPolicy {
            name: name.to_owned(),
            version: row.number("version")?,
            policy: row.text("policy")?,
            at: Duration::from_millis(row.number("at_ms")?),
            actor: row.text("actor")?,
            reason: row.text("reason")?,
        }))
    }

    /// All policies there are, by name. A server lists them (`RES.LIST`); one that is too old, or a user who may not list, costs a SCAN of all keys.
    pub async fn list(&self) -> Result<Vec<StoredPolicy>, Error> {
        let names = match self.listed().await? {
            Listed::Versions(versions) => versions.into_iter().map(|(name, _)| name).collect(),
            Listed::Names(names) => names,
        };
        self.read_all(names).await
    }

    /// The versions of all policies there are. Where the server lists them, none has to be read.
    async fn versions(&self) -> Result<Vec<(String, VersionSeen)>, Error> {
        match self.listed().await? {
            Listed::Versions(versions) => Ok(versions),
            Listed::Names(names) => self.read_versions(names).await,
        }
    }

    async fn read_versions(&self, names: Vec<String>) -> Result<Vec<(String, VersionSeen)>, Error> {
        let stored = self.read_all(names).await?;
        let seen = |policy: &StoredPolicy| VersionSeen { version: policy.version, at_ms: whole_ms(policy.at) };
        Ok(stored.into_iter().map(|policy| (policy.name.clone(), seen(&policy))).collect())
    }

    async fn listed(&self) -> Result<Listed, Error> {
        self.client.backend().require_one_server("a list of policies")?;
        let name_in = |key: &[u8]| keys::name_in("policy", key);
        let names = |keys: Vec<Vec<u8>>| {
            let mut names: Vec<String> = keys.iter().filter_map(|key| name_in(key)).collect();
            names.sort();
            names.dedup();
            Listed::Names(names)
        };
        match self.client.backend() {
            Backend::Memory(memory) => Ok(names(memory.policy_keys())),
            #[cfg(feature = "redis")]
            Backend::Redis(redis) => {
                let pattern = keys::named("policy", "*");
                let all = OverviewCall::all(OverviewKind::Policy);
                let call = OverviewCall {
                    state: Some("live"),
                    pattern: Some(pattern.as_bytes()),
                    limit: LISTED_AT_ONCE,
                    ..all
                };
                let rows = match redis.list(call, usize::MAX, None).await {
                    // The server is too old for it, or this user may not.
                    Err(Error::ModuleMissing | Error::PermissionDenied(_)) => {
                        return redis.scan(&pattern, "resil-pol").await.map(names);
                    }
                    rows => rows?,
                };
                // A key that moves to another node may be listed twice.
                let mut versions = BTreeMap::new();
                for row in rows {
                    if let OverviewRow::Policy(row) = row
                        && let Some(name) = name_in(&row.key)
                    {
                        let at_ms = row.since_ms.and_then(|at| u64::try_from(at).ok());
                        let seen = VersionSeen { version: row.version.unsigned_abs(), at_ms };
                        let newest = versions.entry(name).or_insert(seen);
                        *newest = seen.max(*newest);
                    }
                }
                Ok(Listed::Versions(versions.into_iter().collect()))
            }
            _ => Ok(Listed::Names(Vec::new())),
        }
    }

    /// Those of these names that are there.
    async fn read_all(&self, names: Vec<String>) -> Result<Vec<StoredPolicy>, Error> {
        let read = stream::iter(names).map(|name| async move { self.get(&name).await });
        // Deleted ones leave keys with their versions.
        read.buffered(READ_AT_ONCE).try_filter_map(async |found| Ok(found)).try_collect().await
    }

    /// The last 20 versions, the newest first.
    pub async fn history(&self, name: &str) -> Result<Vec<PolicyRecord>, Error> {
        keys::check_name(name)?;
        let key = keys::named("policy", name);
        let rows = self.ask(&Command::PolicyHistory(key.as_bytes())).await?;
        let rows = rows.into_array().map_err(|error| Error::Internal(error.to_string()))?;
        let record = |row| {
            let row = PolicyRow::of(row)?;
            Ok(PolicyRecord {
                version: row.number("version")?,
                is_deleted: row.number("deleted")? != 0,
                at: Duration::from_millis(row.number("at_ms")?),
                actor: row.text("actor")?,
                reason: row.text("reason")?,
            })
        };
        rows.into_iter().map(record).collect()
    }

    /// The canonical form of a document, or what is wrong with it. Nothing is stored.
    pub async fn check(&self, document: &str) -> Result<String, Error> {
        let checked = self.ask(&Command::PolicyCheck(PolicyCheckCall { json: document.as_bytes() })).await?;
        let texts = checked.into_array().and_then(|parts| parts.into_iter().map(Value::into_text).collect());
        let texts: Vec<Vec<u8>> = texts.map_err(|error| Error::Internal(error.to_string()))?;
        let texts: Vec<String> = texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        match texts.as_slice() {
            [verdict, canonical] if verdict == "OK" => Ok(canonical.clone()),
            [_, path, text] => Err(Error::invalid(path.clone(), text.clone())),
            _ => Err(Error::Internal(format!("not a reply of CHECK: {texts:?}"))),
        }
    }

    async fn ask(&self, command: &Command<'_>) -> Result<Value, Error> {
        match self.client.backend().call(command).await? {
            Reply::Map(value) => Ok(value),
            other => Err(odd(&other)),
        }
    }
}

/// A map of a reply.
struct PolicyRow(Vec<(Value, Value)>);

impl PolicyRow {
    fn of(value: Value) -> Result<Self, Error> {
        if let Value::Map(pairs) = value { Ok(Self(pairs)) } else { Err(Error::Internal("not a map".to_owned())) }
    }

    fn field(&self, name: &str) -> Result<&Value, Error> {
        let found = self.0.iter().find(|(key, _)| key.text().is_ok_and(|key| key == name.as_bytes()));
        found.map(|(_, value)| value).ok_or_else(|| Error::Internal(format!("{name} is missing")))
    }

    fn number(&self, name: &str) -> Result<u64, Error> {
        let number = self.field(name)?.integer().map_err(|error| Error::Internal(error.to_string()))?;
        u64::try_from(number).map_err(|error| Error::Internal(error.to_string()))
    }

    fn text(&self, name: &str) -> Result<String, Error> {
        let text = self.field(name)?.text().map_err(|error| Error::Internal(error.to_string()))?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}
