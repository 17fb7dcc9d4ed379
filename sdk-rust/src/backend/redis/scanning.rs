//! Which keys there are: SCAN, of every primary of a cluster. A key may be missing, or come twice, if it is moved meanwhile.

use redis::Cmd;
use resil_wire::reply::Value;
use tokio::time::timeout;

use super::link::Link;
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

    async fn scan_here(&self, pattern: &str, kind: &str) -> Result<Vec<Vec<u8>>, Error> {
        let mut link = self.shared.link()?;
        let bound = self.shared.command_timeout;
        let said = |trouble: Trouble| trouble.into_error(None);
        let nodes = match &link {
            Link::Server(_) => vec![None],
            Link::Cluster(_) => {
                let asked = timeout(bound, slots::one_of_each_primary(&link)).await.unwrap_or(Err(Trouble::Late));
                asked.map_err(said)?.into_iter().map(Some).collect()
            }
        };
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
                let page = timeout(bound, page(&mut link, &words, node)).await.unwrap_or(Err(Trouble::Late));
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

/// `slot` is one of the node that is asked.
pub(super) async fn page(link: &mut Link, words: &[&[u8]], slot: Option<u16>) -> Result<Value, Trouble> {
    match (&mut *link, slot) {
        (Link::Server(connection), _) => connection.ask_anyway(|outbox| resp::write_plain(words, outbox)).await,
        (link, slot) => {
            let mut command = Cmd::new();
            for word in words {
                command.arg(*word);
            }
            link.send_to(command, slot.unwrap_or_default()).await.map(understood)
        }
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
