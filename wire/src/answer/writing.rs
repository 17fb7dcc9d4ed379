//! Answers as replies: what the writers beside each command's parser write for the same verdict, to the byte.

use resil_core::circuit_breaker::Why;
use resil_core::lock::Reason;

use super::{
    Acquired, Admitted, Answer, Begun, Committed, Counted, Entered, Heartbeat, Joined, Published, Released, Renewed,
    Taken,
};
use crate::gcra::{self, Numbers};
use crate::holding::write_lost;
use crate::mgcra;
use crate::reply::{Sink, Value};
use crate::throttle;

impl Answer {
    /// Writes it as a server replies it.
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Limit(reply) => write_limit(reply, sink),
            Self::Limits(reply) => write_limits(reply, sink),
            Self::Throttle(numbers) => throttle::write_reply(*numbers, sink),
            Self::Admitted(admitted) => write_admitted(admitted, sink),
            Self::Counted(counted) => write_counted(counted, sink),
            Self::Forced { state, generation } => {
                sink.array(2);
                sink.text(state.text().as_bytes());
                sink.integer(generation.cast_signed());
            }
            Self::Number(number) => sink.integer(*number),
            Self::Acquired(acquired) => write_acquired(acquired, sink),
            Self::Entered(entered) => write_entered(entered, sink),
            Self::Renewed(Renewed::Granted { fence, lease_ms }) => {
                verdict(sink, "GRANTED", &[fence.cast_signed(), *lease_ms, 0]);
            }
            Self::Released(Released::Released { held_ms }) => verdict(sink, "RELEASED", &[*held_ms]),
            Self::Begun(begun) => write_begun(begun, sink),
            Self::Committed(Committed::Committed { stored }) => {
                sink.array(2);
                sink.text(b"COMMITTED");
                sink.text(if *stored { b"stored" } else { b"dropped" });
            }
            Self::Aborted(lost) => given_up(*lost, "ABORTED", sink),
            Self::Abandoned(lost) => given_up(*lost, "ABANDONED", sink),
            Self::Joined(joined) => write_joined(joined, sink),
            Self::Published(Published::Published { followers }) => verdict(sink, "PUBLISHED", &[*followers]),
            Self::Renewed(Renewed::Lost(reason))
            | Self::Released(Released::Lost(reason))
            | Self::Committed(Committed::Lost(reason))
            | Self::Published(Published::Lost(reason)) => write_lost(*reason, sink),
            Self::Heartbeat(heartbeat) => write_heartbeat(heartbeat, sink),
            Self::Map(value) => write_value(value, sink),
        }
    }
}

/// A word, and numbers.
fn verdict(sink: &mut (impl Sink + ?Sized), word: &str, numbers: &[i64]) {
    sink.array(1 + numbers.len());
    sink.text(word.as_bytes());
    numbers.iter().for_each(|number| sink.integer(*number));
}

fn given_up(lost: Option<Reason>, word: &str, sink: &mut (impl Sink + ?Sized)) {
    match lost {
        None => verdict(sink, word, &[]),
        Some(reason) => write_lost(reason, sink),
    }
}

fn text_or_null(bytes: Option<&[u8]>, sink: &mut (impl Sink + ?Sized)) {
    match bytes {
        Some(bytes) => sink.text(bytes),
        None => sink.null(),
    }
}

fn write_numbers(numbers: &Numbers, sink: &mut (impl Sink + ?Sized)) {
    sink.integer(numbers.capacity);
    sink.integer(numbers.remaining);
    sink.integer(numbers.retry_after_ms);
    sink.integer(numbers.reset_after_ms);
}

fn write_each(several: &[Numbers], sink: &mut (impl Sink + ?Sized)) {
    sink.array(several.len());
    for numbers in several {
        sink.array(4);
        write_numbers(numbers, sink);
    }
}

fn write_limit(reply: &gcra::Reply, sink: &mut (impl Sink + ?Sized)) {
    let several = !reply.tiers.is_empty();
    sink.array(5 + usize::from(several));
    sink.integer(reply.granted);
    write_numbers(&reply.binding, sink);
    if several {
        write_each(&reply.tiers, sink);
    }
}

fn write_limits(reply: &mgcra::Reply, sink: &mut (impl Sink + ?Sized)) {
    sink.array(3);
    sink.integer(reply.granted);
    sink.integer(reply.refused_by.map_or(-1, |index| index as i64));
    write_each(&reply.keys, sink);
}

fn write_admitted(admitted: &Admitted, sink: &mut (impl Sink + ?Sized)) {
    sink.array(5);
    sink.integer(admitted.permit.is_some().into());
    sink.text(admitted.state.text().as_bytes());
    match &admitted.permit {
        Some(permit) => sink.text(permit.text().as_bytes()),
        None => sink.null(),
    }
    sink.integer(admitted.retry_after_ms);
    sink.integer(admitted.generation.cast_signed());
}

