//! A primary that says whatever it is asked to: it replies to a replica's handshake with an empty data set and then streams
//! commands of our choosing, as a primary of another version, another make, or an intruder would.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use resil_harness::{Server, eventually};

use super::payload::crc64;
use super::resp::{Client, Words, encode, words};
use super::server_state::{info_field, must};

/// A replica retries once a second; everything else takes milliseconds.
const HANDSHAKE_BOUND: Duration = Duration::from_secs(20);
const APPLY_BOUND: Duration = Duration::from_secs(60);

/// The link to one replica.
pub struct FakePrimary {
    stream: TcpStream,
    /// Bytes of commands sent: the replication offset.
    sent: u64,
}

impl FakePrimary {
    /// Makes `replica` follow us, and hands over an empty data set.
    pub fn of(replica: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a bound listener").port();
        must(&mut Client::new(replica), &format!("REPLICAOF 127.0.0.1 {port}"));
        let mut primary = Self { stream: accept(&listener), sent: 0 };
        primary.hand_over();
        primary.drain_acknowledgements();
        primary.send(&[words(["SELECT", "0"])]);
        primary
    }

    /// Streams calls to the replica.
    pub fn send(&mut self, calls: &[Words]) {
        let mut bytes = Vec::new();
        for call in calls {
            encode(call, &mut bytes);
        }
        self.send_raw(&bytes);
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the replica keeps the link");
        self.sent += bytes.len() as u64;
    }

    /// Waits until the replica has executed all that was sent.
    pub fn wait_until_applied(&self, replica: &Server) {
        let mut client = Client::new(replica);
        eventually("the replica has executed the whole stream", APPLY_BOUND, || {
            let offset = info_field(&mut client, "replication", "slave_repl_offset");
            offset.parse::<u64>().is_ok_and(|offset| offset >= self.sent)
        });
        assert_eq!(info_field(&mut client, "replication", "master_link_status"), "up", "the replica kept the link");
    }

    /// The replica introduces itself line by line until it asks for the data set.
    fn hand_over(&mut self) {
        let mut reader = BufReader::new(self.stream.try_clone().expect("a socket can be cloned"));
        loop {
            let call = read_call(&mut reader);
            let reply = match call[0].to_ascii_uppercase().as_str() {
                "PING" => "+PONG\r\n",
                "PSYNC" => break,
                _ => "+OK\r\n",
            };
            self.stream.write_all(reply.as_bytes()).expect("the replica listens");
        }
        let id = "0123456789abcdef0123456789abcdef01234567";
        let data_set = empty_rdb();
        let head = format!("+FULLRESYNC {id} 0\r\n${}\r\n", data_set.len());
        self.stream.write_all(&[head.as_bytes(), &data_set].concat()).expect("the replica listens");
    }

    /// A replica says once a second how far it is; unread, that would fill its socket in a long run.
    fn drain_acknowledgements(&self) {
        let mut stream = self.stream.try_clone().expect("a socket can be cloned");
        stream.set_read_timeout(None).expect("no bound is allowed");
        // Ends with the link.
        std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
    }
}

impl Drop for FakePrimary {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("a listener");
    let mut accepted = None;
    eventually("the replica calls", HANDSHAKE_BOUND, || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.expect("it called");
    stream.set_nonblocking(false).expect("a socket");
    stream.set_nodelay(true).expect("a TCP socket");
    stream.set_read_timeout(Some(HANDSHAKE_BOUND)).expect("a bound that is not zero");
    stream
}

/// A call of text arguments, as a handshake has them.
fn read_call(reader: &mut impl BufRead) -> Vec<String> {
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).expect("the replica speaks");
        line.trim_end().to_owned()
    };
    let count: usize = line().trim_start_matches('*').parse().expect("the number of arguments");
    (0..count).map(|_| (line(), line()).1).collect()
}

/// A file of RDB version 9, which every server reads, with nothing in it.
fn empty_rdb() -> Vec<u8> {
    let mut bytes = b"REDIS0009\xff".to_vec();
    bytes.extend_from_slice(&crc64(&bytes).to_le_bytes());
    bytes
}
