//! Whatever one side writes as words the other parses to the same command, with every option it can have.
//!
//! How to repeat a failing run: see `seed`.

#[allow(dead_code)] // not every test needs all of it
mod arbitrary;
mod presentable;
#[path = "../../core/tests/seed/mod.rs"]
mod seed;

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::command;
use presentable::{check, is_presentable};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use resil_core::Span;
use resil_wire::command::{Allowed, Command, PAGES};
use resil_wire::pages::BREAKER_OPTIONS;

/// Words as a server has them. Leaked, as everything is that a command borrows here.
fn slices(words: Vec<Vec<u8>>) -> &'static [&'static [u8]] {
    words.into_iter().map(|word| &*word.leak()).collect::<Vec<_>>().leak()
}

fn typed(line: &str) -> Result<String, resil_wire::Refused> {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    Command::parse(&words, Allowed::default()).map(|command| format!("{command:?}"))
}

/// Many commands, the same in every run: what is said of all of them must not depend on luck.
fn samples() -> impl Iterator<Item = Command<'static>> {
    let mut runner = TestRunner::deterministic();
    let strategy = command();
    (0..20_000).map(move |_| strategy.new_tree(&mut runner).expect("a command").current())
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn a_command_parses_to_what_was_encoded(command in command()) {
        let mut words = command.words();
        for lower in [false, true] {
            if lower {
                words.iter_mut().take(2).filter(|word| Some(word.as_slice()) != command.key()).for_each(|word| word.make_ascii_lowercase());
            }
            let parsed = Command::parse(slices(words.clone()), Allowed::CEILING);
            prop_assert!(parsed.as_ref() == Ok(&command), "{:?} instead of {:?}", parsed, command);
        }
    }

    #[test]
    fn a_command_says_its_key_and_its_wait(command in command()) {
        let words = command.words();
        let name: Vec<&str> = command.name().split(' ').collect();
        prop_assert!(words.iter().zip(&name).all(|(word, name)| word == name.as_bytes()));
        let index = name.len() + usize::from(matches!(command, Command::Mgcra(_)));
        // The document that is only checked belongs to no key, and what is listed is not known by one.
        let is_keyless = matches!(command, Command::PolicyCheck(_) | Command::List(_) | Command::Top(_));
        let key = words.get(index).filter(|_| !is_keyless);
        prop_assert_eq!(command.key(), key.map(Vec::as_slice));
        let options: Vec<&[u8]> = words.iter().skip(index + 1).map(Vec::as_slice).collect();
        let waits = options.windows(2).position(|pair| pair[0] == b"WAIT").map(|at| &options[at + 1..]);
        if let Some(wait) = command.waits() {
            prop_assert_eq!(waits.and_then(|words| resil_wire::duration::parse(words[0])), Some(wait));
        } else {
            prop_assert!(waits.is_none_or(|words| words.get(1) == Some(&&b"ASYNC"[..])), "{:?} blocks nobody", waits);
        }
    }

    #[test]
    fn no_words_do_worse_than_be_refused(
        command in command(),
        noise in vec(prop_oneof![vec(any::<u8>(), 0..9), Just(b"AND".to_vec()), Just(b"WAIT".to_vec()), Just(b"5".to_vec())], 0..5),
        kept in 0..10usize,
    ) {
        let mut words = command.words();
        words.truncate(kept);
        words.extend(noise);
        match Command::parse(slices(words), Allowed::default()) {
            // Whatever was taken can be said again.
            Ok(parsed) => {
                let again = Command::parse(slices(parsed.words()), Allowed::default());
                prop_assert!(again.as_ref() == Ok(&parsed), "{:?} instead of {:?}", again, parsed);
            }
            Err(refused) => prop_assert!(is_presentable(&refused, 450), "{}", refused),
        }
    }
}

