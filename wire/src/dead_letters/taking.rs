//! TAKE, DONE, RENEW and RETURN: messages are given out under a lease, and settled. RENEW has the arguments of
//! [`TokenRenewCall`](crate::idempotency::TokenRenewCall).

use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use resil_core::Span;
use resil_core::dead_letters::{self, Class, Ended, Facts, GivenEntry, Message, NothingDue, Taken};
use resil_core::limits::{BACKOFF_MAX, OWNER_MAX, TAKE_MAX};
use resil_core::lock::Reason;
use smallvec::SmallVec;

use super::{ID, at_most, fence};
use crate::argv::{Argv, Refused, Word, missing};
use crate::bound::{Length, Named, Number, Text};
use crate::command::{Allowed, Arguments, Page};
use crate::holding::{Bind, Wait, lease, read_given_up, read_reason, write_given_up, write_lost};
use crate::idempotency::TOKEN;
use crate::pages;
use crate::reply::{Sink, Unexpected, Value};
use crate::words::{Words, unless_empty, unless_zero};

/// What is above `TAKE_MAX` is cut to it.
const COUNT: Number = Number::new("COUNT", 1..=u32::MAX as i64);
const META: Text = Text::new("META", OWNER_MAX);
const FENCE: Number = fence("fence");
const DELAY: Length = at_most("DELAY", BACKOFF_MAX);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub lease: Span,
    pub count: u32,
    pub wait: Wait,
    pub bind: Bind,
    pub meta: &'a [u8],
}

impl<'a> Arguments<'a> for TakeCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, token) = (argv.bytes("key")?, TOKEN.take(&mut argv)?);
        let lease = lease(allowed).take(&mut argv)?;
        let (mut count, mut wait, mut bind, mut meta) = (None, None, None, None);
        while let Some(word) = argv.word() {
            if word.is("META") {
                META.take_once(&mut meta, &mut argv)?;
            } else if !COUNT.take_if(word, &mut count, &mut argv)?
                && !Wait::take(&mut wait, word, &mut argv, allowed)?
                && !Bind::take(&mut bind, word, &mut argv, allowed)?
            {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self {
            key,
            token,
            lease,
            count: count.unwrap_or(1),
            wait: wait.unwrap_or_default(),
            bind: bind.unwrap_or_default(),
            meta: meta.unwrap_or_default(),
        })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        TOKEN.check(self.token)?;
        lease(allowed).check(self.lease)?;
        Named::check(COUNT, self.count)?;
        self.wait.check(allowed)?;
        self.bind.check(allowed)?;
        META.check_given(unless_empty(self.meta))
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.lease);
        COUNT.write_given((self.count != 1).then_some(self.count), words);
        self.wait.encode(words);
        self.bind.encode(words);
        META.write_given(unless_empty(self.meta), words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }

    fn wait(&self) -> Wait {
        self.wait
    }
}

/// Entries, each with the fence it was given out with.
pub type Fenced<'a> = SmallVec<[(&'a [u8], u64); 1]>;

/// `key id fence [id fence ...]`: DONE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneCall<'a> {
    pub key: &'a [u8],
    pub entries: Fenced<'a>,
}

impl<'a> Arguments<'a> for DoneCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        Ok(Self { key: argv.bytes("key")?, entries: take_entries(argv)? })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        check_entries(&self.entries, &pages::DLQ_DONE)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        encode_entries(&self.entries, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// `key [DELAY d] id fence [id fence ...]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnCall<'a> {
    pub key: &'a [u8],
    /// Zero: at once.
    pub delay: Span,
    pub entries: Fenced<'a>,
}

impl<'a> Arguments<'a> for ReturnCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let delay = if argv.take_word("DELAY") { DELAY.take(&mut argv)? } else { Span::ZERO };
        Ok(Self { key, delay, entries: take_entries(argv)? })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        Named::check(DELAY, self.delay)?;
        check_entries(&self.entries, &pages::DLQ_RETURN)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        // An id may be spelled like the option: with the option before it, it is the id.
        let looks_like_it = self.entries.first().is_some_and(|(id, _)| Word(id).is("DELAY"));
        DELAY.write_given(unless_zero(self.delay).or(looks_like_it.then_some(Span::ZERO)), words);
        encode_entries(&self.entries, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

fn take_entries<'a>(mut argv: Argv<'a>) -> Result<Fenced<'a>, Refused> {
    let mut entries = Fenced::with_capacity(argv.len().div_ceil(2).min(TAKE_MAX));
    loop {
        let id = ID.take(&mut argv)?;
        entries.push((id, FENCE.read(&mut argv)?));
        if argv.is_empty() {
            check_count(entries.len())?;
            return Ok(entries);
        }
    }
}

