//! `RES.GUARD`: ENTER, EXIT and STATE.

use resil_core::Span;
use resil_core::circuit_breaker::{Caller, Report};
use resil_core::guard::{
    Admitted, EnterRefusal, EnterRequest, ExitRequest, Exited, GuardView, Layer, Priority, RateView, StopReason,
};
use resil_core::limits::TEXT_MAX;

use crate::argv::{Argv, Refused, Word, once, parse_integer, quoted};
use crate::bound::{Length, Named, Text};
use crate::command::{Allowed, Arguments};
use crate::gcra::COST;
use crate::holding::{OWNER, Wait};
use crate::policy::no_policy;
use crate::reply::{Fields, Sink, Unexpected, Value};
use crate::words::{Spelled, Words};

/// The longest DURATION and AFTER.
const LONGEST: Span = Span::from_days(366);

const TICKET: Text = Text::new("TICKET", TEXT_MAX);
const TICKET_WORD: Text = Text::new("ticket", TEXT_MAX);
const CALLER: Text = Text::or_empty("CALLER", TEXT_MAX);
const SUBJECT: Text = Text::or_empty("SUBJECT", usize::MAX);
const CORRELATION: Text = Text::or_empty("CORRELATION", TEXT_MAX);
const DURATION: Length = Length::new("DURATION", (Span::ZERO, LONGEST));
const AFTER: Length = Length::new("AFTER", (Span::ZERO, LONGEST));

/// The number of a ticket; 0, which is nobody's, if it is not one of ours.
fn ticket_number(text: &[u8]) -> u64 {
    parse_integer(text).and_then(|number| u64::try_from(number).ok()).unwrap_or_default()
}

fn take_priority(slot: &mut Option<Priority>, argv: &mut Argv<'_>) -> Result<(), Refused> {
    let given = argv.bytes("PRIORITY")?;
    let Some(priority) = Priority::ALL.into_iter().find(|priority| Word(given).is(priority.text())) else {
        let given = quoted(given);
        let all = "critical, high, normal, low or background";
        return Err(Refused::new(format_args!("PRIORITY must be {all}, got {given}")));
    };
    once(slot, "PRIORITY", priority)
}

/// `ENTER key owner [SUBJECT limit-key] [COST n] [PRIORITY class] [WAIT d [ASYNC]] [TICKET t] [CALLER c]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardEnterCall<'a> {
    pub key: &'a [u8],
    pub owner: &'a [u8],
    pub subject: Option<&'a [u8]>,
    pub cost: u32,
    pub priority: Priority,
    pub wait: Wait,
    pub ticket: Option<&'a [u8]>,
    pub caller: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for GuardEnterCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, owner) = (argv.bytes("key")?, OWNER.take(&mut argv)?);
        let (mut cost, mut priority, mut wait) = (None, None, None);
        let (mut subject, mut ticket, mut caller) = (None, None, None);
        while let Some(word) = argv.word() {
            if word.is("SUBJECT") {
                SUBJECT.take_once(&mut subject, &mut argv)?;
            } else if word.is("PRIORITY") {
                take_priority(&mut priority, &mut argv)?;
            } else if word.is("TICKET") {
                TICKET.take_once(&mut ticket, &mut argv)?;
            } else if word.is("CALLER") {
                CALLER.take_once(&mut caller, &mut argv)?;
            } else if !COST.take_if(word, &mut cost, &mut argv)? && !Wait::take(&mut wait, word, &mut argv, allowed)? {
                return Err(argv.unexpected(word.0));
            }
        }
        let (cost, priority, wait) = (cost.unwrap_or(1), priority.unwrap_or_default(), wait.unwrap_or_default());
        let call = Self { key, owner, subject, cost, priority, wait, ticket, caller };
        call.check_words()?;
        Ok(call)
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        OWNER.check(self.owner)?;
        COST.check(self.cost.into())?;
        self.wait.check(allowed)?;
        TICKET.check_given(self.ticket)?;
        CALLER.check_given(self.caller)?;
        self.check_words()
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.owner);
        SUBJECT.write_given(self.subject, words);
        COST.write_given((self.cost != 1).then_some(self.cost), words);
        if self.priority != Priority::default() {
            words.word(b"PRIORITY");
            words.word(self.priority.text().as_bytes());
        }
        self.wait.encode(words);
        TICKET.write_given(self.ticket, words);
        CALLER.write_given(self.caller, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }

    fn wait(&self) -> Wait {
        self.wait
    }
}

