//! The records of which a stored ledger is made: how each is written, read, and taken over.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::alert::{Alert, AuditRow, Deaths};
use super::case::{Case, Discard, RedriveState};
use super::config::Config;
use super::done::Done;
use super::entry::{Entry, Past};
use super::fields::{Field, In, Out, Read, count, counter, list, read_list, tagged, tagged_alone};
use super::group::Group;
use super::ledger::{Aggregate, Ledger, Numbers, Pace, TakenBatch};
use super::message::Message;
use super::request::{Category, Place};
use super::view::Attempt;
use crate::codec::{Buffer, Malformed, Writer};
use crate::limits::{
    ALERTS_MAX, ARRIVAL_MAX, ATTEMPTS_KEPT, AUDIT_MAX, CASE_MAX, CASES_MAX, COUNTER_MAX, DONES_MAX, ERROR_MAX,
    LEDGER_TEXT_MAX, SPIKE_BUCKETS, TAKE_MAX, TEXT_MAX, TYPES_MAX,
};
use crate::time::{Instant, Span};

/// A part of a stored ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerRecord {
    Head(Box<Head>),
    Group {
        number: u32,
        group: Box<Group>,
    },
    Case {
        number: u32,
        case: Box<Case>,
    },
    Kind {
        name: Box<[u8]>,
        deaths: Deaths,
    },
    Alert(Alert),
    Audit(AuditRow),
    Done {
        id: Box<[u8]>,
        done: Done,
    },
    /// One that is held, or whose alert is out.
    Aggregate {
        name: Box<[u8]>,
        held: bool,
        is_alerted: bool,
    },
    /// One that is taken is written as waiting; its batch comes later.
    Entry {
        arrival: u64,
        entry: Entry,
        /// Its error is that of its group, and was not written.
        shares_error: bool,
    },
    Batch {
        fence: u64,
        batch: TakenBatch,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    numbers: Numbers,
    last_group: u32,
    pace: Option<Pace>,
    is_nearly_full: bool,
    config: Config,
}

const HEAD: u8 = 0;
const GROUP: u8 = 1;
const CASE: u8 = 2;
const KIND: u8 = 3;
const ALERT: u8 = 4;
const AUDIT: u8 = 5;
const DONE: u8 = 6;
const AGGREGATE: u8 = 7;
const ENTRY: u8 = 8;
const BATCH: u8 = 9;

/// Calls `see` for every record, with what writes it.
pub(super) fn for_each_record(ledger: &Ledger, mut see: impl FnMut(&dyn Fn(&mut Vec<u8>))) {
    see(&|out| write_head(ledger, &mut Writer::new(out)));
    for (number, group) in &ledger.groups.list {
        see(&|out| write_group(*number, group, &mut Writer::new(out)));
    }
    for (number, case) in &ledger.cases {
        see(&|out| tagged(CASE, number, case, &mut Writer::new(out)));
    }
    for (name, deaths) in &ledger.kinds {
        see(&|out| write_kind(name, deaths, &mut Writer::new(out)));
    }
    for alert in &ledger.alerts {
        see(&|out| tagged_alone(ALERT, alert, &mut Writer::new(out)));
    }
    for row in &ledger.audit {
        see(&|out| tagged_alone(AUDIT, row, &mut Writer::new(out)));
    }
    for (id, done) in ledger.dones.iter() {
        see(&|out| write_done(&id, done, &mut Writer::new(out)));
    }
    for (name, of) in ledger.aggregates.iter().filter(|(_, of)| of.held || of.is_alerted) {
        see(&|out| tagged(AGGREGATE, name, &(of.held, of.is_alerted), &mut Writer::new(out)));
    }
    for (arrival, entry) in ledger.entries_from(0) {
        let shared = ledger.groups.get(entry.group).is_some_and(|group| group.error == entry.error);
        see(&|out| write_entry(arrival, entry, shared, &mut Writer::new(out)));
    }
    for (fence, batch) in &ledger.batches {
        see(&|out| tagged(BATCH, fence, batch, &mut Writer::new(out)));
    }
}

fn write_head<B: Buffer>(ledger: &Ledger, out: Out<'_, '_, B>) {
    let Numbers { arrival, fence, case, alert, audit } = ledger.numbers;
    out.byte(HEAD);
    for number in [arrival, fence, case.into(), alert, audit, ledger.groups.last.into()] {
        out.number(number);
    }
    ledger.pace.write(out);
    ledger.is_nearly_full.write(out);
    ledger.config.write(out);
}

