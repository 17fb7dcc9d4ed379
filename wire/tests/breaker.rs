//! `RES.BREAKER` as it is typed and answered: bad options are refused whole, with the option named and what is allowed;
//! replies have the promised shape.
//!
//! How to repeat a failing run: see `seed`.

#[path = "../../core/tests/seed/mod.rs"]
mod seed;

use proptest::collection::vec;
mod presentable;

use presentable::{check, is_presentable};
use proptest::prelude::*;
use resil_core::circuit_breaker::{
    Batch, Breaker, Caller, Force, Patch, Report, Tally, WindowKind, admit, configure, force, report, tally, view,
};
use resil_core::{Instant, Span};
use resil_wire::Refused;
use resil_wire::argv::Argv;
use resil_wire::breaker::state::write_state;
use resil_wire::breaker::{Admit, Admitted, ConfigCall, Counted, ForceCall, ReportCall, TallyCall};
use resil_wire::command::{Allowed, Arguments, Page};
use resil_wire::pages::{
    BREAKER_ADMIT, BREAKER_CONFIG, BREAKER_FORCE, BREAKER_HELP_LINES, BREAKER_REPORT, BREAKER_RESET, BREAKER_STATE,
    BREAKER_TALLY,
};
use resil_wire::reply::Value;

const NOW: Instant = Instant::from_us(1_800_000_000_000_000);
const SUBCOMMANDS: [&str; 7] = ["ADMIT", "REPORT", "TALLY", "STATE", "FORCE", "RESET", "CONFIG"];

fn parse<'a, A: Arguments<'a>>(args: &'a [&'a [u8]], page: &'static Page) -> Result<A, Refused> {
    A::parse(Argv::new(args, page), &Allowed::DEFAULT)
}

/// Parses, and does what is asked to a breaker nobody configured.
fn run(subcommand: &str, args: &[&[u8]]) -> Result<(), Refused> {
    let mut breaker = Breaker::default();
    let before = breaker.clone();
    let result = match subcommand {
        "ADMIT" => parse(args, &BREAKER_ADMIT).and_then(|call: Admit<'_>| {
            let options = call.options.as_ref().map(|options| (&options.patch, options.version));
            admit(&mut breaker, call.caller(), options, 0, NOW).map(drop).map_err(Refused::new)
        }),
        "CONFIG" => parse(args, &BREAKER_CONFIG).and_then(|call: ConfigCall<'_>| {
            configure(&mut breaker, &call.options.patch, call.options.version, NOW).map(drop).map_err(Refused::new)
        }),
        "REPORT" => parse(args, &BREAKER_REPORT)
            .map(|call: ReportCall<'_>| drop(report(&mut breaker, call.permit, call.report, call.duration, NOW))),
        "TALLY" => parse(args, &BREAKER_TALLY).map(|call: TallyCall<'_>| drop(tally(&mut breaker, call.tally(), NOW))),
        "FORCE" => parse(args, &BREAKER_FORCE).map(|call: ForceCall<'_>| {
            let said = (call.actor.unwrap_or_default(), call.reason.unwrap_or_default());
            drop(force(&mut breaker, call.force, call.length, said, NOW));
        }),
        "STATE" => parse::<&[u8]>(args, &BREAKER_STATE).map(drop),
        "RESET" => parse::<&[u8]>(args, &BREAKER_RESET).map(drop),
        other => panic!("no subcommand {other}"),
    };
    assert!(result.is_ok() || breaker == before, "{subcommand} was refused, but changed something");
    result
}

/// A call as one types it: words apart by spaces.
fn typed(line: &str) -> Result<(), Refused> {
    let mut words = line.split(' ');
    let subcommand = words.next().expect("a subcommand");
    let args: Vec<&[u8]> = words.map(str::as_bytes).collect();
    run(subcommand, &args)
}

/// Short enough for a log; the longest shows a whole usage line.
const LEN_MAX: usize = 450;

