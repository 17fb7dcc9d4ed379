//! Which crate may use which: the table of CONTRIBUTING.md.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::source::workspace;

/// What a crate must never depend on, tests aside.
const FORBIDDEN: [(&str, &[&str]); 8] = [
    ("resil-core", &["tokio", "rand", "fastrand", "redis", "redis-module", "resil-wire", "resil", "std-time"]),
    ("resil-wire", &["tokio", "redis", "redis-module", "rand", "resil", "futures-util"]),
    ("resil-module", &["tokio", "redis", "resil", "pyo3", "napi"]),
    ("resil", &["redis-module", "pyo3", "napi", "resil-module"]),
    ("resil-python", &["redis-module", "redis", "resil-core", "resil-wire", "resil-module", "napi"]),
    ("resil-node", &["redis-module", "redis", "resil-core", "resil-wire", "resil-module", "pyo3"]),
    ("resil-gateway", &["redis-module", "redis", "resil-core", "resil-wire", "resil-module", "pyo3", "napi"]),
    ("resil-cli", &["redis-module", "redis", "resil-core", "resil-wire", "resil-module", "pyo3", "napi"]),
];

fn packages() -> Vec<Value> {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(workspace())
        .output()
        .expect("cargo describes the workspace");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let all: Value = serde_json::from_slice(&cargo.stdout).expect("JSON");
    all["packages"].as_array().expect("packages").clone()
}

#[test]
fn a_crate_uses_only_what_its_room_may_use() {
    let packages = packages();
    for (name, forbidden) in FORBIDDEN {
        let package = packages.iter().find(|package| package["name"] == name);
        let package = package.unwrap_or_else(|| panic!("there is a crate {name}"));
        let uses: BTreeSet<&str> = package["dependencies"]
            .as_array()
            .expect("dependencies")
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .filter_map(|dependency| dependency["name"].as_str())
            .collect();
        let wrong: Vec<&&str> = forbidden.iter().filter(|name| uses.contains(**name)).collect();
        assert!(wrong.is_empty(), "{name} must not depend on {wrong:?}");
    }
}
