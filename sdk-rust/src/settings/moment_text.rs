//! Moments of the wall clock in what is shown: milliseconds since the epoch, or numbers of a dialect.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::showing::numbers;

pub(crate) fn serialize<S: Serializer>(moment: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    match numbers() {
        Some(numbers) => numbers.shown(since).serialize(serializer),
        None => serializer.serialize_u64(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
    }
}

/// Reads milliseconds since the epoch.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    u64::deserialize(deserializer).map(after_epoch)
}

fn after_epoch(ms: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(UNIX_EPOCH)
}

/// The same for what may not be there.
pub(crate) mod optional {
    use super::*;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(after_epoch))
    }

    pub(crate) fn serialize<S: Serializer>(moment: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
        match moment {
            Some(moment) => super::serialize(moment, serializer),
            None => serializer.serialize_none(),
        }
    }
}
