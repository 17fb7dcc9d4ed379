//! Many who need the same value, which one loads: how long after it is there the last of them has it.
//!
//! A connection for each, and one thread that takes what comes on any: a thread for each would measure the machine's
//! scheduler. Everybody waits for half a second before the value is there.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use resil_harness::Server;

use super::rows::{LEADS, OK};
use crate::figures::median;
use crate::line::{Line, command};
use crate::load::Reply;
use crate::stage::{SETTLE, cpu_us};

pub const FOLLOWERS: usize = 1_000;
/// How often those ask who poll, each beginning at another moment.
pub const POLL: Duration = Duration::from_millis(50);
const WAIT: Duration = Duration::from_millis(500);

/// How a follower comes by the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It waits in the server.
    Joined,
    /// It asks again and again.
    Polled,
    /// It listens to a channel, and asks when something is said there. By RESP3, so that one connection does for both.
    Subscribed,
}

/// What a run gave.
pub struct Notified {
    /// From the moment the value is sent until a follower has all of it: the median one, and the last.
    pub median_ms: f64,
    pub last_ms: f64,
    /// CPU time of the server's main thread: for a second in which all wait, and from then on.
    pub waiting_cpu_ms: f64,
    pub telling_cpu_ms: f64,
}

impl Notified {
    /// The medians of several runs, each number by itself.
    pub fn median(runs: &[Self]) -> Self {
        let of = |number: fn(&Self) -> f64| median(runs.iter().map(number));
        Self {
            median_ms: of(|run| run.median_ms),
            last_ms: of(|run| run.last_ms),
            waiting_cpu_ms: of(|run| run.waiting_cpu_ms),
            telling_cpu_ms: of(|run| run.telling_cpu_ms),
        }
    }
}

const ASK: &str = "GET wanted";

/// Replies of several lines, distinguished by how many have come and how the first begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Nothing,
    /// A message of a channel, that has seven lines.
    Message,
    /// What JOIN replies, seven lines.
    Joined,
    /// What GET replies: one line of nothing, or two.
    Got,
}

struct Follower {
    stream: TcpStream,
    awaits: Awaits,
    /// Of the reply that is coming: its lines so far, and its first bytes.
    lines: usize,
    head: Vec<u8>,
    asks_at: Instant,
    done_at: Option<Instant>,
}

impl Follower {
    fn say(&mut self, words: &[u8], awaits: Awaits) {
        // A request is small, and the server reads: it never has to wait for room.
        self.stream.write_all(words).expect("the server takes what is sent");
        (self.awaits, self.lines) = (awaits, 0);
        self.head.clear();
    }

    /// Takes what has come.
    fn take(&mut self, chunk: &mut [u8]) {
        loop {
            let len = match self.stream.read(chunk) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("a follower: {error}"),
            };
            assert!(len > 0, "the server closed a follower's connection");
            let missing = 3_usize.saturating_sub(self.head.len()).min(len);
            self.head.extend_from_slice(&chunk[..missing]);
            assert!(self.head[0] != b'-', "a follower got {:?}", String::from_utf8_lossy(&chunk[..len]));
            self.lines += chunk[..len].iter().filter(|byte| **byte == b'\n').count();
            self.step();
        }
    }

    fn step(&mut self) {
        match self.awaits {
            Awaits::Message if self.lines == 7 => self.say(&command(ASK), Awaits::Got),
            Awaits::Joined if self.lines == 7 => self.done_at = Some(Instant::now()),
            Awaits::Got if self.lines == 2 => self.done_at = Some(Instant::now()),
            // Nothing, in RESP2.
            Awaits::Got if self.lines == 1 && self.head == b"$-1" => {
                self.awaits = Awaits::Nothing;
                self.asks_at += POLL;
            }
            Awaits::Nothing => panic!("the server said something unasked"),
            Awaits::Message | Awaits::Joined | Awaits::Got => {}
        }
    }
}

