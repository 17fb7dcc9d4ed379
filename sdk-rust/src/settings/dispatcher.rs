//! How many pieces of work at a time, and what becomes of the others when one fails.

use serde::{Deserialize, Serialize};

use crate::dispatcher::{Dispatcher, OnError};
use crate::error::Error;
use crate::policy::span_text::check_number;

const WORKERS_MAX: usize = 1_000_000;

/// See [`Dispatcher`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DispatcherSettings {
    /// 1 to 1,000,000.
    pub workers: usize,
    /// `goOn`, `beginNoMore` or `cancelOthers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
}

impl DispatcherSettings {
    pub fn validate(&self) -> Result<(), Error> {
        check_number("workers", self.workers, 1, WORKERS_MAX)
    }

    pub fn dispatcher(&self) -> Result<Dispatcher, Error> {
        self.validate()?;
        Ok(self.on_error.into_iter().fold(Dispatcher::new(self.workers), Dispatcher::on_error))
    }
}
