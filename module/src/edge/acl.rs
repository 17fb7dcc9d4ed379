//! Which keys a caller may read. Redis 7.0 and later can be asked; [`check`](super::check) refuses to load where they cannot.

use std::ffi::c_int;
use std::ptr::null_mut;

use redis_module::raw;

use super::{OK, api};
use crate::call::Call;
use crate::clients;

/// The caller, as one who reads.
pub struct Reader {
    /// Null: nobody.
    user: *mut raw::RedisModuleUser,
    /// Another module calls, without a user: it may do what it likes.
    is_unlimited: bool,
}

impl Reader {
    pub fn of(call: &Call<'_>) -> Self {
        let Some(name) = clients::caller_name(call) else { return Self { user: null_mut(), is_unlimited: true } };
        // SAFETY: the server copies the bytes and the name; the string is freed. A user that is not there is null.
        unsafe {
            let name = api!(RedisModule_CreateString)(call.ctx, name.as_ptr().cast(), name.len());
            let user = api!(RedisModule_GetModuleUserFromUserName)(name);
            api!(RedisModule_FreeString)(call.ctx, name);
            Self { user, is_unlimited: false }
        }
    }

    pub fn may_read(&self, key: *mut raw::RedisModuleString) -> bool {
        if self.user.is_null() {
            return self.is_unlimited;
        }
        // SAFETY: both live.
        unsafe {
            api!(RedisModule_ACLCheckKeyPermissions)(self.user, key, raw::REDISMODULE_CMD_KEY_ACCESS as c_int) == OK
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.user.is_null() {
            // SAFETY: made by `of`, freed once. The user itself is the server's and stays.
            unsafe { api!(RedisModule_FreeModuleUser)(self.user) };
        }
    }
}
