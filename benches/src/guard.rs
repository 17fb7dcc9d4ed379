//! A call under a stored policy, ENTER and EXIT with breaker, limit and place, beside the same commands pipelined: ADMIT, RES.GCRA and
//! RES.BULKHEAD ENTER before the call, LEAVE and REPORT after it. CPU time of the server's main thread per call.
//!
//! Both have their turn in every slice, now one first and now the other. The median of the slices' ratios counts.

use std::thread::sleep;

use redis::{Connection, ConnectionLike, Value};
use resil_harness::{Options, Server, ok};

use crate::bars::{Bar, Verdict};
use crate::figures::median;
use crate::stage::{SETTLE, cpu_us};

/// What selects it, as a row's name would.
pub const NAME: &str = "guard: enter, exit";

const CALLS: usize = 200_000;
const CALLS_QUICK: usize = 20_000;
const SLICES: usize = 20;
const AT_ONCE: usize = 50;
const LEAST: f64 = 1.5;

const POLICY: &str = r#"{"timeout":{"attempt":"10s"},"breaker":{},"rateLimit":{"limit":1000000000,"period":"1s"},"sharedBulkhead":{"maxConcurrentCalls":1000}}"#;

pub struct Guarded {
    ours_us: f64,
    pipelined_us: f64,
    ratio: f64,
}

pub fn measure(quick: bool) -> Guarded {
    let server = Server::start(Options::default().measured());
    let mut connection = server.connect();
    connection.set_read_timeout(None).expect("a TCP socket");
    ok(&mut connection, &["RES.POLICY", "SET", "policy", POLICY]);
    let calls = if quick { CALLS_QUICK } else { CALLS } / SLICES;
    let (mut ours, mut pipelined, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for slice in 0..SLICES {
        let mut cost = |work: fn(&mut Connection, usize)| {
            let before_us = cpu_us(&server);
            work(&mut connection, calls);
            sleep(SETTLE);
            (cpu_us(&server) - before_us) / calls as f64
        };
        let (guarded_us, beside_us) = if slice % 2 == 0 {
            let guarded_us = cost(guarded);
            (guarded_us, cost(beside))
        } else {
            let beside_us = cost(beside);
            (cost(guarded), beside_us)
        };
        ours.push(guarded_us);
        pipelined.push(beside_us);
        ratios.push(beside_us / guarded_us);
    }
    let of = |numbers: Vec<f64>| median(numbers.into_iter());
    Guarded { ours_us: of(ours), pipelined_us: of(pipelined), ratio: of(ratios) }
}

/// Sends the commands at once; the replies, none of them an error.
fn send(connection: &mut Connection, commands: &[Vec<String>]) -> Vec<Value> {
    let mut bytes = Vec::new();
    for words in commands {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        bytes.extend_from_slice(&command.get_packed_command());
    }
    let replies = connection.req_packed_commands(&bytes, 0, commands.len()).expect("the server replies");
    replies.into_iter().map(|value| value.extract_error().expect("a reply that is no error")).collect()
}

/// One of a reply's fields.
fn field(reply: &Value, index: usize) -> String {
    let Value::Array(fields) = reply else { panic!("a list was expected, not {reply:?}") };
    redis::from_redis_value(fields[index].clone()).expect("a text")
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn guarded(connection: &mut Connection, calls: usize) {
    for _ in 0..calls / AT_ONCE {
        let enter: Vec<_> = (0..AT_ONCE).map(|owner| words(&format!("RES.GUARD ENTER policy owner-{owner}"))).collect();
        let entered = send(connection, &enter);
        let exit: Vec<_> =
            entered.iter().map(|reply| words(&format!("RES.GUARD EXIT policy {} OK", field(reply, 1)))).collect();
        send(connection, &exit);
    }
}

fn beside(connection: &mut Connection, calls: usize) {
    for _ in 0..calls / AT_ONCE {
        let before = (0..AT_ONCE).flat_map(|owner| {
            [
                words("RES.BREAKER ADMIT breaker"),
                words("RES.GCRA limit 1000000000 1s"),
                words(&format!("RES.BULKHEAD ENTER places owner-{owner} 1000 11s")),
            ]
        });
        let admitted = send(connection, &before.collect::<Vec<_>>());
        let after = (0..AT_ONCE).flat_map(|owner| {
            let permit = field(&admitted[owner * 3], 2);
            [
                words(&format!("RES.BULKHEAD LEAVE places owner-{owner}")),
                words(&format!("RES.BREAKER REPORT breaker {permit} OK")),
            ]
        });
        send(connection, &after.collect::<Vec<_>>());
    }
}

impl Guarded {
    pub fn print(&self) {
        println!("\n### Guard: a call under a stored policy\n");
        println!("| | CPU µs per call |\n| --- | ---: |");
        println!("| RES.GUARD ENTER, EXIT | {:.2} |", self.ours_us);
        println!("| ADMIT, GCRA, BULKHEAD ENTER, LEAVE, REPORT, pipelined | {:.2} |", self.pipelined_us);
    }

    pub fn bar(&self) -> Bar {
        Bar {
            promise: "RES.GUARD ENTER, EXIT, at least 1.5x the same commands pipelined",
            measured: Some(format!("{:.2}x CPU", self.ratio)),
            verdict: Verdict::at_least(self.ratio, LEAST, f64::INFINITY),
        }
    }
}
