//! One process of the fleet, in one of the languages.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;

use serde_json::Value as Json;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Rust,
    Python,
    Node,
}

pub const LANGUAGES: [Language; 3] = [Language::Rust, Language::Python, Language::Node];

pub struct Worker {
    pub language: Language,
    process: Child,
    input: ChildStdin,
}

impl Worker {
    /// Whatever it says goes to `heard`, with its number; nothing more, once it has ended.
    pub fn start(language: Language, url: &str, number: usize, heard: Sender<(usize, Json)>) -> Self {
        let mut command = command(language, "worker");
        let mut process = command
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("the worker in {language:?}, {command:?}: {error}"));
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let message =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{language:?}: {line}: {error}"));
                if heard.send((number, message)).is_err() {
                    return;
                }
            }
        });
        Self { language, process, input }
    }

    pub fn tell(&mut self, line: &Json) {
        writeln!(self.input, "{line}").and_then(|()| self.input.flush()).expect("the worker listens");
    }

    /// `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{name}");
    }

    /// As by kill -9: it cannot say goodbye to anybody.
    pub fn kill(&mut self) {
        self.process.kill().expect("a child of ours can be killed");
        self.process.wait().expect("a child of ours ends");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program called `name` in this language.
pub fn command(language: Language, name: &str) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2).expect("two folders below the workspace");
    match language {
        Language::Rust if name == "shop" => Command::new(env!("CARGO_BIN_EXE_polyglot-shop")),
        Language::Rust => Command::new(env!("CARGO_BIN_EXE_polyglot-worker")),
        Language::Python => {
            let program = there(root.join("sdk-python/.venv/bin/python"), "scripts/python env");
            there(root.join("sdk-python/python/resil/_native.abi3.so"), "scripts/python place");
            let mut command = Command::new(program);
            command.arg(here.join(format!("{name}.py")));
            command
        }
        Language::Node => {
            there(root.join("sdk-node/lib/resil.node"), "scripts/node place");
            let mut command = Command::new("node");
            command.arg(here.join(format!("{name}.mjs")));
            command
        }
    }
}

fn there(path: PathBuf, made_by: &str) -> PathBuf {
    assert!(path.exists(), "{} is not there: {made_by}", path.display());
    path
}
