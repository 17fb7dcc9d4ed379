//! A message as it came, in one allocation: its texts and payload never change while it is in the ledger.
//!
//! There can be a million of them, so the texts lie one behind the other, each behind its length. They are opaque bytes; what was
//! longer than its limit was cut, and says so.

use alloc::sync::Arc;
use core::iter;

use crate::limits::{HEADERS_MAX, LEDGER_TEXT_MAX};

/// What a caller knows of a message. Nothing of it is refused for its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts<'a> {
    pub id: &'a [u8],
    pub payload: Option<&'a [u8]>,
    /// Where the payload is, if it is not here.
    pub reference: Option<&'a [u8]>,
    /// TYPE; empty if not given.
    pub kind: &'a [u8],
    pub source: &'a [u8],
    pub aggregate: &'a [u8],
    pub schema: Option<u32>,
    pub headers: &'a [u8],
}

/// What was longer than its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cut(u8);

impl Cut {
    const NAMES: [&'static str; 5] = ["ref", "type", "source", "aggregate", "headers"];

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().enumerate().filter(move |(bit, _)| self.0 & (1 << bit) != 0).map(|(_, name)| name)
    }
}

/// The packed message; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(Arc<[u8]>);

const DIGEST: usize = 16;
/// A digest, the bits of what was cut, the bits of what is there, the schema; then six lengths.
const HEAD: usize = DIGEST + 2 + 4 + 6 * 4;

const HAS_PAYLOAD: u8 = 1;
const HAS_REFERENCE: u8 = 2;
const HAS_SCHEMA: u8 = 4;
const HAS_DIGEST: u8 = 8;

impl Message {
    pub fn new(facts: &Facts<'_>) -> Self {
        let mut cut = Cut::default();
        let mut limited = |text: &[u8], bit: u8, most: usize| {
            cut.0 |= u8::from(text.len() > most) << bit;
            self::cut(text, most).len()
        };
        let reference = facts.reference.map(|text| &text[..limited(text, 0, LEDGER_TEXT_MAX)]);
        let kind = &facts.kind[..limited(facts.kind, 1, LEDGER_TEXT_MAX)];
        let source = &facts.source[..limited(facts.source, 2, LEDGER_TEXT_MAX)];
        let aggregate = &facts.aggregate[..limited(facts.aggregate, 3, LEDGER_TEXT_MAX)];
        let headers = &facts.headers[..limited(facts.headers, 4, HEADERS_MAX)];
        let kept = Facts { reference, kind, source, aggregate, headers, ..*facts };
        // The digest is of what came, not of what was kept.
        Self::pack(&kept, cut, digest(facts.payload, facts.reference))
    }

    fn pack(facts: &Facts<'_>, cut: Cut, digest: Option<u128>) -> Self {
        let body = facts.reference.or(facts.payload);
        let texts = [facts.id, facts.kind, facts.source, facts.aggregate, facts.headers, body.unwrap_or_default()];
        let mut has = if facts.reference.is_some() { HAS_REFERENCE } else { u8::from(body.is_some()) * HAS_PAYLOAD };
        has |= (u8::from(facts.schema.is_some()) * HAS_SCHEMA) | (u8::from(digest.is_some()) * HAS_DIGEST);
        let mut head = [0; HEAD];
        head[..DIGEST].copy_from_slice(&digest.unwrap_or_default().to_le_bytes());
        head[DIGEST..DIGEST + 2].copy_from_slice(&[cut.0, has]);
        head[DIGEST + 2..DIGEST + 6].copy_from_slice(&facts.schema.unwrap_or_default().to_le_bytes());
        for (len, text) in head[DIGEST + 6..].chunks_exact_mut(4).zip(texts) {
            len.copy_from_slice(&(text.len() as u32).to_le_bytes());
        }
        // Written where it stays: a payload can be long.
        let total = HEAD + texts.iter().map(|text| text.len()).sum::<usize>();
        let mut bytes: Arc<[u8]> = iter::repeat_n(0, total).collect();
        let mut rest = Arc::get_mut(&mut bytes).unwrap_or_default();
        for part in iter::once(&head[..]).chain(texts) {
            let (own, after) = rest.split_at_mut(part.len());
            own.copy_from_slice(part);
            rest = after;
        }
        Self(bytes)
    }

