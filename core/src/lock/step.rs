//! The machine, and its transitions.

use smallvec::SmallVec;

use super::edit::{HolderEdit, HolderEdits};
use super::encoding::{Kind, decode_edits, decode_holders, encode_edits, encode_holders};
use super::holder::{EndedHolding, Holder, Mode};
use super::holders::Holders;
use super::request::{Busy, Claim, LockRequest, Raise, Raised, Released};
use super::view::busy;
use crate::codec::{self, Buffer, Malformed};
use crate::limits::{GRACE, HOLDERS_MAX};
use crate::stored::Stored;
use crate::time::{Instant, Span};
use crate::waited::{
    Asked, Binding, Crowd, Decision, End, Grant, Lease, Machine, OpenStep, Queue, Reason, Renewed, Setting, Stepped,
    Terms, Turn, WaitedKey, Waiter, Waiting,
};

/// The machine of both. They differ in their bytes, and in what they say of a loss.
pub struct Holding<const IS_LOCK: bool>;
pub type Locks = Holding<LOCK>;
pub type Bulkheads = Holding<BULKHEAD>;
pub const LOCK: bool = true;
pub const BULKHEAD: bool = false;

impl<const IS_LOCK: bool> Holding<IS_LOCK> {
    const STORED_AS: Kind = if IS_LOCK { Kind::Lock } else { Kind::Bulkhead };
}

/// `owner` asks; `waiting` says how it waits if it must.
pub fn acquire<const L: bool>(
    key: &mut WaitedKey<'_, Holding<L>>,
    owner: &[u8],
    request: LockRequest,
    waiting: Option<Waiting>,
    setting: &mut Setting<'_>,
) -> Stepped<Holding<L>, Asked<Holding<L>>> {
    let mut step = begin_for(owner, key, setting);
    if let Claim::Permit { max, .. } = request.claim {
        // Each ENTER brings its `max`, and the newest counts for the whole queue: waiters are served by it, before the caller
        // who brought it.
        step.queue.max = Some(max);
        step.serve(step.now);
    }
    let verdict = match step.state().by_owner(owner).map(|holder| (holder.fence, holder.mode())) {
        Some((fence, mode)) => ask_again(&mut step, fence, mode, &request),
        None => ask(&mut step, owner, request, waiting),
    };
    step.end_asked(verdict, waiting)
}

/// The lease of `owner` ends `lease` from now.
pub fn renew<const L: bool>(
    key: &mut WaitedKey<'_, Holding<L>>,
    owner: &[u8],
    fence: Option<u64>,
    lease: Span,
    setting: &mut Setting<'_>,
) -> Stepped<Holding<L>, Renewed> {
    let mut step = begin_for(owner, key, setting);
    let verdict = match held_by(step.state(), owner, fence) {
        Some(fence) => {
            step.time(fence, lease, step.now.plus(lease));
            step.tell(fence);
            Renewed::Granted(grant_of(&step, fence, Span::ZERO))
        }
        None => Renewed::Lost(why_lost(&step, owner, fence)),
    };
    step.end(verdict)
}

/// The lease of the exclusive holder `owner` ends `lease` from now, and its fence, the key's last and the server's highest
/// are at least that of `raise`: one edit.
pub fn raise(
    key: &mut WaitedKey<'_, Locks>,
    owner: &[u8],
    fence: Option<u64>,
    lease: Span,
    raise: Raise,
    setting: &mut Setting<'_>,
) -> Stepped<Locks, Raised> {
    let mut step = begin_for(owner, key, setting);
    let holder = held_by(step.state(), owner, fence).and_then(|fence| step.state().by_fence(fence));
    let verdict = match holder.map(|holder| (holder.fence, holder.mode())) {
        None => Raised::Lost(why_lost(&step, owner, fence)),
        Some((_, Mode::Shared)) => Raised::NotExclusive,
        Some((held, Mode::Exclusive)) => match raise.excess(step.now) {
            // What the server knows of already puts nothing ahead, wherever the clock is.
            Some(excess) if !step.knows_of(raise.fence) => Raised::TooFarAhead(excess),
            _ => {
                let fence = held.max(raise.fence);
                if fence > held {
                    let raised = holder.map(|holder| holder.raised(fence, lease, step.now.plus(lease)));
                    step.heard_of(fence);
                    raised.into_iter().for_each(|holder| step.edit(HolderEdit::Raised(holder)));
                } else {
                    step.time(fence, lease, step.now.plus(lease));
                }
                step.tell(fence);
                Raised::Granted(grant_of(&step, fence, Span::ZERO))
            }
        },
    };
    step.end(verdict)
}

