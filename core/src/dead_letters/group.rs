//! Groups: failures with the same cause belong together, so that an operator looks at three causes and not at two thousand
//! messages. A group is the type of the message and its error text without what differs from one message to the next.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::message::cut;
use crate::limits::{GROUPS_MAX, TEXT_MAX, TYPES_MAX};
use crate::time::Instant;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub name: Arc<[u8]>,
    pub kind: Box<[u8]>,
    /// By their deaths, then by arrival.
    pub dead: BTreeSet<(Instant, u64)>,
    /// In the ledger with this group.
    pub entries: usize,
    pub deaths: u64,
    pub first_at: Instant,
    pub last_at: Instant,
    pub last_death: Option<Instant>,
    /// The latest error text.
    pub error: Arc<[u8]>,
    /// The open cases that cover it.
    pub cases: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    pub list: BTreeMap<u32, Group>,
    pub by_name: BTreeMap<Arc<[u8]>, u32>,
    pub last: u32,
}

impl Groups {
    /// The name under which a failure is counted. Once there are very many groups, what is new shares one with its type.
    pub fn name_for(&self, kind: &[u8], error: &[u8], given: Option<&[u8]>) -> Vec<u8> {
        let name = given.map_or_else(|| name(kind, &normalised(error)), |given| cut(given, TEXT_MAX).to_vec());
        if self.by_name.contains_key(&name[..]) || self.list.len() < GROUPS_MAX {
            return name;
        }
        let others = self::name(kind, b"other");
        let is_full = self.list.len() >= GROUPS_MAX + TYPES_MAX && !self.by_name.contains_key(&others[..]);
        if is_full { b"other/other".to_vec() } else { others }
    }

    /// The same name, and the error text; shared with the group where it has them already.
    pub fn texts_for(&self, kind: &[u8], error: &[u8], given: Option<&[u8]>) -> (Arc<[u8]>, Arc<[u8]>) {
        let name = self.name_for(kind, error, given);
        let Some((name, number)) = self.by_name.get_key_value(&name[..]) else { return (name.into(), error.into()) };
        let same = self.get(*number).filter(|group| *group.error == *error);
        (Arc::clone(name), same.map_or_else(|| error.into(), |group| Arc::clone(&group.error)))
    }

    /// The number of the group, which is made if there is none.
    pub fn number(&mut self, name: &[u8], kind: &[u8], at: Instant) -> u32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        self.last += 1;
        let name: Arc<[u8]> = name.into();
        let group = Group {
            name: Arc::clone(&name),
            kind: kind.into(),
            dead: BTreeSet::new(),
            entries: 0,
            deaths: 0,
            first_at: at,
            last_at: at,
            last_death: None,
            error: Arc::default(),
            cases: Vec::new(),
        };
        self.insert(self.last, group);
        self.last
    }

    pub fn insert(&mut self, number: u32, group: Group) {
        self.by_name.insert(Arc::clone(&group.name), number);
        self.list.insert(number, group);
    }

    pub fn get(&self, number: u32) -> Option<&Group> {
        self.list.get(&number)
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut Group> {
        self.list.get_mut(&number)
    }

    /// By its name, or by the one that a caller gave and that was cut.
    pub fn by_name(&self, name: &[u8]) -> Option<u32> {
        self.by_name.get(cut(name, TEXT_MAX)).copied()
    }

    /// An entry leaves its group, if it has one. A group that nobody needs goes.
    pub fn leave(&mut self, number: u32) {
        if let Some(group) = self.list.get_mut(&number) {
            group.entries = group.entries.saturating_sub(1);
        }
        self.drop_if_unused(number);
    }

    pub fn drop_if_unused(&mut self, number: u32) {
        let is_unused = self.list.get(&number).is_some_and(|group| group.entries == 0 && group.cases.is_empty());
        if is_unused && let Some(group) = self.list.remove(&number) {
            self.by_name.remove(&group.name);
        }
    }
}

fn name(kind: &[u8], rest: &[u8]) -> Vec<u8> {
    let kind = if kind.is_empty() { b"unknown" } else { cut(kind, TEXT_MAX / 2) };
    let mut name = [kind, b"/", rest].concat();
    name.truncate(cut(&name, TEXT_MAX).len());
    name
}

/// The first line of an error text, with numbers, hexadecimal words, UUIDs and quoted parts replaced.
pub fn normalised(error: &[u8]) -> Vec<u8> {
    const LOOKED_AT: usize = 300;
    let line = error.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut rest = cut(line, LOOKED_AT);
    let mut out = Vec::with_capacity(rest.len());
    while let Some(first) = rest.first() {
        let (replacement, len): (&[u8], usize) = match first {
            b'"' | b'\'' | b'`' => match quoted(rest) {
                // An apostrophe inside of a word is none.
                Some(len) if *first != b'\'' || !out.last().is_some_and(u8::is_ascii_alphanumeric) => (b"<text>", len),
                _ => (&rest[..1], 1),
            },
            byte if byte.is_ascii_alphanumeric() => {
                let len = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
                if is_uuid(&rest[..len.min(36)]) && (len == 36 || rest.get(36) == Some(&b'-')) {
                    (b"<uuid>", 36)
                } else {
                    let len = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
                    (word(&rest[..len]), len)
                }
            }
            _ => (&rest[..1], 1),
        };
        out.extend_from_slice(replacement);
        rest = &rest[len..];
    }
    out
}

/// The length of a quoted part that begins here.
fn quoted(text: &[u8]) -> Option<usize> {
    text.iter().skip(1).position(|byte| *byte == text[0]).map(|inside| inside + 2)
}

fn word(word: &[u8]) -> &[u8] {
    let has_digit = word.iter().any(u8::is_ascii_digit);
    let is_hex = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
    if !has_digit {
        word
    } else if word.iter().all(u8::is_ascii_digit) {
        b"<n>"
    } else if word.strip_prefix(b"0x").is_some_and(is_hex) || word.len() >= 8 && is_hex(word) {
        b"<hex>"
    } else if word[0].is_ascii_digit() {
        // 30s, 404th, 5GB: a number with its unit.
        b"<n>"
    } else {
        word
    }
}

fn is_uuid(text: &[u8]) -> bool {
    text.len() == 36
        && text.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    fn normal(text: &str) -> String {
        String::from_utf8(normalised(text.as_bytes())).expect("ASCII in, ASCII out")
    }

    #[test]
    fn what_differs_between_messages_is_replaced() {
        assert_eq!(normal("timeout after 3000 ms to 10.0.0.7:5432"), "timeout after <n> ms to <n>.<n>.<n>.<n>:<n>");
        assert_eq!(normal("order 'A-17' has no item \"x\""), "order <text> has no item <text>");
        assert_eq!(normal("no row 5f3759df00aa at 0xdeadbeef"), "no row <hex> at <hex>");
        assert_eq!(normal("id 123e4567-e89b-12d3-a456-426614174000 gone"), "id <uuid> gone");
        assert_eq!(normal("waited 30s, then 404"), "waited <n>, then <n>");
    }

    #[test]
    fn what_says_the_cause_stays() {
        assert_eq!(normal("connection refused"), "connection refused");
        assert_eq!(normal("can't parse utf8, it's broken"), "can't parse utf8, it's broken");
        assert_eq!(normal("SQLSTATE deadbeef is a word"), "SQLSTATE deadbeef is a word");
        assert_eq!(normal("first line\n  at frame 7"), "first line");
        assert_eq!(normal("an open 'quote"), "an open 'quote");
    }
}