/// One run: everybody waits, the value comes, everybody has it.
pub fn tell(server: &Server, way: Way, bytes: usize) -> Notified {
    let value = "v".repeat(bytes);
    let mut loader = Line::to(server);
    loader.ask(&command("DEL wanted"), Reply::line(":"));
    if way == Way::Joined {
        assert!(loader.ask(&command("RES.SFLIGHT JOIN wanted leader 60s"), LEADS));
    }
    let now = Instant::now();
    let mut followers: Vec<Follower> = (0..FOLLOWERS)
        .map(|number| {
            let stream = listener(server, way);
            stream.set_nonblocking(true).expect("a TCP socket");
            let (lines, head, done_at) = Default::default();
            let mut follower = Follower { stream, awaits: Awaits::Nothing, lines, head, asks_at: now, done_at };
            match way {
                Way::Joined => {
                    let join = format!("RES.SFLIGHT JOIN wanted follower:{number} 60s WAIT 60s");
                    follower.say(&command(&join), Awaits::Joined);
                }
                Way::Polled => {}
                Way::Subscribed => follower.awaits = Awaits::Message,
            }
            follower
        })
        .collect();
    let events = Events::of(&followers);
    let begun = Instant::now();
    for (number, follower) in followers.iter_mut().enumerate() {
        follower.asks_at = begun + POLL.mul_f64(number as f64 / FOLLOWERS as f64);
    }
    let mut room = vec![0; 1 << 17];
    // Once around, so that everybody has begun.
    wait(&mut followers, &events, way, &mut room, begun + POLL);
    let (cpu_before_us, from) = (cpu_us(server), Instant::now());
    wait(&mut followers, &events, way, &mut room, from + WAIT);
    let (cpu_waited_us, waited) = (cpu_us(server), from.elapsed());

    let sent = match way {
        Way::Joined => command(&format!("RES.SFLIGHT PUBLISH wanted leader 60s VALUE {value}")),
        Way::Polled => command(&format!("SET wanted {value} PX 60000")),
        Way::Subscribed => [command(&format!("SET wanted {value} PX 60000")), command("PUBLISH loaded now")].concat(),
    };
    let started = Instant::now();
    loader.say(&sent);
    while followers.iter().any(|follower| follower.done_at.is_none()) {
        let until = Instant::now() + Duration::from_millis(5);
        wait(&mut followers, &events, way, &mut room, until);
        assert!(started.elapsed() < Duration::from_secs(60), "some followers never get it");
    }
    match way {
        Way::Joined => assert!(loader.hear(Reply { lines: 4, telling_line: 3, starts_with: ":1000\r" })),
        Way::Polled => assert!(loader.hear(OK)),
        Way::Subscribed => assert!(loader.hear(OK) && loader.hear(Reply::line(":1000\r"))),
    }
    sleep(SETTLE);
    let telling_cpu_ms = (cpu_us(server) - cpu_waited_us) / 1e3;
    let times_ms = followers.iter().filter_map(|follower| follower.done_at);
    let times_ms = times_ms.map(|done_at| (done_at - started).as_secs_f64() * 1e3);
    Notified {
        median_ms: median(times_ms.clone()),
        last_ms: times_ms.fold(0.0, f64::max),
        waiting_cpu_ms: (cpu_waited_us - cpu_before_us) / 1e3 / waited.as_secs_f64(),
        telling_cpu_ms,
    }
}

/// A follower's connection; one that subscribes has done so.
fn listener(server: &Server, way: Way) -> TcpStream {
    if way != Way::Subscribed {
        return server.raw();
    }
    let mut stream = server.raw();
    stream.write_all(&[command("HELLO 3"), command("SUBSCRIBE loaded")].concat()).expect("the server takes it");
    let (mut heard, mut room) = (Vec::new(), [0; 1_024]);
    // The last thing it says is how many channels there are.
    while !heard.ends_with(b"loaded\r\n:1\r\n") {
        let len = stream.read(&mut room).expect("the server replies");
        assert!(len > 0 && room[0] != b'-', "the server knows RESP3");
        heard.extend_from_slice(&room[..len]);
    }
    stream
}

/// Does what is to be done until the given moment, or until all have the value.
fn wait(followers: &mut [Follower], events: &Events, way: Way, room: &mut [u8], until: Instant) {
    loop {
        let now = Instant::now();
        if now >= until || followers.iter().all(|follower| follower.done_at.is_some()) {
            return;
        }
        let mut next = until;
        if way == Way::Polled {
            for follower in followers.iter_mut().filter(|follower| follower.done_at.is_none()) {
                if follower.awaits == Awaits::Nothing && follower.asks_at <= now {
                    follower.say(&command(ASK), Awaits::Got);
                } else if follower.awaits == Awaits::Nothing {
                    next = next.min(follower.asks_at);
                }
            }
        }
        events.each(next.saturating_duration_since(now), |number| followers[number].take(room));
    }
}

/// On which connections something has come.
struct Events(i32);

impl Events {
    fn of(followers: &[Follower]) -> Self {
        // SAFETY: the calls read what they are given, and the descriptors are open as long as the followers are.
        unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            assert!(epoll >= 0, "epoll");
            for (number, follower) in followers.iter().enumerate() {
                let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number as u64 };
                let added = libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, follower.stream.as_raw_fd(), &mut event);
                assert!(added == 0, "epoll");
            }
            Self(epoll)
        }
    }

    /// Waits for at most `time`, to the millisecond above.
    fn each(&self, time: Duration, mut one: impl FnMut(usize)) {
        let mut found = [libc::epoll_event { events: 0, u64: 0 }; FOLLOWERS];
        let ms = time.as_micros().div_ceil(1_000) as i32;
        // SAFETY: there is room for as many events as we say.
        let count = unsafe { libc::epoll_wait(self.0, found.as_mut_ptr(), FOLLOWERS as i32, ms) };
        for event in &found[..usize::try_from(count).unwrap_or(0)] {
            one(event.u64 as usize);
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: it is ours, and open.
        unsafe { libc::close(self.0) };
    }
}
