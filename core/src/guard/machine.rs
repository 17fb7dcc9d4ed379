//! The machine, as the engine of everything that can be waited for sees it.

use smallvec::SmallVec;

use super::edit::{GuardEdit, GuardEdits};
use super::encoding::{decode_edits, decode_guard, encode_edits, encode_guard};
use super::layers::{PlaceNow, mended_limit};
use super::request::{Admitted, EnterRefusal, EnterRequest, Layer, LayerRefusal, RefusedFor};
use super::state::Guard;
use super::step::{decide, place, shed_in_queue, take, take_back};
use crate::circuit_breaker::mended_clock;
use crate::codec::{self, Buffer, Malformed};
use crate::rate_limit::{Ask, Wait};
use crate::stored::Stored;
use crate::time::{Instant, Span};
use crate::waited::{
    Binding, Crowd, End, Lease, Machine, OpenStep, Queue, Setting, Stepped, Terms, Turn, WaitedKey, Waiter,
};

/// The machine of stored policies.
pub struct Guards;

pub(super) type Step<'a> = OpenStep<'a, Guards>;
pub type Key<'a> = WaitedKey<'a, Guards>;

impl Stored for Guards {
    type State = Guard;
    type Edits = GuardEdits;
    const WHOLE: u8 = codec::GUARD;
    const EDITS: Option<u8> = Some(codec::GUARD_EDITS);

    fn encode(state: &Guard, out: &mut impl Buffer) {
        encode_guard(state, out);
    }

    fn decode(bytes: &[u8]) -> Result<Guard, Malformed> {
        decode_guard(bytes)
    }

    fn decode_edits(bytes: &[u8]) -> Result<GuardEdits, Malformed> {
        decode_edits(bytes)
    }

    fn apply_all(state: &mut Guard, edits: GuardEdits) {
        edits.into_iter().for_each(|edit| state.apply(edit));
    }

    fn is_nothing(state: &Guard) -> bool {
        state.versions.is_empty()
    }

    /// A policy stays until somebody deletes it; its tombstone goes by itself.
    fn collect_at(state: &Guard, _salt: u64) -> Option<Instant> {
        state.versions.collect_at()
    }

    fn heap_bytes(state: &Guard) -> usize {
        state.heap_bytes()
    }

    fn bytes_about(state: &Guard) -> usize {
        state.bytes_about()
    }

    fn parts(state: &Guard) -> usize {
        4 + state.versions.len() + state.tickets().len()
    }
}

impl Machine for Guards {
    type Request = EnterRequest;
    type Edit = GuardEdit;
    type Report = GuardEdit;
    type Grant = Admitted;
    type Refusal = EnterRefusal;

    fn apply(state: &mut Guard, edit: GuardEdit) -> Option<Crowd> {
        state.apply(edit);
        None
    }

    fn report(_state: &Guard, edit: &GuardEdit, reports: &mut SmallVec<[GuardEdit; 1]>) {
        reports.push(edit.clone());
    }

    fn check_invariants(state: &Guard) {
        state.check_invariants();
    }

    fn encode_edits(_state: &Guard, edits: &[GuardEdit], out: &mut impl Buffer) {
        encode_edits(edits, out);
    }

    fn last_fence(state: &Guard) -> u64 {
        state.last_fence
    }

