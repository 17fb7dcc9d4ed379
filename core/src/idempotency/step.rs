//! The machine, and its transitions.

use alloc::boxed::Box;
use alloc::sync::Arc;

use smallvec::SmallVec;

use super::edit::{RecordEdit, RecordEvent};
use super::encoding::{decode_record, encode_record};
use super::record::{Idle, Once, Record, Work, WorkPhase};
use super::request::{Committed, Replay, Run, RunRequest, Settled};
use crate::codec::{self, Buffer, Malformed};
use crate::limits::CLOCK_JITTER;
use crate::stored::Stored;
use crate::time::{Instant, Span};
use crate::waited::lease::ends_for;
use crate::waited::{
    Asked, Binding, Crowd, Decision, End, Grant, Lease, Machine, OpenStep, Queue, Reason, Renewed, Setting, Stepped,
    Terms, Turn, WaitedKey, Waiter, Waiting,
};

/// The machine of idempotency keys.
pub struct Idempotency;

type Key<'a> = WaitedKey<'a, Idempotency>;
type Under<'a> = OpenStep<'a, Idempotency>;

/// May `token` run?
pub fn begin(
    key: &mut Key<'_>,
    token: &[u8],
    request: RunRequest,
    waiting: Option<Waiting>,
    setting: &mut Setting<'_>,
) -> Stepped<Idempotency, Asked<Idempotency>> {
    let mut step = OpenStep::begin(key, setting);
    let verdict = ask(&mut step, token, request, waiting);
    step.end_asked(verdict, waiting)
}

/// The work is done. `result` is `None` if there is no memory for it.
pub fn commit(
    key: &mut Key<'_>,
    token: &[u8],
    ttl: Span,
    (result, failed): (Option<Arc<[u8]>>, bool),
    setting: &mut Setting<'_>,
) -> Stepped<Idempotency, Committed> {
    let mut step = OpenStep::begin(key, setting);
    let now = step.now;
    let verdict = match step.state().work(now) {
        Some(work) if *work.token == *token => match &work.phase {
            WorkPhase::Done { result, .. } => Committed::Committed { stored: result.is_some() },
            WorkPhase::Idle { why: Idle::Aborted, .. } => Committed::Lost(Reason::Aborted),
            WorkPhase::Running { .. } | WorkPhase::Idle { .. } => {
                step.note_end(work.fence, now, End::Released);
                let stored = result.is_some();
                step.edit(RecordEdit::Committed { at: now, until: now.plus(ttl), failed, result });
                Committed::Committed { stored }
            }
        },
        other => Committed::Lost(why_lost(other)),
    };
    step.end(verdict)
}

/// Nothing happened: the next caller may run. If the token still waits, it leaves the queue. The verdict is why not, if so.
pub fn abort(key: &mut Key<'_>, token: &[u8], setting: &mut Setting<'_>) -> Stepped<Idempotency, Option<Reason>> {
    let mut step = OpenStep::begin(key, setting);
    let now = step.now;
    let verdict = match step.state().work(now) {
        Some(work) if *work.token == *token => match &work.phase {
            WorkPhase::Idle { why: Idle::Aborted, .. } => None,
            WorkPhase::Done { .. } => Some(Reason::Committed),
            WorkPhase::Running { .. } | WorkPhase::Idle { .. } => {
                step.note_end(work.fence, now, End::Released);
                step.edit(RecordEdit::Stopped { at: now, why: Idle::Aborted });
                None
            }
        },
        other => {
            let why = why_lost(other);
            (!step.leaves(token)).then_some(why)
        }
    };
    step.end(verdict)
}

/// The lease of `token` ends `lease` from now.
pub fn renew(key: &mut Key<'_>, token: &[u8], lease: Span, setting: &mut Setting<'_>) -> Stepped<Idempotency, Renewed> {
    let mut step = OpenStep::begin(key, setting);
    let verdict = match step.state().work(step.now) {
        Some(work) if *work.token == *token => match work.phase {
            WorkPhase::Running { .. } => {
                let fence = work.fence;
                step.time(fence, lease, step.now.plus(lease));
                step.tell(fence);
                Renewed::Granted(Grant { fence, lease, waited: Span::ZERO, active: 1, queued: step.queue.len() })
            }
            WorkPhase::Idle { why, .. } => Renewed::Lost(why.into()),
            WorkPhase::Done { .. } => Renewed::Lost(Reason::Committed),
        },
        other => Renewed::Lost(why_lost(other)),
    };
    step.end(verdict)
}

/// Was this event seen before? `Err` if the key belongs to BEGIN.
pub fn once(
    key: &mut Key<'_>,
    token: &[u8],
    ttl: Span,
    setting: &mut Setting<'_>,
) -> Stepped<Idempotency, Result<bool, ()>> {
    let mut step = OpenStep::begin(key, setting);
    let now = step.now;
    let verdict = if step.state().work(now).is_some() {
        Err(())
    } else if let Some(seen) = step.state().seen(now) {
        Ok(is_same_caller(seen, token))
    } else {
        step.edit(RecordEdit::Seen(Once { token: token.into(), at: now, until: now.plus(ttl) }));
        Ok(true)
    };
    step.end(verdict)
}

