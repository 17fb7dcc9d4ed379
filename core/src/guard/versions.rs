//! The document of a policy, its version, and the versions before it.
//!
//! Versions count from 1 and never repeat; a deletion takes one, too. What was deleted leaves a tombstone, so that the count goes
//! on if the policy comes back within [`TOMBSTONE`].

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::time::{Instant, Span};

/// How many versions are remembered, the current one included.
pub const HISTORY_MAX: usize = 20;

/// How long the key of a deleted policy stays.
pub const TOMBSTONE: Span = Span::from_days(30);

/// Bytes of a document.
pub const DOCUMENT_MAX: usize = 64 << 10;

/// One version of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyVersion {
    pub version: u64,
    pub at: Instant,
    /// Who made it, and why.
    pub actor: Box<[u8]>,
    pub reason: Box<[u8]>,
    /// The canonical text; `None`: the policy was deleted.
    pub document: Option<Box<str>>,
}

impl PolicyVersion {
    pub(super) fn heap_bytes(&self) -> usize {
        let document = self.document.as_ref().map_or(0, |document| document.len());
        size_of::<Self>() + self.actor.len() + self.reason.len() + document
    }
}

/// All versions that are remembered, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Versions(VecDeque<PolicyVersion>);

impl Versions {
    pub fn current(&self) -> Option<&PolicyVersion> {
        self.0.back()
    }

    /// The document that holds.
    pub fn document(&self) -> Option<&str> {
        self.current()?.document.as_deref()
    }

    /// The highest version there was; 0 if there was none.
    pub fn number(&self) -> u64 {
        self.current().map_or(0, |current| current.version)
    }

    pub fn get(&self, version: u64) -> Option<&PolicyVersion> {
        self.0.iter().find(|one| one.version == version)
    }

    /// Newest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &PolicyVersion> {
        self.0.iter().rev()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A version that is not above all others is not a new one.
    pub(super) fn push(&mut self, version: PolicyVersion) -> bool {
        if version.version <= self.number() {
            return false;
        }
        if self.0.len() >= HISTORY_MAX {
            self.0.pop_front();
        }
        self.0.push_back(version);
        true
    }

    /// When the key may go; `None` while there is a policy.
    pub(super) fn collect_at(&self) -> Option<Instant> {
        let current = self.current()?;
        current.document.is_none().then(|| current.at.plus(TOMBSTONE))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.iter().map(PolicyVersion::heap_bytes).sum()
    }

    pub(super) fn bytes_about(&self) -> usize {
        self.0.len() * self.current().map_or(0, PolicyVersion::heap_bytes)
    }
}