impl GuardEnterCall<'_> {
    /// Servers look for the word SUBJECT to find the key behind it, and whether the user may have it.
    fn check_words(&self) -> Result<(), Refused> {
        let words = [("owner", Some(self.owner)), ("TICKET", self.ticket), ("CALLER", self.caller)];
        match words.into_iter().find(|(_, value)| value.is_some_and(|value| Word(value).is("SUBJECT"))) {
            Some((name, _)) => Err(Refused::new(format_args!("{name} must not be the word SUBJECT"))),
            None => Ok(()),
        }
    }

    /// What is asked of core; `random` is drawn by the caller.
    pub fn request(&self, random: u64) -> EnterRequest {
        EnterRequest {
            cost: self.cost,
            priority: self.priority,
            caller: self.caller.map_or(Caller::default(), Caller::named),
            ticket: self.ticket.map(ticket_number),
            random,
        }
    }
}

/// How a call is not to be made again, or when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    After(Span),
    Final,
}

/// `EXIT key ticket OK|FAIL|IGNORE|CANCEL [DURATION d] [AFTER d | FINAL] [CORRELATION t]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardExitCall<'a> {
    pub key: &'a [u8],
    pub ticket: &'a [u8],
    pub report: Report,
    pub duration: Option<Span>,
    pub again: Option<Again>,
    pub correlation: Option<&'a [u8]>,
}

const OUTCOMES: [(&str, Report); 4] =
    [("OK", Report::Ok), ("FAIL", Report::Fail), ("IGNORE", Report::Ignore), ("CANCEL", Report::Cancel)];

impl<'a> Arguments<'a> for GuardExitCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (key, ticket) = (argv.bytes("key")?, TICKET_WORD.take(&mut argv)?);
        let outcome = argv.bytes("outcome")?;
        let Some((_, report)) = OUTCOMES.into_iter().find(|(name, _)| Word(outcome).is(name)) else {
            let given = quoted(outcome);
            return Err(Refused::new(format_args!("outcome must be OK, FAIL, IGNORE or CANCEL, got {given}")));
        };
        let mut call = Self { key, ticket, report, duration: None, again: None, correlation: None };
        while let Some(word) = argv.word() {
            let again = if word.is("AFTER") {
                Again::After(AFTER.take(&mut argv)?)
            } else if word.is("FINAL") {
                Again::Final
            } else {
                if word.is("CORRELATION") {
                    CORRELATION.take_once(&mut call.correlation, &mut argv)?;
                } else if !DURATION.take_if(word, &mut call.duration, &mut argv)? {
                    return Err(argv.unexpected(word.0));
                }
                continue;
            };
            if call.again.replace(again).is_some() {
                return Err(Refused::new("only one of AFTER and FINAL can be given, and once"));
            }
        }
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        TICKET_WORD.check(self.ticket)?;
        DURATION.check_given(self.duration)?;
        if let Some(Again::After(after)) = self.again {
            AFTER.check(after)?;
        }
        CORRELATION.check_given(self.correlation)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.ticket);
        if let Some((name, _)) = OUTCOMES.into_iter().find(|(_, report)| *report == self.report) {
            words.word(name.as_bytes());
        }
        DURATION.write_given(self.duration, words);
        match self.again {
            Some(Again::After(after)) => AFTER.write_given(Some(after), words),
            Some(Again::Final) => words.word(b"FINAL"),
            None => {}
        }
        CORRELATION.write_given(self.correlation, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

impl GuardExitCall<'_> {
    pub fn number(&self) -> u64 {
        ticket_number(self.ticket)
    }

    /// What is asked of core; `random` is drawn by the caller.
    pub fn request(&self, random: u64) -> ExitRequest {
        let after = if let Some(Again::After(after)) = self.again { Some(after) } else { None };
        let is_final = self.again == Some(Again::Final);
        ExitRequest { report: self.report, duration: self.duration, after, is_final, random }
    }
}

