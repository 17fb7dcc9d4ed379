//! Nodes of a cluster that do not reply: who looks at the whole fleet goes on without them, and knows which they are.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::slots::PrimaryNode;
use crate::error::{Code, Error};

/// Which nodes did not reply, and why. A node that is lost is not asked again by those who share this.
#[derive(Debug, Default)]
pub(crate) struct LostNodes(Mutex<BTreeMap<String, String>>);

impl LostNodes {
    pub(super) fn has(&self, node: &PrimaryNode) -> bool {
        self.0.lock().contains_key(node.address())
    }

    /// `host:port`, and why.
    pub fn all(&self) -> Vec<(String, String)> {
        self.0.lock().iter().map(|(address, why)| (address.clone(), why.clone())).collect()
    }
}

/// What the nodes said, one after the other.
pub(super) struct Gathered<'a, T> {
    lost: Option<&'a LostNodes>,
    rows: Vec<T>,
    has_reply: bool,
    last: Option<Error>,
}

impl<'a, T> Gathered<'a, T> {
    pub fn new(lost: Option<&'a LostNodes>) -> Self {
        Self { lost, rows: Vec::new(), has_reply: false, last: None }
    }

    /// An error ends it, unless it says that this node of a cluster is away, and others may be lost.
    pub fn add(&mut self, node: Option<&PrimaryNode>, said: Result<Vec<T>, Error>) -> Result<(), Error> {
        match (said, self.lost, node) {
            (Ok(rows), _, _) => {
                self.has_reply = true;
                self.rows.extend(rows);
            }
            (Err(error), Some(lost), Some(node))
                if matches!(error.code(), Code::BackendUnavailable | Code::Timeout) =>
            {
                lost.0.lock().insert(node.address().to_owned(), error.to_string());
                self.last = Some(error);
            }
            (Err(error), _, _) => return Err(error),
        }
        Ok(())
    }

    /// Of those that answered; an error if none did.
    pub fn all(self) -> Result<Vec<T>, Error> {
        match self.last {
            Some(error) if !self.has_reply => Err(error),
            _ => Ok(self.rows),
        }
    }
}
