//! The machine of ledgers: what the engine of everything that can be waited for needs to know of them.

use alloc::boxed::Box;

use smallvec::SmallVec;

use super::background::{alarms, background};
use super::edit::{LedgerEdit, LedgerEdits, TakenEdit};
use super::encoding::{decode_edits, decode_ledger, encode_edits, encode_ledger, encode_pieces, load_piece};
use super::ledger::{ENDED_AT_ONCE, Ledger, TakenBatch};
use super::request::{NothingDue, TakeRequest, Taken};
use super::taking::{can_take, choose, nothing_due, taken};
use crate::codec::{self, Buffer, Malformed};
use crate::stored::Stored;
use crate::time::{Instant, Span};
use crate::waited::{Binding, Crowd, End, Lease, Machine, OpenStep, Queue, Stepped, Terms, Turn, WaitedKey, Waiter};

/// The machine of ledgers.
pub struct Ledgers;

pub(super) type Step<'a> = OpenStep<'a, Ledgers>;
pub(super) type Key<'a> = WaitedKey<'a, Ledgers>;

/// What has died is looked at for alerts, and the step ends.
pub(super) fn end<V>(mut step: Step<'_>, verdict: V) -> Stepped<Ledgers, V> {
    look_for_alarms(&mut step);
    step.end(verdict)
}

pub(super) fn look_for_alarms(step: &mut Step<'_>) {
    for edit in alarms(step.state(), step.now) {
        step.edit(edit);
    }
}

/// If an entry is the last of a batch, the lease ends with it: see [`Ledger::last_of`].
pub(super) fn note_last_of_batch(step: &mut Step<'_>, last_of: Option<u64>) {
    if let Some(fence) = last_of {
        step.note_end(fence, step.now, End::Released);
    }
}

impl Stored for Ledgers {
    type State = Ledger;
    type Edits = LedgerEdits;
    const WHOLE: u8 = codec::LEDGER;
    const EDITS: Option<u8> = Some(codec::LEDGER_EDITS);

    fn encode(state: &Ledger, out: &mut impl Buffer) {
        encode_ledger(state, out);
    }

    const IN_PIECES: bool = true;

    fn encode_pieces(state: &Ledger, emit: &mut dyn FnMut(&[u8])) {
        encode_pieces(state, emit);
    }

    fn load_piece(state: &mut Ledger, bytes: &[u8]) -> Result<(), Malformed> {
        load_piece(state, bytes)
    }

    fn loaded(state: &mut Ledger) {
        state.end_loading();
    }

    fn is_whole(state: &Ledger) -> bool {
        state.is_whole()
    }

    fn decode(bytes: &[u8]) -> Result<Ledger, Malformed> {
        decode_ledger(bytes)
    }

    fn decode_edits(bytes: &[u8]) -> Result<LedgerEdits, Malformed> {
        decode_edits(bytes)
    }

    fn apply_all(state: &mut Ledger, edits: LedgerEdits) {
        edits.into_iter().for_each(|edit| state.apply(edit));
    }

    /// A ledger stays until somebody deletes it.
    fn collect_at(_state: &Ledger, _salt: u64) -> Option<Instant> {
        None
    }

    fn heap_bytes(state: &Ledger) -> usize {
        state.heap_bytes()
    }

    fn parts(state: &Ledger) -> usize {
        1 + state.len()
    }
}

impl Machine for Ledgers {
    type Request = TakeRequest;
    type Edit = LedgerEdit;
    type Report = LedgerEdit;
    type Grant = Taken;
    type Refusal = NothingDue;

    fn apply(state: &mut Ledger, edit: LedgerEdit) -> Option<Crowd> {
        state.apply(edit);
        None
    }

    fn report(_state: &Ledger, edit: &LedgerEdit, reports: &mut SmallVec<[LedgerEdit; 1]>) {
        // What a call does to many entries is one change.
        if !reports.last_mut().is_some_and(|last| last.absorb(edit)) {
            reports.push(edit.clone());
        }
    }

    fn check_invariants(state: &Ledger) {
        state.check_invariants();
    }

    fn encode_edits(_state: &Ledger, edits: &[LedgerEdit], out: &mut impl Buffer) {
        encode_edits(edits, out);
    }