#[track_caller]
fn refuses(line: &str, parts: &[&str]) {
    check(line, &typed(line).expect_err(line), LEN_MAX, parts);
}

/// The same options are refused on ADMIT and on CONFIG.
#[track_caller]
fn refuses_options(options: &str, parts: &[&str]) {
    refuses(&format!("ADMIT k {options}"), parts);
    refuses(&format!("CONFIG k {options}"), parts);
}

#[track_caller]
fn takes(line: &str) {
    assert_eq!(typed(line), Ok(()), "{line}");
}

#[test]
fn every_option_is_taken_in_any_case_and_order() {
    takes("ADMIT k");
    takes("ADMIT k caller me version 3 window count 10");
    let all = "IDLE 1h RAMP 0 QUORUM 2 LEASE 5s SUCCESSES 1 PROBES 1 MAX 1m FACTOR 1.5 OPEN 10s MINCALLS 1 \
               CONSECUTIVE 0 SLOWRATE 100 SLOW 1us RATE 1 WINDOW TIME 100ms VERSION 1";
    takes(&format!("ADMIT k CALLER x {all}"));
    takes(&format!("CONFIG k {all}"));
    takes("CONFIG k VERSION 9223372036854775807");
    for factor in ["1", "1.0", "1.001", "2.5", "100", "100.000"] {
        takes(&format!("CONFIG k FACTOR {factor} MAX 1d"));
    }
    for outcome in ["OK", "FAIL", "IGNORE", "cancel"] {
        takes(&format!("REPORT k 0.1.2 {outcome} DURATION 0 CORRELATION c"));
    }
    takes("REPORT k no-permit-of-ours OK");
    takes("TALLY k 0 me 1 OK 10000 FAIL 10000 SLOW 10000 RUN 10000");
    takes("TALLY k 0 me 1 FAIL 0 OK 0");
    for state in ["OPEN", "closed", "DISABLED", "METRICS", "AUTO"] {
        takes(&format!("FORCE k {state} ACTOR a REASON r"));
    }
    takes("FORCE k OPEN FOR 1ms");
    takes("FORCE k OPEN FOR 1ms then probe ACTOR a");
    takes("FORCE k OPEN THEN PROBE FOR 1ms");
    takes("STATE k");
    takes("RESET k");
}

#[test]
fn what_is_missing_is_named_and_the_usage_shown() {
    for subcommand in SUBCOMMANDS {
        let refused = run(subcommand, &[]).expect_err(subcommand);
        assert!(refused.text().contains("missing key"), "{refused}");
        assert!(refused.text().contains(&format!("usage: RES.BREAKER {subcommand} key")), "{refused}");
    }
    refuses("REPORT k", &["missing permit", "usage: RES.BREAKER REPORT"]);
    refuses("REPORT k 0.1.2", &["missing outcome", "usage: RES.BREAKER REPORT"]);
    refuses("REPORT k 0.1.2 OK DURATION", &["missing DURATION"]);
    refuses("TALLY k", &["missing generation", "usage: RES.BREAKER TALLY"]);
    refuses("TALLY k 0", &["missing caller"]);
    refuses("TALLY k 0 me", &["missing seq"]);
    refuses("TALLY k 0 me 1", &["missing OK", "usage: RES.BREAKER TALLY"]);
    refuses("TALLY k 0 me 1 OK 1", &["missing FAIL", "usage: RES.BREAKER TALLY"]);
    refuses("TALLY k 0 me 1 FAIL 1", &["missing OK", "usage: RES.BREAKER TALLY"]);
    refuses("TALLY k 0 me 1 OK", &["missing OK"]);
    refuses("FORCE k", &["missing state", "usage: RES.BREAKER FORCE"]);
    refuses("FORCE k OPEN FOR", &["missing FOR"]);
    refuses("FORCE k OPEN FOR 1s THEN", &["missing THEN"]);
    refuses("CONFIG k", &["missing options", "WINDOW COUNT n", "IDLE d"]);
    for option in ["CALLER", "VERSION", "WINDOW", "RATE", "SLOW", "OPEN", "FACTOR", "PROBES", "IDLE"] {
        refuses(&format!("ADMIT k {option}"), &[&format!("missing {option}"), "usage: RES.BREAKER ADMIT"]);
    }
    refuses_options("WINDOW COUNT", &["missing WINDOW COUNT"]);
    refuses_options("WINDOW TIME", &["missing WINDOW TIME"]);
}

