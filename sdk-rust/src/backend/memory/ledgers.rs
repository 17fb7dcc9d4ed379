//! Dead letters.
//!
//! A store has one user, whose name is that of a server's without ACLs: it has to say who governs. Nothing was forgotten before the
//! store began, so redrives need not wait for that, and every lapse counts. What a server does by its timers is done here when
//! somebody looks: nothing runs in the background for a ledger that nobody asks.

use resil_core::Instant;
use resil_core::dead_letters::{
    Discard, Governor, Ledger, Ledgers, NothingDue, Room, TakeRequest, Taken, close, configure, diagnose, done, fail,
    give_back, hold, park, purge, redrive, renew, see, standing, stop, take,
};
use resil_core::limits::{LEDGER_BYTES_DEFAULT, LEDGER_ENTRIES_DEFAULT, RESOLVED_DEFAULT, TAKE_MAX, WAITERS_CEILING};
use resil_core::waited::{Asked, Decision, Machine, Setting, Stepped, WaitedKey, Waiting};
use resil_wire::command::Reply;
use resil_wire::dead_letters::{
    By, CloseCall, Closed, Configured, DiagnoseCall, DoneCall, EntryCall, FailCall, HoldCall, LedgerAspect,
    LedgerConfigCall, LedgerInfoCall, LedgerReply, ListCall, ParkCall, PurgeCall, RedriveCall, ReturnCall, SeenCall,
    StopCall, TakeCall, TakenReply, diagnosed, no_redrive, write_alert, write_audit, write_case, write_config,
    write_entry, write_entry_row, write_group, write_ledger, write_redrive,
};
use resil_wire::idempotency::TokenRenewCall;
use resil_wire::reply::Value;

use super::store::{Store, Touch, When};
use super::waited::{MemoryMachine, Replied, Waited};
use super::{Memory, refused};
use crate::error::Error;

const ROOM: Room = Room { entries: LEDGER_ENTRIES_DEFAULT, bytes: LEDGER_BYTES_DEFAULT, resolved: RESOLVED_DEFAULT };

const USER: &[u8] = b"default";

impl MemoryMachine for Ledgers {
    /// Each entry has one.
    const FENCES_OF_A_GRANT: usize = TAKE_MAX;

    fn granted(taken: Taken) -> Reply {
        Reply::Taken(taken.into())
    }

    fn refused(due: NothingDue) -> Reply {
        Reply::Taken(TakenReply::nothing(due))
    }

    fn timed_out(due: NothingDue) -> Reply {
        Reply::Taken(TakenReply::timeout(due))
    }
}

fn reply(asked: Asked<Ledgers>) -> Result<Reply, Error> {
    match asked {
        Decision::Granted(taken) => Ok(Ledgers::granted(taken)),
        Decision::Refused(due) => Ok(Ledgers::refused(due)),
        Decision::Queued | Decision::Conflict => Err(Error::Internal("a call that waits has no reply yet".to_owned())),
    }
}

fn governor<'a>(by: By<'a>) -> Result<Governor<'a>, Error> {
    match by.actor {
        Some(_) => Ok(by.governor(USER)),
        None => Err(Error::InvalidArgument("ACTOR is required for the user default: say who acts".to_owned())),
    }
}

impl Memory {
    pub async fn wait_for_entries(&self, call: &TakeCall<'_>) -> Result<Reply, Error> {
        let ask = |waiting| self.store.ask_to_take(call, Some(waiting), When::Now);
        self.wait_in_queue::<Ledgers>((call.key, call.wait.length, WAITERS_CEILING), ask, reply).await
    }
}

impl Store {
    fn step_ledger<V>(
        &self,
        key: &[u8],
        when: When,
        step: impl FnOnce(&mut WaitedKey<'_, Ledgers>, &mut Setting<'_>) -> Stepped<Ledgers, V>,
    ) -> Result<V, Error> {
        self.watch_clock(when);
        self.step(key, when, step)
    }

    /// Shows it as it is by now.
    fn show(&self, key: &[u8], when: When, show: impl FnOnce(&Ledger, Instant) -> LedgerReply) -> Result<Reply, Error> {
        self.step_ledger(key, when, Ledgers::tick)?;
        self.on(key, when, |waited: &mut Waited<Ledgers>, now| {
            Ok((Reply::Ledger(show(waited.state(), now)), Touch::Unchanged))
        })
    }

