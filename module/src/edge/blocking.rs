//! Blocking a client and unblocking it: the server's calls, and its callbacks, which go to `blocked_clients`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use redis_module::raw;
use resil_core::waited::session::ClientId;

use super::call::Call;
use super::{OK, api, guard};
use crate::blocked_clients::{self, ClientReply};

/// A blocked client, as the server names it. It is live until it is unblocked, which its owner does once.
#[derive(Debug, PartialEq, Eq, Hash, Clone, Copy)]
pub struct Handle(*mut raw::RedisModuleBlockedClient);

/// Blocks the client of `call`. `None` if the server does not let it wait.
pub fn block(call: &Call<'_>) -> Option<Handle> {
    // SAFETY: the callbacks have the signatures asked for; no timeout, so the server never ends the wait by itself.
    let handle = unsafe { api!(RedisModule_BlockClient)(call.ctx, Some(write), Some(unblocked), Some(free), 0) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is live until it is unblocked.
    unsafe { api!(RedisModule_SetDisconnectCallback)(handle, Some(disconnected)) };
    Some(Handle(handle))
}

impl Handle {
    /// Unblocks the client with a reply, which the server asks for in `write`, or without one.
    pub fn unblock(self, reply: Option<ClientReply>) {
        let reply = reply.map_or(null_mut(), |reply| Box::into_raw(Box::new(Some(reply))));
        // SAFETY: `blocked_clients` has just removed the handle, so this happens once. The box goes to `write` and `free`.
        unsafe { api!(RedisModule_UnblockClient)(self.0, reply.cast()) };
    }

    fn of(ctx: *mut raw::RedisModuleCtx) -> Self {
        // SAFETY: the context is that of a blocked client.
        Self(unsafe { api!(RedisModule_GetBlockedClientHandle)(ctx) })
    }
}

fn client_of(ctx: *mut raw::RedisModuleCtx) -> ClientId {
    // SAFETY: the context is that of a blocked client.
    unsafe { api!(RedisModule_GetClientId)(ctx) }
}

/// The server gives a call its client back, to write the reply.
extern "C" fn write(ctx: *mut raw::RedisModuleCtx, _argv: *mut *mut raw::RedisModuleString, _argc: c_int) -> c_int {
    guard((), || {
        // SAFETY: the context is that of the unblocked client, its private data is the box made in `unblock`.
        let reply =
            unsafe { api!(RedisModule_GetBlockedClientPrivateData)(ctx).cast::<Option<ClientReply>>().as_mut() };
        blocked_clients::write_sent(ctx, Handle::of(ctx), client_of(ctx), reply.and_then(Option::take));
    });
    OK
}

extern "C" fn free(_ctx: *mut raw::RedisModuleCtx, reply: *mut c_void) {
    if !reply.is_null() {
        // SAFETY: the box made in `unblock`, given back once.
        guard((), || drop(unsafe { Box::from_raw(reply.cast::<Option<ClientReply>>()) }));
    }
}

extern "C" fn unblocked(ctx: *mut raw::RedisModuleCtx, _argv: *mut *mut raw::RedisModuleString, _argc: c_int) -> c_int {
    guard((), || blocked_clients::unblocked(ctx, Handle::of(ctx)));
    OK
}

extern "C" fn disconnected(ctx: *mut raw::RedisModuleCtx, handle: *mut raw::RedisModuleBlockedClient) {
    guard((), || blocked_clients::disconnected(ctx, Handle(handle), client_of(ctx)));
}