#[test]
fn what_is_unknown_is_shown() {
    for subcommand in ["ADMIT k", "CONFIG k RATE 1", "REPORT k p OK", "FORCE k OPEN", "TALLY k 0 me 1 OK 1 FAIL 1"] {
        let word = subcommand.split(' ').next().unwrap_or_default();
        refuses(
            &format!("{subcommand} HELLO 1"),
            &["unexpected argument 'HELLO'", &format!("usage: RES.BREAKER {word}")],
        );
    }
    refuses("STATE k x", &["unexpected argument 'x'", "usage: RES.BREAKER STATE"]);
    refuses("RESET k x", &["unexpected argument 'x'", "usage: RES.BREAKER RESET"]);
    refuses("CONFIG k CALLER me", &["unexpected argument 'CALLER'"]);
    refuses("REPORT k 0.1.2 MAYBE", &["outcome", "OK, FAIL, IGNORE or CANCEL", "got 'MAYBE'"]);
    refuses("FORCE k HALF-OPEN", &["state", "OPEN, CLOSED, DISABLED, METRICS or AUTO", "got 'HALF-OPEN'"]);
    refuses_options("WINDOW 10", &["WINDOW", "COUNT n or TIME d", "got '10'"]);
    refuses_options("WINDOW CALLS 10", &["WINDOW", "COUNT n or TIME d", "got 'CALLS'"]);
}

#[test]
fn numbers_out_of_bounds_are_refused_with_their_bounds() {
    let table: [(&str, &str, &[&str]); 9] = [
        ("WINDOW COUNT", "from 1 to 10000", &["0", "-1", "10001", "1.5", "ten", "", "007"]),
        ("RATE", "from 0 to 100", &["101", "-1", "50%", "49.5", "4294967346"]),
        ("SLOWRATE", "from 0 to 100", &["101", "-1", "all"]),
        ("CONSECUTIVE", "from 0 to 10000", &["-1", "10001", "9223372036854775808"]),
        ("MINCALLS", "from 1 to 1000000", &["0", "1000001"]),
        ("PROBES", "from 1 to 100", &["0", "101", "-3"]),
        ("SUCCESSES", "from 1 to 1000", &["0", "1001"]),
        ("QUORUM", "from 1 to 64", &["0", "65"]),
        ("VERSION", "from 1 to 9223372036854775807", &["0", "-1", "9223372036854775808", "1.0"]),
    ];
    for (option, bounds, bad) in table {
        for bad in bad {
            refuses_options(&format!("{option} {bad}"), &[option, bounds, &format!("got '{bad}'")]);
        }
    }
    for name in ["OK", "FAIL", "SLOW", "RUN"] {
        for bad in ["10001", "-1", "x"] {
            let others = ["OK", "FAIL"].iter().filter(|other| **other != name).map(|other| format!("{other} 5 "));
            let line = format!("TALLY k 0 me 1 {}{name} {bad}", others.collect::<String>());
            refuses(&line, &[name, "from 0 to 10000", &format!("got '{bad}'")]);
        }
    }
    refuses("TALLY k -1 me 1 OK 1 FAIL 1", &["generation", "from 0 to", "got '-1'"]);
    refuses("TALLY k 0 me x OK 1 FAIL 1", &["seq", "from 0 to", "got 'x'"]);
}

