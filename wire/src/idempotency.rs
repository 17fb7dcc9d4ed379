//! `RES.IDEMP` and its subcommands. What is parsed is what follows the subcommand's name.

use resil_core::idempotency::{Committed, OnLapse, Phase, Record, Run, Settled, lookup};
use resil_core::limits::{KEEP_DEFAULT, OWNER_MAX, TTL_MAX};
use resil_core::lock::Reason;
use resil_core::{Instant, Span};

use crate::argv::{Argv, Refused, Word, once, quoted};
use crate::holding::{Bind, Bounds, lease, wait, write_lost};
use crate::reply::Sink;
use crate::words::{Words, named_duration, named_text, unless_empty, unless_zero};

pub const NAME: &str = "RES.IDEMP";
pub const BEGIN_USAGE: &str = "RES.IDEMP BEGIN key token lease [FINGERPRINT f] [WAIT d] [KEEP d] [ONLAPSE RUN|HOLD] \
                               [<BOUND | BOUNDTO client-id> [GRACE d]]";
pub const COMMIT_USAGE: &str = "RES.IDEMP COMMIT key token ttl result [ERROR]";
pub const ABORT_USAGE: &str = "RES.IDEMP ABORT key token";
pub const RENEW_USAGE: &str = "RES.IDEMP RENEW key token lease [<BOUND | BOUNDTO client-id> [GRACE d]]";
pub const ONCE_USAGE: &str = "RES.IDEMP ONCE key ttl [TOKEN t]";
pub const GET_USAGE: &str = "RES.IDEMP GET key [FINGERPRINT f]";
pub const INFO_USAGE: &str = "RES.IDEMP INFO key";

/// What HELP says.
pub const HELP: [&str; 15] = [
    BEGIN_USAGE,
    "    [RUN, fence, attempt, waited_ms], [REPLAY, ok|error, result, age_ms], [BUSY, remaining_ms, attempt], [MISMATCH]",
    "    or [HELD, attempt]",
    COMMIT_USAGE,
    "    The work is done, and this is its result. [COMMITTED, stored|dropped] or [LOST, reason]",
    ABORT_USAGE,
    "    Nothing happened: whoever asks next runs. [ABORTED] or [LOST, reason]",
    RENEW_USAGE,
    "    The lease ends that much from now. [GRANTED, fence, lease_ms, 0] or [LOST, reason]",
    ONCE_USAGE,
    "    1 the first time, 0 for a duplicate; the same token gets 1 again.",
    GET_USAGE,
    "    [REPLAY, ...], [BUSY, ...], [HELD, ...], [MISMATCH] or [MISS]; changes nothing and works on replicas.",
    INFO_USAGE,
    "    Everything about the key, as a map; changes nothing and works on replicas.",
];

fn token<'a>(argv: &mut Argv<'a>) -> Result<&'a [u8], Refused> {
    argv.text("token", OWNER_MAX)
}

fn ttl(argv: &mut Argv<'_>, name: &str) -> Result<Span, Refused> {
    argv.duration(name, Span::from_ms(1), TTL_MAX)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeginCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub lease: Span,
    pub fingerprint: &'a [u8],
    pub wait: Span,
    pub keep: Span,
    pub on_lapse: OnLapse,
    pub bind: Bind,
}

impl<'a> BeginCall<'a> {
    pub fn parse(args: &'a [&'a [u8]], bounds: Bounds) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, BEGIN_USAGE);
        let (key, token, lease) = (argv.bytes("key")?, token(&mut argv)?, lease(&mut argv, bounds)?);
        let (mut fingerprint, mut given_wait, mut keep, mut on_lapse, mut bind) = (None, None, None, None, None);
        while let Some(word) = argv.word() {
            if word.is("FINGERPRINT") {
                once(&mut fingerprint, "FINGERPRINT", argv.text("FINGERPRINT", OWNER_MAX)?)?;
            } else if word.is("WAIT") {
                once(&mut given_wait, "WAIT", wait(&mut argv, bounds)?)?;
            } else if word.is("KEEP") {
                once(&mut keep, "KEEP", ttl(&mut argv, "KEEP")?)?;
            } else if word.is("ONLAPSE") {
                once(&mut on_lapse, "ONLAPSE", on_lapse_word(&mut argv)?)?;
            } else if !Bind::take(&mut bind, word, &mut argv, bounds)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self {
            key,
            token,
            lease,
            fingerprint: fingerprint.unwrap_or_default(),
            wait: given_wait.unwrap_or_default(),
            keep: keep.unwrap_or(KEEP_DEFAULT),
            on_lapse: on_lapse.unwrap_or_default(),
            bind: bind.unwrap_or_default(),
        })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.lease);
        named_text(words, "FINGERPRINT", unless_empty(self.fingerprint));
        named_duration(words, "WAIT", unless_zero(self.wait));
        named_duration(words, "KEEP", (self.keep != KEEP_DEFAULT).then_some(self.keep));
        if self.on_lapse == OnLapse::Hold {
            named_text(words, "ONLAPSE", Some(b"HOLD"));
        }
        self.bind.encode(words);
    }
}

