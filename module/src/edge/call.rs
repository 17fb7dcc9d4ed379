//! One call of a command: its arguments, its keys, its reply. Everything a handler may touch of the server.

use std::ffi::{CStr, CString, c_int, c_longlong};
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use redis_module::raw;
use resil_wire::Refused;
use resil_wire::argv::Argv;
use resil_wire::command::{Arguments, Page};
use resil_wire::reply::Sink;
use smallvec::SmallVec;

use crate::edge::{OK, api, bytes_of, guard};
use crate::info::counters;
use crate::{config, sessions};

/// Why a command replies with an error.
#[derive(Debug)]
pub enum Failure {
    /// The request was malformed or broke a rule; the text starts with its code.
    Refused(Refused),
    WrongType,
    /// New state would be needed, and the server is at maxmemory.
    OutOfMemory,
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// A command of the module: its page, and what it does.
pub trait Command {
    const PAGE: &'static Page;

    /// How many words its name has: two for a subcommand.
    const WORDS: usize = if has_space(Self::PAGE.name) { 2 } else { 1 };

    fn run(call: &Call<'_>) -> Result<(), Failure>;
}

const fn has_space(text: &str) -> bool {
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        if *byte == b' ' {
            return true;
        }
        rest = after;
    }
    false
}

/// Parses the arguments of command `C`.
pub fn parse<'a, C: Command, A: Arguments<'a>>(args: &'a [&'a [u8]]) -> Result<A, Refused> {
    A::parse(Argv::new(args, C::PAGE), &config::allowed())
}

/// The arguments of a call; the words of the command's name are not among them.
pub type Args<'a> = SmallVec<[&'a [u8]; 16]>;

pub struct Call<'a> {
    pub ctx: *mut raw::RedisModuleCtx,
    argv: &'a [*mut raw::RedisModuleString],
    words: usize,
    _strings: PhantomData<&'a [u8]>,
}

/// What the server calls.
pub type Entry = extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// The function the server calls for command `C`.
pub extern "C" fn entry<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let answered = guard(false, || {
        // SAFETY: the server hands over `argc` live strings for the time of this call.
        let argv = unsafe { std::slice::from_raw_parts(argv, argc.max(0) as usize) };
        let call = Call { ctx, argv, words: C::WORDS, _strings: PhantomData };
        sessions::heard(&call);
        if let Err(failure) = C::run(&call) {
            call.fail(failure);
        }
        true
    });
    if !answered {
        ReplySink(ctx).error(c"ERR internal error; it is in the server's log");
    }
    OK
}

impl<'a> Call<'a> {
    /// What a timer does, as if somebody had called.
    pub fn of_timer(ctx: *mut raw::RedisModuleCtx) -> Self {
        Call { ctx, argv: &[], words: 0, _strings: PhantomData }
    }

    pub fn is_timers(&self) -> bool {
        self.argv.is_empty()
    }

    /// The number of the connection that calls.
    pub fn client(&self) -> u64 {
        // SAFETY: the context is that of this call.
        unsafe { api!(RedisModule_GetClientId)(self.ctx) }
    }

    pub fn db(&self) -> i32 {
        // SAFETY: the context is that of this call.
        unsafe { api!(RedisModule_GetSelectedDb)(self.ctx) }
    }

    pub fn is_in_script(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_LUA as c_int != 0
    }

    /// True inside MULTI and scripts: the reply of the whole has begun, or is another's.
    pub fn is_nested(&self) -> bool {
        let nested = raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA;
        self.flags() & nested as c_int != 0
    }

    /// False inside MULTI and scripts.
    pub fn may_wait(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING as c_int == 0
    }

    fn flags(&self) -> c_int {
        // SAFETY: the context is that of this call.
        unsafe { api!(RedisModule_GetContextFlags)(self.ctx) }
    }

