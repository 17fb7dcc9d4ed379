//! What died comes back only under a documented cause, by somebody who says who they are.

use std::time::Duration;

use resil_core::dead_letters::{Category, Diagnosis as CoreDiagnosis, HoldTarget, Matched, PurgeRequest, Redriven};
use resil_core::limits::{PURGE_MAX, REDRIVE_FIRST};
use resil_wire::command::{Command, Reply};
use resil_wire::dead_letters::{CloseCall, Closed, DiagnoseCall, HoldCall, PurgeCall, RedriveCall, SeenCall, StopCall};
use serde::{Deserialize, Serialize};

use super::changes::RedriveRate;
use super::letter::{shown, texts};
use super::reports::RedriveProgress;
use super::showing::{instant, read_row};
use super::{DeadLetters, LetterState};
use crate::correlation;
use crate::error::Error;
use crate::holding::span;
use crate::idempotency::token::odd;
use crate::settings::{setters, span_text};

/// How often a redrive is looked at that somebody waits for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What kind of root cause it was, and so what may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseCategory {
    #[default]
    Infrastructure,
    Contract,
    /// Needs a decision.
    Business,
    /// Never redriven, only discarded.
    Poison,
}

impl From<CauseCategory> for Category {
    fn from(category: CauseCategory) -> Self {
        match category {
            CauseCategory::Infrastructure => Self::Infrastructure,
            CauseCategory::Contract => Self::Contract,
            CauseCategory::Business => Self::Business,
            CauseCategory::Poison => Self::Poison,
        }
    }
}

impl From<Category> for CauseCategory {
    fn from(category: Category) -> Self {
        match category {
            Category::Infrastructure => Self::Infrastructure,
            Category::Contract => Self::Contract,
            Category::Business => Self::Business,
            Category::Poison => Self::Poison,
        }
    }
}

/// Why messages died, and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Diagnosis {
    /// As [`FailVerdict::Dead`](super::FailVerdict::Dead) and [`DeadLetters::groups`] name them; up to 100.
    pub groups: Vec<String>,
    pub category: CauseCategory,
    pub cause: String,
    pub fix: String,
    /// What the business decided; `Business` needs it.
    #[serde(default)]
    pub decision: Option<String>,
    /// `Infrastructure` only: for so long what dies in these groups is redriven by itself.
    #[serde(default, with = "span_text::optional")]
    pub auto: Option<Duration>,
}

setters! { Diagnosis {} { auto: Duration } }
texts! { Diagnosis { decision } }

impl Diagnosis {
    pub fn new<G: Into<String>>(
        groups: impl IntoIterator<Item = G>,
        category: CauseCategory,
        cause: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let groups = groups.into_iter().map(Into::into).collect();
        Self { groups, category, cause: cause.into(), fix: fix.into(), decision: None, auto: None }
    }

    /// The server checks all of it, and says what is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Which messages of a case are redriven, and how fast. Omitted fields: all, at 100 per minute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RedriveSettings {
    /// Only this message.
    pub id: Option<String>,
    pub kind: Option<String>,
    pub aggregate: Option<String>,
    /// Those that did not die before this, since the Unix epoch.
    #[serde(with = "span_text::optional")]
    pub since: Option<Duration>,
    /// And before this.
    #[serde(with = "span_text::optional")]
    pub until: Option<Duration>,
    /// How many at most.
    pub count: Option<u32>,
    pub rate: Option<RedriveRate>,
    /// How many are given out first; the rest follows when half of them are resolved. 10 by default.
    pub first: Option<u32>,
    /// Each gets one attempt.
    pub oneshot: bool,
}

setters! {
    RedriveSettings {}
    { since: Duration, until: Duration, count: u32, rate: RedriveRate, first: u32 }
}

texts! { RedriveSettings { id, kind, aggregate } }

impl RedriveSettings {
    pub fn new() -> Self {
        Self::default()
    }

    /// See the [field](Self#structfield.oneshot).
    #[must_use]
    pub fn oneshot(mut self) -> Self {
        self.oneshot = true;
        self
    }

    /// The server checks all of it, and says what is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// What a redrive covers, as far as it was counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RedriveMatch {
    pub matched: u64,
    /// False if there may be more.
    pub complete: bool,
    /// The first of them.
    pub sample: Vec<String>,
}

impl From<Matched> for RedriveMatch {
    fn from(matched: Matched) -> Self {
        let sample = matched.sample.iter().map(|id| shown(id).into_owned()).collect();
        Self { matched: matched.count as u64, complete: matched.is_complete, sample }
    }
}

/// What a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PurgeResult {
    pub purged: u64,
    /// How many more are old enough, as far as they were counted.
    pub left: u64,
}

