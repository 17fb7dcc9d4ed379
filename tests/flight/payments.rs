//! A payment behind an idempotency key: a hundred duplicates of each request, runners killed before, inside and after the
//! payment, a server that is killed meanwhile.
//!
//! No server can know what a runner did before it died. The bank here takes (key, fence): it refuses a fence below the
//! highest of the key, and a second payment of a key. With that each key is paid once. Without it the second attempt
//! pays again; that it was the second attempt is what RUN had said.

use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;
use resil_harness::{Options, Server, ok};

use crate::driven::Say;
use crate::scene::shown;
use crate::talk::{all_wait, ask, number, words};

const DUPLICATES: usize = 100;

/// The bank's own check, in the bank.
const CHECKED: &str = "local key, fence = KEYS[1], tonumber(ARGV[1])
if fence < tonumber(redis.call('HGET', key, 'fence') or '0') then return 'refused: a later attempt was here' end
redis.call('HSET', key, 'fence', ARGV[1])
local before = redis.call('HGET', key, 'receipt')
if before then return 'already ' .. before end
redis.call('HSET', key, 'receipt', 'receipt-' .. ARGV[2])
redis.call('HINCRBY', key, 'paid', 1)
return 'paid receipt-' .. ARGV[2]";

/// A bank that believes every caller.
const UNCHECKED: &str = "redis.call('HSET', KEYS[1], 'receipt', 'receipt-' .. ARGV[2])
redis.call('HINCRBY', KEYS[1], 'paid', 1)
return 'paid receipt-' .. ARGV[2]";

fn pay(bank: &mut Connection, script: &str, key: &str, fence: i64, token: &str) -> String {
    shown(&ok(bank, &["EVAL", script, "1", key, &fence.to_string(), token]))
}

fn paid(bank: &Server, key: &str) -> String {
    bank.connect().text(&format!("HGET {key} paid"))
}

