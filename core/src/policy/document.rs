//! The typed form of a document, and the rows of the schema: each field stands here once, with its bounds, its default and its
//! meaning.
//!
//! Fields that a document omits are `None`, so that it is written again as it was read. The method of the same name gives the value that
//! holds: what was written, or the default.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize};

pub use super::backoff::JitterKind;
use super::fields::{FieldKind, FieldRow, Meaning, Other, Presence, Shape};
use super::order::Stage;
use crate::circuit_breaker::bounds;
use crate::limits::{
    CELLS_MAX, HOLDERS_MAX, LEASE_CEILING, LEASE_LEAST, PERIOD_MAX, POLICY_NAME_MAX, TIERS_NAMED_MAX, WAITERS_CEILING,
};
use crate::time::{Instant, Span};

const US: Span = Span::from_us(1);
const HOUR: Span = Span::from_secs(3_600);
const FIVE_MINUTES: Span = Span::from_secs(300);

/// A struct of optional fields, the methods that give their values, and the rows about them.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $type:ident $rows:ident {
            $($(#[$attribute:meta])* $field:ident $name:literal : $value:ty [$kind:expr] $presence:ident $(($default:expr))?, $meaning:literal;)*
        }
        $($other:literal => $to:literal $(as $how:expr)?;)*
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $type {
            $(#[doc = $meaning]
            #[serde(rename = $name, default, skip_serializing_if = "Option::is_none")]
            $(#[$attribute])*
            pub $field: Option<$value>,)*
        }

        impl $type {
            $(section!(@method $field $value, $presence $(($default))?);)*
        }

        #[doc = concat!("The rows of [`", stringify!($type), "`].")]
        pub static $rows: Shape = Shape {
            title: stringify!($type),
            about: concat!($($about,)+),
            fields: &[$(FieldRow {
                name: $name,
                kind: $kind,
                presence: section!(@presence $value, $presence $(($default))?),
                about: $meaning,
            },)*],
            others: &[$(Other { name: $other, field: $to, meaning: section!(@how $($how)?) },)*],
        };
    };
    (@method $field:ident $value:ty, absent) => {};
    (@method $field:ident $value:ty, required($default:expr)) => { section!(@method $field $value, default($default)); };
    (@method $field:ident $value:ty, default($default:expr)) => {
        #[doc = concat!("What holds: [`", stringify!($field), "`](Self#structfield.", stringify!($field), ") or its default.")]
        pub fn $field(&self) -> $value {
            self.$field.clone().unwrap_or_else(|| $default)
        }
    };
    (@method $field:ident $value:ty, nullable($default:expr)) => { section!(@method $field $value, default($default)); };
    (@presence $value:ty, absent) => { Presence::Absent };
    (@presence $value:ty, required($default:expr)) => { Presence::Required };
    (@presence $value:ty, default($default:expr)) => { Presence::Default(|| shown::<$value>($default)) };
    (@presence $value:ty, nullable($default:expr)) => { Presence::DefaultOrNull(|| shown::<$value>($default)) };
    (@how) => { Meaning::Same };
    (@how $how:expr) => { $how };
}

/// A default as JSON.
fn shown<T: Serialize>(value: T) -> String {
    serde_json::to_string(&value).unwrap_or_default()
}

/// Null is a value of this field: it was not omitted.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(source: D) -> Result<Option<T>, D::Error> {
    T::deserialize(source).map(Some)
}

