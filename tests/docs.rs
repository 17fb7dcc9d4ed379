//! The documentation is true: pages are what commands/*.json says, examples give what they show, maxima are the ones
//! in the code, the server describes itself alike, and the demo runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Connection, Value, from_redis_value};
use resil_core::Span;
use resil_core::circuit_breaker::{Config, WindowKind, bounds};
use resil_core::dead_letters::Rate;
use resil_core::limits;
use resil_harness::{Options, Server, ok};
use resil_tests::pages;
use resil_wire::duration::Shown;
use serde_json::{Value as Json, json};

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests live in the workspace")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = workspace().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text<'a>(page: &'a Json, field: &str) -> &'a str {
    page[field].as_str().unwrap_or_else(|| panic!("{} has no {field}", page["name"]))
}

/// A server whose clock stands still, near the real one by which it expires keys.
fn stopped_server() -> (Server, Connection) {
    let server = Server::start(Options::default().module_args(["test-clock", "yes"]));
    let mut connection = server.connect();
    let us = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_micros();
    ok(&mut connection, &["RES._CLOCK", &us.to_string()]);
    (server, connection)
}

fn as_json(value: &Value) -> Json {
    match value {
        Value::Int(number) => json!(number),
        Value::Array(elements) => Json::Array(elements.iter().map(as_json).collect()),
        Value::BulkString(bytes) => json!(String::from_utf8_lossy(bytes)),
        Value::Nil => Json::Null,
        other => json!(format!("{other:?}")),
    }
}

/// Fences follow the clock: an example shows one of them.
fn without_fences(reply: Json) -> Json {
    const LEAST: i64 = 1_000_000_000_000_000;
    match reply {
        Json::Array(elements) => Json::Array(elements.into_iter().map(without_fences).collect()),
        Json::Number(number) if number.as_i64().is_some_and(|number| number > LEAST) => json!("a fence"),
        other => other,
    }
}

#[test]
fn every_example_gives_the_reply_it_shows() {
    let (_server, mut connection) = stopped_server();
    let mut examples = 0;
    for page in pages().values().filter(|page| !page["example"].is_null()) {
        ok(&mut connection, &["FLUSHALL"]);
        let call: Vec<&str> = page["example"]["call"].as_str().expect("a call").split(' ').collect();
        let reply = without_fences(as_json(&ok(&mut connection, &call)));
        assert_eq!(reply, without_fences(page["example"]["reply"].clone()), "{}", call.join(" "));
        let replies = page["example"]["reply"].as_array().map_or(1, Vec::len);
        let fields = page["reply"].as_array().expect("fields").len();
        assert!(replies <= fields, "{} explains {fields} fields of {replies}", page["name"]);
        examples += 1;
    }
    assert!(examples >= 6, "only {examples} examples");
}

/// The pairs of a map, or of the flat list that stands for one.
fn pairs(value: Value) -> BTreeMap<String, Value> {
    let flat: Vec<Value> = from_redis_value(value).expect("a list");
    let pair = |pair: &[Value]| (from_redis_value(pair[0].clone()).expect("a name"), pair[1].clone());
    flat.chunks_exact(2).map(pair).collect()
}

#[test]
fn the_server_describes_each_command_as_its_page_does() {
    let (_server, mut connection) = stopped_server();
    for page in pages().into_values() {
        let name = text(&page, "name").to_lowercase();
        let docs = pairs(ok(&mut connection, &["COMMAND", "DOCS", &name]));
        let docs = pairs(docs.into_values().next().unwrap_or_else(|| panic!("the server does not know {name}")));
        let said = |field: &str| from_redis_value::<String>(docs[field].clone()).expect("text");
        for field in ["summary", "complexity", "since"] {
            assert_eq!(said(field), text(&page, field), "{name}");
        }
        let arguments = docs.get("arguments").map_or(0, |list| as_json(list).as_array().map_or(0, Vec::len));
        assert_eq!(arguments, page["arguments"].as_array().expect("arguments").len(), "{name}");

        let info: Vec<Value> = from_redis_value(ok(&mut connection, &["COMMAND", "INFO", &name])).expect("a list");
        let info: Vec<Value> = from_redis_value(info[0].clone()).expect("a command");
        let flags: Vec<String> = from_redis_value(info[2].clone()).expect("flags");
        for flag in page["flags"].as_array().expect("flags") {
            assert!(flags.contains(&flag.as_str().expect("a flag").to_owned()), "{name}: {flag} is not in {flags:?}");
        }
        let keys: Vec<i64> = info[3..6].iter().map(|place| from_redis_value(place.clone()).expect("a place")).collect();
        let written = ["first", "last", "step"].map(|place| page["keys"][place].as_i64().expect("a place"));
        assert_eq!(keys, written, "{name}");
    }
}

