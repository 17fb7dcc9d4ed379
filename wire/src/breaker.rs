//! `RES.BREAKER` and its subcommands. What is parsed is what follows the subcommand's name.

use resil_core::circuit_breaker::{
    Admission, Batch, Caller, Force, Patch, Permit, Report, Reported, Tally, WindowKind, bounds,
};
use resil_core::limits::{TALLY_MAX, TEXT_MAX};

use crate::argv::{Argv, Refused, Word, once, quoted};
use crate::reply::Sink;

pub const NAME: &str = "RES.BREAKER";
pub const OPTIONS: &str = "[WINDOW COUNT n | WINDOW TIME d] [RATE pct] [SLOW d] [SLOWRATE pct] [CONSECUTIVE n] \
                           [MINCALLS n] [OPEN d] [FACTOR x] [MAX d] [PROBES n] [SUCCESSES n] [LEASE d] [QUORUM n] \
                           [RAMP d] [IDLE d]";
pub const ADMIT_USAGE: &str = "RES.BREAKER ADMIT key [CALLER id] [VERSION v] [options]";
pub const REPORT_USAGE: &str = "RES.BREAKER REPORT key permit OK|FAIL|IGNORE|CANCEL [DURATION d] [CORRELATION text]";
pub const TALLY_USAGE: &str = "RES.BREAKER TALLY key generation caller seq OK n FAIL n [SLOW n] [RUN n]";
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

/// The options of ADMIT and CONFIG.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    pub patch: Patch,
    pub version: Option<u64>,
}

impl Options {
    pub fn is_empty(&self) -> bool {
        self.patch.is_empty() && self.version.is_none()
    }

