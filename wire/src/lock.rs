//! `RES.LOCK` and its subcommands. What is parsed is what follows the subcommand's name.

use resil_core::Span;
use resil_core::limits::{OWNER_MAX, TEXT_MAX};
use resil_core::lock::{Busy, Grant};

use crate::argv::{Argv, Refused, once};
use crate::holding::{Bind, Bounds, lease, owner, wait};
use crate::reply::Sink;
use crate::words::{Words, named_duration, named_text, unless_empty, unless_zero};

pub const NAME: &str = "RES.LOCK";
pub const ACQUIRE_USAGE: &str =
    "RES.LOCK ACQUIRE key owner lease [WAIT d] [SHARED] [<BOUND | BOUNDTO client-id> [GRACE d]] [META text]";
pub const RENEW_USAGE: &str = "RES.LOCK RENEW key owner lease [FENCE f] [<BOUND | BOUNDTO client-id> [GRACE d]]";
pub const RELEASE_USAGE: &str = "RES.LOCK RELEASE key owner [FENCE f]";
pub const CHECK_USAGE: &str = "RES.LOCK CHECK key owner [FENCE f]";
pub const BREAK_USAGE: &str = "RES.LOCK BREAK key [ACTOR a] [REASON r]";
pub const INFO_USAGE: &str = "RES.LOCK INFO key [LIMIT n]";

/// What HELP says.
pub const HELP: [&str; 13] = [
    ACQUIRE_USAGE,
    "    [GRANTED, fence, lease_ms, waited_ms] or [TAKEN|TIMEOUT, holder, remaining_ms, waiters]",
    RENEW_USAGE,
    "    The lease ends that much from now. [GRANTED, fence, lease_ms, 0] or [LOST, reason]",
    RELEASE_USAGE,
    "    Lets go; the next in line has it. [RELEASED, held_ms] or [LOST, reason]",
    CHECK_USAGE,
    "    1 if the owner holds, else 0; changes nothing and works on replicas and in scripts.",
    BREAK_USAGE,
    "    Ends whatever is held, by hand. How many held.",
    INFO_USAGE,
    "    Who holds and who waits, as a map; changes nothing and works on replicas.",
    "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireCall<'a> {
    pub key: &'a [u8],
    pub owner: &'a [u8],
    pub lease: Span,
    pub wait: Span,
    pub shared: bool,
    pub bind: Bind,
    pub meta: &'a [u8],
}

impl<'a> AcquireCall<'a> {
    pub fn parse(args: &'a [&'a [u8]], bounds: Bounds) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, ACQUIRE_USAGE);
        let (key, owner, lease) = (argv.bytes("key")?, owner(&mut argv)?, lease(&mut argv, bounds)?);
        let (mut given_wait, mut shared, mut bind, mut meta) = (None, None, None, None);
        while let Some(word) = argv.word() {
            if word.is("WAIT") {
                once(&mut given_wait, "WAIT", wait(&mut argv, bounds)?)?;
            } else if word.is("SHARED") {
                once(&mut shared, "SHARED", ())?;
            } else if word.is("META") {
                once(&mut meta, "META", argv.text("META", OWNER_MAX)?)?;
            } else if !Bind::take(&mut bind, word, &mut argv, bounds)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self {
            key,
            owner,
            lease,
            wait: given_wait.unwrap_or_default(),
            shared: shared.is_some(),
            bind: bind.unwrap_or_default(),
            meta: meta.unwrap_or_default(),
        })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.owner);
        words.duration(self.lease);
        named_duration(words, "WAIT", unless_zero(self.wait));
        if self.shared {
            words.word(b"SHARED");
        }
        self.bind.encode(words);
        named_text(words, "META", unless_empty(self.meta));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakCall<'a> {
    pub key: &'a [u8],
    pub actor: Option<&'a [u8]>,
    pub reason: Option<&'a [u8]>,
}

impl<'a> BreakCall<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, BREAK_USAGE);
        let mut call = Self { key: argv.bytes("key")?, actor: None, reason: None };
        while let Some(word) = argv.word() {
            if word.is("ACTOR") {
                once(&mut call.actor, "ACTOR", argv.text("ACTOR", TEXT_MAX)?)?;
            } else if word.is("REASON") {
                once(&mut call.reason, "REASON", argv.text("REASON", TEXT_MAX)?)?;
            } else {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(call)
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        named_text(words, "ACTOR", self.actor);
        named_text(words, "REASON", self.reason);
    }
}

/// `["GRANTED", fence, lease_ms, waited_ms]`.
pub fn write_granted(grant: &Grant, sink: &mut (impl Sink + ?Sized)) {
    sink.array(4);
    sink.text(b"GRANTED");
    sink.integer(grant.fence as i64);
    sink.integer(grant.lease.floor_ms());
    sink.integer(grant.waited.floor_ms());
}

/// `["TAKEN", holder, remaining_ms, waiters]`: it was not waited for, or not for long enough.
pub fn write_taken(busy: &Busy, sink: &mut (impl Sink + ?Sized)) {
    write_busy(b"TAKEN", busy, sink);
}

/// `["TIMEOUT", holder, remaining_ms, waiters]`.
pub fn write_timeout(busy: &Busy, sink: &mut (impl Sink + ?Sized)) {
    write_busy(b"TIMEOUT", busy, sink);
}

fn write_busy(verdict: &[u8], busy: &Busy, sink: &mut (impl Sink + ?Sized)) {
    sink.array(4);
    sink.text(verdict);
    match &*busy.holder {
        [] => sink.null(),
        holder => sink.text(holder),
    }
    sink.integer(busy.remaining.ceil_ms());
    sink.integer(busy.queued as i64);
}

/// `RES.HEARTBEAT` has no arguments.
pub const HEARTBEAT_NAME: &str = "RES.HEARTBEAT";
pub const HEARTBEAT_USAGE: &str = "RES.HEARTBEAT";

/// `[number bound, [[key, fence, reason], ...]]`.
pub fn write_heartbeat(bound: usize, losses: &[resil_core::session::Loss], sink: &mut (impl Sink + ?Sized)) {
    sink.array(2);
    sink.integer(bound as i64);
    sink.array(losses.len());
    for loss in losses {
        sink.array(3);
        sink.text(&loss.key);
        sink.integer(loss.fence as i64);
        sink.text(loss.reason.text().as_bytes());
    }
}
