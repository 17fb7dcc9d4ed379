//! Commands of the server itself, such as INFO, for those who run it: asked of a server, or of every primary of a cluster.

use resil_wire::reply::Value;
use tokio::time::timeout;

use super::link::Link;
use super::scanning::page;
use super::trouble::Trouble;
use super::{Redis, is_in_a_runtime, slots};
use crate::error::Error;

impl Redis {
    /// What each node replies.
    pub async fn ask_nodes(&self, words: &[&[u8]]) -> Result<Vec<Value>, Error> {
        let asking = self.ask_nodes_here(words);
        if is_in_a_runtime() { Box::pin(asking).await } else { Box::pin(self.outside(asking)).await }
    }

    async fn ask_nodes_here(&self, words: &[&[u8]]) -> Result<Vec<Value>, Error> {
        let mut link = self.shared.link()?;
        let bound = self.shared.command_timeout;
        let said = |trouble: Trouble| trouble.into_error(None);
        let nodes = match &link {
            Link::Server(_) => vec![None],
            Link::Cluster(_) => {
                let asked = timeout(bound, slots::primaries(&link)).await.unwrap_or(Err(Trouble::Late));
                asked.map_err(said)?.into_iter().map(Some).collect()
            }
        };
        let mut replies = Vec::with_capacity(nodes.len());
        for node in nodes {
            let reply = timeout(bound, page(&mut link, words, node.as_ref())).await.unwrap_or(Err(Trouble::Late));
            replies.push(reply.map_err(said)?);
        }
        Ok(replies)
    }
}
