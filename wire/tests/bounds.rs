//! What the parser refuses, `check` refuses, in the same sentence: a call that never was words is held to the same bounds.
//!
//! How to repeat a failing run: see `seed`.

#[path = "../../core/tests/seed/mod.rs"]
mod seed;

use proptest::prelude::*;
use resil_core::Span;
use resil_core::circuit_breaker::{Batch, Force, Patch, Report, WindowKind};
use resil_core::idempotency::OnLapse;
use resil_core::rate_limit::{Ask, Quota};
use resil_core::window::Rule;
use resil_wire::breaker::{Admit, ConfigCall, ForceCall, Options, ReportCall, TallyCall};
use resil_wire::bulkhead::EnterCall;
use resil_wire::command::{Allowed, Command};
use resil_wire::gcra::Gcra;
use resil_wire::holding::{Bind, InfoCall, OwnedCall, RenewCall, Wait};
use resil_wire::idempotency::{BeginCall, CommitCall, GetCall, OnceCall, TokenCall, TokenRenewCall};
use resil_wire::lock::{AcquireCall, BreakCall, LockRenewCall};
use resil_wire::mgcra::Mgcra;
use resil_wire::single_flight::{AbandonCall, Brought, ClearCall, JoinCall, PublishCall, SetCall};
use resil_wire::window::Windowed;

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
    let (key, fence) = (&b"k"[..], Some(u64::from(m) << 24));
    let bind = if m % 3 == 0 { Bind::None } else { Bind::to(o.into()).with_grace(c) };
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
            force: [None, Some(Force::Open), Some(Force::OpenThenProbe)][m as usize % 3],
            length: Some(a),
            actor: Some(s),
            reason: Some(t),
        }),
        Command::LockAcquire(AcquireCall {
            key,
            owner: s,
            lease: a,
            wait: Wait::blocked(b),
            shared: false,
            bind,
            meta: t,
        }),
        Command::LockRenew(LockRenewCall { renew: RenewCall { key, owner: s, lease: a, fence, bind }, raise: fence }),
        Command::LockCheck(OwnedCall { key, owner: s, fence }),
        Command::LockBreak(BreakCall { key, actor: Some(s), reason: Some(t) }),
        Command::LockInfo(InfoCall { key, limit: m as usize }),
        Command::BulkheadEnter(EnterCall {
            key,
            owner: s,
            max: m,
            lease: a,
            wait: Wait::blocked(b),
            queue: n,
            priority: (o % 12) as u8,
            bind,
        }),
        Command::IdempBegin(BeginCall {
            key,
            token: s,
            lease: a,
            fingerprint: t,
            wait: Wait::blocked(b),
            keep: c,
            on_lapse: OnLapse::Run,
            bind,
        }),
        Command::IdempCommit(CommitCall { key, token: s, ttl: a, result: t, failed: false }),
        Command::IdempAbort(TokenCall { key, token: s }),
        Command::IdempRenew(TokenRenewCall { key, token: s, lease: a, bind }),
        Command::IdempOnce(OnceCall { key, ttl: a, token: s }),
        Command::IdempGet(GetCall { key, fingerprint: s }),
        Command::FlightJoin(JoinCall {
            key,
            token: s,
            lease: a,
            under: Some(t),
            early: Some(m),
            wait: Wait::blocked(b),
            bind,
        }),
        Command::FlightAbandon(AbandonCall { key, token: s, retry: Some(a) }),
        Command::FlightClear(ClearCall { name: key, tags: [s].into_iter().collect(), soft: false }),
    ];
    for brought in [Brought::Value { bytes: t, stale: b }, Brought::Error { text: t }] {
        commands.push(Command::FlightPublish(PublishCall {
            key,
            token: s,
            ttl: a,
            under: Some(b"name"),
            tags: [t].into_iter().collect(),
            brought,
        }));
        let tags = [t].into_iter().collect();
        commands.push(Command::FlightSet(SetCall { key, ttl: a, under: Some(b"name"), tags, brought }));
    }
    for ask in [Ask::Take(m), Ask::UpTo(m), Ask::Refund(m), Ask::Reserve { cells: m, within: a }] {
        commands.push(Command::Gcra(Gcra { key, quotas: [quota].into_iter().collect(), ask }));
    }
    let limits = [(key, quota), (s, quota)].into_iter().collect();
    commands.push(Command::Mgcra(Mgcra { cost: m, limits }));
    commands
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn a_call_is_refused_as_its_words_are(
        spans in (span(), span(), span()), numbers in (number(), number(), number()), texts in (text(), text())
    ) {
        for command in commands(spans, numbers, texts) {
            let words = command.words();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let parsed = Command::parse(&words, Allowed::DEFAULT).map(drop);
            prop_assert_eq!(command.check(&Allowed::DEFAULT), parsed, "{:?}", command);
        }
    }
}

#[test]
fn an_incomplete_call_is_refused_as_its_words_are() {
    let quota = Quota::new(1, Span::from_secs(1), 1).expect("a quota");
    let twice = [quota, quota].into_iter().collect();
    let many = (1..=9).map(|secs| Quota::new(1, Span::from_secs(secs), 1).expect("a quota")).collect();
    let keys: Vec<Vec<u8>> = (0..129).map(|n: i32| n.to_string().into_bytes()).collect();
    for command in [
        Command::Gcra(Gcra { key: b"k", quotas: Default::default(), ask: Ask::Take(1) }),
        Command::Gcra(Gcra { key: b"k", quotas: Default::default(), ask: Ask::Peek }),
        Command::Gcra(Gcra { key: b"k", quotas: twice, ask: Ask::Take(1) }),
        Command::Gcra(Gcra { key: b"k", quotas: many, ask: Ask::Take(1) }),
        Command::Mgcra(Mgcra { cost: 1, limits: Default::default() }),
        Command::Mgcra(Mgcra { cost: 1, limits: keys.iter().map(|key| (key.as_slice(), quota)).collect() }),
        Command::BreakerConfig(ConfigCall { key: b"k", options: Options::default() }),
        Command::BreakerTally(TallyCall {
            key: b"k",
            generation: u64::MAX,
            caller: b"me",
            seq: 1,
            batch: Batch { ok: 0, failures: 0, slow: 0, run: 0 },
            correlation: None,
        }),
        Command::LockInfo(InfoCall { key: b"k", limit: usize::MAX }),
    ] {
        let words = command.words();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let parsed = Command::parse(&words, Allowed::DEFAULT).map(drop);
        assert_eq!(command.check(&Allowed::DEFAULT), parsed, "{command:?}");
        assert!(parsed.is_err(), "{command:?}");
    }
}