/// `[limit, remaining, reset_ms]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateReply {
    pub limit: i64,
    pub remaining: i64,
    pub reset_ms: i64,
}

impl From<RateView> for RateReply {
    fn from(rate: RateView) -> Self {
        Self { limit: rate.limit.into(), remaining: rate.remaining.into(), reset_ms: rate.reset_after.ceil_ms() }
    }
}

impl RateReply {
    fn write(rate: Option<Self>, sink: &mut (impl Sink + ?Sized)) {
        let Some(Self { limit, remaining, reset_ms }) = rate else { return sink.null() };
        sink.array(3);
        [limit, remaining, reset_ms].into_iter().for_each(|number| sink.integer(number));
    }

    fn read(fields: &mut Fields) -> Result<Option<Self>, Unexpected> {
        match fields.next()? {
            Value::Null => Ok(None),
            value => {
                let [limit, remaining, reset_ms] = value.integers()?;
                Ok(Some(Self { limit, remaining, reset_ms }))
            }
        }
    }
}

/// ENTER: `["ADMITTED", ticket, attempt, timeout_ms, deadline_ms, version, rate]` or
/// `["REFUSED", layer, retry_after_ms, reason, version, rate]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardEntered {
    Admitted {
        ticket: Vec<u8>,
        attempt: u32,
        /// -1: none.
        timeout_ms: i64,
        /// -1: none.
        deadline_ms: i64,
        version: u64,
        rate: Option<RateReply>,
    },
    Refused {
        layer: Layer,
        /// -1: never.
        retry_after_ms: i64,
        reason: Vec<u8>,
        version: u64,
        rate: Option<RateReply>,
    },
}

impl From<&Admitted> for GuardEntered {
    /// Time a caller may use rounds down. A timeout is 1 ms at least: to many clients 0 means to wait for ever.
    fn from(admitted: &Admitted) -> Self {
        Self::Admitted {
            ticket: Spelled::number(admitted.ticket.cast_signed()).as_bytes().to_vec(),
            attempt: admitted.attempt,
            timeout_ms: admitted.timeout.map_or(-1, |timeout| timeout.floor_ms().max(1)),
            deadline_ms: admitted.deadline.map_or(-1, Span::floor_ms),
            version: admitted.version,
            rate: admitted.rate.map(Into::into),
        }
    }
}

/// What is not a verdict is an error.
impl TryFrom<EnterRefusal> for GuardEntered {
    type Error = Refused;

    fn try_from(refusal: EnterRefusal) -> Result<Self, Refused> {
        match refusal {
            EnterRefusal::Layer(refusal) => Ok(Self::Refused {
                layer: refusal.layer,
                retry_after_ms: refusal.retry_after.ms(),
                reason: refusal.reason.text().as_bytes().to_vec(),
                version: refusal.version,
                rate: refusal.rate.map(Into::into),
            }),
            EnterRefusal::NoPolicy => Err(no_policy()),
            EnterRefusal::Ticket => {
                let text = "the ticket is unknown, ended, lapsed or overdue, or its owner is inside with another; a ticket that EXIT answered with RETRY is good for one ENTER";
                Err(Refused::with_code("TICKET", text))
            }
            EnterRefusal::TooManyTiers => Err(Refused::new(resil_core::rate_limit::TooManyTiers)),
        }
    }
}

