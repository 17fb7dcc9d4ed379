//! Clients that keep changing limits of every kind until they are asked to stop. They drive the clock of their server
//! too, so that no key expires while it is looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use redis::Connection;
use resil_harness::{Server, eventually, reply};

use crate::driven::{SOON, START_US, set_clock};

/// Several calls in one script: their effects travel together.
const SCRIPT: &str = "redis.call('RES.GCRA',KEYS[1],1000000,'1h') \
                      redis.call('RES.WINDOW',KEYS[2],100000,'1h') \
                      return redis.call('RES.GCRA',KEYS[1],1000000,'1h','REFUND','1')";

pub struct Traffic {
    stopped: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Two clients, changing limits of a driven server from now on.
    pub fn on(server: &Server) -> Self {
        set_clock(&mut server.connect(), START_US);
        let (stopped, calls) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let client = |number: u64| {
            let (mut connection, stopped, calls) = (server.connect(), stopped.clone(), calls.clone());
            std::thread::spawn(move || {
                for round in (number..).step_by(2) {
                    if stopped.load(Relaxed) {
                        return;
                    }
                    call(&mut connection, round);
                    // A loaded machine has to keep up.
                    std::thread::sleep(Duration::from_micros(100));
                    calls.fetch_add(1, Relaxed);
                }
            })
        };
        let clients = vec![client(0), client(1)];
        let traffic = Self { stopped, calls, clients };
        traffic.wait_for_more();
        traffic
    }

    /// Waits until some hundreds of further calls were answered.
    pub fn wait_for_more(&self) {
        let enough = self.calls.load(Relaxed) + 300;
        eventually("traffic flows", SOON, || self.calls.load(Relaxed) >= enough);
    }

    /// Stops and waits for the last reply.
    pub fn stop(self) {
        self.stopped.store(true, Relaxed);
        for client in self.clients {
            client.join().expect("every call was answered");
        }
    }
}

fn call(connection: &mut Connection, round: u64) {
    let key = |kind: &str| format!("{kind}:{}", round % 37);
    let (g, w, t, c, b) = (key("g"), key("w"), key("t"), key("c"), key("b"));
    let seq = round.to_string();
    let clock_us = (START_US + round as i64 * 100).to_string();
    let words: Vec<&str> = match round % 14 {
        0..=2 => vec!["RES.GCRA", &g, "1000000", "1h"],
        3 => vec!["RES.GCRA", &g, "1000000", "1h", "REFUND", "1"],
        4 => vec!["RES.GCRA", &t, "1000", "1m", "AND", "100000", "1h", "UPTO", "2"],
        5 => vec!["RES.GCRA", &t, "1000", "1m", "RESERVE", "10s"],
        6 => vec!["RES.MGCRA", "2", &g, "1000000", "1h", "1000000", &t, "1000", "1m", "1000"],
        7 => vec!["RES.WINDOW", &w, "100000", "1h", "UPTO", "3"],
        8 => vec!["CL.THROTTLE", &c, "100000", "100000", "3600"],
        9 => vec!["CL.THROTTLE", &c, "100000", "100000", "3600", "-9"],
        10 => vec!["RES._CLOCK", &clock_us],
        11 => vec!["RES.BREAKER", "TALLY", &b, "0", "me", &seq, "OK", "3", "FAIL", "2"],
        12 => vec!["RES.BREAKER", "ADMIT", &b],
        _ => vec!["EVAL", SCRIPT, "2", &g, &w],
    };
    if let Err(error) = reply(connection, &words) {
        panic!("{words:?}: {error}");
    }
}
