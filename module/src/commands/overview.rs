//! `RES.LIST` and `RES.TOP`: read, filter by the caller's permissions, reply. No call works longer than [`BUDGET`]: it hands a cursor back.

use std::cell::RefCell;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

use redis_module::raw;
use resil_core::Instant;
use resil_core::circuit_breaker::Breaker;
use resil_core::dead_letters::Ledgers;
use resil_core::guard::Guards;
use resil_core::idempotency::Idempotency;
use resil_core::lock::{Bulkheads, Holding, Locks, lives};
use resil_core::single_flight::Flights;
use resil_wire::overview::{
    BreakerRow, BulkheadRow, DeniedRow, HeldRow, LedgerRow, Listed, LoadRow, LockRow, OverviewCall, OverviewKind,
    OverviewRow, PolicyRow, Ranked, RunRow, TopCall, TopKind, TopRow, WaitingRow,
};

use crate::call::{Call, Failure, with_string};
use crate::clock::Stopwatch;
use crate::datatype::boxed::Boxed;
use crate::datatype::waited::Live;
use crate::edge::acl::Reader;
use crate::key::Key;
use crate::machines::ServerMachine;
use crate::queues::KeyName;
use crate::registry::{self, Slot};
use crate::{background, blocked_clients, clock, denials, fences, queues, sessions};

/// How long a call looks at keys. Writing what it found takes up to twice as long again: together well below a millisecond.
const BUDGET: Duration = Duration::from_micros(200);

/// Names that are copied at once, and between looks at the stopwatch.
const BATCH: usize = 32;

/// Behind the slots of breakers come those of policies, which have breakers, too.
const OF_POLICIES: u64 = 1 << 32;

pub fn list(call: &Call<'_>, request: OverviewCall<'_>) -> Result<(), Failure> {
    let (reader, watch, now) = (Reader::of(call), Stopwatch::start(), clock::now());
    let mut rows = Vec::new();
    let parts: &[(OverviewKind, u64)] = match request.kind {
        OverviewKind::Breaker => &[(OverviewKind::Breaker, 0), (OverviewKind::Policy, OF_POLICIES)],
        OverviewKind::Lock => &[(OverviewKind::Lock, 0)],
        OverviewKind::Bulkhead => &[(OverviewKind::Bulkhead, 0)],
        OverviewKind::Policy => &[(OverviewKind::Policy, 0)],
        OverviewKind::Dlq => &[(OverviewKind::Dlq, 0)],
        OverviewKind::Run => &[(OverviewKind::Run, 0)],
        OverviewKind::Load => &[(OverviewKind::Load, 0)],
    };
    let mut cursor = 0;
    for (kind, base) in parts.iter().filter(|(_, base)| request.cursor < base + OF_POLICIES) {
        let from = Slot::try_from(request.cursor.saturating_sub(*base)).unwrap_or(Slot::MAX);
        let next = list_part(call, &request, *kind, from, (&reader, &watch), now, &mut rows);
        if next > 0 {
            cursor = base + u64::from(next);
            break;
        }
        // The next part begins where this one ended, if nothing more may be looked at.
        if rows.len() >= request.limit as usize && *base == 0 && parts.len() > 1 {
            cursor = OF_POLICIES;
            break;
        }
    }
    Listed { cursor, rows }.write(&mut call.reply());
    Ok(())
}

/// Adds rows of one kind of keys; the slot to go on from, 0 at the end.
fn list_part(
    call: &Call<'_>,
    request: &OverviewCall<'_>,
    kind: OverviewKind,
    mut from: Slot,
    (reader, watch): (&Reader, &Stopwatch),
    now: Instant,
    rows: &mut Vec<OverviewRow>,
) -> Slot {
    loop {
        let wanted = (request.limit as usize).saturating_sub(rows.len());
        if wanted == 0 || watch.elapsed() > BUDGET {
            return from.max(1);
        }
        let (names, next) = registry::names(call.db(), kind, from, wanted.min(BATCH));
        for (slot, name) in names {
            if request.wants_key(&name) {
                let row = look(call, kind, slot, &name, reader, |key| row(call, request.kind, key, &name, now));
                rows.extend(row.filter(|row| request.wants_state(row.state())));
            }
            // A tricky pattern takes as long as many keys.
            if request.pattern.is_some() && watch.elapsed() > BUDGET {
                return slot + 1;
            }
        }
        if next == 0 {
            return 0;
        }
        from = next;
    }
}