#[test]
fn every_command_and_every_word_of_its_usage_is_exercised() {
    let mut said: BTreeMap<&str, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for command in samples() {
        let words = command.words().into_iter().filter(|word| Some(word.as_slice()) != command.key());
        said.entry(command.name()).or_default().extend(words);
    }
    let mut words_checked = 0;
    for page in PAGES {
        let (name, usage) = (page.name, page.usage);
        assert!(said.contains_key(name), "no command for {usage}");
        let usage = match usage.split_once("options") {
            Some((usage, _)) => format!("{usage}{}", BREAKER_OPTIONS),
            None => usage.to_owned(),
        };
        let words = usage.strip_prefix(name).expect("its name").split(|letter: char| !letter.is_ascii_alphabetic());
        for word in words.filter(|word| word.len() > 1 && word.bytes().all(|letter| letter.is_ascii_uppercase())) {
            // What is the default is never written.
            let default = name == "RES.IDEMP BEGIN" && word == "RUN";
            assert_eq!(said[name].contains(word.as_bytes()), !default, "{name}: {word}");
            words_checked += 1;
        }
    }
    assert_eq!(said.len(), PAGES.len());
    assert!(words_checked > 90, "{words_checked}");
    assert!(said["CL.THROTTLE"].contains(b"0".as_slice()), "a quantity");
}

#[test]
fn an_option_equal_to_its_default_is_not_written() {
    for line in [
        "RES.GCRA k 10 1m",
        "RES.GCRA.PEEK k 10 1m AND 100 1h",
        "RES.WINDOW k 10 1m",
        "CL.THROTTLE k 15 30 60",
        "RES.BREAKER ADMIT k",
        "RES.BREAKER REPORT k 0.1.2 OK",
        "RES.BREAKER TALLY k 0 me 1 OK 1 FAIL 0",
        "RES.BREAKER FORCE k AUTO",
        "RES.LOCK ACQUIRE k o 30s",
        "RES.LOCK RENEW k o 30s",
        "RES.LOCK INFO k",
        "RES.BULKHEAD ENTER k o 5 30s",
        "RES.IDEMP BEGIN k t 30s",
        "RES.IDEMP ONCE k 1d",
        "RES.SFLIGHT JOIN k t 30s",
        "RES.SFLIGHT PUBLISH k t 1m VALUE v",
        "RES.SFLIGHT INVALIDATE k",
        "RES.HEARTBEAT",
        "RES.DLQ FAIL k i ERROR e",
        "RES.DLQ TAKE k t 30s",
        "RES.DLQ RETURN k i 7",
        "RES.DLQ GET k i",
        "RES.DLQ LIST k",
        "RES.DLQ INFO k",
        "RES.DLQ REDRIVE k 1",
        "RES.DLQ PURGE k OLDER 90d",
    ] {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let command = Command::parse(&words, Allowed::default()).expect(line);
        assert_eq!(command.words().join(b" ".as_slice()), line.as_bytes());
        assert_eq!(command.waits(), None);
    }
    // The defaults spelled out.
    for (given, written) in [
        ("RES.GCRA k 10 60s BURST 10 COST 1", "RES.GCRA k 10 1m"),
        ("CL.THROTTLE k 15 30 60 1", "CL.THROTTLE k 15 30 60"),
        ("RES.BREAKER TALLY k 0 me 1 OK 1 FAIL 0 SLOW 0 RUN 0", "RES.BREAKER TALLY k 0 me 1 OK 1 FAIL 0"),
        ("res.lock info k limit 100", "RES.LOCK INFO k"),
        ("RES.BULKHEAD ENTER k o 5 30s WAIT 0 QUEUE 5 PRIORITY 5", "RES.BULKHEAD ENTER k o 5 30s"),
        ("RES.IDEMP BEGIN k t 30s ONLAPSE RUN KEEP 24h WAIT 0", "RES.IDEMP BEGIN k t 30s"),
        ("RES.SFLIGHT PUBLISH k t 1m VALUE v STALE 0", "RES.SFLIGHT PUBLISH k t 1m VALUE v"),
        ("RES.DLQ FAIL k i PRIOR 0 ERROR e", "RES.DLQ FAIL k i ERROR e"),
        ("RES.DLQ TAKE k t 30s COUNT 1 WAIT 0", "RES.DLQ TAKE k t 30s"),
        ("RES.DLQ RETURN k DELAY 0 i 7", "RES.DLQ RETURN k i 7"),
        ("RES.DLQ LIST k LIMIT 100 CURSOR 0", "RES.DLQ LIST k"),
        ("RES.DLQ REDRIVE k 1 FIRST 10", "RES.DLQ REDRIVE k 1"),
        ("RES.DLQ PURGE k LIMIT 1000 OLDER 2160h", "RES.DLQ PURGE k OLDER 90d"),
    ] {
        let words: Vec<&[u8]> = given.split(' ').map(str::as_bytes).collect();
        let command = Command::parse(&words, Allowed::default()).expect(given);
        assert_eq!(command.words().join(b" ".as_slice()), written.as_bytes());
    }
}

