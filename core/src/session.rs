//! Sessions: what hangs on a connection. Volatile: nothing of it is stored or replicated.
//!
//! A holding that is *bound* belongs to a connection. Its lease is renewed for it while that connection is alive and
//! was heard of within the lease. When the connection closes, the holding ends at once, or, with a grace, its lease is
//! cut to the grace: until then its owner can take it back over another connection. One connection can have any number
//! of them; one heartbeat serves all. A holding is bound to one connection at most: the last binding decides, and the
//! close of an earlier connection does nothing.
//!
//! ```text
//!   bind ──▶ bound ── every third of the lease: the lease runs until last heard + lease ──▶ bound
//!              ├── the connection closes ──▶ handed back, to be ended or cut to its grace
//!              ├── released by its owner ──▶ forgotten
//!              └── lost in any other way ──▶ remembered until the next heartbeat tells
//! ```

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::limits::LOSSES_REMEMBERED;
use crate::lock::{Kind, Reason};
use crate::time::{Instant, Span};

/// A connection.
pub type ClientId = u64;

/// The connection a holding is bound to, and the grace it has once that connection has closed. Zero: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    pub client: ClientId,
    pub grace: Span,
}

/// A holding: the key it is in, and its fence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub db: i32,
    pub key: Box<[u8]>,
    pub fence: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bound<K> {
    client: ClientId,
    grace: Span,
    kind: K,
    lease: Span,
    due: Instant,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Session {
    heard: Option<Instant>,
    places: BTreeSet<Place>,
    /// The shortest lease first: a silence ends those that are not longer.
    by_lease: BTreeSet<(Span, Place)>,
    losses: VecDeque<Loss>,
}

/// A bound holding that was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub key: Box<[u8]>,
    pub fence: u64,
    pub reason: Reason,
}

/// A bound holding whose lease is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due<K = Kind> {
    pub place: Place,
    pub kind: K,
    pub client: ClientId,
    pub lease: Span,
}

/// A holding whose connection has closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed<K = Kind> {
    pub place: Place,
    pub kind: K,
    pub grace: Span,
}

/// `K` is which machine a place belongs to; sessions only pass it on.
#[derive(Debug, Clone)]
pub struct Sessions<K = Kind> {
    sessions: BTreeMap<ClientId, Session>,
    bound: BTreeMap<Place, Bound<K>>,
    by_due: BTreeSet<(Instant, Place)>,
}

impl<K> Default for Sessions<K> {
    fn default() -> Self {
        Self { sessions: BTreeMap::new(), bound: BTreeMap::new(), by_due: BTreeSet::new() }
    }
}

impl<K: Copy> Sessions<K> {
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Connections that something hangs on, or that have not been told of a loss yet.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn bound(&self) -> usize {
        self.bound.len()
    }

    /// `place` hangs on the connection of `binding` from now on, and on nobody else.
    pub fn bind(&mut self, binding: Binding, place: Place, kind: K, lease: Span, now: Instant) {
        let Binding { client, grace } = binding;
        self.unbind(&place);
        self.heard(client, now);
        let session = self.sessions.entry(client).or_default();
        session.heard = session.heard.max(Some(now));
        session.places.insert(place.clone());
        session.by_lease.insert((lease, place.clone()));
        let due = now.plus(lease.third());
        self.by_due.insert((due, place.clone()));
        self.bound.insert(place, Bound { client, grace, kind, lease, due });
    }

    /// `place` hangs on nobody any more. Returns on whom it did.
    pub fn unbind(&mut self, place: &Place) -> Option<ClientId> {
        let Bound { client, due, lease, .. } = self.bound.remove(place)?;
        self.by_due.remove(&(due, place.clone()));
        if let Some(session) = self.sessions.get_mut(&client) {
            session.places.remove(place);
            session.by_lease.remove(&(lease, place.clone()));
            if session.places.is_empty() && session.losses.is_empty() {
                self.sessions.remove(&client);
            }
        }
        Some(client)
    }

    /// A bound holding is lost; its connection will be told by its next heartbeat. False if it was not bound.
    pub fn lose(&mut self, place: &Place, reason: Reason) -> bool {
        let Some(client) = self.unbind(place) else { return false };
        let losses = &mut self.sessions.entry(client).or_default().losses;
        if losses.len() == LOSSES_REMEMBERED {
            losses.pop_front();
        }
        losses.push_back(Loss { key: place.key.clone(), fence: place.fence, reason });
        true
    }

    pub fn is_bound(&self, place: &Place) -> bool {
        self.bound.contains_key(place)
    }

    /// The grace of a holding, if it is bound.
    pub fn grace(&self, place: &Place) -> Option<Span> {
        self.bound.get(place).map(|bound| bound.grace)
    }

