//! Many waiting for one lock: what handing it on costs, however long the queue.
//!
//! The holder releases, the next in the queue is notified, and then the old holder queues again, so that the queue stays
//! as long as it is. Timed is from the release to the grant the next one reads; the CPU time is of all three.

use std::thread::sleep;
use std::time::Instant;

use resil_harness::{Options, Server};

use super::pairs::{GRANTED, RELEASED};
use crate::figures::median;
use crate::line::{Line, command};
use crate::load::Reply;
use crate::stage::{SETTLE, cpu_us};

pub const FEW: usize = 10;
pub const MANY: usize = 10_000;
/// Files that are neither a waiter's connection nor a standard stream: the server's own, with room to spare.
const OTHER_FILES: u64 = 200;

/// What a hand-over cost.
#[derive(Clone, Copy)]
pub struct HandOver {
    pub latency_us: f64,
    pub cpu_us: f64,
}

/// A lock with its queue.
pub struct Crowd {
    server: Server,
    lines: Vec<Line>,
    /// Who holds; the next in the queue is the next in the list.
    holder: usize,
}

impl Crowd {
    pub fn of(waiters: usize) -> Self {
        let clients = waiters + 100;
        let server = Server::start(Options::default().config("maxclients", clients.to_string()));
        let mut lines: Vec<Line> = (0..=waiters).map(|_| Line::to(&server)).collect();
        lines[0].ask(&acquire(0), GRANTED);
        let (mut control, ping) = (Line::to(&server), command("PING"));
        for (number, line) in lines.iter_mut().enumerate().skip(1) {
            line.say(&acquire(number));
            // Answered means that what was sent before has been seen: the order in the queue is ours.
            control.ask(&ping, Reply::line("+PONG"));
        }
        Self { server, lines, holder: 0 }
    }

    /// Hands the lock on so many times.
    pub fn hand_over(&mut self, times: usize) -> HandOver {
        let cpu_before_us = cpu_us(&self.server);
        let latencies_us: Vec<f64> = (0..times)
            .map(|_| {
                let (old, next) = (self.holder, (self.holder + 1) % self.lines.len());
                let (release, again) = (release(old), acquire(old));
                let started = Instant::now();
                self.lines[old].say(&release);
                self.lines[next].hear(GRANTED);
                let elapsed = started.elapsed();
                self.lines[old].hear(RELEASED);
                self.lines[old].say(&again);
                self.holder = next;
                elapsed.as_secs_f64() * 1e6
            })
            .collect();
        sleep(SETTLE);
        let cpu_us = (cpu_us(&self.server) - cpu_before_us) / times as f64;
        HandOver { latency_us: median(latencies_us.into_iter()), cpu_us }
    }
}

fn acquire(number: usize) -> Vec<u8> {
    command(&format!("RES.LOCK ACQUIRE wanted owner:{number:010} 10m WAIT 10m"))
}

fn release(number: usize) -> Vec<u8> {
    command(&format!("RES.LOCK RELEASE wanted owner:{number:010}"))
}

/// Lets this process, and the servers it starts, open a file for each of [`MANY`] waiters.
pub fn raise_open_files() -> Result<(), String> {
    let needed = MANY as u64 + OTHER_FILES;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read or write the struct they are given.
    let is_raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0
        }
    };
    if is_raised && limit.rlim_max >= needed {
        return Ok(());
    }
    Err(format!("{MANY} waiters need {needed} open files, and {} are allowed", limit.rlim_max))
}
