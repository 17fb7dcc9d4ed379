//! Rows of idempotency keys and single flights, beside plain commands and beside scripts.
//!
//! What is done for the first time is done on a key that was never used, for the rivals too: they leave one as well. What
//! finds something finds it among 1,000. Results and values have 100 bytes. All but ours run on a server without the module.
//!
//! The scripts have the guarantees of ours: one runner or leader under a lease, fences that grow, attempts, fingerprints,
//! lost commits, stale values, errors. What a script cannot do is wait, and there are neither ABORT nor INVALIDATE.

use crate::catalogue::row;
use crate::load::{Call, Keys, Load, Place, Reply};

pub const ONCE: &str = "idemp: ONCE, new";
pub const ONCE_SET: &str = "idemp: SET NX PX, new";
pub const ONCE_AGAIN: &str = "idemp: ONCE, seen before";
pub const ONCE_AGAIN_SET: &str = "idemp: SET NX PX, seen before";
pub const RUN: &str = "idemp: BEGIN, COMMIT";
pub const RUN_SET: &str = "idemp: SET NX PX, SET XX PX";
pub const RUN_LUA: &str = "idemp: Lua begin, commit by EVALSHA";
pub const REPLAY: &str = "idemp: BEGIN, committed";
pub const REPLAY_LUA: &str = "idemp: Lua begin, committed, by EVALSHA";
pub const GET: &str = "flight: GET k";
pub const GET_OURS: &str = "flight: RES.SFLIGHT GET, fresh";
pub const JOIN: &str = "flight: JOIN, fresh";
pub const JOIN_LUA: &str = "flight: Lua join, fresh, by EVALSHA";
pub const LOAD: &str = "flight: JOIN, PUBLISH";
pub const LOAD_LUA: &str = "flight: Lua join, publish by EVALSHA";

pub const ROWS: [&str; 15] = [
    ONCE,
    ONCE_SET,
    ONCE_AGAIN,
    ONCE_AGAIN_SET,
    RUN,
    RUN_SET,
    RUN_LUA,
    REPLAY,
    REPLAY_LUA,
    GET,
    GET_OURS,
    JOIN,
    JOIN_LUA,
    LOAD,
    LOAD_LUA,
];
/// A row of ours and what it is held against.
pub const PEERS: [(&str, &str); 10] = [
    (ONCE, ONCE_SET),
    (ONCE_AGAIN, ONCE_AGAIN_SET),
    (RUN, RUN_SET),
    (RUN, RUN_LUA),
    (REPLAY, GET),
    (REPLAY, REPLAY_LUA),
    (GET_OURS, GET),
    (JOIN, GET),
    (JOIN, JOIN_LUA),
    (LOAD, LOAD_LUA),
];

/// KEYS[1]; ARGV: token, lease and keep in ms, a fingerprint or nothing. Replies as `RES.IDEMP BEGIN` does.
pub const LUA_BEGIN: &str = r"
local record = redis.call('HMGET', KEYS[1], 'state', 'token', 'ends', 'fence', 'attempt', 'print', 'result', 'at')
local state, print = record[1], record[6]
if print and ARGV[4] and print ~= ARGV[4] then
  return {'MISMATCH'}
end
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
if state == 'ok' or state == 'error' then
  return {'REPLAY', state, record[7], now - record[8]}
end
if state == 'running' and now < tonumber(record[3]) then
  if record[2] == ARGV[1] then
    return {'RUN', tonumber(record[4]), tonumber(record[5]), 0}
  end
  return {'BUSY', record[3] - now, tonumber(record[5])}
end
local fence = math.max(now_us, (record[4] or 0) + 1)
local attempt = (record[5] or 0) + 1
redis.call('HSET', KEYS[1], 'state', 'running', 'token', ARGV[1], 'ends', string.format('%.0f', now + ARGV[2]),
  'fence', string.format('%.0f', fence), 'attempt', attempt)
if ARGV[4] and not print then
  redis.call('HSET', KEYS[1], 'print', ARGV[4])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2] + ARGV[3])
return {'RUN', fence, attempt, 0}
";

