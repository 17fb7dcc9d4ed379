//! Folders of servers. A server that tests share is never dropped, so its folder stays behind. The start of the next one removes it.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A new folder `resil-<what>-<process>-…`. Those of processes that have ended are removed.
pub(crate) fn fresh_folder(what: &str) -> TempDir {
    let prefix = format!("resil-{what}-");
    for left in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if owner(&left.file_name().to_string_lossy(), &prefix).is_some_and(has_ended) {
            // Another process may be doing the same.
            let _ = fs::remove_dir_all(left.path());
        }
    }
    TempDir::with_prefix(format!("{prefix}{}-", std::process::id())).expect("a folder for a server")
}

fn owner(name: &str, prefix: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.split_once('-')?.0.parse().ok()
}

/// Where processes cannot be looked at, all folders stay.
fn has_ended(process: u32) -> bool {
    Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{process}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ended_processes_are_removed() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let of = |process: u32| TempDir::with_prefix(format!("resil-left-{process}-")).unwrap();
        let (left, own, foreign) =
            (of(ended.id()), of(std::process::id()), TempDir::with_prefix("resil-left-").unwrap());
        let fresh = fresh_folder("left");
        assert!(fresh.path().exists() && own.path().exists() && foreign.path().exists());
        assert!(!left.path().exists() || !Path::new("/proc/self").exists());
    }
}
