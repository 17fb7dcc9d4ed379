//! What a hand-over and a position in the queue cost the server, in time of its main thread.
//!
//! The servers that are compared are used in turns, and the medians are compared: a machine that is busy with something else slows
//! both.

use std::time::Duration;

use redis::Connection;
use resil_harness::Server;

use crate::async_client::AsyncClient;
use crate::async_waits::{CONNECTIONS, async_waiters, connections};
use crate::driven::Say;
use crate::pinger::{on_cpu, our_server};

/// A lock and its queue.
struct Queue {
    server: Server,
    main: Connection,
    clients: Vec<AsyncClient>,
    /// The number of the holder; those who wait have the numbers after it.
    holder: usize,
    waiters: usize,
}

impl Queue {
    fn of(waiters: usize) -> Self {
        let server = our_server();
        let mut main = server.connect();
        main.say("RES.LOCK ACQUIRE k w0 10000s");
        let clients = async_waiters(&server, waiters, |number| acquire(number + 1));
        Self { server, main, clients, holder: 0, waiters }
    }

    /// One releases, in one pipeline with nine others, and its successor is notified. How long one of them took the server.
    fn hand_over(&mut self) -> Duration {
        let releases: Vec<String> =
            (0..BATCH).map(|number| format!("RES.LOCK RELEASE k w{}", self.holder + number)).collect();
        let before = on_cpu(self.server.pid());
        let client = &mut self.clients[0];
        client.send(&releases.join("\r\n"));
        for _ in 0..BATCH {
            let reply = client.reply();
            assert!(reply.starts_with("[RELEASED "), "{reply}");
        }
        let took = on_cpu(self.server.pid()) - before;
        self.holder += BATCH;
        self.clients.iter_mut().for_each(|client| drop(client.take_late()));
        for number in 0..BATCH {
            let line = acquire(self.holder + self.waiters - BATCH + number + 1);
            self.clients[number % CONNECTIONS].waits(&line);
        }
        took / BATCH as u32
    }
}

const BATCH: usize = 10;
const ROUNDS: usize = 200;

fn acquire(number: usize) -> String {
    format!("RES.LOCK ACQUIRE k w{number} 1000s WAIT 500s")
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_hand_over_with_many_waiters_costs_twice_at_most() {
    let (mut few, mut many) = (Queue::of(BATCH), Queue::of(100_000));
    let both = (0..ROUNDS).map(|_| (few.hand_over(), many.hand_over()));
    let (of_few, of_many): (Vec<_>, Vec<_>) = both.unzip();
    let (of_few, of_many) = (median(of_few), median(of_many));
    println!("a hand-over with 10 waiters: {of_few:?}, with 100,000: {of_many:?} of the server");
    assert_eq!(many.main.info_number("resil", "async_waiters"), 100_000);
    assert!(of_many <= 2 * of_few, "{of_many:?} beside {of_few:?}");
}

#[test]
fn to_queue_costs_at_most_twice_what_a_grant_costs() {
    const CALLS: usize = 1_000;
    let (granting, queueing) = (our_server(), our_server());
    queueing.connect().say("RES.LOCK ACQUIRE k w0 10000s");
    let (mut grants, mut queue) = (connections(&granting), connections(&queueing));
    let sent = |server: &Server, client: &mut AsyncClient, lines: Vec<String>, verdict: &str| {
        let before = on_cpu(server.pid());
        client.send(&lines.join("\r\n"));
        for _ in &lines {
            let reply = client.reply();
            assert!(reply.starts_with(verdict), "{reply}");
        }
        (on_cpu(server.pid()) - before) / CALLS as u32
    };
    let both = (0..100).map(|round: usize| {
        let numbers = || round * CALLS..(round + 1) * CALLS;
        let granted = numbers().map(|number| format!("RES.LOCK ACQUIRE k{number} w{number} 1000s")).collect();
        let queued = numbers().map(|number| format!("{} ASYNC", acquire(number + 1))).collect();
        (
            sent(&granting, &mut grants[round % CONNECTIONS], granted, "[GRANTED "),
            sent(&queueing, &mut queue[round % CONNECTIONS], queued, "[QUEUED "),
        )
    });
    let (granted, queued): (Vec<_>, Vec<_>) = both.unzip();
    let (granted, queued) = (median(granted), median(queued));
    println!("a grant: {granted:?}, a position in the queue: {queued:?} of the server");
    assert!(queued <= 2 * granted, "{queued:?} beside {granted:?}");
}