fn write_group<B: Buffer>(number: u32, group: &Group, out: Out<'_, '_, B>) {
    out.byte(GROUP);
    number.write(out);
    out.text(&group.name);
    out.text(&group.kind);
    group.deaths.write(out);
    (group.first_at, group.last_at).write(out);
    group.last_death.write(out);
    out.text(&group.error);
}

fn write_kind<B: Buffer>(name: &[u8], deaths: &Deaths, out: Out<'_, '_, B>) {
    out.byte(KIND);
    out.text(name);
    deaths.since_seen.write(out);
    deaths.many_is_out.write(out);
    deaths.spiked.map(i64::cast_unsigned).write(out);
    count(deaths.buckets.len(), out);
    for (bucket, deaths) in &deaths.buckets {
        (bucket.cast_unsigned(), *deaths).write(out);
    }
}

fn write_done<B: Buffer>(id: &[u8], done: &Done, out: Out<'_, '_, B>) {
    out.byte(DONE);
    out.text(id);
    (done.fence, done.at).write(out);
    write_digest(done.digest, out);
}

fn write_digest<B: Buffer>(digest: Option<u128>, out: Out<'_, '_, B>) {
    digest.map(|digest| (digest as u64, (digest >> 64) as u64)).write(out);
}

fn read_digest(bytes: In<'_, '_>) -> Read<Option<u128>> {
    let halves: Option<(u64, u64)> = Field::read(bytes)?;
    Ok(halves.map(|(low, high)| u128::from(low) | u128::from(high) << 64))
}

fn write_entry<B: Buffer>(arrival: u64, entry: &Entry, shares_error: bool, out: Out<'_, '_, B>) {
    out.byte(ENTRY);
    arrival.write(out);
    entry.message.write(out);
    let place = if entry.place == Place::Taken { Place::Waiting } else { entry.place };
    place.write(out);
    entry.class.write(out);
    entry.word.write(out);
    entry.reason.write(out);
    for flag in [entry.held, entry.error_is_cut, shares_error] {
        flag.write(out);
    }
    if !shares_error {
        out.text(&entry.error);
    }
    let (attempt, deaths, lapses) = (entry.attempt.into(), entry.deaths.into(), entry.lapses.into());
    for number in [attempt, deaths, lapses, entry.delay_ms, entry.group, entry.case] {
        number.write(out);
    }
    entry.fence.write(out);
    for at in [entry.at, entry.since, entry.last_at] {
        at.write(out);
    }
    entry.past.is_some().write(out);
    if let Some(past) = &entry.past {
        past.first_error.as_ref().map(|error| Box::<[u8]>::from(&**error)).write(out);
        count(past.attempts.len(), out);
        for attempt in &past.attempts {
            (attempt.at, attempt.delay.ceil_ms().cast_unsigned()).write(out);
            attempt.class.write(out);
        }
        list(&past.cases, out);
        past.first_at.write(out);
        past.died_at.write(out);
        past.redriven_at.write(out);
    }
}

