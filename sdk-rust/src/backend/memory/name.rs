//! Names of keys, hashed once by the store.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::RandomState;

/// What a key is called, as it is kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name(Box<[u8]>);

impl Name {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Name {
    fn from(name: &[u8]) -> Self {
        Self(name.into())
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write(&self.0);
    }
}

/// The hash of a whole name.
#[inline]
pub(super) fn hash(name: &[u8], state: &RandomState) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(name);
    hasher.finish()
}
