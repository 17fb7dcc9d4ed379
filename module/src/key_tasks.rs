//! What the background does with keys that can be waited for: timers that fire, pending tasks, slots that move.

use redis_module::raw;
use resil_core::{Instant, Span};

use crate::call::{Call, Failure, with_string_in};
use crate::cluster::{self, Standing};
use crate::machines::{ServerMachine, for_kind};
use crate::pending::{self, Losses, Task, borrowed};
use crate::queues::{self, KeyName};
use crate::sessions;
use crate::timers::GoneKey;
use crate::waited_key::{Opened, TRY_AGAIN, lost, turn_all_away};

/// Something to do with a key of any machine.
trait Work {
    fn on<M: ServerMachine>(self, call: &Call<'_>, opened: Result<Opened<'_, M>, Failure>);
}

/// Opens the key in its database and does `work`. Only for timers: the context's database is changed.
fn work_on(ctx: *mut raw::RedisModuleCtx, name: &KeyName, work: impl Work) {
    with_string_in(ctx, name.db, &name.key, |call, string| {
        for_kind!(name.kind, M => work.on::<M>(call, Opened::open(call, string)));
    });
}

/// May a timer write to this key now? If not, its waiters are sent where it is, or wait a little more.
fn is_ours(ctx: *mut raw::RedisModuleCtx, name: &KeyName, now: Instant) -> bool {
    match cluster::standing(ctx, &name.key, now) {
        Standing::Ours => true,
        Standing::Moving => {
            give_up(ctx, name, now);
            false
        }
        Standing::Moved(text) => {
            turn_all_away(name, &text);
            false
        }
    }
}

/// Sends waiters away whose slot has left.
pub fn redirect(ctx: *mut raw::RedisModuleCtx, name: &KeyName, now: Instant) {
    if is_ours(ctx, name, now) || !queues::waits(name) {
        return;
    }
    struct TurnAwayIfGone;
    impl Work for TurnAwayIfGone {
        fn on<M: ServerMachine>(self, _call: &Call<'_>, opened: Result<Opened<'_, M>, Failure>) {
            if let Ok(opened) = opened
                && !opened.exists()
            {
                turn_all_away(&opened.name(), TRY_AGAIN);
            }
        }
    }
    work_on(ctx, name, TurnAwayIfGone);
}

/// The instant that the key asked for has come.
pub fn woken(ctx: *mut raw::RedisModuleCtx, name: &KeyName, now: Instant) {
    /// How soon a key is looked at again whose slot is on its way.
    const SOON: Span = Span::from_ms(100);
    struct Woken {
        now: Instant,
        ours: bool,
    }
    impl Work for Woken {
        fn on<M: ServerMachine>(self, call: &Call<'_>, opened: Result<Opened<'_, M>, Failure>) {
            let Self { now, ours } = self;
            let Ok(mut opened) = opened else { return };
            if !opened.exists() {
                return;
            }
            if !ours {
                opened.arm(Some(now.plus(SOON)));
            } else if let Some(later) = opened.is_kept_until(now) {
                opened.arm(Some(later));
            } else {
                opened.step(call, now, &[], M::tick);
            }
        }
    }
    let ours = is_ours(ctx, name, now);
    work_on(ctx, name, Woken { now, ours });
}