/// KEYS[1]; ARGV: token, ttl in ms, result, `ok` or `error`. Replies as `RES.IDEMP COMMIT` does.
pub const LUA_COMMIT: &str = r"
local record = redis.call('HMGET', KEYS[1], 'state', 'token')
if not record[1] then
  return {'LOST', 'absent'}
end
if record[2] ~= ARGV[1] then
  return {'LOST', 'taken'}
end
if record[1] ~= 'running' then
  return {'COMMITTED', 'stored'}
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('HSET', KEYS[1], 'state', ARGV[4], 'result', ARGV[3], 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'COMMITTED', 'stored'}
";

/// KEYS[1]; ARGV: token, lease in ms. Replies as `RES.SFLIGHT JOIN` does.
pub const LUA_JOIN: &str = r"
local flight = redis.call('HMGET', KEYS[1], 'kind', 'value', 'at', 'fresh', 'stale', 'token', 'ends', 'fence')
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
local kind = flight[1]
if kind and now < tonumber(flight[4]) then
  if kind == 'VALUE' then
    return {'VALUE', flight[2], now - flight[3], flight[4] - now}
  elseif kind == 'EMPTY' then
    return {'EMPTY', now - flight[3]}
  end
  return {'ERROR', flight[2]}
end
local stale = kind == 'VALUE' and now < tonumber(flight[5]) and flight[2]
if flight[6] and now < tonumber(flight[7]) then
  if flight[6] == ARGV[1] then
    return {'LEAD', tonumber(flight[8]), stale, 0}
  elseif stale then
    return {'STALE', stale, now - flight[3]}
  end
  return {'BUSY', flight[7] - now}
end
local fence = math.max(now_us, (flight[8] or 0) + 1)
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'ends', string.format('%.0f', now + ARGV[2]),
  'fence', string.format('%.0f', fence))
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {'LEAD', fence, stale, 0}
";

/// KEYS[1]; ARGV: token, ttl and stale time in ms, kind, value. Replies as `RES.SFLIGHT PUBLISH` does, of no follower.
pub const LUA_PUBLISH: &str = r"
local flight = redis.call('HMGET', KEYS[1], 'token', 'ends')
if not flight[1] then
  return {'LOST', 'absent'}
end
if flight[1] ~= ARGV[1] then
  return {'LOST', 'taken'}
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if tonumber(flight[2]) <= now then
  return {'LOST', 'expired'}
end
redis.call('HSET', KEYS[1], 'kind', ARGV[4], 'value', ARGV[5], 'at', string.format('%.0f', now),
  'fresh', string.format('%.0f', now + ARGV[2]), 'stale', string.format('%.0f', now + ARGV[2] + ARGV[3]))
redis.call('HDEL', KEYS[1], 'token', 'ends')
redis.call('PEXPIRE', KEYS[1], ARGV[2] + ARGV[3])
return {'PUBLISHED', 0}
";

/// What SCRIPT LOAD answered for each script.
pub struct Scripts {
    pub begin: String,
    pub commit: String,
    pub join: String,
    pub publish: String,
}

impl Scripts {
    pub fn load(mut load: impl FnMut(&str) -> String) -> Self {
        Self { begin: load(LUA_BEGIN), commit: load(LUA_COMMIT), join: load(LUA_JOIN), publish: load(LUA_PUBLISH) }
    }
}

pub const OK: Reply = Reply::line("+OK");
pub const RAN: Reply = Reply::verdict(6, "RUN");
pub const COMMITTED: Reply = Reply::verdict(5, "COMMITTED");
pub const REPLAYED: Reply = Reply::verdict(8, "REPLAY");
pub const LEADS: Reply = Reply::verdict(6, "LEAD");
pub const PUBLISHED: Reply = Reply::verdict(4, "PUBLISHED");
pub const VALUE: Reply = Reply::verdict(7, "VALUE");

/// A result, or a value.
pub fn hundred_bytes() -> String {
    "v".repeat(100)
}

