//! What can be held: a lock, or a permit of a shared bulkhead.

use std::sync::Arc;

use crate::error::{Error, Leased};
use crate::telemetry::Primitive;

/// Which machine it is held in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HoldingKind {
    Lock,
    Bulkhead,
}

/// Why something is lost of which nothing else is known.
pub(super) const LEASE_ENDED: &str = "its lease has ended";

impl HoldingKind {
    pub fn primitive(self) -> Primitive {
        match self {
            Self::Lock => Primitive::Lock,
            Self::Bulkhead => Primitive::SharedBulkhead,
        }
    }

    pub(super) fn lost(self, name: &Arc<str>, reason: &'static str) -> Error {
        let what = match self {
            Self::Lock => Leased::Lock,
            Self::Bulkhead => Leased::Permit,
        };
        Error::LockLost { what, name: Arc::clone(name), reason }
    }
}
