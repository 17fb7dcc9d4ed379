//! Every maximum in one table. docs/limits.md prints it; a test compares the two.

use crate::dead_letters::Rate;
use crate::time::Span;

/// Cells per period, and a bucket's capacity.
pub const CELLS_MAX: u32 = 1_000_000_000;

/// What one call may ask for.
pub const COST_MAX: u32 = 1_000_000_000;

/// The longest period of a rate.
pub const PERIOD_MAX: Span = Span::from_days(366);

/// The longest time an empty bucket may take to fill. Keeps every instant and product inside its integer.
pub const FILL_MAX: Span = Span::from_days(3_660);

/// How far ahead RESERVE may book.
pub const RESERVE_MAX: Span = Span::from_days(1);

/// Tiers one call may name with AND.
pub const TIERS_NAMED_MAX: usize = 8;

/// Tiers one key may hold: those of the present configuration and of the one before it, still in debt.
pub const TIERS_STORED_MAX: usize = 16;

/// Keys of one RES.MGCRA.
pub const MGCRA_KEYS_MAX: usize = 128;

/// Limit of RES.WINDOW unless configured otherwise (`window-limit-max`), and the most that can be configured.
pub const WINDOW_LIMIT_DEFAULT: u32 = 100_000;
pub const WINDOW_LIMIT_CEILING: u32 = 10_000_000;

/// CALLER, ACTOR, REASON and CORRELATION.
pub const TEXT_MAX: usize = 512;

/// What one TALLY may count of each kind.
pub const TALLY_MAX: u32 = 10_000;

/// Owners and META.
pub const OWNER_MAX: usize = 512;

/// The shortest lease; the longest unless configured otherwise (`max-lease`), and the most that can be configured.
pub const LEASE_LEAST: Span = Span::from_ms(10);
pub const LEASE_DEFAULT_MAX: Span = Span::from_days(1);
pub const LEASE_CEILING: Span = Span::from_days(30);

/// The longest WAIT unless configured otherwise (`max-wait`), and the most that can be configured.
pub const WAIT_DEFAULT_MAX: Span = Span::from_secs(600);
pub const WAIT_CEILING: Span = Span::from_days(1);

/// Waiters of one key unless configured otherwise (`max-waiters`), and the most that can be configured.
pub const WAITERS_DEFAULT: u32 = 100_000;
pub const WAITERS_CEILING: u32 = 1_000_000;

/// After how long a waiter gains a priority unless configured otherwise (`ageing`), and the longest that can be configured.
pub const AGEING_DEFAULT: Span = Span::from_secs(30);
pub const AGEING_CEILING: Span = Span::from_days(1);

/// Holders of one key: readers of a lock, permits of a bulkhead.
pub const HOLDERS_MAX: usize = 100_000;

/// How long an end is remembered, so that its owner can learn of it; and how many of them.
pub const GRACE: Span = Span::from_secs(60);
pub const ENDS_REMEMBERED: usize = 8;

/// The longest time a result, a value or an event is kept.
pub const TTL_MAX: Span = Span::from_days(366);

/// How long a record without a runner is kept unless KEEP says otherwise.
pub const KEEP_DEFAULT: Span = Span::from_days(1);

/// Bytes of a result or a value unless configured otherwise (`max-result`, `max-value`), and the most of both.
pub const RESULT_DEFAULT_MAX: usize = 1 << 20;
pub const VALUE_DEFAULT_MAX: usize = 16 << 20;
pub const RESULT_CEILING: usize = 512 << 20;

/// Tags of one value, or of one CLEAR; the bytes of a tag; tags of which a cache name remembers when they were invalidated.
pub const TAGS_MAX: usize = 16;
/// Keys of one RES.SFLIGHT MGET, and the bytes of values after which its reply has nothing more.
pub const MGET_KEYS_MAX: usize = 100;
pub const MGET_BYTES_MAX: usize = 1 << 20;
pub const TAG_MAX: usize = 256;
pub const TAGS_REMEMBERED: usize = 1_024;

/// The last part of its ttl, in percent, in which EARLY can have a value loaded anew.
pub const EARLY_MAX: u32 = 99;

/// Bytes of replies that may wait to be sent when many followers are woken, unless configured otherwise (`wake-budget`).
pub const WAKE_BUDGET_DEFAULT: usize = 64 << 20;
pub const WAKE_BUDGET_CEILING: usize = 16 << 30;

/// How far fences jump after a load or a promotion unless configured otherwise (`fence-jump`), and the most.
pub const FENCE_JUMP_DEFAULT: Span = Span::from_secs(60);
pub const FENCE_JUMP_CEILING: Span = Span::from_days(1);

/// No fence is above this: it fits a double.
pub const FENCE_MAX: u64 = (1 << 53) - 1;

/// How far ahead of the clock the fence of a restored value may lie.
pub const FENCE_AHEAD_MAX: Span = Span::from_days(366);

/// Servers that together grant a lock: with fewer, one that is away stops all.
pub const QUORUM_LEAST: usize = 3;
pub const QUORUM_MOST: usize = 15;

/// Losses a session remembers until its next heartbeat.
pub const LOSSES_REMEMBERED: usize = 1_000;

/// Entries INFO lists unless LIMIT says otherwise, and the most it can say.
pub const INFO_LIMIT_DEFAULT: u32 = 100;
pub const INFO_LIMIT_MAX: u32 = 100_000;

/// A clock may run back by this much without being taken for a step.
pub const CLOCK_JITTER: Span = Span::from_secs(1);

/// No instant lies at or beyond this: 2^53 microseconds, in the year 2255.
pub const INSTANT_MAX_US: i64 = 1 << 53;

