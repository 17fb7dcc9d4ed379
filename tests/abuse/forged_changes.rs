//! `RES._APPLY` from users who may not send it, and from a primary or a file that sends nonsense.

use std::fs;

use resil_core::limits::HOLDERS_MAX;
use resil_core::lock::Kind;
use resil_harness::{Options, Server};

use crate::engine::fake_primary::FakePrimary;
use crate::engine::resp::{Client, Reply, Words, encode, words};
use crate::engine::restoring::restore;
use crate::engine::seed::{say, seeded};
use crate::engine::server_state::{Fingerprint, assert_no_internal_errors, counter, must};
use crate::engine::states::{self, TierParts};
use crate::engine::streaming::Streaming;
use crate::engine::waited_states;

/// Half a century ahead.
const FAR_US: u64 = 3_400_000_000_000_000;
const HOUR_US: u64 = 3_600_000_000;

fn good_bytes() -> Vec<u8> {
    let tier = TierParts { period_us: HOUR_US, limit: 10, capacity: 10, tat_us: FAR_US, frac: 0, overhang_ms: 0 };
    states::tiers(&[tier])
}

fn apply(key: &str, bytes: &[u8]) -> Words {
    words([b"RES._APPLY".as_slice(), key.as_bytes(), b"1", bytes])
}

/// Tries every way in that an ordinary client has; `code` is how the server refuses.
fn assert_clients_cannot_apply(server: &Server, code: &str) {
    let mut client = Client::new(server);
    let before = Fingerprint::of(&mut client);
    let bytes = good_bytes();
    let text = client.call(&apply("key", &bytes)).text();
    assert!(text.starts_with(code), "{text:?}");
    for call in ["redis.call", "redis.pcall"] {
        let script = format!("return {call}('RES._APPLY', KEYS[1], '1', ARGV[1])");
        let text = client.call(&words([b"EVAL".as_slice(), script.as_bytes(), b"1", b"key", &bytes])).text();
        assert!(text.contains(code.split(' ').next().unwrap_or(code)), "{text:?}");
    }
    let transaction = [words(["MULTI"]), apply("key", &bytes), words(["EXEC"])];
    let reply = &client.pipeline(transaction.iter().map(Vec::as_slice))[2];
    // Refused when it is queued, which discards the transaction, or when it is executed.
    let refused = match reply {
        Reply::Array(replies) => replies.iter().all(Reply::is_error),
        other => other.is_error(),
    };
    assert!(refused, "{reply:?}");
    assert_eq!(Fingerprint::of(&mut client), before, "nothing changed");
    assert_no_internal_errors(&mut client);
}

#[test]
fn a_client_cannot_forge_a_change() {
    let server = Server::fresh();
    must(&mut Client::new(&server), "RES.GCRA key 10 1d");
    assert_clients_cannot_apply(&server, "ERR RES._APPLY is internal");
    assert!(counter(&mut Client::new(&server), "apply_refused") >= 4, "each attempt was counted");
}

#[test]
fn a_client_of_a_replica_cannot_forge_a_change_either() {
    let primary = Server::fresh();
    must(&mut Client::new(&primary), "RES.GCRA key 10 1d");
    let replica = Server::replica_of(&primary, Options::default());
    assert_clients_cannot_apply(&replica, "READONLY");
    // Where the operator lets clients write to a replica, the server no longer stands before us.
    must(&mut Client::new(&replica), "CONFIG SET replica-read-only no");
    assert_clients_cannot_apply(&replica, "ERR RES._APPLY is internal");
}

#[test]
fn a_replica_survives_any_stream_and_applies_what_is_good() {
    let mut streaming = Streaming::start(seeded("stream"));
    streaming.run(15_000);
    streaming.audit();
    say(&format!("stream: {:?}", streaming.expected));
    let log = streaming.replica.log();
    assert!(log.contains("upgrade replicas first"), "an unknown version is logged with advice");
}

