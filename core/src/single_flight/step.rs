//! The machine, and its transitions.

use alloc::boxed::Box;
use alloc::sync::Arc;

use smallvec::SmallVec;

use super::edit::{FlightEdit, FlightEdits};
use super::encoding::{decode_edits, decode_flight, encode_edits, encode_flight};
use super::request::{Abandoned, Lead, LeadRequest, Publication, Published, Seen, UnderName};
use super::state::{Cached, Flight, Leader, LoadPause, Stamp, Way};
use super::under::{heed, stamp, void};
use crate::codec::{self, Buffer, Malformed};
use crate::generations::{Generations, Validity};
use crate::limits::{CLOCK_JITTER, GRACE};
use crate::stored::Stored;
use crate::time::{Instant, Span};
use crate::waited::lease::ends_for;
use crate::waited::{
    Asked, Binding, Crowd, Decision, End, Grant, Lease, Machine, OpenStep, Queue, RESULTS_AT_ONCE, Reason, Renewed,
    Setting, Stepped, Terms, Turn, WaitedKey, Waiter, Waiting,
};

/// The machine of single flights.
pub struct Flights;

type Key<'a> = WaitedKey<'a, Flights>;
pub(super) type Open<'a> = OpenStep<'a, Flights>;

/// `token` wants the value, and loads it if nobody else does.
pub fn join(
    key: &mut Key<'_>,
    token: &[u8],
    request: LeadRequest,
    waiting: Option<Waiting>,
    under: Option<&Generations>,
    setting: &mut Setting<'_>,
) -> Stepped<Flights, Asked<Flights>> {
    let mut step = OpenStep::begin(key, setting);
    if let Some(known) = under {
        heed(&mut step, known);
    }
    let verdict = ask(&mut step, token, request, waiting);
    step.end_asked(verdict, waiting)
}

/// The leader brings what it loaded; it is kept for `ttl`, and all followers get it. If the name or a tag was invalidated since
/// the load began, the lead is lost.
pub fn publish(
    key: &mut Key<'_>,
    token: &[u8],
    ttl: Span,
    publication: Publication,
    under: Option<UnderName<'_>>,
    setting: &mut Setting<'_>,
) -> Stepped<Flights, Published> {
    let mut step = OpenStep::begin(key, setting);
    let generation = step.state().leader.as_ref().map_or(0, |leader| leader.generation);
    let verdict = match lost(&step, token) {
        None if under.is_some_and(|under| under.known.voids(generation, under.tags)) => {
            void(&mut step, under.map_or(0, |under| under.known.current()));
            Published::Lost(Reason::Invalidated)
        }
        None => {
            finish(&mut step, Way::Published);
            let stamp = under.map(|under| stamp(generation, under.tags));
            Published::Published { followers: spread(&mut step, ttl, publication, stamp) }
        }
        // The same again: its first reply was lost.
        Some(Reason::Published) => Published::Published { followers: 0 },
        Some(reason) => Published::Lost(reason),
    };
    step.end(verdict)
}

/// A value, or that there is none, from a caller that knows it without a lead. A load under way is voided; followers get the value.
pub fn set(
    key: &mut Key<'_>,
    ttl: Span,
    publication: Publication,
    under: Option<UnderName<'_>>,
    setting: &mut Setting<'_>,
) -> Stepped<Flights, usize> {
    let mut step = OpenStep::begin(key, setting);
    finish(&mut step, Way::Invalidated);
    let stamp = under.map(|under| stamp(under.known.current(), under.tags));
    let followers = spread(&mut step, ttl, publication, stamp);
    step.end(followers)
}

/// For how long a value is kept that very many followers are served from.
const KEPT_FOR_ALL: Span = Span::from_secs(1);