/// Rows of the tables of docs/limits.md: the code-formatted first cell, then the others.
fn limits_page() -> BTreeMap<String, Vec<String>> {
    let page = read("docs/limits.md");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" |").map(|cell| cell.trim().replace(',', ""));
        Some((cells.next()?.trim_end_matches('`').to_owned(), cells.collect()))
    });
    rows.collect()
}

#[test]
fn the_page_of_limits_has_every_maximum_and_its_value() {
    macro_rules! named {
        ($($name:ident $shown:expr),* $(,)?) => {
            BTreeMap::from([$((stringify!($name), { let shown: fn(_) -> String = $shown; shown(limits::$name) })),*])
        };
    }
    let span = |span: Span| Shown(span).to_string();
    let in_code: BTreeMap<&str, String> = named![
        CELLS_MAX |n: u32| n.to_string(),
        COST_MAX |n: u32| n.to_string(),
        PERIOD_MAX |d: Span| Shown(d).to_string(),
        FILL_MAX |d: Span| Shown(d).to_string(),
        RESERVE_MAX |d: Span| Shown(d).to_string(),
        TIERS_NAMED_MAX |n: usize| n.to_string(),
        TIERS_STORED_MAX |n: usize| n.to_string(),
        MGCRA_KEYS_MAX |n: usize| n.to_string(),
        WINDOW_LIMIT_DEFAULT |n: u32| n.to_string(),
        WINDOW_LIMIT_CEILING |n: u32| n.to_string(),
        TEXT_MAX |n: usize| n.to_string(),
        TALLY_MAX |n: u32| n.to_string(),
        OWNER_MAX |n: usize| n.to_string(),
        LEASE_LEAST |d: Span| Shown(d).to_string(),
        LEASE_DEFAULT_MAX |d: Span| Shown(d).to_string(),
        LEASE_CEILING |d: Span| Shown(d).to_string(),
        WAIT_DEFAULT_MAX |d: Span| Shown(d).to_string(),
        WAIT_CEILING |d: Span| Shown(d).to_string(),
        WAITERS_DEFAULT |n: u32| n.to_string(),
        WAITERS_CEILING |n: u32| n.to_string(),
        AGEING_DEFAULT |d: Span| Shown(d).to_string(),
        AGEING_CEILING |d: Span| Shown(d).to_string(),
        HOLDERS_MAX |n: usize| n.to_string(),
        GRACE |d: Span| Shown(d).to_string(),
        ENDS_REMEMBERED |n: usize| n.to_string(),
        TTL_MAX |d: Span| Shown(d).to_string(),
        KEEP_DEFAULT |d: Span| Shown(d).to_string(),
        RESULT_DEFAULT_MAX |n: usize| n.to_string(),
        VALUE_DEFAULT_MAX |n: usize| n.to_string(),
        RESULT_CEILING |n: usize| n.to_string(),
        WAKE_BUDGET_DEFAULT |n: usize| n.to_string(),
        WAKE_BUDGET_CEILING |n: usize| n.to_string(),
        FENCE_JUMP_DEFAULT |d: Span| Shown(d).to_string(),
        FENCE_JUMP_CEILING |d: Span| Shown(d).to_string(),
        FENCE_MAX |n: u64| n.to_string(),
        FENCE_AHEAD_MAX |d: Span| Shown(d).to_string(),
        QUORUM_LEAST |n: usize| n.to_string(),
        QUORUM_MOST |n: usize| n.to_string(),
        LOSSES_REMEMBERED |n: usize| n.to_string(),
        INFO_LIMIT_DEFAULT |n: u32| n.to_string(),
        INFO_LIMIT_MAX |n: u32| n.to_string(),
        LEDGER_TEXT_MAX |n: usize| n.to_string(),
        ERROR_MAX |n: usize| n.to_string(),
        HEADERS_MAX |n: usize| n.to_string(),
        CASE_TEXT_MAX |n: usize| n.to_string(),
        PAYLOAD_DEFAULT_MAX |n: usize| n.to_string(),
        PAYLOAD_CEILING |n: usize| n.to_string(),
        LEDGER_ENTRIES_DEFAULT |n: usize| n.to_string(),
        LEDGER_ENTRIES_CEILING |n: usize| n.to_string(),
        LEDGER_BYTES_DEFAULT |n: usize| n.to_string(),
        LEDGER_BYTES_CEILING |n: usize| n.to_string(),
        LEDGER_FULL_PERCENT |n: usize| n.to_string(),
        RESOLVED_DEFAULT |n: usize| n.to_string(),
        GROUPS_MAX |n: usize| n.to_string(),
        TYPES_MAX |n: usize| n.to_string(),
        CASE_GROUPS_MAX |n: usize| n.to_string(),
        CASES_MAX |n: usize| n.to_string(),
        ALERTS_MAX |n: usize| n.to_string(),
        AUDIT_MAX |n: usize| n.to_string(),
        ATTEMPTS_KEPT |n: usize| n.to_string(),
        TAKE_MAX |n: usize| n.to_string(),
        TAKE_BYTES_MAX |n: usize| n.to_string(),
        ENTRIES_LOOKED_AT |n: usize| n.to_string(),
        LIST_AT_ONCE |n: usize| n.to_string(),
        PURGE_MAX |n: usize| n.to_string(),
        PURGE_AT_ONCE |n: usize| n.to_string(),
        BACKOFF_LEAST |d: Span| Shown(d).to_string(),
        BACKOFF_MAX |d: Span| Shown(d).to_string(),
        RETRIES_MAX |n: u32| n.to_string(),
        NOCOUNT_MAX |d: Span| Shown(d).to_string(),
        DONE_REMEMBERED |d: Span| Shown(d).to_string(),
        DONES_MAX |n: usize| n.to_string(),
        RETENTION |d: Span| Shown(d).to_string(),
        CLOCK_JUMP |d: Span| Shown(d).to_string(),
        MANY_DEATHS |n: u64| n.to_string(),
        AGGREGATE_DEATHS |n: u64| n.to_string(),
        COUNTER_MAX |n: u64| n.to_string(),
        CASE_MAX |n: u32| n.to_string(),
        ACTIVE_CASES_MAX |n: usize| n.to_string(),
        ARRIVAL_MAX |n: u64| n.to_string(),
        SPIKE_BUCKET |d: Span| Shown(d).to_string(),
        SPIKE_BUCKETS |n: i64| n.to_string(),
        SPIKE_FACTOR |n: u64| n.to_string(),
        REDRIVE_RATE |rate: Rate| format!("{} {}", rate.count, Shown(rate.period)),
        REDRIVE_RATE_MAX |rate: Rate| format!("{} {}", rate.count, Shown(rate.period)),
        REDRIVE_FIRST |n: u32| n.to_string(),
        REDRIVE_OUTCOMES |n: u32| n.to_string(),
        AUTO_QUIET |d: Span| Shown(d).to_string(),
        TAGS_MAX |n: usize| n.to_string(),
        TAG_MAX |n: usize| n.to_string(),
        TAGS_REMEMBERED |n: usize| n.to_string(),
        MGET_KEYS_MAX |n: usize| n.to_string(),
        MGET_BYTES_MAX |n: usize| n.to_string(),
        EARLY_MAX |n: u32| n.to_string(),
        POLICY_BYTES_MAX |n: usize| n.to_string(),
        POLICY_DEPTH_MAX |n: usize| n.to_string(),
        POLICY_NAME_MAX |n: usize| n.to_string(),
        CLOCK_JITTER |d: Span| Shown(d).to_string(),
        INSTANT_MAX_US |n: i64| n.to_string(),
    ];
    let source = read("core/src/limits.rs");
    let declared = source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(':'));
    let declared: BTreeSet<&str> = declared.map(|(name, _)| name).filter(|name| !name.starts_with("fn ")).collect();
    assert_eq!(declared, in_code.keys().copied().collect(), "a new limit belongs here and in docs/limits.md");
    let page = limits_page();
    for (name, value) in &in_code {
        assert_eq!(page.get(*name).map(|cells| &cells[0]), Some(value), "{name} in docs/limits.md");
    }

    let defaults = Config::default();
    let WindowKind::Count(window_calls) = defaults.window else { panic!("the default window counts calls") };
    let count = |bounds: std::ops::RangeInclusive<i64>, default: u32| {
        [bounds.start().to_string(), bounds.end().to_string(), default.to_string()]
    };
    let length = |(least, most): (Span, Span), default: Option<Span>| {
        [span(least), span(most), default.map_or(String::new(), span)]
    };
    let factor = bounds::FACTOR_MILLI.start() / 1_000..=bounds::FACTOR_MILLI.end() / 1_000;
    let options = [
        ("WINDOW COUNT", count(bounds::WINDOW_CALLS, window_calls)),
        ("WINDOW TIME", length(bounds::WINDOW_SPAN, None)),
        ("RATE", count(bounds::PERCENT, defaults.rate_pct)),
        ("SLOW", length(bounds::SLOW, None)),
        ("SLOWRATE", count(bounds::PERCENT, defaults.slow_rate_pct)),
        ("CONSECUTIVE", count(bounds::CONSECUTIVE, defaults.consecutive)),
        ("MINCALLS", count(bounds::MIN_CALLS, defaults.min_calls)),
        ("OPEN", length(bounds::OPEN, Some(defaults.open))),
        ("FACTOR", count(factor, defaults.factor_milli / 1_000)),
        ("MAX", length(bounds::OPEN, Some(defaults.open_max))),
        ("PROBES", count(bounds::PROBES, defaults.probes)),
        ("SUCCESSES", count(bounds::SUCCESSES, defaults.successes)),
        ("LEASE", length(bounds::LEASE, Some(defaults.lease))),
        ("QUORUM", count(bounds::QUORUM, defaults.quorum)),
        ("RAMP", length(bounds::RAMP, Some(defaults.ramp))),
        ("IDLE", length(bounds::IDLE, Some(defaults.idle))),
    ];
    for (name, cells) in options {
        assert_eq!(page.get(name).map(|found| &found[..3]), Some(&cells[..]), "{name} in docs/limits.md");
    }
}