/// Obeys changes that are well-formed, each for itself, but which no primary would send; then what came of it is
/// dumped, restored and reloaded, as a replica's snapshot would be.
fn assert_still_saves_and_loads(changes: &[Vec<u8>]) {
    let replica = Server::fresh();
    let mut primary = FakePrimary::of(&replica);
    primary.send(&changes.iter().map(|bytes| apply("key", bytes)).collect::<Vec<_>>());
    primary.wait_until_applied(&replica);
    let mut client = Client::new(&replica);
    assert_no_internal_errors(&mut client);
    must(&mut client, "CONFIG SET replica-read-only no");
    if let Reply::Bulk(payload) = client.typed("DUMP key") {
        let restored = client.call(&restore(b"restored", &payload));
        let first = changes.first().map(|bytes| bytes[..bytes.len().min(60)].escape_ascii().to_string());
        assert!(!restored.is_error(), "its own DUMP was refused ({}), after {first:?}", restored.text());
    }
    must(&mut client, "DEBUG RELOAD");
    assert_no_internal_errors(&mut client);
}

#[test]
fn a_strangely_cut_log_still_saves_and_loads() {
    let cut_to_zero = [
        states::log(HOUR_US, &[(FAR_US, 1), (1, 1)]),
        states::log_change(HOUR_US, 0, 0, 1),
        states::log_change(HOUR_US, 0, FAR_US, 1),
    ];
    assert_still_saves_and_loads(&cut_to_zero);
    let back_in_time = [states::log(HOUR_US, &[(FAR_US, 1)]), states::log_change(1, 1 << 53, 5, 1)];
    assert_still_saves_and_loads(&back_in_time);
    let all_dropped = [states::log(1, &[(5, 1)]), states::log_change(1, 1 << 53, FAR_US, 0)];
    assert_still_saves_and_loads(&all_dropped);
}

#[test]
fn states_at_the_end_of_time_still_save_and_load() {
    assert_still_saves_and_loads(&[states::log_change(HOUR_US, 1 << 53, 1 << 53, 1)]);
    let tat_us = (1 << 53) - 1;
    let tier = TierParts { period_us: 1, limit: 1, capacity: 1, tat_us, frac: 0, overhang_ms: 86_400_000 };
    assert_still_saves_and_loads(&[states::tiers(&[tier])]);
}

#[test]
fn cutting_a_missing_log_still_saves_and_loads() {
    assert_still_saves_and_loads(&[states::log_change(HOUR_US, FAR_US, FAR_US, 0)]);
}

#[test]
fn a_log_with_impossible_cells_still_saves_and_loads() {
    let most = |at_us| states::log_change(HOUR_US, 1 << 53, at_us, 10_000_000);
    assert_still_saves_and_loads(&[most(FAR_US), most(FAR_US), most(FAR_US + 1)]);
}

/// The edits of a breaker: how many, then each with its kind and its numbers.
fn edits(edits: &[&[u64]]) -> Vec<u8> {
    states::tagged(b'b', &[&[edits.len() as u64], edits.concat().as_slice()].concat())
}

#[test]
fn a_breaker_with_impossible_probes_still_saves_and_loads() {
    let half_open = [4, 2, 0, 0, 0, 0, FAR_US, FAR_US, 1];
    let mut changes = vec![edits(&[&half_open])];
    changes.extend((1..=101).map(|number| edits(&[&[5, number, FAR_US, FAR_US + HOUR_US]])));
    assert_still_saves_and_loads(&changes);
}

#[test]
fn a_breaker_with_impossible_slow_calls_saves_and_loads() {
    let minute_us = 60_000_000;
    let spans = [0, minute_us, minute_us, minute_us, 0, HOUR_US];
    let config = [[1, 1, HOUR_US].as_slice(), &spans, &[50, 100, 5, 10, 1_000, 3, 3, 1], &[0, 1, FAR_US]].concat();
    let (caller, ok, failures, slow, run) = (1, 0, 0, 5, 0);
    let record = [2, FAR_US, caller, ok, failures, slow, run];
    assert_still_saves_and_loads(&[edits(&[&config, &record])]);
}

