//! The parts of which records and edits of a ledger are made, as bytes. Every number is held against its bounds when it is read.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::alert::{Alert, AlertKind, AuditRow};
use super::case::{Case, Discard, Redrive, RedriveState};
use super::config::{Class, Config, Jitter, Rate, Retries};
use super::ledger::{Pace, TakenBatch};
use super::message::Message;
use super::request::{Category, Death, RedriveFilter};
use crate::codec::{Buffer, Malformed, Reader, Writer};
use crate::limits::{
    BACKOFF_MAX, CASE_GROUPS_MAX, CASE_MAX, CASE_TEXT_MAX, COUNTER_MAX, INSTANT_MAX_US, LEDGER_TEXT_MAX, OWNER_MAX,
    PAYLOAD_CEILING, PERIOD_MAX, REDRIVE_OUTCOMES, RETRIES_MAX, TAKE_MAX, TEXT_MAX, TTL_MAX,
};
use crate::time::{Instant, Span};

pub(super) type Out<'a, 'b, B> = &'a mut Writer<'b, B>;
pub(super) type In<'a, 'b> = &'a mut Reader<'b>;
pub(super) type Read<T> = Result<T, Malformed>;

/// A value that is written and read the same way wherever it stands.
pub(super) trait Field: Sized {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>);
    fn read(bytes: In<'_, '_>) -> Read<Self>;
}

impl Field for Instant {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        out.number(self.as_us().clamp(0, INSTANT_MAX_US).cast_unsigned());
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        bytes.instant()
    }
}

impl Field for u32 {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        out.number((*self).into());
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        bytes.u32()
    }
}

impl Field for u64 {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        out.number(*self);
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        bytes.number()
    }
}

impl Field for bool {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        out.byte(u8::from(*self));
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        bytes.flag()
    }
}

impl<T: Field> Field for Option<T> {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        if bytes.flag()? { T::read(bytes).map(Some) } else { Ok(None) }
    }
}

impl<T: Field, U: Field> Field for (T, U) {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        Ok((T::read(bytes)?, U::read(bytes)?))
    }
}

/// A text of a message: an id, a type, an aggregate.
impl Field for Box<[u8]> {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        out.text(self);
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        bytes.text(LEDGER_TEXT_MAX).map(Into::into)
    }
}

/// Enumerations: their position in the list of all.
macro_rules! by_position {
    ($($kind:ty),*) => {
        $(impl Field for $kind {
            fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
                out.byte(*self as u8);
            }

            fn read(bytes: In<'_, '_>) -> Read<Self> {
                <$kind>::ALL.get(bytes.bytes(1)?[0] as usize).copied().ok_or(Malformed)
            }
        })*
    };
}

by_position!(
    Class,
    Death,
    Category,
    AlertKind,
    RedriveState,
    Discard,
    super::entry::Word,
    super::request::Place,
    crate::waited::End
);

pub(super) fn span<B: Buffer>(span: Span, out: Out<'_, '_, B>) {
    out.number(span.as_us().cast_unsigned());
}

pub(super) fn read_span(bytes: In<'_, '_>, most: Span) -> Read<Span> {
    bytes.at_most(most.as_us()).map(Span::from_us)
}

pub(super) fn count<B: Buffer>(count: usize, out: Out<'_, '_, B>) {
    out.number(count as u64);
}

/// A count that can go on growing.
pub(super) fn counter(bytes: In<'_, '_>) -> Read<u64> {
    bytes.at_most(COUNTER_MAX.cast_signed()).map(i64::cast_unsigned)
}

/// A number and so many values; they do not repeat a length that is not there.
pub(super) fn list<T: Field, B: Buffer>(values: &[T], out: Out<'_, '_, B>) {
    count(values.len(), out);
    values.iter().for_each(|value| value.write(out));
}

pub(super) fn read_list<T: Field>(bytes: In<'_, '_>, most: usize) -> Read<Vec<T>> {
    let count = bytes.count(most)?;
    // Nothing is reserved on the word of a length.
    (0..count).map(|_| T::read(bytes)).collect()
}

pub(super) fn tagged<B: Buffer>(tag: u8, number: &impl Field, field: &impl Field, out: Out<'_, '_, B>) {
    out.byte(tag);
    number.write(out);
    field.write(out);
}

pub(super) fn tagged_alone<B: Buffer>(tag: u8, field: &impl Field, out: Out<'_, '_, B>) {
    out.byte(tag);
    field.write(out);
}

impl Field for Message {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        out.text(self.as_bytes());
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        let packed = bytes.text(PAYLOAD_CEILING + (1 << 20))?;
        Self::from_bytes(packed, PAYLOAD_CEILING).ok_or(Malformed)
    }
}

impl Field for Pace {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        (self.given_at, self.until).write(out);
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        let (given_at, until) = Field::read(bytes)?;
        Ok(Self { given_at, until })
    }
}

impl Field for Rate {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        self.count.write(out);
        span(self.period, out);
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        let rate = Self { count: bytes.u32()?, period: read_span(bytes, PERIOD_MAX)? };
        if rate.count == 0 || rate.period.is_zero() { Err(Malformed) } else { Ok(rate) }
    }
}

