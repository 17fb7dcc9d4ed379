//! What is shown of a ledger: messages, counts, groups, cases, alerts, the audit.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use resil_core::dead_letters::{AlertKind, Category, Class, Death, Standing};
use resil_wire::reply::{Unexpected, Value};
use serde::Serialize;

use super::LetterState;
use super::changes::RedriveRate;
use super::governing::CauseCategory;
use super::letter::FailureClass;
use super::rows::{FromRow, RowFields, read_moment, read_ms, read_number, read_text};
use crate::holding::from_ms;
use crate::settings::{moment_text, span_text};

/// Why a message died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeathReason {
    /// It failed more often than its class is retried.
    Retries,
    /// Its handler said so.
    Final,
    /// Its takers were not heard of again, several times.
    Crash,
    /// It failed for a day without being counted.
    Age,
}

impl DeathReason {
    /// As it is serialized.
    pub fn text(self) -> &'static str {
        match self {
            Self::Retries => "retries",
            Self::Final => "final",
            Self::Crash => "crash",
            Self::Age => "age",
        }
    }
}

impl From<Death> for DeathReason {
    fn from(death: Death) -> Self {
        match death {
            Death::Retries => Self::Retries,
            Death::Final => Self::Final,
            Death::Crash => Self::Crash,
            Death::Age => Self::Age,
        }
    }
}

/// A message, as the ledger has it.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterView {
    pub id: String,
    pub state: LetterState,
    pub attempt: u32,
    pub lapses: u32,
    pub deaths: u32,
    pub reason: Option<DeathReason>,
    pub kind: Option<String>,
    pub source: Option<String>,
    pub aggregate: Option<String>,
    pub schema: Option<u32>,
    #[serde(skip)]
    pub headers: Option<Bytes>,
    /// `None` in a list, if it is stored elsewhere, or once it is resolved.
    #[serde(skip)]
    pub payload: Option<Bytes>,
    pub reference: Option<String>,
    pub failure_class: FailureClass,
    pub group: Option<String>,
    pub first_error: Option<String>,
    pub last_error: Option<String>,
    #[serde(with = "moment_text")]
    pub first_at: SystemTime,
    #[serde(with = "moment_text")]
    pub last_at: SystemTime,
    #[serde(serialize_with = "moment_text::optional::serialize")]
    pub died_at: Option<SystemTime>,
    #[serde(serialize_with = "moment_text::optional::serialize")]
    pub due_at: Option<SystemTime>,
    /// It is kept whatever happens, and not redriven.
    pub held: bool,
    /// The last ones, the latest last.
    pub attempts: Vec<LetterAttempt>,
    /// The cases that redrove it.
    pub cases: Vec<u32>,
    /// What was longer than the ledger keeps.
    pub cut: Vec<String>,
}

/// Without payload and headers: messages are written to logs.
impl std::fmt::Debug for LetterView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LetterView")
            .field("id", &self.id)
            .field("state", &self.state)
            .field("attempt", &self.attempt)
            .field("deaths", &self.deaths)
            .field("reason", &self.reason)
            .field("kind", &self.kind)
            .field("group", &self.group)
            .field("last_error", &self.last_error)
            .field("attempts", &self.attempts)
            .field("payload_bytes", &self.payload.as_ref().map(Bytes::len))
            .finish_non_exhaustive()
    }
}

/// One failure of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterAttempt {
    #[serde(with = "moment_text")]
    pub at: SystemTime,
    pub failure_class: FailureClass,
    /// What it waited afterwards; zero if it died.
    #[serde(with = "span_text")]
    pub delay: Duration,
}

fn class_of(text: &[u8]) -> Option<FailureClass> {
    Class::from_text(text).map(Into::into)
}

