//! Whatever is wrong with a call is said with the argument's name, what was given and what is allowed, on one short
//! printable line; and nothing a client sends can do worse than be refused.
//!
//! How to repeat a failing run: see `seed`.

#[path = "../../core/tests/seed/mod.rs"]
mod seed;

use proptest::collection::vec;
mod presentable;

use presentable::{check, is_presentable};
use proptest::prelude::*;
use resil_wire::apply;
use resil_wire::command::{Allowed, Command};
use resil_wire::throttle::parse_tat_ns;
use resil_wire::{Refused, duration};

const COMMANDS: [&str; 7] =
    ["RES.GCRA", "RES.GCRA.PEEK", "RES.MGCRA", "RES.WINDOW", "RES.WINDOW.PEEK", "CL.THROTTLE", "RES._APPLY"];

fn parse(command: &str, args: &[&[u8]]) -> Result<(), Refused> {
    if command == "RES._APPLY" {
        return apply::parse(args).map(drop);
    }
    let words = [&[command.as_bytes()], args].concat();
    Command::parse(&words, Allowed::DEFAULT).map(drop)
}

/// A call as one types it: words apart by spaces.
fn typed(line: &str) -> Result<(), Refused> {
    let mut words = line.split(' ');
    let command = words.next().expect("a command");
    let args: Vec<&[u8]> = words.map(str::as_bytes).collect();
    parse(command, &args)
}

/// Short enough for a log; the longest shows a whole usage line.
const LEN_MAX: usize = 400;

#[track_caller]
fn refuses(line: &str, parts: &[&str]) {
    check(line, &typed(line).expect_err(line), LEN_MAX, parts);
}

const CELLS: &str = "from 1 to 1000000000";
const PERIOD: &str = "from 1us to 366d";

#[test]
fn what_is_missing_is_named_and_the_usage_shown() {
    let usage = "usage: RES.GCRA key limit period";
    refuses("RES.GCRA", &["missing key", usage]);
    refuses("RES.GCRA k", &["missing limit", usage]);
    refuses("RES.GCRA k 10", &["missing period", usage]);
    for option in ["BURST", "COST", "UPTO", "RESERVE", "REFUND"] {
        refuses(&format!("RES.GCRA k 10 1s {option}"), &[&format!("missing {option}"), usage]);
    }
    refuses("RES.GCRA k 10 1s AND", &["missing limit", usage]);
    refuses("RES.GCRA k 10 1s AND 5", &["missing period", usage]);
    refuses("RES.GCRA.PEEK k 10", &["missing period", "usage: RES.GCRA.PEEK"]);
    refuses("RES.MGCRA", &["missing cost", "usage: RES.MGCRA"]);
    refuses("RES.MGCRA 1", &["missing key", "usage: RES.MGCRA"]);
    refuses("RES.MGCRA 1 a 10 1s", &["missing burst", "usage: RES.MGCRA"]);
    refuses("RES.MGCRA 1 a 10 1s 10 b", &["missing limit", "usage: RES.MGCRA"]);
    refuses("RES.WINDOW k 10", &["missing period", "usage: RES.WINDOW key"]);
    refuses("RES.WINDOW k 10 1s COST", &["missing COST", "usage: RES.WINDOW key"]);
    refuses("RES.WINDOW.PEEK k", &["missing limit", "usage: RES.WINDOW.PEEK"]);
    refuses("CL.THROTTLE", &["missing key", "usage: CL.THROTTLE"]);
    refuses("CL.THROTTLE k 15", &["missing count", "usage: CL.THROTTLE"]);
    refuses("CL.THROTTLE k 15 30", &["missing period_seconds", "usage: CL.THROTTLE"]);
    refuses("RES._APPLY k 1", &["missing bytes", "usage: RES._APPLY"]);
}

#[test]
fn what_is_surplus_is_shown() {
    refuses("RES.GCRA k 10 1s hello", &["unexpected argument 'hello'", "usage: RES.GCRA key"]);
    refuses("RES.GCRA k 10 1s COST 1 2", &["unexpected argument '2'"]);
    refuses("RES.GCRA.PEEK k 10 1s COST 1", &["unexpected argument 'COST'", "usage: RES.GCRA.PEEK"]);
    refuses("RES.WINDOW k 10 1s REFUND 1", &["unexpected argument 'REFUND'", "usage: RES.WINDOW key"]);
    refuses("RES.WINDOW k 10 1s BURST 1", &["unexpected argument 'BURST'"]);
    refuses("RES.WINDOW.PEEK k 10 1s UPTO 1", &["unexpected argument 'UPTO'", "usage: RES.WINDOW.PEEK"]);
    refuses("CL.THROTTLE k 15 30 60 1 2", &["unexpected argument '2'", "usage: CL.THROTTLE"]);
}

