//! What commands that only read do alike, of keys that can be waited for.

use resil_core::waited::{Queue, WaitedKey};

use crate::call::{Call, Failure};
use crate::datatype::waited::Live;
use crate::key::Key;
use crate::machines::ServerMachine;
use crate::queues::KeyName;
use crate::{clock, fences, sessions};

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
