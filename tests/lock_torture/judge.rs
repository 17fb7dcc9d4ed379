//! Judges a journal, knowing nothing of the server but what it promises.
//!
//! A grant is counted from the moment its reply was read, when it has certainly been made, and only for as long as it
//! certainly lasted: until the lease that was reported has run out, counted from the moment of asking (plus what was waited
//! before it was granted); until RELEASE was sent; until a bound connection was cut or its process killed; until a
//! BREAK. Whatever the server says later about it (CHECK 1, RENEW granted, RELEASED) proves that it lasted that long.
//! So of two grants that overlap here, one was wrong.

use std::collections::{BTreeMap, HashMap};

use crate::client::PATIENCE_MS;
use crate::journal::{Asked, Claim, Entry, KILLER, Line, Verb, Who};

/// What two clocks of one machine may differ by over a lease: the wall clock is slewed, the monotonic one as well.
const DRIFT_US: i64 = 2_000;

/// The verdicts there are. An error is none: nothing here is malformed.
const KNOWN: [&str; 8] = ["GRANTED", "TAKEN", "TIMEOUT", "FULL", "RELEASED", "LOST", "0", "1"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    TwoHolders,
    ReaderBesideWriter,
    TooManyPermits,
    FenceNotAbove,
    GrantLost,
    Stuck,
    Strange,
}

#[derive(Debug)]
pub struct Fault {
    pub wrong: Wrong,
    #[allow(dead_code, reason = "for the reader of the panic")]
    text: String,
}

#[derive(Debug, Default)]
pub struct Judgement {
    pub faults: Vec<Fault>,
    pub calls: usize,
    pub verdicts: BTreeMap<String, usize>,
    pub grants: usize,
    /// Grants that came after waiting, and grants asked for again.
    pub waited: usize,
    pub asked_again: usize,
    pub unanswered: usize,
    pub cuts: usize,
    pub killed: usize,
    pub paused: usize,
    pub server_killed: usize,
    /// Grants reported before a server was killed, and confirmed after it came back.
    pub survived: usize,
    /// The most of them at once, by key.
    pub peaks: BTreeMap<String, usize>,
    pub slowest_ms: i64,
}

#[derive(Debug)]
struct Grant {
    who: Who,
    key: String,
    owner: String,
    claim: Claim,
    fence: u64,
    /// It was not granted before this, ...
    least: i64,
    /// ... and was by then.
    got: i64,
    /// It lasts at least until here.
    end: i64,
    /// The last moment at which it certainly still was.
    confirmed: i64,
    bound_to: Option<u32>,
    /// Its connection is gone: the server may end it any time, whatever was reported before it noticed.
    cut: bool,
    over: bool,
}

struct Broken {
    key: String,
    sent: i64,
    got: i64,
}

#[derive(Default)]
struct Case {
    judgement: Judgement,
    grants: Vec<Grant>,
    breaks: Vec<Broken>,
    killed: HashMap<u32, i64>,
    pauses: Vec<(u32, i64, i64)>,
    outages: Vec<(i64, i64)>,
}

pub fn judge(journals: &[(Who, Vec<Entry>)]) -> Judgement {
    let mut case = Case::default();
    journals.iter().filter(|(who, _)| *who == KILLER).for_each(|(_, entries)| case.read_killer(entries));
    journals.iter().for_each(|(who, entries)| case.read(*who, entries));
    case.apply_breaks();
    let mut by_key: BTreeMap<&str, Vec<&Grant>> = BTreeMap::new();
    for grant in &case.grants {
        by_key.entry(&grant.key).or_default().push(grant);
    }
    let mut judgement = case.judgement;
    for (key, mut grants) in by_key {
        grants.sort_by_key(|grant| grant.got);
        overlaps(&grants, &mut judgement.faults);
        fences(&grants, &mut judgement.faults);
        let most = peak(&grants, &mut judgement.faults);
        judgement.peaks.insert(key.to_owned(), most);
    }
    judgement.grants = case.grants.len();
    let outlived =
        |grant: &Grant| case.outages.iter().any(|(killed, back)| grant.got < *killed && grant.confirmed > *back);
    judgement.survived = case.grants.iter().filter(|grant| outlived(grant)).count();
    judgement
}

impl Case {
    fn fault(&mut self, wrong: Wrong, text: String) {
        self.judgement.faults.push(Fault { wrong, text });
    }

