//! A failed job that is retried and completes, by RES.DLQ and by BullMQ's own package, in one program of `peers/node`.

use std::process::Command;

use resil_harness::{Options, Server};
use serde_json::Value;

use super::with_large_ledgers;
use crate::bars::{Bar, Verdict};
use crate::figures::median;
use crate::foreign;

const FILES: [&str; 3] = ["package.json", "ledger.mjs", "turns.mjs"];
const ROUNDS: &str = "7";
const ROUNDS_QUICK: &str = "2";
const JOBS: &str = "5000";
const JOBS_QUICK: &str = "500";
const LEAST: f64 = 5.0;
const PROMISE: &str = "RES.DLQ FAIL, TAKE and DONE, pipelined, at least 5x BullMQ";

/// CPU time of the server per job.
struct Cost {
    ours_us: f64,
    bullmq_us: f64,
    ratio: f64,
}

pub struct Beside {
    /// As the client sends by itself.
    alone: Cost,
    /// In the client's pipelines, as all rows of this program are sent: this is judged.
    pipelined: Cost,
}

pub fn measure(quick: bool) -> Result<Beside, String> {
    eprintln!("ledger: BullMQ");
    let place = foreign::node_packages("node", &FILES)?;
    let ours = Server::start(with_large_ledgers().measured());
    let plain = Server::start(Options::default().without_module().measured());
    let (rounds, jobs) = if quick { (ROUNDS_QUICK, JOBS_QUICK) } else { (ROUNDS, JOBS) };
    let servers = [&ours, &plain].map(|server| [server.port().to_string(), server.pid().to_string()]);
    let mut program = Command::new("node");
    program.arg(place.join("ledger.mjs")).args(servers.iter().flatten()).args([rounds, jobs]);
    let said = foreign::run(&mut program)?;
    let found: Value = serde_json::from_str(&said).map_err(|error| format!("ledger.mjs: {error}"))?;
    Ok(Beside { alone: Cost::of(&found, "Alone"), pipelined: Cost::of(&found, "Pipelined") })
}

impl Cost {
    fn of(found: &Value, form: &str) -> Self {
        let rounds = |side: &str| -> Vec<f64> {
            found[format!("{side}{form}")].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
        };
        let (ours, bullmq) = (rounds("ours"), rounds("bullmq"));
        let ratio = median(bullmq.iter().zip(&ours).map(|(bullmq, ours)| bullmq / ours));
        Self { ours_us: median(ours.into_iter()), bullmq_us: median(bullmq.into_iter()), ratio }
    }
}

impl Beside {
    pub fn print(&self) {
        println!("\n### Dead letters: a job that failed, is taken again and completes\n");
        println!("| | RES.DLQ FAIL, TAKE, DONE, CPU µs | BullMQ, CPU µs | CPU, x |\n| --- | ---: | ---: | ---: |");
        for (name, cost) in [("in pipelines", &self.pipelined), ("as ioredis sends by itself", &self.alone)] {
            println!("| {name} | {:.1} | {:.1} | {:.2} |", cost.ours_us, cost.bullmq_us, cost.ratio);
        }
    }
}

pub fn bar(measured: &Result<Beside, String>) -> Bar {
    match measured {
        Ok(Beside { pipelined: Cost { ratio, .. }, .. }) => {
            super::bar(PROMISE, format!("{ratio:.2}x CPU"), Verdict::at_least(*ratio, LEAST, f64::INFINITY))
        }
        Err(_) => Bar { promise: PROMISE, measured: None, verdict: Verdict::NotMeasured },
    }
}
