//! GET, LIST and INFO: what is asked to be shown, and the replies. The maps in them are written by `maps`.

use resil_core::dead_letters::{ListFilter, Place, Standing};
use resil_core::limits::{INFO_LIMIT_DEFAULT, TAKE_MAX};

use super::{AGGREGATE, CASE, CLASS, Choice, GROUP_MAX, ID, SINCE, TYPE, UNTIL};
use crate::argv::{Argv, Refused, Word};
use crate::bound::{Named, Number, Text};
use crate::command::{Allowed, Arguments};
use crate::reply::{Sink, Unexpected, Value};
use crate::words::Words;

const STATE: Choice<Place> = Choice { name: "STATE", all: &Place::ALL, text: Place::text };
const GROUP: Text = Text::new("GROUP", GROUP_MAX);
const CASE_OPTION: Number = Number::new("CASE", 1..=u32::MAX as i64);
const CURSOR: Number = Number::new("CURSOR", 0..=i64::MAX);
const LIMIT: Number = Number::count("LIMIT", TAKE_MAX as u32);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryCall<'a> {
    pub key: &'a [u8],
    pub id: &'a [u8],
    /// STATE: nothing else is wanted.
    pub only_state: bool,
}

impl<'a> Arguments<'a> for EntryCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (key, id) = (argv.bytes("key")?, ID.take(&mut argv)?);
        let only_state = argv.take_word("STATE");
        argv.finish()?;
        Ok(Self { key, id, only_state })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        ID.check(self.id)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.id);
        super::word_if(self.only_state, "STATE", words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// `[CURSOR c] [LIMIT n]`: which part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// 0 begins.
    pub cursor: u64,
    pub limit: usize,
}

impl Default for Part {
    fn default() -> Self {
        Self { cursor: 0, limit: INFO_LIMIT_DEFAULT as usize }
    }
}

/// As far as it is given.
#[derive(Default)]
struct GivenPart {
    cursor: Option<u64>,
    limit: Option<u32>,
}

impl GivenPart {
    fn take(&mut self, word: Word<'_>, argv: &mut Argv<'_>) -> Result<bool, Refused> {
        Ok(CURSOR.take_if(word, &mut self.cursor, argv)? || LIMIT.take_if(word, &mut self.limit, argv)?)
    }

    fn part(self) -> Part {
        let limit = self.limit.unwrap_or(INFO_LIMIT_DEFAULT) as usize;
        Part { cursor: self.cursor.unwrap_or_default(), limit }
    }
}

impl Part {
    fn check(self) -> Result<(), Refused> {
        Named::check(CURSOR, self.cursor)?;
        LIMIT.check(self.limit as i64)
    }

    fn encode(self, words: &mut impl Words) {
        CURSOR.write_given((self.cursor != 0).then_some(self.cursor), words);
        LIMIT.write_given((self.limit != INFO_LIMIT_DEFAULT as usize).then_some(self.limit as u64), words);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCall<'a> {
    pub key: &'a [u8],
    /// Its instants are whole milliseconds.
    pub filter: ListFilter<'a>,
    pub part: Part,
}

impl<'a> Arguments<'a> for ListCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let (mut filter, mut part) = (ListFilter::default(), GivenPart::default());
        while let Some(word) = argv.word() {
            if word.is("TYPE") {
                TYPE.take_once(&mut filter.kind, &mut argv)?;
            } else if word.is("GROUP") {
                GROUP.take_once(&mut filter.group, &mut argv)?;
            } else if word.is("AGGREGATE") {
                AGGREGATE.take_once(&mut filter.aggregate, &mut argv)?;
            } else if !STATE.take_if(word, &mut filter.place, &mut argv)?
                && !CLASS.take_if(word, &mut filter.class, &mut argv)?
                && !CASE_OPTION.take_if(word, &mut filter.case, &mut argv)?
                && !SINCE.take_if(word, &mut filter.since, &mut argv)?
                && !UNTIL.take_if(word, &mut filter.until, &mut argv)?
                && !part.take(word, &mut argv)?
            {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self { key, filter, part: part.part() })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        let ListFilter { kind, group, aggregate, case, since, until, .. } = self.filter;
        TYPE.check_given(kind)?;
        GROUP.check_given(group)?;
        AGGREGATE.check_given(aggregate)?;
        CASE_OPTION.check_given(case)?;
        SINCE.check_given(since)?;
        UNTIL.check_given(until)?;
        self.part.check()
    }

