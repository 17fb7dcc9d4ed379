//! What can be asked for. Whatever is not here is refused by name.

use std::collections::BTreeMap;

use serde::Deserialize;

use resil_harness::{Flavor, Options};

use crate::word::Word;

/// One line. `id` is what `start` and `replica` gave.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A server of its own process, port and folder.
    Start {
        #[serde(default)]
        options: Wishes,
    },
    /// A server that replicates another one, is in step with it, and is counted on: `WAIT` knows it.
    Replica {
        of: u64,
        #[serde(default)]
        options: Wishes,
    },
    /// Waits until a replica has all that its primary has written so far.
    Sync {
        id: u64,
        replica: u64,
    },
    /// The crash: SIGKILL. The server can be started again.
    Kill {
        id: u64,
    },
    /// Up again on the same folder and port; one that still runs is killed first.
    Restart {
        id: u64,
    },
    /// The orderly end and then up again: what the configuration says is saved is there.
    RestartOrderly {
        id: u64,
    },
    /// Frozen: connections stay open and nothing replies.
    Pause {
        id: u64,
    },
    Resume {
        id: u64,
    },
    /// One command, on a connection of its own; `reply` is what came, `refusal` an error of the server.
    Say {
        id: u64,
        words: Vec<Word>,
        /// Speak RESP3: maps come as objects.
        #[serde(default)]
        resp3: bool,
    },
    /// A broker or a database of its own, with an `id` and a `url`.
    Rabbit,
    Postgres,
    /// The crash of one of these.
    KillBroker {
        id: u64,
    },
    /// Up again on the same folder and port; one that still runs is killed first.
    RestartBroker {
        id: u64,
    },
    /// Waits until a kill of RabbitMQ cannot make it forget a new queue.
    Registered {
        id: u64,
        queue: String,
    },
    /// The server's log so far.
    Log {
        id: u64,
    },
    /// Ends the server and removes its folder; its `id` is nobody's from then on.
    Stop {
        id: u64,
    },
}

/// What a server is started with; nothing said is the server of `RESIL_SERVER` with the module under test.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wishes {
    /// A folder of target/servers, as `valkey-8.0`.
    flavor: Option<String>,
    /// As after `loadmodule path`.
    module_args: Vec<String>,
    /// Lines of redis.conf.
    config: Config,
    without_module: bool,
}

/// As an object, or as pairs where the order matters or a name comes twice.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "config is an object or a list of pairs, names and values being texts")]
enum Config {
    Object(BTreeMap<String, String>),
    Pairs(Vec<(String, String)>),
}

impl Default for Config {
    fn default() -> Self {
        Self::Pairs(Vec::new())
    }
}

impl Wishes {
    pub fn into_options(self) -> Options {
        let mut options = Options::default().module_args(self.module_args);
        if let Some(name) = self.flavor {
            options = options.flavor(Flavor::named(&name));
        }
        if self.without_module {
            options = options.without_module();
        }
        let lines = match self.config {
            Config::Object(lines) => lines.into_iter().collect(),
            Config::Pairs(lines) => lines,
        };
        lines.into_iter().fold(options, |options, (name, value)| options.config(name, value))
    }
}
