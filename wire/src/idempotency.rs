//! `RES.IDEMP` and its subcommands: the arguments, their bounds, the replies.

use std::sync::Arc;

use resil_core::idempotency::{self, OnLapse, Record, Run, Settled, WorkPhase, lookup};
use resil_core::limits::{KEEP_DEFAULT, OWNER_MAX, TTL_MAX};
use resil_core::lock::Reason;
use resil_core::{Instant, Span};

use crate::argv::{Argv, Refused, Word, once, quoted};
use crate::bound::{Length, Named, Text};
use crate::command::{Allowed, Arguments};
use crate::holding::{Bind, Wait, lease, read_reason, write_lost};
use crate::reply::{Sink, Unexpected, Value};
use crate::words::{Words, unless_empty};

pub(crate) const TOKEN: Text = Text::new("token", OWNER_MAX);
const TOKEN_OPTION: Text = Text::new("TOKEN", OWNER_MAX);
const FINGERPRINT: Text = Text::new("FINGERPRINT", OWNER_MAX);
const TTL: Length = Length::new("ttl", (Span::from_ms(1), TTL_MAX));
const KEEP: Length = Length::new("KEEP", (Span::from_ms(1), TTL_MAX));

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeginCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub lease: Span,
    pub fingerprint: &'a [u8],
    pub wait: Wait,
    pub keep: Span,
    pub on_lapse: OnLapse,
    pub bind: Bind,
}

impl<'a> Arguments<'a> for BeginCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, token) = (argv.bytes("key")?, TOKEN.take(&mut argv)?);
        let lease = lease(allowed).take(&mut argv)?;
        let (mut fingerprint, mut wait, mut keep, mut on_lapse, mut bind) = (None, None, None, None, None);
        while let Some(word) = argv.word() {
            if word.is("FINGERPRINT") {
                FINGERPRINT.take_once(&mut fingerprint, &mut argv)?;
            } else if word.is("KEEP") {
                KEEP.take_once(&mut keep, &mut argv)?;
            } else if word.is("ONLAPSE") {
                once(&mut on_lapse, "ONLAPSE", on_lapse_word(&mut argv)?)?;
            } else if !Wait::take(&mut wait, word, &mut argv, allowed)?
                && !Bind::take(&mut bind, word, &mut argv, allowed)?
            {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self {
            key,
            token,
            lease,
            fingerprint: fingerprint.unwrap_or_default(),
            wait: wait.unwrap_or_default(),
            keep: keep.unwrap_or(KEEP_DEFAULT),
            on_lapse: on_lapse.unwrap_or_default(),
            bind: bind.unwrap_or_default(),
        })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        TOKEN.check(self.token)?;
        lease(allowed).check(self.lease)?;
        FINGERPRINT.check_given(unless_empty(self.fingerprint))?;
        self.wait.check(allowed)?;
        KEEP.check(self.keep)?;
        self.bind.check(allowed)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.lease);
        FINGERPRINT.write_given(unless_empty(self.fingerprint), words);
        self.wait.encode(words);
        KEEP.write_given((self.keep != KEEP_DEFAULT).then_some(self.keep), words);
        if self.on_lapse == OnLapse::Hold {
            words.word(b"ONLAPSE");
            words.word(b"HOLD");
        }
        self.bind.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }

    fn wait(&self) -> Wait {
        self.wait
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

impl<'a> Arguments<'a> for CommitCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (key, token, ttl) = (argv.bytes("key")?, TOKEN.take(&mut argv)?, TTL.take(&mut argv)?);
        let result = argv.bytes("result")?;
        let failed = argv.take_word("ERROR");
        argv.finish()?;
        Ok(Self { key, token, ttl, result, failed })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        TOKEN.check(self.token)?;
        TTL.check(self.ttl)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.ttl);
        words.word(self.result);
        if self.failed {
            words.word(b"ERROR");
        }
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// `key token`: ABORT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
}