#[test]
fn the_demo_runs_and_shows_every_command() {
    let output = Command::new(env!("CARGO_BIN_EXE_demo")).output().expect("it starts");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    let pages = pages();
    let commands = pages.keys().map(|name| name.replace('|', " "));
    for command in commands.filter(|name| !name.starts_with("RES._")) {
        assert!(shown.contains(&command), "{command} is missing in:\n{shown}");
    }
    for word in ["BURST", "AND", "COST", "UPTO", "RESERVE", "REFUND", "INFO resil"] {
        assert!(shown.contains(word), "{word} is missing");
    }
    let refusals = "Refusals and errors";
    let (story, rest) = shown.split_once(refusals).expect("it ends with refusals");
    assert!(!story.contains("(error)"), "a call of the story is refused:\n{story}");
    assert_eq!(rest.matches("(error)").count(), 2, "two calls are refused:\n{rest}");
    let widest = shown.lines().max_by_key(|line| line.chars().count()).unwrap_or_default();
    assert!(widest.chars().count() <= 110, "too wide: {widest}");
}

#[test]
fn every_rule_for_dead_letters_names_a_test_that_exists() {
    let folders = ["core/tests/dead_letters", "tests/dead_letters"].map(|folder| workspace().join(folder));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder"));
    let sources: Vec<String> =
        files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a source")).collect();
    let page = read("docs/dead-letters.md");
    let rules: Vec<&str> = page.lines().filter(|line| line.starts_with("| RULE-040-")).collect();
    assert_eq!(rules.len(), 18, "every rule has a row");
    for rule in rules {
        let tests: Vec<&str> = rule.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{rule}");
        for test in tests {
            let declared = format!("fn {test}()");
            assert!(sources.iter().any(|source| source.contains(&declared)), "{test} of {rule}");
        }
    }
}

