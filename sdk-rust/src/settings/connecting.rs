//! How to connect. Where to is said apart: a URL may hold a password, and does not stand among settings.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::client::{COMMAND_TIMEOUT_MAX, Client, ConnectOptions};
use crate::clock::Clock;
use crate::error::Error;
use crate::policy::span_text::{check_number, check_span, optional};

/// Whoever asks for more connections than this means something else.
const WAITING_CONNECTIONS_MAX: usize = 10_000;
/// A name is part of every owner, which the server takes up to 512 bytes of.
const NAME_MAX: usize = 256;

/// See [`ConnectOptions`] for what each means, and what holds if it is not said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ConnectSettings {
    /// Who this process is to the others: 1 to 256 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// 1 ms to 1 h.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub command_timeout: Option<Duration>,
    /// From 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<u32>,
    /// 1 to 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_connections: Option<usize>,
    /// Whether connecting fails if the server cannot be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_server: Option<bool>,
}

impl ConnectSettings {
    pub fn validate(&self) -> Result<(), Error> {
        if self.name.as_ref().is_some_and(|name| !(1..=NAME_MAX).contains(&name.len())) {
            return Err(Error::invalid("name", format!("must have from 1 to {NAME_MAX} bytes")));
        }
        if let Some(timeout) = self.command_timeout {
            check_span("commandTimeout", timeout, Duration::from_millis(1), COMMAND_TIMEOUT_MAX)?;
        }
        check_number("instances", self.instances.unwrap_or(1), 1, u32::MAX)?;
        check_number("waitingConnections", self.waiting_connections.unwrap_or(1), 1, WAITING_CONNECTIONS_MAX)
    }

    /// As options, checked.
    pub fn options(&self, url: &str) -> Result<ConnectOptions, Error> {
        self.validate()?;
        let mut options = ConnectOptions::new(url);
        options = self.name.iter().fold(options, |options, name| options.name(name));
        options = self.command_timeout.into_iter().fold(options, ConnectOptions::command_timeout);
        options = self.instances.into_iter().fold(options, ConnectOptions::instances);
        options = self.waiting_connections.into_iter().fold(options, ConnectOptions::waiting_connections);
        Ok(if self.require_server == Some(true) { options.require_server() } else { options })
    }

    /// Connects: see [`ConnectOptions::connect`].
    pub async fn connect(&self, url: &str) -> Result<Client, Error> {
        self.options(url)?.connect().await
    }

    /// The same for another language, which keeps connections on a runtime of its own ([`ConnectOptions::runtime`]) and may bring
    /// another clock than the machine's, for tests.
    pub async fn connect_on(&self, url: &str, runtime: Handle, clock: Option<Clock>) -> Result<Client, Error> {
        let options = self.options(url)?.runtime(runtime);
        clock.into_iter().fold(options, ConnectOptions::clock).connect().await
    }
}
