//! Any command there can be. Bytes are leaked, so that commands can borrow them for as long as a test runs.

pub mod ledger;
mod overview;
pub mod pages;
pub mod parts;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Union;
use resil_core::Span;
use resil_core::circuit_breaker::{Batch, Caller, Force, Patch, Permit, Report, WindowKind, bounds};
use resil_core::idempotency::OnLapse;
use resil_core::limits::{
    CELLS_MAX, COST_MAX, FENCE_MAX, FILL_MAX, HOLDERS_MAX, INFO_LIMIT_DEFAULT, INFO_LIMIT_MAX, KEEP_DEFAULT,
    LEASE_CEILING, LEASE_LEAST, MGET_KEYS_MAX, OWNER_MAX, PERIOD_MAX, RESERVE_MAX, TAG_MAX, TAGS_MAX, TALLY_MAX,
    TEXT_MAX, TTL_MAX, WAIT_CEILING, WAITERS_CEILING, WINDOW_LIMIT_CEILING,
};
use resil_core::rate_limit::cell::Throttle;
use resil_core::rate_limit::{Ask, Quota};
use resil_core::window::Rule;
use resil_wire::breaker::{Admit, ConfigCall, ForceCall, Options, ReportCall, TallyCall};
use resil_wire::bulkhead::{EnterCall, PRIORITY_DEFAULT};
use resil_wire::command::Command;
use resil_wire::gcra::Gcra;
use resil_wire::heartbeat::HeartbeatCall;
use resil_wire::holding::{Bind, InfoCall, OwnedCall, RenewCall, Wait};
use resil_wire::idempotency::{BeginCall, CommitCall, GetCall, OnceCall, TokenCall, TokenRenewCall};
use resil_wire::lock::{AcquireCall, BreakCall, LockRenewCall};
use resil_wire::mgcra::Mgcra;
use resil_wire::single_flight::{
    AbandonCall, Brought, ClearCall, FlightGetCall, FlightMgetCall, InvalidateCall, JoinCall, PublishCall, SetCall,
};
use resil_wire::throttle::ClThrottle;
use resil_wire::window::Windowed;

type Bytes = &'static [u8];

/// From `least` to `most` bytes, seldom as many as there may be.
fn bytes(least: usize, most: usize) -> impl Strategy<Value = Bytes> {
    let lens = prop_oneof![9 => least..=24.min(most), 1 => Just(most)];
    lens.prop_flat_map(|len| vec(any::<u8>(), len)).prop_map(|bytes| &*bytes.leak())
}

pub fn key() -> impl Strategy<Value = Bytes> {
    prop_oneof![bytes(0, 40), Just(b"COST".as_slice()), Just(b"user:\0\xff\r\n42".as_slice())]
}

fn owner() -> impl Strategy<Value = Bytes> {
    bytes(1, OWNER_MAX)
}

/// Small and large alike.
fn spread(least: i64, most: i64) -> impl Strategy<Value = i64> {
    let by_size = (0..=most.max(1).ilog2(), any::<u64>())
        .prop_map(move |(log, bits)| ((1i64 << log) + (bits % (1u64 << log)) as i64).clamp(least, most));
    prop_oneof![6 => by_size, 1 => Just(most), 1 => Just(least)]
}

fn count(least: u32, most: u32) -> impl Strategy<Value = u32> {
    spread(least.into(), most.into()).prop_map(|number| number as u32)
}

/// Round ones, as people write them, and odd ones.
pub fn span(least: Span, most: Span) -> impl Strategy<Value = Span> {
    let unit = prop::sample::select(vec![1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]);
    let round = (unit, 1..=366i64).prop_map(move |(unit_us, times)| Span::from_us(unit_us * times).clamp(least, most));
    prop_oneof![round, spread(least.as_us(), most.as_us()).prop_map(Span::from_us)]
}

fn lease() -> impl Strategy<Value = Span> {
    span(LEASE_LEAST, LEASE_CEILING)
}

