//! The rows of the table: ours and the rivals'.
//!
//! The rates are such that every call of a row has the same verdict, which the client checks: on random keys a key is
//! called about five times in a run of a second, so 100 per minute always grants; the hot key gets a million a second.

use crate::figures::REFERENCE;
use crate::flights::rows::{self, Scripts};
use crate::load::{Call, Keys, Load, Place, Reply, Sent};
use crate::locks::pairs;

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

pub const BREAKER_SET_PX: &str = "breaker: SET k v PX 60000";
pub const BREAKER_INCR: &str = "breaker: INCR k";
pub const BREAKER_INCR_PAIR: &str = "breaker: INCR k, INCR k";
pub const BREAKER_GET: &str = "breaker: GET k";
pub const BREAKER_LUA: &str = "breaker: Lua admit, report by EVALSHA";
pub const BREAKER_PAIR: &str = "breaker: ADMIT, REPORT";
pub const BREAKER_PAIR_TIME: &str = "breaker: ADMIT, REPORT, time window";
pub const BREAKER_OPEN: &str = "breaker: ADMIT, open";
pub const BREAKER_TALLY: &str = "breaker: TALLY";

pub const HOT_BREAKER_INCR: &str = "hot breaker: INCR k";
pub const HOT_BREAKER_INCR_PAIR: &str = "hot breaker: INCR k, INCR k";
pub const HOT_BREAKER_GET: &str = "hot breaker: GET k";
pub const HOT_BREAKER_LUA: &str = "hot breaker: Lua admit, report by EVALSHA";
pub const HOT_BREAKER_PAIR: &str = "hot breaker: ADMIT, REPORT";
pub const HOT_BREAKER_OPEN: &str = "hot breaker: ADMIT, open";
pub const HOT_BREAKER_TALLY: &str = "hot breaker: TALLY";

/// The rows measured on random keys against a server without persistence and replicas.
pub const RANDOM_ROWS: [&str; 12] =
    [SET_PX, INCR, LUA, CELL, CL_OURS, GRANTED, DENIED, PEEK, THREE_CALLS, AND, MGCRA, WINDOW];
pub const HOT_ROWS: [&str; 5] = [HOT_SET_PX, HOT_INCR, HOT_LUA, HOT_CELL, HOT_GRANTED];

pub const BREAKER_ROWS: [&str; 16] = [
    BREAKER_SET_PX,
    BREAKER_INCR,
    BREAKER_INCR_PAIR,
    BREAKER_GET,
    BREAKER_LUA,
    BREAKER_PAIR,
    BREAKER_PAIR_TIME,
    BREAKER_OPEN,
    BREAKER_TALLY,
    HOT_BREAKER_INCR,
    HOT_BREAKER_INCR_PAIR,
    HOT_BREAKER_GET,
    HOT_BREAKER_LUA,
    HOT_BREAKER_PAIR,
    HOT_BREAKER_OPEN,
    HOT_BREAKER_TALLY,
];
/// A row of ours and what it is held against.
pub const BREAKER_PEERS: [(&str, &str); 9] = [
    (BREAKER_PAIR, BREAKER_INCR_PAIR),
    (BREAKER_PAIR_TIME, BREAKER_INCR_PAIR),
    (BREAKER_PAIR, BREAKER_LUA),
    (BREAKER_OPEN, BREAKER_GET),
    (BREAKER_TALLY, BREAKER_INCR),
    (HOT_BREAKER_PAIR, HOT_BREAKER_INCR_PAIR),
    (HOT_BREAKER_PAIR, HOT_BREAKER_LUA),
    (HOT_BREAKER_OPEN, HOT_BREAKER_GET),
    (HOT_BREAKER_TALLY, HOT_BREAKER_INCR),
];

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

/// A breaker as one would write it in Lua, in its favour: it counts failures in a row and nothing else, lets one probe
/// out at a time, and asks for the time only when it is not closed. KEYS[1]; ARGV: open time and probe lease in ms.
/// Replies `{admitted, state, retry_after_ms}`.
pub const LUA_ADMIT: &str = r"
local breaker = redis.call('HMGET', KEYS[1], 'state', 'opened_at')
local state = breaker[1]
if not state or state == 'closed' then
  return {1, 'closed', 0}
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local wait = tonumber(state == 'open' and ARGV[1] or ARGV[2])
local rest = tonumber(breaker[2]) + wait - now
if rest > 0 then
  return {0, state, rest}
