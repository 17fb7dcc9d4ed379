//! Which keys there are: SCAN, RES.LIST and RES.TOP, of every primary of a cluster. A key may be missing, or come twice, if it is moved meanwhile.

use redis::Cmd;
use resil_wire::command::{Command, Reply};
use resil_wire::overview::{OverviewCall, OverviewRow, TopCall, TopRow};
use resil_wire::reply::Value;
use tokio::time::timeout;

use super::link::Link;
use super::lost::{Gathered, LostNodes};
use super::slots::PrimaryNode;
use super::speech::understood;
use super::trouble::Trouble;
use super::{Redis, is_in_a_runtime, resp, slots};
use crate::error::Error;

/// How many keys the server looks at for one reply: well below a millisecond of its time.
const COUNT: &str = "1000";

impl Redis {
    /// The keys of this type whose names match.
    pub async fn scan(&self, pattern: &str, kind: &str) -> Result<Vec<Vec<u8>>, Error> {
        let scanning = self.scan_here(pattern, kind);
        if is_in_a_runtime() { Box::pin(scanning).await } else { Box::pin(self.outside(scanning)).await }
    }

    /// The rows of every primary, at most `most` of each.
    pub async fn list(
        &self,
        call: OverviewCall<'_>,
        most: usize,
        lost: Option<&LostNodes>,
    ) -> Result<Vec<OverviewRow>, Error> {
        let listing = self.list_here(call, most, lost);
        if is_in_a_runtime() { Box::pin(listing).await } else { Box::pin(self.outside(listing)).await }
    }

    async fn list_here(
        &self,
        call: OverviewCall<'_>,
        most: usize,
        lost: Option<&LostNodes>,
    ) -> Result<Vec<OverviewRow>, Error> {
        let mut link = self.shared.link()?;
        let mut rows = Gathered::new(lost);
        for node in &self.nodes(&link, lost).await? {
            let listed = self.list_of(&mut link, call.clone(), most, node.as_ref());
            rows.add(node.as_ref(), listed.await)?;
        }
        rows.all()
    }

    async fn list_of(
        &self,
        link: &mut Link,
        mut call: OverviewCall<'_>,
        most: usize,
        node: Option<&PrimaryNode>,
    ) -> Result<Vec<OverviewRow>, Error> {
        let mut rows = Vec::new();
        call.cursor = 0;
        loop {
            let Reply::Listed(listed) = self.ask_node(link, &Command::List(call.clone()), node).await? else {
                return Err(Error::Internal("not a list".to_owned()));
            };
            rows.extend(listed.rows);
            call.cursor = listed.cursor;
            if call.cursor == 0 || rows.len() >= most {
                rows.truncate(most);
                return Ok(rows);
            }
        }
    }

    /// The rows of every primary, in no order.
    pub async fn top(&self, call: TopCall, lost: Option<&LostNodes>) -> Result<Vec<TopRow>, Error> {
        let ranking = self.top_here(call, lost);
        if is_in_a_runtime() { Box::pin(ranking).await } else { Box::pin(self.outside(ranking)).await }
    }

    async fn top_here(&self, call: TopCall, lost: Option<&LostNodes>) -> Result<Vec<TopRow>, Error> {
        let mut link = self.shared.link()?;
        let (mut rows, command) = (Gathered::new(lost), Command::Top(call));
        for node in &self.nodes(&link, lost).await? {
            let ranked = match self.ask_node(&mut link, &command, node.as_ref()).await {
                Ok(Reply::Ranked(ranked)) => Ok(ranked.0),
                Ok(_) => Ok(Vec::new()),
                Err(error) => Err(error),
            };
            rows.add(node.as_ref(), ranked)?;
        }
        rows.all()
    }

    async fn ask_node(
        &self,
        link: &mut Link,
        command: &Command<'_>,
        node: Option<&PrimaryNode>,
    ) -> Result<Reply, Error> {
        let words = command.words();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let asked = timeout(self.shared.command_timeout, page(link, &words, node)).await.unwrap_or(Err(Trouble::Late));
        let value = asked.map_err(|trouble| trouble.into_error(None))?;
        command.read(value).map_err(|error| Error::Internal(error.to_string()))
    }

    /// Every primary that is not lost already; of a server that is no cluster, `None`.
    pub(super) async fn nodes(&self, link: &Link, lost: Option<&LostNodes>) -> Result<Vec<Option<PrimaryNode>>, Error> {
        if let Link::Server(_) = link {
            return Ok(vec![None]);
        }
        // Any node is asked which there are: it may be the one that is lost.
        let attempts = if lost.is_some() { 3 } else { 1 };
        let (bound, mut asked) = (self.shared.command_timeout / attempts, Err(Trouble::Late));
        for _ in 0..attempts {
            asked = timeout(bound, slots::primaries(link)).await.unwrap_or(Err(Trouble::Late));
            if asked.is_ok() {
                break;
            }
        }
        let nodes = asked.map_err(|trouble| trouble.into_error(None))?;
        let is_left = |node: &PrimaryNode| lost.is_none_or(|lost| !lost.has(node));
        let left: Vec<_> = nodes.into_iter().filter(is_left).map(Some).collect();
        if left.is_empty() { Err(Error::BackendUnavailable("no node of the cluster can be reached")) } else { Ok(left) }
    }

    async fn scan_here(&self, pattern: &str, kind: &str) -> Result<Vec<Vec<u8>>, Error> {
        let mut link = self.shared.link()?;
        let bound = self.shared.command_timeout;
        let said = |trouble: Trouble| trouble.into_error(None);
        let nodes = self.nodes(&link, None).await?;
        let mut keys = Vec::new();
        for node in nodes {
            let mut cursor = b"0".to_vec();
            loop {
                let words = [
                    b"SCAN",
                    cursor.as_slice(),
                    b"MATCH",
                    pattern.as_bytes(),
                    b"COUNT",
                    COUNT.as_bytes(),
                    b"TYPE",
                    kind.as_bytes(),
                ];
                let page = timeout(bound, page(&mut link, &words, node.as_ref())).await.unwrap_or(Err(Trouble::Late));
                let (next, found) = read(page.map_err(said)?)?;
                keys.extend(found);
                cursor = next;
                if cursor == b"0" {
                    break;
                }
            }
        }
        Ok(keys)
    }
}

/// Of `node`, if this is a cluster.
pub(super) async fn page(link: &mut Link, words: &[&[u8]], node: Option<&PrimaryNode>) -> Result<Value, Trouble> {
    match (&mut *link, node) {
        (Link::Server(connection), _) => connection.ask_anyway(|outbox| resp::write_plain(words, outbox)).await,
        (link, Some(node)) => {
            let mut command = Cmd::new();
            for word in words {
                command.arg(*word);
            }
            link.send_to(command, node).await.map(understood)
        }
        (_, None) => Err(Trouble::Gone("no node of the cluster is known")),
    }
}

/// `[cursor, keys]`
fn read(page: Value) -> Result<(Vec<u8>, Vec<Vec<u8>>), Error> {
    let read = || {
        let mut fields = page.into_fields()?;
        let cursor = fields.text()?;
        let keys = fields.next()?.into_array()?.into_iter().map(Value::into_text).collect::<Result<_, _>>()?;
        fields.finish((cursor, keys))
    };
    read().map_err(|error: resil_wire::reply::Unexpected| Error::Internal(error.to_string()))
}