fn wait() -> impl Strategy<Value = Wait> {
    let length = prop_oneof![Just(Span::ZERO), span(Span::ZERO, WAIT_CEILING)];
    (length, any::<bool>())
        .prop_map(|(length, late)| if late { Wait::asynchronous(length) } else { Wait::blocked(length) })
}

fn ttl() -> impl Strategy<Value = Span> {
    span(Span::from_ms(1), TTL_MAX)
}

fn bind() -> impl Strategy<Value = Bind> {
    let bind = prop_oneof![Just(Bind::None), Just(Bind::HERE), spread(1, i64::MAX).prop_map(|id| Bind::to(id as u64))];
    let grace = prop_oneof![Just(Span::ZERO), span(Span::ZERO, LEASE_CEILING)];
    (bind, grace).prop_map(|(bind, grace)| bind.with_grace(grace))
}

pub fn fence() -> impl Strategy<Value = u64> {
    spread(1, FENCE_MAX as i64).prop_map(|fence| fence as u64)
}

pub fn generation() -> impl Strategy<Value = u64> {
    spread(0, i64::MAX).prop_map(|generation| generation as u64)
}

pub fn permit() -> impl Strategy<Value = Permit> {
    (any::<u64>(), 0..=i64::MAX, any::<u64>(), option::of(any::<u32>()), any::<u32>()).prop_map(
        |(generation, issued_us, caller, probe, seal)| Permit {
            generation,
            issued_us,
            caller: Caller(caller),
            probe,
            seal,
        },
    )
}

fn quota() -> impl Strategy<Value = Quota> {
    (count(1, CELLS_MAX), span(Span::from_us(1), PERIOD_MAX), option::of(count(1, CELLS_MAX))).prop_map(
        |(limit, period, burst)| {
            let fills = FILL_MAX.as_us() as u128 * limit as u128 / period.as_us() as u128;
            let capacity = (burst.unwrap_or(limit) as u128).min(fills) as u32;
            Quota::new(limit, period, capacity).expect("within the bounds")
        },
    )
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        Just(Ask::Take(1)),
        count(1, COST_MAX).prop_map(Ask::Take),
        count(1, COST_MAX).prop_map(Ask::UpTo),
        count(1, COST_MAX).prop_map(Ask::Refund),
        (count(1, COST_MAX), span(Span::from_us(1), RESERVE_MAX))
            .prop_map(|(cells, within)| Ask::Reserve { cells, within }),
        Just(Ask::Peek),
    ]
}

fn limits() -> Vec<BoxedStrategy<Command<'static>>> {
    let gcra = (key(), vec(quota(), 1..=8), ask()).prop_map(|(key, mut quotas, ask)| {
        quotas.sort_by_key(Quota::period);
        quotas.dedup_by_key(|quota| quota.period());
        Command::Gcra(Gcra { key, quotas: quotas.into_iter().rev().collect(), ask })
    });
    let mgcra = (count(1, COST_MAX), prop::collection::btree_map(key(), quota(), 1..=9))
        .prop_map(|(cost, limits)| Command::Mgcra(Mgcra { cost, limits: limits.into_iter().collect() }));
    let windowed = ask().prop_filter("windows neither reserve nor refund", |ask| {
        matches!(ask, Ask::Take(_) | Ask::UpTo(_) | Ask::Peek)
    });
    let window = (key(), count(1, WINDOW_LIMIT_CEILING), span(Span::from_us(1), PERIOD_MAX), windowed)
        .prop_map(|(key, limit, period, ask)| Command::Window(Windowed { key, rule: Rule { limit, period }, ask }));
    let seconds = spread(1, PERIOD_MAX.as_us() / 1_000_000);
    let quantity = prop_oneof![Just(1), Just(0), -(COST_MAX as i64)..=COST_MAX as i64];
    let throttle = (key(), 0..1_000_000u32, count(1, CELLS_MAX), seconds, quantity).prop_filter_map(
        "fills in time",
        |(key, max_burst, count, seconds, quantity)| {
            let throttle = Throttle::new(max_burst, count, Span::from_secs(seconds), quantity).ok()?;
            Some(Command::Throttle(ClThrottle { key, throttle }))
        },
    );
    vec![gcra.boxed(), mgcra.boxed(), window.boxed(), throttle.boxed()]
}

