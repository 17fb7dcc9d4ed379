//! Retries that a test does not have to wait for.

use std::time::Duration;

use crate::policy::RetrySettings;

impl RetrySettings {
    /// The same retry, as good as at once and without a budget; with at most `attempts`, if that is said.
    pub fn at_once(&self, attempts: Option<u32>) -> Self {
        let blink = Duration::from_micros(1);
        Self {
            max_attempts: attempts.map_or(self.max_attempts, |most| most.min(self.max_attempts)),
            initial_backoff: blink,
            max_backoff: blink,
            min_backoff: Duration::ZERO,
            budget: None,
            ..self.clone()
        }
    }
}