    fn encode(&self, words: &mut impl Words) {
        let ListFilter { place, kind, class, group, aggregate, case, since, until } = self.filter;
        words.word(self.key);
        STATE.write_given(place, words);
        TYPE.write_given(kind, words);
        CLASS.write_given(class, words);
        GROUP.write_given(group, words);
        AGGREGATE.write_given(aggregate, words);
        CASE_OPTION.write_given(case, words);
        SINCE.write_given(since, words);
        UNTIL.write_given(until, words);
        self.part.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// What INFO is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LedgerAspect {
    /// How much there is.
    #[default]
    Counts,
    Groups,
    Cases,
    Case(u32),
    Alerts,
    Audit,
    Config,
}

impl LedgerAspect {
    fn is_list(self) -> bool {
        matches!(self, Self::Groups | Self::Cases | Self::Alerts | Self::Audit)
    }

    /// The one that `word` begins.
    fn take(word: Word<'_>, argv: &mut Argv<'_>) -> Result<Option<Self>, Refused> {
        if word.is("CASE") {
            return CASE.take_u32(argv).map(|case| Some(Self::Case(case)));
        }
        let plain = [Self::Groups, Self::Cases, Self::Alerts, Self::Audit, Self::Config];
        Ok(plain.into_iter().find(|aspect| word.is(aspect.word())))
    }

    fn word(self) -> &'static str {
        match self {
            Self::Counts => "",
            Self::Groups => "GROUPS",
            Self::Cases => "CASES",
            Self::Case(_) => "CASE",
            Self::Alerts => "ALERTS",
            Self::Audit => "AUDIT",
            Self::Config => "CONFIG",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerInfoCall<'a> {
    pub key: &'a [u8],
    pub aspect: LedgerAspect,
    /// Of a list.
    pub part: Part,
}

impl<'a> Arguments<'a> for LedgerInfoCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let (mut aspect, mut part) = (None, GivenPart::default());
        while let Some(word) = argv.word() {
            if let Some(given) = LedgerAspect::take(word, &mut argv)? {
                if aspect.replace(given).is_some() {
                    return Err(Refused::new("only one of GROUPS, CASES, CASE, ALERTS, AUDIT and CONFIG can be given"));
                }
            } else if !part.take(word, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        let call = Self { key, aspect: aspect.unwrap_or_default(), part: part.part() };
        call.check(allowed)?;
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        if let LedgerAspect::Case(case) = self.aspect {
            CASE.check(case.into())?;
        }
        self.part.check()?;
        if !self.aspect.is_list() && self.part != Part::default() {
            return Err(Refused::new("CURSOR and LIMIT are for lists: GROUPS, CASES, ALERTS and AUDIT"));
        }
        Ok(())
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        super::word_if(self.aspect != LedgerAspect::Counts, self.aspect.word(), words);
        if let LedgerAspect::Case(case) = self.aspect {
            words.number(case.into());
        }
        self.part.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// GET, LIST and INFO: nil, a state, a map, or `[cursor, maps]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerReply {
    /// There is no such entry, or case.
    Nothing,
    /// GET STATE.
    State(Standing),
    Map(Value),
    /// Cursor 0: this was the end.
    List {
        cursor: u64,
        rows: Vec<Value>,
    },
}

impl LedgerReply {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Nothing => sink.null(),
            Self::State(standing) => sink.text(standing.text().as_bytes()),
            Self::Map(map) => map.write(sink),
            Self::List { cursor, rows } => write_list(*cursor, rows, |row, sink| row.write(sink), sink),
        }
    }

    pub(crate) fn read_get(value: Value, call: &EntryCall<'_>) -> Result<Self, Unexpected> {
        match value {
            Value::Null => Ok(Self::Nothing),
            value if call.only_state => {
                Standing::from_text(value.text()?).map(Self::State).ok_or(Unexpected("the name of a state"))
            }
            value => value.into_map().map(Self::Map),
        }
    }

    pub(crate) fn read_list(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let cursor = fields.number()?;
        let rows = fields.next()?.into_array()?.into_iter().map(Value::into_map).collect::<Result<_, _>>()?;
        fields.finish(Self::List { cursor, rows })
    }

    pub(crate) fn read_info(value: Value, call: &LedgerInfoCall<'_>) -> Result<Self, Unexpected> {
        match (call.aspect, value) {
            (LedgerAspect::Case(_), Value::Null) => Ok(Self::Nothing),
            (aspect, value) if aspect.is_list() => Self::read_list(value),
            (_, value) => value.into_map().map(Self::Map),
        }
    }
}

/// `[cursor, rows]`, each row written by `write`.
pub fn write_list<T, S: Sink + ?Sized>(cursor: u64, rows: &[T], mut write: impl FnMut(&T, &mut S), sink: &mut S) {
    sink.array(2);
    sink.integer(cursor.cast_signed());
    sink.array(rows.len());
    rows.iter().for_each(|row| write(row, sink));
}