#[test]
fn more_holders_than_can_be_still_save_and_load() {
    for kind in [Kind::Lock, Kind::Bulkhead] {
        assert_still_saves_and_loads(&[waited_states::crowd(kind, HOLDERS_MAX as u64 + 1, FAR_US)]);
    }
}

#[test]
fn edits_of_what_is_not_there_still_save_and_load() {
    let second_us = 1_000_000;
    for tag in *b"lp" {
        assert_still_saves_and_loads(&[states::tagged(tag, &[1, 5, second_us, FAR_US])]);
        assert_still_saves_and_loads(&[states::tagged(tag, &[2, 5, 1])]);
        assert_still_saves_and_loads(&[states::tagged(tag, &[3, 5, FAR_US, 0])]);
    }
    for numbers in [&[1, second_us, FAR_US][..], &[2, FAR_US, 0], &[4], &[5, FAR_US], &[7], &[8, FAR_US]] {
        assert_still_saves_and_loads(&[states::tagged(b's', numbers)]);
    }
}

#[test]
fn a_record_of_nothing_still_saves_and_loads() {
    assert_still_saves_and_loads(&[states::tagged(b'I', &[0])]);
}

#[test]
fn any_edits_of_waited_state_save_and_load() {
    let mut rng = seeded("edits of what is waited for");
    for kind in waited_states::KINDS {
        let whole = waited_states::whole(kind, FAR_US, &mut rng);
        let edits = (0..300).map(|_| waited_states::edits(kind, FAR_US, &mut rng));
        assert_still_saves_and_loads(&std::iter::once(whole).chain(edits).collect::<Vec<_>>());
    }
}

#[test]
fn a_file_with_garbage_changes_is_loaded_without_them() {
    let bytes = good_bytes();
    let calls = [
        words(["SELECT", "0"]),
        apply("good", &bytes),
        words(["RES._APPLY"]),
        apply("empty", b""),
        apply("noise", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        apply("cut-short", &bytes[..bytes.len() - 1]),
        words([b"RES._APPLY".as_slice(), b"future", b"7", b"whatever"]),
        words([b"RES._APPLY".as_slice(), b"zero", b"0", &bytes]),
        words([b"RES._APPLY".as_slice(), b"half", b"1", &bytes, b"other-half", b"1", b"G"]),
        words(["SET", "string", "text"]),
        // Of another type than the change needs.
        apply("string", &states::log_change(HOUR_US, 1 << 53, FAR_US, 1)),
        apply("string", &states::log_change(HOUR_US, 1 << 53, FAR_US, 1)),
        apply("also-good", &bytes),
    ];
    let dir = tempfile::tempdir().expect("a folder");
    let mut file = Vec::new();
    for call in &calls {
        encode(call, &mut file);
    }
    // The one file of former times, which every server takes over into its folder of files.
    fs::write(dir.path().join("appendonly.aof"), file).expect("the folder is writable");
    let server = Server::start(Options::default().dir(dir.path()).config("appendonly", "yes"));
    let mut client = Client::new(&server);
    let Reply::Array(keys) = client.typed("KEYS *") else { panic!("KEYS replies with a list") };
    let mut keys: Vec<String> = keys.iter().map(Reply::text).collect();
    keys.sort();
    assert_eq!(keys, ["also-good", "good", "string"]);
    assert_eq!(client.typed("GET string").text(), "text");
    assert_eq!(counter(&mut client, "apply_unknown_version"), 1);
    assert_eq!(counter(&mut client, "apply_refused"), 8, "each refusal is counted");
    assert_eq!(server.log().matches("its key holds another type").count(), 1, "the first of its sort is logged");
    assert_no_internal_errors(&mut client);
}

#[test]
fn a_change_that_does_not_fit_is_only_counted() {
    let replica = Server::fresh();
    let mut primary = FakePrimary::of(&replica);
    primary.send(&[words(["SET", "key", "text"]), apply("key", &states::log_change(HOUR_US, 1 << 53, FAR_US, 1))]);
    primary.wait_until_applied(&replica);
    let mut client = Client::new(&replica);
    assert_eq!([counter(&mut client, "applied"), counter(&mut client, "apply_refused")], [0, 1]);
}