    fn last_fence(state: &Ledger) -> u64 {
        state.last_fence()
    }

    fn leases(state: &Ledger) -> impl Iterator<Item = Lease<'_>> {
        state.leases()
    }

    fn first_lease(state: &Ledger) -> Option<Lease<'_>> {
        state.first_lease()
    }

    fn lease(state: &Ledger, fence: u64) -> Option<Lease<'_>> {
        state.lease(fence)
    }

    fn lease_after(state: &Ledger, fence: u64) -> Option<Lease<'_>> {
        state.lease_after(fence)
    }

    fn mend(state: &mut Ledger, promoted_at: Option<Instant>, now: Instant) -> SmallVec<[LedgerEdit; 1]> {
        background(state, promoted_at, now)
    }

    fn timed(fence: u64, length: Span, ends: Instant) -> LedgerEdit {
        LedgerEdit::Timed { fence, length, ends }
    }

    fn ended(step: &OpenStep<'_, Self>, fence: u64, at: Instant, how: End) -> LedgerEdit {
        // A taker that could not reach the server is not to blame.
        let counted = step.state().lease(fence).is_some_and(|lease| lease.since >= step.up_since);
        let how = step.state().notes.ending.get(&fence).copied().unwrap_or(how);
        LedgerEdit::Ended { fence, at, how, counted }
    }

    fn turn(step: &OpenStep<'_, Self>, head: &Waiter<TakeRequest>, _at: Instant) -> Turn<NothingDue> {
        if !step.state().is_open {
            // The ledger was deleted: there is nothing to wait for.
            Turn::Refuse(NothingDue { next: None })
        } else if can_take(step, Some(head.deadline)) {
            Turn::Grant
        } else {
            Turn::Wait
        }
    }

    fn grant(step: &mut OpenStep<'_, Self>, owner: &[u8], request: &TakeRequest, waited: Span, _at: Instant) -> Taken {
        let chosen = choose(step, request.count);
        let redriven = chosen.iter().find(|candidate| candidate.case.is_some());
        let drawn = redriven.filter(|candidate| candidate.is_drawn);
        let drawn = drawn.and_then(|candidate| Some((candidate.arrival, candidate.case?)));
        let pace = redriven.and_then(|candidate| candidate.case).map(|case| step.now.plus(step.state().interval(case)));
        let fence = step.issue_fences(chosen.len().max(1));
        let batch = TakenBatch {
            token: owner.into(),
            meta: request.meta.clone(),
            since: step.now,
            length: request.lease,
            ends: step.now.plus(request.lease),
            members: chosen.iter().map(|candidate| candidate.arrival).collect(),
            left: chosen.len(),
        };
        step.edit(LedgerEdit::Taken(Box::new(TakenEdit { fence, batch, drawn, pace })));
        taken(step, fence, waited)
    }

    fn timed_out(
        state: &Ledger,
        _queue: &Queue<TakeRequest>,
        _request: Option<&TakeRequest>,
        promoted_at: Option<Instant>,
        now: Instant,
    ) -> NothingDue {
        nothing_due(state, promoted_at.unwrap_or(Instant::EPOCH), now)
    }

    fn work_at(step: &OpenStep<'_, Self>) -> Option<Instant> {
        let (state, now) = (step.state(), step.now);
        let next = if step.queue.is_empty() { None } else { state.next_due(step.up_since, now) };
        // What a full step could not serve is served by the next, which the engine asks for.
        let next = next.map(|next| next.max(now.plus(Span::from_us(1))));
        state.background_at(!step.queue.is_empty(), now).into_iter().chain(next).min()
    }

    fn lease_weight(state: &Ledger, fence: u64) -> usize {
        state.batches.get(&fence).map_or(1, |batch| batch.left.min(ENDED_AT_ONCE))
    }

    fn is_ending(state: &Ledger, fence: u64) -> bool {
        state.notes.ending.contains_key(&fence)
    }

    fn grant_weight(grant: &Taken) -> usize {
        grant.entries.len()
    }

    fn terms(grant: &Taken) -> Terms {
        Terms { fence: grant.fence, lease: grant.lease, waited: grant.waited }
    }

    fn bind_to(request: &TakeRequest) -> Option<Binding> {
        request.bind_to
    }
}