fn check_entries(entries: &Fenced<'_>, page: &Page) -> Result<(), Refused> {
    if entries.is_empty() {
        return Err(missing("id", page));
    }
    for (id, fence) in entries {
        ID.check(id)?;
        Named::check(FENCE, *fence)?;
    }
    check_count(entries.len())
}

fn check_count(count: usize) -> Result<(), Refused> {
    if count > TAKE_MAX {
        return Err(Refused::new(format_args!("at most {TAKE_MAX} entries can be named, got {count}")));
    }
    Ok(())
}

fn encode_entries(entries: &Fenced<'_>, words: &mut impl Words) {
    for (id, fence) in entries {
        words.word(id);
        Named::write(FENCE, *fence, words);
    }
}

/// TAKE: `["TAKEN", waited_ms, lease_ms, entries]`, or `["NONE" | "TIMEOUT", next_due_ms or -1]`.
///
/// An entry is `[id, fence, attempt, lapses, payload or nil, [field, value, ...]]`; fields that are empty are left out, and deaths if there were none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenReply {
    Taken {
        waited_ms: i64,
        lease_ms: i64,
        entries: Vec<GivenEntry>,
    },
    /// It did not wait, or the queue was full.
    Nothing {
        next_due_ms: i64,
    },
    /// It waited in vain.
    Timeout {
        next_due_ms: i64,
    },
}

impl From<Taken> for TakenReply {
    /// Time a caller may rely on, or has spent, rounds down.
    fn from(taken: Taken) -> Self {
        let Taken { waited, lease, entries, .. } = taken;
        Self::Taken { waited_ms: waited.floor_ms(), lease_ms: lease.floor_ms(), entries }
    }
}

impl TakenReply {
    /// Nothing was due, and it was not waited for.
    pub fn nothing(due: NothingDue) -> Self {
        Self::Nothing { next_due_ms: next_due_ms(due) }
    }

    pub fn timeout(due: NothingDue) -> Self {
        Self::Timeout { next_due_ms: next_due_ms(due) }
    }

    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Taken { waited_ms, lease_ms, entries } => {
                sink.array(4);
                sink.text(b"TAKEN");
                sink.integer(*waited_ms);
                sink.integer(*lease_ms);
                sink.array(entries.len());
                entries.iter().for_each(|entry| write_given(entry, sink));
            }
            Self::Nothing { next_due_ms } => sink.verdict("NONE", &[*next_due_ms]),
            Self::Timeout { next_due_ms } => sink.verdict("TIMEOUT", &[*next_due_ms]),
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let taken = match fields.text()?.as_slice() {
            b"TAKEN" => {
                let (waited_ms, lease_ms) = (fields.integer()?, fields.integer()?);
                let entries = fields.next()?.into_array()?.into_iter().map(read_given).collect::<Result<_, _>>()?;
                Self::Taken { waited_ms, lease_ms, entries }
            }
            b"NONE" => Self::Nothing { next_due_ms: fields.integer()? },
            b"TIMEOUT" => Self::Timeout { next_due_ms: fields.integer()? },
            _ => return Err(Unexpected("TAKEN, NONE or TIMEOUT")),
        };
        fields.finish(taken)
    }
}

/// Time to wait rounds up; -1: nothing waits.
fn next_due_ms(due: NothingDue) -> i64 {
    due.next.map_or(-1, Span::ceil_ms)
}

fn write_given(entry: &GivenEntry, sink: &mut (impl Sink + ?Sized)) {
    let message = &entry.message;
    sink.array(6);
    sink.text(message.id());
    sink.integer(entry.fence.cast_signed());
    sink.integer(i64::from(entry.attempt));
    sink.integer(i64::from(entry.lapses));
    sink.text_or_null(message.payload());
    let texts = [
        ("type", message.kind()),
        ("source", message.source()),
        ("aggregate", message.aggregate()),
        ("headers", message.headers()),
        ("ref", message.reference().unwrap_or_default()),
        ("class", entry.class.text().as_bytes()),
        ("group", &entry.group),
        ("error", &entry.error),
    ];
    let deaths = (entry.deaths > 0).then_some(entry.deaths);
    let numbers = [("schema", message.schema()), ("deaths", deaths), ("case", entry.case)];
    let fields = texts.iter().filter(|(_, text)| !text.is_empty()).count()
        + numbers.iter().filter(|(_, number)| number.is_some()).count();
    sink.array(2 * fields);
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        sink.text(name.as_bytes());
        sink.text(text);
    }
    for (name, number) in numbers.into_iter().filter_map(|(name, number)| Some((name, number?))) {
        sink.text(name.as_bytes());
        sink.integer(i64::from(number));
    }
}

