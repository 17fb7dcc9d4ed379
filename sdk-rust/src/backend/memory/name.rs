//! Names of keys, hashed in two parts.
//!
//! A limit asks for thousands of keys that begin alike: `resil:limit:<name>:{`. That part is hashed once, when the limit is
//! made, and a call hashes and compares only what differs, without writing the two together. So whoever hashes a whole name
//! hashes it in the same parts: up to the first `{`, then the rest without the `}` at its end.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::{FoldHasher, RandomState};

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
        write(&self.0, hasher);
    }
}

fn write(name: &[u8], hasher: &mut impl Hasher) {
    let inside = name.iter().position(|byte| *byte == b'{').map_or(0, |brace| brace + 1);
    let (before, rest) = name.split_at(inside);
    hasher.write(before);
    hasher.write(rest.strip_suffix(b"}").unwrap_or(rest));
}

/// The hash of a whole name.
#[inline]
pub(super) fn hash(name: &[u8], state: &RandomState) -> u64 {
    let mut hasher = state.build_hasher();
    write(name, &mut hasher);
    hasher.finish()
}

/// What many names begin with, up to and with their first `{`. For the store that made it: others hash differently.
#[derive(Clone)]
pub(crate) struct Prefix {
    bytes: Box<[u8]>,
    /// As it is after these bytes.
    hasher: FoldHasher<'static>,
}

impl Prefix {
    pub(super) fn new(bytes: &[u8], state: &RandomState) -> Self {
        debug_assert_eq!(bytes.iter().position(|byte| *byte == b'{'), bytes.len().checked_sub(1));
        let mut hasher = state.build_hasher();
        hasher.write(bytes);
        Self { bytes: bytes.into(), hasher }
    }

    /// The hash of `<prefix><inside>}`.
    #[inline]
    pub(super) fn hash(&self, inside: &[u8]) -> u64 {
        let mut hasher = self.hasher.clone();
        hasher.write(inside);
        hasher.finish()
    }

    /// Whether `name` is `<prefix><inside>}`.
    #[inline]
    pub(super) fn makes(&self, name: &Name, inside: &[u8]) -> bool {
        let Some((before, rest)) = name.0.split_at_checked(self.bytes.len()) else { return false };
        let Some((b'}', middle)) = rest.split_last() else { return false };
        middle == inside && *before == *self.bytes
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Prefix").field(&self.bytes.escape_ascii().to_string()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_differ_in_their_last_byte_alone_do_not_meet() {
        let state = RandomState::default();
        let mut hashes: Vec<u64> = (b'0'..=b'z').map(|last| hash(&[b"user:", &[last][..]].concat(), &state)).collect();
        let names = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), names);
    }

    proptest! {
        #[test]
        fn a_name_in_parts_is_the_name(
            limit in "[a-z:]{0,20}", inside in prop::collection::vec(any::<u8>(), 0..40),
            other in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let state = RandomState::default();
            let before = format!("resil:limit:{limit}:{{");
            let prefix = Prefix::new(before.as_bytes(), &state);
            let whole = [before.as_bytes(), &inside, b"}"].concat();
            let name = Name::from(&whole[..]);
            prop_assert_eq!(prefix.hash(&inside), hash(&whole, &state));
            prop_assert_eq!(state.hash_one(&name), hash(&whole, &state));
            prop_assert!(prefix.makes(&name, &inside));
            prop_assert_eq!(prefix.makes(&name, &other), inside == other);
            for at in 0..inside.len() {
                let mut near = inside.clone();
                near[at] ^= 1;
                prop_assert!(!prefix.makes(&name, &near));
            }
            // Not one whose last byte is another, nor one that is cut.
            let mut unclosed = whole.clone();
            unclosed.pop();
            prop_assert!(!prefix.makes(&Name::from(&unclosed[..]), &inside));
            unclosed.push(b'x');
            prop_assert!(!prefix.makes(&Name::from(&unclosed[..]), &inside));
        }
    }
}
