//! Strings that redis-cell left are taken over: in memory, from its snapshot, and from an append-only file.

use std::fs;

use resil_harness::{Options, Server, wait_for_sync};

use crate::engine::resp::{Client, encode, typed, words};
use crate::engine::server_state::{Fingerprint, assert_no_internal_errors, counter, digest_of, must};
use crate::redis_cell::{self, leave_string, throttle};

#[test]
fn a_snapshot_of_redis_cell_keeps_its_debt() {
    let Some(theirs) = redis_cell::options() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let mut their_server = Server::start(theirs.dir(dir.path()));
    let mut client = Client::new(&their_server);
    for _ in 0..4 {
        assert_eq!(throttle(&mut client, "user 9 10 36000")[0], 0);
    }
    throttle(&mut client, "empty 1 1 36000 2");
    must(&mut client, "SET other text");
    must(&mut client, "SAVE");
    their_server.kill9();

    let server = Server::start(Options::default().dir(dir.path()));
    let mut client = Client::new(&server);
    assert_eq!(must(&mut client, "TYPE user").text(), "string");
    assert_eq!(throttle(&mut client, "user 9 10 36000 0")[..3], [0, 10, 6], "what was taken there is missing here");
    assert_eq!(throttle(&mut client, "user 9 10 36000")[..3], [0, 10, 5]);
    assert_eq!(must(&mut client, "TYPE user").text(), "resil-gcr");
    assert_eq!(throttle(&mut client, "empty 1 1 36000")[..3], [1, 2, 0], "and what was empty there is empty here");
    assert!(client.typed("CL.THROTTLE other 9 10 36000").text().starts_with("WRONGTYPE"));
    assert_eq!(counter(&mut client, "throttle_adopted"), 1, "a denial adopts nothing yet");
}

#[test]
fn an_append_only_file_of_redis_cell_is_executed() {
    let calls = [
        "SELECT 0",
        "CL.THROTTLE user 15 30 3600 1",
        "CL.THROTTLE user 15 30 3600 1",
        "CL.THROTTLE user 15 30 3600 3",
        // Denied and asked there, and in the file all the same.
        "CL.THROTTLE user 15 30 3600 100",
        "CL.THROTTLE user 15 30 3600 0",
        "SET other text",
        "CL.THROTTLE other 15 30 3600 1",
    ];
    let mut file = Vec::new();
    calls.iter().for_each(|line| encode(&typed(line), &mut file));
    encode(&words([b"CL.THROTTLE".as_slice(), b"\xff\0", b"15", b"30", b"3600", b"1"]), &mut file);
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("appendonly.aof"), file).expect("the folder is writable");
    let mut server = Server::start(Options::default().dir(dir.path()).config("appendonly", "yes"));
    let mut client = Client::new(&server);
    assert_eq!(throttle(&mut client, "user 15 30 3600 0")[..3], [0, 16, 11]);
    assert_eq!(must(&mut client, "GET other").text(), "text");
    assert_eq!(must(&mut client, "DBSIZE"), crate::engine::resp::Reply::Integer(3));

    // From here on the file has resolved changes; what they say holds over what was executed before them.
    throttle(&mut client, "user 15 30 3600 5");
    let before = digest_of(&mut client, b"user");
    server.restart_after_terminate();
    let mut client = Client::new(&server);
    assert_eq!(digest_of(&mut client, b"user"), before);
    assert_no_internal_errors(&mut client);
}

