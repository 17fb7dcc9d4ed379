//! The ACL rules of docs/access.md, run as they stand there.

use redis::Connection;
use resil_harness::{Options, Server};

use crate::driven::{outcome, refusal, say};

const PAGE: &str = include_str!("../../docs/access.md");

/// What only an operator may do.
const DANGEROUS: [&str; 4] = [
    "RES.BREAKER FORCE resil:breaker:{b} OPEN",
    "RES.BREAKER CONFIG resil:breaker:{b} RATE 50",
    "RES.BREAKER RESET resil:breaker:{b}",
    "RES.LOCK BREAK resil:lock:{l}",
];

const WORK: [&str; 15] = [
    "SELECT 1",
    "SELECT 0",
    "CLIENT ID",
    "RES.GCRA resil:limit:{g} 10 60s",
    "RES.MGCRA 1 resil:limit:{g} 10 60s 1",
    "RES.WINDOW resil:limit:{w} 10 60s",
    "RES.BREAKER ADMIT resil:breaker:{b}",
    "RES.BREAKER TALLY resil:breaker:{b} 0 me 1 OK 1 FAIL 0",
    "RES.LOCK ACQUIRE resil:lock:{l} me 1s BOUND GRACE 1s",
    "RES.LOCK RELEASE resil:lock:{l} me",
    "RES.BULKHEAD ENTER resil:bulkhead:{l} me 3 1s",
    "RES.IDEMP BEGIN resil:idemp:{i} me 1s",
    "RES.SFLIGHT JOIN resil:cache:{c} me 1s",
    "RES.HEARTBEAT",
    "PING",
];

const LOOKS: [&str; 5] = [
    "RES.BREAKER STATE resil:breaker:{b}",
    "RES.LOCK INFO resil:lock:{l}",
    "RES.BULKHEAD INFO resil:bulkhead:{l}",
    "RES.IDEMP INFO resil:idemp:{i}",
    "RES.SFLIGHT INFO resil:cache:{c}",
];

/// What shows keys that nobody named.
const LISTS: [&str; 4] = ["RES.LIST LOCK", "RES.LIST RUN", "RES.LIST LOAD", "RES.TOP HELD"];

/// The users of the page that are tried here; those of policies and of dead letters are tried with their commands.
const USERS: [&str; 4] = ["worker", "operator", "viewer", "app"];

/// A server with the users of the page.
fn server() -> Server {
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    let user_of =
        |line: &str| line.strip_prefix("ACL SETUSER ").and_then(|rest| rest.split(' ').next().map(str::to_owned));
    let is_ours = |line: &&str| user_of(line).is_some_and(|user| USERS.contains(&user.as_str()));
    let rules: Vec<&str> = PAGE.lines().filter(is_ours).collect();
    assert_eq!(rules.len(), USERS.len(), "{USERS:?}");
    rules.iter().for_each(|rule| drop(say(&mut connection, rule)));
    server
}

fn login(server: &Server, user: &str) -> Connection {
    let mut connection = server.connect();
    say(&mut connection, &format!("AUTH {user} secret"));
    connection
}

#[track_caller]
fn may(connection: &mut Connection, lines: &[&str]) {
    lines.iter().for_each(|line| drop(say(connection, line)));
}

#[track_caller]
fn may_not(connection: &mut Connection, lines: &[&str]) {
    for line in lines {
        let error = refusal(connection, line);
        assert!(error.starts_with("NOPERM"), "{line}: {error}");
    }
}

#[test]
fn a_worker_works_and_forces_nothing() {
    let server = server();
    let mut worker = login(&server, "worker");
    may(&mut worker, &WORK);
    may(&mut worker, &LOOKS);
    may_not(&mut worker, &LISTS);
    may(&mut login(&server, "worker"), &["SSUBSCRIBE resil:wait:1:{l}"]);
    may_not(&mut worker, &DANGEROUS);
    may_not(&mut worker, &["DEL resil:lock:{l}", "RES.LOCK ACQUIRE other me 1s", "FLUSHALL"]);
    may_not(&mut worker, &["CLIENT KILL TYPE normal SKIPME yes", "CLIENT PAUSE 1", "CLIENT UNBLOCK 1"]);
}

#[test]
fn an_operator_forces_and_looks_and_takes_no_lock() {
    let server = server();
    let mut operator = login(&server, "operator");
    may(&mut operator, &DANGEROUS);
    may(&mut operator, &LOOKS);
    may(&mut operator, &LISTS);
    may_not(&mut operator, &["RES.LOCK ACQUIRE resil:lock:{l} me 1s", "RES.IDEMP BEGIN resil:idemp:{i} me 1s"]);
}

#[test]
fn a_viewer_looks_and_changes_nothing() {
    let server = server();
    let mut viewer = login(&server, "viewer");
    may(&mut viewer, &LOOKS);
    may(&mut viewer, &LISTS);
    may_not(&mut viewer, &DANGEROUS);
    may_not(&mut viewer, &WORK[..11]);
}

#[test]
fn without_the_dangerous_category_nothing_is_forced() {
    let server = server();
    let mut app = login(&server, "app");
    may(&mut app, &WORK);
    if outcome(&mut server.connect(), "COMMAND INFO RES.LOCK|BREAK").contains("@dangerous") {
        may_not(&mut app, &DANGEROUS);
    } else {
        assert!(server.log().contains("no ACL categories"), "it is said when the module is loaded");
        println!("skipped: this server has no ACL categories for modules");
    }
}
