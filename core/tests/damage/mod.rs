//! What can happen to bytes under way.

use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Debug, Clone, Copy)]
pub enum Damage {
    Set(Index, u8),
    Flip(Index, u32),
    Cut(Index),
    Insert(Index, u8),
    Remove(Index),
    /// A run of continuation bytes makes numbers huge.
    Swell(Index),
}

pub fn damage() -> impl Strategy<Value = Damage> {
    (0..6u8, any::<Index>(), any::<u8>()).prop_map(|(kind, at, byte)| match kind {
        0 => Damage::Set(at, byte),
        1 => Damage::Flip(at, u32::from(byte % 8)),
        2 => Damage::Cut(at),
        3 => Damage::Insert(at, byte),
        4 => Damage::Remove(at),
        _ => Damage::Swell(at),
    })
}

impl Damage {
    pub fn to(self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let len = bytes.len();
        match self {
            Self::Set(at, byte) => bytes[at.index(len)] = byte,
            Self::Flip(at, bit) => bytes[at.index(len)] ^= 1 << bit,
            Self::Cut(at) => bytes.truncate(at.index(len)),
            Self::Insert(at, byte) => bytes.insert(at.index(len), byte),
            Self::Remove(at) => drop(bytes.remove(at.index(len))),
            Self::Swell(at) => drop(bytes.splice(at.index(len)..=at.index(len), [0xff, 0xff, 0xff, 0xff, 0x0f])),
        }
    }
}
