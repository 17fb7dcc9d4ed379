//! FAIL and PARK: a message comes into the ledger, or fails again.

use resil_core::Span;
use resil_core::dead_letters::{self, Class, Counting, Death, Facts, Failing, Standing};
use resil_core::limits::{COST_MAX, FILL_MAX};
use resil_core::lock::Reason;

use super::{CLASS, ID, at_most, fence};
use crate::argv::{Argv, Refused, Word, missing, once};
use crate::bound::{Length, Named, Number};
use crate::command::{Allowed, Arguments};
use crate::holding::{read_reason, write_lost};
use crate::pages;
use crate::reply::{Fields, Sink, Unexpected, Value};
use crate::words::{Words, unless_empty};

const FENCE: Number = fence("FENCE");
const SCHEMA: Number = Number::new("SCHEMA", 0..=u32::MAX as i64);
/// What is longer than AFTERMAX is cut to it.
const AFTER: Length = at_most("AFTER", FILL_MAX);
/// More than there can be retries: a message that was tried too often shall die, not be refused.
const PRIOR: Number = Number::new("PRIOR", 0..=COST_MAX as i64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailCall<'a> {
    pub key: &'a [u8],
    pub facts: Facts<'a>,
    pub error: &'a [u8],
    pub fence: Option<u64>,
    pub class: Option<Class>,
    /// Not empty.
    pub group: Option<&'a [u8]>,
    pub after: Option<Span>,
    pub prior: u32,
    pub counting: Counting,
}

impl<'a> FailCall<'a> {
    /// What is asked of core. `random` is drawn evenly over its whole range.
    pub fn failing(&self, random: u64) -> Failing<'a> {
        let Self { facts, error, fence, class, group, after, prior, counting, .. } = *self;
        Failing { facts, error, fence, class, group, after, prior, counting, random }
    }
}

impl<'a> Arguments<'a> for FailCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, id) = (argv.bytes("key")?, ID.take(&mut argv)?);
        let mut facts = GivenFacts::default();
        let (mut error, mut fence, mut class, mut group) = (None, None, None, None);
        let (mut after, mut prior, mut counting) = (None, None, None);
        while let Some(word) = argv.word() {
            if word.is("ERROR") {
                once(&mut error, "ERROR", argv.bytes("ERROR")?)?;
            } else if word.is("GROUP") {
                once(&mut group, "GROUP", argv.bytes("GROUP")?)?;
            } else if word.is("NOCOUNT") {
                count_as(&mut counting, Counting::NotCounted)?;
            } else if word.is("FINAL") {
                count_as(&mut counting, Counting::Final)?;
            } else if !facts.take(word, &mut argv, allowed)?
                && !FENCE.take_if(word, &mut fence, &mut argv)?
                && !CLASS.take_if(word, &mut class, &mut argv)?
                && !AFTER.take_if(word, &mut after, &mut argv)?
                && !PRIOR.take_if(word, &mut prior, &mut argv)?
            {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self {
            key,
            facts: facts.of(id),
            error: error.ok_or_else(|| missing("ERROR", &pages::DLQ_FAIL))?,
            fence,
            class,
            group: group.and_then(unless_empty),
            after,
            prior: prior.unwrap_or_default(),
            counting: counting.unwrap_or_default(),
        })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        ID.check(self.facts.id)?;
        FENCE.check_given(self.fence)?;
        check_facts(&self.facts, allowed)?;
        AFTER.check_given(self.after)?;
        Named::check(PRIOR, self.prior)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.facts.id);
        word_and_text("ERROR", Some(self.error), words);
        FENCE.write_given(self.fence, words);
        encode_facts(&self.facts, words);
        CLASS.write_given(self.class, words);
        word_and_text("GROUP", self.group.and_then(unless_empty), words);
        AFTER.write_given(self.after, words);
        PRIOR.write_given((self.prior != 0).then_some(self.prior), words);
        match self.counting {
            Counting::Counted => {}
            Counting::NotCounted => words.word(b"NOCOUNT"),
            Counting::Final => words.word(b"FINAL"),
        }
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

