//! `RES.LIST` and `RES.TOP`: what an operator looks at without knowing a key. The rows are in `rows` and `in_flight`, patterns in `glob`.

mod field;
mod glob;
mod in_flight;
mod rows;

use resil_core::circuit_breaker::StateName;
use resil_core::limits::{INFO_LIMIT_DEFAULT, TAKE_MAX, TEXT_MAX};

pub use self::glob::matches;
pub use self::rows::{
    BreakerRow, BulkheadRow, DeniedRow, HeldRow, LedgerRow, LoadRow, LockRow, OverviewRow, PolicyRow, RowField, RunRow,
    TopRow, WaitingRow,
};
use crate::argv::{Argv, Refused, Word, quoted};
use crate::bound::{Named, Number, Text};
use crate::command::{Allowed, Arguments};
use crate::reply::{Sink, Unexpected, Value};
use crate::words::Words;

const CURSOR: Number = Number::new("CURSOR", 0..=i64::MAX);
const LIMIT: Number = Number::count("LIMIT", TAKE_MAX as u32);
const TOP_LIMIT: Number = Number::count("LIMIT", TOP_MAX);
const MATCH: Text = Text::new("MATCH", TEXT_MAX);

/// Rows of a `RES.TOP`.
pub const TOP_MAX: u32 = 128;
pub const TOP_DEFAULT: u32 = 10;

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OverviewKind {
    Breaker,
    Lock,
    Bulkhead,
    Policy,
    Dlq,
    Run,
    Load,
}

impl OverviewKind {
    pub const ALL: [Self; 7] =
        [Self::Breaker, Self::Lock, Self::Bulkhead, Self::Policy, Self::Dlq, Self::Run, Self::Load];

    /// As the command takes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Breaker => "BREAKER",
            Self::Lock => "LOCK",
            Self::Bulkhead => "BULKHEAD",
            Self::Policy => "POLICY",
            Self::Dlq => "DLQ",
            Self::Run => "RUN",
            Self::Load => "LOAD",
        }
    }

    /// As rows name it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Breaker => "breaker",
            Self::Lock => "lock",
            Self::Bulkhead => "bulkhead",
            Self::Policy => "policy",
            Self::Dlq => "dlq",
            Self::Run => "idempotency",
            Self::Load => "flight",
        }
    }

    /// The states that its rows can have.
    pub fn states(self) -> impl Iterator<Item = &'static str> {
        let plain: &'static [&'static str] = match self {
            Self::Breaker => &[],
            Self::Lock => &["held", "contended"],
            Self::Bulkhead => &["free", "full"],
            Self::Policy => &["live", "deleted"],
            Self::Dlq => &["running", "paused"],
            Self::Run => &["running", "contended", "held"],
            Self::Load => &["loading", "contended"],
        };
        let breakers = StateName::ALL.iter().filter(move |_| self == Self::Breaker).map(|state| state.text());
        plain.iter().copied().chain(breakers)
    }

    /// The state of this name.
    fn state(self, given: &[u8]) -> Result<&'static str, Refused> {
        self.states().find(|state| Word(given).is(state)).ok_or_else(|| {
            let all: Vec<&str> = self.states().collect();
            Refused::new(format_args!(
                "STATE of a {} must be one of {}, got {}",
                self.word(),
                all.join(", "),
                quoted(given)
            ))
        })
    }
}

/// `LIST kind [STATE s] [MATCH glob] [CURSOR c] [LIMIT n]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverviewCall<'a> {
    pub kind: OverviewKind,
    /// One of [`OverviewKind::states`].
    pub state: Option<&'a str>,
    pub pattern: Option<&'a [u8]>,
    /// 0 begins.
    pub cursor: u64,
    pub limit: u32,
}

impl OverviewCall<'_> {
    pub fn all(kind: OverviewKind) -> Self {
        Self { kind, state: None, pattern: None, cursor: 0, limit: INFO_LIMIT_DEFAULT }
    }

    /// Whether a key of this name is asked for.
    pub fn wants_key(&self, key: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| matches(pattern, key))
    }

    pub fn wants_state(&self, state: &str) -> bool {
        self.state.is_none_or(|wanted| wanted == state)
    }
}

