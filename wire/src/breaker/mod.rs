//! `RES.BREAKER` and its subcommands: the arguments, their bounds, the replies. [`options`] has what ADMIT and CONFIG
//! take, [`state`] the reply of STATE.

pub mod options;
pub mod state;

use resil_core::Span;
use resil_core::circuit_breaker::{Admission, Batch, Caller, Force, Permit, Report, Reported, StateName, Tally, Why};
use resil_core::limits::{TALLY_MAX, TEXT_MAX};

pub use self::options::Options;
use crate::argv::{Argv, Refused, Word, missing, quoted};
use crate::bound::{Length, Named, Number, Text};
use crate::command::{Allowed, Arguments};
use crate::pages;
use crate::reply::{Fields, Sink, Unexpected, Value};
use crate::words::Words;

/// The longest DURATION of a report and FOR of a force.
const LONGEST: Span = Span::from_days(366);

const CALLER: Text = Text::or_empty("CALLER", TEXT_MAX);
const CALLER_WORD: Text = Text::or_empty("caller", TEXT_MAX);
const CORRELATION: Text = Text::or_empty("CORRELATION", TEXT_MAX);
const ACTOR: Text = Text::or_empty("ACTOR", TEXT_MAX);
const REASON: Text = Text::or_empty("REASON", TEXT_MAX);
const PERMIT: Text = Text::or_empty("permit", TEXT_MAX);
const GENERATION: Number = Number::new("generation", 0..=i64::MAX);
const SEQ: Number = Number::new("seq", 0..=i64::MAX);
const OK: Number = Number::new("OK", 0..=TALLY_MAX as i64);
const FAIL: Number = Number::new("FAIL", 0..=TALLY_MAX as i64);
const SLOW: Number = Number::new("SLOW", 0..=TALLY_MAX as i64);
const RUN: Number = Number::new("RUN", 0..=TALLY_MAX as i64);
const DURATION: Length = Length::new("DURATION", (Span::ZERO, LONGEST));
const FOR: Length = Length::new("FOR", (Span::from_ms(1), LONGEST));

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admit<'a> {
    pub key: &'a [u8],
    pub caller: Option<&'a [u8]>,
    /// `None` if none is named.
    pub options: Option<Options>,
}