fn read_given(value: Value) -> Result<GivenEntry, Unexpected> {
    let mut fields = value.into_fields()?;
    let (id, fence) = (fields.text()?, fields.number()?);
    let (attempt, lapses, payload) = (fields.number()?, fields.number()?, fields.text_or_null()?);
    let mut named = NamedFields(fields.next()?.into_array()?.into_iter().peekable());
    fields.finish(())?;
    let (kind, source, aggregate) = (named.text("type")?, named.text("source")?, named.text("aggregate")?);
    let (headers, reference) = (named.text("headers")?, named.text("ref")?);
    let class = Class::from_text(&named.text("class")?).ok_or(Unexpected("the name of a class"))?;
    let (group, error) = (named.text("group")?, named.text("error")?);
    let (schema, deaths, case) = (named.number("schema")?, named.number("deaths")?, named.number("case")?);
    named.finish()?;
    let facts = Facts {
        id: &id,
        payload: payload.as_deref(),
        reference: unless_empty(&reference),
        kind: &kind,
        source: &source,
        aggregate: &aggregate,
        schema,
        headers: &headers,
    };
    if facts.payload.is_some() && facts.reference.is_some() {
        return Err(Unexpected("a payload or a reference"));
    }
    Ok(GivenEntry {
        message: Message::new(&facts),
        fence,
        attempt,
        lapses,
        class,
        group: Arc::from(group),
        deaths: deaths.unwrap_or_default(),
        error: Arc::from(error),
        case,
    })
}

/// Names and values in turn, in the order in which they are written.
struct NamedFields(Peekable<IntoIter<Value>>);

impl NamedFields {
    fn value(&mut self, name: &str) -> Result<Option<Value>, Unexpected> {
        let is_it = |value: &Value| matches!(value, Value::Text(text) if text == name.as_bytes());
        match self.0.next_if(is_it) {
            Some(_) => self.0.next().map(Some).ok_or(Unexpected("the value of a field")),
            None => Ok(None),
        }
    }

    /// Empty if it is not there.
    fn text(&mut self, name: &str) -> Result<Vec<u8>, Unexpected> {
        match self.value(name)?.map(Value::into_text).transpose()? {
            Some(text) if text.is_empty() => Err(Unexpected("a text that is not empty")),
            text => Ok(text.unwrap_or_default()),
        }
    }

    fn number(&mut self, name: &str) -> Result<Option<u32>, Unexpected> {
        let number = self.value(name)?.map(|value| value.integer()).transpose()?;
        number.map(|number| u32::try_from(number).map_err(|_| Unexpected("a number within its bounds"))).transpose()
    }

    fn finish(mut self) -> Result<(), Unexpected> {
        if self.0.next().is_none() { Ok(()) } else { Err(Unexpected("no further field")) }
    }
}

/// DONE and RETURN: `[word]` or `["LOST", reason]`; for several entries a list of these.
pub fn write_ended(word: &str, ended: &[Ended], sink: &mut (impl Sink + ?Sized)) {
    if ended.len() != 1 {
        sink.array(ended.len());
    }
    for one in ended {
        let lost = match one {
            Ended::Ended => None,
            Ended::Lost(reason) => Some(*reason),
        };
        write_given_up(word, lost, sink);
    }
}

/// The reply to a call that named so many entries.
pub(crate) fn read_ended(word: &str, value: Value, entries: usize) -> Result<Vec<Ended>, Unexpected> {
    let values = if entries == 1 { vec![value] } else { value.into_array()? };
    if values.len() != entries {
        return Err(Unexpected("a verdict for each entry"));
    }
    let read = |value| Ok(read_given_up(word, value)?.map_or(Ended::Ended, Ended::Lost));
    values.into_iter().map(read).collect()
}

/// RENEW: `["GRANTED", entries, lease_ms]` or `["LOST", reason]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchRenewed {
    Granted { entries: usize, lease_ms: i64 },
    Lost(Reason),
}

impl From<dead_letters::BatchRenewed> for BatchRenewed {
    /// Time a caller may rely on rounds down.
    fn from(renewed: dead_letters::BatchRenewed) -> Self {
        match renewed {
            dead_letters::BatchRenewed::Granted { entries, lease } => {
                Self::Granted { entries, lease_ms: lease.floor_ms() }
            }
            dead_letters::BatchRenewed::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl BatchRenewed {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Granted { entries, lease_ms } => sink.verdict("GRANTED", &[*entries as i64, *lease_ms]),
            Self::Lost(reason) => write_lost(*reason, sink),
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let renewed = match fields.text()?.as_slice() {
            b"GRANTED" => Self::Granted { entries: fields.number()?, lease_ms: fields.integer()? },
            b"LOST" => Self::Lost(read_reason(&mut fields)?),
            _ => return Err(Unexpected("GRANTED or LOST")),
        };
        fields.finish(renewed)
    }
}
