//! A client that is a process of its own: the server's command line client, fed line by line. It can be killed and
//! stopped like any other.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use resil_harness::Server;

pub struct Client {
    process: Child,
    words: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Client {
    pub fn of(server: &Server) -> Self {
        let program = server.flavor().program().with_file_name("cli");
        let mut process = Command::new(&program)
            .args(["-p", &server.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let words = process.stdin.take().expect("it is piped");
        let lines = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut client = Self { process, words, lines };
        client.says("PING");
        assert_eq!(client.hears(), "PONG");
        client
    }

    pub fn says(&mut self, line: &str) {
        writeln!(self.words, "{line}").and_then(|()| self.words.flush()).expect("the client reads");
    }

    /// One line of its output. What is not a terminal gets one line per element of a reply.
    pub fn hears(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("the client writes");
        line.trim_end().to_owned()
    }

    /// `STOP`, `CONT` or `KILL`.
    pub fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -s {name} {id}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
