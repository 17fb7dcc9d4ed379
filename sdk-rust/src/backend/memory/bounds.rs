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
                && is_text(call.correlation)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use resil_core::circuit_breaker::{Batch, Force, Report};
    use resil_core::idempotency::OnLapse;
    use resil_core::rate_limit::Quota;
    use resil_core::window::Rule;
    use resil_wire::breaker::{Admit, ConfigCall, ForceCall, ReportCall, TallyCall};
    use resil_wire::bulkhead::EnterCall;
    use resil_wire::holding::{Bind, InfoCall, OwnedCall, RenewCall};
    use resil_wire::idempotency::{BeginCall, CommitCall, GetCall, OnceCall};
    use resil_wire::lock::{AcquireCall, BreakCall};
    use resil_wire::single_flight::{AbandonCall, JoinCall, PublishCall};
    use resil_wire::window::Windowed;

    use super::*;

    const TEXT: [u8; 600] = [b'x'; 600];

    /// At, below and above every bound there is.
    fn span() -> impl Strategy<Value = Span> {
        let edges = [0, 1, 1_000, 10_000, 100_000, 1_000_000, 600_000_000, 86_400_000_000, 2_592_000_000_000];
        let edges = edges.into_iter().chain([366 * 86_400_000_000]).collect::<Vec<i64>>();
        (prop::sample::select(edges), -1..=1i64).prop_map(|(edge, by)| Span::from_us(edge + by))
    }

    fn number() -> impl Strategy<Value = u32> {
        let edges = vec![1, 9, 64, 100, 1_000, 10_000, 100_000, 1_000_000, 1_000_000_000];
        (prop::sample::select(edges), 0..=2u32).prop_map(|(edge, by)| edge + by - 1)
    }

    fn text() -> impl Strategy<Value = &'static [u8]> {
        prop::sample::select(vec![0, 1, 512, 513, 600]).prop_map(|len| &TEXT[..len])
    }

    fn commands(
        (a, b, c): (Span, Span, Span),
        (m, n, o): (u32, u32, u32),
        (s, t): (&'static [u8], &'static [u8]),
    ) -> Vec<Command<'static>> {
        let (key, bind, fence) = (&b"k"[..], Bind::None, Some(u64::from(m) << 24));
        let patch = Patch {
            rate_pct: Some(m),
            slow: Some(a),
            consecutive: Some(n),
            min_calls: Some(m),
            open: Some(b),
            open_max: Some(b),
            factor_milli: Some(m),
            probes: Some(o),
            successes: Some(n),
            lease: Some(c),
            quorum: Some(o),
            ramp: Some(a),
            idle: Some(b),
            window: Some(if n % 2 == 0 { WindowKind::Count(n) } else { WindowKind::Time(a) }),
            slow_rate_pct: Some(o),
        };
        let options = Options { patch, version: Some(u64::from(n)) };
        let quota = Quota::new(1, Span::from_secs(1), 1).expect("a quota");
        let mut commands = vec![
            Command::Window(Windowed { key, rule: Rule { limit: m, period: a }, ask: Ask::Take(n) }),
            Command::BreakerAdmit(Admit { key, caller: Some(s), options: Some(options) }),
            Command::BreakerConfig(ConfigCall { key, options }),
            Command::BreakerReport(ReportCall {
                key,
                permit: None,
                report: Report::Ok,
                duration: Some(a),
                correlation: Some(s),
            }),
            Command::BreakerTally(TallyCall {
                key,
                generation: 1,
                caller: s,
                seq: 1,
                batch: Batch { ok: m, failures: n, slow: o, run: o },
                correlation: Some(s),
            }),
            Command::BreakerForce(ForceCall {
                key,
                force: (m % 2 == 0).then_some(Force::Open),
                length: Some(a),
                actor: Some(s),
                reason: Some(t),
            }),
            Command::LockAcquire(AcquireCall { key, owner: s, lease: a, wait: b, shared: false, bind, meta: t }),
            Command::LockRenew(RenewCall { key, owner: s, lease: a, fence, bind }),
            Command::LockCheck(OwnedCall { key, owner: s, fence }),
            Command::LockBreak(BreakCall { key, actor: Some(s), reason: Some(t) }),
            Command::LockInfo(InfoCall { key, limit: m as usize }),
            Command::BulkheadEnter(EnterCall {
                key,
                owner: s,
                max: m,
                lease: a,
                wait: b,
                queue: n,
                priority: (o % 12) as u8,
                bind,
            }),
            Command::IdempBegin(BeginCall {
                key,
                token: s,
                lease: a,
                fingerprint: t,
                wait: b,
                keep: c,
                on_lapse: OnLapse::Run,
                bind,
            }),
            Command::IdempCommit(CommitCall { key, token: s, ttl: a, result: t, failed: false }),
            Command::IdempOnce(OnceCall { key, ttl: a, token: s }),
            Command::IdempGet(GetCall { key, fingerprint: s }),
            Command::FlightJoin(JoinCall { key, token: s, lease: a, wait: b, bind }),
            Command::FlightAbandon(AbandonCall { key, token: s, retry: Some(a) }),
        ];
        for brought in [Brought::Value { bytes: t, stale: b }, Brought::Error { text: t }] {
            commands.push(Command::FlightPublish(PublishCall { key, token: s, ttl: a, brought }));
        }
        for ask in [Ask::Take(m), Ask::UpTo(m), Ask::Refund(m), Ask::Reserve(a)] {
            commands.push(Command::Gcra(Gcra { key, quotas: [quota].into_iter().collect(), ask }));
        }
        let limits = [(key, quota), (s, quota)].into_iter().collect();
        commands.push(Command::Mgcra(Mgcra { cost: m, limits }));
        commands
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Not passing is no refusal yet, but it is slow: what is usual passes.
        #[test]
        fn what_passes_here_passes_the_parser(
            spans in (span(), span(), span()), numbers in (number(), number(), number()), texts in (text(), text())
        ) {
            for command in commands(spans, numbers, texts) {
                let words = command.words();
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                let parsed = Command::parse(&words, Allowed::default());
                prop_assert!(!is_within(&command) || parsed.is_ok(), "{command:?}: {parsed:?}");
            }
        }
    }

    #[test]
    fn what_is_usual_passes_without_being_parsed() {
        let spans = (Span::from_secs(10), Span::from_secs(5), Span::from_secs(30));
        for command in commands(spans, (50, 100, 20), (b"text", b"other")) {
            let usual = match &command {
                // More slow calls in it than failures.
                Command::BreakerTally(_) => continue,
                Command::BreakerAdmit(_) | Command::BreakerConfig(_) => continue,
                other => is_within(other),
            };
            assert!(usual, "{command:?}");
        }
        let patch = Patch { rate_pct: Some(60), open: Some(Span::from_secs(5)), ..Patch::default() };
        let options = Options { patch, version: Some(1) };
        assert!(is_within(&Command::BreakerAdmit(Admit { key: b"k", caller: Some(b"me"), options: Some(options) })));
    }
}