/// A redrive that was started. It goes on without this.
#[derive(Debug, Clone)]
pub struct RedriveRun {
    letters: DeadLetters,
    case: u32,
    matched: RedriveMatch,
}

impl RedriveRun {
    pub fn case(&self) -> u32 {
        self.case
    }

    /// What it covers.
    pub fn matched(&self) -> &RedriveMatch {
        &self.matched
    }

    pub async fn progress(&self) -> Result<RedriveProgress, Error> {
        let redrive = self.letters.case(self.case).await?.and_then(|case| case.redrive);
        redrive.ok_or_else(|| Error::InvalidArgument(format!("case {} was never redriven", self.case)))
    }

    /// Nothing more is given out.
    pub async fn stop(&self) -> Result<RedriveProgress, Error> {
        self.letters.stop(self.case).await
    }

    /// Waits until it has finished, was stopped, or stopped itself because too many died again.
    pub async fn finished(&self) -> Result<RedriveProgress, Error> {
        let client = &self.letters.0.client;
        loop {
            match self.progress().await {
                Ok(progress) if progress.phase.is_over() => return Ok(progress),
                Ok(_) => {}
                Err(error) if error.says_away() => {}
                Err(error) => return Err(error),
            }
            tokio::select! {
                () = client.clock().sleep(LOOK_EVERY) => {}
                () = client.patience().cancelled() => return Err(Error::ShuttingDown),
            }
        }
    }
}

impl DeadLetters {
    /// Writes down why messages died. The number of the case, under which they can be redriven.
    pub async fn diagnose(&self, diagnosis: &Diagnosis) -> Result<u32, Error> {
        let correlation = correlation::current();
        let asked = CoreDiagnosis {
            groups: diagnosis.groups.iter().map(String::as_bytes).collect(),
            category: diagnosis.category.into(),
            cause: diagnosis.cause.as_bytes(),
            fix: diagnosis.fix.as_bytes(),
            decision: diagnosis.decision.as_deref().unwrap_or_default().as_bytes(),
            auto: diagnosis.auto.map(span),
        };
        let call = DiagnoseCall { key: self.0.key.as_bytes(), diagnosis: asked, by: self.0.by(&correlation) };
        let case = self.number(&Command::DlqDiagnose(call)).await?;
        u32::try_from(case).map_err(|_| Error::Internal("a case has a number".to_owned()))
    }

    /// Lets dead messages of a case be taken again, at a rate, a few first. [`Error::RedriveRefused`] says why not.
    pub async fn redrive(&self, case: u32, settings: &RedriveSettings) -> Result<RedriveRun, Error> {
        let matched = self.ask_to_redrive(case, settings, false).await?;
        Ok(RedriveRun { letters: self.clone(), case, matched })
    }

    /// What [`redrive`](Self::redrive) would cover. Nothing is changed.
    pub async fn dry_run(&self, case: u32, settings: &RedriveSettings) -> Result<RedriveMatch, Error> {
        self.ask_to_redrive(case, settings, true).await
    }

    /// A redrive that was started before, by anybody.
    pub async fn redrive_of(&self, case: u32) -> Result<Option<RedriveProgress>, Error> {
        Ok(self.case(case).await?.and_then(|case| case.redrive))
    }

    async fn ask_to_redrive(
        &self,
        case: u32,
        settings: &RedriveSettings,
        dry_run: bool,
    ) -> Result<RedriveMatch, Error> {
        let correlation = correlation::current();
        let call = RedriveCall {
            id: settings.id.as_deref().map(str::as_bytes),
            kind: settings.kind.as_deref().map(str::as_bytes),
            aggregate: settings.aggregate.as_deref().map(str::as_bytes),
            since: settings.since.map(instant),
            until: settings.until.map(instant),
            count: settings.count,
            rate: settings.rate.map(Into::into),
            first: settings.first.unwrap_or(REDRIVE_FIRST),
            oneshot: settings.oneshot,
            dry_run,
            by: self.0.by(&correlation),
            ..RedriveCall::of(self.0.key.as_bytes(), case)
        };
        match self.govern(&Command::DlqRedrive(call)).await? {
            Reply::Redriven(Redriven::Started(matched) | Redriven::DryRun(matched)) => Ok(matched.into()),
            Reply::Redriven(Redriven::Refused(refusal)) => {
                Err(Error::RedriveRefused { name: self.0.name.clone(), case, reason: refusal.text() })
            }
            other => Err(odd(&other)),
        }
    }

