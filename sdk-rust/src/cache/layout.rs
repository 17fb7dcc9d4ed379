//! Where the values of a cache, and what is known of its name, are at the server.
//!
//! | | value | name |
//! | --- | --- | --- |
//! | one server | `resil:cache:<name>:{<key>}` | `resil:cache:{<name>}` |
//! | cluster | `resil:cache:<name>:{<name>.<part>}:<key>` | `resil:cache:{<name>.<part>}` |
//!
//! A value and its name's key have to be in one slot. One server has no slots. In a cluster a cache is made of [`PARTS`]
//! parts, each in a slot of its own, with a key of the name each: values are spread over the nodes, and what concerns the whole name
//! is said to every part.

/// How many slots a cache is spread over in a cluster. All processes have to agree.
const PARTS: u64 = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    kind: &'static str,
    name: String,
    in_cluster: bool,
}

impl Layout {
    pub fn new(kind: &'static str, name: &str, in_cluster: bool) -> Self {
        Self { kind, name: name.to_owned(), in_cluster }
    }

    pub fn value_key(&self, key: &str) -> String {
        let Self { kind, name, in_cluster } = self;
        if *in_cluster {
            format!("resil:{kind}:{name}:{{{name}.{}}}:{key}", part_of(key))
        } else {
            crate::keys::under(kind, name, key)
        }
    }

    /// The key of the name, for a value.
    pub fn name_key(&self, key: &str) -> String {
        self.part_key(part_of(key))
    }

    /// All keys of the name.
    pub fn name_keys(&self) -> Vec<String> {
        (0..if self.in_cluster { PARTS } else { 1 }).map(|part| self.part_key(part)).collect()
    }

    fn part_key(&self, part: u64) -> String {
        let Self { kind, name, in_cluster } = self;
        if *in_cluster { format!("resil:{kind}:{{{name}.{part}}}") } else { crate::keys::named(kind, name) }
    }

    /// The key of a value, as the caller knows it.
    pub fn key_in<'k>(&self, value_key: &'k [u8]) -> Option<&'k str> {
        let rest = std::str::from_utf8(value_key).ok()?.strip_prefix("resil:")?.strip_prefix(self.kind)?;
        let rest = rest.strip_prefix(':')?.strip_prefix(&*self.name)?.strip_prefix(":{")?;
        if self.in_cluster { rest.split_once("}:").map(|(_, key)| key) } else { rest.strip_suffix('}') }
    }
}

/// FNV-1a: the same in every process, of every version.
fn part_of(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_and_its_name_are_in_one_slot_of_a_cluster() {
        let layout = Layout::new("cache", "user", true);
        let parts: std::collections::BTreeSet<String> = (0..1_000)
            .map(|key| {
                let (value, name) = (layout.value_key(&key.to_string()), layout.name_key(&key.to_string()));
                let tag = |key: &str| key.split_once('{').unwrap().1.split_once('}').unwrap().0.to_owned();
                assert_eq!(tag(&value), tag(&name));
                assert!(layout.name_keys().contains(&name));
                name
            })
            .collect();
        assert_eq!(parts.len(), 16);
    }

    #[test]
    fn a_key_is_found_in_its_name_at_the_server() {
        for in_cluster in [false, true] {
            let layout = Layout::new("cache", "user", in_cluster);
            for key in ["42", "", "a}:b", "{x}", "ä:ö"] {
                assert_eq!(layout.key_in(layout.value_key(key).as_bytes()), Some(key));
            }
            assert_eq!(layout.key_in(b"resil:cache:users:{1}"), None);
            assert_eq!(layout.key_in(b"something else"), None);
        }
    }
}
