//! Holders and their edits as bytes.
//!
//! ```text
//!   L|P  last fence  n holders: owner meta fence since end lease mode  n ended: owner fence at held how
//!   l|p  then edits: 0 holder | 1 fence lease end | 2 fence mode | 3 fence at how
//! ```
//! A raised fence is written as a holder, too: a server that has never heard of RAISE makes the same change of it.

use alloc::vec::Vec;

use super::edit::{HolderEdit, HolderEdits};
use super::holder::{EndedHolding, Holder, Mode};
use super::holders::Holders;
use crate::codec::{BULKHEAD, BULKHEAD_EDITS, Buffer, LOCK, LOCK_EDITS, Malformed, Reader, Writer};
use crate::limits::{ENDS_REMEMBERED, HOLDERS_MAX, INSTANT_MAX_US, OWNER_MAX};
use crate::time::Span;
use crate::waited::End;

/// Which of the two machines a state belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Lock,
    Bulkhead,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Lock, Self::Bulkhead];

    fn whole_tag(self) -> u8 {
        match self {
            Self::Lock => LOCK,
            Self::Bulkhead => BULKHEAD,
        }
    }

    fn edits_tag(self) -> u8 {
        match self {
            Self::Lock => LOCK_EDITS,
            Self::Bulkhead => BULKHEAD_EDITS,
        }
    }
}

pub fn encode_holders(kind: Kind, holders: &Holders, out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(kind.whole_tag());
    out.number(holders.last_fence());
    out.number(holders.len() as u64);
    holders.iter().for_each(|holder| write_holder(holder, &mut out));
    out.number(holders.ended().len() as u64);
    for end in holders.ended() {
        out.text(&end.owner);
        out.number(end.fence);
        out.number(end.at.as_us().cast_unsigned());
        out.number(end.held.as_us().cast_unsigned());
        out.byte(end.how as u8);
    }
}

/// Checks every invariant of the state: what it accepts can be stepped.
pub fn decode_holders(bytes: &[u8]) -> Result<(Kind, Holders), Malformed> {
    let kind = kind_of(bytes, Kind::whole_tag)?;
    let mut bytes = Reader::tagged(bytes, kind.whole_tag())?;
    let last_fence = bytes.last_fence()?;
    let count = bytes.count(HOLDERS_MAX)?;
    let mut list: Vec<Holder> = Vec::new();
    for _ in 0..count {
        let holder = read_holder(kind, &mut bytes)?;
        let alone = holder.mode() == Mode::Shared || count == 1;
        let in_order = list.last().is_none_or(|before| before.fence < holder.fence);
        if !alone || !in_order || holder.fence > last_fence {
            return Err(Malformed);
        }
        list.push(holder);
    }
    let mut holders = Holders::from_sorted(list).ok_or(Malformed)?;
    let mut ended: Vec<EndedHolding> = Vec::new();
    for _ in 0..bytes.count(ENDS_REMEMBERED)? {
        let end = EndedHolding {
            owner: bytes.owner()?.into(),
            fence: bytes.fence()?,
            at: bytes.instant()?,
            held: Span::from_us(bytes.at_most(INSTANT_MAX_US)?),
            how: how(&mut bytes)?,
        };
        if ended.iter().any(|other| other.owner == end.owner) || end.fence > last_fence {
            return Err(Malformed);
        }
        ended.push(end);
    }
    bytes.end()?;
    ended.into_iter().for_each(|end| holders.remember(end));
    holders.remember_fence(last_fence);
    Ok((kind, holders))
}

pub fn encode_edits(kind: Kind, edits: &[HolderEdit], out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(kind.edits_tag());
    for edit in edits {
        match edit {
            HolderEdit::Granted(holder) | HolderEdit::Raised(holder) => {
                out.byte(0);
                write_holder(holder, &mut out);
            }
            HolderEdit::Timed { fence, lease, ends } => {
                out.byte(1);
                out.number(*fence);
                out.number(lease.as_us().cast_unsigned());
                out.number(ends.as_us().cast_unsigned());
            }
            HolderEdit::Moded { fence, mode } => {
                out.byte(2);
                out.number(*fence);
                out.byte(*mode as u8);
            }
            HolderEdit::Ended { fence, at, how } => {
                out.byte(3);
                out.number(*fence);
                out.number(at.as_us().cast_unsigned());
                out.byte(*how as u8);
            }
            // The whole state is sent instead.
            HolderEdit::AllEnded { .. } => {}
        }
    }
}

pub fn decode_edits(bytes: &[u8]) -> Result<(Kind, HolderEdits), Malformed> {
    let kind = kind_of(bytes, Kind::edits_tag)?;
    let mut bytes = Reader::tagged(bytes, kind.edits_tag())?;
    let mut edits = HolderEdits::new();
    while !bytes.is_empty() {
        edits.push(match bytes.bytes(1)?[0] {
            0 => HolderEdit::Granted(read_holder(kind, &mut bytes)?),
            1 => HolderEdit::Timed { fence: bytes.fence()?, lease: bytes.lease()?, ends: bytes.instant()? },
            2 => HolderEdit::Moded { fence: bytes.fence()?, mode: mode(kind, &mut bytes)? },
            3 => HolderEdit::Ended { fence: bytes.fence()?, at: bytes.instant()?, how: how(&mut bytes)? },
            _ => return Err(Malformed),
        });
    }
    if edits.is_empty() { Err(Malformed) } else { Ok((kind, edits)) }
}

fn kind_of(bytes: &[u8], tag: impl Fn(Kind) -> u8) -> Result<Kind, Malformed> {
    let first = bytes.first().ok_or(Malformed)?;
    Kind::ALL.into_iter().find(|kind| tag(*kind) == *first).ok_or(Malformed)
}

fn write_holder(holder: &Holder, out: &mut Writer<'_, impl Buffer>) {
    out.text(holder.owner());
    out.text(holder.meta());
    out.number(holder.fence);
    out.number(holder.since.as_us().cast_unsigned());
    out.number(holder.ends.as_us().cast_unsigned());
    out.number(holder.lease().as_us().cast_unsigned());
    out.byte(holder.mode() as u8);
}

fn read_holder(kind: Kind, bytes: &mut Reader<'_>) -> Result<Holder, Malformed> {
    let owner = bytes.owner()?;
    let meta = bytes.text(OWNER_MAX)?;
    let fence = bytes.fence()?;
    let times = (bytes.instant()?, bytes.instant()?);
    let lease = bytes.lease()?;
    let mode = mode(kind, bytes)?;
    Ok(Holder::new(owner, meta, fence, times, lease, mode))
}

fn mode(kind: Kind, bytes: &mut Reader<'_>) -> Result<Mode, Malformed> {
    match (bytes.bytes(1)?[0], kind) {
        (0, Kind::Lock) => Ok(Mode::Exclusive),
        (1, _) => Ok(Mode::Shared),
        _ => Err(Malformed),
    }
}

fn how(bytes: &mut Reader<'_>) -> Result<End, Malformed> {
    End::ALL.get(bytes.bytes(1)?[0] as usize).copied().ok_or(Malformed)
}
