//! State and changes as bytes: one version number for all, integers as LEB128.
//!
//! ```text
//!   G  n  then per tier: period limit capacity tat frac overhang     the tiers of a GCRA key, whole
//!   W  period n  then per entry: instant (first) or distance, cells   a window's log, whole
//!   w  period cut at cells                                            what one grant did to a window's log
//!   B  ...                                                            a circuit breaker, whole
//!   b  n edits                                                        what one step did to a circuit breaker
//!   L  ...    P  ...                                                  the holders of a lock, of a bulkhead, whole
//!   l  edits  p  edits                                                what one step did to them
//!   I  ...                                                            the record of an idempotency key, whole
//!   S  ...    s  edits                                                a single flight, whole; what one step did to it
//!   N  ...    n  edits                                                the generations of a cache name, whole; what one step did to it
//!   D  ...    d  edits                                                a ledger of dead letters, whole; what one step did to it
//!   K  ...    k  edits                                                a policy and what lives under it, whole; what one step did to it
//! ```
//! Bytes are the same for the same state, so they serve as digest too. Decoding trusts nothing: a foreign tag, a
//! number out of bounds, an order that cannot be, a missing or a surplus byte is an error.

use alloc::vec::Vec;
use core::fmt;

use crate::limits::{
    FENCE_MAX, INSTANT_MAX_US, LEASE_CEILING, OWNER_MAX, PERIOD_MAX, TIERS_STORED_MAX, WINDOW_LIMIT_CEILING,
};
use crate::rate_limit::{Tier, TierSet};
use crate::stored::{SentOf, decode_sent};
use crate::time::{Instant, Span};
use crate::window::{Window, WindowChange};

/// The version of everything this file writes.
pub const VERSION: u32 = 1;

const TIERS: u8 = b'G';
pub(crate) const LOG: u8 = b'W';
pub(crate) const LOG_CHANGE: u8 = b'w';
pub(crate) const BREAKER: u8 = b'B';
pub(crate) const BREAKER_EDITS: u8 = b'b';
pub(crate) const LOCK: u8 = b'L';
pub(crate) const LOCK_EDITS: u8 = b'l';
pub(crate) const BULKHEAD: u8 = b'P';
pub(crate) const BULKHEAD_EDITS: u8 = b'p';
pub(crate) const RECORD: u8 = b'I';
pub(crate) const FLIGHT: u8 = b'S';
pub(crate) const FLIGHT_EDITS: u8 = b's';
pub(crate) const GENERATIONS: u8 = b'N';
pub(crate) const GENERATION_EDITS: u8 = b'n';
pub(crate) const LEDGER: u8 = b'D';
pub(crate) const LEDGER_EDITS: u8 = b'd';
pub(crate) const GUARD: u8 = b'K';
pub(crate) const GUARD_EDITS: u8 = b'k';

/// Where bytes are written to: a vector, or one that starts on the stack.
pub trait Buffer {
    fn append(&mut self, bytes: &[u8]);
}

impl Buffer for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<A: smallvec::Array<Item = u8>> Buffer for smallvec::SmallVec<A> {
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The bytes are not what this codec writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes are not a valid Resil state")
    }
}

/// Makes the type of all changes, and its decoder, from the list of machines.
macro_rules! changes {
    (() plain { $($plain:ident: $plain_machine:ty,)* } waited { $($waited:ident: $waited_machine:ty,)* }) => {
        /// Anything that travels from a primary to a replica or through an append-only file.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Change {
            Tiers(TierSet),
            $($plain(SentOf<$plain_machine>),)*
            $($waited(SentOf<$waited_machine>),)*
        }

        /// Decodes whatever the tag says.
        pub fn decode(bytes: &[u8]) -> Result<Change, Malformed> {
            if bytes.first() == Some(&TIERS) {
                return decode_tiers(bytes).map(Change::Tiers);
            }
            $(if let Some(sent) = decode_sent::<$plain_machine>(bytes) {
                return sent.map(Change::$plain);
            })*
            $(if let Some(sent) = decode_sent::<$waited_machine>(bytes) {
                return sent.map(Change::$waited);
            })*
            Err(Malformed)
        }
    };
}

crate::machines!(changes);

pub fn encode_tiers(tiers: &[Tier], out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(TIERS);
    out.number(tiers.len() as u64);
    for tier in tiers {
        let (tat_us, limit, capacity, period_us, frac, overhang_ms) = tier.parts();
        out.number(period_us as u64);
        out.number(limit as u64);
        out.number(capacity as u64);
        out.number(tat_us as u64);
        out.number(frac as u64);
        out.number(overhang_ms as u64);
    }
}

pub fn decode_tiers(bytes: &[u8]) -> Result<TierSet, Malformed> {
    let mut bytes = Reader::tagged(bytes, TIERS)?;
    let count = bytes.number()?;
    if !(1..=TIERS_STORED_MAX as u64).contains(&count) {
        return Err(Malformed);
    }
    let mut tiers = TierSet::new();
    for _ in 0..count {
        let period_us = bytes.at_most(PERIOD_MAX.as_us())?;
        let limit = bytes.u32()?;
        let capacity = bytes.u32()?;
        let tat_us = bytes.at_most(INSTANT_MAX_US)?;
        let frac = bytes.u32()?;
        let overhang_ms = bytes.u32()?;
        let tier = Tier::from_parts(tat_us, (limit, capacity, period_us), frac, overhang_ms).ok_or(Malformed)?;
        if tiers.last().is_some_and(|last: &Tier| last.quota().period() >= tier.quota().period()) {
            return Err(Malformed);
        }
        tiers.push(tier);
    }
    bytes.end()?;
    Ok(tiers)
}