    /// Takes `word` if it begins an option. Each may be given once.
    fn take(&mut self, word: Word<'_>, argv: &mut Argv<'_>) -> Result<bool, Refused> {
        let patch = &mut self.patch;
        if word.is("VERSION") {
            let version = argv.number("VERSION", 1..=i64::MAX)? as u64;
            once(&mut self.version, "VERSION", version)?;
        } else if word.is("WINDOW") {
            once(&mut patch.window, "WINDOW", window(argv)?)?;
        } else if word.is("RATE") {
            once(&mut patch.rate_pct, "RATE", argv.number("RATE", bounds::PERCENT)? as u32)?;
        } else if word.is("SLOW") {
            once(&mut patch.slow, "SLOW", argv.duration("SLOW", bounds::SLOW.0, bounds::SLOW.1)?)?;
        } else if word.is("SLOWRATE") {
            once(&mut patch.slow_rate_pct, "SLOWRATE", argv.number("SLOWRATE", bounds::PERCENT)? as u32)?;
        } else if word.is("CONSECUTIVE") {
            once(&mut patch.consecutive, "CONSECUTIVE", argv.number("CONSECUTIVE", bounds::CONSECUTIVE)? as u32)?;
        } else if word.is("MINCALLS") {
            once(&mut patch.min_calls, "MINCALLS", argv.number("MINCALLS", bounds::MIN_CALLS)? as u32)?;
        } else if word.is("OPEN") {
            once(&mut patch.open, "OPEN", argv.duration("OPEN", bounds::OPEN.0, bounds::OPEN.1)?)?;
        } else if word.is("FACTOR") {
            once(&mut patch.factor_milli, "FACTOR", factor(argv)?)?;
        } else if word.is("MAX") {
            once(&mut patch.open_max, "MAX", argv.duration("MAX", bounds::OPEN.0, bounds::OPEN.1)?)?;
        } else if word.is("PROBES") {
            once(&mut patch.probes, "PROBES", argv.number("PROBES", bounds::PROBES)? as u32)?;
        } else if word.is("SUCCESSES") {
            once(&mut patch.successes, "SUCCESSES", argv.number("SUCCESSES", bounds::SUCCESSES)? as u32)?;
        } else if word.is("LEASE") {
            once(&mut patch.lease, "LEASE", argv.duration("LEASE", bounds::LEASE.0, bounds::LEASE.1)?)?;
        } else if word.is("QUORUM") {
            once(&mut patch.quorum, "QUORUM", argv.number("QUORUM", bounds::QUORUM)? as u32)?;
        } else if word.is("RAMP") {
            once(&mut patch.ramp, "RAMP", argv.duration("RAMP", bounds::RAMP.0, bounds::RAMP.1)?)?;
        } else if word.is("IDLE") {
            once(&mut patch.idle, "IDLE", argv.duration("IDLE", bounds::IDLE.0, bounds::IDLE.1)?)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

fn window(argv: &mut Argv<'_>) -> Result<WindowKind, Refused> {
    let kind = argv.bytes("WINDOW")?;
    if Word(kind).is("COUNT") {
        return Ok(WindowKind::Count(argv.number("WINDOW COUNT", bounds::WINDOW_CALLS)? as u32));
    }
    if Word(kind).is("TIME") {
        return argv.duration("WINDOW TIME", bounds::WINDOW_SPAN.0, bounds::WINDOW_SPAN.1).map(WindowKind::Time);
    }
    Err(Refused::new(format_args!("WINDOW must be COUNT n or TIME d, got {}", quoted(kind))))
}

/// A decimal number with up to three places, in thousandths.
fn factor(argv: &mut Argv<'_>) -> Result<u32, Refused> {
    let given = argv.bytes("FACTOR")?;
    let thousandths = || {
        let (whole, places) = match given.iter().position(|byte| *byte == b'.') {
            Some(point) => (&given[..point], &given[point + 1..]),
            None => (given, &b""[..]),
        };
        let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
        if whole.is_empty() || whole.len() > 3 || places.len() > 3 || !digits(whole) || !digits(places) {
            return None;
        }
        if places.is_empty() && given.contains(&b'.') {
            return None;
        }
        let number = |text: &[u8]| text.iter().fold(0, |sum, digit| sum * 10 + (digit - b'0') as i64);
        let scale = [1_000, 100, 10, 1][places.len()];
        Some(number(whole) * 1_000 + number(places) * scale)
    };
    match thousandths() {
        Some(milli) if bounds::FACTOR_MILLI.contains(&milli) => Ok(milli as u32),
        _ => Err(Refused::new(format_args!(
            "FACTOR must be a number from 1 to 100 with at most three decimals, got {}",
            quoted(given)
        ))),
    }
}

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
    pub duration: Option<resil_core::Span>,
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
                let most = resil_core::Span::from_days(366);
                once(&mut call.duration, "DURATION", argv.duration("DURATION", resil_core::Span::ZERO, most)?)?;
            } else if word.is("CORRELATION") {
                once(&mut call.correlation, "CORRELATION", text(&mut argv, "CORRELATION")?)?;
            } else {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(call)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TallyCall<'a> {
    pub key: &'a [u8],
    pub tally: Tally,
}

impl<'a> TallyCall<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, TALLY_USAGE);
        let key = argv.bytes("key")?;
        let generation = argv.number("generation", 0..=i64::MAX)? as u64;
        let caller = Caller::named(text(&mut argv, "caller")?);
        let seq = argv.number("seq", 0..=i64::MAX)? as u64;
        let mut counts: [Option<u32>; 4] = [None; 4];
        const NAMES: [&str; 4] = ["OK", "FAIL", "SLOW", "RUN"];
        while let Some(word) = argv.word() {
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
        Ok(Self { key, tally: Tally { generation, caller, seq, batch } })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForceCall<'a> {
    pub key: &'a [u8],
    /// `None` is AUTO.
    pub force: Option<Force>,
    pub length: Option<resil_core::Span>,
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
                let (least, most) = (resil_core::Span::from_ms(1), resil_core::Span::from_days(366));
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
