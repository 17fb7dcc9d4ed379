//! Moments of the wall clock in what is shown: milliseconds since the epoch, under a name by which a dialect knows them.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serializer;

/// What a moment is called to serde.
pub(crate) const MOMENT: &str = "resil::Moment";

pub(crate) fn serialize<S: Serializer>(moment: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    serializer.serialize_newtype_struct(MOMENT, &u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
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