    fn read_killer(&mut self, entries: &[Entry]) {
        let mut asked: Option<(i64, &str)> = None;
        for Entry { at, line } in entries {
            match line {
                Line::Killed { process } => {
                    self.judgement.killed += 1;
                    self.killed.insert(*process, *at);
                }
                Line::Paused { process } => {
                    self.judgement.paused += 1;
                    self.pauses.push((*process, *at, i64::MAX));
                }
                Line::Resumed { process } => {
                    let paused = self.pauses.iter_mut().rev().find(|(paused, ..)| paused == process);
                    paused.into_iter().for_each(|(.., until)| *until = *at);
                }
                Line::ServerKilled => {
                    self.judgement.server_killed += 1;
                    self.outages.push((*at, i64::MAX));
                }
                Line::ServerBack => self.outages.iter_mut().last().into_iter().for_each(|(_, back)| *back = *at),
                Line::Asked(Asked { verb: Verb::Break, key, .. }) => asked = Some((*at, key)),
                Line::Answered { .. } | Line::Unanswered { .. } => {
                    let broken = asked.take().map(|(sent, key)| Broken { key: key.to_owned(), sent, got: *at });
                    self.breaks.extend(broken);
                }
                _ => {}
            }
        }
    }

    fn read(&mut self, who: Who, entries: &[Entry]) {
        let mut connection = 0;
        let mut connected = false;
        let mut asked: Option<(i64, &Asked)> = None;
        // Owners whose earlier call was never answered: it may have been granted since then.
        let mut unresolved: HashMap<&str, i64> = HashMap::new();
        let mut held: HashMap<&str, usize> = HashMap::new();
        for Entry { at, line } in entries {
            match line {
                Line::Connected => (connection, connected) = (connection + 1, true),
                Line::Asked(call) => {
                    self.judgement.calls += 1;
                    asked = Some((*at, call));
                    if call.verb == Verb::Acquire {
                        unresolved.entry(&call.owner).or_insert(*at);
                    }
                }
                Line::Answered { verdict, fence, lease_ms, waited_ms, active } => {
                    let Some((sent, call)) = asked.take() else {
                        self.fault(Wrong::Strange, format!("{who:?} at {at}: a reply to nothing"));
                        continue;
                    };
                    *self.judgement.verdicts.entry(verdict.clone()).or_default() += 1;
                    self.see_patience(who, sent, *at, call);
                    // A server that is still reading its file refuses everybody, and promises nothing.
                    if verdict.starts_with("LOADING") {
                        continue;
                    }
                    if !KNOWN.contains(&verdict.as_str()) && call.verb != Verb::Break {
                        self.fault(Wrong::Strange, format!("{who:?} at {at}: {verdict:?} to {call:?}"));
                        continue;
                    }
                    let reported = Heard { sent, at: *at, verdict, fence: *fence, lease_ms: *lease_ms };
                    if let Claim::Permit(max) = call.claim
                        && *active > max
                    {
                        self.fault(
                            Wrong::TooManyPermits,
                            format!("{who:?} at {at}: {active} of {max} in {}", call.key),
                        );
                    }
                    if let Some(index) = held.get(call.owner.as_str()).copied().filter(|_| call.verb != Verb::Break)
                        && self.hears_of(index, call, &reported)
                    {
                        continue;
                    }
                    if call.verb == Verb::Acquire && verdict == "GRANTED" {
                        let first = unresolved.remove(call.owner.as_str()).unwrap_or(sent);
                        let waited_us = waited_ms * 1_000;
                        self.judgement.waited += usize::from(*waited_ms > 0);
                        held.insert(&call.owner, self.grants.len());
                        self.grants.push(Grant {
                            who,
                            key: call.key.clone(),
                            owner: call.owner.clone(),
                            claim: call.claim,
                            fence: *fence,
                            least: if first < sent { first } else { sent + waited_us },
                            got: *at,
                            end: sent + waited_us + lease_ms * 1_000 - DRIFT_US,
                            confirmed: i64::MIN,
                            bound_to: call.bound.then_some(connection),
                            cut: false,
                            over: false,
                        });
                    }
                }
                Line::Unanswered { closed } => {
                    self.judgement.unanswered += 1;
                    let Some((sent, call)) = asked.take() else { continue };
                    if !closed && !self.was_paused(who, sent, *at) {
                        let text = format!("{who:?} at {at}: nothing came since {sent} for {call:?}");
                        self.fault(Wrong::Stuck, text);
                    }
                    self.see_patience(who, sent, *at, call);
                    self.never_answered(&held, sent, call);
                    if !closed {
                        self.ends_with(who, connection, *at);
                    }
                    connected = false;
                }
                Line::Cut => {
                    self.judgement.cuts += 1;
                    if let Some((sent, call)) = asked.take() {
                        self.never_answered(&held, sent, call);
                    }
                    self.ends_with(who, connection, *at);
                    connected = false;
                }
                _ => {}
            }
        }
        let killed = self.killed.get(&who.process).copied();
        if let Some((sent, call)) = asked {
            self.never_answered(&held, sent, call);
            if killed.is_none() && who != KILLER {
                self.fault(Wrong::Stuck, format!("{who:?}: nothing came since {sent} for {call:?}"));
            }
        }
        if let Some(killed) = killed.filter(|_| connected) {
            self.ends_with(who, connection, killed);
        }
    }