    /// How a holding is bound, if it is.
    pub fn bound_as(&self, place: &Place) -> Option<Due<K>> {
        let Bound { client, kind, lease, .. } = self.bound.get(place)?;
        Some(Due { place: place.clone(), kind: *kind, client: *client, lease: *lease })
    }

    /// The connection was heard of at `at`. Whatever has a lease no longer than the silence before it is lost.
    pub fn heard(&mut self, client: ClientId, at: Instant) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        let silence = session.heard.map_or(Span::ZERO, |heard| heard.until(at));
        session.heard = session.heard.max(Some(at));
        let lapsed: Vec<Place> = session
            .by_lease
            .iter()
            .take_while(|(lease, _)| *lease <= silence)
            .map(|(_, place)| place.clone())
            .collect();
        for place in lapsed {
            self.lose(&place, Reason::Expired);
        }
    }

    /// The connection was there all the time until `at`: it waits in one of our calls.
    pub fn was_there(&mut self, client: ClientId, at: Instant) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.heard = session.heard.max(Some(at));
        }
    }

    pub fn last_heard(&self, client: ClientId) -> Option<Instant> {
        self.sessions.get(&client)?.heard
    }

    /// How many hang on the connection, and what it has lost since it was last told.
    pub fn heartbeat(&mut self, client: ClientId, now: Instant) -> (usize, Vec<Loss>) {
        self.heard(client, now);
        let Some(session) = self.sessions.get_mut(&client) else { return (0, Vec::new()) };
        let losses = core::mem::take(&mut session.losses).into();
        let bound = session.places.len();
        if bound == 0 {
            self.sessions.remove(&client);
        }
        (bound, losses)
    }

    /// The connection is gone; what hung on it comes back, to be ended or cut to its grace.
    pub fn close(&mut self, client: ClientId) -> Vec<Closed<K>> {
        let Some(session) = self.sessions.remove(&client) else { return Vec::new() };
        let mut closed = Vec::with_capacity(session.places.len());
        for place in session.places {
            if let Some(Bound { kind, due, grace, .. }) = self.bound.remove(&place) {
                self.by_due.remove(&(due, place.clone()));
                closed.push(Closed { place, kind, grace });
            }
        }
        closed
    }

    /// What hung on whom under `(db, key)`: the key is gone.
    pub fn of_key(&self, db: i32, key: &[u8]) -> Vec<Place> {
        let from = Place { db, key: key.into(), fence: 0 };
        self.bound
            .range(from..)
            .map(|(place, _)| place)
            .take_while(|place| place.db == db && *place.key == *key)
            .cloned()
            .collect()
    }

    /// When the next lease is to be looked at.
    pub fn next_due(&self) -> Option<Instant> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// Everything to be looked at by now; each is due again a third of its lease later.
    pub fn take_due(&mut self, now: Instant) -> Vec<Due<K>> {
        let mut all = Vec::new();
        while let Some((at, place)) = self.by_due.first().filter(|(at, _)| *at <= now).cloned() {
            self.by_due.remove(&(at, place.clone()));
            if let Some(bound) = self.bound.get_mut(&place) {
                bound.due = now.plus(bound.lease.third());
                self.by_due.insert((bound.due, place.clone()));
                all.push(Due { place, kind: bound.kind, client: bound.client, lease: bound.lease });
            }
        }
        all
    }

    /// The clock was set back, or the server changed its role: whatever is bound is due at once.
    pub fn look_at_all(&mut self, now: Instant) {
        self.by_due.clear();
        for (place, bound) in &mut self.bound {
            bound.due = now;
            self.by_due.insert((now, place.clone()));
        }
        for session in self.sessions.values_mut() {
            session.heard = session.heard.map(|heard| heard.min(now));
        }
    }

    /// The databases `a` and `b` changed places.
    pub fn swap_databases(&mut self, a: i32, b: i32) {
        let swapped = |db: i32| {
            if db == a {
                b
            } else if db == b {
                a
            } else {
                db
            }
        };
        let moved = |place: Place| Place { db: swapped(place.db), ..place };
        self.bound = core::mem::take(&mut self.bound).into_iter().map(|(place, bound)| (moved(place), bound)).collect();
        self.by_due = core::mem::take(&mut self.by_due).into_iter().map(|(due, place)| (due, moved(place))).collect();
        for session in self.sessions.values_mut() {
            session.places = core::mem::take(&mut session.places).into_iter().map(moved).collect();
            let by_lease = core::mem::take(&mut session.by_lease);
            session.by_lease = by_lease.into_iter().map(|(lease, place)| (lease, moved(place))).collect();
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