/// `owner` lets go. If it still waits, it leaves the queue, and the others move up.
pub fn release<const L: bool>(
    key: &mut WaitedKey<'_, Holding<L>>,
    owner: &[u8],
    fence: Option<u64>,
    setting: &mut Setting<'_>,
) -> Stepped<Holding<L>, Released> {
    let mut step = begin_for(owner, key, setting);
    let held = held_by(step.state(), owner, fence);
    let verdict = match held.and_then(|fence| step.finish(fence, step.now, End::Released)) {
        Some(held) => Released::Released { held },
        // A fence names a holding, never a wait.
        None if fence.is_none() && step.leaves(owner) => Released::Released { held: Span::ZERO },
        None => match own_end(&step, owner, fence) {
            Some((End::Released, held)) => Released::Released { held },
            _ => Released::Lost(why_lost(&step, owner, fence)),
        },
    };
    step.end(verdict)
}

/// An operator ends every holding. The verdict is how many there were.
pub fn break_all<const L: bool>(
    key: &mut WaitedKey<'_, Holding<L>>,
    setting: &mut Setting<'_>,
) -> Stepped<Holding<L>, usize> {
    let mut step = OpenStep::begin(key, setting);
    let (at, how, broken) = (step.now, End::Broken, step.state().len());
    if OpenStep::<Holding<L>>::are_too_many(broken) {
        step.edit(HolderEdit::AllEnded { at, how });
    } else {
        let fences: SmallVec<[u64; 1]> = step.state().iter().map(|holder| holder.fence).collect();
        for fence in fences {
            step.finish(fence, at, how);
        }
    }
    step.end(broken)
}

/// True if a caller who asks like this now would be granted it at once. A claim brings the newest `max`.
pub fn could_take<const L: bool>(key: &WaitedKey<'_, Holding<L>>, claim: Claim) -> bool {
    key.queue.would_lead(claim.priority()) && fits(key.state, claim, None)
}

/// A step for a call of `owner`, whose own lease has ended even if very many ended before it.
fn begin_for<'a, const L: bool>(
    owner: &[u8],
    key: &'a mut WaitedKey<'_, Holding<L>>,
    setting: &'a mut Setting<'_>,
) -> OpenStep<'a, Holding<L>> {
    let mut step = OpenStep::begin(key, setting);
    let over = step.state().by_owner(owner).filter(|holder| holder.ends <= step.now);
    if let Some((fence, ends)) = over.map(|holder| (holder.fence, holder.ends))
        && step.expire(fence, ends)
    {
        step.serve(step.now);
    }
    step
}

/// The same owner asks for what it has.
fn ask_again<const L: bool>(
    step: &mut OpenStep<'_, Holding<L>>,
    fence: u64,
    mode: Mode,
    request: &LockRequest,
) -> Decision<Grant, Busy> {
    let wanted = request.claim.mode();
    if mode == Mode::Shared && wanted == Mode::Exclusive && (step.state().len() > 1 || !step.queue.is_empty()) {
        return Decision::Conflict;
    }
    if mode != wanted {
        step.edit(HolderEdit::Moded { fence, mode: wanted });
    }
    // The lease never ends earlier than was promised.
    let ends = step.now.plus(request.lease);
    if step.state().by_fence(fence).is_some_and(|holder| holder.ends < ends) {
        step.time(fence, request.lease, ends);
    }
    Decision::Granted(grant_of(step, fence, Span::ZERO))
}

/// An owner that does not hold asks: a newcomer, or one that already waits.
fn ask<const L: bool>(
    step: &mut OpenStep<'_, Holding<L>>,
    owner: &[u8],
    request: LockRequest,
    waiting: Option<Waiting>,
) -> Decision<Grant, Busy> {
    let Some(waiting) = waiting else {
        if step.leaves(owner) {
            step.serve(step.now);
        }
        return take_now(step, owner, &request).unwrap_or_else(|| Decision::Refused(busy_of(step)));
    };
    if !step.queue.waits(owner) {
        if let Some(granted) = take_now(step, owner, &request) {
            return granted;
        }
        if !may_wait(step, request.claim, waiting.most) {
            return Decision::Refused(busy_of(step));
        }
    }
    let priority = request.claim.priority();
    step.enqueue(owner, request, waiting, priority);
    Decision::Queued
}

