//! What there is, without knowing a key: `RES.LIST` and `RES.TOP`, as rows of named fields. A module that does not have these commands
//! yet is asked for its keys with SCAN, and for each key; nothing is ranked then.

use futures_util::{StreamExt, TryStreamExt, stream};
use resil_wire::reply::{Unexpected, Value};

use super::{KeyKind, Operator};
use crate::backend::Backend;
use crate::error::Error;

/// Rows asked for with one command.
const PAGE: &str = "1000";
/// How many keys are looked at at once where there is no list.
const READ_AT_ONCE: usize = 64;

/// What stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ranking {
    /// Refused most in the last minute: estimates.
    Denied,
    Waiting,
    Held,
}

impl Ranking {
    fn word(self) -> &'static str {
        match self {
            Self::Denied => "DENIED",
            Self::Waiting => "WAITING",
            Self::Held => "HELD",
        }
    }
}

/// A field of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowField {
    Number(i64),
    Bytes(Vec<u8>),
    /// Not known.
    Nothing,
}

/// A key, and what is known of it under the names of docs/commands/res.list.md.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    pub key: Vec<u8>,
    pub fields: Vec<(String, RowField)>,
}

/// Which keys are listed. Omitted fields are all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyFilter {
    pub state: Option<String>,
    pub pattern: Option<String>,
    /// How many at most; 0 is all.
    pub limit: usize,
}

impl KeyKind {
    fn word(self) -> &'static str {
        match self {
            Self::Breaker => "BREAKER",
            Self::Lock => "LOCK",
            Self::Bulkhead => "BULKHEAD",
            Self::Policy => "POLICY",
            Self::DeadLetters => "DLQ",
        }
    }

    /// The server's name for the type of its keys.
    fn data_type(self) -> &'static str {
        match self {
            Self::Breaker => "resil-brk",
            Self::Lock => "resil-lck",
            Self::Bulkhead => "resil-blk",
            Self::Policy => "resil-pol",
            Self::DeadLetters => "resil-dlq",
        }
    }
}

fn read_row(value: Value) -> Result<KeyRow, Unexpected> {
    let pairs = match value {
        Value::Map(pairs) => pairs,
        flat => {
            let mut flat = flat.into_array()?.into_iter();
            std::iter::from_fn(|| Some((flat.next()?, flat.next()?))).collect()
        }
    };
    let (mut key, mut fields) = (None, Vec::with_capacity(pairs.len()));
    for (name, value) in pairs {
        let name = String::from_utf8_lossy(name.text()?).into_owned();
        match value {
            Value::Text(bytes) if name == "key" => key = Some(bytes),
            Value::Text(bytes) => fields.push((name, RowField::Bytes(bytes))),
            Value::Integer(number) => fields.push((name, RowField::Number(number))),
            _ => fields.push((name, RowField::Nothing)),
        }
    }
    Ok(KeyRow { key: key.ok_or(Unexpected("a key"))?, fields })
}

fn read_page(value: Value) -> Result<(String, Vec<KeyRow>), Unexpected> {
    let mut parts = value.into_array()?.into_iter();
    let (Some(cursor), Some(rows)) = (parts.next(), parts.next()) else { return Err(Unexpected("a cursor and rows")) };
    let cursor = String::from_utf8_lossy(cursor.text()?).into_owned();
    Ok((cursor, rows.into_array()?.into_iter().map(read_row).collect::<Result<_, _>>()?))
}

fn unexpected(error: Unexpected) -> Error {
    Error::Internal(error.to_string())
}

impl Operator {
    /// The keys of a kind, sorted: breakers, policies and ledgers that are stored, locks and bulkheads that are held or waited for. Of
    /// every primary, if it is a cluster.
    pub async fn list(&self, kind: KeyKind, filter: &KeyFilter) -> Result<Vec<KeyRow>, Error> {
        let mut rows = match self.list_pages(kind, filter).await {
            Err(Error::ModuleMissing) => self.list_by_scan(kind, filter).await?,
            rows => rows?,
        };
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        if filter.limit > 0 {
            rows.truncate(filter.limit);
        }
        Ok(rows)
    }

    async fn list_pages(&self, kind: KeyKind, filter: &KeyFilter) -> Result<Vec<KeyRow>, Error> {
        let mut rows = Vec::new();
        // Nodes of a cluster have cursors of their own, so all are asked until each has ended.
        let mut cursors: Option<Vec<String>> = None;
        loop {
            let mut words = vec!["RES.LIST", kind.word(), "LIMIT", PAGE];
            words.extend(filter.state.iter().flat_map(|state| ["STATE", state]));
            words.extend(filter.pattern.iter().flat_map(|pattern| ["MATCH", pattern]));
            let replies = match &cursors {
                None => self.ask(&words).await?,
                Some(cursors) if cursors.len() == 1 => {
                    words.extend(["CURSOR", &cursors[0]]);
                    self.ask(&words).await?
                }
                // The first page of each node of a cluster is shown.
                Some(_) => return Ok(rows),
            };
            let mut next = Vec::with_capacity(replies.len());
            for reply in replies {
                let (cursor, page) = read_page(reply).map_err(unexpected)?;
                rows.extend(page);
                next.push(cursor);
            }
            if next.iter().all(|cursor| cursor == "0") || (filter.limit > 0 && rows.len() >= filter.limit) {
                return Ok(rows);
            }
            cursors = Some(next);
        }
    }

