//! Messages of an older form: a chain of functions, one from each version to the next, applied when a message is read and never written
//! back. So what is in a ledger is what was sent, and a chain that was wrong can be mended.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::verdict::WorkError;
use crate::error::Error;

type Upcast = dyn Fn(Bytes) -> Result<Bytes, WorkError> + Send + Sync;

/// Chains of upcasters, by the kind of message.
#[derive(Clone, Default)]
pub struct Upcasters {
    chains: BTreeMap<String, BTreeMap<u32, Arc<Upcast>>>,
    duplicate: Option<(String, u32)>,
}

impl std::fmt::Debug for Upcasters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.chains.iter().map(|(kind, chain)| (kind, chain.keys().collect::<Vec<_>>()))).finish()
    }
}

/// What the chains say of a message.
#[derive(Debug)]
pub(super) enum Upcasted {
    /// It can be handled, in this form.
    Readable(Bytes),
    /// It is newer than anything known here.
    TooNew {
        newest: u32,
    },
    Failed(WorkError),
}

impl Upcasters {
    pub fn new() -> Self {
        Self::default()
    }

    /// Messages of `kind` in version `from` become version `from + 1`.
    #[must_use]
    pub fn step(
        mut self,
        kind: &str,
        from: u32,
        upcast: impl Fn(Bytes) -> Result<Bytes, WorkError> + Send + Sync + 'static,
    ) -> Self {
        let chain = self.chains.entry(kind.to_owned()).or_default();
        if chain.insert(from, Arc::new(upcast)).is_some() {
            self.duplicate = Some((kind.to_owned(), from));
        }
        self
    }

    /// A step that is taken elsewhere, by handlers of another language. Messages are checked as with [`step`](Self::step), and handed over in the
    /// form they came in: [`WorkerMessage::steps`](super::WorkerMessage::steps) says which steps lead to the newest.
    #[must_use]
    pub fn step_elsewhere(self, kind: &str, from: u32) -> Self {
        self.step(kind, from, Ok)
    }

    /// The versions that steps lead from, for a message of this form, the oldest first.
    pub(super) fn steps(&self, kind: Option<&str>, schema: Option<u32>) -> Range<u32> {
        let (Some(kind), Some(schema)) = (kind, schema) else { return 0..0 };
        self.newest(kind).map_or(0..0, |newest| schema..newest)
    }

    /// Two steps from one version, and versions that no step leaves, are refused.
    pub fn validate(&self) -> Result<(), Error> {
        if let Some((kind, from)) = &self.duplicate {
            return Err(Error::invalid("upcasters", format!("has two steps for {kind} from version {from}")));
        }
        for (kind, chain) in &self.chains {
            let versions: Vec<u32> = chain.keys().copied().collect();
            if let Some(gap) = versions.windows(2).find(|pair| pair[1] != pair[0] + 1) {
                let missing = gap[0] + 1;
                return Err(Error::invalid("upcasters", format!("has no step for {kind} from version {missing}")));
            }
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// The version that handlers see.
    pub fn newest(&self, kind: &str) -> Option<u32> {
        self.chains.get(kind)?.keys().next_back().map(|last| last + 1)
    }

    /// Why a message of this form cannot be read, if it cannot be.
    pub(super) fn why_unreadable(&self, kind: &str, schema: u32) -> Option<String> {
        let (oldest, newest) = (self.chains.get(kind)?.keys().next().copied()?, self.newest(kind)?);
        (schema < oldest).then(|| format!("version {schema} of {kind}, from which no step leads to {newest}"))
    }

    pub(super) fn apply(&self, kind: Option<&str>, schema: Option<u32>, payload: Bytes) -> Upcasted {
        let (Some(kind), Some(schema)) = (kind, schema) else { return Upcasted::Readable(payload) };
        let (Some(chain), Some(newest)) = (self.chains.get(kind), self.newest(kind)) else {
            return Upcasted::Readable(payload);
        };
        if schema > newest {
            return Upcasted::TooNew { newest };
        }
        if let Some(why) = self.why_unreadable(kind, schema) {
            return Upcasted::Failed(WorkError::permanent(why));
        }
        let mut current = payload;
        for step in chain.range(schema..).map(|(_, step)| step) {
            current = match step(current) {
                Ok(next) => next,
                Err(error) => return Upcasted::Failed(error),
            };
        }
        Upcasted::Readable(current)
    }
}

#[cfg(test)]
#[path = "tests/upcast.rs"]
mod tests;