impl<'a> Arguments<'a> for TokenCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (key, token) = (argv.bytes("key")?, TOKEN.take(&mut argv)?);
        argv.finish()?;
        Ok(Self { key, token })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        TOKEN.check(self.token)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// `key token lease [<BOUND | BOUNDTO client-id> [GRACE d]]`: RENEW.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRenewCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub lease: Span,
    pub bind: Bind,
}

impl<'a> Arguments<'a> for TokenRenewCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, token) = (argv.bytes("key")?, TOKEN.take(&mut argv)?);
        let lease = lease(allowed).take(&mut argv)?;
        let mut bind = None;
        while let Some(word) = argv.word() {
            if !Bind::take(&mut bind, word, &mut argv, allowed)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self { key, token, lease, bind: bind.unwrap_or_default() })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        TOKEN.check(self.token)?;
        lease(allowed).check(self.lease)?;
        self.bind.check(allowed)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.lease);
        self.bind.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnceCall<'a> {
    pub key: &'a [u8],
    pub ttl: Span,
    pub token: &'a [u8],
}

impl<'a> Arguments<'a> for OnceCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (key, ttl) = (argv.bytes("key")?, TTL.take(&mut argv)?);
        let mut token = None;
        while let Some(word) = argv.word() {
            if !word.is("TOKEN") {
                return Err(argv.unexpected(word.0));
            }
            TOKEN_OPTION.take_once(&mut token, &mut argv)?;
        }
        Ok(Self { key, ttl, token: token.unwrap_or_default() })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        TTL.check(self.ttl)?;
        TOKEN_OPTION.check_given(unless_empty(self.token))
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.duration(self.ttl);
        TOKEN_OPTION.write_given(unless_empty(self.token), words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetCall<'a> {
    pub key: &'a [u8],
    pub fingerprint: &'a [u8],
}

impl<'a> Arguments<'a> for GetCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let mut fingerprint = None;
        while let Some(word) = argv.word() {
            if !word.is("FINGERPRINT") {
                return Err(argv.unexpected(word.0));
            }
            FINGERPRINT.take_once(&mut fingerprint, &mut argv)?;
        }
        Ok(Self { key, fingerprint: fingerprint.unwrap_or_default() })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        FINGERPRINT.check_given(unless_empty(self.fingerprint))
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        FINGERPRINT.write_given(unless_empty(self.fingerprint), words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// BEGIN of a key of ONCE, or ONCE of a key of BEGIN.
pub fn wrong_phase(has: &str, wants: &str) -> Refused {
    Refused::with_code("PHASE", format_args!("this key is used by {has}; use another key for {wants}"))
}

/// BEGIN and GET: `["RUN", fence, attempt, waited_ms]`, `["REPLAY", "ok" | "error", result or nil, age_ms]`,
/// `["BUSY", remaining_ms, attempt]`, `["MISMATCH"]`, `["HELD", attempt]` or `["MISS"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Only BEGIN.
    Run {
        fence: u64,
        attempt: u32,
        waited_ms: i64,
    },
    /// `result` is `None` if it was too large to be kept.
    Replay {
        failed: bool,
        result: Option<Arc<[u8]>>,
        age_ms: i64,
    },
    Busy {
        remaining_ms: i64,
        attempt: u32,
    },
    Mismatch,
    Held {
        attempt: u32,
    },
    /// Only GET.
    Miss,
}

impl From<Run> for Begun {
    fn from(run: Run) -> Self {
        Self::Run { fence: run.fence, attempt: run.attempt, waited_ms: run.waited.floor_ms() }
    }
}

impl From<Settled> for Begun {
    fn from(settled: Settled) -> Self {
        match settled {
            Settled::Replay(replay) => {
                Self::Replay { failed: replay.failed, result: replay.result, age_ms: replay.age.floor_ms() }
            }
            Settled::Busy { remaining, attempt } => Self::Busy { remaining_ms: remaining.ceil_ms(), attempt },
            Settled::Mismatch => Self::Mismatch,
            Settled::Held { attempt } => Self::Held { attempt },
            Settled::Miss => Self::Miss,
        }
    }
}