/// What ONCE replies without changing anything, if that is possible: this event was seen.
pub fn seen_before(record: &Record, token: &[u8], now: Instant) -> Option<bool> {
    let seen = record.seen(now).filter(|seen| seen.at <= now.plus(CLOCK_JITTER))?;
    Some(is_same_caller(seen, token))
}

/// The caller who saw it first asks again: its first reply was lost.
fn is_same_caller(seen: &Once, token: &[u8]) -> bool {
    !token.is_empty() && *seen.token == *token
}

/// What BEGIN replies without changing anything, if that is possible: the result, for one who asks for the same.
pub fn replay(record: &Record, fingerprint: &[u8], now: Instant) -> Option<Settled> {
    let work = record.work(now).filter(|work| !differs(work, fingerprint))?;
    match &work.phase {
        WorkPhase::Done { at, .. } if *at <= now.plus(CLOCK_JITTER) => lookup(work, None, now),
        _ => None,
    }
}

/// What is known, without changing anything. It works on replicas, by the replica's own clock.
pub fn look(record: &Record, fingerprint: &[u8], promoted_at: Option<Instant>, now: Instant) -> Settled {
    let Some(work) = record.work_for(promoted_at, now) else { return Settled::Miss };
    if differs(work, fingerprint) {
        return Settled::Mismatch;
    }
    match lookup(work, promoted_at, now) {
        Some(settled) => settled,
        None => Settled::Miss,
    }
}

/// The reply to a caller that may not run; `None` if nothing is in the way.
pub fn lookup(work: &Work, promoted_at: Option<Instant>, now: Instant) -> Option<Settled> {
    match &work.phase {
        WorkPhase::Running { lease, ends, .. } => {
            let ends = ends_for(*ends, *lease, promoted_at, now);
            (ends > now).then(|| Settled::Busy { remaining: now.until(ends), attempt: work.attempt })
        }
        WorkPhase::Idle { .. } if work.is_held() => Some(Settled::Held { attempt: work.attempt }),
        WorkPhase::Idle { .. } => None,
        WorkPhase::Done { at, failed, result, .. } => {
            Some(Settled::Replay(Replay { failed: *failed, result: result.clone(), age: at.until(now) }))
        }
    }
}

fn differs(work: &Work, fingerprint: &[u8]) -> bool {
    !fingerprint.is_empty() && !work.fingerprint.is_empty() && *work.fingerprint != *fingerprint
}

/// Why a token that is not the last one does not run.
fn why_lost(work: Option<&Work>) -> Reason {
    if work.is_some() { Reason::Taken } else { Reason::Absent }
}

impl From<Idle> for Reason {
    fn from(idle: Idle) -> Self {
        match idle {
            Idle::Aborted => Self::Aborted,
            Idle::Lapsed => Self::Expired,
            Idle::Closed => Self::Closed,
        }
    }
}

fn ask(step: &mut Under<'_>, token: &[u8], request: RunRequest, waiting: Option<Waiting>) -> Decision<Run, Settled> {
    let now = step.now;
    if step.state().seen(now).is_some() {
        return Decision::Conflict;
    }
    if let Record::Work(work) = step.state()
        && let WorkPhase::Running { lease, ends, .. } = work.phase
        && *work.token == *token
        && !differs(work, &request.fingerprint)
    {
        // The same token again: the same run, whose lease never ends earlier than was promised.
        let (fence, attempt) = (work.fence, work.attempt);
        let later = now.plus(request.lease);
        let (lease, ends) = if later > ends { (request.lease, later) } else { (lease, ends) };
        step.time(fence, lease, ends);
        return Decision::Granted(Run { fence, attempt, lease: now.until(ends), waited: Span::ZERO });
    }
    match settled(step.state(), &request.fingerprint, step.promoted_at, now, now) {
        None => Decision::Granted(Machine::grant(step, token, &request, Span::ZERO, now)),
        Some(busy @ Settled::Busy { .. }) => wait(step, token, request, waiting, busy),
        Some(settled) => Decision::Refused(settled),
    }
}

fn wait(
    step: &mut Under<'_>,
    token: &[u8],
    request: RunRequest,
    waiting: Option<Waiting>,
    busy: Settled,
) -> Decision<Run, Settled> {
    match waiting {
        None => {
            step.leaves(token);
            Decision::Refused(busy)
        }
        Some(waiting) if step.queue.len() >= waiting.most && !step.queue.waits(token) => Decision::Refused(busy),
        Some(waiting) => {
            step.enqueue(token, request, waiting, 0);
            Decision::Queued
        }
    }
}

/// The reply to a caller with this fingerprint, from the state at `at`; `None` if nothing is in the way.
fn settled(
    record: &Record,
    fingerprint: &[u8],
    promoted_at: Option<Instant>,
    at: Instant,
    now: Instant,
) -> Option<Settled> {
    let work = record.work_for(promoted_at, at)?;
    if differs(work, fingerprint) {
        return Some(Settled::Mismatch);
    }
    lookup(work, promoted_at, now)
}

