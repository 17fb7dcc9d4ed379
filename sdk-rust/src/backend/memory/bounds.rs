//! What a server refuses, memory refuses, with the same sentence.
//!
//! A server checks the words it parses; a typed command may never have been words. So every command is held against the
//! bounds here, which costs next to nothing. One that does not pass is written as words and parsed: the sentence, and
//! the last word on whether it is refused at all, are the parser's.

use resil_core::Span;
use resil_core::circuit_breaker::{Patch, WindowKind, bounds as breaker};
use resil_core::limits::{
    COST_MAX, FENCE_MAX, HOLDERS_MAX, INFO_LIMIT_MAX, LEASE_DEFAULT_MAX, LEASE_LEAST, MGCRA_KEYS_MAX, OWNER_MAX,
    PERIOD_MAX, RESERVE_MAX, TALLY_MAX, TEXT_MAX, TIERS_NAMED_MAX, TTL_MAX, VALUE_DEFAULT_MAX, WAIT_DEFAULT_MAX,
    WAITERS_CEILING, WINDOW_LIMIT_DEFAULT,
};
use resil_core::rate_limit::Ask;
use resil_wire::breaker::Options;
use resil_wire::command::{Allowed, Command};
use resil_wire::gcra::Gcra;
use resil_wire::mgcra::Mgcra;
use resil_wire::single_flight::Brought;

use super::refused;
use crate::error::Error;

/// A priority is from 0 to 9.
const PRIORITY_MAX: u8 = 9;

/// The longest DURATION of a report and FOR of a force.
const LONGEST: Span = Span::from_days(366);

pub(super) fn check(command: &Command<'_>) -> Result<(), Error> {
    if is_within(command) {
        return Ok(());
    }
    let words = command.words();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    Command::parse(&words, Allowed::default()).map_err(refused)?;
    Ok(())
}

fn is_within(command: &Command<'_>) -> bool {
    match command {
        Command::Gcra(call) => is_gcra(call),
        Command::Mgcra(call) => is_mgcra(call),
        Command::Window(call) => {
            let asks = matches!(call.ask, Ask::Take(_) | Ask::UpTo(_) | Ask::Peek);
            asks && is_ask(call.ask)
                && (1..=WINDOW_LIMIT_DEFAULT).contains(&call.rule.limit)
                && is_span(call.rule.period, Span::from_us(1), PERIOD_MAX)
        }
        // Nothing else can be made of it than what is allowed.
        Command::Throttle(call) => is_ask(call.throttle.ask),
        Command::BreakerAdmit(call) => is_text(call.caller) && call.options.as_ref().is_none_or(is_options),
        Command::BreakerReport(call) => {
            is_text(call.correlation) && call.duration.is_none_or(|duration| duration <= LONGEST)
        }
        Command::BreakerTally(call) => {
            let batch = &call.batch;
            let signed = |number: u64| i64::try_from(number).is_ok();
            is_text(Some(call.caller))
                && signed(call.generation)
                && signed(call.seq)
                && batch.ok <= TALLY_MAX
                && batch.failures <= TALLY_MAX
                && batch.slow <= batch.ok + batch.failures
                && batch.run <= batch.failures
        }
        Command::BreakerForce(call) => {
            is_text(call.actor)
                && is_text(call.reason)
                && call.length.is_none_or(|length| call.force.is_some() && is_span(length, Span::from_ms(1), LONGEST))
        }
        Command::BreakerConfig(call) => !call.options.is_empty() && is_options(&call.options),
        Command::LockAcquire(call) => {
            is_owner(call.owner) && is_lease(call.lease) && is_wait(call.wait) && call.meta.len() <= OWNER_MAX
        }
        Command::LockRenew(call) | Command::BulkheadRenew(call) => {
            is_owner(call.owner) && is_lease(call.lease) && is_fence(call.fence)
        }
        Command::LockRelease(call) | Command::LockCheck(call) | Command::BulkheadLeave(call) => {
            is_owner(call.owner) && is_fence(call.fence)
        }
        Command::LockBreak(call) => is_some_text(call.actor) && is_some_text(call.reason),
        Command::LockInfo(call) | Command::BulkheadInfo(call) => call.limit <= INFO_LIMIT_MAX as usize,
        Command::BulkheadEnter(call) => {
            is_owner(call.owner)
                && is_lease(call.lease)
                && is_wait(call.wait)
                && (1..=HOLDERS_MAX as u32).contains(&call.max)
                && call.queue <= WAITERS_CEILING
                && call.priority <= PRIORITY_MAX
        }
        Command::IdempBegin(call) => {
            is_owner(call.token)
                && is_lease(call.lease)
                && is_wait(call.wait)
                && is_ttl(call.keep)
                && call.fingerprint.len() <= OWNER_MAX
        }
        Command::IdempCommit(call) => is_owner(call.token) && is_ttl(call.ttl),
        Command::IdempAbort(call) => is_owner(call.token),
        Command::IdempRenew(call) | Command::FlightRenew(call) => is_owner(call.token) && is_lease(call.lease),
        Command::IdempOnce(call) => call.token.len() <= OWNER_MAX && is_ttl(call.ttl),
        Command::IdempGet(call) => call.fingerprint.len() <= OWNER_MAX,
        Command::FlightJoin(call) => is_owner(call.token) && is_lease(call.lease) && is_wait(call.wait),
        Command::FlightPublish(call) => {
            is_owner(call.token)
                && call.ttl <= TTL_MAX
                && match call.brought {
                    Brought::Value { bytes, stale } => bytes.len() <= VALUE_DEFAULT_MAX && stale <= TTL_MAX,
                    Brought::Empty => true,
                    Brought::Error { text } => is_some_text(Some(text)),
                }
        }
        Command::FlightAbandon(call) => is_owner(call.token) && call.retry.is_none_or(is_ttl),
        Command::BreakerState(_)
        | Command::BreakerReset(_)
        | Command::IdempInfo(_)
        | Command::FlightGet(_)
        | Command::FlightInvalidate(_)
        | Command::FlightInfo(_)
        | Command::Heartbeat => true,
    }
}