fn count_as(counting: &mut Option<Counting>, given: Counting) -> Result<(), Refused> {
    match counting.replace(given) {
        None => Ok(()),
        Some(_) => Err(Refused::new("only one of NOCOUNT and FINAL can be given, and once")),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkCall<'a> {
    pub key: &'a [u8],
    /// With an aggregate, and a payload or a reference.
    pub facts: Facts<'a>,
}

impl<'a> Arguments<'a> for ParkCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, id) = (argv.bytes("key")?, ID.take(&mut argv)?);
        let mut facts = GivenFacts::default();
        while let Some(word) = argv.word() {
            if !facts.take(word, &mut argv, allowed)? {
                return Err(argv.unexpected(word.0));
            }
        }
        let call = Self { key, facts: facts.of(id) };
        call.check(allowed)?;
        Ok(call)
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        ID.check(self.facts.id)?;
        check_facts(&self.facts, allowed)?;
        if self.facts.aggregate.is_empty() {
            return Err(missing("AGGREGATE", &pages::DLQ_PARK));
        }
        if self.facts.payload.or(self.facts.reference).is_none() {
            return Err(missing("PAYLOAD or REF", &pages::DLQ_PARK));
        }
        Ok(())
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.facts.id);
        encode_facts(&self.facts, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// What is said of a message, so far.
#[derive(Default)]
struct GivenFacts<'a> {
    payload: Option<&'a [u8]>,
    reference: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    source: Option<&'a [u8]>,
    aggregate: Option<&'a [u8]>,
    schema: Option<u32>,
    headers: Option<&'a [u8]>,
}

impl<'a> GivenFacts<'a> {
    /// Takes `word` if it begins one of them.
    fn take(&mut self, word: Word<'_>, argv: &mut Argv<'a>, allowed: &Allowed) -> Result<bool, Refused> {
        let Some((name, text)) = self.text(word) else {
            return SCHEMA.take_if(word, &mut self.schema, argv);
        };
        once(text, name, argv.bytes(name)?)?;
        check_body(self.payload, self.reference, allowed)?;
        Ok(true)
    }

    /// The text that `word` names.
    fn text(&mut self, word: Word<'_>) -> Option<(&'static str, &mut Option<&'a [u8]>)> {
        let texts = [
            ("PAYLOAD", &mut self.payload),
            ("REF", &mut self.reference),
            ("TYPE", &mut self.kind),
            ("SOURCE", &mut self.source),
            ("AGGREGATE", &mut self.aggregate),
            ("HEADERS", &mut self.headers),
        ];
        texts.into_iter().find(|(name, _)| word.is(name))
    }

    fn of(self, id: &'a [u8]) -> Facts<'a> {
        Facts {
            id,
            payload: self.payload,
            reference: self.reference,
            kind: self.kind.unwrap_or_default(),
            source: self.source.unwrap_or_default(),
            aggregate: self.aggregate.unwrap_or_default(),
            schema: self.schema,
            headers: self.headers.unwrap_or_default(),
        }
    }
}

fn check_facts(facts: &Facts<'_>, allowed: &Allowed) -> Result<(), Refused> {
    check_body(facts.payload, facts.reference, allowed)?;
    SCHEMA.check_given(facts.schema)
}

fn check_body(payload: Option<&[u8]>, reference: Option<&[u8]>, allowed: &Allowed) -> Result<(), Refused> {
    let (len, most) = (payload.map_or(0, <[u8]>::len), allowed.payload_max);
    if len > most {
        return Err(Refused::with_code(
            "TOOBIG",
            format_args!("PAYLOAD can have at most {most} bytes, got {len}; store it elsewhere and give REF"),
        ));
    }
    match (payload, reference) {
        (Some(_), Some(_)) => Err(Refused::new("only one of PAYLOAD and REF can be given")),
        _ => Ok(()),
    }
}

fn encode_facts(facts: &Facts<'_>, words: &mut impl Words) {
    word_and_text("PAYLOAD", facts.payload, words);
    word_and_text("REF", facts.reference, words);
    word_and_text("TYPE", unless_empty(facts.kind), words);
    word_and_text("SOURCE", unless_empty(facts.source), words);
    word_and_text("AGGREGATE", unless_empty(facts.aggregate), words);
    SCHEMA.write_given(facts.schema, words);
    word_and_text("HEADERS", unless_empty(facts.headers), words);
}

fn word_and_text(word: &str, text: Option<&[u8]>, words: &mut impl Words) {
    if let Some(text) = text {
        words.word(word.as_bytes());
        words.word(text);
    }
}

/// FAIL: `["RETRY", attempt, delay_ms]`, `["DEAD", deaths, group, reason]`, `["KNOWN", state, attempt]` or `["LOST", reason]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    Retry { attempt: u32, delay_ms: i64 },
    Dead { deaths: u32, group: Vec<u8>, reason: Death },
    Known { standing: Standing, attempt: u32 },
    Lost(Reason),
}

