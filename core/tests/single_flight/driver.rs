//! Plays a schedule on a key and, if wanted, on the model; and compares everything the two say after every step.

use super::key::{Joined, LeadReply};
use proptest::prelude::*;
use resil_core::single_flight::{Abandoned, Flight, FlightEdit, Lead, Publication, Published, Seen};
use resil_core::waited::{End, Reason, Renewed};

use super::gaps::{JUMP, Upheaval};
use super::key::{Key, Wish, bound_to};
use super::model::{Brings, Ended, Leads, Model, Pause, Said, Stored, Value};
use super::schedule::{Event, Kind, Named, What, Who};

#[derive(Default)]
pub struct Driver {
    pub key: Key,
    /// Every fence that was ever issued, in the order of issue.
    pub fences: Vec<u64>,
    /// Events so far: no two loads bring the same.
    pub played: u64,
}

/// An event with everything in it decided.
#[derive(Debug, Clone)]
pub enum Call {
    Join(String, Wish),
    Publish { token: String, ttl: i64, brings: Brings },
    Abandon(String, Option<i64>),
    Invalidate { soft: bool },
    Renew(String, i64),
    Close(u64),
    TakeBack(u64),
    Cut(u64, i64, i64),
    Extend(u64, i64),
    Leave(u64),
    Tick,
    GiveUp,
    Upheaval(Upheaval),
}

impl Driver {
    /// Only the machine.
    pub fn play(&mut self, event: &Event) -> (Call, Said) {
        self.played += 1;
        self.key.now = event.gap.after(self.key.now, &self.key.moments());
        let call = self.resolve(&event.what);
        let said = self.call(&call);
        (call, said)
    }

    /// The machine beside the model.
    pub fn play_beside(&mut self, model: &mut Model, event: &Event) -> Result<(), TestCaseError> {
        let (call, said) = self.play(event);
        (model.now, model.reported, model.ends) = (self.key.now, Vec::new(), Vec::new());
        prop_assert_eq!(&said, &ask_model(model, &call, &self.key), "{:?}", call);
        prop_assert_eq!(reported(&self.key.replies), model.reported.clone(), "{:?}", call);
        let ends = self.key.endings.iter().map(|end| (end.owner.to_vec(), end.fence, end.held.as_us(), how(end.how)));
        prop_assert_eq!(ends.collect::<Vec<_>>(), model.ends.clone(), "{:?}", call);
        prop_assert_eq!(stored(&self.key.flight), model.stored.clone(), "{:?}", call);
        let waiters = self.key.queue.waiters();
        let waiters =
            waiters.map(|waiter| (waiter.id, waiter.owner.to_vec(), waiter.since.as_us(), waiter.deadline.as_us()));
        let naive = model.queue.iter().map(|waiter| (waiter.id, waiter.token.clone(), waiter.since, waiter.until));
        prop_assert_eq!(waiters.collect::<Vec<_>>(), naive.collect::<Vec<_>>(), "{:?}", call);
        if !matches!(call, Call::Upheaval(Upheaval::Restart | Upheaval::Promote(_))) {
            prop_assert_eq!(self.key.wake, model.wake(), "{:?}", call);
        }
        prop_assert_eq!(seen(self.key.look()), model.look(), "{:?}", call);
        Ok(())
    }