fn write_counted(counted: &Counted, sink: &mut (impl Sink + ?Sized)) {
    sink.array(5);
    sink.integer((counted.why == Why::Counted).into());
    sink.text(counted.state.text().as_bytes());
    sink.integer(counted.generation.cast_signed());
    sink.integer(counted.retry_after_ms);
    sink.text(counted.why.text().as_bytes());
}

fn write_acquired(acquired: &Acquired, sink: &mut (impl Sink + ?Sized)) {
    let mut busy = |word: &[u8], taken: &Taken| {
        sink.array(4);
        sink.text(word);
        text_or_null(taken.holder.as_deref(), sink);
        sink.integer(taken.remaining_ms);
        sink.integer(taken.waiters);
    };
    match acquired {
        Acquired::Taken(taken) => busy(b"TAKEN", taken),
        Acquired::Timeout(taken) => busy(b"TIMEOUT", taken),
        Acquired::Granted { fence, lease_ms, waited_ms } => {
            verdict(sink, "GRANTED", &[fence.cast_signed(), *lease_ms, *waited_ms]);
        }
    }
}

fn write_entered(entered: &Entered, sink: &mut (impl Sink + ?Sized)) {
    match entered {
        Entered::Granted { active, queued, lease_ms, waited_ms } => {
            verdict(sink, "GRANTED", &[*active, *queued, *lease_ms, *waited_ms]);
        }
        Entered::Full { active, queued, retry_after_ms } => verdict(sink, "FULL", &[*active, *queued, *retry_after_ms]),
        Entered::Timeout { active, queued, retry_after_ms } => {
            verdict(sink, "TIMEOUT", &[*active, *queued, *retry_after_ms]);
        }
    }
}

fn write_begun(begun: &Begun, sink: &mut (impl Sink + ?Sized)) {
    match begun {
        Begun::Run { fence, attempt, waited_ms } => {
            verdict(sink, "RUN", &[fence.cast_signed(), i64::from(*attempt), *waited_ms]);
        }
        Begun::Replay { failed, result, age_ms } => {
            sink.array(4);
            sink.text(b"REPLAY");
            sink.text(if *failed { b"error" } else { b"ok" });
            text_or_null(result.as_deref(), sink);
            sink.integer(*age_ms);
        }
        Begun::Busy { remaining_ms, attempt } => verdict(sink, "BUSY", &[*remaining_ms, i64::from(*attempt)]),
        Begun::Mismatch => verdict(sink, "MISMATCH", &[]),
        Begun::Held { attempt } => verdict(sink, "HELD", &[i64::from(*attempt)]),
        Begun::Miss => verdict(sink, "MISS", &[]),
    }
}

fn write_joined(joined: &Joined, sink: &mut (impl Sink + ?Sized)) {
    match joined {
        Joined::Lead { fence, stale, waited_ms } => {
            sink.array(4);
            sink.text(b"LEAD");
            sink.integer(fence.cast_signed());
            text_or_null(stale.as_deref(), sink);
            sink.integer(*waited_ms);
        }
        Joined::Value { bytes, age_ms, fresh_ms } => {
            sink.array(4);
            sink.text(b"VALUE");
            sink.text(bytes);
            sink.integer(*age_ms);
            sink.integer(*fresh_ms);
        }
        Joined::Stale { bytes, age_ms } => {
            sink.array(3);
            sink.text(b"STALE");
            sink.text(bytes);
            sink.integer(*age_ms);
        }
        Joined::Empty { age_ms } => verdict(sink, "EMPTY", &[*age_ms]),
        Joined::Error { text } => {
            sink.array(2);
            sink.text(b"ERROR");
            sink.text(text);
        }
        Joined::Busy { remaining_ms } => verdict(sink, "BUSY", &[*remaining_ms]),
        Joined::Miss => verdict(sink, "MISS", &[]),
    }
}

fn write_heartbeat(heartbeat: &Heartbeat, sink: &mut (impl Sink + ?Sized)) {
    sink.array(2);
    sink.integer(heartbeat.bound);
    sink.array(heartbeat.losses.len());
    for lost in &heartbeat.losses {
        sink.array(3);
        sink.text(&lost.key);
        sink.integer(lost.fence.cast_signed());
        sink.text(lost.reason.text().as_bytes());
    }
}

fn write_value(value: &Value, sink: &mut (impl Sink + ?Sized)) {
    match value {
        Value::Integer(number) => sink.integer(*number),
        Value::Text(bytes) => sink.text(bytes),
        Value::Null => sink.null(),
        Value::Array(elements) => {
            sink.array(elements.len());
            elements.iter().for_each(|element| write_value(element, sink));
        }
        Value::Map(pairs) => {
            sink.map(pairs.len());
            for (key, value) in pairs {
                write_value(key, sink);
                write_value(value, sink);
            }
        }
    }
}
