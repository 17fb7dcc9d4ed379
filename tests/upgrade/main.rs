//! Files of earlier versions: what a released module wrote, this one reads with the same meaning.
//!
//! Each folder beside this file belongs to a version. `snapshot.bin` is an RDB file, `changes.bin` an append-only file of single
//! changes, which are also what replicas are sent. `seen.json` has the instant at which both were written and what that
//! version replied about each key. Fields that a later version adds to a reply are fine; those that were there stay as they were.
//!
//! `cargo run -p resil-tests --bin old_files -- tests/upgrade/<version>` makes a folder, with the module that `RESIL_MODULE` names.
//!
//! [`live`] has both versions running, as primary and replica.

mod live;

use std::fs;
use std::path::{Path, PathBuf};

use resil_harness::{Options, Server, ok};
use resil_tests::old_files::{Seen, says_the_same, shown};

fn versions() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("upgrade");
    let mut all: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    all.sort();
    assert!(!all.is_empty(), "there are files of at least one version");
    all
}

/// Loads `file` of every version under the name the server expects, and compares what it says of each key.
#[track_caller]
fn assert_understood(file: &str, expected_by_server: &str, options: impl Fn() -> Options) {
    for version in versions() {
        let seen: Seen = serde_json::from_slice(&fs::read(version.join("seen.json")).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::copy(version.join(file), folder.path().join(expected_by_server)).unwrap();
        let clock = ["test-clock".to_owned(), seen.clock_us.to_string()];
        let server = Server::start(options().dir(folder.path()).module_args(clock));
        let mut connection = server.connect_resp3();
        for (question, then) in &seen.replies {
            let now = shown(ok(&mut connection, &question.split(' ').collect::<Vec<_>>()));
            assert!(
                says_the_same(then, &now),
                "{} of {}: {question}\nthen {then}\nnow  {now}",
                file,
                version.display()
            );
        }
        let keys = ok(&mut connection, &["DBSIZE"]);
        assert_eq!(keys, redis::Value::Int(seen.keys), "every key of {} is there", version.display());
        let refused = ok(&mut connection, &["INFO", "resil"]);
        assert!(format!("{refused:?}").contains("resil_apply_refused:0"), "no change was refused");
    }
}

#[test]
fn snapshots_of_earlier_versions_mean_the_same() {
    assert_understood("snapshot.bin", "dump.rdb", Options::default);
}

#[test]
fn changes_of_earlier_versions_mean_the_same() {
    assert_understood("changes.bin", "appendonly.aof", || Options::default().config("appendonly", "yes"));
}