    fn resolve(&self, what: &What) -> Call {
        match *what {
            What::Join(who, wish) => Call::Join(self.token(who), wish),
            What::Publish { who, ttl, kind } => {
                let bytes = format!("load {}", self.played).into_bytes();
                let brings = match kind {
                    Kind::Value { stale } => Brings::Value { bytes, stale },
                    Kind::Empty => Brings::Empty,
                    Kind::Error => Brings::Error(bytes),
                };
                Call::Publish { token: self.token(who), ttl, brings }
            }
            What::Abandon(who, retry) => Call::Abandon(self.token(who), retry),
            What::Invalidate { soft } => Call::Invalidate { soft },
            What::Renew(who, lease) => Call::Renew(self.token(who), lease),
            What::Close(named) => Call::Close(self.fence(named)),
            What::TakeBack(named) => Call::TakeBack(self.fence(named)),
            What::Cut(named, grace, late) => {
                // Nothing hangs on a connection of before a promotion.
                let promoted = self.key.promoted.filter(|promoted| *promoted <= self.key.now);
                let at = (self.key.now - late).max(promoted.unwrap_or(0));
                Call::Cut(self.fence(named), grace, at)
            }
            What::Extend(named, to) => Call::Extend(self.fence(named), self.key.now + to),
            What::Leave(which) => {
                let id = self.key.queue.waiters().nth(which.index(self.key.queue.len() + 1)).map(|waiter| waiter.id);
                // Sometimes somebody who does not wait any more, or never did.
                Call::Leave(id.unwrap_or(which.index(self.key.calls as usize + 5) as u64))
            }
            What::Tick => Call::Tick,
            What::GiveUp => Call::GiveUp,
            What::Upheaval(upheaval) => Call::Upheaval(upheaval),
        }
    }

    fn token(&self, who: Who) -> String {
        let flight = &self.key.flight;
        let leads = flight.leader.as_ref().map(|leader| &leader.token);
        match (who, leads.or(flight.ended.last().map(|ended| &ended.token))) {
            (Who::Leader, Some(token)) => String::from_utf8_lossy(token).into_owned(),
            (Who::Leader, None) => "token 0".into(),
            (Who::One(one), _) => format!("token {one}"),
        }
    }

    fn fence(&self, named: Named) -> u64 {
        match named {
            Named::Earlier(which) if !self.fences.is_empty() => self.fences[which.index(self.fences.len())],
            Named::Present | Named::Earlier(_) => self.key.flight.last_fence,
        }
    }

    fn call(&mut self, call: &Call) -> Said {
        let key = &mut self.key;
        let lost = |reason: Reason| Said::Lost(reason.text());
        let said = match call {
            Call::Join(token, wish) => match key.join(token, *wish) {
                Joined::Granted(lead) => led(lead),
                Joined::Refused(reported) => seen(reported),
                Joined::Queued => Said::Queued,
                Joined::Conflict => unreachable!("every request fits a flight"),
            },
            Call::Publish { token, ttl, brings } => {
                let publication = match brings.clone() {
                    Brings::Value { bytes, stale } => {
                        Publication::Value { bytes: bytes.into(), stale: resil_core::Span::from_us(stale) }
                    }
                    Brings::Empty => Publication::Empty,
                    Brings::Error(text) => Publication::Error { text: text.into() },
                };
                match key.publish(token, *ttl, publication) {
                    Published::Published { followers } => Said::Published { followers },
                    Published::Lost(reason) => lost(reason),
                }
            }
            Call::Abandon(token, retry) => match key.abandon(token, *retry) {
                Abandoned::Abandoned => Said::Abandoned,
                Abandoned::Lost(reason) => lost(reason),
            },
            Call::Invalidate { soft } => Said::Was(key.invalidate(*soft)),
            Call::Renew(token, lease) => match key.renew(token, *lease) {
                Renewed::Granted(grant) => {
                    Said::Renewed { fence: grant.fence, lease: grant.lease.as_us(), queued: grant.queued }
                }
                Renewed::Lost(reason) => lost(reason),
            },
            Call::Close(fence) => Said::Was(key.close(*fence)),
            Call::TakeBack(fence) => Said::Was(key.take_back(*fence)),
            Call::Cut(fence, grace, at) => Said::Was(key.cut(*fence, *grace, *at)),
            Call::Extend(fence, to) => Said::Was(key.extend(*fence, *to)),
            Call::Leave(id) => Said::Was(key.leave(*id)),
            Call::Tick => {
                key.tick();
                Said::Nothing
            }
            Call::GiveUp => {
                key.give_up();
                Said::Nothing
            }
            Call::Upheaval(upheaval) => {
                match *upheaval {
                    Upheaval::Restart => key.restart(),
                    Upheaval::Promote(by) => key.promote(by),
                    Upheaval::Delete => key.delete(),
                }
                Said::Nothing
            }
        };
        self.fences.extend(self.key.edits.iter().filter_map(|edit| match edit {
            FlightEdit::Led(leader) => Some(leader.fence),
            _ => None,
        }));
        said
    }
}

