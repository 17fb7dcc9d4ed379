//! `RES.POLICY`: SET, GET, HISTORY, DELETE and CHECK.

use resil_core::guard::{Guard, PolicyDeleted, PolicySet, PolicyVersion, SetAction, Settings, read_policy};
use resil_core::limits::TEXT_MAX;
use resil_core::policy::Invalid;

use crate::argv::{Argv, Refused};
use crate::bound::{Named, Number, Text};
use crate::command::{Allowed, Arguments};
use crate::reply::{Sink, Unexpected, Value};
use crate::words::Words;

const IF: Number = Number::new("IF", 0..=i64::MAX);
const VERSION: Number = Number::new("VERSION", 1..=i64::MAX);
const ACTOR: Text = Text::or_empty("ACTOR", TEXT_MAX);
const REASON: Text = Text::or_empty("REASON", TEXT_MAX);

/// The error for a key without a live policy.
pub fn no_policy() -> Refused {
    Refused::with_code("NOPOLICY", "there is no policy under this key; create one with RES.POLICY SET")
}

fn other_version(current: u64) -> Refused {
    let is = if current == 0 { "there is none".to_owned() } else { format!("it has version {current}") };
    Refused::with_code("VERSION", format_args!("the policy is not at the version that IF names: {is}"))
}

/// Reads a document: its canonical text, and what it says.
pub fn read_document(json: &[u8]) -> Result<(String, Settings), Invalid> {
    match std::str::from_utf8(json) {
        Ok(json) => read_policy(json),
        Err(_) => Err(Invalid { path: "document".to_owned(), text: "must be UTF-8".to_owned() }),
    }
}

/// The error for a document that cannot be stored.
pub fn invalid(invalid: &Invalid) -> Refused {
    Refused::with_code("INVALID", invalid)
}

/// `SET key json [IF version] [ACTOR a] [REASON r]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySetCall<'a> {
    pub key: &'a [u8],
    pub json: &'a [u8],
    pub expected: Option<u64>,
    pub actor: Option<&'a [u8]>,
    pub reason: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for PolicySetCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (key, json) = (argv.bytes("key")?, argv.bytes("json")?);
        let mut call = Self { key, json, expected: None, actor: None, reason: None };
        while let Some(word) = argv.word() {
            if word.is("ACTOR") {
                ACTOR.take_once(&mut call.actor, &mut argv)?;
            } else if word.is("REASON") {
                REASON.take_once(&mut call.reason, &mut argv)?;
            } else if !IF.take_if(word, &mut call.expected, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        IF.check_given(self.expected)?;
        ACTOR.check_given(self.actor)?;
        REASON.check_given(self.reason)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.json);
        IF.write_given(self.expected, words);
        ACTOR.write_given(self.actor, words);
        REASON.write_given(self.reason, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// `DELETE key [IF version] [ACTOR a] [REASON r]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDeleteCall<'a> {
    pub key: &'a [u8],
    pub expected: Option<u64>,
    pub actor: Option<&'a [u8]>,
    pub reason: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for PolicyDeleteCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let mut call = Self { key: argv.bytes("key")?, expected: None, actor: None, reason: None };
        while let Some(word) = argv.word() {
            if word.is("ACTOR") {
                ACTOR.take_once(&mut call.actor, &mut argv)?;
            } else if word.is("REASON") {
                REASON.take_once(&mut call.reason, &mut argv)?;
            } else if !IF.take_if(word, &mut call.expected, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        IF.check_given(self.expected)?;
        ACTOR.check_given(self.actor)?;
        REASON.check_given(self.reason)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        IF.write_given(self.expected, words);
        ACTOR.write_given(self.actor, words);
        REASON.write_given(self.reason, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// `GET key [VERSION v]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyGetCall<'a> {
    pub key: &'a [u8],
    pub version: Option<u64>,
}

impl<'a> Arguments<'a> for PolicyGetCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let mut call = Self { key: argv.bytes("key")?, version: None };
        while let Some(word) = argv.word() {
            if !VERSION.take_if(word, &mut call.version, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        VERSION.check_given(self.version)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        VERSION.write_given(self.version, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// `CHECK json`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyCheckCall<'a> {
    pub json: &'a [u8],
}

impl<'a> Arguments<'a> for PolicyCheckCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let json = argv.bytes("json")?;
        argv.finish()?;
        Ok(Self { json })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        Ok(())
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.json);
    }

    fn key(&self) -> Option<&'a [u8]> {
        None
    }
}

/// What happened to a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyAction {
    Set(SetAction),
    Deleted,
}

impl PolicyAction {
    pub fn text(self) -> &'static str {
        match self {
            Self::Set(action) => action.text(),
            Self::Deleted => "deleted",
        }
    }

    pub fn from_text(text: &[u8]) -> Option<Self> {
        if text == b"deleted" { Some(Self::Deleted) } else { SetAction::from_text(text).map(Self::Set) }
    }
}

