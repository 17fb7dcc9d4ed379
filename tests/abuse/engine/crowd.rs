//! Connections beside the one that fires: they wait for locks, permits, results and values, and are unblocked, killed or
//! closed in the middle of it.

use std::time::{Duration, Instant};

use resil_harness::Server;

use super::asked::{Asked, check};
use super::generator::{Call, Generator};
use super::resp::{Client, Reply, Words, shown, words};

const MEMBERS: usize = 16;
/// How long all replies may take once the clock has passed every wait; the server may run under valgrind.
const BOUND: Duration = Duration::from_secs(60);
/// How long is listened before the clock is moved again.
const MOMENT: Duration = Duration::from_millis(10);

#[derive(Default)]
pub struct Crowd {
    members: Vec<Member>,
    pub seen: Seen,
}

/// What became of the calls.
#[derive(Debug, Default, Clone, Copy)]
pub struct Seen {
    pub answered: usize,
    pub unblocked: usize,
    pub closed: usize,
    pub killed: usize,
}

struct Member {
    client: Client,
    id: i64,
    pending: Vec<Call>,
    killed: bool,
}

impl Crowd {
    /// Lets everybody ask, and some hang up at once.
    pub fn ask(&mut self, server: &Server, generator: &mut Generator) {
        while self.members.len() < MEMBERS {
            let mut client = Client::new(server);
            let Reply::Integer(id) = client.typed("CLIENT ID") else { panic!("an id is a number") };
            self.members.push(Member { client, id, pending: Vec::new(), killed: false });
        }
        generator.others = self.members.iter().map(|member| member.id).collect();
        for member in &mut self.members {
            let mut calls = vec![generator.waiting()];
            for _ in 0..generator.rng.usize(0..3) {
                calls.push(generator.without_waiting());
            }
            member.client.send(calls.iter().map(|call| call.words.as_slice()));
            member.pending = calls;
        }
        let before = self.members.len();
        self.members.retain(|_| generator.rng.u32(0..12) > 0);
        self.seen.closed += before - self.members.len();
    }

    /// What the one that fires does to them: CLIENT UNBLOCK and CLIENT KILL, each with the id.
    pub fn disturbances(&mut self, generator: &mut Generator) -> Vec<Words> {
        let mut calls = Vec::new();
        for member in &mut self.members {
            let id = member.id.to_string();
            match generator.rng.u32(0..12) {
                0 => calls.push(words(["CLIENT", "UNBLOCK", &id])),
                1 => calls.push(words(["CLIENT", "UNBLOCK", &id, "ERROR"])),
                2 => {
                    calls.push(words(["CLIENT", "UNBLOCK", &id]));
                    calls.push(words(["CLIENT", "KILL", "ID", &id]));
                    member.killed = true;
                }
                3 => {
                    calls.push(words(["CLIENT", "KILL", "ID", &id]));
                    member.killed = true;
                }
                _ => {}
            }
        }
        self.seen.killed += self.members.iter().filter(|member| member.killed).count();
        calls
    }

    /// Everybody is answered, once, as soon as the clock has passed what they wait for.
    pub fn hear(&mut self, main: &mut Client, generator: &mut Generator) {
        self.members.retain(|member| !member.killed);
        let began = Instant::now();
        for member in &mut self.members {
            for call in std::mem::take(&mut member.pending) {
                while !member.client.has_reply(MOMENT) {
                    if began.elapsed() > BOUND {
                        panic!("never answered: {}\n  {}", shown(&call.words), state_of(main, &call.words, member.id));
                    }
                    main.call(&generator.beyond_all_waits());
                }
                let reply = member.client.read();
                self.seen.answered += 1;
                self.seen.unblocked += reply.is_error() as usize;
                if let Err(broken) = check(&call.asked, &reply) {
                    panic!("{broken}\n  call: {}\n  reply: {reply:?}", shown(&call.words));
                }
                generator.learn(&call, &reply);
            }
            assert!(!member.client.has_reply(Duration::from_micros(1)), "one reply each");
        }
    }

    pub fn leave(&mut self) {
        self.members.clear();
    }
}

/// What the server says about a call that has no reply.
fn state_of(main: &mut Client, call: &[Vec<u8>], id: i64) -> String {
    let mut asking = vec![words([b"TYPE".as_slice(), &call[2]]), words([b"PTTL".as_slice(), &call[2]])];
    asking.push(words([call[0].as_slice(), b"INFO", &call[2]]));
    asking.push(words(["CLIENT", "LIST", "ID", &id.to_string()]));
    let replies = main.pipeline(asking.iter().map(Vec::as_slice));
    let waiters = super::server_state::counter(main, "blocked_waiters");
    format!("{replies:?}, {waiters} wait")
}

/// EXEC: the replies of what was queued.
pub fn check_exec(asked: &[Asked], reply: &Reply) -> Result<(), String> {
    match reply {
        Reply::Array(replies) if replies.len() == asked.len() => {
            asked.iter().zip(replies).try_for_each(|(asked, reply)| check(asked, reply))
        }
        other => Err(format!("{} replies were expected, got {other:?}", asked.len())),
    }
}