#[test]
fn a_number_that_is_wrong_is_refused_with_bounds() {
    let not_counts = [
        "0",
        "-1",
        "1000000001",
        "9223372036854775808",
        "99999999999999999999999",
        "ten",
        "1.5",
        "1e3",
        "",
        "+1",
        "0x10",
        "007",
        "NaN",
        "inf",
    ];
    for bad in not_counts {
        let got = format!("got '{bad}'");
        refuses(&format!("RES.GCRA k {bad} 1s"), &["limit", CELLS, &got]);
        refuses(&format!("RES.GCRA k 10 1s AND {bad} 1m"), &["limit", CELLS, &got]);
        for option in ["BURST", "COST", "UPTO", "REFUND"] {
            refuses(&format!("RES.GCRA k 10 1s {option} {bad}"), &[option, CELLS, &got]);
        }
        refuses(&format!("RES.MGCRA {bad} k 10 1s 10"), &["cost", CELLS, &got]);
        refuses(&format!("RES.MGCRA 1 k {bad} 1s 10"), &["limit", CELLS, &got]);
        refuses(&format!("RES.MGCRA 1 k 10 1s {bad}"), &["burst", CELLS, &got]);
        refuses(&format!("RES.WINDOW k {bad} 1s"), &["limit", "from 1 to 100000", &got]);
        refuses(&format!("RES.WINDOW k 10 1s UPTO {bad}"), &["UPTO", CELLS, &got]);
        refuses(&format!("CL.THROTTLE k 15 {bad} 60"), &["count", CELLS, &got]);
    }
    refuses("RES.WINDOW k 100001 1s", &["limit", "from 1 to 100000", "got '100001'"]);
    refuses("CL.THROTTLE k -1 30 60", &["max_burst", "from 0 to 999999999", "got '-1'"]);
    refuses("CL.THROTTLE k 1000000000 30 60", &["max_burst", "from 0 to 999999999"]);
    for bad in ["0", "-1", "31622401", "60s", "x"] {
        refuses(
            &format!("CL.THROTTLE k 15 30 {bad}"),
            &["period_seconds", "from 1 to 31622400", &format!("got '{bad}'")],
        );
    }
    refuses("CL.THROTTLE k 15 30 60 1000000001", &["quantity", "from -1000000000 to 1000000000"]);
    refuses("RES._APPLY k 0 x", &["version", "from 1 to", "got '0'"]);
}

#[test]
fn a_duration_that_is_wrong_is_refused_with_bounds() {
    for bad in [
        "0",
        "0s",
        "-1s",
        "1.5s",
        "s",
        "",
        "1w",
        "1 s",
        "367d",
        "8785h",
        "9223372036854775807d",
        "99999999999999999999s",
        "ever",
        "01s",
    ] {
        let got = format!("got '{bad}'");
        let said = ["period", PERIOD, "an integer is milliseconds; suffixes us ms s m h d", &got];
        let args: [&[u8]; 3] = [b"k", b"10", bad.as_bytes()];
        for command in ["RES.GCRA", "RES.GCRA.PEEK", "RES.WINDOW", "RES.WINDOW.PEEK"] {
            let refused = parse(command, &args).expect_err(bad);
            assert!(
                is_presentable(&refused, LEN_MAX) && said.iter().all(|part| refused.text().contains(part)),
                "{refused}"
            );
        }
    }
    refuses("RES.GCRA k 10 1s RESERVE 0", &["RESERVE", "from 1us to 1d", "got '0'"]);
    refuses("RES.GCRA k 10 1s RESERVE 25h", &["RESERVE", "from 1us to 1d", "got '25h'"]);
}

#[test]
fn options_can_be_given_once_and_one_of_a_kind() {
    refuses("RES.GCRA k 10 1s COST 1 COST 1", &["COST", "UPTO", "RESERVE", "REFUND", "once"]);
    refuses("RES.GCRA k 10 1s COST 1 UPTO 1", &["only one of"]);
    refuses("RES.GCRA k 10 1s RESERVE 1s refund 1", &["only one of"]);
    refuses("RES.GCRA k 10 1s COST 2 RESERVE 1s COST 2", &["only one of", "COST can go with RESERVE"]);
    refuses("RES.GCRA k 10 1s UPTO 2 COST 2", &["only one of"]);
    refuses("RES.GCRA k 10 1s RESERVE 1s COST 2 UPTO 2", &["only one of"]);
    refuses("RES.GCRA k 10 1s BURST 5 BURST 5", &["BURST", "twice"]);
    refuses("RES.GCRA k 10 1s AND 10 1m BURST 5 burst 6", &["BURST", "twice"]);
    refuses("RES.WINDOW k 10 1s COST 1 UPTO 1", &["only one of COST and UPTO"]);
}