impl Stored for Idempotency {
    type State = Record;
    type Edits = SmallVec<[RecordEdit; 1]>;
    const WHOLE: u8 = codec::RECORD;
    const EDITS: Option<u8> = None;

    fn encode(state: &Record, out: &mut impl Buffer) {
        encode_record(state, out);
    }

    /// No step leaves nothing behind, so nobody stores or sends it.
    fn decode(bytes: &[u8]) -> Result<Record, Malformed> {
        decode_record(bytes).and_then(|record| if record == Record::Nothing { Err(Malformed) } else { Ok(record) })
    }

    fn apply_all(state: &mut Record, edits: Self::Edits) {
        edits.into_iter().for_each(|edit| state.apply(edit));
    }

    fn is_nothing(state: &Record) -> bool {
        *state == Record::Nothing
    }

    fn collect_at(state: &Record, salt: u64) -> Option<Instant> {
        state.gc_at(salt)
    }

    fn heap_bytes(state: &Record) -> usize {
        state.heap_bytes()
    }
}

impl Machine for Idempotency {
    type Request = RunRequest;
    type Edit = RecordEdit;
    type Report = RecordEvent;
    type Grant = Run;
    type Refusal = Settled;

    fn apply(state: &mut Record, edit: RecordEdit) -> Option<Crowd> {
        state.apply(edit);
        None
    }

    fn report(_state: &Record, edit: &RecordEdit, reports: &mut SmallVec<[RecordEvent; 1]>) {
        reports.push(edit.event());
    }

    fn check_invariants(state: &Record) {
        state.check_invariants();
    }

    /// The whole record, as it is now.
    fn encode_edits(state: &Record, _edits: &[RecordEvent], out: &mut impl Buffer) {
        encode_record(state, out);
    }

    fn last_fence(state: &Record) -> u64 {
        state.last_fence()
    }

    fn leases(state: &Record) -> impl Iterator<Item = Lease<'_>> {
        state.lease().into_iter()
    }

    fn mend(state: &mut Record, promoted_at: Option<Instant>, now: Instant) -> SmallVec<[RecordEdit; 1]> {
        let mut edits = SmallVec::new();
        if state.written_at().is_some_and(|at| at > now.plus(CLOCK_JITTER)) {
            edits.push(RecordEdit::Mended { now });
        }
        if let Some(Lease { length: lease, ends, .. }) = state.lease() {
            let right = ends_for(ends, lease, promoted_at, now);
            if right != ends {
                edits.push(RecordEdit::Timed { lease, ends: right });
            }
        }
        edits
    }

    fn timed(_fence: u64, lease: Span, ends: Instant) -> RecordEdit {
        RecordEdit::Timed { lease, ends }
    }

    fn ended(_step: &OpenStep<'_, Self>, _fence: u64, at: Instant, how: End) -> RecordEdit {
        let why = match how {
            End::Released | End::Broken => Idle::Aborted,
            End::Expired => Idle::Lapsed,
            End::Closed => Idle::Closed,
        };
        RecordEdit::Stopped { at, why }
    }

    /// Every waiter gets the result, or the reply that the key is held; one runs if no other does.
    fn turn(step: &Under<'_>, head: &Waiter<RunRequest>, at: Instant) -> Turn<Settled> {
        if step.state().lease().is_some() {
            return Turn::Wait;
        }
        match settled(step.state(), &head.request.fingerprint, step.promoted_at, at, step.now) {
            Some(settled) => Turn::Refuse(settled),
            None => Turn::Grant,
        }
    }

    fn grant(step: &mut Under<'_>, token: &[u8], request: &RunRequest, waited: Span, at: Instant) -> Run {
        let (now, lease) = (step.now, request.lease);
        let fence = step.issue_fence();
        let before = step.state().work(at);
        let attempt = before.map_or(1, |work| work.attempt.saturating_add(1));
        let known = before.map(|work| &work.fingerprint).filter(|known| !known.is_empty());
        let fingerprint = known.unwrap_or(&request.fingerprint).clone();
        let phase = WorkPhase::Running { since: now, lease, ends: now.plus(lease) };
        let (keep, on_lapse) = (request.keep, request.on_lapse);
        let work = Work { fingerprint, token: token.into(), fence, attempt, keep, on_lapse, phase };
        step.edit(RecordEdit::Ran(Box::new(work)));
        Run { fence, attempt, lease, waited }
    }

    fn timed_out(
        state: &Record,
        _queue: &Queue<RunRequest>,
        request: Option<&RunRequest>,
        promoted_at: Option<Instant>,
        now: Instant,
    ) -> Settled {
        let fingerprint = request.map_or(&[][..], |request| &request.fingerprint);
        let attempt = match state {
            Record::Work(work) if state.lease().is_some() => work.attempt,
            _ => 0,
        };
        let settled = settled(state, fingerprint, promoted_at, now, now);
        settled.unwrap_or(Settled::Busy { remaining: Span::ZERO, attempt })
    }

    fn terms(run: &Run) -> Terms {
        Terms { fence: run.fence, lease: run.lease, waited: run.waited }
    }

    fn bind_to(request: &RunRequest) -> Option<Binding> {
        request.bind_to
    }
}