/// Grants at once if it fits and takes nothing from those before it.
fn take_now<const L: bool>(
    step: &mut OpenStep<'_, Holding<L>>,
    owner: &[u8],
    request: &LockRequest,
) -> Option<Decision<Grant, Busy>> {
    let is_next = step.queue.would_lead(request.claim.priority()) || fits_beside_all_waiters(step, request.claim);
    if !is_next || !fits(step.state(), request.claim, step.queue.max) {
        return None;
    }
    Some(Decision::Granted(Machine::grant(step, owner, request, Span::ZERO, step.now)))
}

/// `newest`: the `max` of the newest call, which counts for everybody.
fn fits(holders: &Holders, claim: Claim, newest: Option<u32>) -> bool {
    match claim {
        Claim::Exclusive => holders.is_empty(),
        Claim::Shared => !holders.is_exclusive() && holders.len() < HOLDERS_MAX,
        Claim::Permit { max, .. } => holders.len() < (newest.unwrap_or(max) as usize).min(HOLDERS_MAX),
    }
}

/// True if the caller fits even after everybody who waits has been served. That is so while very many are served in parts: they
/// only wait for their turn, and nobody is overtaken.
fn fits_beside_all_waiters<const L: bool>(step: &OpenStep<'_, Holding<L>>, claim: Claim) -> bool {
    let (holders, all) = (step.state(), step.state().len() + step.queue.len());
    match claim {
        Claim::Exclusive => false,
        Claim::Shared => {
            let is_reader = |waiter: &Waiter<LockRequest>| waiter.request.claim == Claim::Shared;
            !holders.is_exclusive() && all < HOLDERS_MAX && step.queue.waiters().all(is_reader)
        }
        Claim::Permit { max, .. } => all < (step.queue.max.unwrap_or(max) as usize).min(HOLDERS_MAX),
    }
}

/// A lock's queue has `most` positions; a bulkhead has `max` and `most` together, holders and waiters alike.
fn may_wait<const L: bool>(step: &OpenStep<'_, Holding<L>>, claim: Claim, most: usize) -> bool {
    match claim {
        Claim::Exclusive | Claim::Shared => step.queue.len() < most,
        Claim::Permit { max, .. } => step.state().len() + step.queue.len() < max as usize + most,
    }
}

fn grant_of<const L: bool>(step: &OpenStep<'_, Holding<L>>, fence: u64, waited: Span) -> Grant {
    let lease = step.state().by_fence(fence).map_or(Span::ZERO, |holder| step.now.until(holder.ends));
    Grant { fence, lease, waited, active: step.state().len(), queued: step.queue.len() }
}

fn busy_of<const L: bool>(step: &OpenStep<'_, Holding<L>>) -> Busy {
    busy(step.state(), step.queue, step.now)
}

fn held_by(holders: &Holders, owner: &[u8], fence: Option<u64>) -> Option<u64> {
    let held = holders.by_owner(owner)?.fence;
    fence.is_none_or(|fence| fence == held).then_some(held)
}

/// How the owner's own last holding ended, if that is still remembered.
fn own_end<const L: bool>(step: &OpenStep<'_, Holding<L>>, owner: &[u8], fence: Option<u64>) -> Option<(End, Span)> {
    let fits = |end: &&EndedHolding| &*end.owner == owner && fence.is_none_or(|fence| fence == end.fence);
    let end = step.state().ended().iter().rev().find(fits)?;
    (end.at.plus(GRACE) > step.now).then_some((end.how, end.held))
}

fn why_lost<const L: bool>(step: &OpenStep<'_, Holding<L>>, owner: &[u8], fence: Option<u64>) -> Reason {
    match own_end(step, owner, fence) {
        Some((how, _)) => how.into(),
        None if L && !step.state().is_empty() => Reason::Taken,
        None => Reason::Absent,
    }
}

impl<const IS_LOCK: bool> Stored for Holding<IS_LOCK> {
    type State = Holders;
    type Edits = HolderEdits;
    const WHOLE: u8 = if IS_LOCK { codec::LOCK } else { codec::BULKHEAD };
    const EDITS: Option<u8> = Some(if IS_LOCK { codec::LOCK_EDITS } else { codec::BULKHEAD_EDITS });

    fn encode(state: &Holders, out: &mut impl Buffer) {
        encode_holders(Self::STORED_AS, state, out);
    }

