//! The server itself: what it says of itself, and what its user may do. In memory there is none, and all of this is
//! refused.

use std::time::Duration;

use resil_wire::reply::{Unexpected, Value};

use super::Operator;
use crate::backend::Backend;
use crate::error::Error;

pub(super) fn no_server() -> Error {
    Error::InvalidArgument("memory:// is no server: name one, such as redis://127.0.0.1:6379".to_owned())
}

fn unexpected(error: &Unexpected) -> Error {
    Error::Internal(error.to_string())
}

fn text(value: &Value) -> Result<String, Unexpected> {
    match value {
        Value::Integer(number) => Ok(number.to_string()),
        value => value.text().map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
    }
}

fn pairs(value: &Value) -> Result<Vec<(String, String)>, Unexpected> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| Ok((text(name)?, text(value)?))).collect(),
        flat => flat.array()?.chunks_exact(2).map(|pair| Ok((text(&pair[0])?, text(&pair[1])?))).collect(),
    }
}

impl Operator {
    pub(super) async fn ask(&self, words: &[&str]) -> Result<Vec<(Option<String>, Value)>, Error> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        match self.client.backend() {
            #[cfg(feature = "redis")]
            Backend::Redis(redis) => redis.ask_nodes(&words, self.lost.as_deref()).await,
            _ => Err(no_server()),
        }
    }

    async fn first(&self, words: &[&str]) -> Result<Value, Error> {
        self.ask(words)
            .await?
            .into_iter()
            .next()
            .map(|(_, value)| value)
            .ok_or_else(|| Error::Internal("no node answered".to_owned()))
    }

    /// The text of `INFO section`, of each primary if it is a cluster.
    pub async fn info(&self, section: &str) -> Result<Vec<String>, Error> {
        Ok(self.info_by_node(section).await?.into_iter().map(|(_, text)| text).collect())
    }

    /// The same with the `host:port` of each primary; `None` for a server that is no cluster.
    pub async fn info_by_node(&self, section: &str) -> Result<Vec<(Option<String>, String)>, Error> {
        let replies = self.ask(&["INFO", section]).await?;
        let said = replies.into_iter().map(|(node, value)| Ok((node, text(&value)?)));
        said.collect::<Result<_, _>>().map_err(|error| unexpected(&error))
    }

    /// The settings of the server whose names match, of any primary if it is a cluster.
    pub async fn config(&self, pattern: &str) -> Result<Vec<(String, String)>, Error> {
        pairs(&self.first(&["CONFIG", "GET", pattern]).await?).map_err(|error| unexpected(&error))
    }

    /// The same of each primary, by its `host:port`; `None` for a server that is no cluster.
    pub async fn config_by_node(&self, pattern: &str) -> Result<Vec<(Option<String>, Vec<(String, String)>)>, Error> {
        let replies = self.ask(&["CONFIG", "GET", pattern]).await?;
        let said = replies.into_iter().map(|(node, value)| Ok((node, pairs(&value)?)));
        said.collect::<Result<_, _>>().map_err(|error| unexpected(&error))
    }

    /// The server's clock, since the Unix epoch.
    pub async fn time(&self) -> Result<Duration, Error> {
        let reply = self.first(&["TIME"]).await?;
        let parts = reply.array().and_then(|parts| parts.iter().map(text).collect::<Result<Vec<_>, _>>());
        let parts = parts.map_err(|error| unexpected(&error))?;
        let number = |at: usize| parts.get(at).and_then(|part| part.parse().ok());
        match (number(0), number(1)) {
            (Some(seconds), Some(us)) => Ok(Duration::from_secs(seconds) + Duration::from_micros(us)),
            _ => Err(Error::Internal("TIME was answered without a time".to_owned())),
        }
    }

    /// The user of this connection.
    pub async fn user(&self) -> Result<String, Error> {
        text(&self.first(&["ACL", "WHOAMI"]).await?).map_err(|error| unexpected(&error))
    }

    /// Whether `user` may run a command, without running it.
    pub async fn may(&self, user: &str, command: &[&str]) -> Result<bool, Error> {
        let words = [&["ACL", "DRYRUN", user], command].concat();
        text(&self.first(&words).await?).map(|verdict| verdict == "OK").map_err(|error| unexpected(&error))
    }
}
