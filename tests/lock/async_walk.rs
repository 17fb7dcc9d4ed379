//! A random walk of many waiters, asynchronous and blocked, whose connections are closed and killed in between.
//!
//! The judge reads only what clients heard: every wait ends in exactly one verdict or its connection is gone, a key never
//! has more holders than it may, no grant is lost, and nobody is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redis::Connection;
use resil_harness::{Options, Server};

use crate::async_client::AsyncClient;
use crate::driven::Say;
use crate::scene::{receive, send, verdict};
use crate::seed::{say, seeded};

/// A key, and how many may hold it.
const KEYS: [(&str, usize); 3] = [("k", 1), ("l", 1), ("p", 3)];
const CLIENTS: usize = 8;
/// Nothing that can be granted is left for longer.
const DRAINED_WITHIN: Duration = Duration::from_secs(30);

/// A key of `KEYS` and the owner.
type Name = (usize, String);

struct Client {
    connection: AsyncClient,
    /// Its grants end with it, by themselves.
    is_bound: bool,
    /// It has one call at a time, and is blocked by it.
    is_blocked: bool,
    waits: BTreeSet<Name>,
    holds: BTreeSet<Name>,
}

impl Client {
    fn new(server: &Server, rng: &mut Rng) -> Self {
        let is_blocked = rng.u32(..4) == 0;
        let connection = if is_blocked { AsyncClient::deaf(server) } else { AsyncClient::new(server) };
        Self { connection, is_bound: rng.bool(), is_blocked, waits: BTreeSet::new(), holds: BTreeSet::new() }
    }
}

struct Walk {
    server: Server,
    main: Connection,
    director: TcpStream,
    rng: Rng,
    clients: Vec<Client>,
    /// A call to let go is under way; what it hears until then does not count as held.
    leaving: BTreeSet<Name>,
    last_owner: usize,
    fences: BTreeSet<(usize, String)>,
    /// How often each verdict was reported.
    reported: BTreeMap<String, usize>,
}

fn let_go((key, owner): &Name) -> String {
    let name = KEYS[*key].0;
    if KEYS[*key].1 == 1 {
        format!("RES.LOCK RELEASE {name} {owner}")
    } else {
        format!("RES.BULKHEAD LEAVE {name} {owner}")
    }
}

impl Walk {
    fn new(server: Server, mut rng: Rng) -> Self {
        let (main, director) = (server.connect(), server.raw());
        let clients = (0..CLIENTS).map(|_| Client::new(&server, &mut rng)).collect();
        let (leaving, fences, reported) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { server, main, director, rng, clients, leaving, last_owner: 0, fences, reported }
    }

    fn ask(&mut self, line: &str) -> String {
        send(&mut self.main, line);
        receive(&mut self.main)
    }

    fn any_client(&mut self) -> usize {
        self.rng.usize(..CLIENTS)
    }

    /// A client got the verdict of its wait.
    fn hear(&mut self, client: usize, name: Name, reply: &str) {
        let word = verdict(reply);
        assert!(self.clients[client].waits.remove(&name), "{name:?} got {reply}, and does not wait");
        *self.reported.entry(word.clone()).or_default() += 1;
        if word != "GRANTED" {
            assert!(["TIMEOUT", "-SUPERSEDED", "-UNBLOCKED"].contains(&word.as_str()), "{name:?} got {reply}");
            return;
        }
        let fence = reply.split(' ').nth(1).unwrap_or_default().to_owned();
        // A permit of a bulkhead has none.
        let is_new = KEYS[name.0].1 > 1 || self.fences.insert((name.0, fence));
        assert!(is_new, "{name:?} has the fence of another: {reply}");
        if self.leaving.remove(&name) {
            return;
        }
        self.clients[client].holds.insert(name.clone());
        let holders: Vec<&Name> =
            self.clients.iter().flat_map(|client| &client.holds).filter(|holder| holder.0 == name.0).collect();
        assert!(holders.len() <= KEYS[name.0].1, "too many hold {}: {holders:?}", KEYS[name.0].0);
    }

    /// Reads what one got so far.
    fn read(&mut self, client: usize) {
        let this = &mut self.clients[client];
        this.connection.poll();
        assert!(!this.connection.is_closed, "a connection was closed by the server");
        let late = this.connection.take_late();
        let replies = if this.is_blocked { this.connection.take_replies() } else { Vec::new() };
        for late in late {
            let key = KEYS.iter().position(|(key, _)| *key == late.key).expect("a key of ours");
            self.hear(client, (key, late.owner), &late.reply);
        }
        for reply in replies {
            let name = self.clients[client].waits.first().cloned().expect("it waits");
            self.hear(client, name, &reply);
        }
    }

    fn read_all(&mut self) {
        (0..CLIENTS).for_each(|client| self.read(client));
    }

    fn begin_wait(&mut self) {
        let client = self.any_client();
        let key = self.rng.usize(..KEYS.len());
        let (text, max) = KEYS[key];
        self.last_owner += 1;
        let owner = format!("o{}", self.last_owner);
        let wait = ["20ms", "300ms", "10m", "10m"][self.rng.usize(..4)];
        let priority = self.rng.u32(..3);
        let this = &mut self.clients[client];
        let bound = if this.is_bound { " BOUND" } else { "" };
        let manner = if this.is_blocked { "" } else { " ASYNC" };
        let line = if max == 1 {
            format!("RES.LOCK ACQUIRE {text} {owner} 1h WAIT {wait}{manner}{bound}")
        } else {
            format!(
                "RES.BULKHEAD ENTER {text} {owner} {max} 1h WAIT {wait}{manner} QUEUE 1000 PRIORITY {priority}{bound}"
            )
        };
        if this.is_blocked {
            // Its one call is under way still.
            if !this.waits.is_empty() {
                return;
            }
            this.connection.send(&line);
            this.waits.insert((key, owner));
            return;
        }
        this.waits.insert((key, owner.clone()));
        let reply = this.connection.ask(&line);
        if !reply.starts_with("[QUEUED ") {
            self.hear(client, (key, owner), &reply);
        }
    }

