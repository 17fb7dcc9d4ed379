//! What an operator looks at without knowing a name: every breaker, lock, shared bulkhead, stored policy and ledger there is, and the keys
//! that are refused most, waited for longest and held longest.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::overview::OverviewFilter;
//!
//! let client = resil::connect("memory://").await?;
//! let _held = client.lock("reports", resil::lock::LockSettings::new())?.acquire().await?;
//! let locks = client.overview().locks(&OverviewFilter::default()).await?;
//! assert_eq!((locks[0].name.as_deref(), locks[0].state.as_str(), locks[0].waiters), (Some("reports"), "held", 0));
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! # What holds
//! - A key that is there the whole time is listed exactly once. Of a cluster every primary is asked; a key that moves meanwhile may be
//!   missing, or come twice.
//! - You see the keys that your user may read.
//! - No call holds a server for longer than a millisecond: lists are read in pages.
//! - [`Overview::denied`] estimates, and each row says by how much it may be off.

use resil_wire::command::{Command, Reply};
use resil_wire::overview as wire;
use resil_wire::overview::{OverviewCall, OverviewKind, OverviewRow, TopCall, TopKind};
use serde::Serialize;

use crate::backend::Backend;
use crate::client::Client;
use crate::error::Error;
use crate::idempotency::token::odd;
use crate::keys;

/// Rows of one page.
const PAGE: u32 = 1_000;

impl Client {
    /// Lists of what there is, and of what stands out.
    pub fn overview(&self) -> Overview {
        Overview { client: self.clone() }
    }
}

/// Lists of what there is. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Overview {
    client: Client,
}

/// Which rows are wanted. By default all, up to a hundred thousand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverviewFilter {
    /// In this state, as rows name it.
    pub state: Option<String>,
    /// Keys like this pattern, as SCAN has them: `resil:lock:*`.
    pub pattern: Option<String>,
    /// At most so many rows, of each node.
    pub most: usize,
}

impl Default for OverviewFilter {
    fn default() -> Self {
        Self { state: None, pattern: None, most: 100_000 }
    }
}

/// A field of a row, as it is here.
trait ShownField<T> {
    fn shown(self) -> T;
}

impl ShownField<i64> for i64 {
    fn shown(self) -> i64 {
        self
    }
}

impl ShownField<bool> for i64 {
    fn shown(self) -> bool {
        self != 0
    }
}

impl ShownField<String> for Vec<u8> {
    fn shown(self) -> String {
        String::from_utf8_lossy(&self).into_owned()
    }
}

impl ShownField<String> for &'static str {
    fn shown(self) -> String {
        self.to_owned()
    }
}

impl<T, F: ShownField<T>> ShownField<Option<T>> for Option<F> {
    fn shown(self) -> Option<T> {
        self.map(ShownField::shown)
    }
}