    fn leases(state: &Guard) -> impl Iterator<Item = Lease<'_>> {
        state.tickets.iter().map(super::ticket::Ticket::as_lease)
    }

    fn first_lease(state: &Guard) -> Option<Lease<'_>> {
        state.tickets.first_to_end().map(super::ticket::Ticket::as_lease)
    }

    fn lease(state: &Guard, fence: u64) -> Option<Lease<'_>> {
        state.tickets.get(fence).map(super::ticket::Ticket::as_lease)
    }

    fn lease_after(state: &Guard, fence: u64) -> Option<Lease<'_>> {
        state.tickets.after(fence).map(super::ticket::Ticket::as_lease)
    }

    fn mend(state: &mut Guard, promoted_at: Option<Instant>, now: Instant) -> SmallVec<[GuardEdit; 1]> {
        state.learned.discard_some();
        let mut edits: SmallVec<[GuardEdit; 1]> = SmallVec::new();
        let mended = state.tickets.mended(promoted_at, now).into_iter();
        edits.extend(mended.map(|(number, lease, ends)| GuardEdit::Timed { number, lease, ends }));
        if state.learned.may_be_set_back(promoted_at, now) {
            edits.extend(state.breaker().and_then(|breaker| mended_clock(breaker, now)).map(GuardEdit::Broke));
            edits.extend(mended_limit(state, None, now).map(GuardEdit::from));
        }
        edits
    }

    fn timed(fence: u64, length: Span, ends: Instant) -> GuardEdit {
        GuardEdit::Timed { number: fence, lease: length, ends }
    }

    fn ended(_step: &OpenStep<'_, Self>, fence: u64, at: Instant, how: End) -> GuardEdit {
        GuardEdit::Ended { number: fence, at, how }
    }

    /// All but the throttle are asked again when a place is free: the policy may have changed since.
    fn turn(step: &OpenStep<'_, Self>, head: &Waiter<EnterRequest>, _at: Instant) -> Turn<EnterRefusal> {
        if step.state().settings().is_none() {
            return Turn::Refuse(EnterRefusal::NoPolicy);
        }
        if place(step, true) != PlaceNow::Free {
            return Turn::Wait;
        }
        if let Some(refusal) = shed_in_queue(step, &head.request) {
            return Turn::Refuse(EnterRefusal::Layer(refusal));
        }
        match decide(step, &head.request, None, PlaceNow::Free) {
            Ok(_) => Turn::Grant,
            Err(refusal) => Turn::Refuse(refusal),
        }
    }

    fn grant(
        step: &mut OpenStep<'_, Self>,
        owner: &[u8],
        request: &EnterRequest,
        waited: Span,
        _at: Instant,
    ) -> Admitted {
        let limited = decide(step, request, None, PlaceNow::Free).ok().flatten();
        take(step, owner, request, waited, None, limited)
    }

    fn timed_out(
        state: &Guard,
        _queue: &Queue<EnterRequest>,
        _request: Option<&EnterRequest>,
        _promoted_at: Option<Instant>,
        now: Instant,
    ) -> EnterRefusal {
        let Some(settings) = state.settings() else { return EnterRefusal::NoPolicy };
        let limited = super::layers::ask_limit(state, settings, None, Ask::Peek, now).ok().flatten();
        let first = state.tickets.first_to_end().map_or(Span::ZERO, |ticket| now.until(ticket.ends));
        EnterRefusal::Layer(LayerRefusal {
            layer: Layer::Bulkhead,
            retry_after: Wait::For(first),
            reason: RefusedFor::Timeout,
            version: state.version(),
            rate: limited.map(|limited| limited.verdict.binding().into()),
        })
    }

    fn count_refusal(state: &mut Guard, refusal: &EnterRefusal) {
        if let EnterRefusal::Layer(refusal) = refusal {
            state.learned.count_refusal(refusal.layer);
        }
    }

    /// What a deleted policy has left behind is freed a little at a time.
    fn work_at(step: &OpenStep<'_, Self>) -> Option<Instant> {
        step.state().learned.has_leftovers().then_some(step.now)
    }

    fn terms(grant: &Admitted) -> Terms {
        Terms { fence: grant.ticket, lease: grant.lease, waited: grant.waited }
    }

    fn bind_to(_request: &EnterRequest) -> Option<Binding> {
        None
    }

    /// The call is over, as if it had been cancelled: a probe is free again, too, and a ticket that it came with is good again.
    fn take_back(key: &mut WaitedKey<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        let mut step = OpenStep::begin(key, setting);
        let was_held = take_back(&mut step, fence);
        step.end(was_held)
    }
}
