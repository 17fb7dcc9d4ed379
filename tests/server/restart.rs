//! A server goes down and comes up: every limit is as it was, and the time it was down counts as time.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use redis::Connection;
use resil_harness::{Options, Server};

use crate::driven::{SECOND_US, START_US, driven, info, numbers, say, set_clock, start_driven, wait_for_rewrite};
use crate::samples::{assert_all_live_on, fill_all};

fn with_file() -> Options {
    driven().config("appendonly", "yes").config("appendfsync", "always")
}

fn rewrite_file(connection: &mut Connection) {
    say(connection, "BGREWRITEAOF");
    wait_for_rewrite(connection);
}

/// Everything in the append-only folder, the manifest too.
fn file_bytes(server: &Server) -> Vec<u8> {
    let folder = fs::read_dir(server.dir().join("appendonlydir")).expect("the folder of the append-only file");
    folder.flat_map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text.as_bytes()))
}

#[test]
fn every_kind_of_limit_survives_a_saving_restart() {
    let (mut server, mut connection) = start_driven();
    let samples = fill_all(&mut connection);
    server.restart_after_save();
    assert_all_live_on(&mut server.connect(), &samples);
}

#[test]
fn every_kind_of_limit_survives_debug_reload() {
    let (_server, mut connection) = start_driven();
    let samples = fill_all(&mut connection);
    say(&mut connection, "DEBUG RELOAD");
    assert_all_live_on(&mut connection, &samples);
}

#[test]
fn a_kill_loses_nothing_the_append_only_file_has() {
    let mut server = Server::start(with_file());
    let samples = fill_all(&mut server.connect());
    server.restart_after_kill();
    assert_all_live_on(&mut server.connect(), &samples);
}

#[test]
fn a_file_of_commands_only_brings_every_kind_back() {
    let mut server = Server::start(with_file().config("aof-use-rdb-preamble", "no"));
    let samples = fill_all(&mut server.connect());
    let bytes = file_bytes(&server);
    assert!(contains(&bytes, "RES._APPLY"), "changes travel resolved");
    assert!(!contains(&bytes, "RES.GCRA") && !contains(&bytes, "RES.WINDOW") && !contains(&bytes, "CL.THROTTLE"));
    server.restart_after_kill();
    assert_all_live_on(&mut server.connect(), &samples);
}

#[test]
fn a_rewritten_file_of_commands_brings_every_kind_back() {
    let mut server = Server::start(with_file().config("aof-use-rdb-preamble", "no"));
    let samples = fill_all(&mut server.connect());
    rewrite_file(&mut server.connect());
    let bytes = file_bytes(&server);
    assert!(contains(&bytes, "RES._APPLY") && !contains(&bytes, "REDIS0"), "the rewritten file is made of commands");
    server.restart_after_kill();
    assert_all_live_on(&mut server.connect(), &samples);
}

#[test]
fn a_rewritten_file_with_preamble_brings_every_kind_back() {
    let mut server = Server::start(with_file().config("aof-use-rdb-preamble", "yes"));
    let samples = fill_all(&mut server.connect());
    rewrite_file(&mut server.connect());
    assert!(!contains(&file_bytes(&server), "RES._APPLY"), "the rewritten file begins with a snapshot");
    server.restart_after_kill();
    assert_all_live_on(&mut server.connect(), &samples);
}

#[test]
fn changes_after_a_rewrite_add_to_it() {
    let mut server = Server::start(with_file());
    let mut connection = server.connect();
    set_clock(&mut connection, START_US);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s COST 4")[2], 6);
    assert_eq!(numbers(&mut connection, "RES.WINDOW w 10 60s COST 4")[2], 6);
    rewrite_file(&mut connection);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s COST 3")[2], 3);
    set_clock(&mut connection, START_US + SECOND_US);
    assert_eq!(numbers(&mut connection, "RES.WINDOW w 10 60s COST 3")[2], 3);
    server.restart_after_kill();
    let mut connection = server.connect();
    set_clock(&mut connection, START_US + SECOND_US);
    assert_eq!(numbers(&mut connection, "RES.WINDOW.PEEK w 10 60s")[2], 3);
    set_clock(&mut connection, START_US);
    assert_eq!(numbers(&mut connection, "RES.GCRA.PEEK g 10 60s")[2], 3);
}

