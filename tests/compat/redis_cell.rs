//! The real redis-cell, as a module in a server.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use resil_harness::{Flavor, Options};

use crate::engine::resp::{Client, words};
use crate::engine::seed::say;
use crate::engine::server_state::must;

/// The module file that cargo built from the crate, newest first. It is linked against Rust's own shared library, which
/// `cargo test` puts on the path of every process it starts.
pub fn module_file() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has a file");
    let folder = exe.parent().expect("in a folder");
    let files = std::fs::read_dir(folder).expect("that can be read").flatten();
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libredis_cell-"));
    let modules =
        files.map(|file| file.path()).filter(|path| named(path) && path.extension().is_some_and(|e| e == "so"));
    let newest = modules.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    newest.unwrap_or_else(|| panic!("no libredis_cell-*.so in {}: run this by `cargo test`", folder.display()))
}

/// A server with redis-cell instead of us. `None`, said aloud, where it cannot run: servers that are started through
/// a loader of their own do not see Rust's shared library.
pub fn options() -> Option<Options> {
    let flavor = Flavor::from_env();
    let launcher = std::fs::read(flavor.program()).unwrap_or_default();
    if launcher.windows(14).any(|part| part == b"--library-path") {
        say(&format!("skipped: {} runs with its own libraries, redis-cell cannot be loaded into it", flavor.name()));
        return None;
    }
    Some(Options::default().module_path(module_file()))
}

/// Puts a string as redis-cell leaves it: an arrival time so many seconds ahead, and its time to live.
pub fn leave_string(client: &mut Client, key: &str, seconds_ahead: u64) {
    let tat_ns = (now_us() + seconds_ahead * 1_000_000) * 1_000;
    must(client, &format!("SET {key} {tat_ns} EX {seconds_ahead}"));
}

/// The five integers of a reply.
#[track_caller]
pub fn throttle(client: &mut Client, line: &str) -> [i64; 5] {
    let reply = client.call(&words(format!("CL.THROTTLE {line}").split(' ')));
    let numbers = reply.integers().and_then(|numbers| <[i64; 5]>::try_from(numbers).ok());
    numbers.unwrap_or_else(|| panic!("CL.THROTTLE {line}: {reply:?}"))
}

pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_micros() as u64
}
