//! Moments of the wall clock in what is shown: milliseconds since the epoch, or numbers of a dialect.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

use super::showing::numbers;

pub(crate) fn serialize<S: Serializer>(moment: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    match numbers() {
        Some(numbers) => numbers.shown(since).serialize(serializer),
        None => serializer.serialize_u64(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
    }
}

/// The same for what may not be there.
pub(crate) mod optional {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(moment: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
        match moment {
            Some(moment) => super::serialize(moment, serializer),
            None => serializer.serialize_none(),
        }
    }
}