/// SET and DELETE: `[version, "created" | "changed" | "same" | "deleted"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyChanged {
    pub version: u64,
    pub action: PolicyAction,
}

impl TryFrom<PolicySet> for PolicyChanged {
    type Error = Refused;

    fn try_from(set: PolicySet) -> Result<Self, Refused> {
        match set {
            PolicySet::Done { version, action } => Ok(Self { version, action: PolicyAction::Set(action) }),
            PolicySet::Version { current } => Err(other_version(current)),
        }
    }
}

impl TryFrom<PolicyDeleted> for PolicyChanged {
    type Error = Refused;

    fn try_from(deleted: PolicyDeleted) -> Result<Self, Refused> {
        match deleted {
            PolicyDeleted::Done { version } => Ok(Self { version, action: PolicyAction::Deleted }),
            PolicyDeleted::Version { current } => Err(other_version(current)),
            PolicyDeleted::NoPolicy => Err(no_policy()),
        }
    }
}

impl PolicyChanged {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        sink.array(2);
        sink.integer(self.version.cast_signed());
        sink.text(self.action.text().as_bytes());
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let (version, what) = (fields.number()?, "created, changed, same or deleted");
        let action = fields.word(PolicyAction::from_text, what)?;
        fields.finish(Self { version, action })
    }
}

/// GET: a map, or nil if there is no such policy.
pub fn write_policy(guard: &Guard, version: Option<u64>, sink: &mut (impl Sink + ?Sized)) {
    let found = match version {
        None => guard.versions.current(),
        Some(version) => guard.versions.get(version),
    };
    let Some((found, document)) = found.and_then(|found| Some((found, found.document.as_deref()?))) else {
        return sink.null();
    };
    sink.map(5);
    sink.text(b"version");
    sink.integer(found.version.cast_signed());
    sink.text(b"policy");
    sink.text(document.as_bytes());
    write_author(found, sink);
}

fn write_author(version: &PolicyVersion, sink: &mut (impl Sink + ?Sized)) {
    sink.text(b"at_ms");
    sink.integer(version.at.as_us() / 1_000);
    sink.text(b"actor");
    sink.text(&version.actor);
    sink.text(b"reason");
    sink.text(&version.reason);
}

/// HISTORY: a map for each version, the newest first.
pub fn write_history(guard: &Guard, sink: &mut (impl Sink + ?Sized)) {
    sink.array(guard.versions.len());
    for version in guard.versions.iter() {
        sink.map(5);
        sink.text(b"version");
        sink.integer(version.version.cast_signed());
        sink.text(b"deleted");
        sink.integer(version.document.is_none().into());
        write_author(version, sink);
    }
}

/// CHECK: `["OK", canonical]` or `["INVALID", path, text]`.
pub fn write_checked(json: &[u8], sink: &mut (impl Sink + ?Sized)) {
    match read_document(json) {
        Ok((canonical, _)) => {
            sink.array(2);
            sink.text(b"OK");
            sink.text(canonical.as_bytes());
        }
        Err(Invalid { path, text }) => {
            sink.array(3);
            sink.text(b"INVALID");
            sink.text(path.as_bytes());
            sink.text(text.as_bytes());
        }
    }
}

/// GET as a client reads it.
pub(crate) fn read_get(value: Value) -> Result<Value, Unexpected> {
    if value == Value::Null { Ok(value) } else { value.into_map() }
}

/// HISTORY as a client reads it.
pub(crate) fn read_history(value: Value) -> Result<Value, Unexpected> {
    let rows = value.into_array()?.into_iter().map(Value::into_map).collect::<Result<_, _>>()?;
    Ok(Value::Array(rows))
}

/// CHECK as a client reads it.
pub(crate) fn read_checked(value: Value) -> Result<Value, Unexpected> {
    let is_word = |value: &Value, word: &[u8]| matches!(value, Value::Text(text) if text == word);
    match value.array()? {
        [word, Value::Text(_)] if is_word(word, b"OK") => Ok(value),
        [word, Value::Text(_), Value::Text(_)] if is_word(word, b"INVALID") => Ok(value),
        _ => Err(Unexpected("OK and a document, or INVALID, a path and a text")),
    }
}