fn number_in(bounds: std::ops::RangeInclusive<i64>) -> impl Strategy<Value = Option<u32>> {
    option::of(bounds.prop_map(|number| number as u32))
}

fn span_in((least, most): (Span, Span)) -> impl Strategy<Value = Option<Span>> {
    option::of(span(least, most))
}

fn options() -> impl Strategy<Value = Options> {
    let window = option::of(prop_oneof![
        bounds::WINDOW_CALLS.prop_map(|calls| WindowKind::Count(calls as u32)),
        span(bounds::WINDOW_SPAN.0, bounds::WINDOW_SPAN.1).prop_map(WindowKind::Time),
    ]);
    let rules = (
        window,
        number_in(bounds::PERCENT),
        span_in(bounds::SLOW),
        number_in(bounds::PERCENT),
        number_in(bounds::CONSECUTIVE),
        number_in(bounds::MIN_CALLS),
        number_in(bounds::QUORUM),
        span_in(bounds::IDLE),
    );
    let ways_back = (
        span_in(bounds::OPEN),
        number_in(bounds::FACTOR_MILLI),
        span_in(bounds::OPEN),
        number_in(bounds::PROBES),
        number_in(bounds::SUCCESSES),
        span_in(bounds::LEASE),
        span_in(bounds::RAMP),
    );
    let version = option::of(spread(1, i64::MAX).prop_map(|version| version as u64));
    (rules, ways_back, version)
        .prop_map(|(rules, ways_back, version)| {
            let (window, rate_pct, slow, slow_rate_pct, consecutive, min_calls, quorum, idle) = rules;
            let (open, factor_milli, open_max, probes, successes, lease, ramp) = ways_back;
            let patch = Patch {
                window,
                rate_pct,
                slow,
                slow_rate_pct,
                consecutive,
                min_calls,
                open,
                factor_milli,
                open_max,
                probes,
                successes,
                lease,
                quorum,
                ramp,
                idle,
            };
            Options { patch, version }
        })
        .prop_filter("names something", |options| !options.is_empty())
}

fn breakers() -> Vec<BoxedStrategy<Command<'static>>> {
    let text = || option::of(bytes(0, TEXT_MAX));
    let admit = (key(), text(), option::of(options()))
        .prop_map(|(key, caller, options)| Command::BreakerAdmit(Admit { key, caller, options }));
    let outcome = prop::sample::select(vec![Report::Ok, Report::Fail, Report::Ignore, Report::Cancel]);
    let duration = option::of(span(Span::ZERO, Span::from_days(366)));
    let report = (key(), option::of(permit()), outcome, duration, text()).prop_map(
        |(key, permit, report, duration, correlation)| {
            Command::BreakerReport(ReportCall { key, permit, report, duration, correlation })
        },
    );
    let batch = (0..=TALLY_MAX, 0..=TALLY_MAX, any::<u32>(), any::<u32>()).prop_map(|(ok, failures, slow, run)| {
        Batch { ok, failures, slow: slow % ((ok + failures).min(TALLY_MAX) + 1), run: run % (failures + 1) }
    });
    let tally = (key(), generation(), bytes(0, TEXT_MAX), generation(), batch, text()).prop_map(
        |(key, generation, caller, seq, batch, correlation)| {
            Command::BreakerTally(TallyCall { key, generation, caller, seq, batch, correlation })
        },
    );
    let forces: Vec<Option<Force>> = Force::ALL.into_iter().map(Some).chain([None]).collect();
    let length = option::of(span(Span::from_ms(1), Span::from_days(366)));
    let force = (key(), prop::sample::select(forces), length, text(), text()).prop_map(
        |(key, force, length, actor, reason)| {
            let length = length.filter(|_| force.is_some());
            let force = if length.is_none() && force == Some(Force::OpenThenProbe) { Some(Force::Open) } else { force };
            Command::BreakerForce(ForceCall { key, force, length, actor, reason })
        },
    );
    let config = (key(), options()).prop_map(|(key, options)| Command::BreakerConfig(ConfigCall { key, options }));
    vec![
        admit.boxed(),
        report.boxed(),
        tally.boxed(),
        key().prop_map(Command::BreakerState).boxed(),
        force.boxed(),
        key().prop_map(Command::BreakerReset).boxed(),
        config.boxed(),
    ]
}

