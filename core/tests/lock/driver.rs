//! Plays a schedule on a key and, if wanted, on the model; and compares everything the two say after every step.

use super::key::{Acquired, LockReply};
use proptest::prelude::*;
use resil_core::Span;
use resil_core::lock::{Busy, Claim, Kind, Mode, Released};
use resil_core::waited::session::Binding;
use resil_core::waited::{End, Grant, Renewed};

use super::key::{JUMP, Key, Wish};
use super::model::{Full, Got, Held, Model, Over, Reported, Said, Want, Wanted};
use super::schedule::{Event, Gap, Named, Request, What};

pub struct Driver {
    pub key: Key,
    /// Every fence that was ever issued, in the order of issue.
    pub fences: Vec<u64>,
    pub said: Said,
}

impl Driver {
    pub fn new(bulkhead: bool) -> Self {
        let key = Key::of(if bulkhead { Kind::Bulkhead } else { Kind::Lock });
        Self { key, fences: Vec::new(), said: Said::Nothing }
    }

    pub fn pass(&mut self, gap: Gap) {
        match gap {
            Gap::None => {}
            Gap::By(by) | Gap::Set(by) => self.key.now += by,
            Gap::To(which, off) => {
                let moments = self.key.moments();
                if !moments.is_empty() {
                    // A clock that only runs ahead does not go back to a moment that has passed.
                    self.key.now = self.key.now.max(moments[which.index(moments.len())] + off);
                }
            }
        }
    }

    /// Only the machine.
    pub fn play(&mut self, event: &Event) {
        self.pass(event.gap);
        let call = self.resolve(&event.what);
        self.call(&call);
    }

    /// The machine beside the model.
    pub fn play_beside(&mut self, model: &mut Model, event: &Event) -> Result<(), TestCaseError> {
        self.pass(event.gap);
        let call = self.resolve(&event.what);
        (model.now, model.reported, model.ends) = (self.key.now, Vec::new(), Vec::new());
        self.call(&call);
        let said = ask_model(model, &call, &self.key);
        prop_assert_eq!(&self.said, &said, "{:?}", call);
        prop_assert_eq!(reported(&self.key.replies), model.reported.clone(), "{:?}", call);
        let ends: Vec<_> = self
            .key
            .endings
            .iter()
            .map(|end| (end.owner.to_vec(), end.fence, end.held.as_us(), how(end.how)))
            .collect();
        prop_assert_eq!(&ends, &model.ends, "{:?}", call);
        prop_assert_eq!(held(&self.key), model.holders.clone(), "{:?}", call);
        prop_assert_eq!(over(&self.key), model.over.clone(), "{:?}", call);
        prop_assert_eq!(self.key.holders.last_fence(), model.last);
        let waiters: Vec<_> = self
            .key
            .queue
            .waiters()
            .map(|waiter| (waiter.id, waiter.owner.to_vec(), waiter.since.as_us(), waiter.deadline.as_us()))
            .collect();
        let naive: Vec<_> =
            model.queue.iter().map(|waiter| (waiter.id, waiter.owner.clone(), waiter.since, waiter.until)).collect();
        prop_assert_eq!(waiters, naive, "{:?}", call);
        if !matches!(call, Call::Restart | Call::Promote(_)) {
            prop_assert_eq!(self.key.wake, model.wake(), "{:?}", call);
        }
        Ok(())
    }

    /// Indices become ids and fences, the same for both sides.
    fn resolve(&self, what: &What) -> Call {
        match *what {
            What::Acquire(request) => Call::Acquire(request),
            What::Renew { owner, fence, lease } => Call::Renew(owner, self.named(owner, fence), lease),
            What::Release { owner, fence } => Call::Release(owner, self.named(owner, fence)),
            What::Break => Call::Break,
            What::Close(owner, fence) => Call::Close(self.fence(owner, fence)),
            What::Cut(owner, fence, grace, late) => {
                // Nothing hangs on a connection of before a promotion.
                let promoted = self.key.promoted.filter(|promoted| *promoted <= self.key.now);
                let at = (self.key.now - late).max(promoted.unwrap_or(0));
                Call::Cut(self.fence(owner, fence), grace, at)
            }
            What::TakeBack(owner, fence) => Call::TakeBack(self.fence(owner, fence)),
            What::Extend(owner, fence, to) => Call::Extend(self.fence(owner, fence), self.key.now + to),
            What::Leave(which) => {
                let waiting = self.key.queue.len();
                let id = self.key.queue.waiters().nth(which.index(waiting + 1)).map(|waiter| waiter.id);
                // Sometimes somebody who does not wait any more, or never did.
                Call::Leave(id.unwrap_or(which.index(self.key.calls as usize + 5) as u64))
            }
            What::Tick => Call::Tick,
            What::GiveUp => Call::GiveUp,
            What::Restart => Call::Restart,
            What::Promote(by) => Call::Promote(by),
            What::Delete => Call::Delete,
        }
    }