#[test]
fn tiers_are_at_most_eight_and_of_different_periods() {
    let tiers = |count: i32| (2..=count).map(|n| format!(" AND 10 {n}s")).collect::<String>();
    assert_eq!(typed(&format!("RES.GCRA k 10 1s{}", tiers(8))), Ok(()));
    refuses(&format!("RES.GCRA k 10 1s{}", tiers(9)), &["AND", "at most 8 tiers"]);
    refuses("RES.GCRA k 10 1s AND 5 1000ms", &["period 1s twice"]);
    refuses("RES.GCRA.PEEK k 10 1m AND 5 1s AND 7 60s", &["period 1m twice"]);
}

#[test]
fn a_bucket_that_would_take_years_to_fill_is_refused() {
    assert_eq!(typed("RES.GCRA k 1 1d BURST 3660"), Ok(()));
    refuses("RES.GCRA k 1 1d BURST 3661", &["burst", "3660d"]);
    refuses("RES.GCRA k 10 1s AND 1 366d BURST 11", &["burst", "3660d"]);
    refuses("RES.MGCRA 1 k 1 1d 3661", &["burst", "3660d"]);
    assert_eq!(typed("CL.THROTTLE k 3659 1 86400"), Ok(()));
    refuses("CL.THROTTLE k 3660 1 86400", &["burst", "3660d"]);
}

#[test]
fn mgcra_names_at_most_128_keys_each_once() {
    let keys = |count: i32| (0..count).map(|n| format!(" k{n} 10 1s 10")).collect::<String>();
    refuses("RES.MGCRA 1 a 10 1s 10 b 10 1s 10 a 5 1m 5", &["key 'a' is named twice"]);
    assert_eq!(typed(&format!("RES.MGCRA 1{}", keys(128))), Ok(()));
    refuses(&format!("RES.MGCRA 1{}", keys(129)), &["at most 128 keys"]);
}

#[test]
fn bytes_that_are_no_text_are_refused_briefly() {
    let megabyte = vec![b'9'; 1 << 20];
    let binary = [0, 0xff, b'\r', b'\n', 0x1b, b'\'', b'"', b'\\', 0x80, b'1'];
    for command in COMMANDS {
        for bad in [megabyte.as_slice(), &binary, b"1\0", b"\0", "\u{661}".as_bytes(), b"1\r\nERR no"] {
            for len in 2..=7 {
                for place in 1..len {
                    let mut args: Vec<&[u8]> = [b"1".as_slice(), b"1", b"1", b"1", b"1", b"1", b"1"][..len].to_vec();
                    args[place] = bad;
                    if let Err(refused) = parse(command, &args) {
                        assert!(is_presentable(&refused, LEN_MAX), "{command}: {refused}");
                    }
                }
            }
        }
    }
    let refused = parse("RES.GCRA", &[b"k", &megabyte, b"1s"]).expect_err("too large");
    assert!(refused.text().contains("(1048576 bytes)"), "{refused}");
    assert!(parse("RES.GCRA", &[&megabyte, b"10", b"1s"]).is_ok(), "a key may be anything");
    assert!(parse("RES.GCRA", &[b"", b"10", b"1s"]).is_ok(), "a key may be empty");
}

#[test]
fn a_string_without_redis_cells_arrival_time_is_not_adopted() {
    assert_eq!(parse_tat_ns(b"1800000000000000000"), Some(1_800_000_000_000_000_000));
    for text in ["", "hello", "0", "-1", "1.5", " 1", "9223372036854775808", "1\n"] {
        assert_eq!(parse_tat_ns(text.as_bytes()), None, "{text:?}");
    }
}

/// Words of the grammar, numbers, and anything else.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "BURST",
        "AND",
        "COST",
        "UPTO",
        "RESERVE",
        "REFUND",
        "burst",
        "10",
        "1",
        "1s",
        "2s",
        "1m",
        "60000",
        "-1",
        "0",
        "1000000000",
        "9223372036854775807",
        "366d",
        "1us",
    ]);
    prop_oneof![8 => known.prop_map(|word| word.as_bytes().to_vec()), 1 => vec(any::<u8>(), 0..60)]
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn arbitrary_arguments_never_panic_and_every_refusal_is_presentable(args in vec(word(), 0..=30)) {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        for command in COMMANDS {
            if let Err(refused) = parse(command, &args) {
                prop_assert!(is_presentable(&refused, LEN_MAX), "{}: {}", command, refused);
            }
        }
    }

    #[test]
    fn arbitrary_durations_never_panic(text in vec(any::<u8>(), 0..30), number in any::<u64>(), suffix in "[a-zA-Z]{0,3}") {
        duration::parse(&text);
        if let Some(span) = duration::parse(format!("{number}{suffix}").as_bytes()) {
            prop_assert!(span.as_us() >= 0);
        }
    }
}
