//! Permits: what ADMIT hands out and REPORT brings back. Opaque to callers, and trusted for nothing.
//!
//! A closed breaker remembers no permit: that would be a write for every call. So a permit itself names its caller, and
//! the server that issues it can seal it: a report with a wrong seal counts for no caller.

use crate::time::Span;

/// A permit of generation 0 is stale after this long: a key that went starts at generation 0 again. A breaker that has
/// left generation 0 is kept for at least as long, so no such permit can meet a later life of its key.
pub(super) const LIFE: Span = Span::from_secs(3_600);

/// Who calls, as far as a breaker wants to know: the hash of what CALLER said. Nobody in particular is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller(pub u64);

impl Caller {
    /// Nobody: a report of its counts as an outcome, and not towards QUORUM.
    pub const UNVERIFIED: Self = Self(u64::MAX);

    /// FNV-1a: the same on every machine and in every version.
    pub fn named(name: &[u8]) -> Self {
        let hash = name
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ *byte as u64).wrapping_mul(0x0000_0100_0000_01b3));
        Self(hash.max(1))
    }
}

/// `generation.issued.caller` for an ordinary permit, `generation.issued.caller.probe` for a probe; then `-seal` if it
/// has one. All of it in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    pub generation: u64,
    pub issued_us: i64,
    pub caller: Caller,
    /// The number of a probe.
    pub probe: Option<u32>,
    /// What only its issuer can compute from the rest; 0 if it is not sealed.
    pub seal: u32,
}

impl Permit {
    pub fn text(&self) -> PermitText {
        let mut text = PermitText { bytes: [0; PermitText::MAX], start: PermitText::MAX };
        if self.seal != 0 {
            text.prepend_hex(u64::from(self.seal));
            text.prepend(b'-');
        }
        if let Some(probe) = self.probe {
            text.prepend_hex(probe as u64);
            text.prepend(b'.');
        }
        text.prepend_hex(self.caller.0);
        text.prepend(b'.');
        text.prepend_hex(self.issued_us as u64);
        text.prepend(b'.');
        text.prepend_hex(self.generation);
        text
    }

    pub fn parse(text: &[u8]) -> Option<Self> {
        let (numbers, seal) = match text.iter().position(|byte| *byte == b'-') {
            None => (text, 0),
            Some(at) => match hex(&text[at + 1..])? {
                (seal @ 1.., None) => (&text[..at], u32::try_from(seal).ok()?),
                _ => return None,
            },
        };
        let (generation, rest) = hex(numbers)?;
        let (issued_us, rest) = hex(rest?)?;
        let (caller, rest) = hex(rest?)?;
        let probe = match rest {
            None => None,
            Some(rest) => match hex(rest)? {
                (probe, None) => Some(u32::try_from(probe).ok()?),
                (_, Some(_)) => return None,
            },
        };
        Some(Self { generation, issued_us: i64::try_from(issued_us).ok()?, caller: Caller(caller), probe, seal })
    }
}

/// The text of a permit, off the heap. It is written from its end: no number has to be measured first.
#[derive(Debug, Clone)]
pub struct PermitText {
    bytes: [u8; Self::MAX],
    start: usize,
}

impl PermitText {
    /// Three numbers of 16 digits, two of eight, three points and a hyphen; rounded up.
    const MAX: usize = 72;

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn prepend(&mut self, byte: u8) {
        self.start -= 1;
        self.bytes[self.start] = byte;
    }

    fn prepend_hex(&mut self, mut number: u64) {
        loop {
            self.prepend(b"0123456789abcdef"[number as usize & 15]);
            number >>= 4;
            if number == 0 {
                return;
            }
        }
    }
}

/// Lower-case hexadecimal without leading zeros, up to a point or the end; and what follows the point, if there is one.
fn hex(text: &[u8]) -> Option<(u64, Option<&[u8]>)> {
    let (mut number, mut len) = (0u64, 0);
    while let Some(byte) = text.get(len) {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'.' => break,
            _ => return None,
        };
        number = number << 4 | digit as u64;
        len += 1;
    }
    let padded = len > 1 && text[0] == b'0';
    if len == 0 || len > 16 || padded { None } else { Some((number, text.get(len + 1..))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_its_numbers_in_hexadecimal_and_round_trips() {
        for number in [0, 1, 15, 16, 0x1234_abcd, u64::MAX] {
            for probe in [None, Some(0), Some(u32::MAX)] {
                let issued_us = (number >> 1) as i64;
                for seal in [0, 1, u32::MAX] {
                    let permit = Permit { generation: number, issued_us, caller: Caller(number), probe, seal };
                    let mut expected = alloc::format!("{number:x}.{issued_us:x}.{number:x}");
                    expected += &probe.map_or_else(Default::default, |probe| alloc::format!(".{probe:x}"));
                    if seal != 0 {
                        expected += &alloc::format!("-{seal:x}");
                    }
                    assert_eq!(permit.text().as_bytes(), expected.as_bytes());
                    assert_eq!(Permit::parse(expected.as_bytes()), Some(permit));
                }
            }
        }
    }

    #[test]
    fn nothing_else_is_a_permit() {
        for text in [
            "",
            ".",
            "..",
            "...",
            "1.2",
            "1.2.",
            ".1.2",
            "1..2",
            "1.2.3.",
            "1.2.3.4.",
            "1.2.3.4.5",
            "01.2.3",
            "1.2.00",
            "1.2.A",
            "1.2.g",
            "1.2.3 ",
            "-1.2.3",
            "10000000000000000.2.3",
            "1.8000000000000000.3",
            "1.2.3.100000000",
            "-",
            "-1",
            "1.2-3",
            "1.2.3-",
            "1.2.3-0",
            "1.2.3-01",
            "1.2.3-4.5",
            "1.2.3-4-5",
            "1.2.3-100000000",
        ] {
            assert_eq!(Permit::parse(text.as_bytes()), None, "{text}");
        }
    }
}
