//! What the `serve` program promises to tests in other languages. No module needed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use resil_harness::eventually;

const SOON: Duration = Duration::from_secs(20);

fn serve(args: &[&str]) -> (Child, String) {
    serve_in(&std::env::temp_dir(), args)
}

fn serve_in(folder_for_folders: &Path, args: &[&str]) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_serve"))
        .arg("--without-module")
        .args(args)
        .env("TMPDIR", folder_for_folders)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

/// All numbers of one field, in the order of the line.
fn numbers(line: &str, field: &str) -> Vec<u32> {
    let key = format!("\"{field}\":");
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    line.split(&key).skip(1).map(|rest| digits(rest).parse().unwrap()).collect()
}

/// A dead process that nobody collected is as good as gone: in a container there may be no one to do it.
fn process_exists(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|text| !text.contains(") Z "))
}

fn send(child: &Child, signal: i32) {
    // SAFETY: kill takes two integers, and the child is not reaped yet.
    unsafe { libc::kill(i32::try_from(child.id()).unwrap(), signal) };
}

#[test]
fn one_line_says_where_the_server_is() {
    let (mut child, line) = serve(&[]);
    let (port, pid) = (numbers(&line, "port")[0], numbers(&line, "pid")[0]);
    assert_eq!(line, format!("{{\"port\":{port},\"pid\":{pid},\"url\":\"redis://127.0.0.1:{port}/\"}}\n"));
    let mut connection = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap().get_connection().unwrap();
    let answer: String = redis::cmd("PING").query(&mut connection).unwrap();
    assert_eq!(answer, "PONG");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!process_exists(pid), "the server outlived its input");
}

#[test]
fn a_replica_comes_along_when_asked_for() {
    let (mut child, line) = serve(&["--replica"]);
    let pids = numbers(&line, "pid");
    assert_eq!(pids.len(), 2, "{line}");
    send(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
    assert!(!pids.into_iter().any(process_exists), "a server outlived SIGTERM");
}

#[test]
fn the_server_dies_with_a_killed_parent() {
    // A killed parent cannot remove the server's folder.
    let left_behind = tempfile::tempdir().unwrap();
    let (mut child, line) = serve_in(left_behind.path(), &[]);
    let pid = numbers(&line, "pid")[0];
    assert!(process_exists(pid));
    send(&child, libc::SIGKILL);
    child.wait().unwrap();
    eventually("the orphaned server is gone", SOON, || !process_exists(pid));
}

#[test]
fn a_wrong_option_is_refused_by_name() {
    let output = Command::new(env!("CARGO_BIN_EXE_serve")).arg("--bogus").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--bogus"));
}