/// A runner in a process of its own that dies at the given place (see `src/bin/payment_handler.rs`); what it said.
fn runner(server: &Server, bank: &Server, script: &str, key: &str, lease: &[&str], dies: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_payment_handler"))
        .args([&server.url(), &bank.url(), script, key, "child", dies])
        .args(lease)
        .output()
        .expect("it starts");
    assert!(!output.status.success(), "it was to die");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Asks again until it knows the result, over broken connections and restarts.
fn pays_once(port: &AtomicU16, bank: &Server, key: &str, token: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(40);
    let mut bank = bank.connect();
    while Instant::now() < deadline {
        let url = format!("redis://127.0.0.1:{}/", port.load(SeqCst));
        let connection = redis::Client::open(url).unwrap().get_connection_with_timeout(Duration::from_secs(5));
        let Ok(mut connection) = connection else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        let begin = format!("RES.IDEMP BEGIN {key} {token} 10s FINGERPRINT amount=10 WAIT 30s");
        if connection.send_packed_command(&packed(&begin)).is_err() {
            continue;
        }
        let reported = crate::scene::receive(&mut connection);
        match words(&reported)[..] {
            ["REPLAY", "ok", result, _] => return result.to_owned(),
            ["RUN", ..] => {
                let reply = pay(&mut bank, CHECKED, key, number(&reported, 1), token);
                let Some((_, receipt)) = reply.split_once(' ').filter(|(how, _)| *how != "refused:") else { continue };
                // Whether it is committed, or another was first, the next BEGIN says.
                let commit = format!("RES.IDEMP COMMIT {key} {token} 1h {receipt}");
                if connection.send_packed_command(&packed(&commit)).is_ok() {
                    crate::scene::receive(&mut connection);
                }
            }
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
    panic!("{token} never learned of {key}");
}

fn packed(line: &str) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    line.split(' ').for_each(|word| {
        command.arg(word);
    });
    command.get_packed_command()
}

#[test]
fn each_key_pays_once_and_duplicates_see_the_result() {
    let options = Options::default().config("appendonly", "yes").config("appendfsync", "always");
    let mut server = Server::start(options);
    let bank = Server::start(Options::default().without_module());
    let port = AtomicU16::new(server.port());
    let mut keys = Vec::new();
    for (name, lease) in [("bound", &["1h", "BOUND"][..]), ("plain", &["700ms"][..])] {
        for dies in ["before", "inside", "after"] {
            let key = format!("pay:{name}:{dies}");
            let said = runner(&server, &bank, CHECKED, &key, lease, dies);
            assert!(said.starts_with("RUN 1"), "{said}");
            keys.push(key);
        }
    }
    // And one whose runner lives on while the server is killed.
    let mut main = server.connect();
    let fence = number(&ask(&mut main, "RES.IDEMP BEGIN pay:restart main 1h FINGERPRINT amount=10"), 1);
    assert_eq!(pay(&mut bank.connect(), CHECKED, "pay:restart", fence, "main"), "paid receipt-main");
    keys.push("pay:restart".to_owned());
    let results: Vec<Vec<String>> = thread::scope(|scope| {
        let (port, bank) = (&port, &bank);
        let started: Vec<Vec<_>> = keys
            .iter()
            .map(|key| {
                let duplicate = |index: usize| {
                    let builder = thread::Builder::new().stack_size(256 << 10);
                    let pays = move || pays_once(port, bank, key, &format!("d{index}"));
                    builder.spawn_scoped(scope, pays).expect("a thread")
                };
                (0..DUPLICATES).map(duplicate).collect()
            })
            .collect();
        resil_harness::eventually("its duplicates wait", crate::driven::SOON, || {
            crate::scene::field(&main.say("RES.IDEMP INFO pay:restart"), "waiters") == DUPLICATES.to_string()
        });
        server.restart_after_kill();
        port.store(server.port(), SeqCst);
        let committed = ask(&mut server.connect(), "RES.IDEMP COMMIT pay:restart main 1h receipt-main");
        assert_eq!(committed, "[COMMITTED stored]");
        started
            .into_iter()
            .map(|of_key| of_key.into_iter().map(|one| one.join().expect("a result")).collect())
            .collect()
    });
    for (key, results) in keys.iter().zip(&results) {
        let receipt = bank.connect().text(&format!("HGET {key} receipt"));
        assert_eq!(paid(&bank, key), "1", "{key}");
        assert_eq!(results.len(), DUPLICATES);
        assert!(results.iter().all(|result| *result == receipt), "{key}: {receipt} is not all of {results:?}");
        let dead_paid = key.ends_with("inside") || key.ends_with("after");
        assert!(!dead_paid || receipt == "receipt-child", "{key}: paid by the one who died, found by the next");
    }
}

#[test]
fn without_the_check_the_second_attempt_pays_again() {
    let (server, bank) = (Server::fresh(), Server::start(Options::default().without_module()));
    let said = runner(&server, &bank, UNCHECKED, "pay", &["1h", "BOUND"], "after");
    assert!(said.starts_with("RUN 1"), "{said}");
    let mut connection = server.connect();
    let run = ask(&mut connection, "RES.IDEMP BEGIN pay second 1h FINGERPRINT amount=10 WAIT 10s");
    assert_eq!((words(&run)[0], number(&run, 2)), ("RUN", 2), "it was notified: {run}");
    pay(&mut bank.connect(), UNCHECKED, "pay", number(&run, 1), "second");
    assert_eq!(ask(&mut connection, "RES.IDEMP COMMIT pay second 1h receipt-second"), "[COMMITTED stored]");
    assert_eq!(paid(&bank, "pay"), "2", "paid twice: an idempotency key alone cannot help it");
}

#[test]
fn a_late_runner_is_refused_by_bank_and_record() {
    let (server, bank) = (Server::fresh(), Server::start(Options::default().without_module()));
    let (mut sleeper, mut second, mut bank_line) = (server.connect(), server.connect(), bank.connect());
    let first = number(&ask(&mut sleeper, "RES.IDEMP BEGIN pay sleeper 50ms"), 1);
    let run = ask(&mut second, "RES.IDEMP BEGIN pay second 1h WAIT 10s");
    assert_eq!(number(&run, 2), 2);
    assert_eq!(pay(&mut bank_line, CHECKED, "pay", number(&run, 1), "second"), "paid receipt-second");
    assert_eq!(ask(&mut second, "RES.IDEMP COMMIT pay second 1h receipt-second"), "[COMMITTED stored]");
    assert_eq!(pay(&mut bank_line, CHECKED, "pay", first, "sleeper"), "refused: a later attempt was here");
    assert_eq!(ask(&mut sleeper, "RES.IDEMP COMMIT pay sleeper 1h mine"), "[LOST taken]");
    assert!(ask(&mut sleeper, "RES.IDEMP BEGIN pay sleeper 1s").starts_with("[REPLAY ok receipt-second "));
    assert_eq!(paid(&bank, "pay"), "1");
}

#[test]
fn held_work_is_not_repeated_by_anybody() {
    let (server, bank) = (Server::fresh(), Server::start(Options::default().without_module()));
    runner(&server, &bank, UNCHECKED, "pay", &["1h", "BOUND", "ONLAPSE", "HOLD"], "after");
    let mut connection = server.connect();
    resil_harness::eventually("the end is noticed", crate::driven::SOON, || {
        ask(&mut connection, "RES.IDEMP BEGIN pay second 1h") == "[HELD 1]"
    });
    all_wait(&mut connection, 0);
    // Somebody looks at the bank, and settles it.
    assert_eq!(ask(&mut connection, "RES.IDEMP COMMIT pay child 1h receipt-child"), "[COMMITTED stored]");
    assert!(ask(&mut connection, "RES.IDEMP BEGIN pay second 1h").starts_with("[REPLAY ok receipt-child "));
    assert_eq!(paid(&bank, "pay"), "1");
}
