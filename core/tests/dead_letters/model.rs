//! A ledger as naive as the contract reads: a list of items that is searched from end to end, no indexes, no edits. Delays have no
//! jitter here; the law of jitter is a property of its own.

use self::alerts::Alarms;
pub use self::alerts::Alert;
use super::asking::Fault;
use super::key::{DAY, HOUR, MINUTE, MS, SECOND};
use resil_core::dead_letters::{Category, Class, Counting};

pub const LEASE: i64 = 30 * SECOND;
const INTERVAL: i64 = 600 * MS;
const REMEMBERED: i64 = 10 * MINUTE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Waiting,
    Taken,
    Parked,
    Dead,
    Resolved,
    Archived,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Nothing,
    Failed,
    Returned,
}

#[derive(Debug, Clone)]
pub struct Item {
    pub id: String,
    pub payload: Vec<u8>,
    pub aggregate: String,
    pub state: State,
    /// Waiting: due. Otherwise since when.
    pub at: i64,
    pub attempt: u32,
    pub lapses: u32,
    pub deaths: u32,
    fence: u64,
    word: Word,
    delay: i64,
    class: Class,
    group: Option<String>,
    reason: &'static str,
    age_from: Option<i64>,
    case: Option<usize>,
    pub cases: Vec<usize>,
    pub held: bool,
}

#[derive(Debug, Clone)]
struct Lease {
    token: String,
    since: i64,
    length: i64,
    ends: i64,
    ids: Vec<String>,
}

#[derive(Debug, Clone)]
struct Redrive {
    running: bool,
    started: i64,
    first: u32,
    left: u32,
    oneshot: bool,
    given: u32,
    resolved: u32,
    outcomes: Vec<bool>,
    cursor: (i64, usize),
    /// Covers what died before.
    until: i64,
    exhausted: bool,
    finished: bool,
}

#[derive(Debug, Clone)]
pub struct Case {
    groups: Vec<String>,
    category: Category,
    opened: i64,
    open: bool,
    discards: bool,
    was_discarded: bool,
    auto_until: Option<i64>,
    redrive: Option<Redrive>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Retry(u32, i64),
    Dead(u32, String, &'static str),
    Known(Option<State>, u32),
    Lost,
    Conflict,
    Taken(Vec<String>),
    Nothing(Option<i64>),
    Ended,
    Free,
    Behind(usize),
    Renewed(usize),
    Refused(&'static str),
    Started(usize),
    Case(usize),
    Unknown,
    Open(usize),
    Closed,
    Count(usize),
    Was(bool),
}

/// In the order of arrival.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub items: Vec<Item>,
    leases: Vec<Lease>,
    pub cases: Vec<Case>,
    dones: Vec<(String, u64, Vec<u8>, i64)>,
    pace: i64,
    pub up_since: i64,
    arrivals: usize,
    order: Vec<(String, usize)>,
    pub now: i64,
    pub alarms: Alarms,
}

fn backoff(class: Class, attempt: u32) -> i64 {
    let cap = if class == Class::External { 5 * MINUTE } else { 30 * SECOND };
    (500 * MS).saturating_mul(1 << (attempt.max(1) - 1).min(30)).clamp(100 * MS, cap)
}

fn most(class: Class) -> u32 {
    if class == Class::Business { 3 } else { 5 }
}

impl Model {
    fn find(&self, id: &str) -> Option<usize> {
        self.items.iter().position(|item| item.id == id)
    }

    fn arrival(&self, id: &str) -> usize {
        self.order.iter().rev().find(|(of, _)| of == id).map_or(0, |(_, arrival)| *arrival)
    }

    fn add(&mut self, id: &str, payload: &[u8], aggregate: &str, state: State) -> usize {
        self.arrivals += 1;
        self.order.push((id.into(), self.arrivals));
        self.items.push(Item {
            id: id.into(),
            payload: payload.into(),
            aggregate: aggregate.into(),
            state,
            at: self.now,
            attempt: 0,
            lapses: 0,
            deaths: 0,
            fence: 0,
            word: Word::Nothing,
            delay: 0,
            class: Class::Transient,
            group: None,
            reason: "",
            age_from: None,
            case: None,
            cases: Vec::new(),
            held: false,
        });
        self.items.len() - 1
    }

    fn done_before(&self, id: &str) -> Option<&(String, u64, Vec<u8>, i64)> {
        self.dones.iter().rev().find(|done| done.0 == id).filter(|done| done.3 + REMEMBERED > self.now)
    }

