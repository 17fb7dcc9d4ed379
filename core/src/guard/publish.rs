//! The steps of operators: SET and DELETE.

use alloc::boxed::Box;

use super::edit::{GuardEdit, PolicyEdit};
use super::machine::{Guards, Key};
use super::settings::Settings;
use super::versions::PolicyVersion;
use crate::waited::{OpenStep, Setting, Stepped};

/// Who changes a policy, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Author<'a> {
    pub actor: &'a [u8],
    pub reason: &'a [u8],
}

/// What SET did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetAction {
    Created,
    Changed,
    /// The content was the same: nothing happened.
    Same,
}

impl SetAction {
    pub const ALL: [Self; 3] = [Self::Created, Self::Changed, Self::Same];

    pub fn text(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Same => "same",
        }
    }

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.text().as_bytes() == text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicySet {
    Done {
        version: u64,
        action: SetAction,
    },
    /// An error: IF named another version than the `current` one, which is 0 if there is no policy.
    Version {
        current: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyDeleted {
    Done {
        version: u64,
    },
    Version {
        current: u64,
    },
    /// An error: there is no live policy here.
    NoPolicy,
}

/// SET: `document` is canonical, and `settings` is what it says. `expected` is the version of IF: 0 means "not there".
pub fn set(
    key: &mut Key<'_>,
    document: &str,
    settings: Settings,
    expected: Option<u64>,
    author: Author<'_>,
    setting: &mut Setting<'_>,
) -> Stepped<Guards, PolicySet> {
    let mut step = OpenStep::begin(key, setting);
    let versions = &step.state().versions;
    let (number, is_live) = (versions.number(), versions.document().is_some());
    if versions.document() == Some(document) {
        return step.end(PolicySet::Done { version: number, action: SetAction::Same });
    }
    let action = if is_live { SetAction::Changed } else { SetAction::Created };
    if !is_expected(expected, number, is_live) {
        return step.end(PolicySet::Version { current: if is_live { number } else { 0 } });
    }
    let version = version_of(number + 1, Some(document), author, &step);
    step.edit(GuardEdit::Published(Box::new(PolicyEdit { version, settings: Some(Box::new(settings)) })));
    step.end(PolicySet::Done { version: number + 1, action })
}

/// DELETE: what lives under the policy goes; its versions stay for a while.
pub fn delete(
    key: &mut Key<'_>,
    expected: Option<u64>,
    author: Author<'_>,
    setting: &mut Setting<'_>,
) -> Stepped<Guards, PolicyDeleted> {
    let mut step = OpenStep::begin(key, setting);
    let versions = &step.state().versions;
    let (number, is_live) = (versions.number(), versions.document().is_some());
    if !is_live {
        return step.end(PolicyDeleted::NoPolicy);
    }
    if !is_expected(expected, number, is_live) {
        return step.end(PolicyDeleted::Version { current: number });
    }
    let version = version_of(number + 1, None, author, &step);
    step.edit(GuardEdit::Published(Box::new(PolicyEdit { version, settings: None })));
    step.end(PolicyDeleted::Done { version: number + 1 })
}

fn is_expected(expected: Option<u64>, number: u64, is_live: bool) -> bool {
    expected.is_none_or(|expected| expected == number || (expected == 0 && !is_live))
}

fn version_of(
    version: u64,
    document: Option<&str>,
    author: Author<'_>,
    step: &super::machine::Step<'_>,
) -> PolicyVersion {
    PolicyVersion {
        version,
        at: step.now,
        actor: author.actor.into(),
        reason: author.reason.into(),
        document: document.map(Box::from),
    }
}