/// The leader gives up; nobody leads for `retry`, if that is given. If the token still waits, it leaves the queue.
pub fn abandon(
    key: &mut Key<'_>,
    token: &[u8],
    retry: Option<Span>,
    setting: &mut Setting<'_>,
) -> Stepped<Flights, Abandoned> {
    let mut step = OpenStep::begin(key, setting);
    let now = step.now;
    let verdict = match lost(&step, token) {
        None => {
            finish(&mut step, Way::Abandoned);
            if let Some(retry) = retry {
                step.edit(FlightEdit::Paused(LoadPause { at: now, until: now.plus(retry), error: None }));
            }
            Abandoned::Abandoned
        }
        Some(_) if step.leaves(token) => Abandoned::Abandoned,
        Some(Reason::Aborted) => Abandoned::Abandoned,
        Some(reason) => Abandoned::Lost(reason),
    };
    step.end(verdict)
}

/// The lease of the leader ends `lease` from now.
pub fn renew(key: &mut Key<'_>, token: &[u8], lease: Span, setting: &mut Setting<'_>) -> Stepped<Flights, Renewed> {
    let mut step = OpenStep::begin(key, setting);
    let fence = step.state().leader.as_ref().map(|leader| leader.fence);
    let verdict = match (lost(&step, token), fence) {
        (None, Some(fence)) => {
            step.time(fence, lease, step.now.plus(lease));
            step.tell(fence);
            Renewed::Granted(Grant { fence, lease, waited: Span::ZERO, active: 1, queued: step.queue.len() })
        }
        (reason, _) => Renewed::Lost(reason.unwrap_or(Reason::Absent)),
    };
    step.end(verdict)
}

/// What is known, or being loaded, is out of date. `keep_stale`: the value may still be served as stale. True if there was
/// anything.
pub fn invalidate(key: &mut Key<'_>, keep_stale: bool, setting: &mut Setting<'_>) -> Stepped<Flights, bool> {
    let mut step = OpenStep::begin(key, setting);
    let now = step.now;
    let mut anything = finish(&mut step, Way::Invalidated);
    if let Some(value) = &step.state().value {
        let stale_until = value.stale_until.max(value.fresh_until);
        let lives = stale_until > now;
        anything |= lives;
        // What time has forgotten goes, too: a clock set back would bring it back.
        if !(keep_stale && lives && value.content.is_some()) {
            step.edit(FlightEdit::Dropped);
        } else if value.fresh_until > Instant::EPOCH {
            step.edit(FlightEdit::Softened { stale_until });
        }
    }
    if step.state().paused(now).is_some() {
        anything = true;
        step.edit(FlightEdit::Resumed);
    }
    step.end(anything)
}

/// What is known, without changing anything. It works on replicas, by the replica's own clock.
pub fn look(flight: &Flight, under: Option<&Generations>, now: Instant) -> Seen {
    let validity = flight.validity(under);
    if let Some(value) = flight.fresh(now).filter(|_| validity == Validity::Good) {
        let age = value.at.until(now);
        return match &value.content {
            Some(bytes) => Seen::Value { bytes: Arc::clone(bytes), age, fresh: now.until(value.fresh_until) },
            None => Seen::Empty { age },
        };
    }
    if let Some((bytes, value)) = flight.servable(now).filter(|_| validity != Validity::Void) {
        return Seen::Stale { bytes: Arc::clone(bytes), age: value.at.until(now) };
    }
    match flight.paused(now).and_then(|pause| pause.error.as_ref()) {
        Some(text) => Seen::Error { text: Arc::clone(text) },
        None => Seen::Miss,
    }
}

/// What JOIN says without changing anything, if that is possible: a fresh value that nobody loads anew, nor the caller is to.
pub fn hit(flight: &Flight, early: Option<u32>, under: Option<&Generations>, now: Instant) -> Option<Seen> {
    let is_mended = |value: &Cached| value.at <= now.plus(CLOCK_JITTER);
    let fresh = flight.leader.is_none() && flight.fresh(now).is_some_and(is_mended);
    let stays = fresh
        && flight.validity(under) == Validity::Good
        && !early.is_some_and(|percent| flight.is_nearly_over(percent, now));
    stays.then(|| look(flight, under, now))
}

