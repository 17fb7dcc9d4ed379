//! Sessions: what hangs on a connection. Volatile: nothing of it is stored or replicated.
//!
//! A holding that is *bound* belongs to a connection. Its lease is renewed for it while that connection is alive and
//! was heard of within the lease. When the connection closes, the holding ends at once, or, with a grace, its lease is
//! cut to the grace: until then its owner can take it back over another connection. One connection can have any number
//! of them; one heartbeat serves all. A holding is bound to one connection at most: the last binding decides, and the
//! close of an earlier connection does nothing.
//!
//! A lease shorter than a second is not written down as often as it would have to be: while its connection is heard of, it
//! counts as held, whatever its key says ([`Sessions::keeps`]), and one timer for each connection notices its silence.
//!
//! ```text
//!   bind ──▶ bound ── every third of the lease: the lease runs until last heard + lease ──▶ bound
//!              ├── the connection closes ──▶ handed back, to be ended or cut to its grace
//!              ├── released by its owner ──▶ forgotten
//!              └── lost in any other way ──▶ remembered until the next heartbeat reports it
//! ```

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

pub use super::binding::{Binding, ClientId, ClosedHolding, Due, HoldingId, Loss};
use super::ending::Reason;
use crate::limits::LOSSES_REMEMBERED;
use crate::lock::Kind;
use crate::time::{Instant, Span};

/// Leases below this are short: watched by the timer of their connection, and written down every third of *this*.
pub const SHORT: Span = Span::from_secs(1);

/// Leases below this are so short that nobody can rely on what is written: it mostly lies in the past.
const VERY_SHORT: Span = Span::from_ms(100);

