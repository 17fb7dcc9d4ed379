//! `RES.POLICY` and its subcommands.

use resil_core::guard::{Author, Guard, Guards, delete, set};
use resil_wire::policy::{
    PolicyChanged, PolicyCheckCall, PolicyDeleteCall, PolicyGetCall, PolicySetCall, invalid, read_document,
    write_checked, write_history, write_policy,
};

use crate::call::{Call, Failure};
use crate::clients;
use crate::clock;
use crate::datatype::waited::Live;
use crate::key::Key;
use crate::waited_key::Opened;

/// Who acts: as the caller says, or the user of the connection.
fn actor(call: &Call<'_>, given: Option<&[u8]>) -> Vec<u8> {
    match given {
        Some(given) => given.to_vec(),
        None => clients::caller_name(call).unwrap_or_default(),
    }
}

pub fn policy_set(call: &Call<'_>, request: PolicySetCall<'_>) -> Result<(), Failure> {
    let (document, settings) = read_document(request.json).map_err(|wrong| invalid(&wrong))?;
    let (now, actor) = (clock::now(), actor(call, request.actor));
    let author = Author { actor: &actor, reason: request.reason.unwrap_or_default() };
    let opened = Opened::<Guards>::open(call, call.string(0)?)?;
    if !opened.exists() {
        call.require_memory()?;
    }
    let changed =
        opened.step(call, now, &[], |key, setting| set(key, &document, settings, request.expected, author, setting));
    PolicyChanged::try_from(changed)?.write(&mut call.reply());
    Ok(())
}

pub fn policy_delete(call: &Call<'_>, request: PolicyDeleteCall<'_>) -> Result<(), Failure> {
    let (now, actor) = (clock::now(), actor(call, request.actor));
    let author = Author { actor: &actor, reason: request.reason.unwrap_or_default() };
    let opened = Opened::<Guards>::open(call, call.string(0)?)?;
    let deleted = opened.step(call, now, &[], |key, setting| delete(key, request.expected, author, setting));
    PolicyChanged::try_from(deleted)?.write(&mut call.reply());
    Ok(())
}

/// Reads the policy, on a primary or a replica. It is never copied.
fn look<R>(call: &Call<'_>, look: impl FnOnce(&Guard) -> R) -> Result<R, Failure> {
    let key = Key::open_to_read(call, call.string(0)?);
    let (value, missing) = (Live::<Guards>::of(&key)?, Guard::default());
    Ok(look(value.as_ref().map_or(&missing, Live::state)))
}

pub fn policy_get(call: &Call<'_>, request: PolicyGetCall<'_>) -> Result<(), Failure> {
    look(call, |guard| write_policy(guard, request.version, &mut call.reply()))
}

pub fn policy_history(call: &Call<'_>, _: &[u8]) -> Result<(), Failure> {
    look(call, |guard| write_history(guard, &mut call.reply()))
}

pub fn policy_check(call: &Call<'_>, request: PolicyCheckCall<'_>) -> Result<(), Failure> {
    write_checked(request.json, &mut call.reply());
    Ok(())
}
