//! What the server knows of its connections.

use std::ffi::CStr;

use redis_module::raw;
use resil_core::limits::TEXT_MAX;
use resil_core::waited::session::ClientId;

use crate::call::Call;
use crate::edge::{OK, api, bytes_of};

/// One line of CLIENT LIST, as far as it concerns us.
pub struct Listed {
    pub id: ClientId,
    /// Whole seconds since it was last read from or written to.
    pub idle_secs: i64,
    /// Bytes of replies not yet handed to the socket.
    pub unsent: u64,
}

/// Those of `ids` that are connected.
pub fn list(ctx: *mut raw::RedisModuleCtx, ids: &[ClientId]) -> Vec<Listed> {
    let mut listed = Vec::new();
    // Not too many at a time: each is an argument of its own.
    for ids in ids.chunks(256) {
        let ids: Vec<String> = ids.iter().map(ClientId::to_string).collect();
        let words: Vec<&[u8]> = [&b"LIST"[..], b"ID"].into_iter().chain(ids.iter().map(|id| id.as_bytes())).collect();
        let text = ask(ctx, c"CLIENT", &words).unwrap_or_default();
        listed.extend(text.split(|byte| *byte == b'\n').filter_map(parse));
    }
    listed
}

fn parse(line: &[u8]) -> Option<Listed> {
    let line = std::str::from_utf8(line).ok()?;
    let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    Some(Listed {
        id: number("id")?,
        idle_secs: number("idle").unwrap_or(0).try_into().unwrap_or(i64::MAX),
        unsent: number("obl").unwrap_or(0) + number("omem").unwrap_or(0),
    })
}

pub fn is_connected(id: ClientId) -> bool {
    // SAFETY: a null place asks only whether the client exists.
    unsafe { api!(RedisModule_GetClientInfoById)(std::ptr::null_mut(), id) == OK }
}

/// The user who calls, at most as long as a text that is stored. A script is nobody's connection, but has the user who started it.
pub fn caller_name(call: &Call<'_>) -> Option<Vec<u8>> {
    let name = user_name(call.ctx, call.client()).or_else(|| {
        // SAFETY: a script always has a user; the string is ours to free.
        if call.is_in_script() {
            unsafe { owned(call.ctx, api!(RedisModule_GetCurrentUserName)(call.ctx)) }
        } else {
            None
        }
    });
    name.map(|mut name| {
        name.truncate(TEXT_MAX);
        name
    })
}

/// The user of a connection, if there is such a connection.
fn user_name(ctx: *mut raw::RedisModuleCtx, id: ClientId) -> Option<Vec<u8>> {
    // SAFETY: the server returns a string of ours to free, or null if there is no such client.
    unsafe { owned(ctx, api!(RedisModule_GetClientUserNameById)(ctx, id)) }
}

/// # Safety
/// `name` is null, or a string of ours to free.
unsafe fn owned(ctx: *mut raw::RedisModuleCtx, name: *mut raw::RedisModuleString) -> Option<Vec<u8>> {
    if name.is_null() {
        return None;
    }
    // SAFETY: by contract.
    unsafe {
        let bytes = bytes_of(name).to_vec();
        api!(RedisModule_FreeString)(ctx, name);
        Some(bytes)
    }
}

/// True if both connections exist and belong to one user.
pub fn have_same_user(ctx: *mut raw::RedisModuleCtx, one: ClientId, other: ClientId) -> bool {
    match (user_name(ctx, one), user_name(ctx, other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Calls a command of the server that replies with a text.
pub fn ask(ctx: *mut raw::RedisModuleCtx, command: &CStr, words: &[&[u8]]) -> Option<Vec<u8>> {
    // SAFETY: the server copies the words; strings and reply are freed before they are left.
    unsafe {
        let mut strings: Vec<*mut raw::RedisModuleString> =
            words.iter().map(|word| api!(RedisModule_CreateString)(ctx, word.as_ptr().cast(), word.len())).collect();
        let reply = api!(RedisModule_Call)(ctx, command.as_ptr(), c"v".as_ptr(), strings.as_mut_ptr(), strings.len());
        strings.into_iter().for_each(|string| api!(RedisModule_FreeString)(ctx, string));
        if reply.is_null() {
            return None;
        }
        let mut len = 0;
        let start = api!(RedisModule_CallReplyStringPtr)(reply, &mut len);
        let text = (!start.is_null()).then(|| std::slice::from_raw_parts(start.cast::<u8>(), len).to_vec());
        api!(RedisModule_FreeCallReply)(reply);
        text
    }
}

/// Publishes a message; returns how many connections of this server got it. `is_sharded`: in a cluster, to the channel's slot.
pub fn publish(ctx: *mut raw::RedisModuleCtx, channel: &[u8], message: &[u8], is_sharded: bool) -> usize {
    // SAFETY: the server copies the bytes of both strings, which are freed here.
    unsafe {
        let string = |text: &[u8]| api!(RedisModule_CreateString)(ctx, text.as_ptr().cast(), text.len());
        let (channel, message) = (string(channel), string(message));
        let publish = if is_sharded { api!(RedisModule_PublishMessageShard) } else { api!(RedisModule_PublishMessage) };
        let got = publish(ctx, channel, message);
        api!(RedisModule_FreeString)(ctx, channel);
        api!(RedisModule_FreeString)(ctx, message);
        usize::try_from(got).unwrap_or(0)
    }
}

/// How many connections of this server are subscribed to the channel itself; patterns do not count.
pub fn subscribers(ctx: *mut raw::RedisModuleCtx, channel: &[u8], is_sharded: bool) -> i64 {
    let count = if is_sharded { c"SHARDNUMSUB" } else { c"NUMSUB" };
    // SAFETY: the server copies the words; the reply is freed after it was read. An error, or a reply of another shape, has no
    // second element.
    unsafe {
        let channel = api!(RedisModule_CreateString)(ctx, channel.as_ptr().cast(), channel.len());
        let reply = api!(RedisModule_Call)(ctx, c"PUBSUB".as_ptr(), c"cs".as_ptr(), count.as_ptr(), channel);
        api!(RedisModule_FreeString)(ctx, channel);
        if reply.is_null() {
            return 0;
        }
        let second = api!(RedisModule_CallReplyArrayElement)(reply, 1);
        let count = if second.is_null() { 0 } else { api!(RedisModule_CallReplyInteger)(second) };
        api!(RedisModule_FreeCallReply)(reply);
        count
    }
}