pub(super) fn read_record(bytes: In<'_, '_>) -> Read<LedgerRecord> {
    Ok(match bytes.bytes(1)?[0] {
        HEAD => {
            let (arrival, fence) = (counter(bytes)?, bytes.last_fence()?);
            let case = small(bytes)?;
            let (alert, audit) = (counter(bytes)?, counter(bytes)?);
            let numbers = Numbers { arrival, fence, case, alert, audit };
            let last_group = small(bytes)?;
            let (pace, is_nearly_full) = Field::read(bytes)?;
            LedgerRecord::Head(Box::new(Head {
                numbers,
                last_group,
                pace,
                is_nearly_full,
                config: Config::read(bytes)?,
            }))
        }
        GROUP => LedgerRecord::Group { number: bytes.u32()?, group: Box::new(read_group(bytes)?) },
        CASE => LedgerRecord::Case { number: bytes.u32()?, case: Box::new(Case::read(bytes)?) },
        KIND => {
            let name = Field::read(bytes)?;
            let (since_seen, many_is_out) = (counter(bytes)?, bytes.flag()?);
            let spiked = Option::<u64>::read(bytes)?.map(u64::cast_signed);
            let buckets: Vec<(u64, u64)> = read_list(bytes, SPIKE_BUCKETS.cast_unsigned() as usize + 1)?;
            let is_sound = |(bucket, deaths): &(u64, u64)| *bucket <= COUNTER_MAX && *deaths <= COUNTER_MAX;
            if !buckets.is_sorted_by(|one, other| one.0 < other.0) || !buckets.iter().all(is_sound) {
                return Err(Malformed);
            }
            let buckets = buckets.into_iter().map(|(bucket, deaths)| (bucket.cast_signed(), deaths)).collect();
            LedgerRecord::Kind { name, deaths: Deaths { since_seen, many_is_out, spiked, buckets } }
        }
        ALERT => LedgerRecord::Alert(Field::read(bytes)?),
        AUDIT => LedgerRecord::Audit(Field::read(bytes)?),
        DONE => {
            let id = bytes.owner()?.into();
            let (fence, at) = Field::read(bytes)?;
            LedgerRecord::Done { id, done: Done { fence, digest: read_digest(bytes)?, at } }
        }
        AGGREGATE => {
            let (name, (held, is_alerted)) = Field::read(bytes)?;
            LedgerRecord::Aggregate { name, held, is_alerted }
        }
        ENTRY => {
            let arrival = Field::read(bytes)?;
            let (entry, shares_error) = read_entry(bytes)?;
            LedgerRecord::Entry { arrival, entry, shares_error }
        }
        BATCH => LedgerRecord::Batch { fence: bytes.fence()?, batch: Field::read(bytes)? },
        _ => return Err(Malformed),
    })
}

fn read_group(bytes: In<'_, '_>) -> Read<Group> {
    let (name, kind) = (bytes.text(TEXT_MAX)?.into(), bytes.text(LEDGER_TEXT_MAX)?.into());
    let deaths = counter(bytes)?;
    let (first_at, last_at) = Field::read(bytes)?;
    let last_death = Field::read(bytes)?;
    let error = bytes.text(ERROR_MAX)?.into();
    let (dead, entries, cases) = (BTreeSet::new(), 0, Vec::new());
    Ok(Group { name, kind, dead, entries, deaths, first_at, last_at, last_death, error, cases })
}

/// The number of a case or a group.
fn small(bytes: In<'_, '_>) -> Read<u32> {
    bytes.u32().ok().filter(|number| *number <= CASE_MAX).ok_or(Malformed)
}

fn read_entry(bytes: In<'_, '_>) -> Read<(Entry, bool)> {
    let mut entry = Entry::new(Message::read(bytes)?, Instant::EPOCH);
    entry.place = Field::read(bytes)?;
    entry.class = Field::read(bytes)?;
    entry.word = Field::read(bytes)?;
    entry.reason = Field::read(bytes)?;
    (entry.held, entry.error_is_cut) = Field::read(bytes)?;
    let shares_error = bytes.flag()?;
    if !shares_error {
        entry.error = bytes.text(ERROR_MAX)?.into();
    }
    let mut small = || bytes.u32().and_then(|number| u16::try_from(number).map_err(|_| Malformed));
    (entry.attempt, entry.deaths, entry.lapses) = (small()?, small()?, small()?);
    (entry.delay_ms, entry.group) = Field::read(bytes)?;
    entry.case = bytes.u32()?;
    entry.fence = bytes.last_fence()?;
    (entry.at, (entry.since, entry.last_at)) = Field::read(bytes)?;
    if bytes.flag()? {
        let first_error: Option<Box<[u8]>> = Field::read(bytes)?;
        let attempts = bytes.count(ATTEMPTS_KEPT)?;
        let attempts = (0..attempts).map(|_| {
            let (at, delay_ms): (Instant, u32) = Field::read(bytes)?;
            Ok(Attempt { at, class: Field::read(bytes)?, delay: Span::from_ms(delay_ms.into()) })
        });
        let attempts = attempts.collect::<Read<_>>()?;
        let cases: Vec<u32> = read_list(bytes, CASES_MAX)?;
        if cases.iter().enumerate().any(|(at, case)| cases[..at].contains(case)) {
            return Err(Malformed);
        }
        let (first_at, (died_at, redriven_at)) = Field::read(bytes)?;
        let first_error = first_error.map(Into::into);
        entry.past = Some(Box::new(Past { first_error, attempts, cases, first_at, died_at, redriven_at }));
    }
    Ok((entry, shares_error))
}