    /// What hangs on a connection ends with it.
    fn ends_with(&mut self, who: Who, connection: u32, at: i64) {
        for grant in self.grants.iter_mut().rev().take_while(|grant| grant.who == who) {
            if grant.bound_to == Some(connection) {
                (grant.end, grant.cut) = (grant.end.min(at), true);
            }
        }
    }

    fn never_answered(&mut self, held: &HashMap<&str, usize>, sent: i64, call: &Asked) {
        let Some(grant) = held.get(call.owner.as_str()).map(|index| &mut self.grants[*index]) else { return };
        match call.verb {
            Verb::Release => (grant.end, grant.over) = (grant.end.min(sent), true),
            // It may have been heard, and be shorter.
            Verb::Renew => grant.end = grant.end.min(sent + call.lease_ms * 1_000 - DRIFT_US),
            _ => {}
        }
    }

    /// The server says something about a grant. False if that is another grant.
    fn hears_of(&mut self, index: usize, call: &Asked, reported: &Heard<'_>) -> bool {
        let grant = &mut self.grants[index];
        let Heard { sent, at, verdict, fence, lease_ms } = *reported;
        let is_same = matches!(grant.claim, Claim::Permit(_)) || grant.fence == fence;
        let leased_until = if grant.cut { sent } else { sent + lease_ms * 1_000 - DRIFT_US };
        match (call.verb, verdict) {
            (Verb::Check, "1") => grant.confirm(sent),
            (Verb::Release, "RELEASED") => {
                // If an earlier RELEASE was not answered, it may have been that one.
                if !grant.over {
                    grant.confirm(sent);
                }
                grant.end = grant.end.min(sent);
                grant.over = true;
            }
            (Verb::Renew, "GRANTED") if is_same => {
                grant.confirm(sent);
                grant.end = leased_until;
            }
            (Verb::Acquire, "GRANTED") if is_same => {
                grant.confirm(sent);
                grant.end = grant.end.max(leased_until);
                self.judgement.asked_again += 1;
            }
            _ => {
                let (end, least) = (grant.end, grant.least);
                let broken = self
                    .breaks
                    .iter()
                    .any(|broken| broken.key == grant.key && broken.sent <= at && broken.got >= least);
                if at < end && !broken && !grant.over {
                    let text = format!("{call:?} sent at {sent} got {verdict} at {at}, but {grant:?}");
                    self.fault(Wrong::GrantLost, text);
                }
                let grant = &mut self.grants[index];
                grant.end = grant.end.min(at);
                grant.over = true;
                return !(call.verb == Verb::Acquire && verdict == "GRANTED");
            }
        }
        true
    }

    fn see_patience(&mut self, who: Who, sent: i64, at: i64, call: &Asked) {
        let took_ms = (at - sent) / 1_000;
        if self.was_paused(who, sent, at) {
            return;
        }
        self.judgement.slowest_ms = self.judgement.slowest_ms.max(took_ms - call.wait_ms);
        if took_ms > call.wait_ms + PATIENCE_MS + 100 {
            self.fault(Wrong::Stuck, format!("{who:?} waited {took_ms} ms for {call:?}, sent at {sent}"));
        }
    }

