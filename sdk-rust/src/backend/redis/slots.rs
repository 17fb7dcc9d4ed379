//! Which node of a cluster a waiting connection has to lead to.
//!
//! Calls are routed by redis-rs, but a wait needs a connection of its own to the one node that has the key. The map is
//! asked for when it is needed, corrected by what nodes say (MOVED), and forgotten when a node fails.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use redis::Value;
use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};

use super::link::Link;
use super::trouble::Trouble;

const SLOTS: u16 = 16384;

#[derive(Default)]
pub(super) struct Slots(Mutex<SlotMap>);

#[derive(Default)]
struct SlotMap {
    /// First slot, last slot, `host:port` of its primary.
    ranges: Vec<(u16, u16, String)>,
    /// What was heard since.
    moved: HashMap<u16, String>,
}

impl Slots {
    /// `host:port` of the node that has `key`. A node that does not know its own name is called `:port`.
    pub async fn owner(&self, key: &[u8], link: &Link) -> Result<String, Trouble> {
        let slot = slot_of(key);
        if let Some(node) = self.known(slot) {
            return Ok(node);
        }
        let ranges = ranges(link).await?;
        *self.0.lock() = SlotMap { ranges, moved: HashMap::new() };
        self.known(slot).ok_or(Trouble::Later("no node of the cluster serves the key"))
    }

    pub fn learn(&self, slot: u16, node: String) {
        self.0.lock().moved.insert(slot, node);
    }

    pub fn forget(&self) {
        *self.0.lock() = SlotMap::default();
    }

    fn known(&self, slot: u16) -> Option<String> {
        let known = self.0.lock();
        let of_range = || known.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        known.moved.get(&slot).or_else(|| of_range().map(|(_, _, node)| node)).cloned()
    }
}

async fn ranges(link: &Link) -> Result<Vec<(u16, u16, String)>, Trouble> {
    let mut ask = redis::cmd("CLUSTER");
    ask.arg("SLOTS");
    link.clone().send(ask, None).await.map(parse)
}

/// A primary, to be asked for what no key leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PrimaryNode {
    /// `host:port`. Without a host it is the one that the cluster is reached under.
    address: String,
    /// One of its slots.
    slot: u16,
}

impl PrimaryNode {
    pub fn address(&self) -> &str {
        &self.address
    }

    /// By its address: a slot whose node is away leads to any other node, which would speak for it.
    pub fn route(&self) -> SingleNodeRoutingInfo {
        match self.address.rsplit_once(':') {
            Some((host, port))
                if !host.is_empty()
                    && let Ok(port) = port.parse() =>
            {
                SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port }
            }
            _ => SingleNodeRoutingInfo::SpecificNode(Route::new(self.slot, SlotAddr::Master)),
        }
    }
}

/// Every primary that has slots.
pub(super) async fn primaries(link: &Link) -> Result<Vec<PrimaryNode>, Trouble> {
    let by_node: BTreeMap<String, u16> =
        ranges(link).await?.into_iter().map(|(first, _, node)| (node, first)).collect();
    Ok(by_node.into_iter().map(|(address, slot)| PrimaryNode { address, slot }).collect())
}

/// `[[first, last, [host, port, ...], replicas...], ...]`
pub(super) fn parse(reply: Value) -> Vec<(u16, u16, String)> {
    let Value::Array(ranges) = reply else { return Vec::new() };
    let range = |range: Value| {
        let Value::Array(fields) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = fields.as_slice() else { return None };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
            Value::SimpleString(host) => host.clone(),
            _ => String::new(),
        };
        Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, format!("{host}:{port}")))
    };
    ranges.into_iter().filter_map(range).collect()
}

/// The node that has `key`, by such ranges.
pub(super) fn node_of(ranges: &[(u16, u16, String)], key: &[u8]) -> Option<String> {
    let slot = slot_of(key);
    ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)).map(|(_, _, node)| node.clone())
}

/// CRC16 (XMODEM) of the key, or of what is between its first `{` and the next `}` if that is not empty.
fn slot_of(key: &[u8]) -> u16 {
    let tag = || {
        let start = key.iter().position(|byte| *byte == b'{')? + 1;
        let len = key[start..].iter().position(|byte| *byte == b'}')?;
        (len > 0).then(|| &key[start..start + len])
    };
    let crc = tag().unwrap_or(key).iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 != 0 { 0x1021 } else { 0 })
    });
    crc % SLOTS
}

#[cfg(test)]
#[path = "tests/slots.rs"]
mod tests;