#[test]
fn options_are_written_in_words_that_people_write() {
    let line = "RES.BREAKER CONFIG k VERSION 3 WINDOW TIME 1m RATE 40 OPEN 1500ms FACTOR 1.05 MAX 2m";
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let command = Command::parse(&words, Allowed::default()).expect(line);
    assert_eq!(command.words().join(b" ".as_slice()), line.as_bytes());
}

#[test]
fn what_is_no_command_is_refused_by_name() {
    let refuses = |line: &str, part: &str| check(line, &typed(line).expect_err(line), 450, &[part]);
    assert!(Command::parse(&[], Allowed::default()).is_err());
    refuses("RES.NOTHING k", "unknown command 'RES.NOTHING'");
    refuses("GET k", "unknown command 'GET'");
    refuses("RES._APPLY k 1 x", "unknown command");
    refuses("RES.LOCK", "RES.LOCK needs a subcommand");
    refuses("RES.LOCK ENTER k", "unknown subcommand 'ENTER' of RES.LOCK");
    refuses("res.sflight help", "unknown subcommand 'help' of res.sflight");
    refuses("RES.HEARTBEAT now", "unexpected argument 'now'");
    refuses("RES.BREAKER CONFIG k", "missing options");
}

#[test]
fn the_servers_bounds_are_held_against_every_command() {
    let tight = Allowed {
        lease_max: Span::from_secs(10),
        wait_max: Span::from_secs(1),
        window_limit_max: 10,
        value_max: 3,
        payload_max: 4,
    };
    for (line, fits) in [
        ("RES.WINDOW k 10 1s", true),
        ("RES.WINDOW k 11 1s", false),
        ("RES.WINDOW.PEEK k 11 1s", false),
        ("RES.LOCK ACQUIRE k o 10s WAIT 1s", true),
        ("RES.LOCK ACQUIRE k o 11s", false),
        ("RES.LOCK RENEW k o 11s", false),
        ("RES.BULKHEAD ENTER k o 1 10s WAIT 2s", false),
        ("RES.BULKHEAD RENEW k o 11s", false),
        ("RES.IDEMP BEGIN k t 11s", false),
        ("RES.IDEMP RENEW k t 11s", false),
        ("RES.SFLIGHT JOIN k t 10s WAIT 2s", false),
        ("RES.SFLIGHT RENEW k t 11s", false),
        ("RES.SFLIGHT PUBLISH k t 1s VALUE abc", true),
        ("RES.SFLIGHT PUBLISH k t 1s VALUE abcd", false),
        ("RES.DLQ TAKE k t 10s WAIT 1s", true),
        ("RES.DLQ TAKE k t 11s", false),
        ("RES.DLQ TAKE k t 10s WAIT 2s", false),
        ("RES.DLQ RENEW k t 11s", false),
        ("RES.DLQ FAIL k i ERROR e PAYLOAD abcd", true),
        ("RES.DLQ FAIL k i ERROR e PAYLOAD abcde", false),
        ("RES.DLQ PARK k i AGGREGATE a PAYLOAD abcde", false),
        ("RES.DLQ PARK k i AGGREGATE a REF abcde", true),
    ] {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        assert_eq!(Command::parse(&words, tight).is_ok(), fits, "{line}");
        assert!(Command::parse(&words, Allowed::CEILING).is_ok(), "{line}");
    }
}