macro_rules! row {
    ($(#[$doc:meta])* $name:ident from $wire:ident named $kind:expr, { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        ///
        /// `…_ms` fields are milliseconds: `since_ms` and `…_until_ms` since the Unix epoch, the others are lengths.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        pub struct $name {
            /// The name by which SDKs know it, if the key is one of theirs.
            pub name: Option<String>,
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl From<wire::$wire> for $name {
            fn from(row: wire::$wire) -> Self {
                #[allow(clippy::redundant_closure_call)]
                let name = ($kind)(&row).and_then(|kind| keys::name_in(kind, &row.key));
                Self { name, $($field: row.$field.shown(),)* }
            }
        }
    };
}

row! {
    /// A breaker, or the breaker of a policy.
    BreakerRow from BreakerRow named |row: &wire::BreakerRow| Some(if row.policy == 0 { "breaker" } else { "policy" }), {
        key: String,
        /// closed, open, half-open, ramping, forced-open, forced-closed, disabled or metrics.
        state: String,
        /// Since when it is in this state, where that is remembered.
        since_ms: Option<i64>,
        calls: i64,
        failures: i64,
        failure_rate_pct: i64,
        /// How often it opened in a row.
        trips: i64,
        forced_by: Option<String>,
        forced_reason: Option<String>,
        /// -1: until somebody ends it.
        forced_until_ms: Option<i64>,
        /// The key is a policy's.
        policy: bool,
    }
}

row! {
    /// A lock that is held or waited for.
    LockRow from LockRow named |_: &wire::LockRow| Some("lock"), {
        key: String,
        /// held, or contended: somebody waits.
        state: String,
        since_ms: Option<i64>,
        /// exclusive or shared.
        mode: Option<String>,
        holders: i64,
        /// The oldest holder.
        owner: Option<String>,
        fence: Option<i64>,
        held_ms: i64,
        lease_left_ms: i64,
        waiters: i64,
        oldest_wait_ms: i64,
    }
}

row! {
    /// A shared bulkhead that somebody is in, or waits for.
    BulkheadRow from BulkheadRow named |_: &wire::BulkheadRow| Some("bulkhead"), {
        key: String,
        /// free or full.
        state: String,
        since_ms: Option<i64>,
        active: i64,
        /// As the newest call said; `None` on a replica.
        max: Option<i64>,
        waiters: i64,
        oldest_wait_ms: i64,
        held_ms: i64,
    }
}

row! {
    /// A stored policy, or what a deleted one has left.
    PolicyRow from PolicyRow named |_: &wire::PolicyRow| Some("policy"), {
        key: String,
        /// live or deleted.
        state: String,
        /// When this version was stored.
        since_ms: Option<i64>,
        version: i64,
        actor: Option<String>,
        reason: Option<String>,
        /// The state of its breaker.
        breaker: Option<String>,
        active: i64,
    }
}

row! {
    /// A ledger of dead letters.
    LedgerRow from LedgerRow named |_: &wire::LedgerRow| Some("dlq"), {
        key: String,
        /// running or paused.
        state: String,
        since_ms: Option<i64>,
        waiting: i64,
        taken: i64,
        parked: i64,
        dead: i64,
        resolved: i64,
        archived: i64,
        held: i64,
        entries: i64,
        bytes: i64,
        groups: i64,
        cases_open: i64,
        alerts_unseen: i64,
        /// -1: until somebody ends it.
        paused_until_ms: Option<i64>,
    }
}

row! {
    /// A key that was refused often in the last minute.
    DeniedRow from DeniedRow named |row: &wire::DeniedRow| Some(row.kind), {
        key: String,
        /// limit, breaker, lock, bulkhead or policy.
        kind: String,
        /// About how often.
        estimate: i64,
        /// How far off that may be, in 997 of 1,000 cases.
        error: i64,
    }
}

row! {
    /// A call that waits.
    WaitingRow from WaitingRow named |row: &wire::WaitingRow| Some(row.kind), {
        key: String,
        kind: String,
        owner: String,
        waited_ms: i64,
    }
}

row! {
    /// Somebody who holds a lock, or is in a bulkhead.
    HeldRow from HeldRow named |row: &wire::HeldRow| Some(row.kind), {
        key: String,
        kind: String,
        owner: String,
        held_ms: i64,
    }
}

macro_rules! lists {
    ($($(#[$doc:meta])* $method:ident: $kind:ident as $row:ident;)*) => {
        impl Overview {
            $($(#[$doc])*
            pub async fn $method(&self, filter: &OverviewFilter) -> Result<Vec<$row>, Error> {
                let rows = self.list(OverviewKind::$kind, filter).await?;
                let of_kind = |row| if let OverviewRow::$kind(row) = row { Some($row::from(row)) } else { None };
                Ok(rows.into_iter().filter_map(of_kind).collect())
            })*
        }
    };
}

lists! {
    /// Every breaker, those of policies among them.
    breakers: Breaker as BreakerRow;
    /// Every lock that is held or waited for.
    locks: Lock as LockRow;
    /// Every shared bulkhead that somebody is in, or waits for.
    bulkheads: Bulkhead as BulkheadRow;
    /// Every stored policy, and the deleted ones that are still remembered.
    policies: Policy as PolicyRow;
    /// Every ledger of dead letters.
    ledgers: Dlq as LedgerRow;
}

macro_rules! tops {
    ($($(#[$doc:meta])* $method:ident: $kind:ident as $row:ident by $size:ident;)*) => {
        impl Overview {
            $($(#[$doc])*
            pub async fn $method(&self, limit: usize) -> Result<Vec<$row>, Error> {
                let limit = u32::try_from(limit).unwrap_or(u32::MAX).clamp(1, wire::TOP_MAX);
                let rows = self.top(TopCall { kind: TopKind::$kind, limit }).await?;
                let of_kind = |row| if let wire::TopRow::$kind(row) = row { Some($row::from(row)) } else { None };
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

impl Overview {
    async fn list(&self, kind: OverviewKind, filter: &OverviewFilter) -> Result<Vec<OverviewRow>, Error> {
        let OverviewFilter { state, pattern, most } = filter;
        let pattern = pattern.as_ref().map(String::as_bytes);
        let mut call = OverviewCall { kind, state: state.as_deref(), pattern, cursor: 0, limit: PAGE };
        #[cfg(feature = "redis")]
        if let Backend::Redis(redis) = self.client.backend() {
            return redis.list(call, *most).await;
        }
        let mut rows = Vec::new();
        loop {
            let listed = match self.client.backend().call(&Command::List(call.clone())).await? {
                Reply::Listed(listed) => listed,
                other => return Err(odd(&other)),
            };
            rows.extend(listed.rows);
            call.cursor = listed.cursor;
            if call.cursor == 0 || rows.len() >= *most {
                rows.truncate(*most);
                return Ok(rows);
            }
        }
    }

    async fn top(&self, call: TopCall) -> Result<Vec<wire::TopRow>, Error> {
        #[cfg(feature = "redis")]
        if let Backend::Redis(redis) = self.client.backend() {
            return redis.top(call).await;
        }
        match self.client.backend().call(&Command::Top(call)).await? {
            Reply::Ranked(ranked) => Ok(ranked.0),
            other => Err(odd(&other)),
        }
    }
}