/// Bounds for a duration argument that may not be zero: one microsecond to `most`.
pub const fn duration_bounds(most: Span) -> (Span, Span) {
    (Span::from_us(1), most)
}

/// No number of a ledger's entries, alerts or actions lies beyond this; none of its groups or cases beyond that.
pub const COUNTER_MAX: u64 = 1 << 53;
pub const CASE_MAX: u32 = 1 << 31;

/// Cases of one ledger of which something can be under way at once: a redrive, or AUTO.
pub const ACTIVE_CASES_MAX: usize = 100;

/// What is kept of an error text; of a message's type, source, aggregate or reference; of its headers.
pub const ERROR_MAX: usize = 1_024;
pub const LEDGER_TEXT_MAX: usize = 1_024;
pub const HEADERS_MAX: usize = 64 << 10;

/// What a case may say: CAUSE, FIX and DECISION.
pub const CASE_TEXT_MAX: usize = 4_096;

/// Bytes of a message's payload unless configured otherwise (`max-payload`), and the most.
pub const PAYLOAD_DEFAULT_MAX: usize = 16 << 20;
pub const PAYLOAD_CEILING: usize = 512 << 20;

/// Entries and bytes of one ledger, and resolved entries it remembers, unless configured otherwise (`max-ledger-entries`,
/// `max-ledger-bytes`, `max-resolved`), and the most.
pub const LEDGER_ENTRIES_DEFAULT: usize = 1_000_000;
pub const LEDGER_ENTRIES_CEILING: usize = 100_000_000;
pub const LEDGER_BYTES_DEFAULT: usize = 256 << 20;
pub const LEDGER_BYTES_CEILING: usize = 64 << 30;
pub const RESOLVED_DEFAULT: usize = 100_000;

/// How full a ledger may be before there is an alert, in percent.
pub const LEDGER_FULL_PERCENT: usize = 80;

/// Groups of one ledger; what comes after them shares a group with the rest of its type, for so many types.
pub const GROUPS_MAX: usize = 10_000;
pub const TYPES_MAX: usize = 1_000;

/// Groups that one case can cover, and cases that are kept.
pub const CASE_GROUPS_MAX: usize = 100;
pub const CASES_MAX: usize = 1_000;

/// Alerts and governance actions that are kept.
pub const ALERTS_MAX: usize = 1_000;
pub const AUDIT_MAX: usize = 1_000;

/// Failures that are kept of one entry.
pub const ATTEMPTS_KEPT: usize = 8;

/// Entries that one TAKE can get, and the bytes of their messages; it always gets one.
pub const TAKE_MAX: usize = 1_000;
pub const TAKE_BYTES_MAX: usize = 16 << 20;

/// Entries that LIST, a count or a search of a redrive looks at in one go.
pub const ENTRIES_LOOKED_AT: usize = 2_000;

/// Entries that one call of LIST shows, whatever its LIMIT: an entry has many fields.
pub const LIST_AT_ONCE: usize = 500;

/// The largest LIMIT of PURGE.
pub const PURGE_MAX: usize = 1_000;

/// Entries that one call of PURGE removes, whatever its LIMIT: no call holds the server up for long.
pub const PURGE_AT_ONCE: usize = 200;

/// The longest BASE or CAP of a class, and the most RETRIES and CRASHES.
pub const BACKOFF_MAX: Span = Span::from_days(1);
pub const RETRIES_MAX: u32 = 1_000;

/// No retry comes sooner.
pub const BACKOFF_LEAST: Span = Span::from_ms(100);

/// An entry that fails without being counted dies after this.
pub const NOCOUNT_MAX: Span = Span::from_days(1);

/// How long the end of an entry that never died is remembered, and how many of them.
pub const DONE_REMEMBERED: Span = Span::from_secs(600);
pub const DONES_MAX: usize = 10_000;

/// What died is kept at least so long, and what was resolved exactly so long.
pub const RETENTION: Span = Span::from_days(90);

/// A clock that moves by more than this between two looks has jumped; ages are not believed for as long.
pub const CLOCK_JUMP: Span = Span::from_days(1);

/// How many deaths of a type raise `many`; how many under an aggregate `aggregate`.
pub const MANY_DEATHS: u64 = 10;
pub const AGGREGATE_DEATHS: u64 = 3;

/// A spike: deaths in a bucket above so many times the mean of so many buckets before it.
pub const SPIKE_BUCKET: Span = Span::from_secs(300);
pub const SPIKE_BUCKETS: i64 = 288;
pub const SPIKE_FACTOR: u64 = 10;

/// A redrive's rate unless it names one, and the highest unless configured otherwise.
pub const REDRIVE_RATE: Rate = Rate { count: 100, period: Span::from_secs(60) };
pub const REDRIVE_RATE_MAX: Rate = Rate { count: 1_000, period: Span::from_secs(60) };

/// How many a redrive gives out before outcomes are known, unless it says otherwise; how many outcomes it looks at.
pub const REDRIVE_FIRST: u32 = 10;
pub const REDRIVE_OUTCOMES: u32 = 20;

/// How long no new death must come before a redrive begins by itself.
pub const AUTO_QUIET: Span = Span::from_secs(60);

/// Messages that a ledger can ever take.
pub const ARRIVAL_MAX: u64 = (1 << 42) - 1;

/// Bytes of a policy document, how deep its objects and lists may nest, and the bytes of a name in it.
pub const POLICY_BYTES_MAX: usize = 64 << 10;
pub const POLICY_DEPTH_MAX: usize = 16;
pub const POLICY_NAME_MAX: usize = 512;
