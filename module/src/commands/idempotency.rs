//! `RES.IDEMP` and its subcommands.

use std::sync::Arc;

use resil_core::Span;
use resil_core::idempotency::{
    Committed, Idempotency, RunRequest, Settled, abort, begin, commit, look, once, renew, replay, seen_before,
};
use resil_core::limits::WAITERS_CEILING;
use resil_core::waited::{Decision, Reason, Renewed, Setting, Stepped, WaitedKey};
use resil_wire::holding::{Renewed as RenewedReply, write_given_up};
use resil_wire::idempotency::{
    BeginCall, Begun as BegunReply, CommitCall, Committed as CommittedReply, GetCall, OnceCall, TokenCall,
    TokenRenewCall, write_info, wrong_phase,
};
use resil_wire::reply::Sink;

use super::reading::read;
use crate::call::{Call, Failure};
use crate::info::counters;
use crate::machines::ServerMachine;
use crate::queues;
use crate::waited_key::{Asking, Opened, settle_grant, waiting};
use crate::{blocked_clients, clock, config, fences, sessions};

pub fn idemp_begin(
    call: &Call<'_>,
    BeginCall { token, lease, fingerprint, wait, keep, on_lapse, bind, .. }: BeginCall<'_>,
) -> Result<(), Failure> {
    config::refuse_if_evictable()?;
    let now = clock::now();
    let opened = Opened::<Idempotency>::open(call, call.string(0)?)?;
    // A duplicate of what is done changes nothing.
    if let Some(settled) = replay(opened.state(), fingerprint, now) {
        count(&settled);
        BegunReply::from(settled).write(&mut call.reply());
        return Ok(());
    }
    let bind_to = sessions::target(call, bind)?;
    if opened.state().work_for(fences::promoted_at(), now).is_none() {
        call.require_memory()?;
    }
    let waiting = waiting(call, wait, WAITERS_CEILING)?;
    let request = RunRequest { fingerprint: fingerprint.into(), lease, keep, on_lapse, bind_to };
    let asking = Asking { wait, waiting, bind_to, lease };
    let begun = opened.ask(call, now, asking, |key, setting| begin(key, token, request, waiting, setting));
    match begun {
        Decision::Granted(run) => {
            Idempotency::counters().granted.add(1);
            BegunReply::from(run).write(&mut call.reply());
        }
        Decision::Refused(settled) => {
            count(&settled);
            BegunReply::from(settled).write(&mut call.reply());
        }
        Decision::Queued => {}
        Decision::Conflict => return Err(wrong_phase("ONCE", "BEGIN").into()),
    }
    Ok(())
}

fn count(settled: &Settled) {
    match settled {
        Settled::Replay(_) => counters().replayed.add(1),
        Settled::Busy { .. } | Settled::Mismatch | Settled::Held { .. } | Settled::Miss => {
            Idempotency::counters().denied.add(1);
        }
    }
}

fn count_lost(reason: Option<Reason>) {
    if reason.is_some() {
        Idempotency::counters().stale.add(1);
    }
}

pub fn idemp_commit(
    call: &Call<'_>,
    CommitCall { token, ttl, result, failed, .. }: CommitCall<'_>,
) -> Result<(), Failure> {
    let opened = Opened::<Idempotency>::open(call, call.string(0)?)?;
    // That the work is done is always recorded; the result only if there is memory for it.
    let fits = result.len() <= config::max_result() && (result.is_empty() || !call.is_short_of_memory());
    let kept: Option<Arc<[u8]>> = fits.then(|| result.into());
    let committed =
        opened.step(call, clock::now(), &[], |key, setting| commit(key, token, ttl, (kept, failed), setting));
    match committed {
        Committed::Committed { stored } => {
            counters().committed.add(1);
            counters().results_dropped.add(u64::from(!stored));
        }
        Committed::Lost(reason) => count_lost(Some(reason)),
    }
    CommittedReply::from(committed).write(&mut call.reply());
    Ok(())
}

pub fn idemp_abort(call: &Call<'_>, TokenCall { token, .. }: TokenCall<'_>) -> Result<(), Failure> {
    let opened = Opened::<Idempotency>::open(call, call.string(0)?)?;
    let lost = opened.step(call, clock::now(), &[], |key, setting| abort(key, token, setting));
    count_lost(lost);
    write_given_up("ABORTED", lost, &mut call.reply());
    Ok(())
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

pub fn idemp_renew(call: &Call<'_>, request: TokenRenewCall<'_>) -> Result<(), Failure> {
    renew_token::<Idempotency>(call, request, renew)
}

pub fn idemp_once(call: &Call<'_>, OnceCall { token, ttl, .. }: OnceCall<'_>) -> Result<(), Failure> {
    config::refuse_if_evictable()?;
    let now = clock::now();
    let opened = Opened::<Idempotency>::open(call, call.string(0)?)?;
    let first = match seen_before(opened.state(), token, now) {
        // A duplicate changes nothing.
        Some(first) => first,
        None => {
            call.require_memory()?;
            let first = opened.step(call, now, &[], |key, setting| once(key, token, ttl, setting));
            first.map_err(|()| wrong_phase("BEGIN", "ONCE"))?
        }
    };
    let counter = if first { &counters().once_first } else { &counters().once_again };
    counter.add(1);
    call.reply().integer(i64::from(first));
    Ok(())
}

pub fn idemp_get(call: &Call<'_>, GetCall { fingerprint, .. }: GetCall<'_>) -> Result<(), Failure> {
    let (now, promoted_at) = (clock::now(), fences::promoted_at());
    let settled = read::<Idempotency, _>(call, |record| look(record, fingerprint, promoted_at, now))?;
    BegunReply::from(settled).write(&mut call.reply());
    Ok(())
}

pub fn idemp_info(call: &Call<'_>, key: &[u8]) -> Result<(), Failure> {
    let (now, promoted_at) = (clock::now(), fences::promoted_at());
    let waiters = queues::look::<Idempotency, _>(call.db(), key, |queue| queue.len());
    read::<Idempotency, _>(call, |record| write_info(record, waiters, promoted_at, now, &mut call.reply()))
}