impl<'a> Arguments<'a> for OverviewCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let kind = one_of(&OverviewKind::ALL, OverviewKind::word, &mut argv)?;
        let (mut state, mut pattern, mut cursor, mut limit) = (None, None, None, None);
        while let Some(word) = argv.word() {
            if word.is("STATE") {
                let given = kind.state(argv.bytes("STATE")?)?;
                crate::argv::once(&mut state, "STATE", given)?;
            } else if word.is("MATCH") {
                MATCH.take_once(&mut pattern, &mut argv)?;
            } else if !CURSOR.take_if(word, &mut cursor, &mut argv)? && !LIMIT.take_if(word, &mut limit, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        let limit = limit.unwrap_or(INFO_LIMIT_DEFAULT);
        Ok(Self { kind, state, pattern, cursor: cursor.unwrap_or_default(), limit })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        if let Some(state) = self.state {
            self.kind.state(state.as_bytes())?;
        }
        MATCH.check_given(self.pattern)?;
        Named::check(CURSOR, self.cursor)?;
        Named::check(LIMIT, self.limit)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.kind.word().as_bytes());
        if let Some(state) = self.state {
            words.word(b"STATE");
            words.word(state.as_bytes());
        }
        MATCH.write_given(self.pattern, words);
        CURSOR.write_given((self.cursor != 0).then_some(self.cursor), words);
        LIMIT.write_given((self.limit != INFO_LIMIT_DEFAULT).then_some(self.limit), words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        None
    }
}

/// What `RES.TOP` ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopKind {
    Denied,
    Waiting,
    Held,
}

impl TopKind {
    pub const ALL: [Self; 3] = [Self::Denied, Self::Waiting, Self::Held];

    pub fn word(self) -> &'static str {
        match self {
            Self::Denied => "DENIED",
            Self::Waiting => "WAITING",
            Self::Held => "HELD",
        }
    }
}

/// `TOP kind [LIMIT n]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopCall {
    pub kind: TopKind,
    pub limit: u32,
}

impl<'a> Arguments<'a> for TopCall {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let kind = one_of(&TopKind::ALL, TopKind::word, &mut argv)?;
        let mut limit = None;
        while let Some(word) = argv.word() {
            if !TOP_LIMIT.take_if(word, &mut limit, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self { kind, limit: limit.unwrap_or(TOP_DEFAULT) })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        Named::check(TOP_LIMIT, self.limit)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.kind.word().as_bytes());
        TOP_LIMIT.write_given((self.limit != TOP_DEFAULT).then_some(self.limit), words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        None
    }
}

/// The kind, which comes first.
fn one_of<T: Copy>(all: &[T], word: fn(T) -> &'static str, argv: &mut Argv<'_>) -> Result<T, Refused> {
    let given = argv.bytes("kind")?;
    all.iter().copied().find(|one| Word(given).is(word(*one))).ok_or_else(|| {
        let all: Vec<&str> = all.iter().copied().map(word).collect();
        Refused::new(format_args!("kind must be one of {}, got {}", all.join(", "), quoted(given)))
    })
}

/// `[cursor, rows]`, the cursor as SCAN has it: a text, "0" at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// 0: this was the end.
    pub cursor: u64,
    pub rows: Vec<OverviewRow>,
}

impl Listed {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        sink.array(2);
        sink.text(self.cursor.to_string().as_bytes());
        sink.array(self.rows.len());
        self.rows.iter().for_each(|row| row.write(sink));
    }

    pub(crate) fn read(value: Value, kind: OverviewKind) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let cursor = fields.text()?;
        let cursor = std::str::from_utf8(&cursor).ok().and_then(|text| text.parse().ok());
        let cursor = cursor.ok_or(Unexpected("a cursor"))?;
        let rows = fields.next()?.into_array()?.into_iter();
        let rows = rows.map(|row| OverviewRow::read(row, kind)).collect::<Result<_, _>>()?;
        fields.finish(Self { cursor, rows })
    }
}

/// The reply to `RES.TOP`, the largest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked(pub Vec<TopRow>);

impl Ranked {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        sink.array(self.0.len());
        self.0.iter().for_each(|row| row.write(sink));
    }

    pub(crate) fn read(value: Value, kind: TopKind) -> Result<Self, Unexpected> {
        value.into_array()?.into_iter().map(|row| TopRow::read(row, kind)).collect::<Result<_, _>>().map(Self)
    }
}
