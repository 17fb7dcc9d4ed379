//! Ten thousand who wait for one key. All of them are connections of one thread: only their sockets are many.
//!
//! Files that may be open bound the crowd; where there are fewer than ten thousand, it says so.

use std::collections::VecDeque;
use std::fs;
use std::time::{Duration, Instant};

use resil_harness::{Options, Server, eventually};

use crate::kills::gauge;
use crate::talk::{Reply, Talk};

const CROWD: usize = 10_000;
const FEW: usize = 10;
/// Hand-overs that are measured.
const HANDED_ON: usize = 300;
const START_US: i64 = 1_800_000_000_000_000;

/// One crowd at a time: each takes most of the files this process may open, and most of the machine.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

struct Crowd {
    server: Server,
    talk: Talk,
    /// Who holds `k`, and who waits for it, in order.
    holder: String,
    waiting: VecDeque<(String, Talk)>,
}

/// How many connections this process can have, after raising its limit as far as it goes.
fn most_connections() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    let most = CROWD.min(limit.rlim_cur as usize - 500);
    if most < CROWD {
        eprintln!("crowd: {most} instead of {CROWD}: the limit of open files is {}", limit.rlim_cur);
    }
    most
}

impl Crowd {
    fn start() -> Self {
        most_connections();
        let server = Server::start(Options::default().config("maxclients", "15000").module_args(["test-clock", "yes"]));
        let talk = Talk::to(server.port()).expect("the server is there");
        talk.patience(Duration::from_secs(30)).expect("a socket");
        let holder = "first".to_owned();
        Self { server, talk, holder, waiting: VecDeque::new() }
    }

    /// `first` holds `k` and `number` connections wait for it when this returns, as `w0`, `w1` and so on.
    fn gather(&mut self, number: usize, mode: &str) {
        let before = self.waiters();
        assert_eq!(self.talk.say("RES.LOCK ACQUIRE k first 1h").verdict(), "GRANTED");
        for index in 0..number {
            let mut talk = Talk::to(self.server.port()).expect("another connection");
            talk.patience(Duration::from_secs(30)).expect("a socket");
            let owner = format!("w{index}");
            talk.send(&format!("RES.LOCK ACQUIRE k {owner} 1h WAIT 9m{mode}")).expect("the server reads");
            self.waiting.push_back((owner, talk));
        }
        let wanted = before + number as i64;
        eventually("all of them wait", Duration::from_secs(60), || self.waiters() == wanted);
    }

    fn waiters(&mut self) -> i64 {
        gauge(&mut self.talk, "resil_blocked_waiters")
    }

    fn used_memory(&mut self) -> i64 {
        gauge(&mut self.talk, "used_memory")
    }

    /// Microseconds of processor time the server has used.
    fn cpu_us(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.server.pid())).expect("Linux");
        text.split(' ').next().and_then(|text| text.parse::<u64>().ok()).expect("nanoseconds") / 1_000
    }

    /// How often a command was called, and the microseconds that took.
    fn command_us(&mut self, name: &str) -> (u64, u64) {
        let Reply::Text(stats) = self.talk.say("INFO commandstats") else { panic!("INFO is text") };
        let wanted = format!("cmdstat_{name}:").to_lowercase();
        let line = stats.lines().map(str::to_lowercase).find_map(|line| Some(line.strip_prefix(&wanted)?.to_owned()));
        let line = line.unwrap_or_else(|| panic!("{name} was called"));
        let number = |field: &str| {
            let value = line.split(',').find_map(|part| part.strip_prefix(field)?.strip_prefix('='));
            value.and_then(|value| value.parse().ok()).expect("a number")
        };
        (number("calls"), number("usec"))
    }

    /// Releases and passes on, `times` times; the median time from the release to the grant in the next one's hands, and
    /// the server's processor time, both of one hand-over in microseconds.
    fn hand_on(&mut self, times: usize) -> (u64, u64) {
        let mut took: Vec<u64> = Vec::new();
        let cpu = self.cpu_us();
        for _ in 0..times {
            let (owner, mut next) = self.waiting.pop_front().expect("somebody waits");
            let began = Instant::now();
            self.talk.send(&format!("RES.LOCK RELEASE k {}", self.holder)).expect("the server reads");
            assert_eq!(next.read().expect("answered").verdict(), "GRANTED");
            took.push(began.elapsed().as_micros() as u64);
            assert_eq!(self.talk.read().expect("answered").verdict(), "RELEASED");
            // The former holder stands at the end again.
            next.send(&format!("RES.LOCK ACQUIRE k {} 1h WAIT 9m", self.holder)).expect("the server reads");
            let former = std::mem::replace(&mut self.holder, owner);
            self.waiting.push_back((former, next));
        }
        let cpu = (self.cpu_us() - cpu) / times as u64;
        took.sort_unstable();
        (took[times / 2], cpu)
    }
}

