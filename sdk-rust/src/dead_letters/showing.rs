//! Looking at a ledger: nothing here changes anything.

use std::time::Duration;

use futures_util::stream::{self, Stream};
use resil_core::Instant;
use resil_core::dead_letters::ListFilter;
use resil_wire::command::{Command, Reply};
use resil_wire::dead_letters::{EntryCall, LedgerAspect, LedgerInfoCall, LedgerReply, ListCall, Part};
use resil_wire::reply::Value;
use serde::{Deserialize, Serialize};

use super::changes::LedgerConfig;
use super::letter::{FailureClass, texts};
use super::reports::{LedgerAlert, LedgerAudit, LedgerInfo, LetterCase, LetterGroup, LetterView};
use super::rows::{FromRow, RowFields};
use super::{DeadLetters, LetterState};
use crate::error::Error;
use crate::idempotency::token::odd;
use crate::settings::{setters, span_text};

/// How many rows are asked for at once where all are wanted.
const ROWS_AT_ONCE: usize = 1_000;

/// Which messages a list shows. Omitted fields are all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LetterFilter {
    pub state: Option<LetterState>,
    pub kind: Option<String>,
    pub failure_class: Option<FailureClass>,
    pub group: Option<String>,
    pub aggregate: Option<String>,
    /// Those that this case redrove.
    pub case: Option<u32>,
    /// The last change, or the death, is not before this, since the Unix epoch.
    #[serde(with = "span_text::optional")]
    pub since: Option<Duration>,
    /// And before this.
    #[serde(with = "span_text::optional")]
    pub until: Option<Duration>,
    /// Where to go on: what the last page said.
    pub cursor: u64,
    /// Messages of a page, 1 to 1,000; 100 by default.
    pub limit: Option<u32>,
}

setters! {
    LetterFilter { cursor: u64 }
    { state: LetterState, failure_class: FailureClass, case: u32, since: Duration, until: Duration, limit: u32 }
}

texts! { LetterFilter { kind, group, aggregate } }

impl LetterFilter {
    pub fn new() -> Self {
        Self::default()
    }

    /// The server checks all of it, and says what is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        match self.state {
            Some(LetterState::Done) => Err(Error::invalid("state", "must not be done: those are not in the ledger")),
            _ => Ok(()),
        }
    }
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterPage {
    /// Without payloads. There may be fewer than were asked for, and none, before the end.
    pub letters: Vec<LetterView>,
    /// Where the next page begins; `None` at the end.
    pub cursor: Option<u64>,
}

