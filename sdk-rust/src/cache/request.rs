//! What a caller brings to a get: its options, and its loader, which runs once at most. Callers that share a flight share what the one brought
//! that began it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::CallOptions;
use crate::error::Error;

pub(super) struct Request<L> {
    pub options: CallOptions,
    /// Until somebody uses it.
    loader: Mutex<Option<L>>,
}

impl<L> Request<L> {
    pub fn new(options: CallOptions, loader: L) -> Arc<Self> {
        Arc::new(Self { options, loader: Mutex::new(Some(loader)) })
    }

    /// The loader, once.
    pub fn take_loader(&self) -> Result<L, Error> {
        self.loader.lock().take().ok_or_else(|| Error::Internal("a loader was used twice".to_owned()))
    }
}

/// How a load can fail.
#[derive(Debug)]
pub(super) enum LoaderError<E> {
    Theirs(E),
    Ours(Error),
}