    fn named(&self, owner: u8, fence: Named) -> Option<u64> {
        match fence {
            Named::Nothing => None,
            Named::Own => self.key.holders.by_owner(&name(owner)).map(|holder| holder.fence),
            Named::Earlier(which) if self.fences.is_empty() => Some(which.index(100) as u64),
            Named::Earlier(which) => Some(self.fences[which.index(self.fences.len())]),
            Named::Unknown(fence) => Some(fence),
        }
    }

    /// For calls that must name one: of a holder, if none is named.
    fn fence(&self, owner: u8, fence: Named) -> u64 {
        let first = || self.key.holders.iter().next().map_or(0, |holder| holder.fence);
        self.named(owner, fence).unwrap_or_else(first)
    }

    fn call(&mut self, call: &Call) {
        let key = &mut self.key;
        self.said = match *call {
            Call::Acquire(request) => {
                let wish = wish(key.kind, &request);
                acquired(key.ask_with(&name(request.owner), wish, meta(&request), request.bind_to.map(binding)))
            }
            Call::Renew(owner, fence, lease) => match key.renew(&text(owner), fence, lease) {
                Renewed::Granted(grant) => Said::Granted(got(&grant)),
                Renewed::Lost(reason) => Said::Lost(reason.text()),
            },
            Call::Release(owner, fence) => match key.release(&text(owner), fence) {
                Released::Released { held } => Said::Released(held.as_us()),
                Released::Lost(reason) => Said::Lost(reason.text()),
            },
            Call::Break => Said::Broke(key.break_all()),
            Call::Close(fence) => Said::Was(key.close(fence)),
            Call::Cut(fence, grace, at) => Said::Was(key.cut(fence, grace, at)),
            Call::TakeBack(fence) => Said::Was(key.take_back(fence)),
            Call::Extend(fence, to) => Said::Was(key.extend(fence, to)),
            Call::Leave(id) => Said::Was(key.leave(id)),
            Call::Tick => {
                key.tick();
                Said::Nothing
            }
            Call::GiveUp => {
                key.give_up();
                Said::Nothing
            }
            Call::Restart => {
                key.restart();
                quiet(key)
            }
            Call::Promote(by) => {
                key.promote(by);
                quiet(key)
            }
            Call::Delete => {
                key.delete();
                Said::Nothing
            }
        };
        for edit in &self.key.edits {
            if let resil_core::lock::HolderEdit::Granted(holder) = edit {
                self.fences.push(holder.fence);
            }
        }
    }
}

/// A server that starts tells nobody anything.
fn quiet(key: &mut Key) -> Said {
    key.replies.clear();
    key.endings.clear();
    key.edits.clear();
    Said::Nothing
}

/// An event with everything in it decided.
#[derive(Debug, Clone, Copy)]
enum Call {
    Acquire(Request),
    Renew(u8, Option<u64>, i64),
    Release(u8, Option<u64>),
    Break,
    Close(u64),
    Cut(u64, i64, i64),
    TakeBack(u64),
    Extend(u64, i64),
    Leave(u64),
    Tick,
    GiveUp,
    Restart,
    Promote(i64),
    Delete,
}

fn text(owner: u8) -> String {
    format!("owner {owner}")
}

fn name(owner: u8) -> Vec<u8> {
    text(owner).into_bytes()
}

fn meta(request: &Request) -> &'static [u8] {
    if request.meta { b"on host 7" } else { b"" }
}

fn wish(kind: Kind, request: &Request) -> Wish {
    let Request { reads, max, priority, lease, wait, most, .. } = *request;
    let claim = match (kind, reads) {
        (Kind::Lock, true) => Claim::Shared,
        (Kind::Lock, false) => Claim::Exclusive,
        (Kind::Bulkhead, _) => Claim::Permit { max, priority },
    };
    Wish { claim, lease, wait, most }
}