/// How often a lease is written down.
fn period(lease: Span) -> Span {
    if lease < VERY_SHORT { SHORT } else { lease.max(SHORT).third() }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bond<K> {
    client: ClientId,
    grace: Span,
    kind: K,
    lease: Span,
    due: Instant,
    /// How many silences its connection had had when it was bound.
    silences: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Session {
    heard: Option<Instant>,
    /// What hangs on it, the shortest lease first: a silence ends those that are not longer.
    by_lease: BTreeSet<(Span, HoldingId)>,
    /// What ended in a silence: put aside as a whole, and lost one by one, because it can be a lot.
    lapsed: VecDeque<BTreeSet<(Span, HoldingId)>>,
    /// The silences of `lapsed`, after as many earlier ones.
    silences: VecDeque<Span>,
    earlier_silences: u32,
    losses: VecDeque<Loss>,
    /// When it is looked at whether a short lease has ended in silence.
    lapse: Option<Instant>,
    /// The last of those that have, while there are more.
    lapse_after: Option<(Span, HoldingId)>,
}

impl Session {
    /// True if nothing is left of it.
    fn is_over(&self) -> bool {
        self.by_lease.is_empty() && self.lapsed.is_empty() && self.losses.is_empty()
    }

    /// How many silences it has had.
    fn silences(&self) -> u32 {
        self.earlier_silences + self.silences.len() as u32
    }

    /// True if a lease that was bound after so many silences ended in one of the later ones.
    fn has_lapsed(&self, lease: Span, silences: u32) -> bool {
        let earlier = silences.saturating_sub(self.earlier_silences) as usize;
        self.silences.iter().skip(earlier).any(|silence| lease <= *silence)
    }
}

/// A connection that has closed, and what hung on it: taken apart one by one, because it can be a lot.
#[derive(Debug, Clone)]
struct Closing {
    client: ClientId,
    session: Session,
}

/// Before every lease that is longer than `silence`, and behind all others.
fn longer_than(silence: Span) -> (Span, HoldingId) {
    (Span::from_us(silence.as_us().saturating_add(1)), HoldingId { db: i32::MIN, key: Box::default(), fence: 0 })
}

/// `K` is which machine a place belongs to; sessions only pass it on.
#[derive(Debug, Clone)]
pub struct Sessions<K = Kind> {
    sessions: BTreeMap<ClientId, Session>,
    bound: BTreeMap<HoldingId, Bond<K>>,
    by_due: BTreeSet<(Instant, HoldingId)>,
    /// What was in `by_due` when the clock was set back: due at once.
    due_anew: BTreeSet<(Instant, HoldingId)>,
    set_back_to: Instant,
    /// Connections with leases that ended in a silence. Some are not there any more.
    losing: VecDeque<ClientId>,
    closing: VecDeque<Closing>,
    closed_at: BTreeMap<ClientId, Instant>,
    /// Sessions with short leases. Some are not there any more.
    lapses: BTreeSet<(Instant, ClientId)>,
}

impl<K> Default for Sessions<K> {
    fn default() -> Self {
        Self {
            sessions: BTreeMap::new(),
            bound: BTreeMap::new(),
            by_due: BTreeSet::new(),
            due_anew: BTreeSet::new(),
            set_back_to: Instant::EPOCH,
            losing: VecDeque::new(),
            closing: VecDeque::new(),
            closed_at: BTreeMap::new(),
            lapses: BTreeSet::new(),
        }
    }
}

impl<K: Copy> Sessions<K> {
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.closing.is_empty()
    }

    /// Connections that a lease is bound to, or whose losses no heartbeat has reported yet.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn bound(&self) -> usize {
        self.bound.len()
    }

    /// `place` hangs on the connection of `binding` from now on, and on nobody else.
    pub fn bind(&mut self, binding: Binding, place: HoldingId, kind: K, lease: Span, now: Instant) {
        let Binding { client, grace } = binding;
        self.unbind(&place);
        self.heard(client, now);
        let session = self.sessions.entry(client).or_default();
        session.heard = session.heard.max(Some(now));
        let silences = session.silences();
        session.by_lease.insert((lease, place.clone()));
        let due = now.plus(period(lease));
        self.by_due.insert((due, place.clone()));
        self.bound.insert(place, Bond { client, grace, kind, lease, due, silences });
        self.watch(client);
    }

    /// `place` hangs on nobody any more. Returns on whom it did.
    pub fn unbind(&mut self, place: &HoldingId) -> Option<ClientId> {
        let Bond { client, due, lease, .. } = self.bound.remove(place)?;
        self.forget_due(due, place);
        if let Some(session) = self.sessions.get_mut(&client) {
            session.by_lease.remove(&(lease, place.clone()));
            if session.is_over() {
                self.sessions.remove(&client);
            }
        }
        Some(client)
    }

    /// A bound holding is lost; the next heartbeat of its connection will report that. False if it was not bound.
    pub fn lose(&mut self, place: &HoldingId, reason: Reason) -> bool {
        let Some(client) = self.unbind(place) else { return false };
        if self.closed_at.contains_key(&client) {
            return false;
        }
        let losses = &mut self.sessions.entry(client).or_default().losses;
        if losses.len() == LOSSES_REMEMBERED {
            losses.pop_front();
        }
        losses.push_back(Loss { key: place.key.clone(), fence: place.fence, reason });
        true
    }

    pub fn is_bound(&self, place: &HoldingId) -> bool {
        self.lives(place).is_some()
    }

    /// The grace of a holding, if it is bound.
    pub fn grace(&self, place: &HoldingId) -> Option<Span> {
        self.lives(place).map(|bound| bound.grace)
    }

    /// How a holding is bound, if it is.
    pub fn bound_as(&self, place: &HoldingId) -> Option<Due<K>> {
        let Bond { client, kind, lease, .. } = self.lives(place)?;
        Some(Due { place: place.clone(), kind: *kind, client: *client, lease: *lease })
    }

    /// The connection was heard of at `at`. Whatever has a lease no longer than the silence before it is lost.
    pub fn heard(&mut self, client: ClientId, at: Instant) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        let silence = session.heard.map_or(Span::ZERO, |heard| heard.until(at));
        session.heard = session.heard.max(Some(at));
        if session.by_lease.first().is_none_or(|(lease, _)| *lease > silence) {
            return;
        }
        let rest = session.by_lease.split_off(&longer_than(silence));
        session.lapsed.push_back(core::mem::replace(&mut session.by_lease, rest));
        session.silences.push_back(silence);
        self.losing.push_back(client);
        for _ in 0..LOSSES_REMEMBERED {
            if !self.lose_next() {
                return;
            }
        }
    }

    /// True while leases that ended in a silence are still to be lost. They count as lost already.
    pub fn is_losing(&self) -> bool {
        !self.losing.is_empty()
    }

    /// Loses a holding whose lease ended in a silence. False if there is none.
    pub fn lose_next(&mut self) -> bool {
        let Some(client) = self.losing.front().copied() else { return false };
        if let Some(session) = self.sessions.get_mut(&client)
            && let Some(lapsed) = session.lapsed.front_mut()
        {
            if let Some((_, place)) = lapsed.pop_first() {
                // It may have been bound anew meanwhile, or have ended in another way.
                let bound = self.bound.get(&place).filter(|bound| bound.client == client);
                if bound.is_some_and(|bound| self.is_over(bound)) {
                    self.lose(&place, Reason::Expired);
                }
                return true;
            }
            session.lapsed.pop_front();
            session.silences.pop_front();
            session.earlier_silences += 1;
            if session.is_over() {
                self.sessions.remove(&client);
            }
        }
        self.losing.pop_front();
        true
    }

    /// True if a lease ended in a silence of its connection.
    fn is_over(&self, bound: &Bond<K>) -> bool {
        self.sessions.get(&bound.client).is_some_and(|session| session.has_lapsed(bound.lease, bound.silences))
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

    /// Until when a holding lasts by what was heard of `client`; `None` if it does not hang on it any more.
    pub fn lasts_until(&self, place: &HoldingId, client: ClientId) -> Option<Instant> {
        let bound = self.lives(place).filter(|bound| bound.client == client)?;
        Some(self.last_heard(client)?.plus(bound.lease))
    }

    /// How many leases are bound to the connection, and what it has lost since its last heartbeat.
    pub fn heartbeat(&mut self, client: ClientId, now: Instant) -> (usize, Vec<Loss>) {
        self.heard(client, now);
        let Some(session) = self.sessions.get_mut(&client) else { return (0, Vec::new()) };
        let losses = core::mem::take(&mut session.losses).into();
        let bound = session.by_lease.len();
        if session.is_over() {
            self.sessions.remove(&client);
        }
        (bound, losses)
    }

    /// A holding that hangs on a connection which has not closed, and was not silent for too long.
    fn lives(&self, place: &HoldingId) -> Option<&Bond<K>> {
        let bound = self.bound.get(place)?;
        (!self.closed_at.contains_key(&bound.client) && !self.is_over(bound)).then_some(bound)
    }

    /// The connection closed at `at`. What hung on it is taken by [`Self::take_closed`] and [`Self::closed_in`].
    pub fn close(&mut self, client: ClientId, at: Instant) {
        if let Some(session) = self.sessions.remove(&client) {
            self.closed_at.insert(client, at);
            self.closing.push_back(Closing { client, session });
        }
    }

    /// True while something hangs on a connection that has closed.
    pub fn is_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Takes a holding whose connection has closed, to be ended or cut to its grace.
    pub fn take_closed(&mut self) -> Option<ClosedHolding<K>> {
        loop {
            let Closing { client, session } = self.closing.front_mut()?;
            let client = *client;
            let next = session.by_lease.pop_first();
            match next.or_else(|| session.lapsed.iter_mut().find_map(BTreeSet::pop_first)) {
                Some((_, place)) => {
                    if let Some(closed) = self.take_if_of(&place, client) {
                        return Some(closed);
                    }
                }
                None => {
                    self.closing.pop_front();
                    self.closed_at.remove(&client);
                }
            }
        }
    }

    /// Takes a holding whose connection has closed, if it is one.
    pub fn take_closed_at(&mut self, place: &HoldingId) -> Option<ClosedHolding<K>> {
        let client = self.bound.get(place)?.client;
        self.take_if_of(place, client)
    }

    /// Takes what hung on closed connections under `(db, key)`, until it weighs `most` or more: `weigh` is asked for each fence.
    pub fn closed_in(
        &mut self,
        db: i32,
        key: &[u8],
        most: usize,
        weigh: impl Fn(u64) -> usize,
    ) -> Vec<ClosedHolding<K>> {
        let from = HoldingId { db, key: key.into(), fence: 0 };
        let here = self.bound.range(from..).take_while(|(place, _)| place.db == db && *place.key == *key);
        let closed = here.filter(|(_, bound)| self.closed_at.contains_key(&bound.client));
        let mut weight = 0;
        let closed = closed.take_while(|(place, _)| {
            let takes = weight < most;
            weight += weigh(place.fence);
            takes
        });
        let closed = closed.map(|(place, bound)| (place.clone(), bound.client));
        let closed: Vec<(HoldingId, ClientId)> = closed.collect();
        closed.into_iter().filter_map(|(place, client)| self.take_if_of(&place, client)).collect()
    }

    /// Takes a holding if it still hangs on this connection, which has closed.
    fn take_if_of(&mut self, place: &HoldingId, client: ClientId) -> Option<ClosedHolding<K>> {
        let at = *self.closed_at.get(&client)?;
        self.bound.get(place).filter(|bound| bound.client == client)?;
        let Bond { kind, due, grace, .. } = self.bound.remove(place)?;
        self.forget_due(due, place);
        Some(ClosedHolding { place: place.clone(), kind, grace, at })
    }

    /// When the next lease is to be looked at.
    pub fn next_due(&self) -> Option<Instant> {
        let anew = self.due_anew.first().map(|_| self.set_back_to);
        self.by_due.first().map(|(due, _)| *due).into_iter().chain(anew).min()
    }

    fn forget_due(&mut self, due: Instant, place: &HoldingId) {
        let entry = (due, place.clone());
        if !self.by_due.remove(&entry) {
            self.due_anew.remove(&entry);
        }
    }

    /// Takes the next of what is to be looked at by now.
    fn next_place_due(&mut self, now: Instant) -> Option<HoldingId> {
        if let Some((_, place)) = self.due_anew.pop_first() {
            return Some(place);
        }
        self.by_due.first().filter(|(at, _)| *at <= now)?;
        self.by_due.pop_first().map(|(_, place)| place)
    }

    /// Up to `most` of what is to be looked at by now; each is due again a third of its lease later, or of a second.
    pub fn take_due(&mut self, now: Instant, most: usize) -> Vec<Due<K>> {
        let mut all = Vec::new();
        for _ in 0..most {
            let Some(place) = self.next_place_due(now) else { break };
            let lives = self.lives(&place).is_some();
            if let Some(bound) = self.bound.get_mut(&place).filter(|_| lives) {
                bound.due = now.plus(period(bound.lease));
                self.by_due.insert((bound.due, place.clone()));
                all.push(Due { place, kind: bound.kind, client: bound.client, lease: bound.lease });
            }
        }
        all
    }

    /// Sets the timer of a connection to the end of its shortest lease, if that is a short one.
    fn watch(&mut self, client: ClientId) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        let shortest = session.by_lease.first().map(|(lease, _)| *lease).filter(|lease| *lease < SHORT);
        let (Some(lease), Some(heard)) = (shortest, session.heard) else { return };
        let at = heard.plus(lease);
        if session.lapse.is_none_or(|set| set > at) {
            if let Some(before) = session.lapse.replace(at) {
                self.lapses.remove(&(before, client));
            }
            self.lapses.insert((at, client));
        }
    }

    /// When a connection with short leases is to be looked at.
    pub fn next_lapse(&self) -> Option<Instant> {
        self.lapses.first().map(|(at, _)| *at)
    }

    /// A connection whose short leases are to be looked at now.
    pub fn take_lapse(&mut self, now: Instant) -> Option<ClientId> {
        let (at, client) = *self.lapses.first().filter(|(at, _)| *at <= now)?;
        self.lapses.remove(&(at, client));
        if let Some(session) = self.sessions.get_mut(&client) {
            session.lapse = None;
        }
        Some(client)
    }

    /// Up to `most` short leases of a connection that was silent for as long: their keys are to be looked at, and end what
    /// is over. If there are more, the connection is to be looked at again at once. They stay bound until then; a sign of
    /// life that comes meanwhile is too late for them ([`Self::heard`]).
    pub fn lapsed(&mut self, client: ClientId, now: Instant, most: usize) -> Vec<(HoldingId, K)> {
        let Some(session) = self.sessions.get_mut(&client) else { return Vec::new() };
        let Some(heard) = session.heard else { return Vec::new() };
        let silence = heard.until(now);
        let from = session.lapse_after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = session.by_lease.range((from, Bound::Unbounded));
        let mut over = rest.take_while(|(lease, _)| *lease < SHORT && *lease <= silence);
        let taken: Vec<&(Span, HoldingId)> = over.by_ref().take(most).collect();
        if over.next().is_some() {
            session.lapse_after = taken.last().copied().cloned();
            session.lapse = Some(now);
        } else {
            let next = session.by_lease.range(longer_than(silence)..).next().map(|(lease, _)| *lease);
            session.lapse = next.filter(|lease| *lease < SHORT).map(|lease| heard.plus(lease));
        }
        self.lapses.extend(session.lapse.map(|at| (at, client)));
        taken.into_iter().filter_map(|(_, place)| Some((place.clone(), self.bound.get(place)?.kind))).collect()
    }

    /// Until when a short lease lasts because its connection was heard of.
    pub fn keeps(&self, place: &HoldingId) -> Option<(ClientId, Instant, Span)> {
        let Bond { client, lease, .. } = self.lives(place).filter(|bound| bound.lease < SHORT)?;
        let heard = self.sessions.get(client)?.heard?;
        Some((*client, heard.plus(*lease), *lease))
    }

    /// The clock was set back, or the server changed its role: whatever is bound is due at once.
    pub fn look_at_all(&mut self, now: Instant) {
        // Put aside as a whole: it can be a lot. What is still aside from the last time goes along.
        let due = core::mem::take(&mut self.by_due);
        let before = core::mem::replace(&mut self.due_anew, due);
        self.due_anew.extend(before);
        self.set_back_to = now;
        self.lapses.clear();
        for (client, session) in &mut self.sessions {
            session.heard = session.heard.map(|heard| heard.min(now));
            (session.lapse, session.lapse_after) = (Some(now), None);
            self.lapses.insert((now, *client));
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