    pub fn fail(&mut self, fault: &Fault) -> Said {
        let payload = fault.payload.clone();
        let differs = |known: &[u8]| payload.as_ref().is_some_and(|payload| payload[..] != *known);
        let Some(at) = self.find(&fault.id) else {
            if fault.fence.is_some() {
                return Said::Lost;
            }
            if let Some(done) = self.done_before(&fault.id) {
                return if differs(&done.2) { Said::Conflict } else { Said::Known(None, 0) };
            }
            let payload = payload.unwrap_or_default();
            let at = self.add(&fault.id, &payload, &fault.aggregate, State::Waiting);
            self.items[at].attempt = fault.prior;
            return self.failed(at, fault);
        };
        let item = &self.items[at];
        match fault.fence {
            None if differs(&item.payload) => Said::Conflict,
            None => Said::Known(Some(item.state), item.attempt),
            Some(fence) if fence != item.fence => Said::Lost,
            Some(_) if differs(&item.payload) => Said::Conflict,
            Some(_) => match (item.state, item.word) {
                (State::Taken | State::Waiting, Word::Nothing) => self.failed(at, fault),
                (State::Waiting, Word::Failed) => Said::Retry(item.attempt, item.delay),
                (State::Dead, _) => self.dead(at),
                _ => Said::Lost,
            },
        }
    }

    fn dead(&self, at: usize) -> Said {
        let item = &self.items[at];
        Said::Dead(item.deaths, item.group.clone().unwrap_or_default(), item.reason)
    }

    fn failed(&mut self, at: usize, fault: &Fault) -> Said {
        let now = self.now;
        self.leave(at);
        let case = self.items[at].case;
        let oneshot = case.and_then(|case| self.cases[case].redrive.as_ref()).is_some_and(|redrive| redrive.oneshot);
        let item = &mut self.items[at];
        item.class = fault.class.unwrap_or(item.class);
        let first = *item.age_from.get_or_insert(now);
        item.group = Some(format!("order/{}", fault.error));
        item.word = if item.fence == 0 { Word::Nothing } else { Word::Failed };
        let most = if oneshot { 0 } else { most(item.class) };
        item.attempt += u32::from(fault.counting != Counting::NotCounted);
        let death = match fault.counting {
            Counting::Final => Some("final"),
            Counting::NotCounted => (now - first >= DAY).then_some("age"),
            Counting::Counted => (item.attempt > most).then_some("retries"),
        };
        if let Some(reason) = death {
            self.die(at, now, reason);
            return self.dead(at);
        }
        item.delay = backoff(item.class, item.attempt).max(fault.after.unwrap_or(0).min(HOUR));
        (item.state, item.at) = (State::Waiting, now + item.delay);
        Said::Retry(item.attempt, item.delay)
    }

    fn die(&mut self, at: usize, when: i64, reason: &'static str) {
        let item = &mut self.items[at];
        (item.state, item.at, item.reason) = (State::Dead, when, reason);
        item.deaths += 1;
        if item.group.is_none() {
            item.group = Some("order/no word from its takers".into());
            item.age_from = Some(when);
        }
        self.alarms.note_death(item.group.as_deref().unwrap_or_default(), &item.aggregate, when);
        self.outcome(at, true);
    }

    fn outcome(&mut self, at: usize, died: bool) {
        if let Some(case) = self.items[at].case.take()
            && let Some(redrive) = &mut self.cases[case].redrive
        {
            redrive.outcomes.push(died);
            redrive.resolved += u32::from(!died);
        }
    }

    /// An item is in no lease any more.
    fn leave(&mut self, at: usize) {
        let id = self.items[at].id.clone();
        self.leases.iter_mut().for_each(|lease| lease.ids.retain(|of| *of != id));
        self.leases.retain(|lease| !lease.ids.is_empty());
    }

    fn unpark(&mut self, aggregate: &str) {
        let of = |item: &&mut Item| !aggregate.is_empty() && item.aggregate == aggregate;
        let now = self.now;
        let busy = |item: &Item| matches!(item.state, State::Waiting | State::Taken | State::Dead);
        if self.items.iter().any(|item| item.aggregate == aggregate && busy(item)) {
            return;
        }
        if let Some(item) = self.items.iter_mut().filter(of).find(|item| item.state == State::Parked) {
            (item.state, item.at) = (State::Waiting, now);
        }
    }