fn holdings() -> Vec<BoxedStrategy<Command<'static>>> {
    let renew =
        || {
            (key(), owner(), lease(), option::of(fence()), bind())
                .prop_map(|(key, owner, lease, fence, bind)| RenewCall { key, owner, lease, fence, bind })
        };
    let owned =
        || (key(), owner(), option::of(fence())).prop_map(|(key, owner, fence)| OwnedCall { key, owner, fence });
    let info = || {
        let limit = prop_oneof![Just(INFO_LIMIT_DEFAULT), 0..=INFO_LIMIT_MAX];
        (key(), limit).prop_map(|(key, limit)| InfoCall { key, limit: limit as usize })
    };
    let meta = prop_oneof![Just(b"".as_slice()), owner()];
    let acquire = (key(), owner(), lease(), wait(), any::<bool>(), bind(), meta).prop_map(
        |(key, owner, lease, wait, shared, bind, meta)| {
            Command::LockAcquire(AcquireCall { key, owner, lease, wait, shared, bind, meta })
        },
    );
    let text = || option::of(bytes(1, TEXT_MAX));
    let breaking =
        (key(), text(), text()).prop_map(|(key, actor, reason)| Command::LockBreak(BreakCall { key, actor, reason }));
    let queue = option::of(0..=WAITERS_CEILING);
    let priority = prop_oneof![Just(PRIORITY_DEFAULT), 0..=9u8];
    let enter = (key(), owner(), count(1, HOLDERS_MAX as u32), lease(), wait(), queue, priority, bind()).prop_map(
        |(key, owner, max, lease, wait, queue, priority, bind)| {
            let queue = queue.unwrap_or(max);
            Command::BulkheadEnter(EnterCall { key, owner, max, lease, wait, queue, priority, bind })
        },
    );
    vec![
        acquire.boxed(),
        (renew(), option::of(fence()))
            .prop_map(|(renew, raise)| Command::LockRenew(LockRenewCall { renew, raise }))
            .boxed(),
        owned().prop_map(Command::LockRelease).boxed(),
        owned().prop_map(Command::LockCheck).boxed(),
        breaking.boxed(),
        info().prop_map(Command::LockInfo).boxed(),
        enter.boxed(),
        renew().prop_map(Command::BulkheadRenew).boxed(),
        owned().prop_map(Command::BulkheadLeave).boxed(),
        info().prop_map(Command::BulkheadInfo).boxed(),
    ]
}

