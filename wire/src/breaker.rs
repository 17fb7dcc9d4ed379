//! `RES.BREAKER` and its subcommands. What is parsed is what follows the subcommand's name.

use resil_core::Span;
use resil_core::circuit_breaker::{Admission, Batch, Caller, Force, Permit, Report, Reported, Tally};
use resil_core::limits::{TALLY_MAX, TEXT_MAX};

use crate::argv::{Argv, Refused, Word, once, quoted};
pub use crate::breaker_options::{OPTIONS, Options};
use crate::reply::Sink;
use crate::words::{Words, named_duration, named_number, named_text};

pub const NAME: &str = "RES.BREAKER";
pub const ADMIT_USAGE: &str = "RES.BREAKER ADMIT key [CALLER id] [VERSION v] [options]";
pub const REPORT_USAGE: &str = "RES.BREAKER REPORT key permit OK|FAIL|IGNORE|CANCEL [DURATION d] [CORRELATION text]";
pub const TALLY_USAGE: &str =
    "RES.BREAKER TALLY key generation caller seq OK n FAIL n [SLOW n] [RUN n] [CORRELATION text]";
pub const STATE_USAGE: &str = "RES.BREAKER STATE key";
pub const FORCE_USAGE: &str = "RES.BREAKER FORCE key OPEN|CLOSED|DISABLED|METRICS|AUTO [FOR d] [ACTOR a] [REASON r]";
pub const RESET_USAGE: &str = "RES.BREAKER RESET key";
pub const CONFIG_USAGE: &str = "RES.BREAKER CONFIG key [VERSION v] options";

/// What HELP says.
pub const HELP: [&str; 17] = [
    ADMIT_USAGE,
    "    May this caller call? [admitted, state, permit, retry_after_ms, generation]",
    REPORT_USAGE,
    "    What the call came to. [counted, state, generation, retry_after_ms, why]",
    TALLY_USAGE,
    "    A batch of calls that were admitted locally while closed; counted once per caller and seq.",
    STATE_USAGE,
    "    Everything it knows, as a map; changes nothing and works on replicas.",
    FORCE_USAGE,
    "    Puts it into a state by hand, for a time or until AUTO.",
    RESET_USAGE,
    "    Closed, with nothing counted; the configuration stays.",
    CONFIG_USAGE,
    "    Changes the options it names. They last, and win over those of ADMIT.",
    "options:",
    OPTIONS,
    "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.",
];

/// A text of at most [`TEXT_MAX`] bytes.
fn text<'a>(argv: &mut Argv<'a>, name: &str) -> Result<&'a [u8], Refused> {
    let given = argv.bytes(name)?;
    if given.len() > TEXT_MAX {
        let len = given.len();
        return Err(Refused::new(format_args!("{name} can have at most {TEXT_MAX} bytes, got {len}")));
    }
    Ok(given)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admit<'a> {
    pub key: &'a [u8],
    pub caller: Option<&'a [u8]>,
    /// `None` if it names none.
    pub options: Option<Options>,
}

impl<'a> Admit<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, ADMIT_USAGE);
        let mut admit = Self { key: argv.bytes("key")?, caller: None, options: None };
        while let Some(word) = argv.word() {
            if word.is("CALLER") {
                once(&mut admit.caller, "CALLER", text(&mut argv, "CALLER")?)?;
            } else if !admit.options.get_or_insert_default().take(word, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(admit)
    }

    /// Options that name nothing are none.
    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        named_text(words, "CALLER", self.caller);
        if let Some(options) = &self.options {
            options.encode(words);
        }
    }

    /// Who asks; nobody in particular if not said.
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

impl<'a> ReportCall<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, REPORT_USAGE);
        let key = argv.bytes("key")?;
        let permit = Permit::parse(text(&mut argv, "permit")?);
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
                let most = Span::from_days(366);
                once(&mut call.duration, "DURATION", argv.duration("DURATION", Span::ZERO, most)?)?;
            } else if word.is("CORRELATION") {
                once(&mut call.correlation, "CORRELATION", text(&mut argv, "CORRELATION")?)?;
            } else {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(call)
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        match &self.permit {
            Some(permit) => words.word(permit.text().as_bytes()),
            // Any word that is none says it.
            None => words.word(b"-"),
        }
        words.word(match self.report {
            Report::Ok => b"OK",
            Report::Fail => b"FAIL",
            Report::Ignore => b"IGNORE",
            Report::Cancel => b"CANCEL",
        });
        named_duration(words, "DURATION", self.duration);
        named_text(words, "CORRELATION", self.correlation);
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

impl<'a> TallyCall<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, TALLY_USAGE);
        let key = argv.bytes("key")?;
        let generation = argv.number("generation", 0..=i64::MAX)? as u64;
        let caller = text(&mut argv, "caller")?;
        let seq = argv.number("seq", 0..=i64::MAX)? as u64;
        let mut counts: [Option<u32>; 4] = [None; 4];
        const NAMES: [&str; 4] = ["OK", "FAIL", "SLOW", "RUN"];
        let mut correlation = None;
        while let Some(word) = argv.word() {
            if word.is("CORRELATION") {
                once(&mut correlation, "CORRELATION", text(&mut argv, "CORRELATION")?)?;
                continue;
            }
            let Some(index) = NAMES.iter().position(|name| word.is(name)) else {
                return Err(argv.unexpected(word.0));
            };
            let count = argv.number(NAMES[index], 0..=TALLY_MAX as i64)? as u32;
            once(&mut counts[index], NAMES[index], count)?;
        }
        let [Some(ok), Some(failures), slow, run] = counts else {
            let missing = if counts[0].is_none() { "OK" } else { "FAIL" };
            return Err(Refused::new(format_args!("missing {missing}; usage: {TALLY_USAGE}")));
        };
        let (slow, run) = (slow.unwrap_or(0), run.unwrap_or(0));
        if slow > ok + failures {
            return Err(Refused::new(format_args!("SLOW can be at most OK + FAIL = {}, got {slow}", ok + failures)));
        }
        if run > failures {
            return Err(Refused::new(format_args!("RUN can be at most FAIL = {failures}, got {run}")));
        }
        let batch = Batch { ok, failures, slow, run };
        Ok(Self { key, generation, caller, seq, batch, correlation })
    }

    pub fn encode(&self, words: &mut impl Words) {
        let Batch { ok, failures, slow, run } = self.batch;
        words.word(self.key);
        words.number(self.generation.cast_signed());
        words.word(self.caller);
        words.number(self.seq.cast_signed());
        named_number(words, "OK", Some(ok));
        named_number(words, "FAIL", Some(failures));
        named_number(words, "SLOW", (slow > 0).then_some(slow));
        named_number(words, "RUN", (run > 0).then_some(run));
        named_text(words, "CORRELATION", self.correlation);
    }

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