impl TryFrom<dead_letters::Failed> for Failed {
    type Error = Refused;

    /// Time to wait rounds up.
    fn try_from(failed: dead_letters::Failed) -> Result<Self, Refused> {
        Ok(match failed {
            dead_letters::Failed::Retry { attempt, delay } => Self::Retry { attempt, delay_ms: delay.ceil_ms() },
            dead_letters::Failed::Dead { deaths, group, reason } => {
                Self::Dead { deaths, group: group.into_vec(), reason }
            }
            dead_letters::Failed::Known { standing, attempt } => Self::Known { standing, attempt },
            dead_letters::Failed::Lost(reason) => Self::Lost(reason),
            dead_letters::Failed::Conflict => return Err(conflict()),
            dead_letters::Failed::Full => return Err(full()),
        })
    }
}

impl Failed {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Retry { attempt, delay_ms } => sink.verdict("RETRY", &[i64::from(*attempt), *delay_ms]),
            Self::Dead { deaths, group, reason } => {
                sink.array(4);
                sink.text(b"DEAD");
                sink.integer(i64::from(*deaths));
                sink.text(group);
                sink.text(reason.text().as_bytes());
            }
            Self::Known { standing, attempt } => write_known(*standing, *attempt, sink),
            Self::Lost(reason) => write_lost(*reason, sink),
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let failed = match fields.text()?.as_slice() {
            b"RETRY" => Self::Retry { attempt: fields.number()?, delay_ms: fields.integer()? },
            b"DEAD" => Self::Dead {
                deaths: fields.number()?,
                group: fields.text()?,
                reason: fields.word(Death::from_text, "why it died")?,
            },
            b"KNOWN" => {
                let (standing, attempt) = read_known(&mut fields)?;
                Self::Known { standing, attempt }
            }
            b"LOST" => Self::Lost(read_reason(&mut fields)?),
            _ => return Err(Unexpected("RETRY, DEAD, KNOWN or LOST")),
        };
        fields.finish(failed)
    }
}

/// PARK: `["FREE"]`, `["PARKED", position]` or `["KNOWN", state, attempt]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parked {
    Free,
    Behind { position: usize },
    Known { standing: Standing, attempt: u32 },
}

impl TryFrom<dead_letters::Parked> for Parked {
    type Error = Refused;

    fn try_from(parked: dead_letters::Parked) -> Result<Self, Refused> {
        Ok(match parked {
            dead_letters::Parked::Free => Self::Free,
            dead_letters::Parked::Behind { position } => Self::Behind { position },
            dead_letters::Parked::Known { standing, attempt } => Self::Known { standing, attempt },
            dead_letters::Parked::Conflict => return Err(conflict()),
            dead_letters::Parked::Full => return Err(full()),
        })
    }
}

impl Parked {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Free => sink.verdict("FREE", &[]),
            Self::Behind { position } => sink.verdict("PARKED", &[*position as i64]),
            Self::Known { standing, attempt } => write_known(*standing, *attempt, sink),
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let parked = match fields.text()?.as_slice() {
            b"FREE" => Self::Free,
            b"PARKED" => Self::Behind { position: fields.number()? },
            b"KNOWN" => {
                let (standing, attempt) = read_known(&mut fields)?;
                Self::Known { standing, attempt }
            }
            _ => return Err(Unexpected("FREE, PARKED or KNOWN")),
        };
        fields.finish(parked)
    }
}

fn write_known(standing: Standing, attempt: u32, sink: &mut (impl Sink + ?Sized)) {
    sink.array(3);
    sink.text(b"KNOWN");
    sink.text(standing.text().as_bytes());
    sink.integer(i64::from(attempt));
}

fn read_known(fields: &mut Fields) -> Result<(Standing, u32), Unexpected> {
    Ok((fields.word(Standing::from_text, "the name of a state")?, fields.number()?))
}

/// Other bytes under a known id.
pub fn conflict() -> Refused {
    Refused::with_code("CONFLICT", "other bytes are known under this id; do not acknowledge the message")
}

/// No room for another entry.
pub fn full() -> Refused {
    Refused::with_code("FULL", "the ledger has no room for another entry; do not acknowledge the message")
}