#[test]
fn handing_on_costs_the_same_however_many_wait() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|error| error.into_inner());
    let measure = |number: usize| {
        let mut crowd = Crowd::start();
        crowd.gather(number, "");
        crowd.hand_on(FEW);
        let asked = crowd.command_us("RES.LOCK|RELEASE");
        // The quietest of three: others have this machine, too.
        let (us, cpu_us) = (0..3).map(|_| crowd.hand_on(HANDED_ON)).min().expect("three");
        let (calls, spent) = crowd.command_us("RES.LOCK|RELEASE");
        (us, cpu_us, (spent - asked.1) as f64 / (calls - asked.0) as f64)
    };
    let number = most_connections();
    let ((few_us, few_cpu, few_step), (many_us, many_cpu, many_step)) = (measure(FEW), measure(number));
    eprintln!(
        "crowd: a hand-over takes {few_us} us ({few_cpu} us of the server's processor, RELEASE itself {few_step:.1} us) with \
         {FEW} waiters, {many_us} us ({many_cpu} us, {many_step:.1} us) with {number}"
    );
    // Ten thousand connections are ten thousand cold places in memory: BLPOP pays for them, too.
    assert!(many_us <= few_us * 4 + 20, "{many_us} us with {number}, {few_us} us with {FEW}");
    assert!(many_step <= few_step * 4.0 + 5.0, "{many_step} us with {number}, {few_step} us with {FEW}");
}

#[test]
fn a_crowd_is_answered_once_and_leaves_no_memory_behind() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|error| error.into_inner());
    let number = most_connections() / 10 * 10;
    let mut crowd = Crowd::start();
    // The clock is held from the start, so that everybody's patience can end at the same moment.
    crowd.talk.say(&format!("RES._CLOCK {START_US}"));
    crowd.gather(number, "");
    let waiting = crowd.used_memory();

    // Half of them die, every other one.
    let mut left = Vec::new();
    for (index, (_, talk)) in std::mem::take(&mut crowd.waiting).into_iter().enumerate() {
        if index % 2 == 0 {
            talk.cut();
        } else {
            left.push(talk);
        }
    }
    let half = number as i64 / 2;
    eventually("half of them are gone", Duration::from_secs(10), || crowd.waiters() == half);

    // One by one: broken, released, deleted, flushed; each time exactly the next in the queue has it.
    let mut left = left.into_iter();
    for (index, line) in
        ["RES.LOCK BREAK k", "RES.LOCK RELEASE k w1", "DEL k", "FLUSHALL", "FLUSHDB ASYNC"].into_iter().enumerate()
    {
        crowd.talk.say(line);
        let mut next = left.next().expect("somebody waits");
        let granted = next.read().expect("answered");
        assert_eq!((granted.verdict(), granted.number(2)), ("GRANTED", 3_600_000), "after {line}");
        let holds = crowd.talk.say(&format!("RES.LOCK CHECK k w{}", 2 * index + 1));
        assert_eq!(holds, Reply::Number(1), "after {line}");
        assert_eq!(crowd.waiters(), half - 1 - index as i64);
    }

    // The rest: their patience ends, all at once, and everybody is answered.
    let mut left: Vec<Talk> = left.collect();
    let began = Instant::now();
    crowd.talk.say(&format!("RES._CLOCK {}", START_US + 599_000_000));
    for talk in &mut left {
        assert_eq!(talk.read().expect("answered").verdict(), "TIMEOUT");
    }
    eprintln!("crowd: {} time-outs at once took {} ms", left.len(), began.elapsed().as_millis());
    assert_eq!(crowd.waiters(), 0);
    for talk in &mut left {
        assert_eq!(talk.say("PING"), Reply::Text("PONG".into()), "answered once, and in step");
    }
    drop(left);
    crowd.talk.say("RES.LOCK BREAK k");
    crowd.talk.say("RES._CLOCK 0");
    eventually("they are gone", Duration::from_secs(20), || gauge(&mut crowd.talk, "connected_clients") == 1);
    // The server keeps two idle clients for each one that was blocked by a module, and frees fifty of them per tick.
    let gone = crowd.used_memory();
    let (least_freed, bound) =
        if std::env::var_os("RESIL_SOAK").is_some() { (gone - (6 << 20), 90) } else { (8 << 20, 10) };
    eventually("the memory comes back", Duration::from_secs(bound), || crowd.used_memory() <= gone - least_freed);
    let later = crowd.used_memory();
    let kib = |bytes: i64| bytes >> 10;
    eprintln!(
        "crowd: {} KiB while {number} waited, {} KiB when they were gone, {} KiB later",
        kib(waiting),
        kib(gone),
        kib(later)
    );
}