end
redis.call('HSET', KEYS[1], 'state', 'half-open', 'opened_at', now)
return {1, 'half-open', 0}
";

/// The other half. KEYS[1]; ARGV: 1 if the call went well, failures that trip, ms after which an idle one is forgotten.
/// Replies `{counted, state, failures}`.
pub const LUA_REPORT: &str = r"
local breaker = redis.call('HMGET', KEYS[1], 'state', 'failures')
local state, failures = breaker[1] or 'closed', tonumber(breaker[2] or 0)
if ARGV[1] == '1' then
  if not breaker[1] or state ~= 'closed' or failures > 0 then
    redis.call('HSET', KEYS[1], 'state', 'closed', 'failures', 0)
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {1, 'closed', 0}
end
failures = failures + 1
if state == 'half-open' or failures >= tonumber(ARGV[2]) then
  local clock = redis.call('TIME')
  local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  redis.call('HSET', KEYS[1], 'state', 'open', 'failures', failures, 'opened_at', now)
  state = 'open'
else
  redis.call('HSET', KEYS[1], 'state', state, 'failures', failures)
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, state, failures}
";

const SET_PX_CALL: &str = "SET {a} v PX 60000";
const GRANTS: Reply = Reply::array(6, ":1\r");

/// What runs beside `load`: on as many keys, which are there, and sent as it is. Its server has no module.
pub fn reference(load: &Load) -> Load {
    let call = Call::new(&[SET_PX_CALL], Reply::line("+OK"));
    let divisor = if load.sent == Sent::OneByOne { load.divisor } else { 1 };
    let keys = if load.keys == Keys::New { Keys::Few } else { load.keys };
    Load { divisor, sent: load.sent, ..row(REFERENCE, Place::Plain, keys, call) }
}

/// What the servers said beforehand.
pub struct Given {
    /// What SCRIPT LOAD answered for each script.
    pub lua_sha: String,
    pub lua_admit_sha: String,
    pub lua_report_sha: String,
    pub lua_unlock_sha: String,
    pub flights: Scripts,
    /// A permit that is good for every breaker that never tripped.
    pub permit: String,
}

/// Every load.
pub fn loads(given: &Given) -> Vec<Load> {
    let mut loads = limiters(&given.lua_sha);
    loads.extend(breakers(given));
    loads.extend(pairs::loads(&given.lua_unlock_sha));
    loads.extend(rows::loads(&given.flights));
    loads
}

pub fn row(name: &'static str, place: Place, keys: Keys, call: Call) -> Load {
    Load { name, place, keys, fill: call.clone(), call, divisor: 1, sent: Sent::Pipelined }
}