fn on_lapse_word(argv: &mut Argv<'_>) -> Result<OnLapse, Refused> {
    let given = argv.bytes("ONLAPSE")?;
    if Word(given).is("RUN") {
        Ok(OnLapse::Run)
    } else if Word(given).is("HOLD") {
        Ok(OnLapse::Hold)
    } else {
        Err(Refused::new(format_args!("ONLAPSE must be RUN or HOLD, got {}", quoted(given))))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub ttl: Span,
    pub result: &'a [u8],
    pub failed: bool,
}

impl<'a> CommitCall<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, COMMIT_USAGE);
        let (key, token, ttl) = (argv.bytes("key")?, token(&mut argv)?, ttl(&mut argv, "ttl")?);
        let result = argv.bytes("result")?;
        let failed = match argv.word() {
            None => false,
            Some(word) if word.is("ERROR") => true,
            Some(word) => return Err(argv.unexpected(word.0)),
        };
        argv.finish()?;
        Ok(Self { key, token, ttl, result, failed })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.ttl);
        words.word(self.result);
        if self.failed {
            words.word(b"ERROR");
        }
    }
}

/// `key token`: ABORT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
}

impl<'a> TokenCall<'a> {
    pub fn parse(args: &'a [&'a [u8]], usage: &'static str) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, usage);
        let (key, token) = (argv.bytes("key")?, token(&mut argv)?);
        argv.finish()?;
        Ok(Self { key, token })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
    }
}

/// `key token lease [<BOUND | BOUNDTO client-id> [GRACE d]]`: RENEW.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub lease: Span,
    pub bind: Bind,
}

impl<'a> RenewCall<'a> {
    pub fn parse(args: &'a [&'a [u8]], bounds: Bounds, usage: &'static str) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, usage);
        let (key, token, lease) = (argv.bytes("key")?, token(&mut argv)?, lease(&mut argv, bounds)?);
        let mut bind = None;
        while let Some(word) = argv.word() {
            if !Bind::take(&mut bind, word, &mut argv, bounds)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self { key, token, lease, bind: bind.unwrap_or_default() })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.lease);
        self.bind.encode(words);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnceCall<'a> {
    pub key: &'a [u8],
    pub ttl: Span,
    pub token: &'a [u8],
}

impl<'a> OnceCall<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, ONCE_USAGE);
        let (key, ttl) = (argv.bytes("key")?, ttl(&mut argv, "ttl")?);
        let mut token = None;
        while let Some(word) = argv.word() {
            if !word.is("TOKEN") {
                return Err(argv.unexpected(word.0));
            }
            once(&mut token, "TOKEN", argv.text("TOKEN", OWNER_MAX)?)?;
        }
        Ok(Self { key, ttl, token: token.unwrap_or_default() })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.duration(self.ttl);
        named_text(words, "TOKEN", unless_empty(self.token));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetCall<'a> {
    pub key: &'a [u8],
    pub fingerprint: &'a [u8],
}

impl<'a> GetCall<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, GET_USAGE);
        let key = argv.bytes("key")?;
        let mut fingerprint = None;
        while let Some(word) = argv.word() {
            if !word.is("FINGERPRINT") {
                return Err(argv.unexpected(word.0));
            }
            once(&mut fingerprint, "FINGERPRINT", argv.text("FINGERPRINT", OWNER_MAX)?)?;
        }
        Ok(Self { key, fingerprint: fingerprint.unwrap_or_default() })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        named_text(words, "FINGERPRINT", unless_empty(self.fingerprint));
    }
}

/// `["RUN", fence, attempt, waited_ms]`.
pub fn write_run(run: &Run, sink: &mut (impl Sink + ?Sized)) {
    sink.array(4);
    sink.text(b"RUN");
    sink.integer(run.fence as i64);
    sink.integer(i64::from(run.attempt));
    sink.integer(run.waited.floor_ms());
}

