//! The rows of the table: ours and the rivals'.
//!
//! The rates are such that every call of a row has the same verdict, which the client checks: on random keys a key is
//! called about five times in a run of a second, so 100 per minute always grants; the hot key gets a million a second.

use crate::figures::REFERENCE;
use crate::load::{Call, Keys, Load, Place, Reply};

/// The reference once more, as a row: how far its ratio is from 1 is what the method cannot tell apart.
pub const SET_PX: &str = "SET k v PX 60000";
pub const INCR: &str = "INCR k";
pub const LUA: &str = "Lua GCRA by EVALSHA";
pub const CELL: &str = "CL.THROTTLE (redis-cell 0.2.2)";
pub const CL_OURS: &str = "CL.THROTTLE (Resil)";
pub const GRANTED: &str = "RES.GCRA, granted";
pub const DENIED: &str = "RES.GCRA, denied";
pub const PEEK: &str = "RES.GCRA.PEEK";
pub const THREE_CALLS: &str = "three calls of RES.GCRA";
pub const AND: &str = "RES.GCRA with AND, three tiers";
pub const MGCRA: &str = "RES.MGCRA, three keys";
pub const WINDOW: &str = "RES.WINDOW";

pub const HOT_SET_PX: &str = "hot key: SET k v PX 60000";
pub const HOT_INCR: &str = "hot key: INCR k";
pub const HOT_LUA: &str = "hot key: Lua GCRA by EVALSHA";
pub const HOT_CELL: &str = "hot key: CL.THROTTLE (redis-cell 0.2.2)";
pub const HOT_GRANTED: &str = "hot key: RES.GCRA, granted";

pub const REPLICATED_SET_PX: &str = "one replica: SET k v PX 60000";
pub const REPLICATED_GRANTED: &str = "one replica: RES.GCRA, granted";
pub const APPEND_ONLY_SET_PX: &str = "AOF everysec: SET k v PX 60000";
pub const APPEND_ONLY_GRANTED: &str = "AOF everysec: RES.GCRA, granted";

/// The rows measured on random keys against a server without persistence and replicas.
pub const RANDOM_ROWS: [&str; 12] =
    [SET_PX, INCR, LUA, CELL, CL_OURS, GRANTED, DENIED, PEEK, THREE_CALLS, AND, MGCRA, WINDOW];
pub const HOT_ROWS: [&str; 5] = [HOT_SET_PX, HOT_INCR, HOT_LUA, HOT_CELL, HOT_GRANTED];

/// GCRA as it is usually written for Redis: the state is one number in a string with a TTL. Times are in seconds since
/// 2017, so that doubles keep microseconds. KEYS[1]; ARGV: burst, rate, period in seconds, cost.
/// Replies `{granted, remaining, retry_after_ms, reset_after_ms}`.
pub const LUA_SCRIPT: &str = r"
local clock = redis.call('TIME')
local now = (clock[1] - 1483228800) + clock[2] / 1000000
local burst, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local period, cost = tonumber(ARGV[3]), tonumber(ARGV[4])
local interval = period / rate
local tolerance = interval * burst
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local new_tat = tat + interval * cost
local ahead = now - (new_tat - tolerance)
if ahead < 0 then
  return {0, 0, math.ceil(-ahead * 1000), math.ceil((tat - now) * 1000)}
end
local reset_after = new_tat - now
redis.call('SET', KEYS[1], string.format('%.6f', new_tat), 'PX', math.ceil(reset_after * 1000))
return {cost, math.floor(ahead / interval), 0, math.ceil(reset_after * 1000)}
";

const SET_PX_CALL: &str = "SET {a} v PX 60000";
const GRANTS: Reply = Reply::array(6, ":1\r");

/// What runs beside every other load.
pub fn reference(keys: Keys) -> Load {
    let call = Call::new(&[SET_PX_CALL], Reply::line("+OK"));
    Load { name: REFERENCE, place: Place::Alone, keys, fill: call.clone(), call, divisor: 1 }
}

/// Every load; `lua_sha` is what SCRIPT LOAD answered.
pub fn loads(lua_sha: &str) -> Vec<Load> {
    use Keys::{Hot, Random};
    use Place::{Alone, AppendOnly, Cell, Replicated};
    let one = |command: &str, reply| Call::new(&[command], reply);
    let set_px = || one(SET_PX_CALL, Reply::line("+OK"));
    let incr = || one("INCR {a}", Reply::line(":"));
    let granted = || one("RES.GCRA {a} 100 60s", GRANTS);
    // CL.THROTTLE's first element says whether the call was limited; its burst is the capacity less one.
    let throttle = || one("CL.THROTTLE {a} 99 100 60", Reply::array(6, ":0\r"));
    let lua = |rate: &str| one(&format!("EVALSHA {lua_sha} 1 {{a}} {rate} 1"), Reply::array(5, ":1\r"));
    let peek = || one("RES.GCRA.PEEK {a} 100 60s", Reply::array(6, ":"));
    let once_an_hour = |verdict| one("RES.GCRA {a} 1 1h", Reply::array(6, verdict));
    let three = || Call::new(&["RES.GCRA {a} 100 60s", "RES.GCRA {b} 1000 1h", "RES.GCRA {c} 10000 1d"], GRANTS);
    let and = || one("RES.GCRA {a} 100 60s AND 1000 1h AND 10000 1d", Reply::array(22, ":1\r"));
    let mgcra = || one("RES.MGCRA 1 {a} 100 60s 100 {b} 1000 1h 1000 {c} 10000 1d 10000", Reply::array(19, ":1\r"));
    let window = || one("RES.WINDOW {a} 100 60s", GRANTS);
    let hot_granted = || one("RES.GCRA {a} 100000 100ms", GRANTS);
    let hot_throttle = || one("CL.THROTTLE {a} 999999 1000000 1", Reply::array(6, ":0\r"));

    let row = |name, place, keys, call: Call| Load { name, place, keys, fill: call.clone(), call, divisor: 1 };
    vec![
        row(SET_PX, Alone, Random, set_px()),
        row(GRANTED, Alone, Random, granted()),
        row(CELL, Cell, Random, throttle()),
        row(CL_OURS, Alone, Random, throttle()),
        Load { divisor: 4, ..row(LUA, Alone, Random, lua("100 100 60")) },
        Load { fill: once_an_hour(":1\r"), ..row(DENIED, Alone, Random, once_an_hour(":0\r")) },
        Load { fill: granted(), ..row(PEEK, Alone, Random, peek()) },
        row(INCR, Alone, Random, incr()),
        Load { divisor: 2, ..row(THREE_CALLS, Alone, Random, three()) },
        Load { divisor: 2, ..row(AND, Alone, Random, and()) },
        Load { divisor: 2, ..row(MGCRA, Alone, Random, mgcra()) },
        row(WINDOW, Alone, Random, window()),
        row(HOT_SET_PX, Alone, Hot, set_px()),
        row(HOT_GRANTED, Alone, Hot, hot_granted()),
        row(HOT_INCR, Alone, Hot, incr()),
        row(HOT_CELL, Cell, Hot, hot_throttle()),
        Load { divisor: 4, ..row(HOT_LUA, Alone, Hot, lua("1000000 1000000 1")) },
        row(REPLICATED_SET_PX, Replicated, Random, set_px()),
        row(REPLICATED_GRANTED, Replicated, Random, granted()),
        row(APPEND_ONLY_SET_PX, AppendOnly, Random, set_px()),
        row(APPEND_ONLY_GRANTED, AppendOnly, Random, granted()),
    ]
}
