//! The lines of waiters, by kind, database and key. They are this process's memory: no file and no replica has them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use resil_core::lock::{Ask, Kind};
use resil_core::queue::{Queue, WaiterId};

pub type Line = Queue<Ask>;

/// A key as timers and waiters name it: never by pointer, because it can leave in many ways.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
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

type Lines = BTreeMap<(i32, Kind), HashMap<Box<[u8]>, Line>>;

thread_local! {
    static LINES: RefCell<Lines> = const { RefCell::new(BTreeMap::new()) };
}

/// Takes the line out, to be stepped and put back.
pub fn take(kind: Kind, db: i32, key: &[u8]) -> Line {
    LINES
        .with_borrow_mut(|lines| {
            if lines.is_empty() {
                return None;
            }
            let of_db = lines.get_mut(&(db, kind))?;
            let line = of_db.remove(key);
            if of_db.is_empty() {
                lines.remove(&(db, kind));
            }
            line
        })
        .unwrap_or_default()
}

pub fn put(kind: Kind, db: i32, key: &[u8], line: Line) {
    if !line.is_empty() {
        LINES.with_borrow_mut(|lines| lines.entry((db, kind)).or_default().insert(key.into(), line));
    }
}

/// A waiter is gone; nothing is decided here.
pub fn leave(name: &Name, id: WaiterId) {
    let mut line = take(name.kind, name.db, &name.key);
    line.leave(id);
    put(name.kind, name.db, &name.key, line);
}

pub fn waits(name: &Name) -> bool {
    LINES.with_borrow(|lines| lines.get(&(name.db, name.kind)).is_some_and(|of_db| of_db.contains_key(&name.key)))
}

pub fn is_empty() -> bool {
    LINES.with_borrow(BTreeMap::is_empty)
}

/// Every key that somebody waits for, in one database or in all.
pub fn names(db: Option<i32>) -> Vec<Name> {
    LINES.with_borrow(|lines| {
        lines
            .iter()
            .filter(|((of, _), _)| db.is_none_or(|db| db == *of))
            .flat_map(|((db, kind), keys)| keys.keys().map(|key| Name { db: *db, kind: *kind, key: key.clone() }))
            .collect()
    })
}

/// Looks at the line of a key.
pub fn look<R>(kind: Kind, db: i32, key: &[u8], look: impl FnOnce(&Line) -> R) -> R {
    LINES.with_borrow(|lines| match lines.get(&(db, kind)).and_then(|of_db| of_db.get(key)) {
        Some(line) => look(line),
        None => look(&Line::default()),
    })
}
