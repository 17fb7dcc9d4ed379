//! One holder, packed: a server may have millions of them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::time::{Instant, Span};
use crate::waited::lease::ends_for;
use crate::waited::{End, Lease};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Exclusive,
    Shared,
}

impl Mode {
    pub fn text(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }
}

/// Who holds, since when, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The owner, then the meta text.
    texts: Box<[u8]>,
    pub fence: u64,
    pub since: Instant,
    pub ends: Instant,
    /// The lease in microseconds, the owner's length, the mode.
    packed: u64,
}

const SHARED: u64 = 1;
const OWNER_SHIFT: u32 = 1;
const OWNER_MASK: u64 = 0x3ff;
const LEASE_SHIFT: u32 = 11;

impl Holder {
    pub fn new(
        owner: &[u8],
        meta: &[u8],
        fence: u64,
        (since, ends): (Instant, Instant),
        lease: Span,
        mode: Mode,
    ) -> Self {
        let mut texts = Vec::with_capacity(owner.len() + meta.len());
        texts.extend_from_slice(owner);
        texts.extend_from_slice(meta);
        let mut holder = Self { texts: texts.into(), fence, since, ends, packed: 0 };
        holder.packed = (owner.len() as u64 & OWNER_MASK) << OWNER_SHIFT;
        holder.set_lease(lease);
        holder.set_mode(mode);
        holder
    }

    pub fn owner(&self) -> &[u8] {
        self.texts.get(..self.owner_len()).unwrap_or_default()
    }

    pub fn meta(&self) -> &[u8] {
        self.texts.get(self.owner_len()..).unwrap_or_default()
    }

    fn owner_len(&self) -> usize {
        (self.packed >> OWNER_SHIFT & OWNER_MASK) as usize
    }

    pub fn mode(&self) -> Mode {
        if self.packed & SHARED == 0 { Mode::Exclusive } else { Mode::Shared }
    }

    pub fn lease(&self) -> Span {
        Span::from_us((self.packed >> LEASE_SHIFT).cast_signed())
    }

    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.packed = self.packed & !SHARED | u64::from(mode == Mode::Shared);
    }

    pub(super) fn set_lease(&mut self, lease: Span) {
        self.packed = self.packed & ((1 << LEASE_SHIFT) - 1) | lease.as_us().cast_unsigned() << LEASE_SHIFT;
    }

    /// The same holder with a higher fence and a new lease.
    pub(super) fn raised(&self, fence: u64, lease: Span, ends: Instant) -> Self {
        let mut raised = Self { fence, ends, ..self.clone() };
        raised.set_lease(lease);
        raised
    }

    pub fn held(&self, now: Instant) -> Span {
        self.since.until(now)
    }

    /// When the lease ends for a server that was promoted at `promoted_at`, if it was.
    pub fn ends_for(&self, promoted_at: Option<Instant>, now: Instant) -> Instant {
        ends_for(self.ends, self.lease(), promoted_at, now)
    }

    pub(super) fn as_lease(&self) -> Lease<'_> {
        Lease { owner: self.owner(), fence: self.fence, since: self.since, length: self.lease(), ends: self.ends }
    }

    pub(super) fn into_owner(self) -> Box<[u8]> {
        let len = self.owner_len();
        if len == self.texts.len() { self.texts } else { self.owner().into() }
    }

    pub fn heap_bytes(&self) -> usize {
        self.texts.len()
    }
}

/// An end that is remembered for a while, so that its owner can learn of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedHolding {
    pub owner: Box<[u8]>,
    pub fence: u64,
    pub at: Instant,
    pub held: Span,
    pub how: End,
}