/// Takes 60 of 60 per minute, is down for twenty seconds, and finds 20 of them back.
fn twenty_seconds_down(options: Options, restart: impl FnOnce(&mut Server)) {
    let mut server = Server::start(options);
    let mut connection = server.connect();
    set_clock(&mut connection, START_US);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 60 60s COST 60"), [60, 60, 0, 0, 60_000]);
    assert_eq!(numbers(&mut connection, "RES.WINDOW w 60 60s COST 60"), [60, 60, 0, 0, 60_000]);
    restart(&mut server);
    let mut connection = server.connect();
    set_clock(&mut connection, START_US + 20 * SECOND_US);
    assert_eq!(numbers(&mut connection, "RES.GCRA.PEEK g 60 60s"), [20, 60, 20, 0, 40_000]);
    assert_eq!(numbers(&mut connection, "RES.WINDOW.PEEK w 60 60s"), [0, 60, 0, 40_000, 40_000]);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 60 60s COST 20"), [20, 60, 0, 0, 60_000]);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 60 60s"), [0, 60, 0, 1_000, 60_000]);
}

#[test]
fn time_spent_down_refills_a_bucket_that_was_saved() {
    twenty_seconds_down(driven(), Server::restart_after_save);
}

#[test]
fn time_spent_down_refills_a_files_bucket() {
    twenty_seconds_down(with_file().config("aof-use-rdb-preamble", "no"), Server::restart_after_kill);
}

#[test]
fn a_key_given_back_full_stays_gone() {
    let mut server = Server::start(with_file());
    let mut connection = server.connect();
    set_clock(&mut connection, START_US);
    numbers(&mut connection, "RES.GCRA g 10 60s COST 4");
    numbers(&mut connection, "RES.GCRA g 10 60s REFUND 4");
    assert_eq!(info(&mut connection, "resil", "resil_gcra_keys"), "0");
    server.restart_after_kill();
    assert_eq!(say(&mut server.connect(), "DBSIZE"), redis::Value::Int(0));
}

/// The file that changes are appended to.
fn growing_file(server: &Server) -> PathBuf {
    let folder = fs::read_dir(server.dir().join("appendonlydir")).expect("the folder of the append-only file");
    let growing = folder.map(|entry| entry.unwrap().path()).find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    growing.expect("a file of changes")
}

#[test]
fn a_torn_file_loses_only_its_last_change() {
    let mut server = Server::start(with_file());
    let mut connection = server.connect();
    set_clock(&mut connection, START_US);
    numbers(&mut connection, "RES.GCRA g 10 60s COST 4");
    numbers(&mut connection, "RES.WINDOW w 10 60s COST 4");
    numbers(&mut connection, "RES.GCRA g 10 60s COST 3");
    server.kill9();
    let file = fs::OpenOptions::new().write(true).open(growing_file(&server)).unwrap();
    file.set_len(file.metadata().unwrap().len() - 5).unwrap();
    server.start_again();
    let mut connection = server.connect();
    set_clock(&mut connection, START_US);
    assert_eq!(numbers(&mut connection, "RES.GCRA.PEEK g 10 60s")[0], 6);
    assert_eq!(numbers(&mut connection, "RES.WINDOW.PEEK w 10 60s")[0], 6);
}

#[test]
fn changes_of_later_versions_are_skipped_logged_and_counted() {
    let mut server = Server::start(with_file());
    let mut connection = server.connect();
    set_clock(&mut connection, START_US);
    numbers(&mut connection, "RES.GCRA g 10 60s COST 4");
    server.kill9();
    let of_the_future = redis::cmd("RES._APPLY").arg("h").arg(99).arg("bytes").get_packed_command();
    let malformed = redis::cmd("RES._APPLY").arg("i").arg(1).arg("bytes").get_packed_command();
    let file = fs::OpenOptions::new().append(true).open(growing_file(&server));
    file.unwrap().write_all(&[of_the_future, malformed].concat()).unwrap();
    server.start_again();
    let mut connection = server.connect();
    assert_eq!(info(&mut connection, "resil", "resil_apply_unknown_version"), "1");
    assert_eq!(info(&mut connection, "resil", "resil_apply_refused"), "1");
    assert!(server.log().contains("version 99"), "an operator must learn of it");
    assert_eq!(say(&mut connection, "DBSIZE"), redis::Value::Int(1), "the rest is there");
}