    fn ask_to_take(
        &self,
        call: &TakeCall<'_>,
        waiting: Option<Waiting>,
        when: When,
    ) -> Result<Replied<Asked<Ledgers>>, Error> {
        self.watch_clock(when);
        // Nothing disconnects in here, so what is to be bound to a connection is only leased.
        let (count, meta) = (call.count as usize, call.meta.into());
        let request = TakeRequest { lease: call.lease, count, meta, bind_to: None };
        let id = waiting.map(|waiting| waiting.id);
        self.ask(call.key, when, id, |key, setting| take(key, call.token, request, waiting, setting))
    }

    pub fn try_to_take(&self, call: &TakeCall<'_>, when: When) -> Result<Reply, Error> {
        reply(self.ask_to_take(call, None, when)?.verdict)
    }

    pub fn fail(&self, call: &FailCall<'_>, when: When) -> Result<Reply, Error> {
        let failing = call.failing(rand::random());
        let failed = self.step_ledger(call.key, when, |key, setting| fail(key, &failing, &ROOM, setting))?;
        failed.try_into().map(Reply::Failed).map_err(refused)
    }

    pub fn park(&self, call: &ParkCall<'_>, when: When) -> Result<Reply, Error> {
        let parked = self.step_ledger(call.key, when, |key, setting| park(key, &call.facts, &ROOM, setting))?;
        parked.try_into().map(Reply::Parked).map_err(refused)
    }

    pub fn done(&self, call: &DoneCall<'_>, when: When) -> Result<Reply, Error> {
        let ended = self.step_ledger(call.key, when, |key, setting| done(key, &call.entries, &ROOM, setting))?;
        Ok(Reply::Done(ended.into_vec()))
    }

    pub fn give_back(&self, call: &ReturnCall<'_>, when: When) -> Result<Reply, Error> {
        let ended =
            self.step_ledger(call.key, when, |key, setting| give_back(key, &call.entries, call.delay, setting))?;
        Ok(Reply::Returned(ended.into_vec()))
    }

    pub fn renew_batch(&self, call: &TokenRenewCall<'_>, when: When) -> Result<Reply, Error> {
        let renewed = self.step_ledger(call.key, when, |key, setting| renew(key, call.token, call.lease, setting).0)?;
        Ok(Reply::BatchRenewed(renewed.into()))
    }

    pub fn show_entry(&self, call: &EntryCall<'_>, when: When) -> Result<Reply, Error> {
        self.show(call.key, when, |ledger, now| match call.only_state {
            true => standing(ledger, call.id, now)
                .map_or(LedgerReply::Nothing, |(standing, _)| LedgerReply::State(standing)),
            false => ledger.get(call.id).map_or(LedgerReply::Nothing, |entry| {
                LedgerReply::Map(Value::written(|sink| write_entry(&entry, sink)))
            }),
        })
    }

    pub fn list_entries(&self, call: &ListCall<'_>, when: When) -> Result<Reply, Error> {
        self.show(call.key, when, |ledger, _| {
            let mut rows = Vec::new();
            let cursor = ledger.list(&call.filter, call.part.cursor, call.part.limit, |entry| {
                rows.push(Value::written(|sink| write_entry_row(&entry, sink)));
            });
            LedgerReply::List { cursor, rows }
        })
    }