    pub fn park(&mut self, id: &str, payload: &[u8], aggregate: &str) -> Said {
        if let Some(at) = self.find(id) {
            let item = &self.items[at];
            return if item.payload == payload { Said::Known(Some(item.state), item.attempt) } else { Said::Conflict };
        }
        if let Some(done) = self.done_before(id) {
            return if done.2 == payload { Said::Known(None, 0) } else { Said::Conflict };
        }
        let ended = |item: &Item| matches!(item.state, State::Resolved | State::Archived);
        if !self.items.iter().any(|item| item.aggregate == aggregate && !ended(item)) {
            return Said::Free;
        }
        self.add(id, payload, aggregate, State::Parked);
        let parked = |item: &&Item| item.aggregate == aggregate && item.state == State::Parked;
        Said::Behind(self.items.iter().filter(parked).count())
    }

    /// What redrives have next, by (due, arrival): the item, and the case that draws it.
    fn next_redriven(&self) -> Option<(i64, usize, usize, Option<usize>)> {
        let waiting = |item: &&Item| item.state == State::Waiting && item.case.is_some();
        let again = self.items.iter().filter(waiting).map(|item| (item.at, self.arrival(&item.id), &item.id, None));
        let drawn = (0..self.cases.len()).filter(|case| self.draws(*case)).filter_map(|case| {
            let id = self.next_of(case)?;
            let started = self.cases[case].redrive.as_ref()?.started;
            Some((started, self.arrival(id), id, Some(case)))
        });
        let next = again.chain(drawn).min_by_key(|next| (next.0, next.1))?;
        Some((next.0, next.1, self.find(next.2)?, next.3))
    }

    fn next_of(&self, case: usize) -> Option<&String> {
        let of = &self.cases[case];
        let redrive = of.redrive.as_ref()?;
        let covered = self.items.iter().filter(|item| {
            item.state == State::Dead
                && item.group.as_ref().is_some_and(|group| of.groups.contains(group))
                && item.at < redrive.started.min(redrive.until)
                && (item.at, self.arrival(&item.id)) > redrive.cursor
                && !item.held
                && !item.cases.contains(&case)
        });
        covered.min_by_key(|item| (item.at, self.arrival(&item.id))).map(|item| &item.id)
    }

    fn is_verifying(redrive: &Redrive) -> bool {
        redrive.given >= redrive.first && 2 * redrive.resolved < redrive.first
    }

    fn has_failed(redrive: &Redrive) -> bool {
        let active = redrive.given as usize - redrive.outcomes.len();
        let no_more = Self::is_verifying(redrive) || redrive.exhausted || redrive.left == 0;
        let first_ended = active == 0 && no_more && redrive.given <= redrive.first;
        let deaths = redrive.outcomes.iter().rev().take(20).filter(|died| **died).count();
        first_ended && 2 * redrive.resolved < redrive.given || deaths > 10
    }

    fn draws(&self, case: usize) -> bool {
        self.cases[case].redrive.as_ref().is_some_and(|redrive| {
            redrive.running
                && !redrive.exhausted
                && redrive.left > 0
                && !Self::is_verifying(redrive)
                && !Self::has_failed(redrive)
        })
    }

    fn turn(&self, due: i64) -> i64 {
        due.max(self.pace).max(self.up_since + if self.up_since == 0 { 0 } else { INTERVAL })
    }