#[test]
fn durations_out_of_bounds_are_refused_with_their_bounds() {
    let table: [(&str, &str, &[&str]); 7] = [
        ("WINDOW TIME", "from 100ms to 1d", &["0", "99ms", "99999us", "25h", "-1s", "1.5s"]),
        ("SLOW", "from 1us to 1d", &["0", "2d", "x"]),
        ("OPEN", "from 1ms to 1d", &["0", "999us", "25h"]),
        ("MAX", "from 1ms to 1d", &["0", "2d"]),
        ("LEASE", "from 10ms to 1d", &["0", "9ms", "2d"]),
        ("RAMP", "from 0 to 1d", &["2d", "-1"]),
        ("IDLE", "from 1s to 30d", &["0", "999ms", "31d"]),
    ];
    for (option, bounds, bad) in table {
        for bad in bad {
            refuses_options(&format!("{option} {bad}"), &[option, bounds, "suffixes", &format!("got '{bad}'")]);
        }
    }
    refuses("REPORT k 0.1.2 OK DURATION 367d", &["DURATION", "from 0 to 366d"]);
    refuses("FORCE k OPEN FOR 0", &["FOR", "from 1ms to 366d", "got '0'"]);
}

#[test]
fn a_factor_has_three_places_from_one_to_hundred() {
    for bad in ["0.5", "0.999", "1.2345", "abc", "100.001", "101", "1000", "-2", "1.", ".5", "1,5", "1e2", "NaN", "inf"]
    {
        let said = ["FACTOR", "from 1 to 100 with at most three decimals", &format!("got '{bad}'")];
        refuses_options(&format!("FACTOR {bad}"), &said);
    }
}

#[test]
fn options_that_contradict_each_other_are_refused_whole() {
    refuses_options("OPEN 10s MAX 5s", &["MAX", "not be shorter than OPEN"]);
    refuses_options("FACTOR 2 MAX 29s", &["MAX", "OPEN"]);
    for no_room in ["FACTOR 2", "FACTOR 1.001 MAX 30s", "OPEN 1m FACTOR 2", "OPEN 10s MAX 10s FACTOR 100"] {
        refuses_options(no_room, &["FACTOR needs a MAX above OPEN"]);
    }
    takes("CONFIG k OPEN 10s FACTOR 2");
    takes("CONFIG k FACTOR 1 MAX 30s");
    let off = ["RATE", "SLOWRATE", "CONSECUTIVE"];
    refuses_options("RATE 0 CONSECUTIVE 0", &off);
    refuses_options("RATE 0 CONSECUTIVE 0 SLOWRATE 50", &off);
    refuses_options("RATE 0 CONSECUTIVE 0 SLOWRATE 0 SLOW 1s", &off);
    takes("CONFIG k RATE 0 CONSECUTIVE 0 SLOW 1s");
    refuses("TALLY k 0 me 1 OK 1 FAIL 2 SLOW 4", &["SLOW", "at most OK + FAIL = 3", "got 4"]);
    refuses("TALLY k 0 me 1 OK 1 FAIL 2 RUN 3", &["RUN", "at most FAIL = 2", "got 3"]);
    refuses("FORCE k AUTO FOR 1s", &["FOR", "AUTO"]);
}

#[test]
fn an_option_can_be_given_once() {
    for option in ["RATE 1", "WINDOW COUNT 5", "VERSION 2", "OPEN 1s", "IDLE 1h", "FACTOR 1", "SLOW 1s", "RAMP 1s"] {
        let name = option.split(' ').next().unwrap_or_default();
        refuses_options(&format!("{option} {option}"), &[name, "twice"]);
    }
    refuses("ADMIT k CALLER a caller b", &["CALLER", "twice"]);
    refuses("ADMIT k WINDOW COUNT 5 WINDOW TIME 1s", &["WINDOW", "twice"]);
    refuses("TALLY k 0 me 1 OK 1 FAIL 1 OK 1", &["OK", "twice"]);
    refuses("FORCE k OPEN ACTOR a ACTOR b", &["ACTOR", "twice"]);
    refuses("REPORT k p OK DURATION 1 DURATION 1", &["DURATION", "twice"]);
}

