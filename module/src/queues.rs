//! The queues of waiters, by database and key. They are this process's memory: no file and no replica has them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use resil_core::waited::queue::{Queue, WaiterId};
use resil_core::{Instant, Span};

use crate::machines::{Kind, ServerMachine, for_kind};

/// A key as timers and waiters name it: never by pointer, because it can leave in many ways.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName {
    pub db: i32,
    pub kind: Kind,
    pub key: Box<[u8]>,
}

impl KeyName {
    pub fn new(kind: Kind, db: i32, key: &[u8]) -> Self {
        Self { db, kind, key: key.into() }
    }
}

/// Every queue of one machine.
pub struct Queues<A>(BTreeMap<i32, HashMap<Box<[u8]>, Queue<A>>>);

impl<A> Default for Queues<A> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// Takes the queue out, to be stepped and put back.
pub fn take<M: ServerMachine>(db: i32, key: &[u8]) -> Queue<M::Request> {
    M::queues()
        .with_borrow_mut(|Queues(queues)| {
            if queues.is_empty() {
                return None;
            }
            let of_db = queues.get_mut(&db)?;
            let queue = of_db.remove(key);
            if of_db.is_empty() {
                queues.remove(&db);
            }
            queue
        })
        .unwrap_or_default()
}

pub fn put<M: ServerMachine>(db: i32, key: &[u8], queue: Queue<M::Request>) {
    if !queue.is_empty() {
        M::queues().with_borrow_mut(|Queues(queues)| queues.entry(db).or_default().insert(key.into(), queue));
    }
}

/// Looks at the queue of a key.
pub fn look<M: ServerMachine, R>(db: i32, key: &[u8], look: impl FnOnce(&Queue<M::Request>) -> R) -> R {
    M::queues().with_borrow(|Queues(queues)| match queues.get(&db).and_then(|of_db| of_db.get(key)) {
        Some(queue) => look(queue),
        None => look(&Queue::default()),
    })
}

/// A waiter is gone; nothing is decided here. True if it was the head.
pub fn leave(name: &KeyName, id: WaiterId) -> bool {
    for_kind!(name.kind, M => change::<M, _>(name.db, &name.key, |queue| {
        let was_head = queue.head().is_some_and(|head| head.id == id);
        queue.leave(id);
        was_head
    }).unwrap_or_default())
}

/// The position of a waiter, where 1 is the head, and its owner.
pub fn find(name: &KeyName, id: WaiterId) -> Option<(usize, Arc<[u8]>)> {
    let find = |position: Option<usize>, owner: Option<&Arc<[u8]>>| Some((position?, Arc::clone(owner?)));
    for_kind!(name.kind, M => {
        look::<M, _>(name.db, &name.key, |queue| find(queue.position(id), queue.owner_of(id)))
    })
}

/// Who a waiter is, and for how long it has waited.
pub fn waiter(name: &KeyName, id: WaiterId, now: Instant) -> Option<(Arc<[u8]>, Span)> {
    for_kind!(name.kind, M => look::<M, _>(name.db, &name.key, |queue| {
        queue.waiter(id).map(|waiter| (Arc::clone(&waiter.owner), waiter.waited(now)))
    }))
}

/// Changes the queue in its place, if there is one.
fn change<M: ServerMachine, R>(db: i32, key: &[u8], change: impl FnOnce(&mut Queue<M::Request>) -> R) -> Option<R> {
    M::queues().with_borrow_mut(|Queues(queues)| {
        let of_db = queues.get_mut(&db)?;
        let queue = of_db.get_mut(key)?;
        let result = change(queue);
        if queue.is_empty() {
            of_db.remove(key);
            if of_db.is_empty() {
                queues.remove(&db);
            }
        }
        Some(result)
    })
}

pub fn waits(name: &KeyName) -> bool {
    for_kind!(name.kind, M => look::<M, _>(name.db, &name.key, |queue| !queue.is_empty()))
}

pub fn is_empty_of<M: ServerMachine>() -> bool {
    M::queues().with_borrow(|Queues(queues)| queues.is_empty())
}

pub fn is_empty() -> bool {
    Kind::ALL.iter().copied().all(|kind| for_kind!(kind, M => is_empty_of::<M>()))
}

/// Every key that somebody waits for, in one database or in all.
pub fn names(db: Option<i32>) -> Vec<KeyName> {
    Kind::ALL.iter().copied().flat_map(|kind| for_kind!(kind, M => names_of::<M>(db, |_| true))).collect()
}

/// The keys that somebody has waited for long enough.
pub fn names_due(now: Instant) -> Vec<KeyName> {
    fn is_due<A>(queue: &Queue<A>, now: Instant) -> bool {
        queue.first_deadline().is_some_and(|deadline| deadline <= now)
    }
    let all = Kind::ALL.iter().copied();
    all.flat_map(|kind| for_kind!(kind, M => names_of::<M>(None, |queue| is_due(queue, now)))).collect()
}

fn names_of<M: ServerMachine>(db: Option<i32>, wanted: impl Fn(&Queue<M::Request>) -> bool) -> Vec<KeyName> {
    M::queues().with_borrow(|Queues(queues)| {
        let here = queues.iter().filter(|(of, _)| db.is_none_or(|db| db == **of));
        let all = here.flat_map(|(db, keys)| keys.iter().map(move |(key, queue)| (*db, key, queue)));
        all.filter(|(.., queue)| wanted(queue)).map(|(db, key, _)| KeyName::new(M::KIND, db, key)).collect()
    })
}