pub fn loads(scripts: &Scripts) -> Vec<Load> {
    use Keys::{Few, New};
    let value = hundred_bytes();
    let Scripts { begin, commit, join, publish } = scripts;
    let once = |first| Call::new(&["RES.IDEMP ONCE {a} 3600000"], Reply::line(first));
    let set_nx = |first| Call::new(&["SET {a} 1 NX PX 3600000"], Reply::line(first));
    let run = || {
        let commit = format!("RES.IDEMP COMMIT {{a}} token:0123456789 3600000 {value}");
        Call::each(&[("RES.IDEMP BEGIN {a} token:0123456789 30000", RAN), (&commit, COMMITTED)])
    };
    let run_set = || {
        let set_xx = format!("SET {{a}} {value} XX PX 3600000");
        Call::new(&["SET {a} token:0123456789 NX PX 30000", &set_xx], OK)
    };
    let run_lua = || {
        let begin = format!("EVALSHA {begin} 1 {{a}} token:0123456789 30000 86400000");
        let commit = format!("EVALSHA {commit} 1 {{a}} token:0123456789 3600000 {value} ok");
        Call::each(&[(&begin, RAN), (&commit, COMMITTED)])
    };
    let replay = || Call::new(&["RES.IDEMP BEGIN {a} token:9876543210 30000"], REPLAYED);
    let replay_lua = || Call::new(&[&format!("EVALSHA {begin} 1 {{a}} token:9876543210 30000 86400000")], REPLAYED);
    let set = || Call::new(&[&format!("SET {{a}} {value} PX 3600000")], OK);
    let get = || Call::new(&["GET {a}"], Reply { lines: 2, telling_line: 0, starts_with: "$100\r" });
    let load = || {
        let publish = format!("RES.SFLIGHT PUBLISH {{a}} token:0123456789 3600000 VALUE {value}");
        Call::each(&[("RES.SFLIGHT JOIN {a} token:0123456789 30000", LEADS), (&publish, PUBLISHED)])
    };
    let load_lua = || {
        let join = format!("EVALSHA {join} 1 {{a}} token:0123456789 30000");
        let publish = format!("EVALSHA {publish} 1 {{a}} token:0123456789 3600000 0 VALUE {value}");
        Call::each(&[(&join, LEADS), (&publish, PUBLISHED)])
    };
    let get_ours = || Call::new(&["RES.SFLIGHT GET {a}"], VALUE);
    let join_fresh = || Call::new(&["RES.SFLIGHT JOIN {a} token:9876543210 30000"], VALUE);
    let join_fresh_lua = || Call::new(&[&format!("EVALSHA {join} 1 {{a}} token:9876543210 30000")], VALUE);

    let ours = |name, keys, call| row(name, Place::Alone, keys, call);
    let plain = |name, keys, call| row(name, Place::Plain, keys, call);
    vec![
        ours(ONCE, New, once(":1\r")),
        plain(ONCE_SET, New, set_nx("+OK")),
        Load { fill: once(":1\r"), ..ours(ONCE_AGAIN, Few, once(":0\r")) },
        Load { fill: set_nx("+OK"), ..plain(ONCE_AGAIN_SET, Few, set_nx("$-1\r")) },
        Load { divisor: 2, ..ours(RUN, New, run()) },
        Load { divisor: 2, ..plain(RUN_SET, New, run_set()) },
        Load { divisor: 4, ..plain(RUN_LUA, New, run_lua()) },
        Load { fill: set(), ..plain(GET, Few, get()) },
        Load { fill: run(), ..ours(REPLAY, Few, replay()) },
        Load { fill: load(), ..ours(GET_OURS, Few, get_ours()) },
        Load { fill: load(), ..ours(JOIN, Few, join_fresh()) },
        Load { divisor: 4, fill: run_lua(), ..plain(REPLAY_LUA, Few, replay_lua()) },
        Load { divisor: 4, fill: load_lua(), ..plain(JOIN_LUA, Few, join_fresh_lua()) },
        Load { divisor: 2, ..ours(LOAD, New, load()) },
        Load { divisor: 4, ..plain(LOAD_LUA, New, load_lua()) },
    ]
}