impl Ledger {
    /// The first record of a stored ledger.
    pub(super) fn load_head(&mut self, record: LedgerRecord) -> Read<()> {
        let LedgerRecord::Head(head) = record else { return Err(Malformed) };
        let Head { numbers, last_group, pace, is_nearly_full, config } = *head;
        (self.numbers, self.groups.last, self.pace) = (numbers, last_group, pace);
        (self.is_nearly_full, self.config) = (is_nearly_full, config);
        Ok(())
    }

    /// Takes many over. As with edits, one that does not fit changes nothing.
    pub(super) fn load_all(&mut self, records: Vec<LedgerRecord>) {
        let ids = records.iter().filter_map(|record| match record {
            LedgerRecord::Entry { entry, .. } => Some(entry.message.id()),
            _ => None,
        });
        self.by_id.look_ahead(ids.map(|id| self.by_id.hash(id)));
        self.notes.loaded.get_or_insert_default();
        for record in records {
            self.load(record).ok();
        }
    }

    /// Takes a part of a stored ledger over. If it does not fit what is there, that is an error and nothing is changed.
    pub(super) fn load(&mut self, record: LedgerRecord) -> Read<()> {
        let fits = match &record {
            LedgerRecord::Head(_) => false,
            LedgerRecord::Group { number, group } => {
                let is_new = *number != 0 && *number <= self.groups.last && self.groups.get(*number).is_none();
                is_new && self.groups.by_name(&group.name).is_none()
            }
            LedgerRecord::Case { number, case } => self.case_fits(*number, case),
            LedgerRecord::Kind { name, .. } => !self.kinds.contains_key(name) && self.kinds.len() <= TYPES_MAX,
            LedgerRecord::Alert(_) => self.alerts.len() < ALERTS_MAX,
            LedgerRecord::Audit(_) => self.audit.len() < AUDIT_MAX,
            LedgerRecord::Done { .. } => self.dones.len() < DONES_MAX,
            LedgerRecord::Aggregate { name, held, is_alerted } => {
                !name.is_empty() && !self.aggregates.contains_key(name) && (*held || *is_alerted)
            }
            LedgerRecord::Entry { arrival, entry, shares_error } => self.entry_fits(*arrival, entry, *shares_error),
            LedgerRecord::Batch { fence, batch } => self.batch_fits(*fence, batch),
        };
        if !fits {
            return Err(Malformed);
        }
        match record {
            LedgerRecord::Head(_) => {}
            LedgerRecord::Group { number, group } => self.groups.insert(number, *group),
            LedgerRecord::Case { number, case } => self.load_case(number, *case),
            LedgerRecord::Kind { name, deaths } => drop(self.kinds.insert(name, deaths)),
            LedgerRecord::Alert(alert) => self.alerts.push_back(alert),
            LedgerRecord::Audit(row) => self.audit.push_back(row),
            LedgerRecord::Done { id, done } => self.dones.remember(&id, done),
            LedgerRecord::Aggregate { name, held, is_alerted } => {
                self.notes.held_aggregates += usize::from(held);
                self.aggregates.insert(name, Aggregate { held, is_alerted, ..Aggregate::default() });
            }
            LedgerRecord::Entry { arrival, entry, shares_error } => self.load_entry(arrival, entry, shares_error),
            LedgerRecord::Batch { fence, batch } => self.load_batch(fence, batch),
        }
        Ok(())
    }

    fn case_fits(&self, number: u32, case: &Case) -> bool {
        let is_new = number != 0 && number <= self.numbers.case && !self.cases.contains_key(&number);
        let are_sorted = case.groups.is_sorted_by(|one, other| one < other);
        let covers = covers(case);
        let phase = case.redrive.as_ref().map(|redrive| redrive.phase);
        let is_sound = if case.is_open() {
            case.discard == Discard::No && (case.category != Category::Poison || phase.is_none())
        } else {
            phase != Some(RedriveState::Running) && (case.discard == Discard::No || case.category == Category::Poison)
        };
        is_new && are_sorted && is_sound && case.groups.iter().all(|group| !covers || self.groups.get(*group).is_some())
    }

    fn load_case(&mut self, number: u32, case: Case) {
        for group in case.groups.iter().filter(|_| covers(&case)) {
            if let Some(group) = self.groups.get_mut(*group) {
                group.cases.push(number);
            }
        }
        self.cases.insert(number, case);
        self.note_case(number);
    }

