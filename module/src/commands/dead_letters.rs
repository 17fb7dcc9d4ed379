//! `RES.DLQ` and its subcommands.

use std::cell::Cell;

use resil_core::Instant;
use resil_core::dead_letters::{
    BatchRenewed, Discard, Ended, Failed, Governor, Ledger, Ledgers, Parked, Room, TakeRequest, close, configure,
    diagnose, done, fail, give_back, hold, park, purge, redrive, renew, see, standing, stop, take,
};
use resil_core::limits::{TAKE_MAX, WAITERS_CEILING};
use resil_core::waited::{Decision, Setting, Stepped, WaitedKey};
use resil_wire::Refused;
use resil_wire::dead_letters::{
    BatchRenewed as RenewedReply, By, CloseCall, Closed as ClosedReply, Configured, DiagnoseCall, DoneCall, EntryCall,
    FailCall, Failed as FailedReply, HoldCall, LedgerAspect, LedgerConfigCall, LedgerInfoCall, ListCall, ParkCall,
    Parked as ParkedReply, Part, PurgeCall, Purged as PurgedReply, RedriveCall, ReturnCall, SeenCall, StopCall,
    TakeCall, TakenReply, diagnosed, no_redrive, write_alert, write_audit, write_case, write_config, write_ended,
    write_entry, write_entry_row, write_group, write_ledger, write_list, write_redrive, write_redriven,
};
use resil_wire::idempotency::TokenRenewCall;
use resil_wire::reply::Sink;

use crate::call::{Call, Failure};
use crate::clients;
use crate::datatype::waited::Live;
use crate::info::{Counter, counters};
use crate::key::Key;
use crate::machines::ServerMachine;
use crate::waited_key::{Asking, Opened, settle_grant, waiting};
use crate::{blocked_clients, clock, config, server, sessions};

type Step<V> = Stepped<Ledgers, V>;

/// What a ledger may grow to, as it stands in `opened`.
fn room(ledger: &Ledger) -> Room {
    config::ledger_room(ledger.bytes())
}

/// Spreads delays (splitmix64). The server's own random numbers cost more than the rest of a call, and nobody gains by guessing
/// a delay.
pub(super) fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(u64::from(server::random()) << 32 | u64::from(server::random()));
    }
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A new entry needs memory, and a server that does not evict ledgers.
fn require_room_for_new(call: &Call<'_>, ledger: &Ledger, id: &[u8], now: Instant) -> Result<(), Failure> {
    let refused = config::refuse_ledger_if_evictable().and_then(|()| call.require_memory());
    // What is known already takes nothing.
    refused.or_else(|refused| if standing(ledger, id, now).is_some() { Ok(()) } else { Err(refused) })
}

pub fn dlq_fail(call: &Call<'_>, request: FailCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let opened = Opened::<Ledgers>::open(call, call.string(0)?)?;
    if request.fence.is_none() {
        require_room_for_new(call, opened.state(), request.facts.id, now)?;
    }
    let room = room(opened.state());
    let failing = request.failing(random());
    let failed = opened.step(call, now, &[], |key, setting| fail(key, &failing, &room, setting));
    let ledgers = &counters().ledgers;
    match &failed {
        Failed::Retry { .. } => ledgers.retried.add(1),
        Failed::Dead { .. } => ledgers.died.add(1),
        Failed::Known { .. } => ledgers.known.add(1),
        Failed::Lost(_) => Ledgers::counters().stale.add(1),
        Failed::Conflict => ledgers.conflicts.add(1),
        Failed::Full => ledgers.full.add(1),
    }
    FailedReply::try_from(failed)?.write(&mut call.reply());
    Ok(())
}

pub fn dlq_park(call: &Call<'_>, request: ParkCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let opened = Opened::<Ledgers>::open(call, call.string(0)?)?;
    require_room_for_new(call, opened.state(), request.facts.id, now)?;
    let room = room(opened.state());
    let parked = opened.step(call, now, &[], |key, setting| park(key, &request.facts, &room, setting));
    match &parked {
        Parked::Behind { .. } => counters().ledgers.parked.add(1),
        Parked::Full => counters().ledgers.full.add(1),
        Parked::Conflict => counters().ledgers.conflicts.add(1),
        Parked::Free | Parked::Known { .. } => {}
    }
    ParkedReply::try_from(parked)?.write(&mut call.reply());
    Ok(())
}

