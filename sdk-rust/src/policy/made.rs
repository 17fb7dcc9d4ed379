//! A policy that is changed: the last good one, and the next.
//!
//! What is the same in both is one: the breaker, the budget of retries, places, hedges and what adapts go on with what they have counted.

use super::builder::PolicyBuilder;
use super::chain::Policy;
use super::settings::PolicySettings;
use crate::client::Client;
use crate::error::Error;

/// A policy, and what it was made of.
#[derive(Debug, Clone)]
pub(crate) struct MadePolicy {
    pub settings: PolicySettings,
    pub policy: Policy,
}

impl MadePolicy {
    /// The policy of `settings`. What it has in common with the one `before` is kept.
    pub fn new(client: &Client, settings: PolicySettings, before: Option<&Self>) -> Result<Self, Error> {
        if let Some(before) = before.filter(|before| before.settings == settings) {
            return Ok(before.clone());
        }
        let builder = PolicyBuilder::from_settings(client, &settings)?;
        let builder =
            before.into_iter().fold(builder, |builder, before| builder.keeping(&before.settings, &before.policy));
        Ok(Self { policy: builder.build()?, settings })
    }
}