/// The reply to a caller who has waited in vain.
pub fn busy(flight: &Flight, now: Instant) -> Seen {
    let lease_end = flight.leader.as_ref().map(|leader| leader.ends);
    let end = lease_end.or_else(|| flight.paused(now).map(|pause| pause.until));
    Seen::Busy { remaining: end.map_or(Span::ZERO, |end| now.until(end)) }
}

impl From<Way> for Reason {
    fn from(way: Way) -> Self {
        match way {
            Way::Published => Self::Published,
            Way::Abandoned => Self::Aborted,
            Way::Expired => Self::Expired,
            Way::Closed => Self::Closed,
            Way::Invalidated => Self::Invalidated,
        }
    }
}

/// Ends the lead now. False if nobody leads.
pub(super) fn finish(step: &mut Open<'_>, way: Way) -> bool {
    let Some(fence) = step.state().leader.as_ref().map(|leader| leader.fence) else { return false };
    let how = match way {
        Way::Published | Way::Abandoned => End::Released,
        Way::Expired => End::Expired,
        Way::Closed => End::Closed,
        Way::Invalidated => End::Broken,
    };
    let at = step.now;
    step.note_end(fence, at, how);
    step.edit(FlightEdit::Ended { at, way });
    true
}

/// Stores a publication and gives it to all followers. Returns how many they are.
fn spread(step: &mut Open<'_>, ttl: Span, publication: Publication, stamp: Option<Box<Stamp>>) -> usize {
    let seen = bring(step, ttl, publication, stamp);
    let followers = step.queue.len();
    // What is kept for a while is there for the last of very many, too, who are served in parts.
    if ttl < KEPT_FOR_ALL || followers <= RESULTS_AT_ONCE {
        step.refuse_all(&seen);
    }
    followers
}

/// Why `token` does not lead; `None` if it does.
fn lost(step: &Open<'_>, token: &[u8]) -> Option<Reason> {
    let flight = step.state();
    if flight.leader.as_ref().is_some_and(|leader| *leader.token == *token) {
        return None;
    }
    let own = flight.ended.iter().find(|end| *end.token == *token);
    let own = own.filter(|end| end.at.plus(GRACE) > step.now);
    Some(match own {
        Some(end) => end.way.into(),
        None if flight.leader.is_some() => Reason::Taken,
        None => Reason::Absent,
    })
}

/// Stores what the leader brought. Returns what followers get.
fn bring(step: &mut Open<'_>, ttl: Span, publication: Publication, stamp: Option<Box<Stamp>>) -> Seen {
    let now = step.now;
    let fresh_until = now.plus(ttl);
    let kept = |content: Option<Arc<[u8]>>, stale: Span| {
        FlightEdit::Kept(Cached { content, at: now, fresh_until, stale_until: fresh_until.plus(stale), stamp })
    };
    match publication {
        Publication::Value { bytes, stale } => {
            let seen = Seen::Value { bytes: Arc::clone(&bytes), age: Span::ZERO, fresh: ttl };
            replace(step, ttl, kept(Some(bytes), stale));
            seen
        }
        Publication::Empty => {
            replace(step, ttl, kept(None, Span::ZERO));
            Seen::Empty { age: Span::ZERO }
        }
        Publication::Error { text } => {
            if !ttl.is_zero() {
                let error = Some(Arc::clone(&text));
                step.edit(FlightEdit::Paused(LoadPause { at: now, until: fresh_until, error }));
            }
            Seen::Error { text }
        }
    }
}

fn replace(step: &mut Open<'_>, ttl: Span, kept: FlightEdit) {
    if !ttl.is_zero() {
        step.edit(kept);
    } else if step.state().value.is_some() {
        step.edit(FlightEdit::Dropped);
    }
    if step.state().pause.is_some() {
        step.edit(FlightEdit::Resumed);
    }
}