impl<'a> Arguments<'a> for Admit<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let mut admit = Self { key: argv.bytes("key")?, caller: None, options: None };
        while let Some(word) = argv.word() {
            if word.is("CALLER") {
                CALLER.take_once(&mut admit.caller, &mut argv)?;
            } else if !admit.options.get_or_insert_default().take(word, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(admit)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        CALLER.check_given(self.caller)?;
        self.options.as_ref().map_or(Ok(()), Options::check)
    }

    /// Options that name nothing are none.
    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        CALLER.write_given(self.caller, words);
        if let Some(options) = &self.options {
            options.encode(words);
        }
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

impl Admit<'_> {
    /// Who asks; by default a caller without a name.
    pub fn caller(&self) -> Caller {
        self.caller.map_or(Caller::default(), Caller::named)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportCall<'a> {
    pub key: &'a [u8],
    /// `None` if it is not one of ours.
    pub permit: Option<Permit>,
    pub report: Report,
    pub duration: Option<Span>,
    pub correlation: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for ReportCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let permit = Permit::parse(PERMIT.take(&mut argv)?);
        let outcome = argv.bytes("outcome")?;
        let outcomes =
            [("OK", Report::Ok), ("FAIL", Report::Fail), ("IGNORE", Report::Ignore), ("CANCEL", Report::Cancel)];
        let Some((_, report)) = outcomes.into_iter().find(|(name, _)| Word(outcome).is(name)) else {
            let given = quoted(outcome);
            return Err(Refused::new(format_args!("outcome must be OK, FAIL, IGNORE or CANCEL, got {given}")));
        };
        let mut call = Self { key, permit, report, duration: None, correlation: None };
        while let Some(word) = argv.word() {
            if word.is("DURATION") {
                DURATION.take_once(&mut call.duration, &mut argv)?;
            } else if word.is("CORRELATION") {
                CORRELATION.take_once(&mut call.correlation, &mut argv)?;
            } else {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        DURATION.check_given(self.duration)?;
        CORRELATION.check_given(self.correlation)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        match &self.permit {
            Some(permit) => words.word(permit.text().as_bytes()),
            // Any word that is no permit says so.
            None => words.word(b"-"),
        }
        words.word(match self.report {
            Report::Ok => b"OK",
            Report::Fail => b"FAIL",
            Report::Ignore => b"IGNORE",
            Report::Cancel => b"CANCEL",
        });
        DURATION.write_given(self.duration, words);
        CORRELATION.write_given(self.correlation, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TallyCall<'a> {
    pub key: &'a [u8],
    pub generation: u64,
    pub caller: &'a [u8],
    pub seq: u64,
    pub batch: Batch,
    pub correlation: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for TallyCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let generation = GENERATION.read(&mut argv)?;
        let caller = CALLER_WORD.take(&mut argv)?;
        let seq = SEQ.read(&mut argv)?;
        let (mut ok, mut failures, mut slow, mut run, mut correlation) = (None, None, None, None, None);
        while let Some(word) = argv.word() {
            if word.is("OK") {
                OK.take_once(&mut ok, &mut argv)?;
            } else if word.is("FAIL") {
                FAIL.take_once(&mut failures, &mut argv)?;
            } else if word.is("SLOW") {
                SLOW.take_once(&mut slow, &mut argv)?;
            } else if word.is("RUN") {
                RUN.take_once(&mut run, &mut argv)?;
            } else if word.is("CORRELATION") {
                CORRELATION.take_once(&mut correlation, &mut argv)?;
            } else {
                return Err(argv.unexpected(word.0));
            }
        }
        let (Some(ok), Some(failures)) = (ok, failures) else {
            return Err(missing(if ok.is_none() { "OK" } else { "FAIL" }, argv.page()));
        };
        let batch = Batch { ok, failures, slow: slow.unwrap_or(0), run: run.unwrap_or(0) };
        let call = Self { key, generation, caller, seq, batch, correlation };
        call.check(allowed)?;
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        let Batch { ok, failures, slow, run } = self.batch;
        Named::check(GENERATION, self.generation)?;
        CALLER_WORD.check(self.caller)?;
        Named::check(SEQ, self.seq)?;
        OK.check(ok.into())?;
        FAIL.check(failures.into())?;
        SLOW.check(slow.into())?;
        RUN.check(run.into())?;
        CORRELATION.check_given(self.correlation)?;
        if slow > ok + failures {
            return Err(Refused::new(format_args!("SLOW can be at most OK + FAIL = {}, got {slow}", ok + failures)));
        }
        if run > failures {
            return Err(Refused::new(format_args!("RUN can be at most FAIL = {failures}, got {run}")));
        }
        Ok(())
    }

    fn encode(&self, words: &mut impl Words) {
        let Batch { ok, failures, slow, run } = self.batch;
        words.word(self.key);
        words.number(self.generation.cast_signed());
        words.word(self.caller);
        words.number(self.seq.cast_signed());
        OK.write_given(Some(ok), words);
        FAIL.write_given(Some(failures), words);
        SLOW.write_given((slow > 0).then_some(slow), words);
        RUN.write_given((run > 0).then_some(run), words);
        CORRELATION.write_given(self.correlation, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

impl TallyCall<'_> {
    /// As the machine takes it.
    pub fn tally(&self) -> Tally {
        Tally { generation: self.generation, caller: Caller::named(self.caller), seq: self.seq, batch: self.batch }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForceCall<'a> {
    pub key: &'a [u8],
    /// `None` is AUTO.
    pub force: Option<Force>,
    pub length: Option<Span>,
    pub actor: Option<&'a [u8]>,
    pub reason: Option<&'a [u8]>,
}

/// The states as they are typed; `None` is AUTO.
const STATES: [(&str, Option<Force>); 5] = [
    ("OPEN", Some(Force::Open)),
    ("CLOSED", Some(Force::Closed)),
    ("DISABLED", Some(Force::Disabled)),
    ("METRICS", Some(Force::Metrics)),
    ("AUTO", None),
];

impl<'a> Arguments<'a> for ForceCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let given = argv.bytes("state")?;
        let Some((_, force)) = STATES.into_iter().find(|(name, _)| Word(given).is(name)) else {
            let given = quoted(given);
            return Err(Refused::new(format_args!(
                "state must be OPEN, CLOSED, DISABLED, METRICS or AUTO, got {given}"
            )));
        };
        let mut call = Self { key, force, length: None, actor: None, reason: None };
        while let Some(word) = argv.word() {
            if word.is("FOR") {
                FOR.take_once(&mut call.length, &mut argv)?;
            } else if word.is("THEN") {
                call.take_then(&mut argv)?;
            } else if word.is("ACTOR") {
                ACTOR.take_once(&mut call.actor, &mut argv)?;
            } else if word.is("REASON") {
                REASON.take_once(&mut call.reason, &mut argv)?;
            } else {
                return Err(argv.unexpected(word.0));
            }
        }
        call.check(allowed)?;
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        FOR.check_given(self.length)?;
        ACTOR.check_given(self.actor)?;
        REASON.check_given(self.reason)?;
        if self.force.is_none() && self.length.is_some() {
            return Err(Refused::new("FOR cannot be used with AUTO; leave it out"));
        }
        if self.force == Some(Force::OpenThenProbe) && self.length.is_none() {
            return Err(Refused::new("THEN PROBE needs FOR: it says what follows when that time is over"));
        }
        Ok(())
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        let is_then_probe = self.force == Some(Force::OpenThenProbe);
        let typed = if is_then_probe { Some(Force::Open) } else { self.force };
        let name = STATES.iter().find(|(_, force)| *force == typed).map_or("AUTO", |(name, _)| name);
        words.word(name.as_bytes());
        FOR.write_given(self.length, words);
        if is_then_probe {
            words.word(b"THEN");
            words.word(b"PROBE");
        }
        ACTOR.write_given(self.actor, words);
        REASON.write_given(self.reason, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

impl<'a> ForceCall<'a> {
    /// What follows THEN. Only an open breaker can go on to probe, and it does so once.
    fn take_then(&mut self, argv: &mut Argv<'a>) -> Result<(), Refused> {
        let given = argv.bytes("THEN")?;
        if !Word(given).is("PROBE") {
            return Err(Refused::new(format_args!("THEN must be PROBE, got {}", quoted(given))));
        }
        self.force = match self.force {
            Some(Force::Open) => Some(Force::OpenThenProbe),
            Some(Force::OpenThenProbe) => return Err(Refused::new("THEN is given twice")),
            _ => return Err(Refused::new("THEN PROBE can only be used with OPEN")),
        };
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigCall<'a> {
    pub key: &'a [u8],
    pub options: Options,
}

impl<'a> Arguments<'a> for ConfigCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let mut call = Self { key: argv.bytes("key")?, options: Options::default() };
        while let Some(word) = argv.word() {
            if !call.options.take(word, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        call.check(allowed)?;
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        if self.options.is_empty() {
            return Err(Refused::new(format_args!("missing options; give at least one of {}", pages::BREAKER_OPTIONS)));
        }
        self.options.check()
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        self.options.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

fn read_state(fields: &mut Fields) -> Result<StateName, Unexpected> {
    fields.word(StateName::from_text, "the name of a state")
}

/// ADMIT: `[admitted 1|0, state, permit or nil, retry_after_ms, generation]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// `None`: denied.
    pub permit: Option<Permit>,
    pub state: StateName,
    /// -1: not by itself.
    pub retry_after_ms: i64,
    pub generation: u64,
}

impl From<Admission> for Admitted {
    fn from(admission: Admission) -> Self {
        let Admission { permit, state, retry_after, generation } = admission;
        Self { permit, state, retry_after_ms: retry_after.ms(), generation }
    }
}

impl Admitted {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        sink.array(5);
        sink.integer(self.permit.is_some().into());
        sink.text(self.state.text().as_bytes());
        match &self.permit {
            Some(permit) => sink.text(permit.text().as_bytes()),
            None => sink.null(),
        }
        sink.integer(self.retry_after_ms);
        sink.integer(self.generation.cast_signed());
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let admitted = fields.flag()?;
        let state = read_state(&mut fields)?;
        let permit = match (admitted, fields.text_or_null()?) {
            (true, Some(text)) => Some(Permit::parse(&text).ok_or(Unexpected("a permit"))?),
            (false, None) => None,
            _ => return Err(Unexpected("a permit if and only if it is admitted")),
        };
        let (retry_after_ms, generation) = (fields.integer()?, fields.number()?);
        fields.finish(Self { permit, state, retry_after_ms, generation })
    }
}

/// REPORT and TALLY: `[counted 1|0, state, generation, retry_after_ms, why]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    pub why: Why,
    pub state: StateName,
    pub generation: u64,
    /// -1: not by itself.
    pub retry_after_ms: i64,
}

impl From<Reported> for Counted {
    fn from(reported: Reported) -> Self {
        let Reported { why, state, generation, retry_after } = reported;
        Self { why, state, generation, retry_after_ms: retry_after.ms() }
    }
}

impl Counted {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        sink.array(5);
        sink.integer((self.why == Why::Counted).into());
        sink.text(self.state.text().as_bytes());
        sink.integer(self.generation.cast_signed());
        sink.integer(self.retry_after_ms);
        sink.text(self.why.text().as_bytes());
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let counted = fields.flag()?;
        let state = read_state(&mut fields)?;
        let (generation, retry_after_ms) = (fields.number()?, fields.integer()?);
        let why = fields.word(Why::from_text, "why it counted or not")?;
        if counted != (why == Why::Counted) {
            return Err(Unexpected("1 if and only if it counted"));
        }
        fields.finish(Self { why, state, generation, retry_after_ms })
    }
}

/// FORCE: `[state, generation]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forced {
    pub state: StateName,
    pub generation: u64,
}

impl Forced {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        sink.array(2);
        sink.text(self.state.text().as_bytes());
        sink.integer(self.generation.cast_signed());
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let (state, generation) = (read_state(&mut fields)?, fields.number()?);
        fields.finish(Self { state, generation })
    }
}