pub fn encode_log(window: &Window, out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(LOG);
    out.number(window.period().as_us() as u64);
    out.number(window.len() as u64);
    let mut before_us = 0;
    for (at_us, cells) in window.entries() {
        out.number((at_us - before_us) as u64);
        out.number(cells);
        before_us = at_us;
    }
}

pub fn decode_log(bytes: &[u8]) -> Result<Window, Malformed> {
    let mut bytes = Reader::tagged(bytes, LOG)?;
    let period_us = bytes.at_most(PERIOD_MAX.as_us())?;
    let count = bytes.number()?;
    // An entry takes at least two bytes: a forged count cannot make us reserve more than was sent.
    if count > WINDOW_LIMIT_CEILING as u64 || count > bytes.0.len() as u64 / 2 {
        return Err(Malformed);
    }
    let mut at_us = 0;
    let entries = (0..count as usize).map(|_| {
        at_us += bytes.at_most(INSTANT_MAX_US).ok()?;
        if at_us > INSTANT_MAX_US {
            return None;
        }
        Some((at_us, bytes.number().ok()?.min(u32::MAX as u64 + 1)))
    });
    let window = Window::from_entries(period_us, entries).ok_or(Malformed)?;
    bytes.end()?;
    Ok(window)
}

pub fn encode_log_change(change: &WindowChange, out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(LOG_CHANGE);
    out.number(change.period_us as u64);
    out.number(change.cut_to_us as u64);
    out.number(change.at_us as u64);
    out.number(change.cells as u64);
}

pub fn decode_log_change(bytes: &[u8]) -> Result<WindowChange, Malformed> {
    let mut bytes = Reader::tagged(bytes, LOG_CHANGE)?;
    let change = WindowChange {
        period_us: bytes.at_most(PERIOD_MAX.as_us())?,
        cut_to_us: bytes.at_most(INSTANT_MAX_US)?,
        at_us: bytes.at_most(INSTANT_MAX_US)?,
        cells: bytes.u32()?,
    };
    bytes.end()?;
    if change.period_us == 0 || change.cells > WINDOW_LIMIT_CEILING {
        return Err(Malformed);
    }
    Ok(change)
}

/// The bytes of `encode`, in a vector of their own.
pub fn to_vec(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

/// Collects small pieces on the stack and hands them on together.
pub(crate) struct Writer<'a, B: Buffer> {
    out: &'a mut B,
    held: [u8; HELD],
    len: usize,
}

const HELD: usize = 64;

/// The longest spelling of a number.
const NUMBER_MAX: usize = 10;

impl<'a, B: Buffer> Writer<'a, B> {
    pub(crate) fn new(out: &'a mut B) -> Self {
        Self { out, held: [0; HELD], len: 0 }
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.make_room();
        self.held[self.len] = byte;
        self.len += 1;
    }

    /// A length, then that many bytes.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.hand_on();
        self.out.append(text);
    }

    pub(crate) fn number(&mut self, mut number: u64) {
        self.make_room();
        while number >= 0x80 {
            self.held[self.len] = number as u8 | 0x80;
            self.len += 1;
            number >>= 7;
        }
        self.held[self.len] = number as u8;
        self.len += 1;
    }

    fn make_room(&mut self) {
        if self.len > HELD - NUMBER_MAX {
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        self.out.append(&self.held[..self.len]);
        self.len = 0;
    }
}

impl<B: Buffer> Drop for Writer<'_, B> {
    fn drop(&mut self) {
        self.hand_on();
    }
}

pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn tagged(bytes: &'a [u8], tag: u8) -> Result<Self, Malformed> {
        match bytes.split_first() {
            Some((first, rest)) if *first == tag => Ok(Self(rest)),
            _ => Err(Malformed),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            let bits = (byte & 0x7f) as u64;
            if shift == 63 && bits > 1 || shift > 0 && *byte == 0 {
                // Too large, or padded: every number has one spelling only.
                return Err(Malformed);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    /// A text of at most `max` bytes.
    pub(crate) fn text(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.number()?).ok().filter(|len| *len <= max).ok_or(Malformed)?;
        self.bytes(len)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// True if the next byte is this one, which is then read.
    pub(crate) fn skip(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// A number that counts things, at most `max`.
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, Malformed> {
        usize::try_from(self.number()?).ok().filter(|count| *count <= max).ok_or(Malformed)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed)
    }

    pub(crate) fn at_most(&mut self, bound: i64) -> Result<i64, Malformed> {
        i64::try_from(self.number()?).ok().filter(|number| *number <= bound).ok_or(Malformed)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.bytes(1)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub(crate) fn instant(&mut self) -> Result<Instant, Malformed> {
        self.at_most(INSTANT_MAX_US).map(Instant::from_us)
    }

    /// The length of a lease: never nothing.
    pub(crate) fn lease(&mut self) -> Result<Span, Malformed> {
        match self.at_most(LEASE_CEILING.as_us())? {
            0 => Err(Malformed),
            us => Ok(Span::from_us(us)),
        }
    }

    /// A fence that was granted: never 0.
    pub(crate) fn fence(&mut self) -> Result<u64, Malformed> {
        self.number().and_then(|fence| if (1..=FENCE_MAX).contains(&fence) { Ok(fence) } else { Err(Malformed) })
    }

    /// The highest fence of a key; 0 if there was none.
    pub(crate) fn last_fence(&mut self) -> Result<u64, Malformed> {
        self.number().and_then(|fence| if fence <= FENCE_MAX { Ok(fence) } else { Err(Malformed) })
    }

    /// An owner, or a token: never empty.
    pub(crate) fn owner(&mut self) -> Result<&'a [u8], Malformed> {
        self.text(OWNER_MAX).and_then(|owner| if owner.is_empty() { Err(Malformed) } else { Ok(owner) })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}