    fn was_paused(&self, who: Who, from: i64, to: i64) -> bool {
        self.pauses
            .iter()
            .any(|(process, paused, resumed)| *process == who.process && *paused <= to && *resumed >= from)
    }

    fn apply_breaks(&mut self) {
        for grant in &mut self.grants {
            for broken in self.breaks.iter().filter(|broken| broken.key == grant.key) {
                if broken.got >= grant.least && grant.confirmed <= broken.got {
                    grant.end = grant.end.min(broken.sent.max(grant.confirmed));
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Heard<'a> {
    sent: i64,
    at: i64,
    verdict: &'a str,
    fence: u64,
    lease_ms: i64,
}

impl Grant {
    /// It was still there when this was asked: a RELEASE before it that was not answered was not heard.
    fn confirm(&mut self, at: i64) {
        self.over = false;
        self.confirmed = self.confirmed.max(at);
        self.end = self.end.max(at);
    }
}

/// Nobody beside an exclusive holder. `grants` are of one key, in the order in which they were notified.
fn overlaps(grants: &[&Grant], faults: &mut Vec<Fault>) {
    for (index, first) in grants.iter().enumerate() {
        let later = grants[index + 1..].iter().take_while(|later| later.got < first.end);
        for second in later {
            let wrong = match (first.claim, second.claim) {
                (Claim::Exclusive, Claim::Exclusive) => Wrong::TwoHolders,
                (Claim::Exclusive, Claim::Shared) | (Claim::Shared, Claim::Exclusive) => Wrong::ReaderBesideWriter,
                _ => continue,
            };
            // It lasted beyond its telling, or was made as well as reported while the first held.
            if second.end > second.got || second.least > first.got {
                faults.push(Fault { wrong, text: format!("{first:?} and {second:?}") });
            }
        }
    }
}

/// Whatever was certainly granted later has a higher fence, and no two have the same.
fn fences(grants: &[&Grant], faults: &mut Vec<Fault>) {
    if grants.iter().any(|grant| matches!(grant.claim, Claim::Permit(_))) {
        return;
    }
    let mut fences: HashMap<u64, &str> = HashMap::new();
    for grant in grants {
        if let Some(other) = fences.insert(grant.fence, &grant.owner) {
            let text = format!("{other} and {} have the same fence {}", grant.owner, grant.fence);
            faults.push(Fault { wrong: Wrong::FenceNotAbove, text });
        }
    }
    let mut by_least = grants.to_vec();
    by_least.sort_by_key(|grant| grant.least);
    let (mut earlier, mut highest) = (grants.iter().peekable(), None::<&Grant>);
    for grant in by_least {
        while let Some(reported) = earlier.next_if(|reported| reported.got < grant.least) {
            if highest.is_none_or(|highest| highest.fence < reported.fence) {
                highest = Some(reported);
            }
        }
        if let Some(highest) = highest.filter(|highest| highest.fence >= grant.fence && highest.owner != grant.owner) {
            faults.push(Fault { wrong: Wrong::FenceNotAbove, text: format!("{grant:?} after {highest:?}") });
        }
    }
}

/// How many held at once, and never more than there are permits.
fn peak(grants: &[&Grant], faults: &mut Vec<Fault>) -> usize {
    let lasting = grants.iter().filter(|grant| grant.end > grant.got);
    let mut moments: Vec<(i64, i64, &Grant)> =
        lasting.flat_map(|grant| [(grant.got, 1, *grant), (grant.end, -1, *grant)]).collect();
    // Who leaves, leaves first.
    moments.sort_by_key(|(at, change, _)| (*at, *change));
    let (mut active, mut most) = (0, 0);
    for (at, change, grant) in moments {
        active += change;
        most = most.max(active);
        if let Claim::Permit(max) = grant.claim
            && change > 0
            && active > max
        {
            let text = format!("{active} of {max} in {} at {at}, with {grant:?}", grant.key);
            faults.push(Fault { wrong: Wrong::TooManyPermits, text });
        }
    }
    most as usize
}

impl Judgement {
    #[track_caller]
    pub fn must_be_clean(&self) {
        let shown: Vec<&Fault> = self.faults.iter().take(5).collect();
        assert!(self.faults.is_empty(), "{} faults, the first: {shown:#?}", self.faults.len());
    }
}
