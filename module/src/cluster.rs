//! Where a key belongs in a cluster. The servers tell modules of slots that move in different ways or not at all, so they
//! are asked.
//!
//! When a slot moves as a whole, its keys arrive before the slot is ours, and no event says of each that it is in use
//! now. So a key that arrives while its slot is another node's starts a watch: once this node has gained slots, all keys
//! with leases are searched for.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crc::{CRC_16_XMODEM, Crc};
use redis_module::raw;
use resil_core::{Instant, Span};

use crate::clients::ask;
use crate::server;

static ENABLED: AtomicBool = AtomicBool::new(false);

pub fn look(ctx: *mut raw::RedisModuleCtx) {
    ENABLED.store(server::flags(ctx) & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0, Relaxed);
}

pub fn enabled() -> bool {
    ENABLED.load(Relaxed)
}

/// What may be done with a key here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    Ours,
    /// Its slot is on its way: timers keep their hands off.
    Moving,
    /// Its slot is another node's: the error that clients get.
    Moved(String),
}

/// The slots as this node sees them.
#[derive(Default)]
struct Map {
    at: Option<Instant>,
    own: Vec<(u16, u16)>,
    moving: Vec<u16>,
    others: Vec<(u16, u16, String)>,
}

/// Keys came whose slots are not ours yet.
struct Arriving {
    /// When the last of them came.
    at: Instant,
    /// The slots that were ours then; `None` until they have been looked at.
    own: Option<Vec<(u16, u16)>>,
}

thread_local! {
    static MAP: RefCell<Map> = RefCell::new(Map::default());
    static ARRIVING: RefCell<Option<Arriving>> = const { RefCell::new(None) };
}

/// A key with leases came, and its slot may be another node's still.
pub fn key_arrived(now: Instant) {
    if enabled() {
        ARRIVING.with_borrow_mut(|arriving| match arriving {
            Some(arriving) => arriving.at = now,
            None => *arriving = Some(Arriving { at: now, own: None }),
        });
    }
}

/// How a watch over slots that arrive stands.
pub enum Watch {
    Nothing,
    Waiting,
    Gained,
}

/// Have we gained slots since keys arrived? A move that came to nothing is forgotten.
pub fn watch(ctx: *mut raw::RedisModuleCtx, now: Instant) -> Watch {
    const PATIENCE: Span = Span::from_secs(600);
    let Some(mut arriving) = ARRIVING.take() else { return Watch::Nothing };
    look_again(ctx, now);
    let own = MAP.with_borrow(|map| map.own.clone());
    if *arriving.own.get_or_insert_with(|| own.clone()) != own {
        return Watch::Gained;
    }
    if arriving.at.until(now) > PATIENCE {
        return Watch::Nothing;
    }
    ARRIVING.set(Some(arriving));
    Watch::Waiting
}

/// Whether a call may use both keys. Not every server asks this of a key that stands behind a word.
pub fn in_one_slot(one: &[u8], other: &[u8]) -> bool {
    !enabled() || slot_of(one) == slot_of(other)
}

pub fn standing(ctx: *mut raw::RedisModuleCtx, key: &[u8], now: Instant) -> Standing {
    if !enabled() {
        return Standing::Ours;
    }
    let slot = slot_of(key);
    look_again(ctx, now);
    MAP.with_borrow(|map| map.standing(slot))
}

/// Asks how the slots stand, unless that is known from a moment ago.
fn look_again(ctx: *mut raw::RedisModuleCtx, now: Instant) {
    const FRESH: Span = Span::from_ms(50);
    let known = MAP.with_borrow(|map| map.at.is_some_and(|at| at <= now && at.until(now) < FRESH));
    if !known {
        let text = ask(ctx, c"CLUSTER", &[b"NODES"]).unwrap_or_default();
        let map = parse(&String::from_utf8_lossy(&text), now);
        MAP.set(map);
    }
}

impl Map {
    fn standing(&self, slot: u16) -> Standing {
        let covers = |from: u16, to: u16| (from..=to).contains(&slot);
        if self.moving.contains(&slot) {
            return Standing::Moving;
        }
        if self.own.iter().any(|(from, to)| covers(*from, *to)) {
            return Standing::Ours;
        }
        match self.others.iter().find(|(from, to, _)| covers(*from, *to)) {
            Some((_, _, node)) => Standing::Moved(format!("MOVED {slot} {node}")),
            None => Standing::Moved("CLUSTERDOWN Hash slot not served".to_owned()),
        }
    }
}

/// Reads CLUSTER NODES: `id address flags primary ping pong epoch link slots...`, where a slot is `n`, `n-m`,
/// `[n->-id]` (leaving) or `[n-<-id]` (arriving).
fn parse(text: &str, now: Instant) -> Map {
    let mut map = Map { at: Some(now), ..Map::default() };
    for line in text.lines() {
        let mut words = line.split(' ');
        let (address, flags) = (words.nth(1).unwrap_or_default(), words.next().unwrap_or_default());
        let node = address.split(['@', ',']).next().unwrap_or_default();
        let myself = flags.split(',').any(|flag| flag == "myself");
        for slots in words.skip(5) {
            if let Some(moving) = slots.strip_prefix('[') {
                map.moving.extend(moving.split('-').next().and_then(|slot| slot.parse::<u16>().ok()));
                continue;
            }
            let (from, to) = slots.split_once('-').unwrap_or((slots, slots));
            if let (Ok(from), Ok(to)) = (from.parse(), to.parse()) {
                if myself {
                    map.own.push((from, to));
                } else {
                    map.others.push((from, to, node.to_owned()));
                }
            }
        }
    }
    map
}

/// The slot of a key: of what stands between the first `{` and the next `}`, if that is anything, else of all of it.
fn slot_of(key: &[u8]) -> u16 {
    const SUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    const SLOTS: u16 = 16_384;
    let tag = || {
        let start = key.iter().position(|byte| *byte == b'{')? + 1;
        let len = key[start..].iter().position(|byte| *byte == b'}')?;
        (len > 0).then(|| &key[start..start + len])
    };
    SUM.checksum(tag().unwrap_or(key)) % SLOTS
}