impl FromRow for LetterView {
    fn from_row(row: &RowFields<'_>) -> Result<Self, Unexpected> {
        let state = row.word("state", Standing::from_text)?.ok_or(Unexpected("a state"))?;
        let attempt = |value: &Value| match value.array()? {
            [at, class, delay] => Ok(LetterAttempt {
                at: read_moment(at)?,
                failure_class: class_of(class.text()?).ok_or(Unexpected("a class"))?,
                delay: read_ms(delay)?,
            }),
            _ => Err(Unexpected("an attempt")),
        };
        Ok(Self {
            id: row.text("id")?.unwrap_or_default(),
            state: state.into(),
            attempt: row.number("attempt")?,
            lapses: row.number("lapses")?,
            deaths: row.number("deaths")?,
            reason: row.word("reason", Death::from_text)?.map(Into::into),
            kind: row.text("type")?,
            source: row.text("source")?,
            aggregate: row.text("aggregate")?,
            schema: row.maybe_number("schema")?,
            headers: row.bytes("headers")?,
            payload: row.bytes("payload")?,
            reference: row.text("ref")?,
            failure_class: row.word("class", class_of)?.ok_or(Unexpected("a class"))?,
            group: row.text("group")?,
            first_error: row.text("first_error")?,
            last_error: row.text("last_error")?,
            first_at: row.moment_of("first_at")?,
            last_at: row.moment_of("last_at")?,
            died_at: row.moment("died_at")?,
            due_at: row.moment("due_at")?,
            held: row.flag("held")?,
            attempts: row.list("attempts", attempt)?,
            cases: row.list("cases", read_number)?,
            cut: row.list("cut", read_text)?,
        })
    }
}

/// How much is in a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerInfo {
    pub waiting: u64,
    pub taken: u64,
    pub parked: u64,
    pub dead: u64,
    pub resolved: u64,
    pub archived: u64,
    pub held: u64,
    pub entries: u64,
    pub bytes: u64,
    pub groups: u64,
    pub cases_open: u64,
    pub alerts_unseen: u64,
    #[serde(serialize_with = "moment_text::optional::serialize")]
    pub paused_until: Option<SystemTime>,
}

impl FromRow for LedgerInfo {
    fn from_row(row: &RowFields<'_>) -> Result<Self, Unexpected> {
        Ok(Self {
            waiting: row.number("waiting")?,
            taken: row.number("taken")?,
            parked: row.number("parked")?,
            dead: row.number("dead")?,
            resolved: row.number("resolved")?,
            archived: row.number("archived")?,
            held: row.number("held")?,
            entries: row.number("entries")?,
            bytes: row.number("bytes")?,
            groups: row.number("groups")?,
            cases_open: row.number("cases_open")?,
            alerts_unseen: row.number("alerts_unseen")?,
            paused_until: row.moment("paused_until")?,
        })
    }
}

/// Failures that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterGroup {
    pub group: String,
    pub kind: Option<String>,
    /// How many are dead now.
    pub dead: u64,
    /// How many are in the ledger, in any state.
    pub entries: u64,
    /// How often one died.
    pub deaths: u64,
    #[serde(with = "moment_text")]
    pub first_at: SystemTime,
    #[serde(with = "moment_text")]
    pub last_at: SystemTime,
    /// An error of one of them.
    pub sample: Option<String>,
    /// The open cases that cover it.
    pub cases: Vec<u32>,
}

impl FromRow for LetterGroup {
    fn from_row(row: &RowFields<'_>) -> Result<Self, Unexpected> {
        Ok(Self {
            group: row.text("group")?.unwrap_or_default(),
            kind: row.text("type")?,
            dead: row.number("dead")?,
            entries: row.number("entries")?,
            deaths: row.number("deaths")?,
            first_at: row.moment_of("first_at")?,
            last_at: row.moment_of("last_at")?,
            sample: row.text("sample")?,
            cases: row.list("cases", read_number)?,
        })
    }
}

/// A root cause that somebody wrote down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterCase {
    pub case: u32,
    pub category: CauseCategory,
    pub cause: String,
    pub fix: String,
    pub decision: Option<String>,
    pub groups: Vec<String>,
    pub user: Option<String>,
    pub actor: Option<String>,
    #[serde(with = "moment_text")]
    pub opened_at: SystemTime,
    #[serde(serialize_with = "moment_text::optional::serialize")]
    pub closed_at: Option<SystemTime>,
    pub discarded: bool,
    #[serde(serialize_with = "moment_text::optional::serialize")]
    pub auto_until: Option<SystemTime>,
    /// The present redrive, or the last one.
    pub redrive: Option<RedriveProgress>,
}

