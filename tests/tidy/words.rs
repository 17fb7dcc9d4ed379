//! One vocabulary: the words of the field, in code, comments and pages. The glossary is in CONTRIBUTING.md.

use std::collections::BTreeMap;
use std::path::Path;

use crate::debts::Debts;
use crate::source::{files, read};

/// Words with another, common one in their place. Spaces stand for `_` as well, so that names of tests are read like prose.
const OLD_WORDS: [&str; 57] = [
    "whoever",
    "whichever",
    "unless said",
    "what is not said",
    "chore",
    "chores",
    "lent",
    "loan",
    "loans",
    "a leave",
    "the leave",
    "seat",
    "sit down",
    "desk",
    "papers",
    "tray",
    "trays",
    "lane",
    "lanes",
    "news",
    "told",
    "answer",
    "answers",
    "answering",
    "parked client",
    "parked clients",
    "parked waiter",
    "parked waiters",
    "first in line",
    "next in line",
    "wait in line",
    "waits in line",
    "place in line",
    "place in the queue",
    "join the line",
    "joins the line",
    "leave the line",
    "leaves the line",
    "left the line",
    "out of the line",
    "he",
    "his",
    "him",
    "as who",
    "by who",
    "for who",
    "from who",
    "of who",
    "than who",
    "to who",
    "with who",
    "goOn",
    "go_on",
    "beginNoMore",
    "look after",
    "looks after",
    "see to it",
];

const PLACES: [(&str, &[&str]); 14] = [
    ("core", &["core/src"]),
    ("wire", &["wire/src"]),
    ("module", &["module/src"]),
    ("sdk-rust", &["sdk-rust/src"]),
    ("sdk-python", &["sdk-python/src", "sdk-python/python", "sdk-python/README.md"]),
    ("sdk-node", &["sdk-node/src", "sdk-node/lib", "sdk-node/README.md"]),
    ("cli", &["cli", "deploy"]),
    ("gateway", &["gateway"]),
    ("tests", &["tests", "core/tests", "wire/tests", "sdk-rust/tests", "sdk-python/tests", "sdk-node/test"]),
    ("benches", &["benches"]),
    ("examples", &["examples"]),
    ("commands", &["commands"]),
    ("docs", &["docs", "README.md", "CONTRIBUTING.md"]),
    ("scripts", &["scripts", "Makefile", ".ci"]),
];

/// What was not written by hand, or is compared byte by byte.
fn is_made(file: &Path) -> bool {
    let name = file.to_string_lossy();
    name.contains("/dist/")
        || [".bin", ".lock", "package-lock.json", ".proptest-regressions"].iter().any(|end| name.ends_with(end))
}

/// How often `text` has `word` on its own, in prose or as a part of a name: `take_chores`, `ChoresOf`.
fn occurrences(text: &str, word: &str) -> usize {
    let mut text = text.to_lowercase();
    if word.contains(' ') {
        text = text.replace('_', " ");
    }
    let bytes = text.as_bytes();
    let is_letter = |at: Option<&u8>| at.is_some_and(u8::is_ascii_lowercase);
    text.match_indices(&word.to_lowercase())
        .filter(|(at, found)| {
            !is_letter(at.checked_sub(1).and_then(|before| bytes.get(before)))
                && !is_letter(bytes.get(at + found.len()))
        })
        .count()
}

#[test]
fn the_words_are_those_of_the_glossary() {
    let mut found = BTreeMap::new();
    for (place, folders) in PLACES {
        let all: Vec<&str> = folders.to_vec();
        for file in files(&all, &[".rs", ".py", ".pyi", ".js", ".mjs", ".ts", ".md", ".json", ".toml", "Makefile", ""])
        {
            if file.starts_with("tests/tidy") || file.starts_with("tests/upgrade") || is_made(&file) {
                continue;
            }
            let Ok(text) = std::fs::read_to_string(crate::source::workspace().join(&file)) else { continue };
            for word in OLD_WORDS {
                let count = occurrences(&text, word);
                if count > 0 {
                    *found.entry(format!("{place}: {word}")).or_default() += count;
                }
            }
        }
    }
    Debts::compare("words with a better one in the glossary", found);
}

#[test]
fn a_word_is_found_in_prose_and_names_whole() {
    assert_eq!(occurrences("A seat. take_seat(Seat) seated", "seat"), 3);
    assert_eq!(occurrences("silent, lent", "lent"), 1);
    assert_eq!(occurrences("fn a_caller_first_in_line() // is the first in line.", "first in line"), 2);
    assert_eq!(occurrences("goes to whom it may, goes to who asks", "to who"), 1);
}

/// The project speaks of itself alone.
#[test]
fn no_path_of_a_machine_and_no_registry_is_named() {
    for file in files(&["."], &[".rs", ".py", ".js", ".mjs", ".ts", ".md", ".json", ".toml", "Makefile"]) {
        if file.starts_with("tests/tidy") {
            continue;
        }
        let text = read(&file);
        for path in ["/root/", "/work/main", "index.crates.io", "registry.npmjs.org", "pypi.org/simple"] {
            assert!(!text.contains(path), "{} names {path}", file.display());
        }
    }
}
