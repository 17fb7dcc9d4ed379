//! One key as a server keeps it: flight, queue, fences, a clock; and a replica that only gets the edits.
//!
//! Every step goes through [`Key::step`], which holds it against what must be true after any step whatsoever.

use resil_core::codec::to_vec;
use resil_core::limits::AGEING_DEFAULT;
use resil_core::single_flight::{
    self, Abandoned, Flight, FlightEdit, Flights, Lead, LeadRequest, Publication, Published, Seen, decode_edits,
    decode_flight, encode_edits, encode_flight,
};
use resil_core::waited::fence::Floor;
use resil_core::waited::queue::Queue;
use resil_core::waited::session::Binding;
use resil_core::waited::{Decision, Machine, Outcome, Reply, Stepped, WaitedKey, Waiting};
use resil_core::waited::{Ending, Renewed, Setting};
use resil_core::{Instant, Span};

use super::gaps::{JUMP, SECOND, START};

pub type Joined = Decision<Lead, Seen>;
pub type LeadReply = Reply<Lead, Seen>;

/// How somebody would lead, and how long it waits for what another loads.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    pub lease: i64,
    pub wait: Option<i64>,
    pub most: usize,
    pub bind_to: Option<u64>,
}

/// A lease of ten seconds, and no patience.
pub fn now_or_never() -> Wish {
    Wish { lease: 10 * SECOND, wait: None, most: 1_000, bind_to: None }
}

pub fn waits(wait: i64) -> Wish {
    Wish { wait: Some(wait), ..now_or_never() }
}

#[derive(Debug, Clone)]
pub struct Key {
    pub flight: Flight,
    pub queue: Queue<LeadRequest>,
    pub floor: Floor,
    pub replica: Flight,
    pub replica_floor: Floor,
    pub now: i64,
    pub promoted: Option<i64>,
    /// What the last step reported.
    pub replies: Vec<LeadReply>,
    pub endings: Vec<Ending>,
    pub edits: Vec<FlightEdit>,
    pub wake: Option<i64>,
    /// Calls that wait for their reply.
    pub open: Vec<u64>,
    pub calls: u64,
}

impl Default for Key {
    fn default() -> Self {
        Self {
            flight: Flight::default(),
            queue: Queue::default(),
            floor: Floor::default(),
            replica: Flight::default(),
            replica_floor: Floor::default(),
            now: START,
            promoted: None,
            replies: Vec::new(),
            endings: Vec::new(),
            edits: Vec::new(),
            wake: None,
            open: Vec::new(),
            calls: 0,
        }
    }
}

pub fn bytes_of(flight: &Flight) -> Vec<u8> {
    to_vec(|out| encode_flight(flight, out))
}

impl Key {
    fn step<V>(&mut self, act: impl FnOnce(&mut WaitedKey<'_, Flights>, &mut Setting<'_>) -> Stepped<Flights, V>) -> V {
        let mut key = WaitedKey { state: &mut self.flight, queue: &mut self.queue };
        let mut setting = Setting {
            now: Instant::from_us(self.now),
            promoted_at: self.promoted.map(Instant::from_us),
            up_since: Instant::EPOCH,
            ageing: AGEING_DEFAULT,
            floor: &mut self.floor,
            heard: None,
        };
        let Outcome { verdict, edits, replies, endings, timer_at, .. } = act(&mut key, &mut setting);
        self.replies = replies;
        self.endings = endings;
        self.edits = edits.to_vec();
        self.wake = timer_at.map(Instant::as_us);
        self.replicate();
        self.hold_to_account();
        verdict
    }

    /// The edits travel as bytes, and make of the replica what the step made of the flight.
    fn replicate(&mut self) {
        if self.edits.is_empty() {
            return;
        }
        let edits = decode_edits(&to_vec(|out| encode_edits(&self.edits, out))).expect("edits of a step");
        assert_eq!(edits.as_slice(), self.edits.as_slice());
        for edit in &edits {
            if let FlightEdit::Led(leader) = edit {
                self.replica_floor.heard_of(leader.fence);
            }
            self.replica.apply(edit.clone());
        }
    }

    fn hold_to_account(&mut self) {
        let bytes = bytes_of(&self.flight);
        assert_eq!(bytes, bytes_of(&self.replica), "the edits make the same flight elsewhere");
        assert_eq!(decode_flight(&bytes).as_ref(), Ok(&self.flight), "the flight can be stored");
        for reply in &self.replies {
            let at = self.open.iter().position(|id| *id == reply.id()).expect("one reply, to a call that waits");
            self.open.remove(at);
        }
        let mut waits: Vec<u64> = self.queue.waiters().map(|waiter| waiter.id).collect();
        waits.sort_unstable();
        let mut open = self.open.clone();
        open.retain(|id| *id != self.calls || waits.contains(id));
        open.sort_unstable();
        assert_eq!(open, waits, "a caller that is not answered waits");
    }

    /// When something ends: the lease, patience, a pause, freshness, staleness.
    pub fn moments(&self) -> Vec<i64> {
        let lease = self.flight.leader.iter().map(|leader| leader.ends);
        let value = self.flight.value.iter().flat_map(|value| [value.fresh_until, value.stale_until]);
        let pause = self.flight.pause.iter().map(|pause| pause.until);
        let waiting = self.queue.waiters().map(|waiter| waiter.deadline);
        lease.chain(value).chain(pause).chain(waiting).map(Instant::as_us).collect()
    }