impl FromRow for LetterCase {
    fn from_row(row: &RowFields<'_>) -> Result<Self, Unexpected> {
        let redrive =
            row.field("redrive").map(|redrive| RedriveProgress::from_row(&RowFields::new(redrive)?)).transpose()?;
        let category = row.word("category", Category::from_text)?.ok_or(Unexpected("a category"))?;
        Ok(Self {
            case: row.number("case")?,
            category: category.into(),
            cause: row.text("cause")?.unwrap_or_default(),
            fix: row.text("fix")?.unwrap_or_default(),
            decision: row.text("decision")?,
            groups: row.list("groups", read_text)?,
            user: row.text("user")?,
            actor: row.text("actor")?,
            opened_at: row.moment_of("opened_at")?,
            closed_at: row.moment("closed_at")?,
            discarded: row.flag("discarded")?,
            auto_until: row.moment("auto_until")?,
            redrive,
        })
    }
}

/// Where a redrive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RedrivePhase {
    /// Takers get from it.
    Running,
    /// The first ones are out; the rest follows when enough of them are resolved.
    Verifying,
    /// Everything was given out; some have not ended yet.
    Draining,
    /// By an operator.
    Stopped,
    /// By itself: too many died again.
    Failed,
    Finished,
}

impl RedrivePhase {
    /// Nothing more is given out, and everything that was has ended or is left to its retries.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed | Self::Finished)
    }

    fn from_text(text: &[u8]) -> Option<Self> {
        use resil_core::dead_letters::RedrivePhase as Phase;
        Some(match Phase::from_text(text)? {
            Phase::Running => Self::Running,
            Phase::Verifying => Self::Verifying,
            Phase::Draining => Self::Draining,
            Phase::Stopped => Self::Stopped,
            Phase::Failed => Self::Failed,
            Phase::Finished => Self::Finished,
        })
    }
}

/// How a redrive is getting on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RedriveProgress {
    pub phase: RedrivePhase,
    #[serde(with = "moment_text")]
    pub started_at: SystemTime,
    pub rate: RedriveRate,
    pub first: u32,
    pub oneshot: bool,
    /// It was started by the case itself.
    pub auto: bool,
    pub given: u32,
    pub resolved: u32,
    pub died: u32,
    /// Given out, and not ended yet.
    pub active: u32,
}

impl FromRow for RedriveProgress {
    fn from_row(row: &RowFields<'_>) -> Result<Self, Unexpected> {
        Ok(Self {
            phase: row.word("phase", RedrivePhase::from_text)?.ok_or(Unexpected("a phase"))?,
            started_at: row.moment_of("started_at")?,
            rate: RedriveRate { count: row.number("rate")?, period: from_ms(row.number("period_ms")?) },
            first: row.number("first")?,
            oneshot: row.flag("oneshot")?,
            auto: row.flag("auto")?,
            given: row.number("given")?,
            resolved: row.number("resolved")?,
            died: row.number("died")?,
            active: row.number("active")?,
        })
    }
}

/// What an operator must look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerAlert {
    pub alert: u64,
    /// `many`, `spike`, `aggregate`, `stopped` or `full`.
    pub kind: &'static str,
    /// `warning` or `critical`.
    pub severity: &'static str,
    /// The kind of messages, the aggregate or the case it is about.
    pub subject: Option<String>,
    pub count: u64,
    #[serde(with = "moment_text")]
    pub at: SystemTime,
    pub seen: bool,
}

impl FromRow for LedgerAlert {
    fn from_row(row: &RowFields<'_>) -> Result<Self, Unexpected> {
        let kind = row.word("kind", AlertKind::from_text)?.ok_or(Unexpected("a kind of alert"))?;
        Ok(Self {
            alert: row.number("alert")?,
            kind: kind.text(),
            severity: kind.severity(),
            subject: row.text("subject")?,
            count: row.number("count")?,
            at: row.moment_of("at")?,
            seen: row.flag("seen")?,
        })
    }
}

/// One action of a governor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerAudit {
    pub id: u64,
    #[serde(with = "moment_text")]
    pub at: SystemTime,
    /// The server's name for the user.
    pub user: Option<String>,
    pub actor: Option<String>,
    pub correlation: Option<String>,
    pub action: String,
}

impl FromRow for LedgerAudit {
    fn from_row(row: &RowFields<'_>) -> Result<Self, Unexpected> {
        Ok(Self {
            id: row.number("id")?,
            at: row.moment_of("at")?,
            user: row.text("user")?,
            actor: row.text("actor")?,
            correlation: row.text("correlation")?,
            action: row.text("action")?.unwrap_or_default(),
        })
    }
}