/// Opens the key of a slot and looks at it, if the caller may read it. A slot whose key is gone is given up.
fn look<R>(
    call: &Call<'_>,
    kind: OverviewKind,
    slot: Slot,
    name: &[u8],
    reader: &Reader,
    look: impl FnOnce(&Key<'_>) -> Option<R>,
) -> Option<R> {
    with_string(call.ctx, name, |call, string: *mut raw::RedisModuleString| {
        if !reader.may_read(string) {
            return None;
        }
        let key = Key::open_quietly(call, string);
        if key.slot(kind) == Some(slot) {
            return look(&key);
        }
        // On a replica a key that has expired looks gone, and is still there.
        if !background::is_replica(call.ctx) {
            registry::leave(call.db(), kind, slot, name);
        }
        None
    })
}

fn row(call: &Call<'_>, kind: OverviewKind, key: &Key<'_>, name: &[u8], now: Instant) -> Option<OverviewRow> {
    let promoted_at = fences::promoted_at();
    match kind {
        OverviewKind::Breaker => {
            if let Ok(Some(policy)) = Live::<Guards>::of(key) {
                let breaker = policy.state().breaker()?;
                return Some(OverviewRow::Breaker(BreakerRow::of(name, breaker, true, now)));
            }
            let value = key.value::<Boxed<Breaker>>().ok()??;
            Some(OverviewRow::Breaker(BreakerRow::of(name, value.get(), false, now)))
        }
        OverviewKind::Lock => {
            let value = Live::<Locks>::of(key).ok()??;
            queues::look::<Locks, _>(call.db(), name, |queue| {
                LockRow::of(name, value.state(), queue, promoted_at, now).map(OverviewRow::Lock)
            })
        }
        OverviewKind::Bulkhead => {
            let value = Live::<Bulkheads>::of(key).ok()??;
            queues::look::<Bulkheads, _>(call.db(), name, |queue| {
                let max = queue.max.or(value.newest_max());
                BulkheadRow::of(name, value.state(), queue, max, promoted_at, now).map(OverviewRow::Bulkhead)
            })
        }
        OverviewKind::Policy => {
            let value = Live::<Guards>::of(key).ok()??;
            PolicyRow::of(name, value.state(), promoted_at, now).map(OverviewRow::Policy)
        }
        OverviewKind::Dlq => {
            let value = Live::<Ledgers>::of(key).ok()??;
            Some(OverviewRow::Dlq(LedgerRow::of(name, &value.state().view(), now)))
        }
        OverviewKind::Run => {
            let value = Live::<Idempotency>::of(key).ok()??;
            let kept_until = kept_until::<Idempotency>(call, &value, name, now);
            queues::look::<Idempotency, _>(call.db(), name, |queue| {
                RunRow::of(name, value.state(), queue, kept_until, promoted_at, now).map(OverviewRow::Run)
            })
        }
        OverviewKind::Load => {
            let value = Live::<Flights>::of(key).ok()??;
            let kept_until = kept_until::<Flights>(call, &value, name, now);
            queues::look::<Flights, _>(call.db(), name, |queue| {
                LoadRow::of(name, value.state(), queue, kept_until, promoted_at, now).map(OverviewRow::Load)
            })
        }
    }
}

/// How long the connection of a runner or a leader keeps a lease that is too short to be written down each time.
fn kept_until<M: ServerMachine>(call: &Call<'_>, value: &Live<M>, name: &[u8], now: Instant) -> Option<Instant> {
    if !sessions::any() {
        return None;
    }
    sessions::keeps(&KeyName::new(M::KIND, call.db(), name), M::first_lease(value.state())?.fence, now)
}

pub fn top(call: &Call<'_>, request: TopCall) -> Result<(), Failure> {
    let (reader, now, limit) = (Reader::of(call), clock::now(), request.limit as usize);
    let may_read = |name: &[u8]| with_string(call.ctx, name, |_, string| reader.may_read(string));
    let rows = match request.kind {
        TopKind::Denied => denials::top(call.db(), now, |hits| {
            let rows = hits.into_iter().filter(|(_, hit)| may_read(hit.name)).take(limit).map(|(kind, hit)| {
                let scaled = hit.estimate.scaled();
                let (estimate, error) = (scaled.count.cast_signed(), scaled.error.cast_signed());
                TopRow::Denied(DeniedRow { key: hit.name.to_vec(), kind, estimate, error })
            });
            rows.collect()
        }),
        TopKind::Waiting => longest_waits(call, limit, may_read, now),
        TopKind::Held => longest_holds(call, limit, &reader, now),
    };
    Ranked(rows).write(&mut call.reply());
    Ok(())
}

/// Waits are numbered in the order in which they began: the first are the longest.
fn longest_waits(call: &Call<'_>, limit: usize, may_read: impl Fn(&[u8]) -> bool, now: Instant) -> Vec<TopRow> {
    const WAITS_LOOKED_AT: usize = 2_000;
    let (db, mut rows) = (call.db(), Vec::new());
    for (id, name) in blocked_clients::longest_waiting(WAITS_LOOKED_AT) {
        if rows.len() == limit {
            break;
        }
        if name.db == db
            && may_read(&name.key)
            && let Some((owner, waited)) = queues::waiter(&name, id, now)
        {
            let (kind, waited_ms) = (kind_text(name.kind.text()), waited.ceil_ms());
            rows.push(TopRow::Waiting(WaitingRow { key: name.key.to_vec(), kind, owner: owner.to_vec(), waited_ms }));
        }
    }
    rows
}

/// As rows name it: by the word that commands have.
fn kind_text(event_name: &'static str) -> &'static str {
    match event_name {
        "guard" => "policy",
        "ledger" => "dlq",
        other => other,
    }
}

/// Where the walk over what is held goes on, and the longest holds it has seen.
struct Walk {
    db: i32,
    part: usize,
    from: Slot,
    /// Since when, in which part, and under which name.
    longest: Vec<(Instant, usize, Box<[u8]>)>,
}

thread_local! {
    static WALK: RefCell<Walk> = const { RefCell::new(Walk { db: -1, part: 0, from: 0, longest: Vec::new() }) };
}

const HELD: [OverviewKind; 2] = [OverviewKind::Lock, OverviewKind::Bulkhead];

/// Looks again at the longest holds that were seen before, and at as many other keys as there is time for: a call sees all if they are
/// not many, and else goes on where the last one ended.
fn longest_holds(call: &Call<'_>, limit: usize, reader: &Reader, now: Instant) -> Vec<TopRow> {
    let (watch, db) = (Stopwatch::start(), call.db());
    let mut walk = WALK.replace(Walk { db, part: 0, from: 0, longest: Vec::new() });
    if walk.db != db {
        walk = Walk { db, part: 0, from: 0, longest: Vec::new() };
    }
    let mut longest = Vec::new();
    let see = |part: usize, name: &[u8]| -> Option<Instant> {
        with_string(call.ctx, name, |call, string| {
            let key = Key::open_quietly(call, string);
            oldest(&key, part, now)
        })
    };
    for (_, part, name) in std::mem::take(&mut walk.longest) {
        longest.extend(see(part, &name).map(|since| (since, part, name)));
    }
    let (mut passed_end, began) = (false, (walk.part, walk.from));
    while watch.elapsed() < BUDGET {
        let (names, next) = registry::names(db, HELD[walk.part], walk.from, BATCH);
        for (_, name) in names {
            longest.extend(see(walk.part, &name).map(|since| (since, walk.part, name)));
        }
        if next > 0 {
            walk.from = next;
        } else {
            (walk.part, walk.from) = ((walk.part + 1) % HELD.len(), 0);
            passed_end |= walk.part == 0;
        }
        if passed_end && (walk.part, walk.from) >= began {
            break;
        }
    }
    longest.sort_unstable();
    longest.dedup();
    longest.truncate(resil_wire::overview::TOP_MAX as usize);
    let mut oldest = Oldest::new(limit);
    for (since, part, name) in &longest {
        // They are in order: nobody in this key, or in a later one, holds for longer.
        if oldest.is_later(*since) {
            break;
        }
        with_string(call.ctx, name, |call, string| {
            if reader.may_read(string) {
                let key = Key::open_quietly(call, string);
                if *part == 0 { oldest.add::<true>(&key, name, now) } else { oldest.add::<false>(&key, name, now) }
            }
        });
    }
    let rows = oldest.rows(now);
    walk.longest = longest;
    WALK.set(walk);
    rows
}

/// Since when the oldest holder holds.
fn oldest(key: &Key<'_>, part: usize, now: Instant) -> Option<Instant> {
    fn of<const L: bool>(key: &Key<'_>, now: Instant) -> Option<Instant> {
        let value = Live::<Holding<L>>::of(key).ok()??;
        value.state().iter().find(|holder| lives(holder, fences::promoted_at(), now)).map(|holder| holder.since)
    }
    if part == 0 { of::<true>(key, now) } else { of::<false>(key, now) }
}

/// The holders that hold longest, of all keys that were added. A key may have a hundred thousand: no more than `limit` are kept.
struct Oldest {
    limit: usize,
    /// The latest first. The number tells apart what began at once: the first that was added is kept.
    found: BinaryHeap<(Instant, usize)>,
    holders: Vec<HeldSince>,
}

struct HeldSince {
    since: Instant,
    kind: &'static str,
    key: Rc<[u8]>,
    owner: Vec<u8>,
}

impl Oldest {
    fn new(limit: usize) -> Self {
        Self { limit, found: BinaryHeap::with_capacity(limit + 1), holders: Vec::new() }
    }

    /// Whether there are enough that began before.
    fn is_later(&self, since: Instant) -> bool {
        self.found.len() == self.limit && self.found.peek().is_some_and(|(latest, _)| since >= *latest)
    }

    fn add<const L: bool>(&mut self, key: &Key<'_>, name: &[u8], now: Instant) {
        let Ok(Some(value)) = Live::<Holding<L>>::of(key) else { return };
        let name = Rc::from(name);
        // In the order of their grants: the first are the oldest.
        for holder in value.state().iter().filter(|holder| lives(holder, fences::promoted_at(), now)) {
            if self.is_later(holder.since) {
                break;
            }
            let (since, kind, key) = (holder.since, Holding::<L>::EVENT_NAME, Rc::clone(&name));
            self.found.push((since, self.holders.len()));
            self.holders.push(HeldSince { since, kind, key, owner: holder.owner().to_vec() });
            if self.found.len() > self.limit {
                self.found.pop();
            }
        }
    }

    fn rows(mut self, now: Instant) -> Vec<TopRow> {
        let found = std::mem::take(&mut self.found).into_sorted_vec();
        let row = |(_, at): (Instant, usize)| {
            let HeldSince { since, kind, key, owner } = &self.holders[at];
            let held_ms = since.until(now).ceil_ms();
            TopRow::Held(HeldRow { key: key.to_vec(), kind, owner: owner.clone(), held_ms })
        };
        found.into_iter().map(row).collect()
    }
}
