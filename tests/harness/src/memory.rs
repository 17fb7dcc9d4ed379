//! How a server's memory is watched: what it frees is filled with junk, always, and under valgrind every access is checked.
//!
//! A use of freed memory mostly goes unnoticed, because the bytes are still there. Filled with junk, a stale pointer leads
//! nowhere and the server crashes, which fails the test. Measurements switch it off with `RESIL_ALLOCATOR=plain`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// jemalloc reads the first two (which one depends on how it was built), glibc the third.
const FILL: [(&str, &str); 3] =
    [("MALLOC_CONF", "junk:true"), ("JE_MALLOC_CONF", "junk:true"), ("MALLOC_PERTURB_", "165")];

/// Environment variables for a server: they make its allocator fill what it hands out and what it takes back.
pub(crate) fn fill() -> &'static [(&'static str, &'static str)] {
    if env::var_os("RESIL_ALLOCATOR").is_some_and(|kind| kind == "plain") { &[] } else { &FILL }
}

/// `program` with `args`, as valgrind starts it; errors go to files in `folder`.
///
/// The server's jemalloc is replaced as the C library's allocator is, so that each of its blocks is known. Launchers that
/// end in `exec` are followed. A fork that writes a snapshot is not watched: what it touches, the server touches too.
pub(crate) fn under_valgrind(program: &Path, args: Vec<String>, folder: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["-q", "--tool=memcheck", "--trace-children=yes", "--child-silent-after-fork=yes", "--num-callers=24"]
            .map(OsString::from)
            .into();
    words.push("--soname-synonyms=somalloc=libjemalloc*".into());
    let mut log = OsString::from("--log-file=");
    log.push(folder.join("valgrind.%p"));
    words.extend([log, program.into()]);
    words.extend(args.into_iter().map(OsString::from));
    words
}

/// What valgrind found so far. Quiet as it is asked to be, it writes nothing but errors.
pub(crate) fn found_by_valgrind(folder: &Path) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let logs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("valgrind."));
    let texts = logs.filter_map(|log| fs::read(log.path()).ok());
    texts.map(|text| String::from_utf8_lossy(&text).into_owned()).collect()
}
