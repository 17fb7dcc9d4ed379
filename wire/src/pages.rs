//! Generated from commands/*.json by `cargo run -p resil-harness --bin generate`. Do not edit.

use crate::command::Page;

pub const THROTTLE: Page = Page { name: "CL.THROTTLE", usage: "CL.THROTTLE key max_burst count period_seconds [quantity]", is_read_only: false };
pub const BREAKER_ADMIT: Page = Page { name: "RES.BREAKER ADMIT", usage: "RES.BREAKER ADMIT key [CALLER id] [VERSION v] [options]", is_read_only: false };
pub const BREAKER_REPORT: Page = Page { name: "RES.BREAKER REPORT", usage: "RES.BREAKER REPORT key permit OK|FAIL|IGNORE|CANCEL [DURATION d] [CORRELATION text]", is_read_only: false };
pub const BREAKER_TALLY: Page = Page { name: "RES.BREAKER TALLY", usage: "RES.BREAKER TALLY key generation caller seq OK n FAIL n [SLOW n] [RUN n] [CORRELATION text]", is_read_only: false };
pub const BREAKER_STATE: Page = Page { name: "RES.BREAKER STATE", usage: "RES.BREAKER STATE key", is_read_only: true };
pub const BREAKER_FORCE: Page = Page { name: "RES.BREAKER FORCE", usage: "RES.BREAKER FORCE key OPEN|CLOSED|DISABLED|METRICS|AUTO [FOR d [THEN PROBE]] [ACTOR a] [REASON r]", is_read_only: false };
pub const BREAKER_RESET: Page = Page { name: "RES.BREAKER RESET", usage: "RES.BREAKER RESET key", is_read_only: false };
pub const BREAKER_CONFIG: Page = Page { name: "RES.BREAKER CONFIG", usage: "RES.BREAKER CONFIG key [VERSION v] options", is_read_only: false };
pub const BREAKER_OPTIONS: &str = "[WINDOW COUNT n | WINDOW TIME d] [RATE pct] [SLOW d] [SLOWRATE pct] [CONSECUTIVE n] [MINCALLS n] [OPEN d] [FACTOR x] [MAX d] [PROBES n] [SUCCESSES n] [LEASE d] [QUORUM n] [RAMP d] [IDLE d]";
pub const BREAKER_HELP: Page = Page { name: "RES.BREAKER HELP", usage: "RES.BREAKER HELP", is_read_only: false };
pub const BREAKER_HELP_LINES: &[&str] = &[
    "RES.BREAKER ADMIT key [CALLER id] [VERSION v] [options]",
    "    Asks whether a call may be made.",
    "    Reply: [admitted, state, permit, retry_after_ms, generation].",
    "RES.BREAKER REPORT key permit OK|FAIL|IGNORE|CANCEL [DURATION d] [CORRELATION text]",
    "    Reports what an admitted call came to.",
    "    Reply: [counted, state, generation, retry_after_ms, why].",
    "RES.BREAKER TALLY key generation caller seq OK n FAIL n [SLOW n] [RUN n] [CORRELATION text]",
    "    Reports a batch of calls that were admitted locally while closed.",
    "    Reply: [counted, state, generation, retry_after_ms, why].",
    "RES.BREAKER STATE key",
    "    Shows everything a breaker knows.",
    "    Reply: a map.",
    "RES.BREAKER FORCE key OPEN|CLOSED|DISABLED|METRICS|AUTO [FOR d [THEN PROBE]] [ACTOR a] [REASON r]",
    "    Puts a breaker into a state by hand.",
    "    Reply: [state, generation].",
    "RES.BREAKER RESET key",
    "    Closes a breaker and forgets its counts; the configuration stays.",
    "    Reply: 1 if it changed, else 0.",
    "RES.BREAKER CONFIG key [VERSION v] options",
    "    Configures a breaker, lastingly.",
    "    Reply: 1 if it changed, else 0.",
    "options:",
    "[WINDOW COUNT n | WINDOW TIME d] [RATE pct] [SLOW d] [SLOWRATE pct] [CONSECUTIVE n] [MINCALLS n] [OPEN d] [FACTOR x] [MAX d] [PROBES n] [SUCCESSES n] [LEASE d] [QUORUM n] [RAMP d] [IDLE d]",
    "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.",
];
pub const BULKHEAD_ENTER: Page = Page { name: "RES.BULKHEAD ENTER", usage: "RES.BULKHEAD ENTER key owner max lease [WAIT d [ASYNC]] [QUEUE n] [PRIORITY p] [<BOUND | BOUNDTO client-id> [GRACE d]]", is_read_only: false };
pub const BULKHEAD_RENEW: Page = Page { name: "RES.BULKHEAD RENEW", usage: "RES.BULKHEAD RENEW key owner lease [FENCE f] [<BOUND | BOUNDTO client-id> [GRACE d]]", is_read_only: false };
pub const BULKHEAD_LEAVE: Page = Page { name: "RES.BULKHEAD LEAVE", usage: "RES.BULKHEAD LEAVE key owner [FENCE f]", is_read_only: false };
pub const BULKHEAD_INFO: Page = Page { name: "RES.BULKHEAD INFO", usage: "RES.BULKHEAD INFO key [LIMIT n]", is_read_only: true };
pub const BULKHEAD_HELP: Page = Page { name: "RES.BULKHEAD HELP", usage: "RES.BULKHEAD HELP", is_read_only: false };
pub const BULKHEAD_HELP_LINES: &[&str] = &[
    "RES.BULKHEAD ENTER key owner max lease [WAIT d [ASYNC]] [QUEUE n] [PRIORITY p] [<BOUND | BOUNDTO client-id> [GRACE d]]",
    "    Takes a permit, or waits in the queue for it.",
    "    Reply: [GRANTED, active, queued, lease_ms, waited_ms], [FULL|TIMEOUT, active, queued, retry_after_ms] or [QUEUED, position].",
    "RES.BULKHEAD RENEW key owner lease [FENCE f] [<BOUND | BOUNDTO client-id> [GRACE d]]",
    "    Extends the lease of a permit: it ends that long from now.",
    "    Reply: [GRANTED, fence, lease_ms, 0] or [LOST, reason].",
    "RES.BULKHEAD LEAVE key owner [FENCE f]",
    "    Gives a permit back; the next in the queue gets it.",
    "    Reply: [RELEASED, held_ms] or [LOST, reason].",
    "RES.BULKHEAD INFO key [LIMIT n]",
    "    Shows the holders of permits and the waiters.",
    "    Reply: a map.",
    "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.",
];
pub const DLQ_FAIL: Page = Page { name: "RES.DLQ FAIL", usage: "RES.DLQ FAIL key id ERROR text [FENCE f] [PAYLOAD bytes | REF text] [TYPE t] [SOURCE s] [AGGREGATE a] [SCHEMA n] [HEADERS bytes] [CLASS transient|business|external] [GROUP g] [AFTER d] [PRIOR n] [NOCOUNT | FINAL]", is_read_only: false };
pub const DLQ_TAKE: Page = Page { name: "RES.DLQ TAKE", usage: "RES.DLQ TAKE key token lease [COUNT n] [WAIT d [ASYNC]] [<BOUND | BOUNDTO client-id> [GRACE d]] [META text]", is_read_only: false };
pub const DLQ_DONE: Page = Page { name: "RES.DLQ DONE", usage: "RES.DLQ DONE key id fence [id fence ...]", is_read_only: false };
pub const DLQ_RENEW: Page = Page { name: "RES.DLQ RENEW", usage: "RES.DLQ RENEW key token lease [<BOUND | BOUNDTO client-id> [GRACE d]]", is_read_only: false };
pub const DLQ_RETURN: Page = Page { name: "RES.DLQ RETURN", usage: "RES.DLQ RETURN key [DELAY d] id fence [id fence ...]", is_read_only: false };
pub const DLQ_PARK: Page = Page { name: "RES.DLQ PARK", usage: "RES.DLQ PARK key id AGGREGATE a <PAYLOAD bytes | REF text> [TYPE t] [SOURCE s] [SCHEMA n] [HEADERS bytes]", is_read_only: false };
pub const DLQ_GET: Page = Page { name: "RES.DLQ GET", usage: "RES.DLQ GET key id [STATE]", is_read_only: true };
pub const DLQ_LIST: Page = Page { name: "RES.DLQ LIST", usage: "RES.DLQ LIST key [STATE waiting|taken|parked|dead|resolved|archived] [TYPE t] [CLASS transient|business|external] [GROUP g] [AGGREGATE a] [CASE n] [SINCE t] [UNTIL t] [CURSOR c] [LIMIT n]", is_read_only: true };
pub const DLQ_INFO: Page = Page { name: "RES.DLQ INFO", usage: "RES.DLQ INFO key [GROUPS | CASES | CASE n | ALERTS | AUDIT | CONFIG] [CURSOR c] [LIMIT n]", is_read_only: true };
pub const DLQ_DIAGNOSE: Page = Page { name: "RES.DLQ DIAGNOSE", usage: "RES.DLQ DIAGNOSE key group [group ...] CATEGORY infrastructure|contract|business|poison CAUSE text FIX text [DECISION text] [AUTO d] [ACTOR a] [CORRELATION c]", is_read_only: false };
pub const DLQ_REDRIVE: Page = Page { name: "RES.DLQ REDRIVE", usage: "RES.DLQ REDRIVE key case [ID id] [TYPE t] [AGGREGATE a] [SINCE t] [UNTIL t] [COUNT n] [RATE n period] [FIRST n] [ONESHOT] [DRYRUN] [ACTOR a] [CORRELATION c]", is_read_only: false };
pub const DLQ_STOP: Page = Page { name: "RES.DLQ STOP", usage: "RES.DLQ STOP key case [ACTOR a] [CORRELATION c]", is_read_only: false };
pub const DLQ_CLOSE: Page = Page { name: "RES.DLQ CLOSE", usage: "RES.DLQ CLOSE key case [DISCARD] [ACTOR a] [CORRELATION c]", is_read_only: false };
pub const DLQ_HOLD: Page = Page { name: "RES.DLQ HOLD", usage: "RES.DLQ HOLD key <id | AGGREGATE a> ON|OFF [REASON r] [ACTOR a] [CORRELATION c]", is_read_only: false };
pub const DLQ_PURGE: Page = Page { name: "RES.DLQ PURGE", usage: "RES.DLQ PURGE key OLDER d [STATE dead|resolved|archived] [LIMIT n] [ACTOR a] [CORRELATION c]", is_read_only: false };
pub const DLQ_SEEN: Page = Page { name: "RES.DLQ SEEN", usage: "RES.DLQ SEEN key alert [ACTOR a] [CORRELATION c]", is_read_only: false };
pub const DLQ_CONFIG: Page = Page { name: "RES.DLQ CONFIG", usage: "RES.DLQ CONFIG key [CLASS transient|business|external [RETRIES n] [BASE d] [CAP d] ...] [JITTER full | none | plus pct] [CRASHES n] [RATEMAX n period] [AFTERMAX d] [PAUSED yes|no [FOR d]] [ACTOR a] [CORRELATION c]", is_read_only: false };
pub const DLQ_HELP: Page = Page { name: "RES.DLQ HELP", usage: "RES.DLQ HELP", is_read_only: false };
pub const DLQ_HELP_LINES: &[&str] = &[
    "RES.DLQ FAIL key id ERROR text [FENCE f] [PAYLOAD bytes | REF text] [TYPE t] [SOURCE s] [AGGREGATE a] [SCHEMA n] [HEADERS bytes] [CLASS transient|business|external] [GROUP g] [AFTER d] [PRIOR n] [NOCOUNT | FINAL]",
    "    Records that a message failed: it is retried later, or dead.",
    "    Reply: [RETRY, attempt, delay_ms], [DEAD, deaths, group, reason], [KNOWN, state, attempt] or [LOST, reason].",
    "RES.DLQ TAKE key token lease [COUNT n] [WAIT d [ASYNC]] [<BOUND | BOUNDTO client-id> [GRACE d]] [META text]",
    "    Takes what is due, oldest first, or waits for it.",
    "    Reply: [TAKEN, waited_ms, lease_ms, [[id, fence, attempt, lapses, payload, [field, value, ...]], ...]], [NONE|TIMEOUT, next_due_ms] or [QUEUED, position].",
    "RES.DLQ DONE key id fence [id fence ...]",
    "    Says that messages were handled.",
    "    Reply: [DONE] or [LOST, reason]; a list of these if several are named.",
    "RES.DLQ RENEW key token lease [<BOUND | BOUNDTO client-id> [GRACE d]]",
    "    Extends the lease of what a call took: it ends that long from now.",
    "    Reply: [GRANTED, count, lease_ms] or [LOST, reason].",
    "RES.DLQ RETURN key [DELAY d] id fence [id fence ...]",
    "    Gives messages back untried: nothing is counted.",
    "    Reply: [RETURNED] or [LOST, reason]; a list of these if several are named.",
    "RES.DLQ PARK key id AGGREGATE a <PAYLOAD bytes | REF text> [TYPE t] [SOURCE s] [SCHEMA n] [HEADERS bytes]",
    "    Queues a message behind an earlier one of its aggregate that failed.",
    "    Reply: [FREE], [PARKED, position] or [KNOWN, state, attempt].",
    "RES.DLQ GET key id [STATE]",
    "    Shows an entry, or only its state.",
    "    Reply: a map, a state or nil.",
    "RES.DLQ LIST key [STATE waiting|taken|parked|dead|resolved|archived] [TYPE t] [CLASS transient|business|external] [GROUP g] [AGGREGATE a] [CASE n] [SINCE t] [UNTIL t] [CURSOR c] [LIMIT n]",
    "    Lists entries, without their payloads.",
    "    Reply: [cursor, entries].",
    "RES.DLQ INFO key [GROUPS | CASES | CASE n | ALERTS | AUDIT | CONFIG] [CURSOR c] [LIMIT n]",
    "    Shows how much is in a ledger, its groups, cases, alerts, audit and configuration.",
    "    Reply: a map, or [cursor, list].",
    "RES.DLQ DIAGNOSE key group [group ...] CATEGORY infrastructure|contract|business|poison CAUSE text FIX text [DECISION text] [AUTO d] [ACTOR a] [CORRELATION c]",
    "    Documents the root cause of failures: only then they can be redriven.",
    "    Reply: the number of the case.",
    "RES.DLQ REDRIVE key case [ID id] [TYPE t] [AGGREGATE a] [SINCE t] [UNTIL t] [COUNT n] [RATE n period] [FIRST n] [ONESHOT] [DRYRUN] [ACTOR a] [CORRELATION c]",
    "    Lets dead entries of a case be taken again, at a rate, a few first.",
    "    Reply: [STARTED|DRYRUN, matched, complete, sample] or [REFUSED, reason].",
    "RES.DLQ STOP key case [ACTOR a] [CORRELATION c]",
    "    Stops the redrive of a case: no dead entry is given out any more. Those it gave out before are retried as usual; until they have ended, REDRIVE is refused as running.",
    "    Reply: a map.",
    "RES.DLQ CLOSE key case [DISCARD] [ACTOR a] [CORRELATION c]",
    "    Closes a case whose entries are all resolved, or discards them.",
    "    Reply: [CLOSED] or [OPEN, unresolved].",
    "RES.DLQ HOLD key <id | AGGREGATE a> ON|OFF [REASON r] [ACTOR a] [CORRELATION c]",
    "    Marks entries as held, for evidence: they are neither redriven nor purged, and DONE leaves them as resolved, with their payload.",
    "    Reply: the number of entries.",
    "RES.DLQ PURGE key OLDER d [STATE dead|resolved|archived] [LIMIT n] [ACTOR a] [CORRELATION c]",
    "    Removes what died long ago.",
    "    Reply: [purged, left].",
    "RES.DLQ SEEN key alert [ACTOR a] [CORRELATION c]",
    "    Says that an alert was seen.",
    "    Reply: 1 if it was new, else 0.",
    "RES.DLQ CONFIG key [CLASS transient|business|external [RETRIES n] [BASE d] [CAP d] ...] [JITTER full | none | plus pct] [CRASHES n] [RATEMAX n period] [AFTERMAX d] [PAUSED yes|no [FOR d]] [ACTOR a] [CORRELATION c]",
    "    Configures a ledger, lastingly.",
    "    Reply: OK.",
    "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.",
];
pub const GCRA: Page = Page { name: "RES.GCRA", usage: "RES.GCRA key limit period [BURST n] [AND limit period [BURST n] ...] [COST n | UPTO n | RESERVE max [COST n] | REFUND n]", is_read_only: false };
pub const GCRA_PEEK: Page = Page { name: "RES.GCRA.PEEK", usage: "RES.GCRA.PEEK key limit period [BURST n] [AND limit period [BURST n] ...]", is_read_only: true };
pub const GUARD_ENTER: Page = Page { name: "RES.GUARD ENTER", usage: "RES.GUARD ENTER key owner [SUBJECT limit-key] [COST n] [PRIORITY critical|high|normal|low|background] [WAIT d [ASYNC]] [TICKET t] [CALLER c]", is_read_only: false };
pub const GUARD_EXIT: Page = Page { name: "RES.GUARD EXIT", usage: "RES.GUARD EXIT key ticket OK|FAIL|IGNORE|CANCEL [DURATION d] [AFTER d | FINAL] [CORRELATION t]", is_read_only: false };
pub const GUARD_STATE: Page = Page { name: "RES.GUARD STATE", usage: "RES.GUARD STATE key", is_read_only: true };
pub const GUARD_HELP: Page = Page { name: "RES.GUARD HELP", usage: "RES.GUARD HELP", is_read_only: false };
pub const GUARD_HELP_LINES: &[&str] = &[
    "RES.GUARD ENTER key owner [SUBJECT limit-key] [COST n] [PRIORITY critical|high|normal|low|background] [WAIT d [ASYNC]] [TICKET t] [CALLER c]",
    "    Asks a stored policy for admission: every layer agrees, or nothing is taken.",
    "    Reply: [ADMITTED, ticket, attempt, timeout_ms, deadline_ms, version, rate], [REFUSED, layer, retry_after_ms, reason, version, rate] or [QUEUED, position].",
    "RES.GUARD EXIT key ticket OK|FAIL|IGNORE|CANCEL [DURATION d] [AFTER d | FINAL] [CORRELATION t]",
    "    Says what an admitted call came to, and asks whether to make it again.",
    "    Reply: [DONE], [RETRY, delay_ms, attempt] or [STOP, reason, attempts].",
    "RES.GUARD STATE key",
    "    Shows what lives under a stored policy.",
    "    Reply: a map.",
    "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.",
];
pub const HEARTBEAT: Page = Page { name: "RES.HEARTBEAT", usage: "RES.HEARTBEAT", is_read_only: false };
pub const IDEMP_BEGIN: Page = Page { name: "RES.IDEMP BEGIN", usage: "RES.IDEMP BEGIN key token lease [FINGERPRINT f] [WAIT d [ASYNC]] [KEEP d] [ONLAPSE RUN|HOLD] [<BOUND | BOUNDTO client-id> [GRACE d]]", is_read_only: false };
pub const IDEMP_COMMIT: Page = Page { name: "RES.IDEMP COMMIT", usage: "RES.IDEMP COMMIT key token ttl result [ERROR]", is_read_only: false };
pub const IDEMP_ABORT: Page = Page { name: "RES.IDEMP ABORT", usage: "RES.IDEMP ABORT key token", is_read_only: false };
pub const IDEMP_RENEW: Page = Page { name: "RES.IDEMP RENEW", usage: "RES.IDEMP RENEW key token lease [<BOUND | BOUNDTO client-id> [GRACE d]]", is_read_only: false };
pub const IDEMP_ONCE: Page = Page { name: "RES.IDEMP ONCE", usage: "RES.IDEMP ONCE key ttl [TOKEN t]", is_read_only: false };
pub const IDEMP_GET: Page = Page { name: "RES.IDEMP GET", usage: "RES.IDEMP GET key [FINGERPRINT f]", is_read_only: true };
pub const IDEMP_INFO: Page = Page { name: "RES.IDEMP INFO", usage: "RES.IDEMP INFO key", is_read_only: true };
pub const IDEMP_HELP: Page = Page { name: "RES.IDEMP HELP", usage: "RES.IDEMP HELP", is_read_only: false };
pub const IDEMP_HELP_LINES: &[&str] = &[
    "RES.IDEMP BEGIN key token lease [FINGERPRINT f] [WAIT d [ASYNC]] [KEEP d] [ONLAPSE RUN|HOLD] [<BOUND | BOUNDTO client-id> [GRACE d]]",
    "    May this caller do the work?",
    "    Reply: [RUN, fence, attempt, waited_ms], [REPLAY, ok|error, result, age_ms], [BUSY, remaining_ms, attempt], [MISMATCH], [HELD, attempt] or [QUEUED, position].",
    "RES.IDEMP COMMIT key token ttl result [ERROR]",
    "    Records that the work is done, and its result.",
    "    Reply: [COMMITTED, stored|dropped] or [LOST, reason].",
    "RES.IDEMP ABORT key token",
    "    Says that nothing happened: the next caller may run.",
    "    Reply: [ABORTED] or [LOST, reason].",
    "RES.IDEMP RENEW key token lease [<BOUND | BOUNDTO client-id> [GRACE d]]",
    "    Extends a runner's lease: it ends that long from now.",
    "    Reply: [GRANTED, fence, lease_ms, 0] or [LOST, reason].",
    "RES.IDEMP ONCE key ttl [TOKEN t]",
    "    Was this event seen before?",
    "    Reply: 1 the first time and for the same token again, 0 for a duplicate.",
    "RES.IDEMP GET key [FINGERPRINT f]",
    "    Shows the result, if there is one.",
    "    Reply: [REPLAY, ...], [BUSY, ...], [HELD, ...], [MISMATCH] or [MISS].",
    "RES.IDEMP INFO key",
    "    Shows everything about an idempotency key.",
    "    Reply: a map.",
    "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.",
];
pub const LIST: Page = Page { name: "RES.LIST", usage: "RES.LIST <BREAKER | LOCK | BULKHEAD | POLICY | DLQ | RUN | LOAD> [STATE s] [MATCH glob] [CURSOR c] [LIMIT n]", is_read_only: true };
pub const LOCK_ACQUIRE: Page = Page { name: "RES.LOCK ACQUIRE", usage: "RES.LOCK ACQUIRE key owner lease [WAIT d [ASYNC]] [SHARED] [<BOUND | BOUNDTO client-id> [GRACE d]] [META text]", is_read_only: false };
pub const LOCK_RENEW: Page = Page { name: "RES.LOCK RENEW", usage: "RES.LOCK RENEW key owner lease [FENCE f] [RAISE f] [<BOUND | BOUNDTO client-id> [GRACE d]]", is_read_only: false };
pub const LOCK_RELEASE: Page = Page { name: "RES.LOCK RELEASE", usage: "RES.LOCK RELEASE key owner [FENCE f]", is_read_only: false };
pub const LOCK_CHECK: Page = Page { name: "RES.LOCK CHECK", usage: "RES.LOCK CHECK key owner [FENCE f]", is_read_only: true };
pub const LOCK_BREAK: Page = Page { name: "RES.LOCK BREAK", usage: "RES.LOCK BREAK key [ACTOR a] [REASON r]", is_read_only: false };
pub const LOCK_INFO: Page = Page { name: "RES.LOCK INFO", usage: "RES.LOCK INFO key [LIMIT n]", is_read_only: true };
pub const LOCK_HELP: Page = Page { name: "RES.LOCK HELP", usage: "RES.LOCK HELP", is_read_only: false };
pub const LOCK_HELP_LINES: &[&str] = &[
    "RES.LOCK ACQUIRE key owner lease [WAIT d [ASYNC]] [SHARED] [<BOUND | BOUNDTO client-id> [GRACE d]] [META text]",
    "    Takes a lock, or waits in the queue for it.",
    "    Reply: [GRANTED, fence, lease_ms, waited_ms], [TAKEN|TIMEOUT, holder, remaining_ms, waiters] or [QUEUED, position].",
    "RES.LOCK RENEW key owner lease [FENCE f] [RAISE f] [<BOUND | BOUNDTO client-id> [GRACE d]]",
    "    Extends a lease: it ends that long from now.",
    "    Reply: [GRANTED, fence, lease_ms, 0] or [LOST, reason].",
    "RES.LOCK RELEASE key owner [FENCE f]",
    "    Releases a lock; the next in the queue gets it.",
    "    Reply: [RELEASED, held_ms] or [LOST, reason].",
    "RES.LOCK CHECK key owner [FENCE f]",
    "    Does this owner hold the lock?",
    "    Reply: 1 if the owner holds, else 0.",
    "RES.LOCK BREAK key [ACTOR a] [REASON r]",
    "    Ends everything that is held, by hand.",
    "    Reply: the number of holders.",
    "RES.LOCK INFO key [LIMIT n]",
    "    Shows the holders and the waiters.",
    "    Reply: a map.",
    "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.",
];
pub const MGCRA: Page = Page { name: "RES.MGCRA", usage: "RES.MGCRA cost key limit period burst [key limit period burst ...]", is_read_only: false };
pub const POLICY_SET: Page = Page { name: "RES.POLICY SET", usage: "RES.POLICY SET key json [IF version] [ACTOR a] [REASON r]", is_read_only: false };
pub const POLICY_GET: Page = Page { name: "RES.POLICY GET", usage: "RES.POLICY GET key [VERSION v]", is_read_only: true };
pub const POLICY_HISTORY: Page = Page { name: "RES.POLICY HISTORY", usage: "RES.POLICY HISTORY key", is_read_only: true };
pub const POLICY_DELETE: Page = Page { name: "RES.POLICY DELETE", usage: "RES.POLICY DELETE key [IF version] [ACTOR a] [REASON r]", is_read_only: false };
pub const POLICY_CHECK: Page = Page { name: "RES.POLICY CHECK", usage: "RES.POLICY CHECK json", is_read_only: true };
pub const POLICY_HELP: Page = Page { name: "RES.POLICY HELP", usage: "RES.POLICY HELP", is_read_only: false };
pub const POLICY_HELP_LINES: &[&str] = &[
    "RES.POLICY SET key json [IF version] [ACTOR a] [REASON r]",
    "    Stores a policy, or changes it.",
    "    Reply: [version, created|changed|same].",
    "RES.POLICY GET key [VERSION v]",
    "    Shows a policy, or one of its last versions.",
    "    Reply: a map or nil.",
    "RES.POLICY HISTORY key",
    "    Lists the last versions of a policy.",
    "    Reply: a list of maps, the newest first.",
    "RES.POLICY DELETE key [IF version] [ACTOR a] [REASON r]",
    "    Deletes a policy and all that lives under it.",
    "    Reply: [version, deleted].",
    "RES.POLICY CHECK json",
    "    Checks a document without storing it.",
    "    Reply: [OK, canonical] or [INVALID, path, text].",
    "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.",
];
pub const SFLIGHT_JOIN: Page = Page { name: "RES.SFLIGHT JOIN", usage: "RES.SFLIGHT JOIN key token lease [UNDER name] [EARLY percent] [WAIT d [ASYNC]] [<BOUND | BOUNDTO client-id> [GRACE d]]", is_read_only: false };
pub const SFLIGHT_GET: Page = Page { name: "RES.SFLIGHT GET", usage: "RES.SFLIGHT GET key [UNDER name]", is_read_only: true };
pub const SFLIGHT_MGET: Page = Page { name: "RES.SFLIGHT MGET", usage: "RES.SFLIGHT MGET name key [key ...]", is_read_only: true };
pub const SFLIGHT_PUBLISH: Page = Page { name: "RES.SFLIGHT PUBLISH", usage: "RES.SFLIGHT PUBLISH key token ttl [UNDER name [TAG tag ...]] <[STALE d] VALUE bytes | EMPTY | ERROR text>", is_read_only: false };
pub const SFLIGHT_SET: Page = Page { name: "RES.SFLIGHT SET", usage: "RES.SFLIGHT SET key ttl [UNDER name [TAG tag ...]] <[STALE d] VALUE bytes | EMPTY>", is_read_only: false };
pub const SFLIGHT_ABANDON: Page = Page { name: "RES.SFLIGHT ABANDON", usage: "RES.SFLIGHT ABANDON key token [RETRY d]", is_read_only: false };
pub const SFLIGHT_RENEW: Page = Page { name: "RES.SFLIGHT RENEW", usage: "RES.SFLIGHT RENEW key token lease [<BOUND | BOUNDTO client-id> [GRACE d]]", is_read_only: false };
pub const SFLIGHT_INVALIDATE: Page = Page { name: "RES.SFLIGHT INVALIDATE", usage: "RES.SFLIGHT INVALIDATE key [SOFT] [UNDER name]", is_read_only: false };
pub const SFLIGHT_CLEAR: Page = Page { name: "RES.SFLIGHT CLEAR", usage: "RES.SFLIGHT CLEAR name [TAG tag ...] [SOFT]", is_read_only: false };
pub const SFLIGHT_INFO: Page = Page { name: "RES.SFLIGHT INFO", usage: "RES.SFLIGHT INFO key", is_read_only: true };
pub const SFLIGHT_HELP: Page = Page { name: "RES.SFLIGHT HELP", usage: "RES.SFLIGHT HELP", is_read_only: false };
pub const SFLIGHT_HELP_LINES: &[&str] = &[
    "RES.SFLIGHT JOIN key token lease [UNDER name] [EARLY percent] [WAIT d [ASYNC]] [<BOUND | BOUNDTO client-id> [GRACE d]]",
    "    Gets a value, or the lead to load it, or waits for it.",
    "    Reply: [LEAD, fence, stale value or nil, waited_ms], [EARLY, fence, bytes, fresh_ms], [VALUE, bytes, age_ms, fresh_ms], [STALE, bytes, age_ms], [EMPTY, age_ms], [ERROR, text], [BUSY, remaining_ms] or [QUEUED, position].",
    "RES.SFLIGHT GET key [UNDER name]",
    "    Gets a value, if there is one.",
    "    Reply: [VALUE, ...], [STALE, ...], [EMPTY, ...], [ERROR, ...] or [MISS].",
    "RES.SFLIGHT MGET name key [key ...]",
    "    Gets the values of several keys under one name.",
    "    Reply: for each key [VALUE, ...], [STALE, ...], [EMPTY, ...], [ERROR, ...], [MISS] or nil.",
    "RES.SFLIGHT PUBLISH key token ttl [UNDER name [TAG tag ...]] <[STALE d] VALUE bytes | EMPTY | ERROR text>",
    "    Brings what the leader loaded; all followers get it.",
    "    Reply: [PUBLISHED, followers] or [LOST, reason].",
    "RES.SFLIGHT SET key ttl [UNDER name [TAG tag ...]] <[STALE d] VALUE bytes | EMPTY>",
    "    Stores a value without a lead; a load under way is void.",
    "    Reply: an integer.",
    "RES.SFLIGHT ABANDON key token [RETRY d]",
    "    Gives the lead up; the next follower has it.",
    "    Reply: [ABANDONED] or [LOST, reason].",
    "RES.SFLIGHT RENEW key token lease [<BOUND | BOUNDTO client-id> [GRACE d]]",
    "    Extends a leader's lease: it ends that long from now.",
    "    Reply: [GRANTED, fence, lease_ms, 0] or [LOST, reason].",
    "RES.SFLIGHT INVALIDATE key [SOFT] [UNDER name]",
    "    Says that what is known, or being loaded, is out of date.",
    "    Reply: 1 if there was anything, else 0.",
    "RES.SFLIGHT CLEAR name [TAG tag ...] [SOFT]",
    "    Makes everything under a cache name, or with a tag, out of date.",
    "    Reply: an integer.",
    "RES.SFLIGHT INFO key",
    "    Shows everything about a single-flight key.",
    "    Reply: a map.",
    "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.",
];
pub const TOP: Page = Page { name: "RES.TOP", usage: "RES.TOP <DENIED | WAITING | HELD> [LIMIT n]", is_read_only: true };
pub const WINDOW: Page = Page { name: "RES.WINDOW", usage: "RES.WINDOW key limit period [COST n | UPTO n]", is_read_only: false };
pub const WINDOW_PEEK: Page = Page { name: "RES.WINDOW.PEEK", usage: "RES.WINDOW.PEEK key limit period", is_read_only: true };
pub const APPLY: Page = Page { name: "RES._APPLY", usage: "RES._APPLY key version bytes [key version bytes ...]", is_read_only: false };
pub const CLOCK: Page = Page { name: "RES._CLOCK", usage: "RES._CLOCK microseconds", is_read_only: false };