/// An instant of core's.
pub(super) fn instant(since_epoch: Duration) -> Instant {
    Instant::from_us(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
}

pub(super) fn read_row<T: FromRow>(value: &Value) -> Result<T, Error> {
    RowFields::new(value).and_then(|row| T::from_row(&row)).map_err(|error| Error::Internal(error.to_string()))
}

impl DeadLetters {
    /// A message, with its payload.
    pub async fn get(&self, id: &str) -> Result<Option<LetterView>, Error> {
        let call = EntryCall { key: self.0.key.as_bytes(), id: id.as_bytes(), only_state: false };
        match self.0.ask_again(&Command::DlqGet(call)).await? {
            Reply::Ledger(LedgerReply::Nothing) => Ok(None),
            Reply::Ledger(LedgerReply::Map(map)) => read_row(&map).map(Some),
            other => Err(odd(&other)),
        }
    }

    /// Where a message is; `None` if the ledger does not know it.
    pub async fn standing(&self, id: &str) -> Result<Option<LetterState>, Error> {
        let call = EntryCall { key: self.0.key.as_bytes(), id: id.as_bytes(), only_state: true };
        match self.0.ask_again(&Command::DlqGet(call)).await? {
            Reply::Ledger(LedgerReply::Nothing) => Ok(None),
            Reply::Ledger(LedgerReply::State(standing)) => Ok(Some(standing.into())),
            other => Err(odd(&other)),
        }
    }

    /// A page of the messages that match.
    pub async fn list(&self, filter: &LetterFilter) -> Result<LetterPage, Error> {
        filter.validate()?;
        let asked = ListFilter {
            place: filter.state.and_then(LetterState::place),
            kind: filter.kind.as_deref().map(str::as_bytes),
            class: filter.failure_class.map(Into::into),
            group: filter.group.as_deref().map(str::as_bytes),
            aggregate: filter.aggregate.as_deref().map(str::as_bytes),
            case: filter.case,
            since: filter.since.map(instant),
            until: filter.until.map(instant),
        };
        let limit = filter.limit.map_or_else(|| Part::default().limit, |limit| limit as usize);
        let part = Part { cursor: filter.cursor, limit };
        let call = ListCall { key: self.0.key.as_bytes(), filter: asked, part };
        match self.0.ask_again(&Command::DlqList(call)).await? {
            Reply::Ledger(LedgerReply::List { cursor, rows }) => Ok(LetterPage {
                letters: rows.iter().map(read_row).collect::<Result<_, _>>()?,
                cursor: (cursor != 0).then_some(cursor),
            }),
            other => Err(odd(&other)),
        }
    }

    /// All messages that match, page by page. What changes meanwhile may be missed, or be shown as it was.
    pub fn list_all(&self, filter: LetterFilter) -> impl Stream<Item = Result<LetterView, Error>> + Send + 'static {
        let begun = (self.clone(), Some(filter), Vec::new().into_iter());
        stream::unfold(begun, |(letters, mut next, mut page)| async move {
            loop {
                if let Some(letter) = page.next() {
                    return Some((Ok(letter), (letters, next, page)));
                }
                let filter = next.take()?;
                match letters.list(&filter).await {
                    Ok(found) => {
                        next = found.cursor.map(|cursor| filter.cursor(cursor));
                        page = found.letters.into_iter();
                    }
                    Err(error) => return Some((Err(error), (letters, None, page))),
                }
            }
        })
    }

    /// How much is in the ledger.
    pub async fn info(&self) -> Result<LedgerInfo, Error> {
        self.shown_map(LedgerAspect::Counts).await?.ok_or_else(|| Error::Internal("a ledger has counts".to_owned()))
    }

    /// By which numbers it retries.
    pub async fn config(&self) -> Result<LedgerConfig, Error> {
        self.shown_map(LedgerAspect::Config).await?.ok_or_else(|| Error::Internal("a ledger has numbers".to_owned()))
    }

    /// Failures that belong together, all of them.
    pub async fn groups(&self) -> Result<Vec<LetterGroup>, Error> {
        self.shown_all(LedgerAspect::Groups).await
    }

    /// Root causes, all of them.
    pub async fn cases(&self) -> Result<Vec<LetterCase>, Error> {
        self.shown_all(LedgerAspect::Cases).await
    }

    pub async fn case(&self, case: u32) -> Result<Option<LetterCase>, Error> {
        self.shown_map(LedgerAspect::Case(case)).await
    }

    /// What an operator must look at. [`seen`](Self::seen) says that somebody did.
    pub async fn alerts(&self) -> Result<Vec<LedgerAlert>, Error> {
        self.shown_all(LedgerAspect::Alerts).await
    }

    /// The last 1,000 actions of governors.
    pub async fn audit(&self) -> Result<Vec<LedgerAudit>, Error> {
        self.shown_all(LedgerAspect::Audit).await
    }

    async fn shown(&self, aspect: LedgerAspect, part: Part) -> Result<LedgerReply, Error> {
        let call = LedgerInfoCall { key: self.0.key.as_bytes(), aspect, part };
        match self.0.ask_again(&Command::DlqInfo(call)).await? {
            Reply::Ledger(shown) => Ok(shown),
            other => Err(odd(&other)),
        }
    }

    async fn shown_map<T: FromRow>(&self, aspect: LedgerAspect) -> Result<Option<T>, Error> {
        match self.shown(aspect, Part::default()).await? {
            LedgerReply::Nothing => Ok(None),
            LedgerReply::Map(map) => read_row(&map).map(Some),
            other => Err(odd(&Reply::Ledger(other))),
        }
    }

    async fn shown_all<T: FromRow>(&self, aspect: LedgerAspect) -> Result<Vec<T>, Error> {
        let (mut all, mut part) = (Vec::new(), Part { cursor: 0, limit: ROWS_AT_ONCE });
        loop {
            match self.shown(aspect, part).await? {
                LedgerReply::List { cursor, rows } => {
                    for row in &rows {
                        all.push(read_row(row)?);
                    }
                    if cursor == 0 {
                        return Ok(all);
                    }
                    part.cursor = cursor;
                }
                other => return Err(odd(&Reply::Ledger(other))),
            }
        }
    }
}
