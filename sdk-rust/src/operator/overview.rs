//! What there is, without knowing a key, and what stands out: `RES.LIST` and `RES.TOP`. Rows are those of the wire.

use resil_wire::command::{Command, Reply};
pub use resil_wire::overview::{
    BreakerRow, BulkheadRow, DeniedRow, HeldRow, LedgerRow, LoadRow, LockRow, PolicyRow, RowField, RunRow, WaitingRow,
};
use resil_wire::overview::{OverviewCall, OverviewKind, OverviewRow, TOP_MAX, TopCall, TopKind, TopRow};

use super::{Operator, odd};
use crate::backend::Backend;
use crate::error::Error;
use crate::keys;

/// Rows of one page.
const PAGE: u32 = 1_000;

/// Which keys are listed. By default all, up to a hundred thousand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFilter {
    /// In this state, as rows name it.
    pub state: Option<String>,
    /// Keys like this pattern, as SCAN has them: `resil:lock:*`.
    pub pattern: Option<String>,
    /// At most so many rows.
    pub limit: usize,
}

impl Default for KeyFilter {
    fn default() -> Self {
        Self { state: None, pattern: None, limit: 100_000 }
    }
}

/// What every row has. Its own fields are public, under the names that RES.LIST and RES.TOP have for them: `since_ms`, `…_at_ms` and
/// `…_until_ms` are Unix milliseconds, the other `…_ms` are lengths.
pub trait KeyRow {
    fn key(&self) -> &[u8];
    /// The name by which SDKs know it, if the key is one of theirs.
    fn name(&self) -> Option<String>;
    /// All that it says, by name.
    fn fields(&self) -> Vec<(&'static str, RowField<'_>)>;
}

macro_rules! key_rows {
    ($($row:ident: $kind:expr;)*) => {
        $(impl KeyRow for $row {
            fn key(&self) -> &[u8] {
                &self.key
            }

            fn name(&self) -> Option<String> {
                #[allow(clippy::redundant_closure_call)]
                keys::name_in(($kind)(self), &self.key)
            }

            fn fields(&self) -> Vec<(&'static str, RowField<'_>)> {
                $row::fields(self)
            }
        })*
    };
}

key_rows! {
    BreakerRow: |row: &BreakerRow| if row.policy == 0 { "breaker" } else { "policy" };
    LockRow: |_: &LockRow| "lock";
    BulkheadRow: |_: &BulkheadRow| "bulkhead";
    PolicyRow: |_: &PolicyRow| "policy";
    LedgerRow: |_: &LedgerRow| "dlq";
    RunRow: |_: &RunRow| "idemp";
    LoadRow: |_: &LoadRow| "cache";
    DeniedRow: |row: &DeniedRow| row.kind;
    WaitingRow: |row: &WaitingRow| row.kind;
    HeldRow: |row: &HeldRow| row.kind;
}

macro_rules! lists {
    ($($(#[$doc:meta])* $method:ident: $kind:ident as $row:ident;)*) => {
        impl Operator {
            $($(#[$doc])*
            pub async fn $method(&self, filter: &KeyFilter) -> Result<Vec<$row>, Error> {
                let rows = self.list(OverviewKind::$kind, filter).await?;
                let of_kind = |row| if let OverviewRow::$kind(row) = row { Some(row) } else { None };
                let mut rows: Vec<$row> = rows.into_iter().filter_map(of_kind).collect();
                rows.sort_by(|one, other| one.key.cmp(&other.key));
                rows.truncate(filter.limit);
                Ok(rows)
            })*
        }
    };
}

lists! {
    /// Every breaker, those of policies among them, by key.
    breakers: Breaker as BreakerRow;
    /// Every lock that is held or waited for, by key.
    locks: Lock as LockRow;
    /// Every shared bulkhead that somebody is in, or waits for, by key.
    bulkheads: Bulkhead as BulkheadRow;
    /// Every stored policy, and the deleted ones that are still remembered, by key.
    policies: Policy as PolicyRow;
    /// Every ledger of dead letters, by key.
    ledgers: Dlq as LedgerRow;
    /// Every idempotency key under which somebody runs, and those that were held when the runner was lost, by key.
    runs: Run as RunRow;
    /// Every value that somebody loads for all who ask, by key.
    loads: Load as LoadRow;
}

macro_rules! tops {
    ($($(#[$doc:meta])* $method:ident: $kind:ident as $row:ident by $size:ident;)*) => {
        impl Operator {
            $($(#[$doc])*
            pub async fn $method(&self, limit: usize) -> Result<Vec<$row>, Error> {
                let limit = u32::try_from(limit).unwrap_or(u32::MAX).clamp(1, TOP_MAX);
                let rows = self.top(TopCall { kind: TopKind::$kind, limit }).await?;
                let of_kind = |row| if let TopRow::$kind(row) = row { Some(row) } else { None };
                let mut rows: Vec<$row> = rows.into_iter().filter_map(of_kind).collect();
                rows.sort_by_key(|row| std::cmp::Reverse(row.$size));
                rows.truncate(limit as usize);
                Ok(rows)
            })*
        }
    };
}

tops! {
    /// The keys that were refused most in the last minute, at most 128.
    denied: Denied as DeniedRow by estimate;
    /// The calls that have waited longest, at most 128.
    waiting: Waiting as WaitingRow by waited_ms;
    /// Who has held something longest, at most 128.
    held: Held as HeldRow by held_ms;
}

impl Operator {
    async fn list(&self, kind: OverviewKind, filter: &KeyFilter) -> Result<Vec<OverviewRow>, Error> {
        let KeyFilter { state, pattern, limit } = filter;
        let state = match state {
            Some(given) => Some(kind.states().find(|known| *known == given.as_str()).ok_or_else(|| {
                let all: Vec<&str> = kind.states().collect();
                Error::InvalidArgument(format!("state must be one of {}, got {given:?}", all.join(", ")))
            })?),
            None => None,
        };
        let pattern = pattern.as_ref().map(String::as_bytes);
        let mut call = OverviewCall { kind, state, pattern, cursor: 0, limit: PAGE };
        #[cfg(feature = "redis")]
        if let Backend::Redis(redis) = self.client.backend() {
            return redis.list(call, *limit, self.lost.as_deref()).await;
        }
        let mut rows = Vec::new();
        loop {
            let listed = match self.call(&Command::List(call.clone())).await? {
                Reply::Listed(listed) => listed,
                other => return Err(odd("a list", &other)),
            };
            rows.extend(listed.rows);
            call.cursor = listed.cursor;
            if call.cursor == 0 || rows.len() >= *limit {
                return Ok(rows);
            }
        }
    }

    async fn top(&self, call: TopCall) -> Result<Vec<TopRow>, Error> {
        #[cfg(feature = "redis")]
        if let Backend::Redis(redis) = self.client.backend() {
            return redis.top(call, self.lost.as_deref()).await;
        }
        match self.call(&Command::Top(call)).await? {
            Reply::Ranked(ranked) => Ok(ranked.0),
            other => Err(odd("a ranking", &other)),
        }
    }
}