impl Begun {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Run { fence, attempt, waited_ms } => {
                sink.verdict("RUN", &[fence.cast_signed(), i64::from(*attempt), *waited_ms]);
            }
            Self::Replay { failed, result, age_ms } => {
                sink.array(4);
                sink.text(b"REPLAY");
                sink.text(if *failed { b"error" } else { b"ok" });
                sink.text_or_null(result.as_deref());
                sink.integer(*age_ms);
            }
            Self::Busy { remaining_ms, attempt } => sink.verdict("BUSY", &[*remaining_ms, i64::from(*attempt)]),
            Self::Mismatch => sink.verdict("MISMATCH", &[]),
            Self::Held { attempt } => sink.verdict("HELD", &[i64::from(*attempt)]),
            Self::Miss => sink.verdict("MISS", &[]),
        }
    }

    pub fn read_begin(value: Value) -> Result<Self, Unexpected> {
        match Self::read(value)? {
            Self::Miss => Err(Unexpected("a reply of BEGIN")),
            begun => Ok(begun),
        }
    }

    pub fn read_get(value: Value) -> Result<Self, Unexpected> {
        match Self::read(value)? {
            Self::Run { .. } => Err(Unexpected("a reply of GET")),
            begun => Ok(begun),
        }
    }

    fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let begun = match fields.text()?.as_slice() {
            b"RUN" => Self::Run { fence: fields.number()?, attempt: fields.number()?, waited_ms: fields.integer()? },
            b"REPLAY" => {
                let failed = match fields.text()?.as_slice() {
                    b"ok" => false,
                    b"error" => true,
                    _ => return Err(Unexpected("ok or error")),
                };
                let result = fields.text_or_null()?.map(Into::into);
                Self::Replay { failed, result, age_ms: fields.integer()? }
            }
            b"BUSY" => Self::Busy { remaining_ms: fields.integer()?, attempt: fields.number()? },
            b"MISMATCH" => Self::Mismatch,
            b"HELD" => Self::Held { attempt: fields.number()? },
            b"MISS" => Self::Miss,
            _ => return Err(Unexpected("RUN, REPLAY, BUSY, MISMATCH, HELD or MISS")),
        };
        fields.finish(begun)
    }
}

/// COMMIT: `["COMMITTED", "stored" | "dropped"]` or `["LOST", reason]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    Committed { stored: bool },
    Lost(Reason),
}

impl From<idempotency::Committed> for Committed {
    fn from(committed: idempotency::Committed) -> Self {
        match committed {
            idempotency::Committed::Committed { stored } => Self::Committed { stored },
            idempotency::Committed::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl Committed {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Committed { stored } => {
                sink.array(2);
                sink.text(b"COMMITTED");
                sink.text(if *stored { b"stored" } else { b"dropped" });
            }
            Self::Lost(reason) => write_lost(*reason, sink),
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let committed = match fields.text()?.as_slice() {
            b"COMMITTED" => match fields.text()?.as_slice() {
                b"stored" => Self::Committed { stored: true },
                b"dropped" => Self::Committed { stored: false },
                _ => return Err(Unexpected("stored or dropped")),
            },
            b"LOST" => Self::Lost(read_reason(&mut fields)?),
            _ => return Err(Unexpected("COMMITTED or LOST")),
        };
        fields.finish(committed)
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
        (None, WorkPhase::Idle { .. }) => "idle",
        (None, _) => "lapsed",
    };
    let (remaining, bytes, failed) = match (&standing, &work.phase) {
        (Some(Settled::Busy { remaining, .. }), _) => (remaining.ceil_ms(), 0, false),
        (_, WorkPhase::Done { until, failed, result, .. }) => {
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
