//! DIAGNOSE, REDRIVE, STOP and CLOSE: what died returns only under a documented cause, by people who say who they are.

use resil_core::Instant;
use resil_core::dead_letters::{
    self, Category, Diagnosed, Diagnosis, Matched, Rate, RedriveFilter, RedriveRequest, Redriven, Refusal,
};
use resil_core::limits::{
    CASE_GROUPS_MAX, CASE_TEXT_MAX, LEDGER_ENTRIES_CEILING, OWNER_MAX, REDRIVE_FIRST, RETENTION, TAKE_MAX,
};

use super::{AGGREGATE, By, CASE, Choice, GROUP_MAX, Pace, SINCE, TYPE, UNTIL, some, word_if};
use crate::argv::{Argv, Refused, Word, missing, once, quoted};
use crate::bound::{Length, Named, Number, Text};
use crate::command::{Allowed, Arguments};
use crate::pages;
use crate::reply::{Sink, Unexpected, Value};
use crate::words::{Words, unless_empty};

const GROUP: Text = Text::new("group", GROUP_MAX);
const CATEGORY: Choice<Category> = Choice { name: "CATEGORY", all: &Category::ALL, text: Category::text };
const CAUSE: Text = Text::new("CAUSE", CASE_TEXT_MAX);
const FIX: Text = Text::new("FIX", CASE_TEXT_MAX);
const DECISION: Text = Text::new("DECISION", CASE_TEXT_MAX);
const AUTO: Length = some("AUTO", RETENTION);
const ID_OPTION: Text = Text::new("ID", OWNER_MAX);
const COUNT: Number = Number::count("COUNT", LEDGER_ENTRIES_CEILING as u32);
const RATE: Pace = Pace("RATE");
const FIRST: Number = Number::count("FIRST", TAKE_MAX as u32);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiagnoseCall<'a> {
    pub key: &'a [u8],
    pub diagnosis: Diagnosis<'a>,
    pub by: By<'a>,
}

