//! The payment story in languages that have no SDK: each program of `examples/raw` runs where its language is installed.

use std::path::Path;
use std::process::Command;

use resil_harness::{Options, Server};

use crate::seed::say;

fn is_installed(program: &str, version: &str) -> bool {
    Command::new(program).arg(version).output().is_ok_and(|output| output.status.success())
}

/// Runs the program in its folder against a server; it pays at the third attempt.
fn plays(language: &str, needs: &[(&str, &str)], words: &[&str]) {
    if let Some((program, _)) = needs.iter().find(|(program, version)| !is_installed(program, version)) {
        return say(&format!("{language} is left out: {program} is not installed"));
    }
    let server = Server::start(Options::default());
    let port = server.port().to_string();
    let words: Vec<String> = words.iter().map(|word| word.replace("PORT", &port)).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/raw").join(language);
    let output = Command::new(&words[0]).args(&words[1..]).current_dir(folder).output().expect("it can be run");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{language}: {out}{err}");
    assert!(out.contains("paid at attempt 3"), "{language}: {out}{err}");
}

#[test]
fn bash_pays_with_two_commands() {
    plays("bash", &[("bash", "--version"), ("redis-cli", "--version")], &["bash", "payments.sh", "PORT"]);
}

#[test]
fn go_pays_with_two_commands() {
    plays("go", &[("go", "version")], &["go", "run", ".", "PORT"]);
}

#[test]
fn java_pays_with_two_commands() {
    let run = ["mvn", "-q", "-B", "compile", "exec:java", "-Dexec.args=PORT"];
    plays("java", &[("java", "-version"), ("mvn", "--version")], &run);
}