fn breakers(given: &Given) -> Vec<Load> {
    use Keys::{Few, Hot};
    let Given { lua_admit_sha, lua_report_sha, permit, .. } = given;
    // ADMIT's reply and REPORT's have as many lines, and the same verdict.
    let yes = Reply::array(8, ":1\r");
    let report = format!("RES.BREAKER REPORT {{a}} {permit} OK");
    let pair = || Call::new(&["RES.BREAKER ADMIT {a}", &report], yes);
    let pair_time = || Call::new(&["RES.BREAKER ADMIT {a} WINDOW TIME 60s", &report], yes);
    let trip = || {
        let commands = ["RES.BREAKER ADMIT {a} OPEN 1h", "RES.BREAKER TALLY {a} 0 me 1 OK 0 FAIL 5 RUN 5"];
        Call::new(&commands, yes)
    };
    let denied = || Call::new(&["RES.BREAKER ADMIT {a}"], Reply::array(7, ":0\r"));
    // One in ten fails: it never trips.
    let tally = || Call::new(&["RES.BREAKER TALLY {a} 0 {sender} {seq} OK 9 FAIL 1"], yes);
    let lua = || {
        let admit = format!("EVALSHA {lua_admit_sha} 1 {{a}} 30000 30000");
        let report = format!("EVALSHA {lua_report_sha} 1 {{a}} 1 5 3600000");
        Call::new(&[&admit, &report], Reply::array(5, ":1\r"))
    };
    let set_px = || Call::new(&[SET_PX_CALL], Reply::line("+OK"));
    let incr = || Call::new(&["INCR {a}"], Reply::line(":"));
    let incr_pair = || Call::new(&["INCR {a}", "INCR {a}"], Reply::line(":"));
    let get = || Call::new(&["GET {a}"], Reply { lines: 2, telling_line: 0, starts_with: "$1\r" });

    let plain = |name, keys, call| row(name, Place::Plain, keys, call);
    let row = |name, keys, call| row(name, Place::Alone, keys, call);
    vec![
        plain(BREAKER_SET_PX, Few, set_px()),
        Load { divisor: 2, ..row(BREAKER_PAIR, Few, pair()) },
        Load { divisor: 2, ..plain(BREAKER_INCR_PAIR, Few, incr_pair()) },
        Load { divisor: 2, fill: pair_time(), ..row(BREAKER_PAIR_TIME, Few, pair()) },
        Load { divisor: 4, ..plain(BREAKER_LUA, Few, lua()) },
        Load { fill: trip(), ..row(BREAKER_OPEN, Few, denied()) },
        Load { fill: set_px(), ..plain(BREAKER_GET, Few, get()) },
        row(BREAKER_TALLY, Few, tally()),
        plain(BREAKER_INCR, Few, incr()),
        Load { divisor: 2, ..row(HOT_BREAKER_PAIR, Hot, pair()) },
        Load { divisor: 2, ..plain(HOT_BREAKER_INCR_PAIR, Hot, incr_pair()) },
        Load { divisor: 4, ..plain(HOT_BREAKER_LUA, Hot, lua()) },
        Load { fill: trip(), ..row(HOT_BREAKER_OPEN, Hot, denied()) },
        Load { fill: set_px(), ..plain(HOT_BREAKER_GET, Hot, get()) },
        row(HOT_BREAKER_TALLY, Hot, tally()),
        plain(HOT_BREAKER_INCR, Hot, incr()),
    ]
}

fn limiters(lua_sha: &str) -> Vec<Load> {
    use Keys::{Hot, Random};
    use Place::{Alone, AppendOnly, Cell, Plain, PlainAppendOnly, PlainReplicated, Replicated};
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

    vec![
        row(SET_PX, Plain, Random, set_px()),
        row(GRANTED, Alone, Random, granted()),
        row(CELL, Cell, Random, throttle()),
        row(CL_OURS, Alone, Random, throttle()),
        Load { divisor: 4, ..row(LUA, Plain, Random, lua("100 100 60")) },
        Load { fill: once_an_hour(":1\r"), ..row(DENIED, Alone, Random, once_an_hour(":0\r")) },
        Load { fill: granted(), ..row(PEEK, Alone, Random, peek()) },
        row(INCR, Plain, Random, incr()),
        Load { divisor: 2, ..row(THREE_CALLS, Alone, Random, three()) },
        Load { divisor: 2, ..row(AND, Alone, Random, and()) },
        Load { divisor: 2, ..row(MGCRA, Alone, Random, mgcra()) },
        row(WINDOW, Alone, Random, window()),
        row(HOT_SET_PX, Plain, Hot, set_px()),
        row(HOT_GRANTED, Alone, Hot, hot_granted()),
        row(HOT_INCR, Plain, Hot, incr()),
        row(HOT_CELL, Cell, Hot, hot_throttle()),
        Load { divisor: 4, ..row(HOT_LUA, Plain, Hot, lua("1000000 1000000 1")) },
        row(REPLICATED_SET_PX, PlainReplicated, Random, set_px()),
        row(REPLICATED_GRANTED, Replicated, Random, granted()),
        row(APPEND_ONLY_SET_PX, PlainAppendOnly, Random, set_px()),
        row(APPEND_ONLY_GRANTED, AppendOnly, Random, granted()),
    ]
}