impl<'a> Arguments<'a> for DiagnoseCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let mut groups = vec![GROUP.take(&mut argv)?];
        while !argv.is_empty() && !argv.take_word("CATEGORY") {
            groups.push(GROUP.take(&mut argv)?);
        }
        check_groups(&groups)?;
        let category = CATEGORY.read(&mut argv)?;
        let (mut cause, mut fix, mut decision, mut auto, mut by) = (None, None, None, None, By::default());
        while let Some(word) = argv.word() {
            if word.is("CAUSE") {
                CAUSE.take_once(&mut cause, &mut argv)?;
            } else if word.is("FIX") {
                FIX.take_once(&mut fix, &mut argv)?;
            } else if word.is("DECISION") {
                DECISION.take_once(&mut decision, &mut argv)?;
            } else if !AUTO.take_if(word, &mut auto, &mut argv)? && !by.take(word, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        let cause = cause.ok_or_else(|| missing("CAUSE", argv.page()))?;
        let fix = fix.ok_or_else(|| missing("FIX", argv.page()))?;
        let decision = decision.unwrap_or_default();
        let call = Self { key, diagnosis: Diagnosis { groups, category, cause, fix, decision, auto }, by };
        call.check(allowed)?;
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        let Diagnosis { groups, category, cause, fix, decision, auto } = &self.diagnosis;
        if groups.is_empty() {
            return Err(missing("group", &pages::DLQ_DIAGNOSE));
        }
        groups.iter().try_for_each(|group| GROUP.check(group))?;
        if groups[1..].iter().any(|group| Word(group).is("CATEGORY")) {
            return Err(Refused::new("a group that is named CATEGORY must come first"));
        }
        check_groups(groups)?;
        CAUSE.check(cause)?;
        FIX.check(fix)?;
        DECISION.check_given(unless_empty(decision))?;
        AUTO.check_given(*auto)?;
        self.by.check()?;
        match category {
            Category::Business if decision.is_empty() => Err(Refused::new("CATEGORY business needs a DECISION")),
            Category::Infrastructure => Ok(()),
            _ if auto.is_some() => Err(Refused::new("AUTO needs CATEGORY infrastructure")),
            _ => Ok(()),
        }
    }

    fn encode(&self, words: &mut impl Words) {
        let Diagnosis { groups, category, cause, fix, decision, auto } = &self.diagnosis;
        words.word(self.key);
        groups.iter().for_each(|group| words.word(group));
        CATEGORY.write_given(Some(*category), words);
        CAUSE.write_given(Some(cause), words);
        FIX.write_given(Some(fix), words);
        DECISION.write_given(unless_empty(decision), words);
        AUTO.write_given(*auto, words);
        self.by.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

fn check_groups(groups: &[&[u8]]) -> Result<(), Refused> {
    if groups.len() > CASE_GROUPS_MAX {
        let count = groups.len();
        return Err(Refused::new(format_args!("a case covers at most {CASE_GROUPS_MAX} groups, got {count}")));
    }
    Ok(())
}

/// The number of the case.
pub fn diagnosed(diagnosed: Diagnosed) -> Result<i64, Refused> {
    match diagnosed {
        Diagnosed::Case(number) => Ok(number.into()),
        Diagnosed::UnknownGroup(group) => {
            Err(Refused::new(format_args!("no group is named {}; INFO GROUPS lists them", quoted(&group))))
        }
        Diagnosed::TooMany => Err(Refused::new("too many cases are open; close one first")),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedriveCall<'a> {
    pub key: &'a [u8],
    pub case: u32,
    pub id: Option<&'a [u8]>,
    pub kind: Option<&'a [u8]>,
    pub aggregate: Option<&'a [u8]>,
    pub since: Option<Instant>,
    pub until: Option<Instant>,
    pub count: Option<u32>,
    pub rate: Option<Rate>,
    pub first: u32,
    pub oneshot: bool,
    pub dry_run: bool,
    pub by: By<'a>,
}

impl<'a> RedriveCall<'a> {
    /// The whole case, at the usual rate.
    pub fn of(key: &'a [u8], case: u32) -> Self {
        Self {
            key,
            case,
            id: None,
            kind: None,
            aggregate: None,
            since: None,
            until: None,
            count: None,
            rate: None,
            first: REDRIVE_FIRST,
            oneshot: false,
            dry_run: false,
            by: By::default(),
        }
    }

    /// What is asked of core.
    pub fn request(&self) -> RedriveRequest {
        let Self { case, since, until, count, rate, first, oneshot, dry_run, .. } = *self;
        let text = |text: Option<&[u8]>| text.map(Box::from);
        let (id, kind, aggregate) = (text(self.id), text(self.kind), text(self.aggregate));
        let filter = RedriveFilter { id, kind, aggregate, since, until };
        RedriveRequest { case, filter, count, rate, first, oneshot, dry_run }
    }
}

impl<'a> Arguments<'a> for RedriveCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let mut call = Self::of(argv.bytes("key")?, CASE.take_u32(&mut argv)?);
        let (mut first, mut oneshot, mut dry_run) = (None, None, None);
        while let Some(word) = argv.word() {
            if word.is("ID") {
                ID_OPTION.take_once(&mut call.id, &mut argv)?;
            } else if word.is("TYPE") {
                TYPE.take_once(&mut call.kind, &mut argv)?;
            } else if word.is("AGGREGATE") {
                AGGREGATE.take_once(&mut call.aggregate, &mut argv)?;
            } else if word.is("ONESHOT") {
                once(&mut oneshot, "ONESHOT", ())?;
            } else if word.is("DRYRUN") {
                once(&mut dry_run, "DRYRUN", ())?;
            } else if !SINCE.take_if(word, &mut call.since, &mut argv)?
                && !UNTIL.take_if(word, &mut call.until, &mut argv)?
                && !COUNT.take_if(word, &mut call.count, &mut argv)?
                && !RATE.take_if(word, &mut call.rate, &mut argv)?
                && !FIRST.take_if(word, &mut first, &mut argv)?
                && !call.by.take(word, &mut argv)?
            {
                return Err(argv.unexpected(word.0));
            }
        }
        let (oneshot, dry_run) = (oneshot.is_some(), dry_run.is_some());
        Ok(Self { first: first.unwrap_or(REDRIVE_FIRST), oneshot, dry_run, ..call })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        CASE.check(self.case.into())?;
        ID_OPTION.check_given(self.id)?;
        TYPE.check_given(self.kind)?;
        AGGREGATE.check_given(self.aggregate)?;
        SINCE.check_given(self.since)?;
        UNTIL.check_given(self.until)?;
        COUNT.check_given(self.count)?;
        RATE.check_given(self.rate)?;
        Named::check(FIRST, self.first)?;
        self.by.check()
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.number(self.case.into());
        ID_OPTION.write_given(self.id, words);
        TYPE.write_given(self.kind, words);
        AGGREGATE.write_given(self.aggregate, words);
        SINCE.write_given(self.since, words);
        UNTIL.write_given(self.until, words);
        COUNT.write_given(self.count, words);
        RATE.write_given(self.rate, words);
        FIRST.write_given((self.first != REDRIVE_FIRST).then_some(self.first), words);
        word_if(self.oneshot, "ONESHOT", words);
        word_if(self.dry_run, "DRYRUN", words);
        self.by.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// REDRIVE: `["STARTED" | "DRYRUN", matched, complete 1|0, sample ids]` or `["REFUSED", reason]`.
pub fn write_redriven(redriven: &Redriven, sink: &mut (impl Sink + ?Sized)) {
    let (word, Matched { count, is_complete, sample }) = match redriven {
        Redriven::Started(matched) => ("STARTED", matched),
        Redriven::DryRun(matched) => ("DRYRUN", matched),
        Redriven::Refused(refusal) => {
            sink.array(2);
            sink.text(b"REFUSED");
            return sink.text(refusal.text().as_bytes());
        }
    };
    sink.array(4);
    sink.text(word.as_bytes());
    sink.integer(*count as i64);
    sink.integer(i64::from(*is_complete));
    sink.array(sample.len());
    sample.iter().for_each(|id| sink.text(id));
}

pub(crate) fn read_redriven(value: Value) -> Result<Redriven, Unexpected> {
    let mut fields = value.into_fields()?;
    let word = fields.text()?;
    if word == b"REFUSED" {
        let refusal = fields.word(Refusal::from_text, "why it was refused")?;
        return fields.finish(Redriven::Refused(refusal));
    }
    let (count, is_complete) = (fields.number()?, fields.flag()?);
    let ids = fields.next()?.into_array()?.into_iter();
    let sample = ids.map(|id| id.into_text().map(Vec::into_boxed_slice)).collect::<Result<_, _>>()?;
    let matched = Matched { count, is_complete, sample };
    let redriven = match word.as_slice() {
        b"STARTED" => Redriven::Started(matched),
        b"DRYRUN" => Redriven::DryRun(matched),
        _ => return Err(Unexpected("STARTED, DRYRUN or REFUSED")),
    };
    fields.finish(redriven)
}

/// `key case [ACTOR a] [CORRELATION c]`: STOP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopCall<'a> {
    pub key: &'a [u8],
    pub case: u32,
    pub by: By<'a>,
}

impl<'a> Arguments<'a> for StopCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (key, case) = (argv.bytes("key")?, CASE.take_u32(&mut argv)?);
        Ok(Self { key, case, by: By::finish(argv)? })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        CASE.check(self.case.into())?;
        self.by.check()
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.number(self.case.into());
        self.by.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// STOP or CLOSE of a case that there is not.
pub fn no_case(case: u32) -> Refused {
    Refused::new(format_args!("there is no case {case}; INFO CASES lists them"))
}

/// STOP of a case that was never redriven.
pub fn no_redrive(case: u32) -> Refused {
    Refused::new(format_args!("case {case} was never redriven"))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseCall<'a> {
    pub key: &'a [u8],
    pub case: u32,
    pub discard: bool,
    pub by: By<'a>,
}

impl<'a> Arguments<'a> for CloseCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (key, case) = (argv.bytes("key")?, CASE.take_u32(&mut argv)?);
        let (mut discard, mut by) = (None, By::default());
        while let Some(word) = argv.word() {
            if word.is("DISCARD") {
                once(&mut discard, "DISCARD", ())?;
            } else if !by.take(word, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self { key, case, discard: discard.is_some(), by })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        CASE.check(self.case.into())?;
        self.by.check()
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.number(self.case.into());
        word_if(self.discard, "DISCARD", words);
        self.by.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// CLOSE: `["CLOSED"]` or `["OPEN", unresolved]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    Closed,
    Open { unresolved: usize },
}

impl Closed {
    /// What core said of `case`.
    pub fn of(case: u32, closed: dead_letters::Closed) -> Result<Self, Refused> {
        match closed {
            dead_letters::Closed::Closed => Ok(Self::Closed),
            dead_letters::Closed::Open(unresolved) => Ok(Self::Open { unresolved }),
            dead_letters::Closed::NoCase => Err(no_case(case)),
            dead_letters::Closed::NotPoison => Err(Refused::new(format_args!(
                "DISCARD is only for cases of CATEGORY poison, and case {case} is of another"
            ))),
            dead_letters::Closed::ClosedBefore => Err(Refused::new(format_args!(
                "case {case} was closed before, without DISCARD: nothing was discarded; DIAGNOSE what has died since"
            ))),
        }
    }

    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Closed => sink.verdict("CLOSED", &[]),
            Self::Open { unresolved } => sink.verdict("OPEN", &[*unresolved as i64]),
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let closed = match fields.text()?.as_slice() {
            b"CLOSED" => Self::Closed,
            b"OPEN" => Self::Open { unresolved: fields.number()? },
            _ => return Err(Unexpected("CLOSED or OPEN")),
        };
        fields.finish(closed)
    }
}