    /// Stops the redrive of a case: nothing more is given out. How far it came.
    pub async fn stop(&self, case: u32) -> Result<RedriveProgress, Error> {
        let correlation = correlation::current();
        let call = StopCall { key: self.0.key.as_bytes(), case, by: self.0.by(&correlation) };
        match self.govern(&Command::DlqStop(call)).await? {
            Reply::Map(map) => read_row(&map),
            other => Err(odd(&other)),
        }
    }

    /// Closes a case whose messages are all resolved: 0. Else it stays open, and this is how many are not.
    pub async fn close(&self, case: u32) -> Result<u64, Error> {
        self.close_case(case, false).await
    }

    /// Closes a case of poison: its messages are archived, and never come back.
    pub async fn discard(&self, case: u32) -> Result<u64, Error> {
        self.close_case(case, true).await
    }

    async fn close_case(&self, case: u32, discard: bool) -> Result<u64, Error> {
        let correlation = correlation::current();
        let call = CloseCall { key: self.0.key.as_bytes(), case, discard, by: self.0.by(&correlation) };
        match self.govern(&Command::DlqClose(call)).await? {
            Reply::Closed(Closed::Closed) => Ok(0),
            Reply::Closed(Closed::Open { unresolved }) => Ok(unresolved as u64),
            other => Err(odd(&other)),
        }
    }

    /// Keeps a message whatever happens, and out of redrives. How many it is about: 1, or 0 if it is not there.
    pub async fn hold(&self, id: &str, reason: &str) -> Result<u64, Error> {
        self.mark(HoldTarget::Id(id.as_bytes()), true, reason).await
    }

    /// The same for everything of an aggregate, also what will come.
    pub async fn hold_aggregate(&self, aggregate: &str, reason: &str) -> Result<u64, Error> {
        self.mark(HoldTarget::Aggregate(aggregate.as_bytes()), true, reason).await
    }

    /// Takes a [`hold`](Self::hold) back.
    pub async fn release(&self, id: &str, reason: &str) -> Result<u64, Error> {
        self.mark(HoldTarget::Id(id.as_bytes()), false, reason).await
    }

    /// Takes a [`hold_aggregate`](Self::hold_aggregate) back.
    pub async fn release_aggregate(&self, aggregate: &str, reason: &str) -> Result<u64, Error> {
        self.mark(HoldTarget::Aggregate(aggregate.as_bytes()), false, reason).await
    }

    async fn mark(&self, target: HoldTarget<'_>, is_on: bool, reason: &str) -> Result<u64, Error> {
        let correlation = correlation::current();
        let reason = (!reason.is_empty()).then_some(reason.as_bytes());
        let call = HoldCall { key: self.0.key.as_bytes(), target, is_on, reason, by: self.0.by(&correlation) };
        self.number(&Command::DlqHold(call)).await.map(i64::unsigned_abs)
    }

    /// Removes what ended longer ago than `older`, 90 days at least: dead, resolved and archived messages, or those of one `state`. At
    /// most `limit`, and 200 with a call: call again while some are left.
    pub async fn purge(
        &self,
        older: Duration,
        state: Option<LetterState>,
        limit: Option<u32>,
    ) -> Result<PurgeResult, Error> {
        let correlation = correlation::current();
        let limit = limit.map_or(PURGE_MAX, |limit| limit as usize);
        let place = match state {
            None => None,
            Some(state) => {
                Some(state.place().ok_or_else(|| Error::invalid("state", "must be dead, resolved or archived"))?)
            }
        };
        let request = PurgeRequest { older: span(older), place, limit };
        let call = PurgeCall { key: self.0.key.as_bytes(), request, by: self.0.by(&correlation) };
        match self.govern(&Command::DlqPurge(call)).await? {
            Reply::Purged(purged) => {
                Ok(PurgeResult { purged: purged.purged.unsigned_abs(), left: purged.left.unsigned_abs() })
            }
            other => Err(odd(&other)),
        }
    }

    /// Somebody has looked at an alert. False if there is none, or it was seen before.
    pub async fn seen(&self, alert: u64) -> Result<bool, Error> {
        let correlation = correlation::current();
        let call = SeenCall { key: self.0.key.as_bytes(), alert, by: self.0.by(&correlation) };
        self.number(&Command::DlqSeen(call)).await.map(|seen| seen != 0)
    }

    /// Asked once: a second time it would be another action.
    async fn govern(&self, command: &Command<'_>) -> Result<Reply, Error> {
        let _pass = self.0.client.inner().gate.enter()?;
        self.0.ask(command).await
    }

    async fn number(&self, command: &Command<'_>) -> Result<i64, Error> {
        match self.govern(command).await? {
            Reply::Number(number) => Ok(number),
            other => Err(odd(&other)),
        }
    }
}
