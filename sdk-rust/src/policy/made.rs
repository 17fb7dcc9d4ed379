//! A policy that is changed: the last good one, and the next.
//!
//! What is the same in both is one: the breaker, the budget of retries, places, hedges and what adapts go on with what they have counted.

use super::builder::PolicyBuilder;
use super::chain::Policy;
use super::fleet::FleetGuard;
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

    /// The same policy as it is stored under `name`: what the fleet shares is asked of the server, and this is what is used while that
    /// is no help. `before` is what was used so far, and the settings of that.
    pub fn stored(&self, client: &Client, name: &str, before: Option<(&Self, &Policy)>) -> Result<Policy, Error> {
        let Some(fleet) = FleetGuard::of(client, name, &self.settings, &self.policy) else {
            return Ok(self.policy.clone());
        };
        let builder = PolicyBuilder::stored(&self.settings, fleet)?;
        let kept = |builder: PolicyBuilder, (made, policy): (&Self, &Policy)| builder.keeping(&made.settings, policy);
        before.into_iter().fold(builder, kept).build()
    }
}
