//! `RES.GUARD` and its subcommands.

use resil_core::Span;
use resil_core::guard::{
    Admitted, EnterRefusal, Exited, Guards, LimitRule, Subject, SubjectChange, SubjectLimit, enter, exit, limit_of,
    mended_limit, show,
};
use resil_core::limits::WAITERS_CEILING;
use resil_core::waited::Decision;
use resil_core::window::Window;
use resil_wire::Refused;
use resil_wire::guard::{GuardEnterCall, GuardEntered, GuardExitCall, GuardExited, write_guard_state};
use resil_wire::policy::no_policy;

use super::dead_letters::random;
use super::gcra::read_tiers;
use crate::apply::{edit_plain, publish_plain, publish_tiers, store_tiers};
use crate::call::{Call, Failure};
use crate::datatype::Value;
use crate::datatype::boxed::Boxed;
use crate::datatype::tiers::Tiers;
use crate::datatype::waited::Live;
use crate::denials::{self, Refuser};
use crate::edge::replication::notify;
use crate::info::counters;
use crate::key::Key;
use crate::machines::ServerMachine;
use crate::waited_key::{Asking, Opened, waiting};
use crate::{clock, cluster, fences, guard_events, queues};

pub fn guard_enter(call: &Call<'_>, request: GuardEnterCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let opened = Opened::<Guards>::open(call, call.string(0)?)?;
    let asked = request.request(random());
    let Some(name) = request.subject else {
        let waiting = waiting(call, request.wait, WAITERS_CEILING)?;
        // A ticket is bound to no connection.
        let asking = Asking { wait: request.wait, waiting, bind_to: None, lease: Span::ZERO };
        let entered =
            opened.ask(call, now, asking, |key, setting| enter(key, request.owner, asked, None, waiting, setting));
        return reply(call, entered);
    };
    if !cluster::in_one_slot(request.key, name) {
        return Err(Refused::with_code("CROSSSLOT", "Keys in request don't hash to the same slot").into());
    }
    let mut key = Key::open_to_write(call, subject_string(call, name)?);
    // What the limit becomes: a refusal changes it only if the clock was set back.
    let step = |opened: Opened<'_, Guards>, limit| {
        let (subject, mut change) = (Some(Subject { name, limit }), None);
        let entered = opened.step(call, now, &[], |key, setting| {
            let entered = enter(key, request.owner, asked, subject, None, setting);
            change = match &entered.verdict {
                Decision::Granted(admitted) => admitted.subject.clone(),
                _ => mended_limit(key.state, subject, now),
            };
            entered
        });
        (entered, change)
    };
    let entered = match limit_of(opened.state()) {
        None => step(opened, SubjectLimit::Unlimited).0,
        Some(LimitRule::Gcra(_)) => {
            let value = key.value::<Tiers>()?;
            let old = read_tiers(value);
            if value.is_none() {
                call.require_memory()?;
            }
            let (entered, change) = step(opened, SubjectLimit::Gcra(&old));
            if let Some(SubjectChange::Gcra(tiers)) = &change {
                store_tiers(&mut key, value, &old, tiers);
                publish_tiers(call, &key, tiers, c"res.gcra.take");
            }
            entered
        }
        Some(LimitRule::Window(_)) => {
            let (value, empty) = (key.value::<Boxed<Window>>()?, Window::default());
            if value.is_none() {
                call.require_memory()?;
            }
            let (entered, change) = step(opened, SubjectLimit::Window(value.as_ref().map_or(&empty, Value::get)));
            if let Some(SubjectChange::Window(change)) = &change {
                edit_plain::<Window>(&mut key, value, *change);
                publish_plain::<Window>(call, &key, change, value.is_none());
                notify(call, &key, c"res.window.take");
            }
            entered
        }
    };
    reply(call, entered)
}

/// The string of the key that SUBJECT names.
fn subject_string(call: &Call<'_>, name: &[u8]) -> Result<*mut redis_module::raw::RedisModuleString, Failure> {
    let index = call.args().iter().position(|arg| std::ptr::eq(*arg, name));
    call.string(index.ok_or_else(|| Refused::new("missing SUBJECT"))?)
}

fn reply(call: &Call<'_>, entered: Decision<Admitted, EnterRefusal>) -> Result<(), Failure> {
    match entered {
        Decision::Granted(admitted) => {
            Guards::counters().granted.add(1);
            GuardEntered::from(&admitted).write(&mut call.reply());
        }
        Decision::Refused(refusal) => {
            let refused = GuardEntered::try_from(refusal)?;
            Guards::counters().denied.add(1);
            denials::note(|| call.db(), Refuser::Policy, call.key_name(0)?);
            refused.write(&mut call.reply());
        }
        Decision::Queued | Decision::Conflict => {}
    }
    Ok(())
}

pub fn guard_exit(call: &Call<'_>, request: GuardExitCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let opened = Opened::<Guards>::open(call, call.string(0)?)?;
    let details = request.correlation.map(|correlation| ("correlation", correlation));
    let asked = request.request(random());
    let exited = guard_events::with_details(details.as_slice(), || {
        opened.step(call, now, &[], |key, setting| exit(key, request.number(), asked, setting))
    });
    match exited {
        Exited::Retry { .. } => counters().guard_retries.add(1),
        Exited::Stop { .. } => counters().guard_stops.add(1),
        Exited::Done | Exited::NoPolicy => {}
    }
    GuardExited::try_from(exited)?.write(&mut call.reply());
    Ok(())
}

pub fn guard_state(call: &Call<'_>, name: &[u8]) -> Result<(), Failure> {
    let now = clock::now();
    let key = Key::open_to_read(call, call.string(0)?);
    let value = Live::<Guards>::of(&key)?;
    let view = queues::look::<Guards, _>(call.db(), name, |queue| {
        value.as_ref().and_then(|value| show(value.state(), Some(queue), fences::promoted_at(), now))
    });
    write_guard_state(&view.ok_or_else(no_policy)?, &mut call.reply());
    Ok(())
}
