//! A cluster of primaries that share the slots evenly.

use std::time::Duration;

use crate::command::ok;
use crate::options::Options;
use crate::server::Server;
use crate::wait::becomes_true;

const SLOTS: usize = 16384;
/// Nodes learn of each other by gossip, a few rounds of a second each.
const FORMING_BOUND: Duration = Duration::from_secs(30);

/// Nodes that agree on who serves which slot; all end when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts `primaries` nodes with the same options and waits until all of them report the cluster ok.
    pub fn start(primaries: usize, options: Options) -> Self {
        assert!((1..=SLOTS).contains(&primaries), "a cluster has 1 to {SLOTS} primaries");
        assert!(options.dir.is_none(), "nodes cannot share one folder");
        let options = options.cluster();
        let cluster = Self { nodes: (0..primaries).map(|_| Server::start(options.clone())).collect() };
        cluster.share_the_slots();
        cluster.introduce_everybody();
        cluster.wait_until_formed();
        cluster
    }

    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The slot of a key, hash tags honoured.
    pub fn slot_of(&self, key: impl AsRef<[u8]>) -> usize {
        let slot = ok(&mut self.nodes[0].connect(), &[b"CLUSTER", b"KEYSLOT".as_slice(), key.as_ref()]);
        redis::from_redis_value(slot).expect("a slot is a number")
    }

    /// The node that was given the key's slot at the start.
    pub fn node_for_key(&self, key: impl AsRef<[u8]>) -> &Server {
        let slot = self.slot_of(key);
        let owner =
            (0..self.nodes.len()).find(|&index| (self.first_slot(index)..self.first_slot(index + 1)).contains(&slot));
        &self.nodes[owner.expect("every slot has an owner")]
    }

    fn first_slot(&self, index: usize) -> usize {
        index * SLOTS / self.nodes.len()
    }

    /// Before anybody meets: a node that knows another one refuses to be given an epoch, and equal epochs
    /// would have to be settled between the nodes first.
    fn share_the_slots(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let mut connection = node.connect();
            let (first, last) = (self.first_slot(index), self.first_slot(index + 1) - 1);
            ok(&mut connection, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            ok(&mut connection, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
    }

    /// Each meets each, which spares the rounds of gossip that a chain would take.
    fn introduce_everybody(&self) {
        for node in &self.nodes {
            let mut connection = node.connect();
            for other in self.nodes.iter().filter(|other| other.port() != node.port()) {
                let (port, bus_port) = (other.port().to_string(), other.cluster_bus_port().to_string());
                ok(&mut connection, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]);
            }
        }
    }

    fn wait_until_formed(&self) {
        let known_nodes = format!("cluster_known_nodes:{}", self.nodes.len());
        for node in &self.nodes {
            let mut connection = node.connect();
            let mut last_seen = String::new();
            let formed = becomes_true(FORMING_BOUND, || {
                let info = ok(&mut connection, &["CLUSTER", "INFO"]);
                last_seen = redis::from_redis_value(info).expect("CLUSTER INFO is text");
                let says = |wanted: &str| last_seen.lines().any(|line| line == wanted);
                says("cluster_state:ok") && says("cluster_slots_ok:16384") && says(&known_nodes)
            });
            if !formed {
                node.fail(&format!("the cluster did not form within {FORMING_BOUND:?}:\n{last_seen}"));
            }
        }
    }
}
