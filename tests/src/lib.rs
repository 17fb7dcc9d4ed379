//! What the tests share: the conformance vectors of `tests/vectors`, the pages of `commands/`, and how files of earlier
//! versions are looked at.

pub mod old_files;
pub mod vectors;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// Every page of commands/ by the name of its command, those of subcommands included: `RES.LOCK|ACQUIRE`.
pub fn pages() -> BTreeMap<String, Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../commands");
    let files = std::fs::read_dir(folder).expect("commands/").map(|entry| entry.expect("a file").path());
    // The lists of errors and handles lie beside the pages and describe no command.
    let files = files.filter(|path| !path.ends_with("errors.json") && !path.ends_with("handles.json"));
    let mut pages = BTreeMap::new();
    for path in files {
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let page: Value = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let subcommands = page["subcommands"].as_array().cloned().unwrap_or_default();
        for page in subcommands.into_iter().chain([page]) {
            pages.insert(page["name"].as_str().expect("a name").to_owned(), page);
        }
    }
    pages
}