fn ask_model(model: &mut Model, call: &Call, key: &Key) -> Said {
    match *call {
        Call::Acquire(request) => {
            let (want, priority) = match (model.bulkhead, request.reads) {
                (true, _) => (Want::Permit(request.max as usize), request.priority),
                (false, true) => (Want::Read, 0),
                (false, false) => (Want::Write, 0),
            };
            let Request { lease, bind_to: bind, .. } = request;
            let wanted = Wanted { want, priority, lease, meta: meta(&request).into(), bind };
            let waiting = request.wait.map(|wait| (key.calls, wait, request.most));
            model.acquire(&name(request.owner), wanted, waiting)
        }
        Call::Renew(owner, fence, lease) => model.renew(&name(owner), fence, lease),
        Call::Release(owner, fence) => model.release(&name(owner), fence),
        Call::Break => model.break_all(),
        Call::Close(fence) => model.finish_fence(fence, "closed"),
        Call::Cut(fence, grace, at) => model.cut(fence, grace, at),
        Call::TakeBack(fence) => model.finish_fence(fence, "released"),
        Call::Extend(fence, to) => model.extend(fence, to),
        Call::Leave(id) => model.leave(id),
        Call::Tick => model.tick(),
        Call::GiveUp => model.give_up(),
        Call::Restart => {
            model.start_anew(JUMP);
            Said::Nothing
        }
        Call::Promote(_) => {
            model.now = key.now;
            model.promoted = Some(key.now);
            model.start_anew(JUMP);
            Said::Nothing
        }
        Call::Delete => {
            model.delete();
            Said::Nothing
        }
    }
}

// The machine's words in those of the model.

fn acquired(verdict: Acquired) -> Said {
    match verdict {
        Acquired::Granted(grant) => Said::Granted(got(&grant)),
        Acquired::Refused(busy) => Said::Refused(full(&busy)),
        Acquired::Queued => Said::Queued,
        Acquired::Conflict => Said::Deadlock,
    }
}

fn got(grant: &Grant) -> Got {
    let Grant { fence, lease, waited, active, queued } = *grant;
    Got { fence, lease: lease.as_us(), waited: waited.as_us(), active, queued }
}

fn full(busy: &Busy) -> Full {
    Full {
        holder: busy.holder.to_vec(),
        remaining: busy.remaining.as_us(),
        retry_after: busy.retry_after.as_us(),
        active: busy.active,
        queued: busy.queued,
    }
}

/// A connection, with a grace of its own.
fn binding(client: u64) -> Binding {
    Binding { client, grace: Span::from_us(client as i64) }
}

/// Connection and grace come out as they went in.
fn bound_to(bind_to: Binding) -> u64 {
    assert_eq!(bind_to, binding(bind_to.client));
    bind_to.client
}

fn reported(replies: &[LockReply]) -> Vec<Reported> {
    let reported = replies.iter().map(|reply| match reply {
        LockReply::Granted { id, owner, grant, bind_to } => {
            Reported::Granted(*id, owner.to_vec(), got(grant), bind_to.map(bound_to))
        }
        LockReply::TimedOut { id, refusal } => Reported::TimedOut(*id, full(refusal)),
        LockReply::Refused { .. } => unreachable!("a lock refuses nobody who waits"),
        LockReply::Superseded { id } => Reported::Superseded(*id),
    });
    reported.collect()
}

fn how(end: End) -> &'static str {
    match end {
        End::Released => "released",
        End::Expired => "expired",
        End::Broken => "broken",
        End::Closed => "closed",
    }
}

fn held(key: &Key) -> Vec<Held> {
    let held = key.holders.iter().map(|holder| Held {
        owner: holder.owner().to_vec(),
        meta: holder.meta().to_vec(),
        fence: holder.fence,
        since: holder.since.as_us(),
        end: holder.ends.as_us(),
        lease: holder.lease().as_us(),
        writes: holder.mode() == Mode::Exclusive,
    });
    held.collect()
}

fn over(key: &Key) -> Vec<Over> {
    let over = key.holders.ended().iter().map(|end| Over {
        owner: end.owner.to_vec(),
        fence: end.fence,
        at: end.at.as_us(),
        held: end.held.as_us(),
        how: how(end.how),
    });
    over.collect()
}