pub fn dlq_take(
    call: &Call<'_>,
    TakeCall { token, lease, count, wait, bind, meta, .. }: TakeCall<'_>,
) -> Result<(), Failure> {
    let bind_to = sessions::target(call, bind)?;
    let now = clock::now();
    let opened = Opened::<Ledgers>::open(call, call.string(0)?)?;
    let waiting = waiting(call, wait, WAITERS_CEILING)?;
    if waiting.is_some() {
        call.require_memory()?;
    }
    let count = usize::try_from(count).unwrap_or(TAKE_MAX).min(TAKE_MAX);
    let request = TakeRequest { lease, count, meta: meta.into(), bind_to };
    let asking = Asking { wait, waiting, bind_to, lease };
    let taken = opened.ask(call, now, asking, |key, setting| take(key, token, request, waiting, setting));
    match taken {
        Decision::Granted(taken) => {
            Ledgers::counters().granted.add(1);
            counters().ledgers.taken.add(taken.entries.len() as u64);
            TakenReply::from(taken).write(&mut call.reply());
        }
        Decision::Refused(nothing) => {
            Ledgers::counters().denied.add(1);
            TakenReply::nothing(nothing).write(&mut call.reply());
        }
        Decision::Queued | Decision::Conflict => {}
    }
    Ok(())
}

/// What was ended counts as such, the rest as stale.
fn count_ended(counter: &Counter, ended: &[Ended]) {
    let count = ended.iter().filter(|ended| **ended == Ended::Ended).count();
    counter.add(count as u64);
    Ledgers::counters().stale.add((ended.len() - count) as u64);
}

pub fn dlq_done(call: &Call<'_>, DoneCall { entries, .. }: DoneCall<'_>) -> Result<(), Failure> {
    let opened = Opened::<Ledgers>::open(call, call.string(0)?)?;
    let room = room(opened.state());
    let ended = opened.step(call, clock::now(), &[], |key, setting| done(key, &entries, &room, setting));
    count_ended(&counters().ledgers.done, &ended);
    write_ended("DONE", &ended, &mut call.reply());
    Ok(())
}

pub fn dlq_return(call: &Call<'_>, ReturnCall { entries, delay, .. }: ReturnCall<'_>) -> Result<(), Failure> {
    let opened = Opened::<Ledgers>::open(call, call.string(0)?)?;
    let ended = opened.step(call, clock::now(), &[], |key, setting| give_back(key, &entries, delay, setting));
    count_ended(&counters().ledgers.returned, &ended);
    write_ended("RETURNED", &ended, &mut call.reply());
    Ok(())
}

pub fn dlq_renew(
    call: &Call<'_>,
    TokenRenewCall { token, lease, bind, .. }: TokenRenewCall<'_>,
) -> Result<(), Failure> {
    let bind_to = sessions::target(call, bind)?;
    let now = clock::now();
    let opened = Opened::<Ledgers>::open(call, call.string(0)?)?;
    let name = (bind_to.is_some() || blocked_clients::any_undelivered()).then(|| opened.name());
    let mut own = None;
    let renewed = opened.step(call, now, &[], |key, setting| {
        let (stepped, fence) = renew(key, token, lease, setting);
        own = fence;
        stepped
    });
    match &renewed {
        BatchRenewed::Granted { .. } => Ledgers::counters().renewed.add(1),
        BatchRenewed::Lost(_) => Ledgers::counters().stale.add(1),
    }
    if let Some(fence) = own {
        settle_grant(name.as_ref(), bind_to, fence, lease, now);
    }
    RenewedReply::from(renewed).write(&mut call.reply());
    Ok(())
}

/// Reads the ledger, on a primary or a replica. It is never copied.
fn look<R>(call: &Call<'_>, look: impl FnOnce(&Ledger) -> R) -> Result<R, Failure> {
    let key = Key::open_to_read(call, call.string(0)?);
    let (value, missing) = (Live::<Ledgers>::of(&key)?, Ledger::default());
    Ok(look(value.as_ref().map_or(&missing, Live::state)))
}

pub fn dlq_get(call: &Call<'_>, EntryCall { id, only_state, .. }: EntryCall<'_>) -> Result<(), Failure> {
    let (now, mut reply) = (clock::now(), call.reply());
    look(call, |ledger| match (only_state, standing(ledger, id, now), ledger.get(id)) {
        (true, Some((standing, _)), _) => reply.text(standing.text().as_bytes()),
        (false, _, Some(view)) => write_entry(&view, &mut reply),
        _ => reply.null(),
    })
}

pub fn dlq_list(
    call: &Call<'_>,
    ListCall { filter, part: Part { cursor, limit }, .. }: ListCall<'_>,
) -> Result<(), Failure> {
    look(call, |ledger| {
        let mut rows = Vec::new();
        let next = ledger.list(&filter, cursor, limit, |view| rows.push(view));
        write_list(next, &rows, |row, reply| write_entry_row(row, reply), &mut call.reply());
    })
}

