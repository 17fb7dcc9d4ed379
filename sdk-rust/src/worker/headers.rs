//! Headers of a message: texts by name. Two of them cross every queue: the W3C trace context, and `HeaderID`, the id of the request that
//! it all began with.

use std::collections::BTreeMap;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::correlation::trace_id;

pub const TRACEPARENT: &str = "traceparent";
pub const TRACESTATE: &str = "tracestate";
/// The id of a request, as services hand it on.
pub const HEADER_ID: &str = "HeaderID";
/// Headers by which publishers and sources here say what a message is.
pub(crate) const KIND: &str = "x-resil-type";
pub(crate) const AGGREGATE: &str = "x-resil-aggregate";
pub(crate) const SCHEMA: &str = "x-resil-schema";
/// Says that a message had more headers than the ledger takes.
pub(crate) const CUT: &str = "x-resil-cut";

/// Texts by name. Names are compared without regard to case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(BTreeMap<String, String>);

impl Headers {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let exact = self.0.get(name);
        exact
            .or_else(|| self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, text)| text))
            .map(String::as_str)
    }

    pub fn set(&mut self, name: impl Into<String>, text: impl Into<String>) {
        let name = name.into();
        self.remove(&name);
        self.0.insert(name, text.into());
    }

    pub fn remove(&mut self, name: &str) -> Option<String> {
        let known = self.0.keys().find(|known| known.eq_ignore_ascii_case(name)).cloned()?;
        self.0.remove(&known)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As the ledger keeps them: JSON.
    pub fn to_bytes(&self) -> Option<Bytes> {
        if self.0.is_empty() {
            return None;
        }
        serde_json::to_vec(&self.0).ok().map(Bytes::from)
    }

    /// What is no JSON object of texts has no headers.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(serde_json::from_slice(bytes).unwrap_or_default())
    }

    /// The trace of the message: 32 hexadecimal digits.
    pub fn trace_id(&self) -> Option<&str> {
        self.get(TRACEPARENT).and_then(trace_id)
    }

    /// What goes along with a message that is sent because of this one: the same trace with a span of its own, and the same `HeaderID`.
    pub(crate) fn caused(&self) -> Self {
        let mut caused = Self::new();
        if let (Some(parent), Some(trace)) = (self.get(TRACEPARENT), self.trace_id()) {
            let flags = parent.trim().rsplit('-').next().unwrap_or("00");
            caused.set(TRACEPARENT, format!("00-{trace}-{:016x}-{flags}", rand::random::<u64>().max(1)));
            if let Some(state) = self.get(TRACESTATE) {
                caused.set(TRACESTATE, state);
            }
        }
        if let Some(id) = self.get(HEADER_ID) {
            caused.set(HEADER_ID, id);
        }
        caused
    }
}

impl<N: Into<String>, T: Into<String>> FromIterator<(N, T)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, text)| (name.into(), text.into())).collect())
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// An id for a request, or for a message, that came without one.
pub(crate) fn fresh_id() -> String {
    hexadecimal(rand::random())
}

/// The same of the same text.
pub(super) fn made_of(text: &str) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(text)[..16]);
    hexadecimal(bytes)
}

fn hexadecimal(bytes: [u8; 16]) -> String {
    let mut text = [0; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
#[path = "tests/headers.rs"]
mod tests;
