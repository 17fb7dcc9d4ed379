//! Permits: what ADMIT hands out and REPORT brings back. Opaque to callers, and trusted for nothing.

use alloc::string::String;
use core::fmt::Write;

use crate::time::Span;

/// A permit of generation 0 is stale after this long: a key that went starts at generation 0 again. A breaker that has
/// left generation 0 is kept for at least as long, so no such permit can meet a later life of its key.
pub(super) const LIFE: Span = Span::from_secs(3_600);

/// Who calls, as far as a breaker wants to know: the hash of what CALLER said. Nobody in particular is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller(pub u64);

impl Caller {
    /// FNV-1a: the same on every machine and in every version.
    pub fn named(name: &[u8]) -> Self {
        let hash = name
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ *byte as u64).wrapping_mul(0x0000_0100_0000_01b3));
        Self(hash.max(1))
    }
}

/// `generation.issued.caller` for an ordinary permit, `generation.issued.caller.probe` for a probe; hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    pub generation: u64,
    pub issued_us: i64,
    pub caller: Caller,
    /// The number of a probe.
    pub probe: Option<u32>,
}

impl Permit {
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(48);
        // Writing to a String does not fail.
        let _ = write!(text, "{:x}.{:x}.{:x}", self.generation, self.issued_us, self.caller.0);
        if let Some(probe) = self.probe {
            let _ = write!(text, ".{probe:x}");
        }
        text
    }

    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut fields = text.split(|byte| *byte == b'.').map(hex);
        let permit = Self {
            generation: fields.next()??,
            issued_us: i64::try_from(fields.next()??).ok()?,
            caller: Caller(fields.next()??),
            probe: match fields.next() {
                Some(probe) => Some(u32::try_from(probe?).ok()?),
                None => None,
            },
        };
        fields.next().is_none().then_some(permit)
    }
}

/// Lower-case hexadecimal as `{:x}` writes it.
fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 || (digits.len() > 1 && digits[0] == b'0') {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | value as u64)
    })
}
