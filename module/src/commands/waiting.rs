//! What every command does alike whose callers may wait: bounds, waiting, binding, reading, HELP.

use resil_core::queue::{WaiterId, Waiting};
use resil_core::session::ClientId;
use resil_core::{Instant, Span};
use resil_wire::argv::Argv;
use resil_wire::holding::Bounds;
use resil_wire::reply::Sink;

use crate::call::{Call, Failure};
use crate::datatype::waited::{Stored, Waited};
use crate::key::Key;
use crate::lines::{self, Name};
use crate::machine::Machine;
use crate::{config, parked, room, sessions};

pub fn bounds() -> Bounds {
    Bounds { lease_max: config::max_lease(), wait_max: config::max_wait() }
}

/// How this call waits, if it wants to and may: inside MULTI and scripts WAIT means try once.
pub fn waiting(call: &Call<'_>, wait: Span, most: u32) -> Option<Waiting> {
    (!wait.is_zero() && call.may_wait()).then(|| {
        let most = most.min(config::max_waiters()) as usize;
        Waiting { id: parked::next_id(), wait, most }
    })
}

/// The caller is told of its grant: it hangs on a connection if that was asked for, and is not taken back any more if an
/// earlier call of the same owner could not be told.
pub fn settle_grant(name: Option<&Name>, bind_to: Option<ClientId>, fence: u64, lease: Span, now: Instant) {
    let Some(name) = name else { return };
    parked::told_elsewhere(name, fence);
    if let Some(client) = bind_to {
        sessions::bind(client, name, fence, lease, now);
    }
}

/// The step put the call in line: its client waits for the answer. Where the server does not let it, its time is over
/// at once (Valkey, for a connection with subscriptions).
pub fn wait_for_answer(call: &Call<'_>, id: WaiterId, name: Name) {
    if !parked::park(call, id, name.clone()) {
        lines::leave(&name, id);
        parked::tell_now(call, room::timeout(call.ctx, &name));
    }
}

/// Reads the state of a key, on a primary or a replica.
pub fn read<M: Machine, R>(call: &Call<'_>, read: impl FnOnce(&M::State) -> R) -> Result<R, Failure> {
    let key = Key::open_to_read(call, call.string(0)?);
    let missing = Stored::<M>::default();
    // SAFETY: the value of the open key, only read.
    let stored = key.value::<Waited<M>>()?.map_or(&missing, |value| unsafe { &*Waited::<M>::get(value) });
    Ok(read(&stored.state))
}

pub fn help(call: &Call<'_>, usage: &'static str, lines: &[&str]) -> Result<(), Failure> {
    Argv::new(&call.args(), usage).finish()?;
    let mut reply = call.reply();
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.text(line.as_bytes()));
    Ok(())
}