    /// One that learned that it holds lets go: by itself if it can, and a connection may be killed in the same breath.
    fn release(&mut self, killed: Option<usize>) {
        let holders: Vec<usize> = (0..CLIENTS).filter(|client| !self.clients[*client].holds.is_empty()).collect();
        let Some(client) = self.rng.choice(holders) else { return };
        let name = self.clients[client].holds.pop_first().expect("it holds");
        if let Some(killed) = killed {
            let kill = format!("{}\r\nCLIENT KILL ID {}\r\n", let_go(&name), self.clients[killed].connection.id);
            self.director.write_all(kill.as_bytes()).expect("an open connection");
            return self.gone(killed);
        }
        let this = &mut self.clients[client];
        let reply = if this.is_blocked { self.ask(&let_go(&name)) } else { this.connection.ask(&let_go(&name)) };
        assert!(reply.starts_with("[RELEASED "), "{name:?} held it, and got {reply}");
    }

    /// One that waits lets go.
    fn cancel(&mut self) {
        let client = self.any_client();
        let Some(name) = self.clients[client].waits.first().cloned() else { return };
        // What it hears before its call to let go is served is let go with that call.
        self.leaving.insert(name.clone());
        let reply = self.ask(&let_go(&name));
        let end = Instant::now() + DRAINED_WITHIN;
        while self.clients[client].waits.contains(&name) {
            assert!(Instant::now() < end, "{name:?} let go ({reply}), and its wait goes on");
            self.read(client);
            // It had not begun to wait yet.
            if reply.starts_with("[LOST ") && self.clients[client].waits.contains(&name) {
                self.ask(&let_go(&name));
            }
        }
        self.leaving.remove(&name);
        assert!(reply.starts_with("[RELEASED ") || reply.starts_with("[LOST "), "{reply}");
        // A blocked call that was served after the call to let go may hold what nobody counts: two connections have no order.
        if reply.starts_with("[LOST ") {
            self.ask(&let_go(&name));
        }
    }

    /// The connection of a client is gone, or going, and another client takes its place. What is not bound is let go for it.
    fn gone(&mut self, client: usize) {
        let new = Client::new(&self.server, &mut self.rng);
        let old = std::mem::replace(&mut self.clients[client], new);
        let (id, is_bound) = (old.connection.id, old.is_bound);
        let names: Vec<Name> = old.waits.into_iter().chain(old.holds).collect();
        drop(old.connection);
        if is_bound {
            return;
        }
        // Only a connection that is gone for the server has no wait that becomes a grant.
        let listed = format!("CLIENT LIST ID {id}");
        while self.ask(&listed).contains("id=") {}
        names.iter().for_each(|name| drop(self.ask(&let_go(name))));
    }

    fn step(&mut self) {
        match self.rng.u32(..100) {
            0..45 => self.begin_wait(),
            45..75 => self.release(None),
            75..80 => self.cancel(),
            80..82 => {
                let client = self.any_client();
                self.gone(client);
            }
            82..85 => {
                let client = self.any_client();
                self.release(Some(client));
            }
            85..87 => {
                let client = self.any_client();
                let id = self.clients[client].connection.id;
                // Redis 7.0 ends, with or without a module, when a client is unblocked that a pause holds back.
                self.ask("CLIENT UNPAUSE");
                self.ask(&format!("CLIENT UNBLOCK {id}"));
            }
            87 => drop(self.ask("CLIENT PAUSE 15 WRITE")),
            88..94 => self.read_all(),
            _ => {
                let client = self.any_client();
                self.read(client);
            }
        }
    }

    /// Nobody comes any more, and everybody who holds lets go: everybody who waits is notified, and all is free.
    fn end(mut self) {
        let end = Instant::now() + DRAINED_WITHIN;
        while self.clients.iter().any(|client| !client.waits.is_empty() || !client.holds.is_empty()) {
            let waits = |walk: &Self| walk.clients.iter().map(|client| client.waits.len()).sum::<usize>();
            assert!(Instant::now() < end, "{} are forgotten", waits(&self));
            self.read_all();
            self.release(None);
        }
        for (key, max) in KEYS {
            for number in 0..max {
                let line = if max == 1 {
                    format!("RES.LOCK ACQUIRE {key} judge{number} 1h WAIT 5s")
                } else {
                    format!("RES.BULKHEAD ENTER {key} judge{number} {max} 1h WAIT 5s QUEUE 9")
                };
                let reply = self.ask(&line);
                assert!(reply.starts_with("[GRANTED "), "{key} is held by nobody, and not free: {reply}");
            }
        }
        assert_eq!(self.main.info_number("resil", "async_waiters"), 0);
        assert_eq!(self.main.info_number("resil", "blocked_waiters"), 0);
        assert_eq!(self.main.info_number("resil", "internal_errors"), 0);
        for verdict in ["GRANTED", "TIMEOUT", "-SUPERSEDED"] {
            assert!(self.reported.contains_key(verdict), "nobody got {verdict}: {:?}", self.reported);
        }
        say(&format!("asynchronous walk: {:?}", self.reported));
    }
}

/// A walk of so many steps.
pub fn walk(options: Options, steps: usize) {
    let rng = seeded("asynchronous walk");
    let mut walk = Walk::new(Server::start(options), rng);
    for _ in 0..steps {
        walk.step();
    }
    walk.end();
}