    pub fn args(&self) -> Args<'a> {
        // SAFETY: the strings live as long as the call.
        self.argv.iter().skip(self.words).map(|string| unsafe { bytes_of(*string) }).collect()
    }

    /// The `index`-th argument as the server's own string, counted as in [`Call::args`].
    pub fn string(&self, index: usize) -> Result<*mut raw::RedisModuleString, Failure> {
        self.argv.get(self.words + index).copied().ok_or_else(|| Refused::new("missing key").into())
    }

    /// Its bytes: the name of a key.
    pub fn key_name(&self, index: usize) -> Result<&'a [u8], Failure> {
        // SAFETY: the string lives as long as the call.
        self.string(index).map(|string| unsafe { bytes_of(string) })
    }

    pub fn is_from_primary_or_file(&self) -> bool {
        let trusted = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
        self.flags() & trusted as c_int != 0
    }

    /// False on a replica.
    pub fn is_on_primary(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_SLAVE as c_int == 0
    }

    /// Refuses if the server is above maxmemory: asked only where new state would be created. A server that may evict
    /// makes room before the next command, so there only a clear excess is refused: it cannot evict enough.
    pub fn require_memory(&self) -> Result<(), Failure> {
        let most = if counters().eviction_risk.load(Relaxed) { 1.05 } else { 1.0 };
        // SAFETY: takes no argument; 0 if no maxmemory is set.
        if unsafe { api!(RedisModule_GetUsedMemoryRatio)() } > most && !self.is_from_primary_or_file() {
            return Err(Failure::OutOfMemory);
        }
        Ok(())
    }

    /// True if there is no memory for new state; for what must not be refused because of that.
    pub fn is_short_of_memory(&self) -> bool {
        self.require_memory().is_err()
    }

    pub fn reply(&self) -> ReplySink {
        ReplySink(self.ctx)
    }

    pub fn reply_ok(&self) {
        // SAFETY: the context is that of this call.
        unsafe { api!(RedisModule_ReplyWithSimpleString)(self.ctx, c"OK".as_ptr()) };
    }

    fn fail(&self, failure: Failure) {
        let text: &CStr = match failure {
            Failure::WrongType => c"WRONGTYPE Operation against a key holding the wrong kind of value",
            Failure::OutOfMemory => c"OOM command not allowed when used memory > 'maxmemory' and new state is needed.",
            Failure::Refused(refused) => {
                counters().refused.add(1);
                return self.fail_with(refused.text());
            }
        };
        self.reply().error(text);
    }

    fn fail_with(&self, text: &str) {
        // Error texts quote what was given in printable form, so there is no NUL in them.
        let text = CString::new(text).unwrap_or_else(|_| c"ERR malformed request".to_owned());
        self.reply().error(&text);
    }
}

/// Writes replies straight to the client.
pub struct ReplySink(*mut raw::RedisModuleCtx);

impl ReplySink {
    /// To the client of a context that is no call's: one that was blocked.
    pub fn of(ctx: *mut raw::RedisModuleCtx) -> Self {
        Self(ctx)
    }

    pub fn error(&mut self, text: &CStr) {
        // SAFETY: the context is that of the running call; the server copies the text.
        unsafe { api!(RedisModule_ReplyWithError)(self.0, text.as_ptr()) };
    }
}

impl Sink for ReplySink {
    fn array(&mut self, len: usize) {
        // SAFETY: the context is that of the running call.
        unsafe { api!(RedisModule_ReplyWithArray)(self.0, len as std::ffi::c_long) };
    }

    fn map(&mut self, pairs: usize) {
        // SAFETY: as above. For a client of the older protocol the server writes an array.
        unsafe { api!(RedisModule_ReplyWithMap)(self.0, pairs as std::ffi::c_long) };
    }

    fn integer(&mut self, number: i64) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.0, number as c_longlong) };
    }

    fn text(&mut self, bytes: &[u8]) {
        // SAFETY: as above; the server copies the bytes.
        unsafe { api!(RedisModule_ReplyWithStringBuffer)(self.0, bytes.as_ptr().cast(), bytes.len()) };
    }

    fn null(&mut self) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_ReplyWithNull)(self.0) };
    }
}

/// Runs `act` as a timer would, with `key` as a string of the server.
pub fn with_string<R>(
    ctx: *mut raw::RedisModuleCtx,
    key: &[u8],
    act: impl FnOnce(&Call<'_>, *mut raw::RedisModuleString) -> R,
) -> R {
    // SAFETY: the server copies the bytes; the string is freed after it was used.
    unsafe {
        let string = api!(RedisModule_CreateString)(ctx, key.as_ptr().cast(), key.len());
        let result = act(&Call::of_timer(ctx), string);
        api!(RedisModule_FreeString)(ctx, string);
        result
    }
}

/// The same in database `db`. Only for timers: the context's database is changed.
pub fn with_string_in<R>(
    ctx: *mut raw::RedisModuleCtx,
    db: i32,
    key: &[u8],
    act: impl FnOnce(&Call<'_>, *mut raw::RedisModuleString) -> R,
) -> R {
    // SAFETY: the context is a timer's.
    unsafe { api!(RedisModule_SelectDb)(ctx, db) };
    with_string(ctx, key, act)
}