impl<'a> ForceCall<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, FORCE_USAGE);
        let key = argv.bytes("key")?;
        let given = argv.bytes("state")?;
        let states = [
            ("OPEN", Some(Force::Open)),
            ("CLOSED", Some(Force::Closed)),
            ("DISABLED", Some(Force::Disabled)),
            ("METRICS", Some(Force::Metrics)),
            ("AUTO", None),
        ];
        let Some((_, force)) = states.into_iter().find(|(name, _)| Word(given).is(name)) else {
            let given = quoted(given);
            return Err(Refused::new(format_args!(
                "state must be OPEN, CLOSED, DISABLED, METRICS or AUTO, got {given}"
            )));
        };
        let mut call = Self { key, force, length: None, actor: None, reason: None };
        while let Some(word) = argv.word() {
            if word.is("FOR") {
                let (least, most) = (Span::from_ms(1), Span::from_days(366));
                once(&mut call.length, "FOR", argv.duration("FOR", least, most)?)?;
            } else if word.is("ACTOR") {
                once(&mut call.actor, "ACTOR", text(&mut argv, "ACTOR")?)?;
            } else if word.is("REASON") {
                once(&mut call.reason, "REASON", text(&mut argv, "REASON")?)?;
            } else {
                return Err(argv.unexpected(word.0));
            }
        }
        if force.is_none() && call.length.is_some() {
            return Err(Refused::new("FOR does not go with AUTO"));
        }
        Ok(call)
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(match self.force {
            Some(Force::Open) => b"OPEN",
            Some(Force::Closed) => b"CLOSED",
            Some(Force::Disabled) => b"DISABLED",
            Some(Force::Metrics) => b"METRICS",
            None => b"AUTO",
        });
        named_duration(words, "FOR", self.length);
        named_text(words, "ACTOR", self.actor);
        named_text(words, "REASON", self.reason);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigCall<'a> {
    pub key: &'a [u8],
    pub options: Options,
}

impl<'a> ConfigCall<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, CONFIG_USAGE);
        let mut call = Self { key: argv.bytes("key")?, options: Options::default() };
        while let Some(word) = argv.word() {
            if !call.options.take(word, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        if call.options.is_empty() {
            return Err(Refused::new(format_args!("missing options; they are {OPTIONS}")));
        }
        Ok(call)
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        self.options.encode(words);
    }
}

/// Parses the one argument of STATE and RESET.
pub fn parse_key<'a>(args: &'a [&'a [u8]], usage: &'static str) -> Result<&'a [u8], Refused> {
    let mut argv = Argv::new(args, usage);
    let key = argv.bytes("key")?;
    argv.finish()?;
    Ok(key)
}

/// `[admitted 1|0, state, permit or nil, retry_after_ms, generation]`.
pub fn write_admission(admission: &Admission, sink: &mut (impl Sink + ?Sized)) {
    sink.array(5);
    sink.integer(admission.permit.is_some() as i64);
    sink.text(admission.state.text().as_bytes());
    match &admission.permit {
        Some(permit) => sink.text(permit.text().as_bytes()),
        None => sink.null(),
    }
    sink.integer(admission.retry_after.ms());
    sink.integer(admission.generation as i64);
}

/// `[counted 1|0, state, generation, retry_after_ms, why]`.
pub fn write_reported(reported: &Reported, sink: &mut (impl Sink + ?Sized)) {
    use resil_core::circuit_breaker::Why;
    sink.array(5);
    sink.integer((reported.why == Why::Counted) as i64);
    sink.text(reported.state.text().as_bytes());
    sink.integer(reported.generation as i64);
    sink.integer(reported.retry_after.ms());
    sink.text(reported.why.text().as_bytes());
}
