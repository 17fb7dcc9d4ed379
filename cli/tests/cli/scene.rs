//! Running `resil`, with every wait bounded.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Nothing here takes longer.
pub const BOUND: Duration = Duration::from_secs(30);

pub fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_resil"))
}

/// `resil` with a clean environment.
pub fn resil(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).env("RESIL_URL", url).env("USER", "ann").stdin(Stdio::null());
    for name in ["RESIL_PASSWORD", "RESIL_PASSWORD_FILE", "RESIL_USER", "NO_COLOR"] {
        command.env_remove(name);
    }
    command
}

pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {} {}", self.out, self.err))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("what is printed is UTF-8")
}

/// Runs to the end, within [`BOUND`].
pub fn run(mut command: Command) -> Ran {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("resil starts");
    let Output { status, stdout, stderr } = finish(child);
    Ran { code: status.code().unwrap_or(-1), out: text(&stdout), err: text(&stderr) }
}

fn finish(child: Child) -> Output {
    let pid = child.id();
    let (sender, receiver) = channel();
    std::thread::spawn(move || drop(sender.send(child.wait_with_output())));
    match receiver.recv_timeout(BOUND) {
        Ok(output) => output.expect("resil ends"),
        Err(_) => {
            let _ = Command::new("kill").arg(pid.to_string()).status();
            panic!("resil did not end within {BOUND:?}");
        }
    }
}

/// One that has to succeed.
pub fn ok(url: &str, args: &[&str]) -> String {
    let ran = run(resil(url, args));
    assert_eq!(ran.code, 0, "resil {args:?}: {}{}", ran.out, ran.err);
    ran.out
}

pub fn json(url: &str, args: &[&str]) -> Value {
    let ran = run(resil(url, &[args, &["--json"]].concat()));
    assert_eq!(ran.code, 0, "resil {args:?}: {}{}", ran.out, ran.err);
    ran.json()
}

/// A process that goes on until it is dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("resil starts");
        let (sender, lines) = channel();
        let pipes: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("piped")), Box::new(child.stderr.take().expect("piped"))];
        for pipe in pipes {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Self { child, lines }
    }

    /// The next line that holds `wanted`, of either stream.
    pub fn line(&self, wanted: &str) -> String {
        let (until, mut seen) = (Instant::now() + BOUND, Vec::new());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(wanted) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("no line with {wanted:?} came; there were {seen:#?}"),
            }
        }
    }

    /// `TERM`, `INT`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{name}");
    }

    /// Its exit code, once it has ended.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten().map(|status| status.code().unwrap_or(-1))
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
