//! A client that costs little beside the server: pipelines are built before the clock starts, and of the replies
//! only the lines are found and the telling one compared.
//!
//! A few connections take turns, each with one pipeline under way, so that the server always has the next one waiting
//! when it is done with this one.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::load::{Batches, Call, Reply};

/// With two or more the server never waits for us; more only lengthen its queue.
pub const CONNECTIONS: usize = 4;

pub struct Client {
    connections: Vec<TcpStream>,
    received: Vec<u8>,
    chunk: Box<[u8]>,
}

impl Client {
    pub fn new(connect: impl Fn() -> TcpStream) -> Self {
        let connections = (0..CONNECTIONS).map(|_| connect()).collect();
        Self { connections, received: Vec::new(), chunk: vec![0; 1 << 18].into_boxed_slice() }
    }

    /// Sends everything and takes every reply. Panics on one that is not as the call says.
    pub fn run(&mut self, batches: &Batches, call: &Call) {
        let tells = tells_of(&call.replies);
        let mut awaited = [0; CONNECTIONS];
        for (index, (bytes, calls)) in batches.iter().enumerate() {
            let turn = index % CONNECTIONS;
            if awaited[turn] > 0 {
                self.receive(turn, awaited[turn], &tells);
            }
            self.connections[turn].write_all(bytes).expect("the server takes what is sent");
            awaited[turn] = calls;
        }
        for (turn, calls) in awaited.into_iter().enumerate() {
            if calls > 0 {
                self.receive(turn, calls, &tells);
            }
        }
    }

    /// The same on one connection, without a pipeline: `batches` has one call in each, and each of its commands is sent
    /// when the one before is answered.
    pub fn run_one_by_one(&mut self, batches: &Batches, call: &Call) {
        let tells: Vec<_> = call.replies.iter().map(|reply| tells_of(&[*reply])).collect();
        for (bytes, _) in batches.iter() {
            let mut start = 0;
            for (end, tells) in call.ends.iter().zip(&tells) {
                self.connections[0].write_all(&bytes[start..*end]).expect("the server takes what is sent");
                self.receive(0, 1, tells);
                start = *end;
            }
        }
    }

    fn receive(&mut self, turn: usize, times: usize, tells: &[Option<&str>]) {
        self.received.clear();
        let mut lines_missing = times * tells.len();
        while lines_missing > 0 {
            let len = self.connections[turn].read(&mut self.chunk).expect("the server replies");
            assert!(len > 0, "the server closed the connection");
            let chunk = &self.chunk[..len];
            self.received.extend_from_slice(chunk);
            let lines = chunk.iter().filter(|byte| **byte == b'\n').count();
            if let Some(error) = error_line(&self.received) {
                panic!("the server answered {error}");
            }
            lines_missing = lines_missing.checked_sub(lines).expect("no more lines than the replies have");
        }
        check(&self.received, tells);
    }
}

/// For each line of the replies, one after the other, how it must start if it is a telling one.
fn tells_of(replies: &[Reply]) -> Vec<Option<&'static str>> {
    let lines_of = |reply: &Reply| {
        let Reply { lines, telling_line, starts_with } = *reply;
        (0..lines).map(move |line| (line == telling_line).then_some(starts_with))
    };
    replies.iter().flat_map(lines_of).collect()
}

/// An error reply is one line, whatever was expected: without this look we would wait for the rest.
fn error_line(received: &[u8]) -> Option<String> {
    let start =
        if received.first() == Some(&b'-') { 0 } else { received.windows(2).position(|pair| pair == b"\n-")? + 1 };
    let line = received[start..].split(|byte| *byte == b'\r').next().unwrap_or_default();
    Some(String::from_utf8_lossy(line).into_owned())
}

fn check(received: &[u8], tells: &[Option<&str>]) {
    let lines = received.split_inclusive(|byte| *byte == b'\n');
    for (line, tell) in lines.zip(tells.iter().cycle()) {
        if let Some(starts_with) = tell.filter(|start| !line.starts_with(start.as_bytes())) {
            let line = String::from_utf8_lossy(line);
            panic!("a reply has {:?} where {:?} was expected", line.trim_end(), starts_with.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reply_is_seen_wherever_it_stands() {
        assert_eq!(error_line(b"-ERR no\r\n").as_deref(), Some("-ERR no"));
        assert_eq!(error_line(b":1\r\n-ERR no\r\n:2\r\n").as_deref(), Some("-ERR no"));
        assert_eq!(error_line(b"*1\r\n:-1\r\n"), None);
    }

    #[test]
    fn replies_of_the_expected_shape_pass() {
        check(b"*2\r\n:1\r\n:7\r\n*2\r\n:1\r\n:6\r\n", &tells_of(&[Reply::array(3, ":1\r")]));
        check(b"+OK\r\n:1\r\n+OK\r\n:1\r\n", &tells_of(&[Reply::line("+OK"), Reply::line(":1\r")]));
    }

    #[test]
    #[should_panic(expected = "\":0\" where \":1\" was expected")]
    fn another_verdict_does_not() {
        check(b"*2\r\n:1\r\n:7\r\n*2\r\n:0\r\n:6\r\n", &tells_of(&[Reply::array(3, ":1\r")]));
    }
}
