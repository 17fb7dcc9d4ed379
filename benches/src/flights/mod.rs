//! What only idempotency keys and single flights have: followers that are notified ([`followers`]), and the memory of what is
//! kept. The rest are rows like any other ([`rows`]).

mod followers;
pub mod rows;

use resil_harness::{Options, Server, ok};

use crate::weight::{KEY_BYTES, KEYS, Weight, weigh};
use followers::{FOLLOWERS, Notified, POLL, Way};
use rows::{COMMITTED, LEADS, OK, PUBLISHED, RAN, Scripts, hundred_bytes};

/// What selects them, as a row's name would.
pub const NAME: &str = "flight: followers";

/// Every way once a turn.
const TURNS: usize = 7;
const TURNS_QUICK: usize = 1;
const SIZES: [(&str, usize); 2] = [("100 bytes", 100), ("100 KB", 100 * 1024)];
const WAYS: [Way; 3] = [Way::Joined, Way::Polled, Way::Subscribed];

pub struct Flights {
    notified: Vec<(&'static str, Way, Notified)>,
    weights: Vec<(&'static str, Weight)>,
}

pub fn measure(quick: bool) -> Flights {
    let (ours, plain) = (Server::fresh(), Server::start(Options::default().without_module()));
    let turns = if quick { TURNS_QUICK } else { TURNS };
    let mut notified = Vec::new();
    for (size, bytes) in SIZES {
        eprintln!("flights: {FOLLOWERS} followers, {size}");
        let mut runs = WAYS.map(|way| (way, Vec::new()));
        for _ in 0..turns {
            for (way, runs) in &mut runs {
                let server = if *way == Way::Joined { &ours } else { &plain };
                runs.push(followers::tell(server, *way, bytes));
            }
        }
        notified.extend(runs.map(|(way, runs)| (size, way, Notified::median(&runs))));
    }
    eprintln!("flights: memory");
    Flights { notified, weights: weights(&ours, &plain) }
}

fn weights(ours: &Server, plain: &Server) -> Vec<(&'static str, Weight)> {
    let value = hundred_bytes();
    let mut control = plain.connect();
    let sha = |script: &str| redis::from_redis_value(ok(&mut control, &["SCRIPT", "LOAD", script])).expect("a digest");
    let Scripts { begin, commit, join, publish } = Scripts::load(sha);
    let said_once = crate::load::Reply::line(":1\r");
    let commit_ours = format!("RES.IDEMP COMMIT {{k}} token:{{n}} 3600000 {value}");
    let publish_ours = format!("RES.SFLIGHT PUBLISH {{k}} token:{{n}} 3600000 VALUE {value}");
    let begin = format!("EVALSHA {begin} 1 {{k}} token:{{n}} 30000 86400000");
    let commit = format!("EVALSHA {commit} 1 {{k}} token:{{n}} 3600000 {value} ok");
    let join = format!("EVALSHA {join} 1 {{k}} token:{{n}} 30000");
    let publish = format!("EVALSHA {publish} 1 {{k}} token:{{n}} 3600000 0 VALUE {value}");
    let set = format!("SET {{k}} {value} PX 3600000");
    vec![
        ("RES.IDEMP ONCE", weigh(ours, &[("RES.IDEMP ONCE {k} 3600000", said_once)])),
        ("SET k 1 NX PX", weigh(plain, &[("SET {k} 1 NX PX 3600000", OK)])),
        (
            "RES.IDEMP, committed",
            weigh(ours, &[("RES.IDEMP BEGIN {k} token:{n} 30000", RAN), (&commit_ours, COMMITTED)]),
        ),
        ("Lua begin, commit", weigh(plain, &[(&begin, RAN), (&commit, COMMITTED)])),
        (
            "RES.SFLIGHT, published",
            weigh(ours, &[("RES.SFLIGHT JOIN {k} token:{n} 30000", LEADS), (&publish_ours, PUBLISHED)]),
        ),
        ("Lua join, publish", weigh(plain, &[(&join, LEADS), (&publish, PUBLISHED)])),
        ("SET k v PX, 100 bytes", weigh(plain, &[(&set, OK)])),
    ]
}

impl Flights {
    pub fn print(&self) {
        println!("\n### Single flights: {FOLLOWERS} followers of one value\n");
        println!("| | value | median, ms | last, ms | CPU ms, a second of waiting | CPU ms, telling |");
        println!("| --- | --- | ---: | ---: | ---: | ---: |");
        for (size, way, notified) in &self.notified {
            let name = match way {
                Way::Joined => "RES.SFLIGHT JOIN".to_owned(),
                Way::Polled => format!("GET every {} ms", POLL.as_millis()),
                Way::Subscribed => "a channel, then GET".to_owned(),
            };
            println!(
                "| {name} | {size} | {:.1} | {:.1} | {:.1} | {:.1} |",
                notified.median_ms, notified.last_ms, notified.waiting_cpu_ms, notified.telling_cpu_ms
            );
        }
        println!("\n### Idempotency keys and single flights: bytes of one of {KEYS}, key of {KEY_BYTES} included\n");
        println!("| | bytes | MEMORY USAGE |\n| --- | ---: | ---: |");
        for (name, weight) in &self.weights {
            println!("| {name} | {:.0} | {:.0} |", weight.whole, weight.memory_usage);
        }
    }
}