#[test]
fn the_server_replies_while_ten_thousand_readers_are_granted() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|error| error.into_inner());
    let number = most_connections();
    let mut crowd = Crowd::start();
    // The yardstick: as many clients of the server's own BLPOP, served by one call.
    let pushed = format!("RPUSH list{}", " x".repeat(number));
    let popping = (0..number).map(|_| {
        let mut talk = Talk::to(crowd.server.port()).expect("another connection");
        talk.patience(Duration::from_secs(30)).expect("a socket");
        talk.send("BLPOP list 0").expect("the server reads");
        talk
    });
    let mut popping: Vec<Talk> = popping.collect();
    eventually("all of them wait", Duration::from_secs(30), || {
        gauge(&mut crowd.talk, "blocked_clients") == number as i64
    });
    let (popped, _) = serve_all(&mut crowd.talk, crowd.server.port(), &pushed, popping.iter_mut());
    drop(popping);

    crowd.gather(number, " SHARED");
    let readers = crowd.waiting.iter_mut().map(|(_, talk)| talk);
    let (reported, ping) = serve_all(&mut crowd.talk, crowd.server.port(), "RES.LOCK RELEASE k first", readers);
    let (_, step_us) = crowd.command_us("RES.LOCK|RELEASE");
    let sent = Instant::now();
    assert_eq!(crowd.talk.say("RES.LOCK BREAK k"), Reply::Number(number as i64));
    eprintln!(
        "crowd: {number} readers were notified in {reported:?} (RELEASE itself {} ms), as many BLPOPs in {popped:?}; a PING meanwhile \
         took {ping:?}; breaking the readers took {:?}",
        step_us / 1_000,
        sent.elapsed()
    );
    assert!(ping < Duration::from_millis(100) || ping < popped * 4, "a PING took {ping:?}, all BLPOPs {popped:?}");
}

/// Says `line`, which serves everybody in `served`; how long that took, and how long a PING right after it.
fn serve_all<'t>(
    talk: &mut Talk,
    port: u16,
    line: &str,
    served: impl Iterator<Item = &'t mut Talk>,
) -> (Duration, Duration) {
    let mut other = Talk::to(port).expect("another connection");
    other.say("PING");
    let began = Instant::now();
    talk.send(line).expect("the server reads");
    std::thread::sleep(Duration::from_millis(1));
    let sent = Instant::now();
    other.say("PING");
    let ping = sent.elapsed();
    served.for_each(|talk| assert!(!matches!(talk.read().expect("answered"), Reply::Error(_) | Reply::Nil)));
    let reported = began.elapsed();
    talk.read().expect("answered");
    (reported, ping)
}
