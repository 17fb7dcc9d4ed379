//! Commands of the server itself, such as INFO, for those who run it: asked of a server, or of every primary of a cluster.

use resil_wire::reply::Value;
use tokio::time::timeout;

use super::lost::{Gathered, LostNodes};
use super::scanning::page;
use super::trouble::Trouble;
use super::{Redis, is_in_a_runtime};
use crate::error::Error;

impl Redis {
    /// What each node replies, by its `host:port`; of a server that is no cluster, by `None`.
    pub async fn ask_nodes(
        &self,
        words: &[&[u8]],
        lost: Option<&LostNodes>,
    ) -> Result<Vec<(Option<String>, Value)>, Error> {
        let asking = self.ask_nodes_here(words, lost);
        if is_in_a_runtime() { Box::pin(asking).await } else { Box::pin(self.outside(asking)).await }
    }

    async fn ask_nodes_here(
        &self,
        words: &[&[u8]],
        lost: Option<&LostNodes>,
    ) -> Result<Vec<(Option<String>, Value)>, Error> {
        let mut link = self.shared.link()?;
        let bound = self.shared.command_timeout;
        let mut replies = Gathered::new(lost);
        for node in &self.nodes(&link, lost).await? {
            let node = node.as_ref();
            let reply = timeout(bound, page(&mut link, words, node)).await.unwrap_or(Err(Trouble::Late));
            let reply = reply.map(|value| vec![(node.map(|node| node.address().to_owned()), value)]);
            replies.add(node, reply.map_err(|trouble| trouble.into_error(None)))?;
        }
        replies.all()
    }
}