pub fn dlq_info(
    call: &Call<'_>,
    LedgerInfoCall { aspect, part: Part { cursor, limit }, .. }: LedgerInfoCall<'_>,
) -> Result<(), Failure> {
    let mut reply = call.reply();
    let exists = !Key::open_to_read(call, call.string(0)?).is_empty();
    look(call, |ledger| match aspect {
        LedgerAspect::Counts => write_ledger(&ledger.view(), exists, &mut reply),
        LedgerAspect::Groups => {
            let (rows, next) = ledger.groups(cursor, limit);
            write_list(next, &rows.collect::<Vec<_>>(), |row, reply| write_group(row, reply), &mut reply);
        }
        LedgerAspect::Cases => {
            let (rows, next) = ledger.cases(cursor, limit);
            write_list(next, &rows.collect::<Vec<_>>(), |row, reply| write_case(row, reply), &mut reply);
        }
        LedgerAspect::Case(number) => match ledger.case(number) {
            Some(view) => write_case(&view, &mut reply),
            None => reply.null(),
        },
        LedgerAspect::Alerts => {
            let (rows, next) = ledger.alerts(cursor, limit);
            write_list(next, &rows.collect::<Vec<_>>(), |row, reply| write_alert(row, reply), &mut reply);
        }
        LedgerAspect::Audit => {
            let (rows, next) = ledger.audit(cursor, limit);
            write_list(next, &rows.collect::<Vec<_>>(), |row, reply| write_audit(row, reply), &mut reply);
        }
        LedgerAspect::Config => write_config(&ledger.config, &mut reply),
    })
}

/// A governance action: who does it is known, or it is refused.
fn govern<V>(
    call: &Call<'_>,
    by: By<'_>,
    step: impl FnOnce(&mut WaitedKey<'_, Ledgers>, &Governor<'_>, &mut Setting<'_>) -> Step<V>,
) -> Result<V, Failure> {
    let user = clients::caller_name(call).unwrap_or_default();
    if by.actor.is_none() && (user.is_empty() || user == b"default") {
        return Err(Refused::new("ACTOR is required for the user default: say who acts").into());
    }
    let opened = Opened::<Ledgers>::open(call, call.string(0)?)?;
    let governor = by.governor(&user);
    Ok(opened.step(call, clock::now(), &[], |key, setting| step(key, &governor, setting)))
}

pub fn dlq_diagnose(call: &Call<'_>, DiagnoseCall { diagnosis, by, .. }: DiagnoseCall<'_>) -> Result<(), Failure> {
    call.require_memory()?;
    let verdict = govern(call, by, |key, governor, setting| diagnose(key, &diagnosis, governor, setting))?;
    call.reply().integer(diagnosed(verdict)?);
    Ok(())
}

pub fn dlq_redrive(call: &Call<'_>, request: RedriveCall<'_>) -> Result<(), Failure> {
    let asked = request.request();
    let redriven = govern(call, request.by, |key, governor, setting| redrive(key, &asked, governor, setting))?;
    write_redriven(&redriven, &mut call.reply());
    Ok(())
}

pub fn dlq_stop(call: &Call<'_>, StopCall { case, by, .. }: StopCall<'_>) -> Result<(), Failure> {
    let view = govern(call, by, |key, governor, setting| stop(key, case, governor, setting))?;
    write_redrive(&view.ok_or_else(|| no_redrive(case))?, &mut call.reply());
    Ok(())
}

pub fn dlq_close(call: &Call<'_>, CloseCall { case, discard, by, .. }: CloseCall<'_>) -> Result<(), Failure> {
    let discard = if discard { Discard::UnderWay } else { Discard::No };
    let closed = govern(call, by, |key, governor, setting| close(key, case, discard, governor, setting))?;
    ClosedReply::of(case, closed)?.write(&mut call.reply());
    Ok(())
}

pub fn dlq_hold(call: &Call<'_>, HoldCall { target, is_on, reason, by, .. }: HoldCall<'_>) -> Result<(), Failure> {
    let reason = reason.unwrap_or_default();
    let count = govern(call, by, |key, governor, setting| hold(key, target, is_on, reason, governor, setting))?;
    call.reply().integer(count as i64);
    Ok(())
}

pub fn dlq_purge(call: &Call<'_>, PurgeCall { request, by, .. }: PurgeCall<'_>) -> Result<(), Failure> {
    let jumped = clock::has_jumped();
    let purged = govern(call, by, |key, governor, setting| purge(key, &request, jumped, governor, setting))?;
    PurgedReply::try_from(purged)?.write(&mut call.reply());
    Ok(())
}

pub fn dlq_seen(call: &Call<'_>, SeenCall { alert, by, .. }: SeenCall<'_>) -> Result<(), Failure> {
    let seen = govern(call, by, |key, governor, setting| see(key, alert, governor, setting))?;
    call.reply().integer(i64::from(seen));
    Ok(())
}

pub fn dlq_config(call: &Call<'_>, LedgerConfigCall { change, by, .. }: LedgerConfigCall<'_>) -> Result<(), Failure> {
    govern(call, by, |key, governor, setting| configure(key, &change, governor, setting))?;
    Configured.write(&mut call.reply());
    Ok(())
}