fn is_gcra(call: &Gcra<'_>) -> bool {
    let quotas = &call.quotas;
    let differ = || quotas.iter().enumerate().all(|(n, a)| quotas[..n].iter().all(|b| a.period() != b.period()));
    is_ask(call.ask) && (quotas.len() == 1 || ((1..=TIERS_NAMED_MAX).contains(&quotas.len()) && differ()))
}

fn is_mgcra(call: &Mgcra<'_>) -> bool {
    let limits = &call.limits;
    let differ = || limits.iter().enumerate().all(|(n, (a, _))| limits[..n].iter().all(|(b, _)| a != b));
    is_ask(Ask::Take(call.cost)) && (1..=MGCRA_KEYS_MAX).contains(&limits.len()) && differ()
}

fn is_ask(ask: Ask) -> bool {
    match ask {
        Ask::Take(cells) | Ask::UpTo(cells) | Ask::Refund(cells) => (1..=COST_MAX).contains(&cells),
        Ask::Reserve(ahead) => is_span(ahead, Span::from_us(1), RESERVE_MAX),
        Ask::Peek => true,
    }
}

fn is_options(options: &Options) -> bool {
    options.version.is_none_or(|version| i64::try_from(version).is_ok_and(|version| version > 0))
        && is_patch(&options.patch)
}

fn is_patch(patch: &Patch) -> bool {
    let number = |number: Option<u32>, bounds: std::ops::RangeInclusive<i64>| {
        number.is_none_or(|number| bounds.contains(&i64::from(number)))
    };
    let span = |span: Option<Span>, (least, most)| span.is_none_or(|span| is_span(span, least, most));
    let window = patch.window.is_none_or(|window| match window {
        WindowKind::Count(calls) => breaker::WINDOW_CALLS.contains(&i64::from(calls)),
        WindowKind::Time(length) => is_span(length, breaker::WINDOW_SPAN.0, breaker::WINDOW_SPAN.1),
    });
    window
        && number(patch.rate_pct, breaker::PERCENT)
        && span(patch.slow, breaker::SLOW)
        && number(patch.slow_rate_pct, breaker::PERCENT)
        && number(patch.consecutive, breaker::CONSECUTIVE)
        && number(patch.min_calls, breaker::MIN_CALLS)
        && span(patch.open, breaker::OPEN)
        && number(patch.factor_milli, breaker::FACTOR_MILLI)
        && span(patch.open_max, breaker::OPEN)
        && number(patch.probes, breaker::PROBES)
        && number(patch.successes, breaker::SUCCESSES)
        && span(patch.lease, breaker::LEASE)
        && number(patch.quorum, breaker::QUORUM)
        && span(patch.ramp, breaker::RAMP)
        && span(patch.idle, breaker::IDLE)
}

fn is_span(span: Span, least: Span, most: Span) -> bool {
    (least..=most).contains(&span)
}

fn is_text(text: Option<&[u8]>) -> bool {
    text.is_none_or(|text| text.len() <= TEXT_MAX)
}

fn is_some_text(text: Option<&[u8]>) -> bool {
    text.is_none_or(|text| (1..=TEXT_MAX).contains(&text.len()))
}

fn is_owner(owner: &[u8]) -> bool {
    (1..=OWNER_MAX).contains(&owner.len())
}

fn is_lease(lease: Span) -> bool {
    is_span(lease, LEASE_LEAST, LEASE_DEFAULT_MAX)
}

fn is_wait(wait: Span) -> bool {
    wait <= WAIT_DEFAULT_MAX
}

fn is_ttl(ttl: Span) -> bool {
    is_span(ttl, Span::from_ms(1), TTL_MAX)
}

fn is_fence(fence: Option<u64>) -> bool {
    fence.is_none_or(|fence| (1..=FENCE_MAX).contains(&fence))
}