impl GuardEntered {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Admitted { ticket, attempt, timeout_ms, deadline_ms, version, rate } => {
                sink.array(7);
                sink.text(b"ADMITTED");
                sink.text(ticket);
                sink.integer((*attempt).into());
                sink.integer(*timeout_ms);
                sink.integer(*deadline_ms);
                sink.integer(version.cast_signed());
                RateReply::write(*rate, sink);
            }
            Self::Refused { layer, retry_after_ms, reason, version, rate } => {
                sink.array(6);
                sink.text(b"REFUSED");
                sink.text(layer.text().as_bytes());
                sink.integer(*retry_after_ms);
                sink.text(reason);
                sink.integer(version.cast_signed());
                RateReply::write(*rate, sink);
            }
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let entered = match fields.text()?.as_slice() {
            b"ADMITTED" => Self::Admitted {
                ticket: fields.text()?,
                attempt: fields.number()?,
                timeout_ms: fields.integer()?,
                deadline_ms: fields.integer()?,
                version: fields.number()?,
                rate: RateReply::read(&mut fields)?,
            },
            b"REFUSED" => Self::Refused {
                layer: fields.word(Layer::from_text, "a layer")?,
                retry_after_ms: fields.integer()?,
                reason: fields.text()?,
                version: fields.number()?,
                rate: RateReply::read(&mut fields)?,
            },
            _ => return Err(Unexpected("ADMITTED or REFUSED")),
        };
        fields.finish(entered)
    }
}

/// EXIT: `["DONE"]`, `["RETRY", delay_ms, attempt]` or `["STOP", reason, attempts]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardExited {
    Done,
    Retry { delay_ms: i64, attempt: u32 },
    Stop { reason: StopReason, attempts: u32 },
}

impl TryFrom<Exited> for GuardExited {
    type Error = Refused;

    /// Time to wait rounds up.
    fn try_from(exited: Exited) -> Result<Self, Refused> {
        match exited {
            Exited::Done => Ok(Self::Done),
            Exited::Retry { delay, attempt } => Ok(Self::Retry { delay_ms: delay.ceil_ms(), attempt }),
            Exited::Stop { reason, attempts } => Ok(Self::Stop { reason, attempts }),
            Exited::NoPolicy => Err(no_policy()),
        }
    }
}

impl GuardExited {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Done => sink.verdict("DONE", &[]),
            Self::Retry { delay_ms, attempt } => sink.verdict("RETRY", &[*delay_ms, (*attempt).into()]),
            Self::Stop { reason, attempts } => {
                sink.array(3);
                sink.text(b"STOP");
                sink.text(reason.text().as_bytes());
                sink.integer((*attempts).into());
            }
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let exited = match fields.text()?.as_slice() {
            b"DONE" => Self::Done,
            b"RETRY" => Self::Retry { delay_ms: fields.integer()?, attempt: fields.number()? },
            b"STOP" => {
                Self::Stop { reason: fields.word(StopReason::from_text, "a reason")?, attempts: fields.number()? }
            }
            _ => return Err(Unexpected("DONE, RETRY or STOP")),
        };
        fields.finish(exited)
    }
}

/// STATE: a map.
pub fn write_guard_state(view: &GuardView, sink: &mut (impl Sink + ?Sized)) {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    sink.map(9);
    sink.text(b"version");
    sink.integer(view.version.cast_signed());
    sink.text(b"breaker");
    sink.text_or_null(view.breaker.map(|state| state.text().as_bytes()));
    let counts = [("active", number(view.active)), ("queued", number(view.queued))];
    let limits = [("max", view.max.map_or(-1, number)), ("retrying", number(view.retrying))];
    let left = view.budget_left.map_or(-1, |left| i64::try_from(left).unwrap_or(i64::MAX));
    for (name, count) in counts.into_iter().chain(limits).chain([("budget_left", left)]) {
        sink.text(name.as_bytes());
        sink.integer(count);
    }
    sink.text(b"refused");
    sink.map(Layer::ALL.len());
    for (layer, count) in Layer::ALL.into_iter().zip(view.refused) {
        sink.text(layer.text().as_bytes());
        sink.integer(count.cast_signed());
    }
    sink.text(b"chaos");
    match &view.chaos {
        None => sink.null(),
        Some(chaos) => {
            sink.map(2);
            sink.text(b"kind");
            sink.text(chaos.kind.text().as_bytes());
            sink.text(b"left_ms");
            sink.integer(chaos.left.ceil_ms());
        }
    }
}
