//! `RES.SFLIGHT` and its subcommands.

use resil_core::Span;
use resil_core::limits::WAITERS_CEILING;
use resil_core::single_flight::{
    Abandoned, Flights, LeadRequest, Publication, Published, Seen, abandon, hit, invalidate, join, look, publish, renew,
};
use resil_core::waited::{Decision, Waiting};
use resil_wire::holding::write_given_up;
use resil_wire::idempotency::TokenRenewCall;
use resil_wire::reply::Sink;
use resil_wire::single_flight::{
    AbandonCall, Brought, InvalidateCall, JoinCall, Joined as JoinedReply, PublishCall, Published as PublishedReply,
    write_info,
};

use super::waiting::{read, renew_token, settle_grant, wait_for_reply, waiting};
use crate::call::{Call, Failure};
use crate::info::counters;
use crate::machines::ServerMachine;
use crate::waited_key::Opened;
use crate::{blocked_clients, clock, fences, queues, sessions};

pub fn sflight_join(call: &Call<'_>, JoinCall { token, lease, wait, bind, .. }: JoinCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let opened = Opened::<Flights>::open(call, call.string(0)?)?;
    // Nearly every call is a hit, and a hit changes nothing.
    if let Some(seen) = hit(opened.state(), now) {
        count(&seen);
        JoinedReply::from(seen).write(&mut call.reply());
        return Ok(());
    }
    let bind_to = sessions::target(call, bind)?;
    if opened.state().is_nothing() {
        call.require_memory()?;
    }
    let waiting = waiting(call, wait, WAITERS_CEILING)?;
    let name = (bind_to.is_some() || waiting.is_some() || blocked_clients::any_undelivered()).then(|| opened.name());
    let request = LeadRequest { lease, bind_to };
    let joined = opened.step(call, now, &[], |key, setting| join(key, token, request, waiting, setting));
    match joined {
        Decision::Granted(lead) => {
            Flights::counters().granted.add(1);
            settle_grant(name.as_ref(), bind_to, lead.fence, lease, now);
            JoinedReply::from(lead).write(&mut call.reply());
        }
        Decision::Refused(seen) => {
            count(&seen);
            JoinedReply::from(seen).write(&mut call.reply());
        }
        // Every request fits a flight.
        Decision::Conflict => {}
        Decision::Queued => {
            Flights::counters().waited.add(1);
            if let (Some(Waiting { id, .. }), Some(name)) = (waiting, name) {
                wait_for_reply(call, wait, id, name);
            }
        }
    }
    Ok(())
}

fn count(seen: &Seen) {
    match seen {
        Seen::Value { .. } | Seen::Empty { .. } => counters().hits.add(1),
        Seen::Stale { .. } => counters().stale_hits.add(1),
        Seen::Error { .. } | Seen::Busy { .. } | Seen::Miss => Flights::counters().denied.add(1),
    }
}

pub fn sflight_get(call: &Call<'_>, _: &[u8]) -> Result<(), Failure> {
    let now = clock::now();
    let seen = read::<Flights, _>(call, |flight| look(flight, now))?;
    count(&seen);
    JoinedReply::from(seen).write(&mut call.reply());
    Ok(())
}

pub fn sflight_publish(
    call: &Call<'_>,
    PublishCall { token, ttl, brought, .. }: PublishCall<'_>,
) -> Result<(), Failure> {
    let publication = match brought {
        Brought::Value { bytes, stale } => Publication::Value { bytes: bytes.into(), stale },
        Brought::Empty => Publication::Empty,
        Brought::Error { text } => Publication::Error { text: text.into() },
    };
    let opened = Opened::<Flights>::open(call, call.string(0)?)?;
    // Without memory to keep it, those who wait get it all the same. An error is small, and its ttl keeps everybody
    // from loading in vain, one after another.
    let is_small = matches!(publication, Publication::Error { .. });
    let ttl = if !is_small && call.is_short_of_memory() { Span::ZERO } else { ttl };
    let published = opened.step(call, clock::now(), &[], |key, setting| publish(key, token, ttl, publication, setting));
    match published {
        Published::Published { .. } => counters().published.add(1),
        Published::Lost(_) => Flights::counters().stale.add(1),
    }
    PublishedReply::from(published).write(&mut call.reply());
    Ok(())
}

pub fn sflight_abandon(call: &Call<'_>, AbandonCall { token, retry, .. }: AbandonCall<'_>) -> Result<(), Failure> {
    let opened = Opened::<Flights>::open(call, call.string(0)?)?;
    let abandoned = opened.step(call, clock::now(), &[], |key, setting| abandon(key, token, retry, setting));
    let lost = match abandoned {
        Abandoned::Abandoned => None,
        Abandoned::Lost(reason) => Some(reason),
    };
    Flights::counters().stale.add(lost.is_some().into());
    write_given_up("ABANDONED", lost, &mut call.reply());
    Ok(())
}

pub fn sflight_renew(call: &Call<'_>, request: TokenRenewCall<'_>) -> Result<(), Failure> {
    renew_token::<Flights>(call, request, renew)
}

pub fn sflight_invalidate(call: &Call<'_>, InvalidateCall { soft, .. }: InvalidateCall<'_>) -> Result<(), Failure> {
    let opened = Opened::<Flights>::open(call, call.string(0)?)?;
    let anything = opened.step(call, clock::now(), &[], |key, setting| invalidate(key, soft, setting));
    counters().invalidated.add(u64::from(anything));
    call.reply().integer(i64::from(anything));
    Ok(())
}

pub fn sflight_info(call: &Call<'_>, key: &[u8]) -> Result<(), Failure> {
    let (now, promoted_at) = (clock::now(), fences::promoted_at());
    let followers = queues::look::<Flights, _>(call.db(), key, |queue| queue.len());
    read::<Flights, _>(call, |flight| write_info(flight, followers, promoted_at, now, &mut call.reply()))
}
