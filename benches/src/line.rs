//! One connection that says a command and waits for its reply, however long.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use resil_harness::Server;

use crate::load::Reply;

pub struct Line {
    stream: BufReader<TcpStream>,
    line: Vec<u8>,
}

impl Line {
    pub fn to(server: &Server) -> Self {
        let stream = server.raw();
        // A waiter may wait longer than the harness thinks.
        stream.set_read_timeout(None).expect("a TCP socket");
        Self { stream: BufReader::with_capacity(256, stream), line: Vec::new() }
    }

    pub fn say(&mut self, command: &[u8]) {
        self.stream.get_mut().write_all(command).expect("the server takes what is sent");
    }

    /// Takes one reply. Whether it is the expected one; anything else than its two forms is a panic.
    pub fn hear(&mut self, expected: Reply) -> bool {
        for number in 0..expected.lines {
            self.line.clear();
            let len = self.stream.read_until(b'\n', &mut self.line).expect("the server replies");
            let text = String::from_utf8_lossy(&self.line);
            assert!(len > 0 && !text.starts_with('-'), "the server answered {:?}", text.trim_end());
            if number == expected.telling_line && !text.starts_with(expected.starts_with) {
                assert!(expected.lines == 1, "the server answered {:?}", text.trim_end());
                return false;
            }
        }
        true
    }

    pub fn ask(&mut self, command: &[u8], expected: Reply) -> bool {
        self.say(command);
        self.hear(expected)
    }
}

/// The words of a command as they are sent.
pub fn command(words: &str) -> Vec<u8> {
    let words: Vec<&str> = words.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_texts() {
        assert_eq!(command("GET key"), b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
    }
}
