//! What every command does alike whose callers may wait: waiting, binding, reading.

use resil_core::waited::{Binding, Queue, Renewed, Setting, Stepped, WaitedKey, WaiterId, Waiting};
use resil_core::{Instant, Span};
use resil_wire::holding::{Renewed as RenewedReply, Wait};
use resil_wire::idempotency::TokenRenewCall;
use resil_wire::late::write_queued;

use crate::call::{Call, Failure};
use crate::datatype::waited::Live;
use crate::key::Key;
use crate::machines::ServerMachine;
use crate::queues::{self, KeyName};
use crate::waited_key::Opened;
use crate::{async_waits, blocked_clients, clock, config, fences, sessions, waited_key};

/// How this call waits, if it wants to and may: inside MULTI and scripts WAIT means try once.
pub fn waiting(call: &Call<'_>, wait: Wait, most: u32) -> Result<Option<Waiting>, Failure> {
    if wait.length.is_zero() || !call.may_wait() {
        return Ok(None);
    }
    if wait.is_async() {
        async_waits::require_listener(call, call.key_name(0)?)?;
    }
    let most = most.min(config::max_waiters()) as usize;
    Ok(Some(Waiting { id: blocked_clients::next_id(), wait: wait.length, most }))
}

/// The caller gets its grant in the reply: the grant is bound to a connection if the caller asked for that, and is not taken back any
/// more if the reply to an earlier call of the same owner could not be delivered.
pub fn settle_grant(name: Option<&KeyName>, bind_to: Option<Binding>, fence: u64, lease: Span, now: Instant) {
    let Some(name) = name else { return };
    blocked_clients::notified_elsewhere(name, fence);
    if let Some(binding) = bind_to {
        sessions::bind(binding, name, fence, lease, now);
    }
}

/// The step queued the call: its client waits for the reply, or gets its position. Where the server does not let
/// a client wait, its time is over at once (Valkey, for a connection with subscriptions).
pub fn wait_for_reply(call: &Call<'_>, wait: Wait, id: WaiterId, name: KeyName) {
    let position = if wait.is_async() { queues::find(&name, id) } else { None };
    match position {
        Some((position, owner)) => {
            blocked_clients::wait_async(call, id, name, owner);
            write_queued(position as u64, &mut call.reply());
        }
        None if blocked_clients::block(call, id, name.clone()) => {}
        None => {
            queues::leave(&name, id);
            blocked_clients::reply_now(call, waited_key::timeout(call.ctx, &name));
        }
    }
}

/// Reads the state of a key, on a primary or a replica.
pub fn read<M: ServerMachine, R>(call: &Call<'_>, read: impl FnOnce(&M::State) -> R) -> Result<R, Failure> {
    read_at::<M, R>(call, 0, read)
}

/// The same of the key that is the argument of this index.
pub fn read_at<M: ServerMachine, R>(
    call: &Call<'_>,
    index: usize,
    read: impl FnOnce(&M::State) -> R,
) -> Result<R, Failure> {
    let key = Key::open_to_read(call, call.string(index)?);
    let (value, missing) = (Live::<M>::of(&key)?, M::State::default());
    let state = value.as_ref().map_or(&missing, Live::state);
    let kept = kept::<M>(call, index, state)?;
    Ok(read(kept.as_ref().unwrap_or(state)))
}

/// The state as it would be written down if the one short lease in it were, which its connection keeps beyond the end that the
/// key says. Where there are several leases, the timer writes them down at once, and a copy could take long.
fn kept<M: ServerMachine>(call: &Call<'_>, index: usize, state: &M::State) -> Result<Option<M::State>, Failure> {
    let now = clock::now();
    let overdue = M::overdue(state, now).filter(|_| sessions::any() && M::leases(state).nth(1).is_none());
    let Some(fence) = overdue else { return Ok(None) };
    let name = KeyName::new(M::KIND, call.db(), call.key_name(index)?);
    let Some(until) = sessions::keeps(&name, fence, now) else { return Ok(None) };
    let mut state = state.clone();
    let mut key = WaitedKey { state: &mut state, queue: &mut Queue::default() };
    fences::with_setting(now, None, |setting| M::extend(&mut key, fence, until, setting));
    Ok(Some(state))
}

/// `RENEW key token lease [<BOUND | BOUNDTO client-id> [GRACE d]]` of a machine whose holders are named by a token.
pub fn renew_token<M: ServerMachine>(
    call: &Call<'_>,
    request: TokenRenewCall<'_>,
    renew: impl FnOnce(&mut WaitedKey<'_, M>, &[u8], Span, &mut Setting<'_>) -> Stepped<M, Renewed>,
) -> Result<(), Failure> {
    let TokenRenewCall { token, lease, bind, .. } = request;
    let bind_to = sessions::target(call, bind)?;
    let now = clock::now();
    let opened = Opened::<M>::open(call, call.string(0)?)?;
    let name = (bind_to.is_some() || blocked_clients::any_undelivered()).then(|| opened.name());
    let renewed = opened.step(call, now, &[], |key, setting| renew(key, token, lease, setting));
    match &renewed {
        Renewed::Granted(grant) => {
            M::counters().renewed.add(1);
            settle_grant(name.as_ref(), bind_to, grant.fence, lease, now);
        }
        Renewed::Lost(_) => M::counters().stale.add(1),
    }
    RenewedReply::from(renewed).write(&mut call.reply());
    Ok(())
}