    pub fn show_ledger(&self, call: &LedgerInfoCall<'_>, when: When) -> Result<Reply, Error> {
        let (cursor, limit) = (call.part.cursor, call.part.limit);
        let exists = self.look(call.key, |_| ()).is_some();
        self.show(call.key, when, |ledger, _| match call.aspect {
            LedgerAspect::Counts => LedgerReply::Map(Value::written(|sink| write_ledger(&ledger.view(), exists, sink))),
            LedgerAspect::Config => LedgerReply::Map(Value::written(|sink| write_config(&ledger.config, sink))),
            LedgerAspect::Case(number) => ledger
                .case(number)
                .map_or(LedgerReply::Nothing, |case| LedgerReply::Map(Value::written(|sink| write_case(&case, sink)))),
            LedgerAspect::Groups => {
                let (groups, cursor) = ledger.groups(cursor, limit);
                let rows = groups.map(|group| Value::written(|sink| write_group(&group, sink))).collect();
                LedgerReply::List { cursor, rows }
            }
            LedgerAspect::Cases => {
                let (cases, cursor) = ledger.cases(cursor, limit);
                let rows = cases.map(|case| Value::written(|sink| write_case(&case, sink))).collect();
                LedgerReply::List { cursor, rows }
            }
            LedgerAspect::Alerts => {
                let (alerts, cursor) = ledger.alerts(cursor, limit);
                let rows = alerts.map(|alert| Value::written(|sink| write_alert(alert, sink))).collect();
                LedgerReply::List { cursor, rows }
            }
            LedgerAspect::Audit => {
                let (audit, cursor) = ledger.audit(cursor, limit);
                let rows = audit.map(|row| Value::written(|sink| write_audit(row, sink))).collect();
                LedgerReply::List { cursor, rows }
            }
        })
    }

    pub fn diagnose(&self, call: &DiagnoseCall<'_>, when: When) -> Result<Reply, Error> {
        let by = governor(call.by)?;
        let verdict = self.step_ledger(call.key, when, |key, setting| diagnose(key, &call.diagnosis, &by, setting))?;
        diagnosed(verdict).map(Reply::Number).map_err(refused)
    }

    pub fn redrive(&self, call: &RedriveCall<'_>, when: When) -> Result<Reply, Error> {
        let (by, request) = (governor(call.by)?, call.request());
        self.step_ledger(call.key, when, |key, setting| redrive(key, &request, &by, setting)).map(Reply::Redriven)
    }

    pub fn stop(&self, call: &StopCall<'_>, when: When) -> Result<Reply, Error> {
        let by = governor(call.by)?;
        let view = self.step_ledger(call.key, when, |key, setting| stop(key, call.case, &by, setting))?;
        let view = view.ok_or_else(|| refused(no_redrive(call.case)))?;
        Ok(Reply::Map(Value::written(|sink| write_redrive(&view, sink))))
    }

    pub fn close(&self, call: &CloseCall<'_>, when: When) -> Result<Reply, Error> {
        let by = governor(call.by)?;
        let discard = if call.discard { Discard::UnderWay } else { Discard::No };
        let closed = self.step_ledger(call.key, when, |key, setting| close(key, call.case, discard, &by, setting))?;
        Closed::of(call.case, closed).map(Reply::Closed).map_err(refused)
    }

    pub fn hold(&self, call: &HoldCall<'_>, when: When) -> Result<Reply, Error> {
        let (by, reason) = (governor(call.by)?, call.reason.unwrap_or_default());
        let count =
            self.step_ledger(call.key, when, |key, setting| hold(key, call.target, call.is_on, reason, &by, setting))?;
        Ok(Reply::Number(count as i64))
    }

    pub fn purge(&self, call: &PurgeCall<'_>, when: When) -> Result<Reply, Error> {
        let (by, has_jumped) = (governor(call.by)?, self.watch_clock(when));
        let purged =
            self.step_ledger(call.key, when, |key, setting| purge(key, &call.request, has_jumped, &by, setting))?;
        purged.try_into().map(Reply::Purged).map_err(refused)
    }

    pub fn see_alert(&self, call: &SeenCall<'_>, when: When) -> Result<Reply, Error> {
        let by = governor(call.by)?;
        let seen = self.step_ledger(call.key, when, |key, setting| see(key, call.alert, &by, setting))?;
        Ok(Reply::Number(i64::from(seen)))
    }

    pub fn configure_ledger(&self, call: &LedgerConfigCall<'_>, when: When) -> Result<Reply, Error> {
        let by = governor(call.by)?;
        self.step_ledger(call.key, when, |key, setting| configure(key, &call.change, &by, setting))?;
        Ok(Reply::Configured(Configured))
    }

    /// True if the clock has jumped, within a day.
    fn watch_clock(&self, when: When) -> bool {
        let now = self.now(when);
        let mut watch = self.clock_watch.lock();
        watch.look(now);
        watch.has_jumped(now)
    }
}
