//! Rows of locks nobody else wants: taken and given back, ours beside what most write by hand.
//!
//! A pair is one call. Owners are of 16 bytes, and the same in all: what is sent is as long for both. Ours keeps a
//! key for a minute after the release, so its pairs on random keys meet keys that are there; the rival's are gone.

use crate::catalogue::row;
use crate::load::{Call, Keys, Load, Place, Reply, Sent};

pub const OURS: &str = "lock: ACQUIRE, RELEASE";
pub const OURS_BOUND: &str = "lock: ACQUIRE BOUND, RELEASE";
pub const SET_NX: &str = "lock: SET NX PX, script by EVALSHA";
pub const HOT_OURS: &str = "hot lock: ACQUIRE, RELEASE";
pub const HOT_SET_NX: &str = "hot lock: SET NX PX, script by EVALSHA";
pub const ONE_OURS: &str = "lock, one by one: ACQUIRE, RELEASE";
pub const ONE_SET_NX: &str = "lock, one by one: SET NX PX, script by EVALSHA";

pub const ROWS: [&str; 7] = [OURS, OURS_BOUND, SET_NX, HOT_OURS, HOT_SET_NX, ONE_OURS, ONE_SET_NX];
/// A row of ours and what it is held against.
pub const PEERS: [(&str, &str); 4] =
    [(OURS, SET_NX), (OURS_BOUND, SET_NX), (HOT_OURS, HOT_SET_NX), (ONE_OURS, ONE_SET_NX)];

/// Deletes the lock if it is still the caller's. KEYS[1]; ARGV: the owner.
pub const LUA_UNLOCK: &str = r"
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
";

pub const GRANTED: Reply = Reply::verdict(6, "GRANTED");
pub const RELEASED: Reply = Reply::verdict(4, "RELEASED");

pub fn loads(unlock_sha: &str) -> Vec<Load> {
    use Keys::{Hot, Random};
    let release = ("RES.LOCK RELEASE {a} owner:0123456789", RELEASED);
    let ours = || Call::each(&[("RES.LOCK ACQUIRE {a} owner:0123456789 30000", GRANTED), release]);
    let bound = || Call::each(&[("RES.LOCK ACQUIRE {a} owner:0123456789 30000 BOUND", GRANTED), release]);
    let unlock = format!("EVALSHA {unlock_sha} 1 {{a}} owner:0123456789");
    let set_nx = || {
        let set = ("SET {a} owner:0123456789 NX PX 30000", Reply::line("+OK"));
        Call::each(&[set, (&unlock, Reply::line(":1\r"))])
    };
    let pipelined = |name, keys, call| Load { divisor: 2, ..row(name, Place::Alone, keys, call) };
    let one_by_one = |name, call| Load { divisor: 20, sent: Sent::OneByOne, ..row(name, Place::Alone, Random, call) };
    vec![
        pipelined(OURS, Random, ours()),
        pipelined(SET_NX, Random, set_nx()),
        pipelined(OURS_BOUND, Random, bound()),
        pipelined(HOT_OURS, Hot, ours()),
        pipelined(HOT_SET_NX, Hot, set_nx()),
        one_by_one(ONE_OURS, ours()),
        one_by_one(ONE_SET_NX, set_nx()),
    ]
}
