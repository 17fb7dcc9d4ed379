//! Large values: a thousand followers get a megabyte each, and the server never holds a thousand of them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use resil_harness::{Options, Server, ok};

use crate::driven::Say;
use crate::scene::Caller;
use crate::seed;
use crate::talk::{all_wait, ask};

const MB: usize = 1 << 20;

fn joined(server: &Server, token: &str) -> TcpStream {
    let mut socket = server.raw();
    socket.write_all(format!("RES.SFLIGHT JOIN k {token} 1h WAIT 120s\r\n").as_bytes()).expect("it takes it");
    socket
}

/// Bytes without a pattern that a mixed-up reply could share.
fn bytes(len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(7);
    (0..len).map(|_| rng.u8(..)).collect()
}

fn reply_with(value: &[u8]) -> Vec<u8> {
    let head = format!("*4\r\n$5\r\nVALUE\r\n${}\r\n", value.len());
    [head.as_bytes(), value, b"\r\n:0\r\n:3600000\r\n"].concat()
}

/// Reads from all of them as bytes arrive, each of which must be those of `wanted`. True if all came within `bound`.
fn all_read(sockets: &mut [TcpStream], wanted: &[u8], bound: Duration) -> bool {
    let deadline = Instant::now() + bound;
    let mut taken = vec![0; sockets.len()];
    let mut buffer = vec![0; 256 << 10];
    sockets.iter().for_each(|socket| socket.set_nonblocking(true).expect("a socket"));
    while taken.iter().any(|taken| *taken < wanted.len()) {
        if Instant::now() > deadline {
            return false;
        }
        let mut polled: Vec<libc::pollfd> = sockets
            .iter()
            .map(|socket| libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        // SAFETY: the array lives over the call, and its length is given.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 100) };
        for (index, _) in polled.iter().enumerate().filter(|(_, polled)| polled.revents != 0) {
            match sockets[index].read(&mut buffer) {
                Ok(0) => panic!("follower {index} was hung up on after {} bytes", taken[index]),
                Ok(len) => {
                    let expected = wanted.get(taken[index]..taken[index] + len);
                    assert!(expected == Some(&buffer[..len]), "follower {index} got other bytes at {}", taken[index]);
                    taken[index] += len;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("follower {index}: {error}"),
            }
        }
    }
    true
}

fn publish(server: &Server, value: &[u8]) -> String {
    let words: [&[u8]; 7] = [b"RES.SFLIGHT", b"PUBLISH", b"k", b"leader", b"1h", b"VALUE", value];
    crate::scene::shown(&ok(&mut server.connect(), &words))
}

/// The most the server used, and the longest a PING took.
fn watched(server: &Server, done: &AtomicBool) -> (i64, Duration) {
    let mut connection = server.connect();
    let (mut peak, mut slowest) = (0, Duration::ZERO);
    while !done.load(SeqCst) {
        peak = peak.max(connection.info_number("memory", "used_memory"));
        let asked = Instant::now();
        connection.say("PING");
        slowest = slowest.max(asked.elapsed());
    }
    (peak, slowest)
}

/// The most memory the process ever had resident, in bytes, where the system tells. INFO cannot: a slice is written and
/// handed to the sockets before the server replies anybody.
fn resident_peak(server: &Server) -> Option<i64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<i64>().ok().map(|kb| kb << 10)
}

/// `resident`: how much more memory the process may ever have had.
fn a_thousand_megabytes(budget: usize, resident_most: usize) {
    let server = Server::fresh();
    let mut connection = server.connect();
    connection.say(&format!("CONFIG SET resil.wake-budget {budget}"));
    ask(&mut connection, "RES.SFLIGHT JOIN k leader 1h");
    let mut followers: Vec<TcpStream> = (0..1_000).map(|index| joined(&server, &format!("f{index}"))).collect();
    all_wait(&mut connection, 1_000);
    let before = connection.info_number("memory", "used_memory");
    let resident_before = resident_peak(&server);
    let (value, done) = (bytes(MB), AtomicBool::new(false));
    let wanted = reply_with(&value);
    let begun = Instant::now();
    let (peak, slowest) = thread::scope(|scope| {
        let watch = scope.spawn(|| watched(&server, &done));
        let read = scope.spawn(|| all_read(&mut followers, &wanted, Duration::from_secs(30)));
        assert_eq!(publish(&server, &value), "[PUBLISHED 1000]");
        let all = read.join();
        done.store(true, SeqCst);
        assert!(all.expect("a reader that did not panic"), "all get it in time");
        watch.join().expect("a watch")
    });
    let (passed, more) = (begun.elapsed(), peak - before);
    let resident = resident_peak(&server).zip(resident_before).map_or(0, |(after, before)| after - before);
    seed::say(&format!(
        "1 MB to 1,000 followers, wake-budget {} MB: {passed:?}, used_memory at most {:.1} MB more, resident {:.1} MB, \
         the slowest PING {slowest:?}",
        budget / MB,
        more as f64 / MB as f64,
        resident as f64 / MB as f64
    ));
    assert!(resident < resident_most as i64, "{resident} bytes");
    assert!(more < (budget + 24 * MB) as i64, "{more} bytes");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    assert_eq!(connection.info_number("resil", "blocked_waiters"), 0);
}

#[test]
fn a_thousand_followers_get_a_megabyte_each_within_the_budget() {
    a_thousand_megabytes(64 * MB, 2 * 64 * MB + 32 * MB);
}

#[test]
fn a_thousand_followers_get_a_megabyte_each_in_budget() {
    a_thousand_megabytes(8 * MB, 2 * 8 * MB + 32 * MB);
}

#[test]
fn replies_under_way_never_take_more_than_the_budget() {
    a_thousand_megabytes(64 * MB, 64 * MB + 32 * MB);
}

#[test]
fn two_hundred_duplicates_get_a_megabyte_of_result_each() {
    let server = Server::fresh();
    let mut connection = server.connect();
    connection.say(&format!("CONFIG SET resil.wake-budget {}", 8 * MB));
    ask(&mut connection, "RES.IDEMP BEGIN k runner 1h");
    let mut waiters: Vec<TcpStream> = (0..200)
        .map(|index| {
            let mut socket = server.raw();
            socket.write_all(format!("RES.IDEMP BEGIN k w{index} 1h WAIT 120s\r\n").as_bytes()).expect("it takes it");
            socket
        })
        .collect();
    all_wait(&mut connection, 200);
    let before = connection.info_number("memory", "used_memory");
    let (value, done) = (bytes(MB), AtomicBool::new(false));
    let head = format!("*4\r\n$6\r\nREPLAY\r\n$2\r\nok\r\n${MB}\r\n");
    let wanted = [head.as_bytes(), &value, b"\r\n:0\r\n"].concat();
    let (peak, _) = thread::scope(|scope| {
        let watch = scope.spawn(|| watched(&server, &done));
        let read = scope.spawn(|| all_read(&mut waiters, &wanted, Duration::from_secs(30)));
        let words: [&[u8]; 6] = [b"RES.IDEMP", b"COMMIT", b"k", b"runner", b"1h", &value];
        assert_eq!(crate::scene::shown(&ok(&mut server.connect(), &words)), "[COMMITTED stored]");
        let all = read.join();
        done.store(true, SeqCst);
        assert!(all.expect("a reader that did not panic"), "all get it in time");
        watch.join().expect("a watch")
    });
    assert!(peak - before < (32 * MB) as i64, "{} bytes", peak - before);
}

/// Two followers that never read, before twenty that do; more than the kernel's own buffers take.
fn with_slow_readers() -> (Server, Vec<TcpStream>, Vec<TcpStream>, Vec<u8>) {
    let server = Server::start(Options::default().module_args(["wake-budget", &(8 * MB).to_string()]));
    let mut connection = server.connect();
    ask(&mut connection, "RES.SFLIGHT JOIN k leader 1h");
    let slow: Vec<TcpStream> = (0..2)
        .map(|index| {
            let socket = joined(&server, &format!("slow{index}"));
            all_wait(&mut connection, index + 1);
            socket
        })
        .collect();
    let quick: Vec<TcpStream> = (0..20).map(|index| joined(&server, &format!("quick{index}"))).collect();
    all_wait(&mut connection, 22);
    (server, slow, quick, bytes(12 * MB))
}

#[test]
fn slow_readers_do_not_block_others_for_ever() {
    let (server, slow, mut quick, value) = with_slow_readers();
    assert_eq!(publish(&server, &value), "[PUBLISHED 22]");
    assert!(all_read(&mut quick, &reply_with(&value), Duration::from_secs(10)), "the others are answered");
    drop(slow);
}

#[test]
fn slow_readers_do_not_delay_other_keys() {
    let (server, slow, quick, value) = with_slow_readers();
    let mut connection = server.connect();
    ask(&mut connection, "RES.LOCK ACQUIRE lock a 1h");
    ask(&mut connection, "RES.IDEMP BEGIN other a 1h");
    assert_eq!(publish(&server, &value), "[PUBLISHED 22]");
    let begun = Instant::now();
    for (line, wanted) in
        [("RES.LOCK ACQUIRE lock b 1h WAIT 200ms", "[TIMEOUT "), ("RES.IDEMP BEGIN other b 1h WAIT 200ms", "[BUSY ")]
    {
        let mut caller = Caller::new(&server);
        caller.send(line);
        let reported = caller.reply();
        assert!(reported.starts_with(wanted), "{line}: {reported} after {:?}", begun.elapsed());
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    drop((slow, quick));
}

/// Those whose reply is put off are still waiting clients: they may close, be killed or be unblocked.
#[test]
fn followers_whose_reply_is_put_off_may_leave() {
    let (server, slow, quick, value) = with_slow_readers();
    let mut connection = server.connect();
    let mut patient = Caller::new(&server);
    patient.send("RES.SFLIGHT JOIN k patient 1h WAIT 120s");
    all_wait(&mut connection, 23);
    assert_eq!(publish(&server, &value), "[PUBLISHED 23]");
    let put_off = connection.info_number("resil", "blocked_waiters");
    assert!((20..23).contains(&put_off), "{put_off}");
    assert_eq!(connection.integer(&format!("CLIENT UNBLOCK {}", patient.id)), 1);
    let reported = patient.verdict();
    assert!(reported == "BUSY" || reported == "VALUE", "{reported}");
    patient.is_in_step();
    drop((slow, quick));
    all_wait(&mut connection, 0);
    assert_eq!(connection.info_number("resil", "internal_errors"), 0);
    assert!(ask(&mut connection, "RES.SFLIGHT INVALIDATE k") == "1");
}

#[test]
fn an_output_limit_closes_slow_readers_only() {
    let (server, slow, mut quick, value) = with_slow_readers();
    ok(&mut server.connect(), &["CONFIG", "SET", "client-output-buffer-limit", "normal 0 1mb 1"]);
    assert_eq!(publish(&server, &value), "[PUBLISHED 22]");
    assert!(all_read(&mut quick, &reply_with(&value), Duration::from_secs(25)));
    drop(slow);
}

#[test]
fn when_slow_readers_leave_the_others_have_it() {
    let (server, slow, mut quick, value) = with_slow_readers();
    assert_eq!(publish(&server, &value), "[PUBLISHED 22]");
    drop(slow);
    assert!(all_read(&mut quick, &reply_with(&value), Duration::from_secs(20)));
}