/// `["REPLAY", "ok"|"error", result or nil, age_ms]`, `["BUSY", remaining_ms, attempt]`, `["MISMATCH"]`,
/// `["HELD", attempt]` or `["MISS"]`.
pub fn write_settled(settled: &Settled, sink: &mut (impl Sink + ?Sized)) {
    match settled {
        Settled::Replay(replay) => {
            sink.array(4);
            sink.text(b"REPLAY");
            sink.text(if replay.failed { b"error" } else { b"ok" });
            match &replay.result {
                Some(result) => sink.text(result),
                None => sink.null(),
            }
            sink.integer(replay.age.floor_ms());
        }
        Settled::Busy { remaining, attempt } => {
            sink.array(3);
            sink.text(b"BUSY");
            sink.integer(remaining.ceil_ms());
            sink.integer(i64::from(*attempt));
        }
        Settled::Mismatch => {
            sink.array(1);
            sink.text(b"MISMATCH");
        }
        Settled::Held { attempt } => {
            sink.array(2);
            sink.text(b"HELD");
            sink.integer(i64::from(*attempt));
        }
        Settled::Miss => {
            sink.array(1);
            sink.text(b"MISS");
        }
    }
}

/// `["COMMITTED", "stored"|"dropped"]` or `["LOST", reason]`.
pub fn write_committed(committed: &Committed, sink: &mut (impl Sink + ?Sized)) {
    match committed {
        Committed::Committed { stored } => {
            sink.array(2);
            sink.text(b"COMMITTED");
            sink.text(if *stored { b"stored" } else { b"dropped" });
        }
        Committed::Lost(reason) => write_lost(*reason, sink),
    }
}

/// `["ABORTED"]` or `["LOST", reason]`.
pub fn write_aborted(lost: Option<Reason>, sink: &mut (impl Sink + ?Sized)) {
    match lost {
        None => {
            sink.array(1);
            sink.text(b"ABORTED");
        }
        Some(reason) => write_lost(reason, sink),
    }
}

/// What INFO shows, as a map.
pub fn write_info(
    record: &Record,
    waiters: usize,
    promoted_at: Option<Instant>,
    now: Instant,
    sink: &mut (impl Sink + ?Sized),
) {
    let Some(work) = record.work_for(promoted_at, now) else {
        let seen = record.seen(now);
        sink.map(4);
        sink.text(b"phase");
        sink.text(if seen.is_some() { b"seen" } else { b"none" });
        sink.text(b"token");
        sink.text(seen.map_or(b"", |seen| &seen.token));
        sink.text(b"remaining_ms");
        sink.integer(seen.map_or(0, |seen| now.until(seen.until).ceil_ms()));
        sink.text(b"exists");
        sink.integer(i64::from(seen.is_some()));
        return;
    };
    let standing = lookup(work, promoted_at, now);
    let phase = match (&standing, &work.phase) {
        (Some(Settled::Busy { .. }), _) => "running",
        (Some(Settled::Held { .. }), _) => "held",
        (Some(_), _) => "done",
        (None, Phase::Idle { .. }) => "idle",
        (None, _) => "lapsed",
    };
    let (remaining, bytes, failed) = match (&standing, &work.phase) {
        (Some(Settled::Busy { remaining, .. }), _) => (remaining.ceil_ms(), 0, false),
        (_, Phase::Done { until, failed, result, .. }) => {
            (now.until(*until).ceil_ms(), result.as_ref().map_or(-1, |result| result.len() as i64), *failed)
        }
        _ => (now.until(work.kept_until()).ceil_ms(), 0, false),
    };
    sink.map(11);
    sink.text(b"phase");
    sink.text(phase.as_bytes());
    sink.text(b"token");
    sink.text(&work.token);
    sink.text(b"fence");
    sink.integer(work.fence as i64);
    sink.text(b"attempt");
    sink.integer(i64::from(work.attempt));
    sink.text(b"remaining_ms");
    sink.integer(remaining);
    sink.text(b"fingerprint");
    sink.text(&work.fingerprint);
    sink.text(b"on_lapse");
    sink.text(work.on_lapse.text().as_bytes());
    sink.text(b"failed");
    sink.integer(i64::from(failed));
    sink.text(b"result_bytes");
    sink.integer(bytes);
    sink.text(b"waiters");
    sink.integer(waiters as i64);
    sink.text(b"exists");
    sink.integer(1);
}