    /// Takes, or gets the same again.
    pub fn take(&mut self, token: &str, count: usize) -> Said {
        let now = self.now;
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.token == token) {
            if lease.ends < now + LEASE {
                (lease.length, lease.ends) = (LEASE, now + LEASE);
            }
            return Said::Taken(lease.ids.clone());
        }
        let own = |item: &&Item| item.state == State::Waiting && item.case.is_none();
        let mut own: Vec<(i64, usize, usize, Option<usize>)> =
            self.items.iter().filter(own).map(|item| (item.at, self.arrival(&item.id), 0, None)).collect();
        for next in &mut own {
            next.2 = self.items.iter().position(|item| self.arrival(&item.id) == next.1).expect("there");
        }
        let redriven = self.next_redriven().map(|next| (self.turn(next.0), next));
        let next_due = own.iter().map(|next| next.0).chain(redriven.map(|next| next.0)).min();
        own.retain(|next| next.0 <= now);
        own.extend(redriven.filter(|(turn, _)| *turn <= now).map(|(_, next)| next));
        own.sort_unstable_by_key(|next| (next.0, next.1));
        let mut ids: Vec<String> = Vec::new();
        for (_, arrival, at, draws) in own {
            let lapsed = draws.is_none() && self.items[at].lapses > 0;
            if ids.len() == count || lapsed && !ids.is_empty() {
                break;
            }
            if draws.is_some() || self.items[at].case.is_some() {
                self.pace = now + INTERVAL;
            }
            let item = &mut self.items[at];
            if let Some(case) = draws {
                (item.attempt, item.lapses, item.case) = (0, 0, Some(case));
                item.cases.push(case);
                item.age_from = Some(now);
                let redrive = self.cases[case].redrive.as_mut().expect("it draws");
                (redrive.given, redrive.left) = (redrive.given + 1, redrive.left - 1);
                redrive.cursor = (item.at, arrival);
            }
            (item.state, item.word) = (State::Taken, Word::Nothing);
            if draws.is_some() {
                item.at = now;
            }
            ids.push(item.id.clone());
            if lapsed {
                break;
            }
        }
        if ids.is_empty() {
            return Said::Nothing(next_due.map(|due| due.max(now) - now));
        }
        self.leases.push(Lease { token: token.into(), since: now, length: LEASE, ends: now + LEASE, ids: ids.clone() });
        Said::Taken(ids)
    }

    /// The fence that an item was taken under.
    pub fn fenced(&mut self, id: &str, fence: u64) {
        let at = self.find(id).expect("it was taken");
        self.items[at].fence = fence;
    }

    pub fn done(&mut self, id: &str, fence: u64) -> Said {
        let Some(at) = self.find(id) else {
            return if self.done_before(id).is_some_and(|done| done.1 == fence) { Said::Ended } else { Said::Lost };
        };
        let item = &self.items[at];
        match (item.state, item.word) {
            _ if item.fence != fence => return Said::Lost,
            (_, Word::Failed | Word::Returned) => return Said::Lost,
            (State::Resolved, _) => return Said::Ended,
            (State::Taken | State::Waiting, _) => {}
            (State::Dead, _) if item.reason == "crash" => {}
            _ => return Said::Lost,
        }
        self.leave(at);
        self.outcome(at, false);
        let aggregate = self.items[at].aggregate.clone();
        if self.items[at].deaths == 0 && !self.items[at].held {
            let item = self.items.remove(at);
            self.dones.push((item.id, fence, item.payload, self.now));
        } else {
            (self.items[at].state, self.items[at].at) = (State::Resolved, self.now);
        }
        self.unpark(&aggregate);
        Said::Ended
    }

    pub fn give_back(&mut self, id: &str, fence: u64, delay: i64) -> Said {
        let Some(at) = self.find(id).filter(|at| self.items[*at].fence == fence) else { return Said::Lost };
        match (self.items[at].state, self.items[at].word) {
            (State::Taken, _) => {
                self.leave(at);
                let due = self.now + delay;
                let item = &mut self.items[at];
                (item.state, item.word, item.at) = (State::Waiting, Word::Returned, due);
                Said::Ended
            }
            (_, Word::Returned) => Said::Ended,
            _ => Said::Lost,
        }
    }

    pub fn renew(&mut self, token: &str, length: i64) -> Said {
        let now = self.now;
        let Some(lease) = self.leases.iter_mut().find(|lease| lease.token == token) else { return Said::Lost };
        (lease.length, lease.ends) = (length, now + length);
        Said::Renewed(lease.ids.len())
    }

    /// The connection of a lease closed, or its reply was not delivered.
    pub fn end(&mut self, token: &str, is_lapse: bool) -> Said {
        let Some(at) = self.leases.iter().position(|lease| lease.token == token) else { return Said::Was(false) };
        let lease = self.leases.remove(at);
        self.lapse(&lease, self.now, is_lapse);
        Said::Was(true)
    }

    fn lapse(&mut self, lease: &Lease, when: i64, is_lapse: bool) {
        let counted = lease.since >= self.up_since;
        for id in &lease.ids {
            let at = self.find(id).expect("taken");
            let item = &mut self.items[at];
            item.state = State::Waiting;
            if !is_lapse {
                continue;
            }
            item.lapses += u32::from(counted);
            if counted && item.lapses >= 3 {
                self.die(at, when, "crash");
            } else {
                item.at = when + backoff(item.class, item.attempt + item.lapses);
            }
        }
    }
}

#[path = "model_alerts.rs"]
mod alerts;
#[path = "model_governance.rs"]
mod governance;
