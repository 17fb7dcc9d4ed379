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
pub(crate) struct Layout(Vec<SlotKeys>);

/// The keys in one slot. Written once: every get needs two of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotKeys {
    /// The key of the name, for these values.
    pub name_key: String,
    before_key: String,
    after_key: &'static str,
}

impl Layout {
    pub fn new(kind: &'static str, name: &str, in_cluster: bool) -> Self {
        if !in_cluster {
            let (name_key, before_key) = (crate::keys::named(kind, name), format!("resil:{kind}:{name}:{{"));
            return Self(vec![SlotKeys { name_key, before_key, after_key: "}" }]);
        }
        let part = |part| SlotKeys {
            name_key: format!("resil:{kind}:{{{name}.{part}}}"),
            before_key: format!("resil:{kind}:{name}:{{{name}.{part}}}:"),
            after_key: "",
        };
        Self((0..PARTS).map(part).collect())
    }

    /// Where the value of `key` is.
    pub fn part(&self, key: &str) -> &SlotKeys {
        match self.0.as_slice() {
            [one] => one,
            parts => &parts[(hash_of(key) % PARTS) as usize],
        }
    }

    /// All keys of the name.
    pub fn name_keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|part| &*part.name_key)
    }

    /// The key of a value, as the caller knows it.
    pub fn key_in<'k>(&self, value_key: &'k [u8]) -> Option<&'k str> {
        let value_key = std::str::from_utf8(value_key).ok()?;
        self.0.iter().find_map(|part| value_key.strip_prefix(&*part.before_key)?.strip_suffix(part.after_key))
    }
}

impl SlotKeys {
    pub fn value_key(&self, key: &str) -> String {
        [&self.before_key, key, self.after_key].concat()
    }
}

/// FNV-1a: the same in every process, of every version.
fn hash_of(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_and_its_name_share_a_cluster_slot() {
        let layout = Layout::new("cache", "user", true);
        let parts: std::collections::BTreeSet<&str> = (0..1_000)
            .map(|key| {
                let part = layout.part(&key.to_string());
                let (value, name) = (part.value_key(&key.to_string()), &*part.name_key);
                let tag = |key: &str| key.split_once('{').unwrap().1.split_once('}').unwrap().0.to_owned();
                assert_eq!(tag(&value), tag(name));
                assert!(layout.name_keys().any(|each| each == name));
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
                assert_eq!(layout.key_in(layout.part(key).value_key(key).as_bytes()), Some(key));
            }
            assert_eq!(layout.key_in(b"resil:cache:users:{1}"), None);
            assert_eq!(layout.key_in(b"something else"), None);
        }
    }
}