/// Does what was left to do with a key; gives it back if that has to wait.
pub fn run_task(ctx: *mut raw::RedisModuleCtx, name: &KeyName, task: Task, now: Instant) -> Option<Task> {
    struct Do<'a>(&'a KeyName, Task, Instant);
    impl Work for Do<'_> {
        fn on<M: ServerMachine>(self, call: &Call<'_>, opened: Result<Opened<'_, M>, Failure>) {
            let Self(name, task, now) = self;
            let Ok(mut opened) = opened else {
                // Something else has the name now.
                turn_all_away(name, TRY_AGAIN);
                if let Task::Lost { owner, fence, reason, at, details } = task {
                    lost(call, name, &owner, fence, reason, at, &borrowed(&details));
                }
                return;
            };
            match task {
                Task::Serve => {
                    if opened.exists() || queues::waits(name) {
                        opened.step(call, now, &[], M::tick);
                    }
                }
                Task::Close(_) | Task::Cut { .. } | Task::TakeBack(_) => {
                    opened.end_in_turn(call, task, now);
                }
                Task::Rearm => {
                    if opened.disarm() {
                        opened.step(call, now, &[], M::tick);
                    }
                }
                Task::Lost { owner, fence, reason, at, details } => {
                    // It may have come back under the same name: restored, or reloaded.
                    if M::lease(opened.state(), fence).is_none() {
                        lost(call, name, &owner, fence, reason, at, &borrowed(&details));
                    }
                }
            }
        }
    }
    match (cluster::standing(ctx, &name.key, now), task) {
        (Standing::Ours, task) => work_on(ctx, name, Do(name, task, now)),
        // It has moved, or is moving, with its key: it is not lost, only no longer bound here.
        (_, Task::Lost { fence, reason, .. }) => sessions::lose(name, fence, reason),
        (Standing::Moving, task) => {
            redirect(ctx, name, now);
            return Some(task);
        }
        (Standing::Moved(text), task) => {
            if matches!(task, Task::Serve) {
                cluster::key_arrived(now);
            }
            turn_all_away(name, &text);
        }
    }
    None
}

/// The server is a replica now: waiters get the error that servers send in such a case.
pub fn unblock(name: &KeyName) {
    let text = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
    turn_all_away(name, text);
}

/// A bound holder was heard of: its lease runs until `until`.
pub fn extend(ctx: *mut raw::RedisModuleCtx, name: &KeyName, fence: u64, until: Instant, now: Instant) {
    struct Extend(u64, Instant, Instant);
    impl Work for Extend {
        fn on<M: ServerMachine>(self, call: &Call<'_>, opened: Result<Opened<'_, M>, Failure>) {
            let Self(fence, until, now) = self;
            let Ok(opened) = opened else { return };
            let name = opened.name();
            let holds =
                opened.exists() && opened.step(call, now, &[], |key, setting| M::extend(key, fence, until, setting));
            if !holds && !pending::losses_pending() {
                // Its end was announced when it came; here nothing is left to renew.
                sessions::unbind(&name, fence);
            }
        }
    }
    if is_ours(ctx, name, now) {
        work_on(ctx, name, Extend(fence, until, now));
    }
}

/// Nothing may be written: only patience can end.
pub fn give_up(ctx: *mut raw::RedisModuleCtx, name: &KeyName, now: Instant) {
    struct GiveUp(Instant);
    impl Work for GiveUp {
        fn on<M: ServerMachine>(self, _call: &Call<'_>, opened: Result<Opened<'_, M>, Failure>) {
            let Ok(mut opened) = opened else { return };
            opened.give_up(self.0);
        }
    }
    if queues::waits(name) {
        work_on(ctx, name, GiveUp(now));
    }
}

/// A key is gone with its holders: they have lost it, and the next waiter can have it.
pub fn gone(ctx: *mut raw::RedisModuleCtx, gone: GoneKey, now: Instant) {
    let GoneKey { name, at, reason, share } = gone;
    let mut holders = for_kind!(name.kind, M => pending::holders_of::<M>(share, name.clone(), at));
    let mut published = 0;
    for (owner, fence, own) in holders.by_ref().take(pending::MANY) {
        let lost = Task::Lost { owner, fence, reason: own.unwrap_or(reason), at, details: None };
        run_task(ctx, &name, lost, now);
        published += 1;
    }
    if published == pending::MANY {
        pending::announce(Losses::new(name.clone(), holders, reason, at, None));
    }
    if queues::waits(&name) {
        pending::add(name, Task::Serve);
    }
}
