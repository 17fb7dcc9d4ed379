//! The lines of waiters, by database and key. They are this process's memory: no file and no replica has them.

use std::collections::{BTreeMap, HashMap};

use resil_core::queue::{Queue, WaiterId};

use crate::machine::{Kind, Machine, for_kind};

/// A key as timers and waiters name it: never by pointer, because it can leave in many ways.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pub db: i32,
    pub kind: Kind,
    pub key: Box<[u8]>,
}

impl Name {
    pub fn new(kind: Kind, db: i32, key: &[u8]) -> Self {
        Self { db, kind, key: key.into() }
    }
}

/// Every line of one machine.
pub struct Lines<A>(BTreeMap<i32, HashMap<Box<[u8]>, Queue<A>>>);

impl<A> Default for Lines<A> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// Takes the line out, to be stepped and put back.
pub fn take<M: Machine>(db: i32, key: &[u8]) -> Queue<M::Ask> {
    M::lines()
        .with_borrow_mut(|Lines(lines)| {
            if lines.is_empty() {
                return None;
            }
            let of_db = lines.get_mut(&db)?;
            let line = of_db.remove(key);
            if of_db.is_empty() {
                lines.remove(&db);
            }
            line
        })
        .unwrap_or_default()
}

pub fn put<M: Machine>(db: i32, key: &[u8], line: Queue<M::Ask>) {
    if !line.is_empty() {
        M::lines().with_borrow_mut(|Lines(lines)| lines.entry(db).or_default().insert(key.into(), line));
    }
}

/// Looks at the line of a key.
pub fn look<M: Machine, R>(db: i32, key: &[u8], look: impl FnOnce(&Queue<M::Ask>) -> R) -> R {
    M::lines().with_borrow(|Lines(lines)| match lines.get(&db).and_then(|of_db| of_db.get(key)) {
        Some(line) => look(line),
        None => look(&Queue::default()),
    })
}

/// A waiter is gone; nothing is decided here.
pub fn leave(name: &Name, id: WaiterId) {
    for_kind!(name.kind, M => {
        let mut line = take::<M>(name.db, &name.key);
        line.leave(id);
        put::<M>(name.db, &name.key, line);
    });
}

pub fn waits(name: &Name) -> bool {
    for_kind!(name.kind, M => look::<M, _>(name.db, &name.key, |line| !line.is_empty()))
}

pub fn is_empty_of<M: Machine>() -> bool {
    M::lines().with_borrow(|Lines(lines)| lines.is_empty())
}

pub fn is_empty() -> bool {
    Kind::ALL.into_iter().all(|kind| for_kind!(kind, M => is_empty_of::<M>()))
}

/// Every key that somebody waits for, in one database or in all.
pub fn names(db: Option<i32>) -> Vec<Name> {
    Kind::ALL.into_iter().flat_map(|kind| for_kind!(kind, M => names_of::<M>(db))).collect()
}

fn names_of<M: Machine>(db: Option<i32>) -> Vec<Name> {
    M::lines().with_borrow(|Lines(lines)| {
        let wanted = lines.iter().filter(|(of, _)| db.is_none_or(|db| db == **of));
        wanted.flat_map(|(db, keys)| keys.keys().map(|key| Name::new(M::KIND, *db, key))).collect()
    })
}