#[test]
fn a_grant_replaces_the_string_in_every_copy() {
    // Written before it is answered, or a kill may come before the write.
    let mut primary = Server::start(Options::default().config("appendonly", "yes").config("appendfsync", "always"));
    let replica = Server::replica_of(&primary, Options::default());
    let mut client = Client::new(&primary);
    leave_string(&mut client, "user", 3_600);
    assert_eq!(throttle(&mut client, "user 9 10 36000")[..3], [0, 10, 8], "one was taken there, one here");
    wait_for_sync(&primary, &replica);
    let mut follower = Client::new(&replica);
    assert_eq!(must(&mut follower, "TYPE user").text(), "resil-gcr");
    let digest = digest_of(&mut client, b"user");
    assert_eq!(digest_of(&mut follower, b"user"), digest);
    assert_eq!(must(&mut client, "PEXPIRETIME user"), must(&mut follower, "PEXPIRETIME user"));
    primary.restart_after_kill();
    assert_eq!(digest_of(&mut Client::new(&primary), b"user"), digest);
}

#[test]
fn a_refund_adopts_and_a_full_one_deletes() {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    leave_string(&mut client, "user", 7_200);
    assert_eq!(throttle(&mut client, "user 9 10 36000 -1")[..3], [0, 10, 9]);
    assert_eq!(must(&mut client, "TYPE user").text(), "resil-gcr");
    leave_string(&mut client, "whole", 7_200);
    assert_eq!(throttle(&mut client, "whole 9 10 36000 -10")[..3], [0, 10, 10]);
    assert_eq!(must(&mut client, "TYPE whole").text(), "none");
}

#[test]
fn a_denied_call_and_a_peek_leave_the_string() {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    leave_string(&mut client, "user", 1_800);
    let before = Fingerprint::of(&mut client);
    let [limited, limit, remaining, retry_after, reset_after] = throttle(&mut client, "user 0 1 3600");
    assert_eq!([limited, limit, remaining], [1, 1, 0]);
    assert!((1_799..=1_800).contains(&retry_after) && retry_after == reset_after, "{retry_after} {reset_after}");
    assert_eq!(throttle(&mut client, "user 0 1 3600 0")[0], 0);
    assert_eq!(throttle(&mut client, "user 0 1 3600 2")[3], -1, "more than there can be");
    assert_eq!(Fingerprint::of(&mut client), before, "nothing changed");
    assert_eq!(must(&mut client, "TYPE user").text(), "string");
}

/// Of a clock that was wrong there: no debt is larger than the bucket, so nobody is locked out for longer.
#[test]
fn an_arrival_time_beyond_the_bucket_is_cut_to_it() {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    leave_string(&mut client, "user", 360_000);
    must(&mut client, "SET end 9223372036854775807");
    for key in ["user", "end"] {
        let [limited, _, _, retry_after, reset_after] = throttle(&mut client, &format!("{key} 9 10 3600"));
        assert_eq!(limited, 1);
        assert!(retry_after <= 360 && reset_after <= 3_600, "{key}: {retry_after} {reset_after}");
    }
}

#[test]
fn a_debt_paid_long_ago_is_a_full_bucket() {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    must(&mut client, "SET user 1000000000");
    assert_eq!(throttle(&mut client, "user 9 10 3600")[..3], [0, 10, 9]);
}

#[test]
fn strings_without_an_arrival_time_are_wrongtype() {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    let strings: [&[u8]; 10] =
        [b"", b"text", b"-1", b"0", b"1.5", b" 1", b"1e9", b"9223372036854775808", b"\xff", b"1\0"];
    leave_string(&mut client, "tat", 3_600);
    for string in strings {
        assert!(!client.call(&words([b"SET".as_slice(), b"other", string])).is_error());
        let before = Fingerprint::of(&mut client);
        let text = client.typed("CL.THROTTLE other 9 10 3600").text();
        assert!(text.starts_with("WRONGTYPE"), "{text} for {}", string.escape_ascii());
        assert_eq!(Fingerprint::of(&mut client), before);
    }
    // Only the command that stands in for redis-cell's takes its strings.
    for line in ["RES.GCRA tat 10 1h", "RES.GCRA.PEEK tat 10 1h", "RES.MGCRA 1 tat 10 1h 10", "RES.WINDOW tat 10 1h"] {
        assert!(client.typed(line).text().starts_with("WRONGTYPE"), "{line}");
    }
}
