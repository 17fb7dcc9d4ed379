//! What the server looks like from outside: whether anything changed, and whether anything went wrong inside.

use std::collections::BTreeMap;

use super::resp::{Client, Reply, typed, words};

/// All that would betray a change: the digest of every value, the number of keys, and the server's count of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    digest: String,
    keys: Reply,
    changes: String,
}

impl Fingerprint {
    pub fn of(client: &mut Client) -> Self {
        Self {
            digest: client.typed("DEBUG DIGEST").text(),
            keys: client.typed("DBSIZE"),
            changes: info_field(client, "persistence", "rdb_changes_since_last_save"),
        }
    }
}

/// One field of a section of INFO.
pub fn info_field(client: &mut Client, section: &str, field: &str) -> String {
    let info = client.call(&words(["INFO", section])).text();
    let found = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {field} in INFO {section}:\n{info}")).to_owned()
}

/// A counter of `INFO resil`.
pub fn counter(client: &mut Client, name: &str) -> i64 {
    info_field(client, "resil", &format!("resil_{name}")).parse().expect("a counter is a number")
}

/// The promise that nothing inside went wrong: no panic was caught at the edge.
#[track_caller]
pub fn assert_no_internal_errors(client: &mut Client) {
    assert_eq!(counter(client, "internal_errors"), 0, "a panic was caught at the edge; the server's log has it");
}

/// `DEBUG DIGEST-VALUE` of a key.
pub fn digest_of(client: &mut Client, key: &[u8]) -> String {
    let reply = client.call(&words([b"DEBUG".as_slice(), b"DIGEST-VALUE", key]));
    let Reply::Array(digests) = &reply else { panic!("a digest was expected, got {reply:?}") };
    digests[0].text()
}

/// Takes the expiry from every key, so that what is compared next does not depend on the moment.
pub fn persist_all(client: &mut Client) {
    let calls: Vec<_> = keys(client).iter().map(|key| words([b"PERSIST".as_slice(), key])).collect();
    client.pipeline(calls.iter().map(Vec::as_slice));
}

/// Every key that has not expired, with the digest of its value.
pub fn contents(client: &mut Client) -> BTreeMap<Vec<u8>, String> {
    keys(client).into_iter().map(|key| (key.clone(), digest_of(client, &key))).collect()
}

fn keys(client: &mut Client) -> Vec<Vec<u8>> {
    let Reply::Array(keys) = client.typed("KEYS *") else { panic!("KEYS replies with a list") };
    keys.into_iter().map(|key| if let Reply::Bulk(key) = key { key } else { panic!("a key is bytes") }).collect()
}

/// Flushes, and holds the module's own count of its values against it: each was freed once.
pub fn assert_nothing_is_left_after_a_flush(client: &mut Client) {
    must(client, "FLUSHALL SYNC");
    let gauges =
        ["gcra_keys", "window_keys", "breaker_keys", "lock_keys", "bulkhead_keys", "idemp_keys", "sflight_keys"];
    let left: Vec<_> = gauges.iter().chain(&["dlq_keys", "dlq_bytes"]).map(|gauge| counter(client, gauge)).collect();
    assert_eq!(left, [0; 9], "the values of all keys were freed, each once");
    let Reply::Bulk(report) = must(client, "INFO resil") else { panic!("INFO replies with a text") };
    let report = String::from_utf8_lossy(&report).into_owned();
    let bytes = report.lines().find_map(|line| line.strip_prefix("resil_bytes:")).expect("bytes by kind");
    let kept: Vec<&str> = bytes.split(',').filter(|kind| !kind.ends_with("=0")).collect();
    assert!(kept.is_empty(), "bytes of keys that are gone: {kept:?}");
}

/// Sends `line` and insists on a good reply.
#[track_caller]
pub fn must(client: &mut Client, line: &str) -> Reply {
    let reply = client.call(&typed(line));
    assert!(!reply.is_error(), "{line}: {reply:?}");
    reply
}
