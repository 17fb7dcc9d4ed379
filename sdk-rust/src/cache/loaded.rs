//! What a get gives back.

use std::time::Duration;

use bytes::Bytes;

/// What was found, if anything: that there is no such thing is a result, too, and is kept like one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded<T = Bytes> {
    Found {
        value: T,
        /// How long ago it was loaded. `None` if only the server could know: a stale value whose refresh was just given to
        /// this process.
        age: Option<Duration>,
        /// Past its ttl; somebody loads it anew.
        stale: bool,
    },
    NotFound,
}

impl<T> Loaded<T> {
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Found { value, .. } => Some(value),
            Self::NotFound => None,
        }
    }

    pub fn into_value(self) -> Option<T> {
        match self {
            Self::Found { value, .. } => Some(value),
            Self::NotFound => None,
        }
    }

    pub fn is_found(&self) -> bool {
        matches!(self, Self::Found { .. })
    }

    /// How long ago it was loaded, if it was found and that is known.
    pub fn age(&self) -> Option<Duration> {
        match self {
            Self::Found { age, .. } => *age,
            Self::NotFound => None,
        }
    }

    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Found { stale: true, .. })
    }

    pub(super) fn try_map<U, X>(self, map: impl FnOnce(T) -> Result<U, X>) -> Result<Loaded<U>, X> {
        Ok(match self {
            Self::Found { value, age, stale } => Loaded::Found { value: map(value)?, age, stale },
            Self::NotFound => Loaded::NotFound,
        })
    }
}