impl Field for Config {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        for retries in &self.retries {
            retries.most.write(out);
            span(retries.base, out);
            span(retries.cap, out);
        }
        match self.jitter {
            Jitter::Full => out.byte(255),
            Jitter::None => out.byte(254),
            Jitter::Plus(percent) => out.byte(percent),
        }
        self.crashes.write(out);
        self.rate_max.write(out);
        span(self.after_max, out);
        self.paused_until.write(out);
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        let mut class = || {
            let most = bytes.u32().ok().filter(|most| *most <= RETRIES_MAX).ok_or(Malformed)?;
            Ok(Retries { most, base: read_span(bytes, BACKOFF_MAX)?, cap: read_span(bytes, BACKOFF_MAX)? })
        };
        let retries = [class()?, class()?, class()?];
        let jitter = match bytes.bytes(1)?[0] {
            255 => Jitter::Full,
            254 => Jitter::None,
            percent @ 0..=100 => Jitter::Plus(percent),
            _ => return Err(Malformed),
        };
        let crashes = bytes.u32().ok().filter(|crashes| (1..=RETRIES_MAX).contains(crashes)).ok_or(Malformed)?;
        let rate_max = Rate::read(bytes)?;
        let after_max = read_span(bytes, TTL_MAX)?;
        Ok(Self { retries, jitter, crashes, rate_max, after_max, paused_until: Option::read(bytes)? })
    }
}

impl Field for Alert {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        self.id.write(out);
        self.kind.write(out);
        self.subject.write(out);
        self.count.write(out);
        self.at.write(out);
        self.is_seen.write(out);
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        Ok(Self {
            id: u64::read(bytes)?,
            kind: AlertKind::read(bytes)?,
            subject: Box::read(bytes)?,
            count: u64::read(bytes)?,
            at: Instant::read(bytes)?,
            is_seen: bool::read(bytes)?,
        })
    }
}

impl Field for AuditRow {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        self.id.write(out);
        self.at.write(out);
        for text in [&self.user, &self.actor, &self.correlation, &self.action] {
            out.text(text);
        }
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        let (id, at) = <(u64, Instant)>::read(bytes)?;
        let user = bytes.text(TEXT_MAX)?.into();
        let actor = bytes.text(TEXT_MAX)?.into();
        let correlation = bytes.text(TEXT_MAX)?.into();
        Ok(Self { id, at, user, actor, correlation, action: bytes.text(CASE_TEXT_MAX)?.into() })
    }
}

impl Field for TakenBatch {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        out.text(&self.token);
        out.text(&self.meta);
        self.since.write(out);
        span(self.length, out);
        self.ends.write(out);
        count(self.left, out);
        self.members().for_each(|member| member.write(out));
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        let (token, meta) = (bytes.owner()?.into(), bytes.text(OWNER_MAX)?.into());
        let since = bytes.instant()?;
        let length = bytes.lease()?;
        let ends = bytes.instant()?;
        let members: Vec<u64> = read_list(bytes, TAKE_MAX)?;
        let left = members.len();
        let is_sound = left > 0 && !members.contains(&0);
        if is_sound { Ok(Self { token, meta, since, length, ends, members, left }) } else { Err(Malformed) }
    }
}

impl Field for RedriveFilter {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        self.id.write(out);
        self.kind.write(out);
        self.aggregate.write(out);
        self.since.write(out);
        self.until.write(out);
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        Ok(Self {
            id: Option::read(bytes)?,
            kind: Option::read(bytes)?,
            aggregate: Option::read(bytes)?,
            since: Option::read(bytes)?,
            until: Option::read(bytes)?,
        })
    }
}

/// How many are active is reckoned from the entries.
impl Field for Redrive {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        self.phase.write(out);
        self.filter.write(out);
        self.rate.write(out);
        for number in [self.left, self.first, self.given, self.resolved, self.died, self.outcomes] {
            number.write(out);
        }
        for flag in [self.oneshot, self.is_auto, self.is_exhausted] {
            flag.write(out);
        }
        self.started_at.write(out);
        self.cursor.write(out);
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        let (phase, filter, rate) = (RedriveState::read(bytes)?, RedriveFilter::read(bytes)?, Rate::read(bytes)?);
        let mut number = || bytes.u32();
        let (left, first, given) = (number()?, number()?, number()?);
        let (resolved, died, outcomes) = (number()?, number()?, number()?);
        let is_countable = [given, resolved, died].iter().all(|count| *count <= CASE_MAX);
        if outcomes >> REDRIVE_OUTCOMES != 0 || !is_countable {
            return Err(Malformed);
        }
        let (oneshot, is_auto, is_exhausted) = (bytes.flag()?, bytes.flag()?, bytes.flag()?);
        let (started_at, cursor) = Field::read(bytes)?;
        let active = 0;
        Ok(Self {
            phase,
            filter,
            left,
            rate,
            first,
            oneshot,
            is_auto,
            started_at,
            given,
            resolved,
            died,
            active,
            outcomes,
            cursor,
            is_exhausted,
        })
    }
}

/// How many are unresolved is reckoned from the entries.
impl Field for Case {
    fn write<B: Buffer>(&self, out: Out<'_, '_, B>) {
        self.category.write(out);
        for text in [&self.cause, &self.fix, &self.decision, &self.user, &self.actor] {
            out.text(text);
        }
        list(&self.groups, out);
        self.opened_at.write(out);
        self.closed_at.write(out);
        self.discard.write(out);
        self.auto_until.write(out);
        self.redrive.write(out);
    }

    fn read(bytes: In<'_, '_>) -> Read<Self> {
        let category = Category::read(bytes)?;
        let mut text = || bytes.text(CASE_TEXT_MAX).map(Box::<[u8]>::from);
        let (cause, fix, decision, user, actor) = (text()?, text()?, text()?, text()?, text()?);
        Ok(Self {
            category,
            cause,
            fix,
            decision,
            groups: read_list(bytes, CASE_GROUPS_MAX)?,
            user,
            actor,
            opened_at: Field::read(bytes)?,
            closed_at: Field::read(bytes)?,
            discard: Field::read(bytes)?,
            auto_until: Field::read(bytes)?,
            unresolved: 0,
            redrive: Field::read(bytes)?,
        })
    }
}