/// The reply to a caller that does not lead; `None` if it has to wait, or may lead.
fn seen(flight: &Flight, now: Instant) -> Option<Seen> {
    match look(flight, None, now) {
        Seen::Miss => None,
        Seen::Stale { .. } if may_lead(flight, now) => None,
        seen => Some(seen),
    }
}

fn may_lead(flight: &Flight, now: Instant) -> bool {
    flight.leader.is_none() && flight.paused(now).is_none()
}

/// What a leader gets of what was known before: the bytes, and for how long they are still fresh if they are.
fn known_value(flight: &Flight, request: &LeadRequest, now: Instant) -> (Option<Arc<[u8]>>, Option<Span>) {
    let known = if request.early.is_some() { flight.servable(now) } else { flight.stale(now) };
    let Some((bytes, value)) = known else { return (None, None) };
    let left = now.until(value.fresh_until);
    (Some(Arc::clone(bytes)), Some(left).filter(|left| !left.is_zero()))
}

fn ask(step: &mut Open<'_>, token: &[u8], request: LeadRequest, waiting: Option<Waiting>) -> Decision<Lead, Seen> {
    let now = step.now;
    if let Some(leader) = step.state().leader.as_deref().filter(|leader| *leader.token == *token) {
        // The same token again: the same lead, whose lease never ends earlier than was promised.
        let (fence, ends) = (leader.fence, leader.ends);
        let later = now.plus(request.lease);
        if later > ends {
            step.time(fence, request.lease, later);
        }
        let ((stale, fresh), lease) = (known_value(step.state(), &request, now), now.until(ends.max(later)));
        return Decision::Granted(Lead { fence, stale, fresh, lease, waited: Span::ZERO });
    }
    let is_early = request.early.is_some_and(|percent| step.state().is_nearly_over(percent, now));
    if is_early && may_lead(step.state(), now) {
        return Decision::Granted(Machine::grant(step, token, &request, Span::ZERO, now));
    }
    if let Some(seen) = seen(step.state(), now) {
        return Decision::Refused(seen);
    }
    if may_lead(step.state(), now) {
        return Decision::Granted(Machine::grant(step, token, &request, Span::ZERO, now));
    }
    match waiting {
        None => {
            step.leaves(token);
            Decision::Refused(busy(step.state(), now))
        }
        Some(waiting) if step.queue.len() >= waiting.most && !step.queue.waits(token) => {
            Decision::Refused(busy(step.state(), now))
        }
        Some(waiting) => {
            step.enqueue(token, request, waiting, 0);
            Decision::Queued
        }
    }
}

impl Stored for Flights {
    type State = Flight;
    type Edits = FlightEdits;
    const WHOLE: u8 = codec::FLIGHT;
    const EDITS: Option<u8> = Some(codec::FLIGHT_EDITS);

    fn encode(state: &Flight, out: &mut impl Buffer) {
        encode_flight(state, out);
    }

    fn decode(bytes: &[u8]) -> Result<Flight, Malformed> {
        decode_flight(bytes)
    }

    fn decode_edits(bytes: &[u8]) -> Result<FlightEdits, Malformed> {
        decode_edits(bytes)
    }

    fn apply_all(state: &mut Flight, edits: FlightEdits) {
        edits.into_iter().for_each(|edit| state.apply(edit));
    }

    fn is_nothing(state: &Flight) -> bool {
        state.is_nothing()
    }

    fn collect_at(state: &Flight, salt: u64) -> Option<Instant> {
        Some(state.gc_at(salt))
    }

    fn heap_bytes(state: &Flight) -> usize {
        state.heap_bytes()
    }
}

impl Machine for Flights {
    type Request = LeadRequest;
    type Edit = FlightEdit;
    type Report = FlightEdit;
    type Grant = Lead;
    type Refusal = Seen;

    fn apply(state: &mut Flight, edit: FlightEdit) -> Option<Crowd> {
        state.apply(edit);
        None
    }