/// Whether the test under this tag plays at least a thousand cases: by the configuration of its properties, or in a loop of its own.
fn plays_a_thousand_cases(source: &str, tag: usize) -> bool {
    let least = "const CASES_LEAST: u32 = 1_000;";
    assert!(read("core/tests/seed/mod.rs").contains(least), "what seed::config() means");
    let config = source[..tag].rfind("proptest_config(").and_then(|at| source[at..].lines().next()).unwrap_or_default();
    let body = source[tag..].split("\n}\n").next().unwrap_or_default();
    ["seed::config()", "with_cases(1_000)"].iter().any(|known| config.contains(known))
        || body.contains("0..1_000")
        || source.contains("const CASES: u32 = 1_000;")
}

/// Every property of docs/properties.md is tagged in the file that it names, above a test of that name, and no number is missing.
#[test]
fn each_property_of_the_page_is_tagged_where_it_says() {
    let page = read("docs/properties.md");
    let mut numbers = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| ") && line.contains("`: `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let number: u32 = cells[1].parse().expect("a number");
        let (file, test) = cells[3].trim_matches('`').split_once("`: `").expect("a file and a test");
        let source = read(file);
        let tag = source
            .find(&format!("// Property {number}: "))
            .unwrap_or_else(|| panic!("{file} has no property {number}"));
        let function = source[tag..].split("fn ").nth(1).and_then(|rest| rest.split('(').next());
        assert_eq!(function, Some(test), "the test under property {number} in {file}");
        assert!(plays_a_thousand_cases(&source, tag), "property {number} in {file} plays too few cases");
        assert!(numbers.insert(number), "property {number} is there twice");
    }
    assert_eq!(numbers, (1..=25).collect());
}