    fn entry_fits(&self, arrival: u64, entry: &Entry, shares_error: bool) -> bool {
        let is_number = (1..=self.numbers.arrival.min(ARRIVAL_MAX)).contains(&arrival);
        let is_new = is_number && self.entry(arrival).is_none();
        let has_died = entry.deaths > 0;
        let is_placed = match entry.place {
            Place::Waiting => entry.case == 0 || has_died,
            Place::Parked => !entry.message.aggregate().is_empty() && entry.group == 0 && entry.case == 0,
            Place::Dead => has_died && entry.group != 0 && entry.case == 0 && entry.reason.is_some(),
            // What never died is resolved if it was held when it was done.
            Place::Resolved => entry.case == 0,
            Place::Archived => has_died && entry.case == 0,
            Place::Taken => false,
        };
        let has_group = entry.group == 0 && !shares_error || self.groups.get(entry.group).is_some();
        let goes_on =
            |case: &Case| case.redrive.as_ref().is_some_and(|redrive| redrive.phase != RedriveState::Finished);
        let is_redriven = entry.cases().contains(&entry.case) && self.cases.get(&entry.case).is_some_and(goes_on);
        let has_case = entry.case == 0 || is_redriven;
        let is_unknown = self.find(entry.message.id()).is_none();
        is_new && is_placed && has_group && has_case && is_unknown && entry.fence <= self.numbers.fence
    }

    fn load_entry(&mut self, arrival: u64, mut entry: Entry, shares_error: bool) {
        if let Some(group) = self.groups.get_mut(entry.group) {
            group.entries += 1;
            if shares_error {
                entry.error = group.error.clone();
            }
        }
        if let Some(redrive) = self.redrive_mut(entry.case) {
            redrive.active += 1;
        }
        if entry.is_live() {
            for case in entry.cases() {
                if let Some(case) = self.cases.get_mut(case) {
                    case.unresolved += 1;
                }
            }
        }
        self.by_id.insert(self.by_id.hash(entry.message.id()), arrival);
        self.put(arrival, entry);
    }

    fn batch_fits(&self, fence: u64, batch: &TakenBatch) -> bool {
        let is_after = self.batches.last_key_value().is_none_or(|(last, _)| fence > *last);
        let fences = fence..fence + TAKE_MAX as u64;
        let fits = |arrival: &u64| {
            self.entry(*arrival).is_some_and(|entry| entry.place == Place::Waiting && fences.contains(&entry.fence))
        };
        // The entries of a batch lie in the order of their fences.
        let fence_of = |arrival: &u64| self.entry(*arrival).map(|entry| entry.fence);
        is_after
            && !self.by_token.contains_key(&batch.token)
            && batch.members.iter().all(fits)
            && batch.members.is_sorted_by(|one, other| fence_of(one) < fence_of(other))
    }

    fn load_batch(&mut self, fence: u64, mut batch: TakenBatch) {
        self.index_loaded();
        let mut members = Vec::new();
        for arrival in batch.members {
            let position = self.entry(arrival).map_or(0, |entry| (entry.fence - fence) as usize);
            self.shift(arrival, Place::Waiting, |entry| entry.place = Place::Taken);
            // Those before it that are not there have ended.
            members.resize(position, 0);
            members.push(arrival);
        }
        batch.members = members;
        self.insert_batch(fence, batch);
    }

    /// True if nothing is missing: called when all pieces are there.
    pub fn is_whole(&self) -> bool {
        let fences_fit = self.batches.iter().all(|(fence, batch)| {
            let of = |arrival: u64| self.entry(arrival).and_then(|entry| self.batch_of(entry));
            batch.members().all(|member| of(member).is_some_and(|(own, _)| own == *fence))
        });
        let unused = |group: &Group| group.entries == 0 && group.cases.is_empty();
        let is_needed = |of: &Aggregate| of.entries > 0 || of.held;
        let aggregates_fit = self.aggregates.values().all(|of| is_needed(of) && (of.parked.is_empty() || of.busy > 0));
        let is_settled = |case: &Case| {
            let is_finished =
                case.redrive.as_ref().is_none_or(|of| of.phase != RedriveState::Finished || of.active == 0);
            is_finished && (case.is_open() || case.unresolved == 0)
        };
        fences_fit && aggregates_fit && self.cases.values().all(is_settled) && !self.groups.list.values().any(unused)
    }
}

/// True if the case keeps its groups.
fn covers(case: &Case) -> bool {
    case.is_open() || case.discard == Discard::UnderWay
}