    fn report(_state: &Flight, edit: &FlightEdit, reports: &mut SmallVec<[FlightEdit; 1]>) {
        reports.push(edit.clone());
    }

    fn check_invariants(state: &Flight) {
        state.check_invariants();
    }

    fn encode_edits(_state: &Flight, edits: &[FlightEdit], out: &mut impl Buffer) {
        encode_edits(edits, out);
    }

    fn last_fence(state: &Flight) -> u64 {
        state.last_fence
    }

    fn leases(state: &Flight) -> impl Iterator<Item = Lease<'_>> {
        state.lease().into_iter()
    }

    fn mend(state: &mut Flight, promoted_at: Option<Instant>, now: Instant) -> SmallVec<[FlightEdit; 1]> {
        let mut edits = SmallVec::new();
        let begun = [state.value.as_ref().map(|value| value.at), state.pause.as_ref().map(|pause| pause.at)];
        if begun.into_iter().flatten().any(|at| at > now.plus(CLOCK_JITTER)) {
            edits.push(FlightEdit::Mended { now });
        }
        if let Some(Lease { length: lease, ends, .. }) = state.lease() {
            let right = ends_for(ends, lease, promoted_at, now);
            if right != ends {
                edits.push(FlightEdit::Timed { lease, ends: right });
            }
        }
        edits
    }

    fn timed(_fence: u64, lease: Span, ends: Instant) -> FlightEdit {
        FlightEdit::Timed { lease, ends }
    }

    fn ended(_step: &OpenStep<'_, Self>, _fence: u64, at: Instant, how: End) -> FlightEdit {
        let way = match how {
            End::Released => Way::Abandoned,
            End::Expired => Way::Expired,
            End::Closed => Way::Closed,
            End::Broken => Way::Invalidated,
        };
        FlightEdit::Ended { at, way }
    }

    fn reason(how: End) -> Reason {
        match how {
            End::Broken => Reason::Invalidated,
            other => other.into(),
        }
    }

    /// Everybody gets what can be seen; one leads if nobody does. A lead that is over ends first.
    fn turn(step: &Open<'_>, _head: &Waiter<LeadRequest>, _at: Instant) -> Turn<Seen> {
        let (flight, now) = (step.state(), step.now);
        if flight.lease().is_some_and(|lease| lease.ends <= now) {
            return Turn::Wait;
        }
        match seen(flight, now) {
            Some(seen) => Turn::Refuse(seen),
            None if may_lead(flight, now) => Turn::Grant,
            None => Turn::Wait,
        }
    }

    fn grant(step: &mut Open<'_>, token: &[u8], request: &LeadRequest, waited: Span, _at: Instant) -> Lead {
        let (now, lease) = (step.now, request.lease);
        let fence = step.issue_fence();
        // A follower knows the name as it was when it came; a load that was voided since has seen it later.
        let generation = if request.generation == 0 { 0 } else { request.generation.max(step.state().generation) };
        let leader = Leader { token: token.into(), fence, since: now, lease, ends: now.plus(lease), generation };
        step.edit(FlightEdit::Led(Box::new(leader)));
        let (stale, fresh) = known_value(step.state(), request, now);
        Lead { fence, stale, fresh, lease, waited }
    }

    fn timed_out(
        state: &Flight,
        _queue: &Queue<LeadRequest>,
        _request: Option<&LeadRequest>,
        _promoted_at: Option<Instant>,
        now: Instant,
    ) -> Seen {
        busy(state, now)
    }

    fn pause_end(state: &Flight) -> Option<Instant> {
        state.pause.as_ref().map(|pause| pause.until)
    }

    fn terms(lead: &Lead) -> Terms {
        Terms { fence: lead.fence, lease: lead.lease, waited: lead.waited }
    }

    fn bind_to(request: &LeadRequest) -> Option<Binding> {
        request.bind_to
    }
}