fn ask_model(model: &mut Model, call: &Call, key: &Key) -> Said {
    match call {
        Call::Join(token, wish) => {
            let waiting = wish.wait.map(|wait| (key.calls, wait, wish.most));
            model.join(token.as_bytes(), (wish.lease, wish.bind_to), waiting)
        }
        Call::Publish { token, ttl, brings } => model.publish(token.as_bytes(), *ttl, brings.clone()),
        Call::Abandon(token, retry) => model.abandon(token.as_bytes(), *retry),
        Call::Invalidate { soft } => model.invalidate(*soft),
        Call::Renew(token, lease) => model.renew(token.as_bytes(), *lease),
        Call::Close(fence) => model.stop_fence(*fence, "closed"),
        Call::TakeBack(fence) => model.stop_fence(*fence, "aborted"),
        Call::Cut(fence, grace, at) => model.cut(*fence, *grace, *at),
        Call::Extend(fence, to) => model.extend(*fence, *to),
        Call::Leave(id) => model.leave(*id),
        Call::Tick => model.tick(),
        Call::GiveUp => model.give_up(),
        Call::Upheaval(upheaval) => {
            match upheaval {
                Upheaval::Restart => model.start_anew(JUMP),
                Upheaval::Promote(_) => {
                    model.promoted = Some(key.now);
                    model.start_anew(JUMP);
                }
                Upheaval::Delete => {
                    model.stored = Stored::default();
                    model.tick();
                }
            }
            Said::Nothing
        }
    }
}

// The machine's words in those of the model.

fn led(lead: Lead) -> Said {
    let Lead { fence, stale, lease, waited, .. } = lead;
    Said::Lead { fence, stale: stale.map(|bytes| bytes.to_vec()), lease: lease.as_us(), waited: waited.as_us() }
}

fn seen(seen: Seen) -> Said {
    match seen {
        Seen::Value { bytes, age, fresh } => {
            Said::Value { bytes: bytes.to_vec(), age: age.as_us(), fresh: fresh.as_us() }
        }
        Seen::Stale { bytes, age } => Said::Stale { bytes: bytes.to_vec(), age: age.as_us() },
        Seen::Empty { age } => Said::Empty { age: age.as_us() },
        Seen::Error { text } => Said::Error(text.to_vec()),
        Seen::Busy { remaining } => Said::Busy { remaining: remaining.as_us() },
        Seen::Miss => Said::Miss,
    }
}

fn reported(replies: &[LeadReply]) -> Vec<(u64, Said, Option<u64>)> {
    let reported = replies.iter().map(|reply| match reply {
        LeadReply::Granted { id, grant: lead, bind_to, .. } => (*id, led(lead.clone()), bind_to.map(bound_to)),
        LeadReply::Refused { id, refusal: said } | LeadReply::TimedOut { id, refusal: said } => {
            (*id, seen(said.clone()), None)
        }
        LeadReply::Superseded { id } => (*id, Said::Superseded, None),
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

fn stored(flight: &Flight) -> Stored {
    Stored {
        value: flight.value.as_ref().map(|value| Value {
            content: value.content.as_ref().map(|bytes| bytes.to_vec()),
            at: value.at.as_us(),
            fresh: value.fresh_until.as_us(),
            stale: value.stale_until.as_us(),
        }),
        pause: flight.pause.as_ref().map(|pause| Pause {
            at: pause.at.as_us(),
            until: pause.until.as_us(),
            error: pause.error.as_ref().map(|text| text.to_vec()),
        }),
        leader: flight.leader.as_ref().map(|leader| Leads {
            token: leader.token.to_vec(),
            fence: leader.fence,
            since: leader.since.as_us(),
            lease: leader.lease.as_us(),
            end: leader.ends.as_us(),
        }),
        ended: flight
            .ended
            .iter()
            .map(|ended| Ended {
                token: ended.token.to_vec(),
                fence: ended.fence,
                at: ended.at.as_us(),
                way: Reason::from(ended.way).text(),
            })
            .collect(),
        last_fence: flight.last_fence,
    }
}