    async fn list_by_scan(&self, kind: KeyKind, filter: &KeyFilter) -> Result<Vec<KeyRow>, Error> {
        let pattern = filter.pattern.as_deref().unwrap_or("*");
        let mut keys = match self.client.backend() {
            #[cfg(feature = "redis")]
            Backend::Redis(redis) => redis.scan(pattern, kind.data_type()).await?,
            _ => Vec::new(),
        };
        keys.sort();
        keys.dedup();
        let mut rows = Vec::new();
        let looks =
            stream::iter(keys).map(|key| async move { Ok::<_, Error>((self.looked_at(kind, &key).await?, key)) });
        let mut looks = std::pin::pin!(looks.buffered(READ_AT_ONCE));
        while let Some((fields, key)) = looks.try_next().await? {
            if filter.limit > 0 && rows.len() >= filter.limit {
                break;
            }
            let Some(fields) = fields else { continue };
            let row = KeyRow { key, fields };
            let is_wanted = |state: &String| {
                row.fields
                    .iter()
                    .any(|(name, value)| name == "state" && *value == RowField::Bytes(state.clone().into_bytes()))
            };
            if filter.state.as_ref().is_none_or(is_wanted) {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// What LIST would say of a key, as far as it can be asked; `None` if there is nothing to list.
    async fn looked_at(&self, kind: KeyKind, key: &[u8]) -> Result<Option<Vec<(String, RowField)>>, Error> {
        let number = |number: u64| RowField::Number(i64::try_from(number).unwrap_or(i64::MAX));
        let text = |text: &str| RowField::Bytes(text.as_bytes().to_vec());
        let ms = |span: std::time::Duration| RowField::Number(i64::try_from(span.as_millis()).unwrap_or(i64::MAX));
        let at = |at: std::time::SystemTime| at.duration_since(std::time::UNIX_EPOCH).map_or(RowField::Nothing, ms);
        let fields: Vec<(&str, RowField)> = match kind {
            KeyKind::Breaker => {
                let seen = self.breaker(key).await?;
                let since = seen.forced.as_ref().map(|forced| forced.since).or(seen.opened_at);
                let (by, reason) = seen.forced.as_ref().map_or(("", ""), |forced| (&forced.by, &forced.reason));
                vec![
                    ("state", text(seen.state.text())),
                    ("since_ms", since.map_or(RowField::Nothing, at)),
                    ("calls", number(seen.calls)),
                    ("failures", number(seen.failures)),
                    ("failure_rate_pct", number(seen.failure_rate_percent)),
                    ("trips", number(seen.trips)),
                    ("forced_by", text(by)),
                    ("forced_reason", text(reason)),
                ]
            }
            KeyKind::Lock | KeyKind::Bulkhead => {
                let is_lock = kind == KeyKind::Lock;
                let seen = if is_lock { self.lock(key).await? } else { self.bulkhead(key).await? };
                if seen.holders_total == 0 && seen.waiters_total == 0 {
                    return Ok(None);
                }
                let is_waited_for = seen.waiters_total > 0;
                let oldest = seen.holders.iter().max_by_key(|holder| holder.held);
                let state = match (is_lock, is_waited_for) {
                    (true, false) => "held",
                    (true, true) => "contended",
                    (false, false) => "free",
                    (false, true) => "full",
                };
                vec![
                    ("state", text(state)),
                    ("since_ms", RowField::Nothing),
                    (if is_lock { "holders" } else { "active" }, number(seen.holders_total)),
                    ("owner", oldest.map_or(RowField::Nothing, |holder| text(&holder.owner))),
                    ("fence", oldest.map_or(RowField::Nothing, |holder| number(holder.fence))),
                    ("held_ms", oldest.map_or(RowField::Nothing, |holder| ms(holder.held))),
                    ("lease_left_ms", oldest.map_or(RowField::Nothing, |holder| ms(holder.remaining))),
                    ("waiters", number(seen.waiters_total)),
                    (
                        "oldest_wait_ms",
                        seen.waiters.iter().map(|waiter| waiter.waited).max().map_or(RowField::Nothing, ms),
                    ),
                ]
            }
            KeyKind::Policy => {
                let Some(name) = kind.name(key) else { return Ok(None) };
                let Some(stored) = self.client.policies().get(&name).await? else { return Ok(None) };
                vec![
                    ("state", text("live")),
                    ("since_ms", ms(stored.at)),
                    ("version", number(stored.version)),
                    ("actor", text(&stored.actor)),
                    ("reason", text(&stored.reason)),
                ]
            }
            KeyKind::DeadLetters => {
                let Ok(key) = std::str::from_utf8(key) else { return Ok(None) };
                let seen = self.ledger(key, Default::default())?.info().await?;
                vec![
                    ("state", text(if seen.paused_until.is_some() { "paused" } else { "running" })),
                    ("since_ms", RowField::Nothing),
                    ("waiting", number(seen.waiting)),
                    ("taken", number(seen.taken)),
                    ("parked", number(seen.parked)),
                    ("dead", number(seen.dead)),
                    ("resolved", number(seen.resolved)),
                    ("entries", number(seen.entries)),
                    ("bytes", number(seen.bytes)),
                    ("groups", number(seen.groups)),
                    ("cases_open", number(seen.cases_open)),
                    ("alerts_unseen", number(seen.alerts_unseen)),
                ]
            }
        };
        Ok(Some(fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect()))
    }

    /// The keys that stand out, the largest first; `None` if the server's module does not rank.
    pub async fn rank(&self, ranking: Ranking, limit: u32) -> Result<Option<Vec<KeyRow>>, Error> {
        let limit = limit.to_string();
        let replies = match self.ask(&["RES.TOP", ranking.word(), "LIMIT", &limit]).await {
            Err(Error::ModuleMissing) => return Ok(None),
            replies => replies?,
        };
        let mut rows = Vec::new();
        for reply in replies {
            let page =
                reply.into_array().and_then(|rows| rows.into_iter().map(read_row).collect::<Result<Vec<_>, _>>());
            rows.extend(page.map_err(unexpected)?);
        }
        Ok(Some(rows))
    }
}
