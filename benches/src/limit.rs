//! The true limit: the same calls to a module that replies the same and does nothing (`benches/noop`).
//!
//! What a row reaches of its no-op is what Resil could still gain; the rest is the server's own price.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::catalogue as row;
use crate::cell::artefact;
use crate::flights::rows as flight;
use crate::load::{Load, Place};
use crate::locks::pairs;

/// The hot rows, and their no-ops: `compare no-op` runs the second alone.
pub const ROWS: [(&str, &str); 10] = [
    (row::GRANTED, "no-op of RES.GCRA, granted"),
    (row::BREAKER_PAIR, "no-op of breaker: ADMIT, REPORT"),
    (row::BREAKER_TALLY, "no-op of breaker: TALLY"),
    (pairs::OURS, "no-op of lock: ACQUIRE, RELEASE"),
    (flight::ONCE, "no-op of idemp: ONCE, new"),
    (flight::RUN, "no-op of idemp: BEGIN, COMMIT"),
    (flight::REPLAY, "no-op of idemp: BEGIN, committed"),
    (flight::GET_OURS, "no-op of flight: RES.SFLIGHT GET, fresh"),
    (flight::JOIN, "no-op of flight: JOIN, fresh"),
    (flight::LOAD, "no-op of flight: JOIN, PUBLISH"),
];

/// For each hot row among `loads` the same calls to the no-op.
pub fn loads(loads: &[Load]) -> Vec<Load> {
    let of = |name: &str| loads.iter().find(|load| load.name == name);
    ROWS.iter().filter_map(|(row, name)| Some(Load { name, place: Place::Noop, ..of(row)?.clone() })).collect()
}

/// The module file, or why there is none.
pub fn module() -> Result<PathBuf, String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--package", "resil-noop", "--message-format=json"])
        .current_dir(workspace)
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    let messages = String::from_utf8_lossy(&built.stdout);
    let mut files = messages.lines().filter_map(|message| artefact(message, "resil_noop"));
    files.next_back().ok_or_else(|| "cargo names no module file".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_op_is_named_after_its_row() {
        for (row, name) in ROWS {
            assert_eq!(name, format!("no-op of {row}"));
        }
    }
}