#[test]
fn texts_are_at_most_512_bytes() {
    let (fits, long) = ("x".repeat(512), "x".repeat(513));
    for (line, name) in [
        ("ADMIT k CALLER", "CALLER"),
        ("FORCE k OPEN ACTOR", "ACTOR"),
        ("FORCE k OPEN REASON", "REASON"),
        ("REPORT k p OK CORRELATION", "CORRELATION"),
    ] {
        takes(&format!("{line} {fits}"));
        refuses(&format!("{line} {long}"), &[name, "at most 512 bytes", "got 513"]);
    }
    refuses(&format!("REPORT k {long} OK"), &["permit", "at most 512 bytes"]);
    refuses(&format!("TALLY k 0 {long} 1 OK 1 FAIL 1"), &["caller", "at most 512 bytes"]);
}

#[test]
fn help_names_every_subcommand() {
    for subcommand in SUBCOMMANDS {
        assert!(
            BREAKER_HELP_LINES.iter().any(|line| line.starts_with(&format!("RES.BREAKER {subcommand} key"))),
            "{subcommand}"
        );
    }
}

fn text(value: &str) -> Value {
    Value::Text(value.as_bytes().to_vec())
}

#[test]
fn replies_have_the_promised_shape() {
    let mut breaker = Breaker::default();
    let asked = admit(&mut breaker, Caller::default(), None, 0, NOW).expect("no options").verdict;
    let permit = asked.permit.expect("closed").text();
    let reply = Value::written(|sink| Admitted::from(asked).write(sink));
    let (one, zero) = (Value::Integer(1), Value::Integer(0));
    let given = Value::Text(permit.as_bytes().to_vec());
    assert_eq!(reply, Value::Array(vec![one.clone(), text("closed"), given, zero.clone(), zero.clone()]));

    let batch = Batch { ok: 0, failures: 5, slow: 0, run: 5 };
    let reported = Tally { generation: 0, caller: Caller::named(b"me"), seq: 1, batch };
    let reported = tally(&mut breaker, reported, NOW).verdict;
    let generation = Value::Integer(NOW.as_us());
    let reply = Value::written(|sink| Counted::from(reported).write(sink));
    let open_ms = Value::Integer(30_000);
    assert_eq!(reply, Value::Array(vec![one, text("open"), generation.clone(), open_ms.clone(), text("counted")]));

    let denied = admit(&mut breaker, Caller::default(), None, 0, NOW).expect("no options").verdict;
    let reply = Value::written(|sink| Admitted::from(denied).write(sink));
    assert_eq!(reply, Value::Array(vec![zero.clone(), text("open"), Value::Null, open_ms, generation.clone()]));

    let permit = resil_core::circuit_breaker::Permit::parse(permit.as_bytes());
    let late = report(&mut breaker, permit, Report::Ok, None, NOW).verdict;
    let reply = Value::written(|sink| Counted::from(late).write(sink));
    let left = Value::Integer(30_000);
    assert_eq!(reply, Value::Array(vec![zero, text("open"), generation, left, text("stale")]));

    force(&mut breaker, Some(Force::Open), None, (b"ann", b"drill"), NOW);
    let denied = admit(&mut breaker, Caller::default(), None, 0, NOW).expect("no options").verdict;
    let reply = Value::written(|sink| Admitted::from(denied).write(sink));
    assert_eq!(reply.array().expect("an array")[3], Value::Integer(-1));
}

/// The value of a field of a map.
fn field<'a>(map: &'a Value, name: &str) -> &'a Value {
    let Value::Map(pairs) = map else { panic!("not a map: {map:?}") };
    &pairs.iter().find(|(key, _)| *key == text(name)).unwrap_or_else(|| panic!("no {name}")).1
}

