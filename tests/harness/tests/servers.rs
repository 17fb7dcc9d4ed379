//! What the harness promises about one server. No module needed.

use std::io::{Read, Write};
use std::time::Duration;

use redis::Value;
use resil_harness::{Options, Server, error_text, eventually, ok, reply};

const SOON: Duration = Duration::from_secs(10);

fn plain() -> Options {
    Options::default().without_module()
}

/// A dead process that nobody collected is as good as gone: in a container there may be no one to do it.
fn process_exists(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|text| !text.contains(") Z "))
}

#[test]
fn a_started_server_replies_in_every_protocol() {
    let server = Server::start(plain());
    ok(&mut server.connect(), &["HSET", "h", "field", "value"]);
    assert!(matches!(ok(&mut server.connect(), &["HGETALL", "h"]), Value::Array(_)));
    assert!(matches!(ok(&mut server.connect_resp3(), &["HGETALL", "h"]), Value::Map(_)));

    let mut raw = server.raw();
    raw.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    raw.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

#[test]
fn the_process_it_names_is_the_server_itself() {
    let server = Server::start(plain());
    let info: String = redis::from_redis_value(ok(&mut server.connect(), &["INFO", "server"])).unwrap();
    assert!(info.contains(&format!("process_id:{}\r\n", server.pid())));
    assert!(info.contains(&format!("tcp_port:{}\r\n", server.port())));
}

#[test]
fn many_servers_start_at_once_and_never_share_a_keyspace() {
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let server = Server::start(plain());
                let mut connection = server.connect();
                assert_eq!(ok(&mut connection, &["INCRBY", "n", &number.to_string()]), Value::Int(number));
            });
        }
    });
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(|| Server::start(plain())).join().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    ok(&mut server.connect(), &["PING"]);
}

#[test]
fn a_dropped_server_is_gone_and_so_is_its_folder() {
    let server = Server::start(plain());
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    assert!(process_exists(pid) && dir.exists());
    drop(server);
    assert!(!process_exists(pid) && !dir.exists());
}

#[test]
fn a_panicking_test_leaves_no_server_behind() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let failed = std::thread::spawn(move || {
        let server = Server::start(plain());
        sender.send(server.pid()).unwrap();
        panic!("this panic is part of the test");
    });
    assert!(failed.join().is_err());
    assert!(!process_exists(receiver.recv().unwrap()));
}

#[test]
fn data_survives_a_restart_that_saves_and_not_a_kill() {
    let mut server = Server::start(plain());
    ok(&mut server.connect(), &["SET", "saved", "yes"]);
    server.restart_after_save();
    ok(&mut server.connect(), &["SET", "unsaved", "yes"]);
    server.restart_after_kill();
    let mut connection = server.connect();
    assert_eq!(ok(&mut connection, &["EXISTS", "saved"]), Value::Int(1));
    assert_eq!(ok(&mut connection, &["EXISTS", "unsaved"]), Value::Int(0));
}

#[test]
fn an_append_only_server_keeps_its_data_over_a_kill() {
    let options = plain().config("appendonly", "yes").config("appendfsync", "always");
    let mut server = Server::start(options);
    ok(&mut server.connect(), &["SET", "key", "value"]);
    server.restart_after_kill();
    assert_eq!(ok(&mut server.connect(), &["EXISTS", "key"]), Value::Int(1));
}

#[test]
fn terminate_ends_paused_servers_in_order_and_they_restart() {
    let mut server = Server::start(plain());
    server.pause();
    assert!(server.is_alive());
    assert!(server.terminate().success());
    assert!(!server.is_alive());
    server.start_again();
    ok(&mut server.connect(), &["PING"]);
}

#[test]
fn a_paused_server_is_silent_until_it_resumes() {
    let server = Server::start(plain());
    let mut raw = server.raw();
    raw.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    server.pause();
    raw.write_all(b"PING\r\n").unwrap();
    assert!(raw.read(&mut [0; 16]).is_err());
    server.resume();
    raw.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(raw.read(&mut [0; 16]).unwrap(), 7);
}

#[test]
fn a_server_starts_on_the_folder_another_one_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Server::start(plain().dir(folder.path()));
    ok(&mut first.connect(), &["SET", "key", "value"]);
    ok(&mut first.connect(), &["SAVE"]);
    first.kill9();
    drop(first);
    let second = Server::start(plain().dir(folder.path()));
    assert_eq!(ok(&mut second.connect(), &["EXISTS", "key"]), Value::Int(1));
}

#[test]
fn rewritten_configuration_survives_a_restart() {
    let mut server = Server::start(plain());
    ok(&mut server.connect(), &["CONFIG", "SET", "maxmemory", "77mb"]);
    ok(&mut server.connect(), &["CONFIG", "REWRITE"]);
    server.restart_after_kill();
    let reply = format!("{:?}", ok(&mut server.connect(), &["CONFIG", "GET", "maxmemory"]));
    assert!(reply.contains(&(77 * 1024 * 1024).to_string()), "{reply}");
}

#[test]
fn the_log_of_a_server_that_cannot_start_is_shown() {
    let outcome = std::panic::catch_unwind(|| Server::start(plain().config("no-such-directive", "1")));
    let message = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("no-such-directive"), "{message}");
}

#[test]
fn a_missing_module_file_is_a_clear_failure() {
    let options = Options::default().module_path("/nowhere/libresil.so");
    let outcome = std::panic::catch_unwind(|| Server::start(options));
    let message = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("/nowhere/libresil.so"), "{message}");
}

#[test]
fn a_crash_that_no_assertion_saw_fails_the_test() {
    let crashing = || {
        let server = Server::start(plain());
        let _ = reply(&mut server.connect(), &["DEBUG", "SEGFAULT"]);
        eventually("the server is down", SOON, || !server.is_alive());
    };
    let outcome = std::panic::catch_unwind(crashing);
    let message = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("crashed"), "{message}");
}

#[test]
fn errors_are_given_as_they_went_over_the_wire() {
    let server = Server::start(plain());
    let mut connection = server.connect();
    ok(&mut connection, &["RPUSH", "list", "a"]);
    assert_eq!(
        error_text(&mut connection, &["GET", "list"]),
        "WRONGTYPE Operation against a key holding the wrong kind of value"
    );
    let unknown = error_text(&mut connection, &["NOSUCH"]);
    assert!(unknown.starts_with("ERR unknown command 'NOSUCH'"), "{unknown}");
    let refused = error_text(&mut connection, &["EVAL", "return redis.error_reply('MYCODE with text')", "0"]);
    assert_eq!(refused, "MYCODE with text");
}

#[test]
fn a_wait_that_is_in_vain_says_what_for() {
    let outcome = std::panic::catch_unwind(|| eventually("pigs fly", Duration::from_millis(20), || false));
    let message = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("pigs fly"), "{message}");
}
