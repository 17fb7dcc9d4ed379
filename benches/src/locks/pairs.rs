//! Rows of locks nobody else wants: taken and given back, ours beside what most write by hand.
//!
//! A pair is one call. Owners are of 16 bytes, and the same in all: what is sent is as long for both. Ours keeps a
//! key for a minute after the release, so its pairs on random keys meet keys that are there. The rival's are gone, and
//! as many others are put beside them: either way the server has as many keys to find one among. Its server has no
//! module, which would make its writes dearer by listening to them.

use crate::catalogue::row;
use crate::load::{Call, Keys, Load, Place, Reply, Sent};

pub const OURS: &str = "lock: ACQUIRE, RELEASE";
pub const OURS_BOUND: &str = "lock: ACQUIRE BOUND, RELEASE";
pub const SET_NX: &str = "lock: SET NX PX, script by EVALSHA";
pub const FEW_OURS: &str = "few locks: ACQUIRE, RELEASE";
pub const FEW_SET_NX: &str = "few locks: SET NX PX, script by EVALSHA";
pub const HOT_OURS: &str = "hot lock: ACQUIRE, RELEASE";
pub const HOT_SET_NX: &str = "hot lock: SET NX PX, script by EVALSHA";
pub const ONE_OURS: &str = "lock, one by one: ACQUIRE, RELEASE";
pub const ONE_SET_NX: &str = "lock, one by one: SET NX PX, script by EVALSHA";

pub const ROWS: [&str; 9] =
    [OURS, OURS_BOUND, SET_NX, FEW_OURS, FEW_SET_NX, HOT_OURS, HOT_SET_NX, ONE_OURS, ONE_SET_NX];
/// A row of ours and what it is held against.
pub const PEERS: [(&str, &str); 5] =
    [(OURS, SET_NX), (OURS_BOUND, SET_NX), (FEW_OURS, FEW_SET_NX), (HOT_OURS, HOT_SET_NX), (ONE_OURS, ONE_SET_NX)];

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
    use Keys::{Few, Hot, Random};
    let release = ("RES.LOCK RELEASE {a} owner:0123456789", RELEASED);
    let ours = || Call::each(&[("RES.LOCK ACQUIRE {a} owner:0123456789 30000", GRANTED), release]);
    let bound = || Call::each(&[("RES.LOCK ACQUIRE {a} owner:0123456789 30000 BOUND", GRANTED), release]);
    let unlock = format!("EVALSHA {unlock_sha} 1 {{a}} owner:0123456789");
    let set_nx = || {
        let set = ("SET {a} owner:0123456789 NX PX 30000", Reply::line("+OK"));
        Call::each(&[set, (&unlock, Reply::line(":1\r"))])
    };
    let others = || Call::new(&["SET {b} owner:0123456789 PX 3600000"], Reply::line("+OK"));
    let ours_on = |name, keys, call| Load { divisor: 2, ..row(name, Place::Alone, keys, call) };
    let set_nx_on = |name, keys| Load { fill: others(), place: Place::Plain, ..ours_on(name, keys, set_nx()) };
    let one_by_one = |load| Load { divisor: 10, sent: Sent::OneByOne, ..load };
    vec![
        ours_on(OURS, Random, ours()),
        set_nx_on(SET_NX, Random),
        ours_on(OURS_BOUND, Random, bound()),
        ours_on(FEW_OURS, Few, ours()),
        set_nx_on(FEW_SET_NX, Few),
        ours_on(HOT_OURS, Hot, ours()),
        set_nx_on(HOT_SET_NX, Hot),
        one_by_one(ours_on(ONE_OURS, Random, ours())),
        one_by_one(set_nx_on(ONE_SET_NX, Random)),
    ]
}