    pub fn join(&mut self, token: &str, wish: Wish) -> Joined {
        self.calls += 1;
        let id = self.calls;
        let ask = LeadRequest {
            lease: Span::from_us(wish.lease),
            bind_to: wish.bind_to.map(binding),
            generation: 0,
            early: None,
        };
        let waiting = wish.wait.map(|wait| Waiting { id, wait: Span::from_us(wait), most: wish.most });
        // Until the verdict is known the call counts as open: a caller that is notified at once is not notified again.
        self.open.push(id);
        let verdict = self.step(|key, setting| single_flight::join(key, token.as_bytes(), ask, waiting, None, setting));
        let open = self.open.pop_if(|open| *open == id).expect("a verdict or a reply, never both");
        if verdict == Joined::Queued {
            self.open.push(open);
        }
        verdict
    }

    /// Joins, and leads.
    pub fn lead(&mut self, token: &str) -> Lead {
        match self.join(token, now_or_never()) {
            Joined::Granted(lead) => lead,
            other => panic!("{token} got {other:?}"),
        }
    }

    /// Joins without patience, and gets something else than the lead.
    pub fn reported(&mut self, token: &str) -> Seen {
        match self.join(token, now_or_never()) {
            Joined::Refused(seen) => seen,
            other => panic!("{token} got {other:?}"),
        }
    }

    /// Joins, and waits. Returns the id of the call.
    pub fn follow(&mut self, token: &str, wait: i64) -> u64 {
        assert_eq!(self.join(token, waits(wait)), Joined::Queued, "{token}");
        self.calls
    }

    pub fn publish(&mut self, token: &str, ttl: i64, publication: Publication) -> Published {
        let ttl = Span::from_us(ttl);
        self.step(|key, setting| single_flight::publish(key, token.as_bytes(), ttl, publication, None, setting))
    }

    pub fn abandon(&mut self, token: &str, retry: Option<i64>) -> Abandoned {
        let retry = retry.map(Span::from_us);
        self.step(|key, setting| single_flight::abandon(key, token.as_bytes(), retry, setting))
    }

    pub fn renew(&mut self, token: &str, lease: i64) -> Renewed {
        self.step(|key, setting| single_flight::renew(key, token.as_bytes(), Span::from_us(lease), setting))
    }

    pub fn invalidate(&mut self, soft: bool) -> bool {
        self.step(|key, setting| single_flight::invalidate(key, soft, setting))
    }

    pub fn close(&mut self, fence: u64) -> bool {
        self.step(|key, setting| Flights::close(key, fence, setting))
    }

    pub fn cut(&mut self, fence: u64, grace: i64, at: i64) -> bool {
        let (grace, at) = (Span::from_us(grace), Instant::from_us(at));
        self.step(|key, setting| Flights::cut(key, fence, grace, at, setting))
    }

    pub fn take_back(&mut self, fence: u64) -> bool {
        self.step(|key, setting| Flights::take_back(key, fence, setting))
    }

    pub fn extend(&mut self, fence: u64, until: i64) -> bool {
        self.step(|key, setting| Flights::extend(key, fence, Instant::from_us(until), setting))
    }

    pub fn leave(&mut self, id: u64) -> bool {
        self.open.retain(|open| *open != id);
        self.step(|key, setting| Flights::leave(key, id, setting))
    }

    pub fn tick(&mut self) {
        self.step(Flights::tick);
    }

    pub fn give_up(&mut self) {
        self.step(Flights::give_up);
    }

    pub fn look(&self) -> Seen {
        single_flight::look(&self.flight, None, Instant::from_us(self.now))
    }

    /// The clock shows `by` more, or less; whatever is due happens.
    pub fn later(&mut self, by: i64) {
        self.now += by;
        self.tick();
    }

    /// Stored and loaded again. Connections, and so followers, are gone.
    pub fn restart(&mut self) {
        self.flight = decode_flight(&bytes_of(&self.flight)).expect("what was stored");
        self.start_anew(self.replica_floor.highest());
    }

    /// The replica, whose clock differs by `by`, becomes the primary.
    pub fn promote(&mut self, by: i64) {
        self.now += by;
        self.flight = self.replica.clone();
        self.promoted = Some(self.now);
        self.start_anew(self.replica_floor.highest());
    }

    fn start_anew(&mut self, floor: u64) {
        self.queue = Queue::default();
        self.open.clear();
        self.replies.clear();
        self.endings.clear();
        self.edits.clear();
        self.floor = Floor::default();
        self.floor.heard_of(floor);
        self.floor.jump(Span::from_us(JUMP), Instant::from_us(self.now));
    }

    /// The key is deleted, everywhere.
    pub fn delete(&mut self) {
        self.flight = Flight::default();
        self.replica = Flight::default();
        self.tick();
    }

    /// What the call `id` got in the last step.
    fn reply(&self, id: u64) -> &LeadReply {
        self.replies.iter().find(|reply| reply.id() == id).unwrap_or_else(|| panic!("{id} got no reply"))
    }

    pub fn answered_lead(&self, id: u64) -> Lead {
        match self.reply(id) {
            LeadReply::Granted { grant: lead, .. } => lead.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub fn answered(&self, id: u64) -> Seen {
        match self.reply(id) {
            LeadReply::Refused { refusal: seen, .. } | LeadReply::TimedOut { refusal: seen, .. } => seen.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// A connection, with a grace of its own.
pub fn binding(client: u64) -> Binding {
    Binding { client, grace: Span::from_us(client as i64) }
}

/// Connection and grace come out as they went in.
pub fn bound_to(bind_to: Binding) -> u64 {
    assert_eq!(bind_to, binding(bind_to.client));
    bind_to.client
}
