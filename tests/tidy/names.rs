//! The name of a test is a sentence of at most ten words.

use std::collections::BTreeMap;

use crate::debts::Debts;
use crate::source::{files, read};

const WORDS_MAX: usize = 10;

const PLACES: [(&str, &[&str]); 9] = [
    ("core", &["core"]),
    ("wire", &["wire"]),
    ("sdk-rust", &["sdk-rust"]),
    ("sdk-python", &["sdk-python"]),
    ("sdk-node", &["sdk-node"]),
    ("cli", &["cli"]),
    ("gateway", &["gateway"]),
    ("tests", &["tests", "module", "examples"]),
    ("benches", &["benches"]),
];

/// The function after `#[test]`, `#[tokio::test]` and the like, also in `proptest!`.
fn in_rust(text: &str) -> Vec<String> {
    let (mut names, mut is_next) = (Vec::new(), false);
    for line in text.lines().map(str::trim_start) {
        is_next |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        if is_next && let Some((_, after)) = line.split_once("fn ") {
            names.extend(after.split(['(', '<']).next().map(str::to_owned));
            is_next = false;
        }
    }
    names
}

/// `def test_...`.
fn in_python(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let name = line.trim_start().trim_start_matches("async ").strip_prefix("def test_")?;
        name.split('(').next().map(str::to_owned)
    };
    text.lines().filter_map(line).collect()
}

/// `test('...', ...)` and `onBoth(test, '...', ...)`. What a template puts in counts as one word.
fn in_javascript(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        let Some(rest) = line.strip_prefix("test(").or_else(|| line.strip_prefix("onBoth(test, ")) else { continue };
        let Some(quote) = rest.chars().next().filter(|first| ['\'', '"', '`'].contains(first)) else { continue };
        let Some((name, _)) = rest[1..].split_once(quote) else { continue };
        let mut depth = 0;
        let flat = name.chars().filter(|letter| {
            depth += usize::from(*letter == '{');
            let is_shown = depth == 0;
            depth -= usize::from(*letter == '}' && depth > 0);
            is_shown
        });
        names.push(flat.collect());
    }
    names
}

fn words_of(name: &str) -> usize {
    name.split(['_', ' ']).filter(|word| !word.is_empty()).count()
}

#[test]
fn names_of_tests_have_at_most_ten_words() {
    let mut long = BTreeMap::new();
    for (place, folders) in PLACES {
        for file in files(folders, &[".rs", ".py", ".mjs", ".mts", ".ts"]) {
            if file.starts_with("tests/upgrade") || file.to_string_lossy().contains("/dist/") {
                continue;
            }
            let text = read(&file);
            let names = match file.extension().and_then(|ending| ending.to_str()) {
                Some("rs") => in_rust(&text),
                Some("py") => in_python(&text),
                _ => in_javascript(&text),
            };
            let count = names.iter().filter(|name| words_of(name) > WORDS_MAX).count();
            if count > 0 {
                *long.entry(place.to_owned()).or_default() += count;
            }
        }
    }
    Debts::compare("names of tests of more than ten words", long);
}

#[test]
fn names_are_found_in_every_language() {
    let rust = "#[tokio::test(start_paused = true)]\nasync fn one() {}\n #[test]\n // Why.\n fn two(a in 0..3u8) {}\nfn other() {}";
    assert_eq!(in_rust(rust), ["one", "two"]);
    assert_eq!(in_python("def test_one(a):\n  async def test_two():\ndef other():"), ["one", "two"]);
    let node = "test('one of ${a} here', () => {\nonBoth(test, `two`, async () => {\ntest(name, 1)";
    assert_eq!(in_javascript(node), ["one of $ here", "two"]);
    assert_eq!((words_of("one_of_three"), words_of("one of $ here")), (3, 4));
}
