//! `RES.BULKHEAD` and its subcommands. What is parsed is what follows the subcommand's name.

use resil_core::Span;
use resil_core::limits::{HOLDERS_MAX, WAITERS_CEILING};
use resil_core::lock::{Busy, Grant};

use crate::argv::{Argv, Refused, once};
use crate::holding::{Bind, Bounds, lease, owner, wait};
use crate::reply::Sink;
use crate::words::{Words, named_duration, named_number, unless_zero};

pub const NAME: &str = "RES.BULKHEAD";
pub const ENTER_USAGE: &str =
    "RES.BULKHEAD ENTER key owner max lease [WAIT d] [QUEUE n] [PRIORITY p] [<BOUND | BOUNDTO client-id> [GRACE d]]";
pub const RENEW_USAGE: &str = "RES.BULKHEAD RENEW key owner lease [FENCE f] [<BOUND | BOUNDTO client-id> [GRACE d]]";
pub const LEAVE_USAGE: &str = "RES.BULKHEAD LEAVE key owner [FENCE f]";
pub const INFO_USAGE: &str = "RES.BULKHEAD INFO key [LIMIT n]";

/// The priority of one who does not say: 0 is served first, 9 last.
pub const PRIORITY_DEFAULT: u8 = 5;

/// What HELP says.
pub const HELP: [&str; 9] = [
    ENTER_USAGE,
    "    [GRANTED, active, queued, lease_ms, waited_ms] or [FULL|TIMEOUT, active, queued, retry_after_ms]",
    RENEW_USAGE,
    "    The lease ends that much from now. [GRANTED, fence, lease_ms, 0] or [LOST, reason]",
    LEAVE_USAGE,
    "    Lets go; the next in line enters. [RELEASED, held_ms] or [LOST, reason]",
    INFO_USAGE,
    "    Who is inside and who waits, as a map; changes nothing and works on replicas.",
    "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnterCall<'a> {
    pub key: &'a [u8],
    pub owner: &'a [u8],
    pub max: u32,
    pub lease: Span,
    pub wait: Span,
    pub queue: u32,
    pub priority: u8,
    pub bind: Bind,
}

impl<'a> EnterCall<'a> {
    pub fn parse(args: &'a [&'a [u8]], bounds: Bounds) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, ENTER_USAGE);
        let (key, owner) = (argv.bytes("key")?, owner(&mut argv)?);
        let max = argv.count("max", HOLDERS_MAX as u32)?;
        let lease = lease(&mut argv, bounds)?;
        let (mut given_wait, mut queue, mut priority, mut bind) = (None, None, None, None);
        while let Some(word) = argv.word() {
            if word.is("WAIT") {
                once(&mut given_wait, "WAIT", wait(&mut argv, bounds)?)?;
            } else if word.is("QUEUE") {
                once(&mut queue, "QUEUE", argv.number("QUEUE", 0..=WAITERS_CEILING as i64)? as u32)?;
            } else if word.is("PRIORITY") {
                once(&mut priority, "PRIORITY", argv.number("PRIORITY", 0..=9)? as u8)?;
            } else if !Bind::take(&mut bind, word, &mut argv, bounds)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self {
            key,
            owner,
            max,
            lease,
            wait: given_wait.unwrap_or_default(),
            queue: queue.unwrap_or(max),
            priority: priority.unwrap_or(PRIORITY_DEFAULT),
            bind: bind.unwrap_or_default(),
        })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.owner);
        words.number(self.max.into());
        words.duration(self.lease);
        named_duration(words, "WAIT", unless_zero(self.wait));
        // As many may wait as may be inside, unless it says otherwise.
        named_number(words, "QUEUE", (self.queue != self.max).then_some(self.queue));
        named_number(words, "PRIORITY", (self.priority != PRIORITY_DEFAULT).then_some(self.priority));
        self.bind.encode(words);
    }
}

/// `["GRANTED", active, queued, lease_ms, waited_ms]`.
pub fn write_granted(grant: &Grant, sink: &mut (impl Sink + ?Sized)) {
    sink.array(5);
    sink.text(b"GRANTED");
    sink.integer(grant.active as i64);
    sink.integer(grant.queued as i64);
    sink.integer(grant.lease.floor_ms());
    sink.integer(grant.waited.floor_ms());
}

/// `["FULL", active, queued, retry_after_ms]`: it did not wait, or the line was full.
pub fn write_full(busy: &Busy, sink: &mut (impl Sink + ?Sized)) {
    write_busy(b"FULL", busy, sink);
}

/// `["TIMEOUT", active, queued, retry_after_ms]`.
pub fn write_timeout(busy: &Busy, sink: &mut (impl Sink + ?Sized)) {
    write_busy(b"TIMEOUT", busy, sink);
}

fn write_busy(verdict: &[u8], busy: &Busy, sink: &mut (impl Sink + ?Sized)) {
    sink.array(4);
    sink.text(verdict);
    sink.integer(busy.active as i64);
    sink.integer(busy.queued as i64);
    sink.integer(busy.retry_after.ceil_ms());
}