    fn decode(bytes: &[u8]) -> Result<Holders, Malformed> {
        let (kind, holders) = decode_holders(bytes)?;
        if kind == Self::STORED_AS { Ok(holders) } else { Err(Malformed) }
    }

    fn decode_edits(bytes: &[u8]) -> Result<HolderEdits, Malformed> {
        let (kind, edits) = decode_edits(bytes)?;
        if kind == Self::STORED_AS { Ok(edits) } else { Err(Malformed) }
    }

    fn apply_all(state: &mut Holders, edits: HolderEdits) {
        edits.into_iter().for_each(|edit| drop(state.apply(edit)));
    }

    fn collect_at(state: &Holders, salt: u64) -> Option<Instant> {
        Some(state.gc_at(salt))
    }

    fn heap_bytes(state: &Holders) -> usize {
        state.heap_bytes()
    }

    fn bytes_about(state: &Holders) -> usize {
        state.bytes_about()
    }

    fn parts(state: &Holders) -> usize {
        state.parts()
    }
}

impl<const IS_LOCK: bool> Machine for Holding<IS_LOCK> {
    type Request = LockRequest;
    type Edit = HolderEdit;
    type Report = HolderEdit;
    type Grant = Grant;
    type Refusal = Busy;

    fn apply(state: &mut Holders, edit: HolderEdit) -> Option<Crowd> {
        state.apply(edit)
    }

    fn report(_state: &Holders, edit: &HolderEdit, reports: &mut SmallVec<[HolderEdit; 1]>) {
        reports.push(edit.clone());
    }

    fn check_invariants(state: &Holders) {
        state.check_invariants();
    }

    fn encode_edits(state: &Holders, edits: &[HolderEdit], out: &mut impl Buffer) {
        if edits.iter().any(|edit| matches!(edit, HolderEdit::AllEnded { .. })) {
            encode_holders(Self::STORED_AS, state, out);
        } else {
            encode_edits(Self::STORED_AS, edits, out);
        }
    }

    fn last_fence(state: &Holders) -> u64 {
        state.last_fence()
    }

    fn leases(state: &Holders) -> impl Iterator<Item = Lease<'_>> {
        state.iter().map(Holder::as_lease)
    }

    fn first_lease(state: &Holders) -> Option<Lease<'_>> {
        let (_, fence) = state.first_end()?;
        Self::lease(state, fence)
    }

    fn lease(state: &Holders, fence: u64) -> Option<Lease<'_>> {
        state.by_fence(fence).map(Holder::as_lease)
    }

    fn lease_after(state: &Holders, fence: u64) -> Option<Lease<'_>> {
        state.after(fence).map(Holder::as_lease)
    }

    fn mend(state: &mut Holders, promoted_at: Option<Instant>, now: Instant) -> SmallVec<[HolderEdit; 1]> {
        state.mend(promoted_at, now)
    }

    fn timed(fence: u64, lease: Span, ends: Instant) -> HolderEdit {
        HolderEdit::Timed { fence, lease, ends }
    }

    fn ended(_step: &OpenStep<'_, Self>, fence: u64, at: Instant, how: End) -> HolderEdit {
        HolderEdit::Ended { fence, at, how }
    }

    fn turn(step: &OpenStep<'_, Self>, head: &Waiter<LockRequest>, _at: Instant) -> Turn<Busy> {
        if fits(step.state(), head.request.claim, step.queue.max) { Turn::Grant } else { Turn::Wait }
    }

    fn grant(step: &mut OpenStep<'_, Self>, owner: &[u8], request: &LockRequest, waited: Span, _at: Instant) -> Grant {
        let fence = step.issue_fence();
        let times = (step.now, step.now.plus(request.lease));
        let mode = request.claim.mode();
        step.edit(HolderEdit::Granted(Holder::new(owner, &request.meta, fence, times, request.lease, mode)));
        grant_of(step, fence, waited)
    }

    fn timed_out(
        state: &Holders,
        queue: &Queue<LockRequest>,
        _request: Option<&LockRequest>,
        _promoted_at: Option<Instant>,
        now: Instant,
    ) -> Busy {
        busy(state, queue, now)
    }

    fn terms(grant: &Grant) -> Terms {
        Terms { fence: grant.fence, lease: grant.lease, waited: grant.waited }
    }

    fn bind_to(request: &LockRequest) -> Option<Binding> {
        request.bind_to
    }
}