/// Words of one field.
macro_rules! words {
    ($(#[$about:meta])* $type:ident $list:ident { $($(#[$doc:meta])* $word:ident $text:literal),* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $type {
            $($(#[$doc])* #[serde(rename = $text)] $word,)*
        }

        const $list: &[&str] = &[$($text),*];

        impl $type {
            pub const ALL: &[Self] = &[$(Self::$word),*];

            /// As it is written in a document.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                }
            }
        }
    };
}

words! {
    /// What happens to a call while the server cannot be reached.
    Away AWAY {
        /// It is let through.
        Open "open",
        /// It is refused.
        Closed "closed",
        /// It is decided in the process, by the same machine.
        Local "local",
    }
}

words! {
    /// How an SDK counts calls for a breaker.
    CountingMode COUNTING {
        /// Admitted in the process, outcomes sent in batches.
        Batched "batched",
        /// Every call asks, and reports.
        Exact "exact",
    }
}

words! {
    /// How a rate is limited.
    LimitKind LIMIT_KINDS {
        /// It fills evenly, and holds a burst.
        Bucket "bucket",
        /// Never more than the limit in any period.
        Window "window",
    }
}

words! {
    /// How concurrency adapts.
    AdaptiveKind ADAPTIVE_KINDS {
        /// By durations: those of now are compared with those of an idle callee.
        Gradient "gradient",
        /// By failures: up by one, down by a tenth.
        Aimd "aimd",
    }
}

words! {
    /// What chaos does to a call.
    ChaosKind CHAOS_KINDS {
        /// It begins late.
        Latency "latency",
        /// It fails at once.
        Error "error",
        /// It runs, and its reply is lost.
        Drop "drop",
    }
}

const fn number(bounds: core::ops::RangeInclusive<i64>) -> FieldKind {
    FieldKind::whole(*bounds.start() as u64, *bounds.end() as u64)
}

const fn length(bounds: (Span, Span)) -> FieldKind {
    FieldKind::duration(bounds.0, bounds.1)
}

const PLACES_MAX: u64 = 1_000_000;
const WHEN_AWAY: FieldKind = FieldKind::OneOf(AWAY);

section! {
    /// How long a call may take.
    Timeout TIMEOUT {
        attempt "attempt": Span [FieldKind::duration(US, FIVE_MINUTES)] absent, "How long each attempt may take.";
        total "total": Span [FieldKind::duration(US, FIVE_MINUTES)] absent,
            "How long everything may take, retries and their delays included. Not below `attempt`.";
    }
    "default" => "attempt";
}

section! {
    /// How much extra load retries and hedges may make.
    Budget BUDGET {
        ttl "ttl": Span [FieldKind::duration(Span::from_secs(1), Span::from_secs(60))] default(Span::from_secs(10)),
            "How far back calls and extra calls count.";
        min_per_second "minPerSecond": u32 [FieldKind::whole(0, 10_000)] default(10), "Extra calls that are always allowed, per second.";
        percent "percent": u32 [FieldKind::whole(0, 1_000)] default(20), "Extra calls for every hundred calls.";
    }
}

section! {
    /// Makes a failed call again.
    Retry RETRY {
        max_attempts "maxAttempts": u32 [FieldKind::whole(1, 100)] default(3), "Attempts in all, the first included.";
        initial_backoff "initialBackoff": Span [FieldKind::duration(US, HOUR)] default(Span::from_ms(100)), "The delay before the first retry.";
        max_backoff "maxBackoff": Span [FieldKind::duration(US, HOUR)] default(Span::from_secs(10)),
            "No delay is longer, except one that the error asks for. Not below `initialBackoff`.";
        backoff_multiplier "backoffMultiplier": f64 [FieldKind::number(1.0, 100.0)] default(2.0), "Each delay is this many times the one before.";
        jitter "jitter": JitterKind [FieldKind::Jitter] default(JitterKind::Full),
            "How delays are spread: `none`, `full`, `equal`, `decorrelated`, or up and down by a percentage such as `\"20%\"`.";
        min_backoff "minBackoff": Span [FieldKind::duration(Span::ZERO, HOUR)] default(Span::ZERO), "No delay is shorter. Not above `maxBackoff`.";
        retry_after_max "retryAfterMax": Span [FieldKind::duration(Span::ZERO, HOUR)] default(Span::from_secs(60)),
            "If an error asks for a longer wait, there is no retry.";
        max_elapsed "maxElapsed": Span [FieldKind::duration(US, HOUR)] absent, "No retry begins later than this after the first attempt.";
        #[serde(deserialize_with = "given")]
        budget "budget": Option<Budget> [FieldKind::Object(&BUDGET)] nullable(Some(Budget::default())),
            "The limit on retries of all calls together: of the fleet behind `RES.GUARD`, of the process in an SDK. `null` for none.";
        reraise "reraise": bool [FieldKind::Flag] default(false), "Gives the last failure as it is, instead of `RETRY_EXHAUSTED`. For SDKs.";
    }
    "base_delay" => "initialBackoff";
    "max_delay" => "maxBackoff";
    "multiplier" => "backoffMultiplier";
    "jitter_percent" => "jitter" as Meaning::Fraction;
    "retryable_errors" => "retryable_errors" as Meaning::Refused(CLASSIFY);
    "retry_on" => "retry_on" as Meaning::Refused(CLASSIFY);
}

const CLASSIFY: &str = "is not part of a policy: which errors are retried is code; classify them in the SDK (`classify`, `on`), or report FINAL to RES.GUARD EXIT";

section! {
    /// Makes a late call a second time, and takes the first reply. For SDKs.
    Hedge HEDGE {
        hedging_delay "hedgingDelay": Span [FieldKind::duration(US, FIVE_MINUTES)] default(Span::from_ms(100)),
            "How long the reply may take before another call is made. With a percentile, only until that is known.";
        percentile "percentile": f64 [FieldKind::number(1.0, 99.99)] absent, "Wait for this percentile of the recent latencies instead.";
        warm_up "warmUp": u32 [FieldKind::whole(1, 100_000)] default(100), "How many calls it takes to know a percentile.";
        max_hedges "maxHedges": u32 [FieldKind::whole(1, 10)] default(1), "How many extra calls one call may make.";
        budget "budget": Budget [FieldKind::Object(&BUDGET)] default(Budget { ttl: None, min_per_second: Some(1), percent: Some(10) }),
            "The limit on extra calls of all calls together.";
    }
}

section! {
    /// Stops calling what keeps failing.
    Breaker BREAKER {
        name "name": String [FieldKind::Text { most: POLICY_NAME_MAX }] absent,
            "Which breaker it is: the policy's own by default. Policies that name the same one share it. For SDKs.";
        window_calls "windowCalls": u32 [number(bounds::WINDOW_CALLS)] absent, "Rates are taken over so many calls (100 by default). Not together with `windowTime`.";
        window_time "windowTime": Span [length(bounds::WINDOW_SPAN)] absent, "Rates are taken over the calls of this time.";
        failure_rate "failureRate": u32 [number(bounds::PERCENT)] default(50), "Percent of failed calls at which it trips; 0 turns this rule off.";
        slow_call_duration "slowCallDuration": Span [length(bounds::SLOW)] absent, "A call that takes this long is slow. Goes with `slowCallRate`.";
        slow_call_rate "slowCallRate": u32 [number(bounds::PERCENT)] absent, "Percent of slow calls at which it trips. Goes with `slowCallDuration`.";
        consecutive_failures "consecutiveFailures": u32 [number(bounds::CONSECUTIVE)] default(5), "Failures in a row at which it trips; 0 turns this rule off.";
        min_calls "minCalls": u32 [number(bounds::MIN_CALLS)] default(10), "Calls in the window before a rate means anything.";
        open_for "openFor": Span [length(bounds::OPEN)] default(Span::from_secs(30)), "How long it stays open.";
        open_factor "openFactor": f64 [FieldKind::number(1.0, 100.0)] absent, "Each further trip multiplies the open time by this. Goes with `openMax`.";
        open_max "openMax": Span [length(bounds::OPEN)] absent, "The longest open time. Goes with `openFactor`.";
        probes "probes": u32 [number(bounds::PROBES)] default(3), "Probes out at once while it is half-open.";
        successes "successes": u32 [number(bounds::SUCCESSES)] default(3), "Successful probes that close it.";
        probe_lease "probeLease": Span [length(bounds::LEASE)] default(Span::from_secs(30)), "How long a probe may be out.";
        quorum "quorum": u32 [number(bounds::QUORUM)] default(1), "How many callers must have seen failures for a trip.";
        ramp "ramp": Span [length(bounds::RAMP)] default(Span::ZERO), "After half-open 10, 25, then 50 percent of the calls are admitted over this time.";
        idle "idle": Span [length(bounds::IDLE)] default(HOUR), "After this long without a report everything counted is forgotten.";
        adaptive "adaptive": bool [FieldKind::Flag] default(false),
            "Trips at the higher of `failureRate` and three standard deviations above the failure rate of the last hour.";
        version "version": u64 [FieldKind::whole(1, i64::MAX as u64)] absent, "Which configuration this is: a higher one replaces what is stored. For SDKs.";
        mode "mode": CountingMode [FieldKind::OneOf(COUNTING)] default(CountingMode::Batched), "How an SDK counts calls.";
        when_away "whenAway": Away [WHEN_AWAY] absent, "While the server is away; by default as the policy says.";
        flush_interval "flushInterval": Span [FieldKind::duration(Span::from_ms(1), Span::from_secs(60))] default(Span::from_ms(100)),
            "How long an SDK may keep a success before it is sent.";
        batch "batch": u32 [FieldKind::whole(1, 1_000)] absent, "From how many unsent calls on an SDK sends them at once: 50 by default, 250 in memory.";
        trust "trust": Span [FieldKind::duration(Span::from_ms(1), Span::from_secs(60))] default(Span::from_secs(1)),
            "How long an SDK believes that the circuit is closed without hearing it again.";
    }
    "failure_threshold" => "consecutiveFailures";
    "success_threshold" => "successes";
    "timeout" => "openFor";
    "probe_count" => "probes";
}

const PERIOD: FieldKind = FieldKind::duration(US, PERIOD_MAX);
const CELLS: FieldKind = FieldKind::whole(1, CELLS_MAX as u64);

section! {
    /// A further tier of a rate limit.
    Tier TIER {
        limit "limit": u32 [CELLS] required(1), "Calls per `period`.";
        period "period": Span [PERIOD] required(US), "Each tier has a period of its own.";
        burst "burst": u32 [CELLS] absent, "How many calls the bucket holds; as many as `limit` by default.";
    }
    "window" => "period";
    "burst_size" => "burst";
}

section! {
    /// Limits how many calls there are in a period.
    RateLimit RATE_LIMIT {
        name "name": String [FieldKind::Name] absent,
            "Which limiter it is: the policy's own by default. Policies that name the same one share it. For SDKs.";
        kind "kind": LimitKind [FieldKind::OneOf(LIMIT_KINDS)] default(LimitKind::Bucket),
            "`bucket` fills evenly and holds a burst; `window` never grants more than the limit in any period (at most 10,000,000), and has one tier and no burst.";
        limit "limit": u32 [CELLS] required(1), "Calls per `period`.";
        period "period": Span [PERIOD] required(US), "How long the period is.";
        burst "burst": u32 [CELLS] absent, "How many calls the bucket holds; as many as `limit` by default.";
        tiers "tiers": Vec<Tier> [FieldKind::List { of: &TIER, most: TIERS_NAMED_MAX - 1 }] absent, "Further limits that must all agree, each with a period of its own.";
        when_away "whenAway": Away [WHEN_AWAY] absent, "While the server is away; by default as the policy says.";
    }
    "window" => "period";
    "burst_size" => "burst";
    "algorithm" => "kind" as Meaning::Words(&[("token_bucket", "bucket"), ("sliding_window", "window")]);
}

section! {
    /// Moves the number of places between `min` and the maximum.
    Adaptive ADAPTIVE {
        kind "kind": AdaptiveKind [FieldKind::OneOf(ADAPTIVE_KINDS)] required(AdaptiveKind::Gradient),
            "`gradient` follows the durations of calls; `aimd` follows failures and calls that take longer than the attempt timeout.";
        min "min": u32 [FieldKind::whole(1, PLACES_MAX)] default(1), "There are never fewer places. Not above `maxConcurrentCalls`.";
    }
}

section! {
    /// The places of one partition.
    Partition PARTITION {
        max_concurrent_calls "maxConcurrentCalls": u32 [FieldKind::whole(1, PLACES_MAX)] required(1), "Calls at once.";
        max_queue "maxQueue": u32 [FieldKind::whole(0, PLACES_MAX)] default(0), "Calls that may wait for a place.";
    }
    "max_concurrent" => "maxConcurrentCalls";
}

section! {
    /// Limits how many calls one process makes at once. Behind `RES.GUARD`, without a `sharedBulkhead`: the whole fleet.
    Bulkhead BULKHEAD {
        max_concurrent_calls "maxConcurrentCalls": u32 [FieldKind::whole(1, PLACES_MAX)] default(25), "Calls at once.";
        max_queue "maxQueue": u32 [FieldKind::whole(0, PLACES_MAX)] default(0), "Calls that may wait for a place.";
        max_wait "maxWait": Span [FieldKind::duration(Span::ZERO, FIVE_MINUTES)] default(Span::from_secs(5)), "How long one may wait.";
        partitions "partitions": BTreeMap<String, Partition> [FieldKind::Named(&PARTITION)] absent, "Places of their own, by name, beside those above. For SDKs.";
        adaptive "adaptive": Adaptive [FieldKind::Object(&ADAPTIVE)] absent, "Moves the number of places with what happens.";
    }
    "max_concurrent" => "maxConcurrentCalls";
    "queue_timeout" => "maxWait";
}

section! {
    /// Limits how many calls the whole fleet makes at once.
    SharedBulkhead SHARED_BULKHEAD {
        name "name": String [FieldKind::Text { most: POLICY_NAME_MAX }] absent,
            "Which bulkhead it is: the policy's own by default. Policies that name the same one share it. For SDKs.";
        max_concurrent_calls "maxConcurrentCalls": u32 [FieldKind::whole(1, HOLDERS_MAX as u64)] required(1), "Calls at once in the whole fleet.";
        max_queue "maxQueue": u32 [FieldKind::whole(0, WAITERS_CEILING as u64)] absent, "How many calls may wait; as many as `maxConcurrentCalls` by default.";
        max_wait "maxWait": Span [FieldKind::duration(Span::ZERO, Span::from_secs(600))] default(Span::ZERO), "How long one may wait.";
        lease "lease": Span [FieldKind::duration(LEASE_LEAST, LEASE_CEILING)] default(Span::from_secs(10)), "How long a place is held without a renewal.";
        priority "priority": u8 [FieldKind::whole(0, 9)] default(5), "0 is served first, 9 last.";
        bound "bound": bool [FieldKind::Flag] default(true), "Whether a place ends with its connection. For SDKs.";
        grace "grace": Span [FieldKind::duration(Span::from_ms(100), Span::from_days(1))] absent, "How long a place outlives its connection. For SDKs.";
        adaptive "adaptive": Adaptive [FieldKind::Object(&ADAPTIVE)] absent, "Moves the number of places with what happens.";
        when_away "whenAway": Away [FieldKind::OneOf(&["open", "closed"])] absent, "While the server is away: `closed` by default. Places cannot be counted locally.";
    }
    "max_concurrent" => "maxConcurrentCalls";
    "queue_timeout" => "maxWait";
}

section! {
    /// Refuses a part of the calls by itself while too few are accepted.
    Throttle THROTTLE {
        k "k": f64 [FieldKind::number(1.0, 100.0)] default(2.0), "Calls are refused once there are this many times as many as were accepted.";
        window "window": Span [FieldKind::duration(Span::from_secs(1), Span::from_secs(600))] default(Span::from_secs(10)), "How far back calls count. It takes a few of them to recover from a long outage.";
    }
}

section! {
    /// Refuses less important calls while places are scarce. Percent of places taken, per class; critical calls are never shed.
    Shedding SHEDDING {
        background "background": u32 [FieldKind::whole(1, 100)] default(50), "From here on background calls are shed.";
        low "low": u32 [FieldKind::whole(1, 100)] default(70), "From here on low calls are shed. Not below `background`.";
        normal "normal": u32 [FieldKind::whole(1, 100)] default(85), "From here on normal calls are shed. Not below `low`.";
        high "high": u32 [FieldKind::whole(1, 100)] default(95), "From here on high calls are shed. Not below `normal`.";
        hysteresis "hysteresis": u32 [FieldKind::whole(0, 50)] default(10), "How far it has to fall before they are admitted again. Below `background`.";
    }
}

section! {
    /// Makes calls fail on purpose, for a time.
    Chaos CHAOS {
        kind "kind": ChaosKind [FieldKind::OneOf(CHAOS_KINDS)] required(ChaosKind::Error), "`latency` delays calls, `error` fails them, `drop` loses their replies.";
        percent "percent": f64 [FieldKind::number(0.0, 100.0)] required(0.0), "How many of a hundred calls it strikes.";
        latency "latency": Span [FieldKind::duration(US, FIVE_MINUTES)] absent, "How long calls are delayed. Goes with the kind `latency`.";
        subjects "subjects": Vec<String> [FieldKind::Texts { most: 100, bytes: POLICY_NAME_MAX }] absent, "Only calls for these subjects; all by default.";
        until "until": Instant [FieldKind::Moment] required(Instant::EPOCH), "When it ends, in UTC: `\"2026-11-18T12:00:00Z\"`.";
        seed "seed": u64 [FieldKind::whole(0, (1 << 53) - 1)] default(0), "The same seed strikes the same calls.";
    }
}

section! {
    /// A whole policy. What is omitted is not there.
    Document POLICY {
        name "name": String [FieldKind::Text { most: POLICY_NAME_MAX }] absent, "In a file its key by default.";
        order "order": Vec<Stage> [FieldKind::Words(Stage::TEXTS)] absent, "Another order of the stages than the usual one, outermost first. For SDKs.";
        timeout "timeout": Timeout [FieldKind::Object(&TIMEOUT)] absent, "How long a call may take.";
        shed "shed": u32 [FieldKind::whole(1, PLACES_MAX)] absent, "Calls in the whole policy at once, in one process; the rest is refused at once. For SDKs.";
        retry "retry": Retry [FieldKind::Object(&RETRY)] absent, "Makes a failed call again.";
        hedge "hedge": Hedge [FieldKind::Object(&HEDGE)] absent, "Makes a late call a second time.";
        breaker "breaker": Breaker [FieldKind::Object(&BREAKER)] absent, "Stops calling what keeps failing.";
        rate_limit "rateLimit": RateLimit [FieldKind::Object(&RATE_LIMIT)] absent, "Limits calls per period.";
        bulkhead "bulkhead": Bulkhead [FieldKind::Object(&BULKHEAD)] absent, "Limits calls at once in one process.";
        shared_bulkhead "sharedBulkhead": SharedBulkhead [FieldKind::Object(&SHARED_BULKHEAD)] absent, "Limits calls at once in the whole fleet.";
        throttle "throttle": Throttle [FieldKind::Object(&THROTTLE)] absent, "Refuses calls by itself while too few are accepted.";
        shedding "shedding": Shedding [FieldKind::Object(&SHEDDING)] absent, "Refuses less important calls while places are scarce. Needs a bulkhead.";
        chaos "chaos": Chaos [FieldKind::Object(&CHAOS)] absent, "Makes calls fail on purpose, for a time.";
        when_away "whenAway": Away [WHEN_AWAY] absent, "While the server is away: for those of breaker, rate limit and shared bulkhead that do not say.";
    }
    "circuit_breaker" => "breaker";
}

section! {
    /// Policies by name, as they stand in a file.
    PolicyFile FILE {
        version "version": u32 [FieldKind::whole(1, 1)] default(1), "The version of the layout.";
        defaults "defaults": Document [FieldKind::Object(&POLICY)] absent, "What holds for all policies that do not say otherwise, stage by stage.";
        policies "policies": BTreeMap<String, Document> [FieldKind::Named(&POLICY)] required(BTreeMap::new()), "The policies by name.";
    }
}

// No number in it has a fraction.
impl Eq for Adaptive {}

impl Document {
    /// The one way to write it: JSON in camelCase without spaces, fields in the order of the schema.
    pub fn canonical(&self) -> String {
        // Maps with text keys and finite numbers: nothing that JSON could not say.
        serde_json::to_string(self).unwrap_or_else(|error| error.to_string())
    }
}