    /// The packed bytes, as they are stored; `None` if they are not a message.
    pub fn from_bytes(bytes: &[u8], payload_max: usize) -> Option<Self> {
        if bytes.len() < HEAD {
            return None;
        }
        let message = Self(bytes.into());
        let lens: [usize; 6] = core::array::from_fn(|index| message.len_of(index));
        let total = lens.iter().try_fold(HEAD, |sum, len| sum.checked_add(*len))?;
        let (cut, has) = (bytes[DIGEST], bytes[DIGEST + 1]);
        let body = has & (HAS_PAYLOAD | HAS_REFERENCE);
        let body_max = if body == HAS_REFERENCE { LEDGER_TEXT_MAX } else { payload_max };
        let is_sound = total == bytes.len()
            && (1..=crate::limits::OWNER_MAX).contains(&lens[0])
            && lens[1..4].iter().all(|len| *len <= LEDGER_TEXT_MAX)
            && lens[4] <= HEADERS_MAX
            && lens[5] <= body_max
            && cut < 1 << Cut::NAMES.len()
            && has < 16
            && body != HAS_PAYLOAD | HAS_REFERENCE
            && (body != 0 || lens[5] == 0)
            && (has & HAS_SCHEMA != 0 || message.schema_bytes() == 0)
            && (has & HAS_DIGEST != 0 || message.0[..DIGEST] == [0; DIGEST]);
        is_sound.then_some(message)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn id(&self) -> &[u8] {
        self.text(0)
    }

    pub fn kind(&self) -> &[u8] {
        self.text(1)
    }

    pub fn source(&self) -> &[u8] {
        self.text(2)
    }

    pub fn aggregate(&self) -> &[u8] {
        self.text(3)
    }

    pub fn headers(&self) -> &[u8] {
        self.text(4)
    }

    pub fn payload(&self) -> Option<&[u8]> {
        self.has(HAS_PAYLOAD).then(|| self.text(5))
    }

    pub fn reference(&self) -> Option<&[u8]> {
        self.has(HAS_REFERENCE).then(|| self.text(5))
    }

    pub fn schema(&self) -> Option<u32> {
        self.has(HAS_SCHEMA).then(|| self.schema_bytes())
    }

    pub fn cut(&self) -> Cut {
        Cut(self.0[DIGEST])
    }

    /// Of the payload, or of the reference, as they came.
    pub fn digest(&self) -> Option<u128> {
        let mut digest = [0; DIGEST];
        digest.copy_from_slice(&self.0[..DIGEST]);
        self.has(HAS_DIGEST).then(|| u128::from_le_bytes(digest))
    }

    /// The same without its payload. Its digest stays.
    pub fn without_payload(&self) -> Self {
        let facts = Facts {
            id: self.id(),
            payload: None,
            reference: self.reference(),
            kind: self.kind(),
            source: self.source(),
            aggregate: self.aggregate(),
            schema: self.schema(),
            headers: self.headers(),
        };
        Self::pack(&facts, self.cut(), self.digest())
    }

    /// Looks at its first bytes, at most so many, to have them close by.
    pub(super) fn look_at(&self, most: usize) -> u8 {
        const LINE: usize = 64;
        self.0.iter().take(most).step_by(LINE).fold(0, |all, byte| all ^ byte)
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.len() + 2 * size_of::<usize>()
    }

    fn has(&self, bit: u8) -> bool {
        self.0[DIGEST + 1] & bit != 0
    }

    fn schema_bytes(&self) -> u32 {
        self.number(DIGEST + 2)
    }

    fn len_of(&self, index: usize) -> usize {
        self.number(DIGEST + 6 + 4 * index) as usize
    }

    fn text(&self, index: usize) -> &[u8] {
        let start = HEAD + (0..index).map(|before| self.len_of(before)).sum::<usize>();
        &self.0[start..start + self.len_of(index)]
    }

    fn number(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[at..at + 4]);
        u32::from_le_bytes(bytes)
    }
}

/// At most `most` bytes of a text, without half a character at its end: what was cut can still be named by callers who write UTF-8.
pub(super) fn cut(text: &[u8], most: usize) -> &[u8] {
    if text.len() <= most {
        return text;
    }
    // A character has at most four bytes; what is no UTF-8 is cut at the limit.
    let is_between = |at: &usize| text[*at] & 0xC0 != 0x80;
    &text[..(most.saturating_sub(3)..=most).rev().find(is_between).unwrap_or(most)]
}

/// Tells payloads apart. A payload and a reference of the same bytes differ.
pub fn digest(payload: Option<&[u8]>, reference: Option<&[u8]>) -> Option<u128> {
    const OF_PAYLOAD: u64 = 1;
    const OF_REFERENCE: u64 = 2;
    match (reference, payload) {
        (Some(reference), _) => Some(xxhash_rust::xxh3::xxh3_128_with_seed(reference, OF_REFERENCE)),
        (None, payload) => payload.map(|payload| xxhash_rust::xxh3::xxh3_128_with_seed(payload, OF_PAYLOAD)),
    }
}
