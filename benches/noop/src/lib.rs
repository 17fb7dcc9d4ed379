//! The true limit of a module command: the hot commands of Resil with the same arguments and the same replies, and nothing in
//! between. No argument is read but to choose the reply, no key is opened, nothing is stored.
//!
//! `compare` loads it into a server of its own and sends it what it sends to Resil. What is left between the two is what
//! Resil does; the rest is the server's own price for a command of a module. Never load it anywhere else.

use std::ffi::{CStr, c_int, c_long};

use redis_module::raw;

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// A function of the server, filled by the initialisation.
macro_rules! api {
    ($name:ident) => {
        redis_module::raw::$name.unwrap_unchecked()
    };
}

/// An element of a canned reply.
enum Part {
    Number(i64),
    Text(&'static str),
    Nil,
}

use Part::{Nil, Number, Text};

const FENCE: i64 = 1_794_798_034_889_246;
const RESULT: &str =
    "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv";
const PERMIT: &str = "0.6605bfb4e4c72.8a95f07b55050a7";

type Context = *mut raw::RedisModuleCtx;
type Arguments = *mut *mut raw::RedisModuleString;

fn reply(ctx: Context, parts: &[Part]) -> c_int {
    // SAFETY: the context is that of the command; the server copies what it is given.
    unsafe {
        api!(RedisModule_ReplyWithArray)(ctx, parts.len() as c_long);
        for part in parts {
            match part {
                Number(number) => api!(RedisModule_ReplyWithLongLong)(ctx, *number),
                Text(text) => api!(RedisModule_ReplyWithStringBuffer)(ctx, text.as_ptr().cast(), text.len()),
                Nil => api!(RedisModule_ReplyWithNull)(ctx),
            };
        }
    }
    OK
}

/// Whether the token, the fourth word, is the one of somebody who comes second: see the rows of `compare`.
fn comes_second(argv: Arguments, argc: c_int) -> bool {
    if argc < 4 {
        return false;
    }
    let mut len = 0;
    // SAFETY: there are at least four arguments, which live as long as the command.
    let token = unsafe {
        let start = api!(RedisModule_StringPtrLen)(*argv.add(3), &mut len);
        std::slice::from_raw_parts(start.cast::<u8>(), len)
    };
    token.starts_with(b"token:9")
}

extern "C" fn gcra(ctx: Context, _: Arguments, _: c_int) -> c_int {
    reply(ctx, &[Number(1), Number(100), Number(99), Number(0), Number(600)])
}

extern "C" fn admit(ctx: Context, _: Arguments, _: c_int) -> c_int {
    reply(ctx, &[Number(1), Text("closed"), Text(PERMIT), Number(0), Number(0)])
}

extern "C" fn report(ctx: Context, _: Arguments, _: c_int) -> c_int {
    reply(ctx, &[Number(1), Text("closed"), Number(0), Number(0), Text("counted")])
}

extern "C" fn acquire(ctx: Context, _: Arguments, _: c_int) -> c_int {
    reply(ctx, &[Text("GRANTED"), Number(FENCE), Number(30_000), Number(0)])
}

extern "C" fn release(ctx: Context, _: Arguments, _: c_int) -> c_int {
    reply(ctx, &[Text("RELEASED"), Number(0)])
}

extern "C" fn begin(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    if comes_second(argv, argc) {
        return reply(ctx, &[Text("REPLAY"), Text("ok"), Text(RESULT), Number(100)]);
    }
    reply(ctx, &[Text("RUN"), Number(FENCE), Number(1), Number(0)])
}

extern "C" fn commit(ctx: Context, _: Arguments, _: c_int) -> c_int {
    reply(ctx, &[Text("COMMITTED"), Text("stored")])
}

extern "C" fn once(ctx: Context, _: Arguments, _: c_int) -> c_int {
    // SAFETY: the context is that of the command.
    unsafe { api!(RedisModule_ReplyWithLongLong)(ctx, 1) }
}

extern "C" fn value(ctx: Context, _: Arguments, _: c_int) -> c_int {
    reply(ctx, &[Text("VALUE"), Text(RESULT), Number(100), Number(3_600_000)])
}

extern "C" fn join(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    if comes_second(argv, argc) {
        return value(ctx, argv, argc);
    }
    reply(ctx, &[Text("LEAD"), Number(FENCE), Nil, Number(0)])
}

extern "C" fn publish(ctx: Context, _: Arguments, _: c_int) -> c_int {
    reply(ctx, &[Text("PUBLISHED"), Number(0)])
}

type Command = extern "C" fn(Context, Arguments, c_int) -> c_int;

const CONTAINERS: [(&CStr, &[(&CStr, Command)]); 4] = [
    (c"RES.BREAKER", &[(c"ADMIT", admit), (c"REPORT", report), (c"TALLY", report)]),
    (c"RES.LOCK", &[(c"ACQUIRE", acquire), (c"RELEASE", release)]),
    (c"RES.IDEMP", &[(c"BEGIN", begin), (c"COMMIT", commit), (c"ONCE", once)]),
    (c"RES.SFLIGHT", &[(c"JOIN", join), (c"GET", value), (c"PUBLISH", publish)]),
];

/// # Safety
/// Called by the server, once, with its context.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: Context, _argv: Arguments, _argc: c_int) -> c_int {
    // SAFETY: called while loading; names and functions are static.
    unsafe {
        if raw::Export_RedisModule_Init(ctx, c"resil-noop".as_ptr(), 1, raw::REDISMODULE_APIVER_1 as c_int) != OK {
            return ERR;
        }
        let flags = c"write fast".as_ptr();
        if api!(RedisModule_CreateCommand)(ctx, c"RES.GCRA".as_ptr(), Some(gcra), flags, 1, 1, 1) != OK {
            return ERR;
        }
        for (name, subcommands) in CONTAINERS {
            if api!(RedisModule_CreateCommand)(ctx, name.as_ptr(), None, c"".as_ptr(), 0, 0, 0) != OK {
                return ERR;
            }
            let parent = api!(RedisModule_GetCommand)(ctx, name.as_ptr());
            if parent.is_null() {
                return ERR;
            }
            for (subcommand, run) in subcommands {
                if api!(RedisModule_CreateSubcommand)(parent, subcommand.as_ptr(), Some(*run), flags, 2, 2, 1) != OK {
                    return ERR;
                }
            }
        }
    }
    OK
}