fn works_and_flights() -> Vec<BoxedStrategy<Command<'static>>> {
    let unsaid = || prop_oneof![Just(b"".as_slice()), owner()];
    let renew = || {
        (key(), owner(), lease(), bind()).prop_map(|(key, token, lease, bind)| TokenRenewCall {
            key,
            token,
            lease,
            bind,
        })
    };
    let keep = prop_oneof![Just(KEEP_DEFAULT), ttl()];
    let on_lapse = prop_oneof![Just(OnLapse::Run), Just(OnLapse::Hold)];
    let begin = (key(), owner(), lease(), unsaid(), wait(), keep, on_lapse, bind()).prop_map(
        |(key, token, lease, fingerprint, wait, keep, on_lapse, bind)| {
            Command::IdempBegin(BeginCall { key, token, lease, fingerprint, wait, keep, on_lapse, bind })
        },
    );
    let commit =
        (key(), owner(), ttl(), bytes(0, 5_000), any::<bool>()).prop_map(|(key, token, ttl, result, failed)| {
            Command::IdempCommit(CommitCall { key, token, ttl, result, failed })
        });
    let once = (key(), ttl(), unsaid()).prop_map(|(key, ttl, token)| Command::IdempOnce(OnceCall { key, ttl, token }));
    let get = (key(), unsaid()).prop_map(|(key, fingerprint)| Command::IdempGet(GetCall { key, fingerprint }));
    let under = || option::of(Just(b"its name".as_slice()));
    let join = (key(), owner(), lease(), under(), option::of(1..=99u32), wait(), bind()).prop_map(
        |(key, token, lease, under, early, wait, bind)| {
            Command::FlightJoin(JoinCall { key, token, lease, under, early, wait, bind })
        },
    );
    let stale = prop_oneof![Just(Span::ZERO), span(Span::ZERO, TTL_MAX)];
    let brought = prop_oneof![
        (bytes(0, 5_000), stale).prop_map(|(bytes, stale)| Brought::Value { bytes, stale }),
        Just(Brought::Empty),
        bytes(1, TEXT_MAX).prop_map(|text| Brought::Error { text }),
    ];
    let tags = || prop::collection::vec(bytes(1, TAG_MAX), 0..=TAGS_MAX);
    let place = || (under(), tags()).prop_map(|(under, tags)| (under, if under.is_some() { tags } else { Vec::new() }));
    let publish = (key(), owner(), span(Span::ZERO, TTL_MAX), place(), brought.clone()).prop_map(
        |(key, token, ttl, (under, tags), brought)| {
            Command::FlightPublish(PublishCall { key, token, ttl, under, tags: tags.into(), brought })
        },
    );
    let set =
        (key(), span(Span::from_ms(1), TTL_MAX), place(), brought).prop_map(|(key, ttl, (under, tags), brought)| {
            let brought = if let Brought::Error { .. } = brought { Brought::Empty } else { brought };
            Command::FlightSet(SetCall { key, ttl, under, tags: tags.into(), brought })
        });
    let clear = (key(), tags(), any::<bool>())
        .prop_map(|(name, tags, soft)| Command::FlightClear(ClearCall { name, tags: tags.into(), soft }));
    let abandon = (key(), owner(), option::of(ttl()))
        .prop_map(|(key, token, retry)| Command::FlightAbandon(AbandonCall { key, token, retry }));
    let invalidate = (key(), any::<bool>(), under())
        .prop_map(|(key, soft, under)| Command::FlightInvalidate(InvalidateCall { key, soft, under }));
    let look = (key(), under()).prop_map(|(key, under)| Command::FlightGet(FlightGetCall { key, under }));
    let look_at_many = (key(), prop::collection::vec(key(), 1..=MGET_KEYS_MAX))
        .prop_filter("the name is another key", |(name, keys)| !keys.contains(name))
        .prop_map(|(name, keys)| Command::FlightMget(FlightMgetCall { name, keys: keys.into() }));
    vec![
        begin.boxed(),
        commit.boxed(),
        (key(), owner()).prop_map(|(key, token)| Command::IdempAbort(TokenCall { key, token })).boxed(),
        renew().prop_map(Command::IdempRenew).boxed(),
        once.boxed(),
        get.boxed(),
        key().prop_map(Command::IdempInfo).boxed(),
        join.boxed(),
        look.boxed(),
        look_at_many.boxed(),
        set.boxed(),
        clear.boxed(),
        publish.boxed(),
        abandon.boxed(),
        renew().prop_map(Command::FlightRenew).boxed(),
        invalidate.boxed(),
        key().prop_map(Command::FlightInfo).boxed(),
        Just(Command::Heartbeat(HeartbeatCall)).boxed(),
    ]
}

/// Any command, of any kind alike.
pub fn command() -> impl Strategy<Value = Command<'static>> {
    Union::new(
        [limits(), breakers(), holdings(), works_and_flights(), ledger::calls(), overview::calls(), pages::drawn()]
            .concat(),
    )
}