#[test]
fn state_says_everything_and_its_options_are_taken_by_config() {
    let mut breaker = Breaker::default();
    let patch = Patch {
        window: Some(WindowKind::Time(Span::from_secs(90))),
        slow: Some(Span::from_us(1_500)),
        factor_milli: Some(1_250),
        open_max: Some(Span::from_secs(3_600)),
        ramp: Some(Span::from_secs(5)),
        ..Patch::default()
    };
    configure(&mut breaker, &patch, Some(7), NOW).expect("a configuration");
    force(&mut breaker, Some(Force::Metrics), Some(Span::from_secs(60)), (b"ann", b"drill"), NOW);
    let map = Value::written(|sink| write_state(&view(&breaker, NOW), true, NOW, sink));
    assert_eq!((field(&map, "exists"), field(&map, "state")), (&Value::Integer(1), &text("metrics")));
    assert_eq!((field(&map, "forced_by"), field(&map, "forced_reason")), (&text("ann"), &text("drill")));
    assert_eq!(field(&map, "forced_until_ms"), &Value::Integer(NOW.as_us() / 1_000 + 60_000));
    assert_eq!((field(&map, "admits"), field(&map, "retry_after_ms")), (&Value::Integer(1), &Value::Integer(0)));
    assert_eq!(field(&map, "version"), &Value::Integer(7));

    let Value::Map(options) = field(&map, "config") else { panic!("config is a map") };
    let mut words: Vec<Vec<u8>> = vec![b"k".to_vec()];
    for (name, value) in options {
        words.push(name.text().expect("a name").to_vec());
        match value {
            Value::Integer(number) => words.push(number.to_string().into_bytes()),
            value => words.extend(value.text().expect("a text").split(|byte| *byte == b' ').map(<[u8]>::to_vec)),
        }
    }
    let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let call = parse::<ConfigCall<'_>>(&args, &BREAKER_CONFIG).expect("what STATE shows");
    let mut copy = Breaker::default();
    configure(&mut copy, &call.options.patch, None, NOW).expect("a configuration");
    assert_eq!(copy.config(), breaker.config());
}

#[test]
fn state_of_a_missing_key_is_the_closed_default() {
    let map = Value::written(|sink| write_state(&view(&Breaker::default(), NOW), false, NOW, sink));
    assert_eq!(field(&map, "state"), &text("closed"));
    for name in ["exists", "generation", "calls", "failures", "probes_out", "opened_at_ms", "retry_after_ms", "version"]
    {
        assert_eq!(field(&map, name), &Value::Integer(0), "{name}");
    }
}

/// Words of the grammar, numbers at every edge, and anything else.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let words = "CALLER VERSION WINDOW COUNT TIME RATE SLOW SLOWRATE CONSECUTIVE MINCALLS OPEN FACTOR MAX PROBES SUCCESSES \
                 LEASE QUORUM RAMP IDLE OK FAIL IGNORE CANCEL RUN DURATION CORRELATION FOR ACTOR REASON CLOSED DISABLED \
                 METRICS AUTO 0 1 -1 5 100 101 10000 10001 9223372036854775807 9223372036854775808 1s 30d 100ms 1us 1.5 \
                 0.1.2 0.1.2.3 ffffffffffffffff.7fffffffffffffff.1.ffffffff 10000000000000000.1.1 .. 0..1 00.1.2 F.1.2";
    let words: Vec<Vec<u8>> = words.split_whitespace().map(|word| word.as_bytes().to_vec()).collect();
    prop_oneof![4 => prop::sample::select(words), 1 => vec(any::<u8>(), 0..20)]
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn no_arguments_can_do_worse_than_be_refused(
        subcommand in prop::sample::select(SUBCOMMANDS.to_vec()),
        args in vec(word(), 0..14),
    ) {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        if let Err(refused) = run(subcommand, &args) {
            prop_assert!(is_presentable(&refused, LEN_MAX), "{:?}", refused);
        }
    }
}
