//! `resil doctor`: is this server fit for Resil, and may this user use it? Each line is ok, warn or fail, with what to do.
//!
//! A check that this user may not make is a warning, not a failure: the right is named.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use resil::operator::Operator;
use resil::{Code, Error};
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::{Cell, Output, Table, Tone};
use crate::spans;

#[derive(Args)]
pub struct DoctorArgs {}

/// More than this and leases, seen from this machine, seem to end at other times.
const CLOCK_WARN: Duration = Duration::from_secs(1);
/// Redis 7.0 is the oldest that is tested.
const OLDEST: u32 = 7;

/// The commands of an SDK, one of each family, on a key as the SDKs make it.
const RIGHTS: [(&str, &[&str]); 8] = [
    ("limits", &["RES.GCRA", "resil:limit:a:{b}", "1", "1s"]),
    ("breakers", &["RES.BREAKER", "ADMIT", "resil:breaker:{a}"]),
    ("locks", &["RES.LOCK", "ACQUIRE", "resil:lock:{a}", "o", "1s"]),
    ("bulkheads", &["RES.BULKHEAD", "ENTER", "resil:bulkhead:{a}", "o", "1", "1s"]),
    ("idempotency", &["RES.IDEMP", "BEGIN", "resil:idemp:a:{b}", "t", "1s"]),
    ("single flight", &["RES.SFLIGHT", "JOIN", "resil:cache:a:{b}", "t", "1s"]),
    ("force of breakers", &["RES.BREAKER", "FORCE", "resil:breaker:{a}", "OPEN"]),
    ("events", &["SUBSCRIBE", "resil:events"]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Ok,
    Warn,
    Fail,
}

impl Level {
    fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Ok => Tone::Good,
            Self::Warn => Tone::Warn,
            Self::Fail => Tone::Bad,
        }
    }
}

#[derive(Default)]
struct Findings(Vec<(&'static str, Level, String)>);

impl Findings {
    fn add(&mut self, check: &'static str, level: Level, text: impl Into<String>) {
        self.0.push((check, level, text.into()));
    }

    /// Something could not be looked at.
    fn blind(&mut self, check: &'static str, error: &Error, right: &str) {
        let text = match error.code() {
            Code::PermissionDenied => format!("not looked at: this user may not; the right is {right}"),
            _ => format!("not looked at: {error}"),
        };
        self.add(check, Level::Warn, text);
    }
}

pub async fn run(connect: &ConnectArgs, output: &Output, _: &DoctorArgs) -> Result<(), Failure> {
    let mut findings = Findings::default();
    let client = match connect.client().await {
        Ok(client) => Some(client),
        Err(Failure::Unreachable(text)) => {
            match text.contains("module") {
                true => {
                    findings.add("server", Level::Ok, "it answers");
                    findings.add(
                        "module",
                        Level::Fail,
                        "not loaded: put `loadmodule /path/to/libresil.so` into redis.conf and restart",
                    );
                }
                false => findings.add("server", Level::Fail, format!("{text}: check --url, the port and the password")),
            }
            None
        }
        Err(other) => return Err(other),
    };
    if let Some(client) = &client {
        let operator = client.operator();
        server(&operator, &mut findings).await;
        module(&operator, &mut findings).await;
        memory(&operator, &mut findings).await;
        persistence(&operator, &mut findings).await;
        replication(&operator, &mut findings).await;
        buffers(&operator, &mut findings).await;
        clock(&operator, &mut findings).await;
        rights(&operator, &mut findings).await;
    }
    let mut table = Table::new(&["check", "", "what to know"]);
    let mut rows: Vec<Value> = Vec::new();
    for (check, level, text) in &findings.0 {
        table.row([Cell::new(check), Cell::toned(level.text(), level.tone()), Cell::new(text)]);
        rows.push(json!({ "check": check, "level": level.text(), "text": text }));
    }
    let has_failed = findings.0.iter().any(|(_, level, _)| *level == Level::Fail);
    output.table(|| json!({ "ok": !has_failed, "checks": rows }), &table, "")?;
    if has_failed { Err(Failure::Said) } else { Ok(()) }
}

/// A field of INFO.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

async fn info(operator: &Operator, section: &str) -> Result<String, Error> {
    Ok(operator.info(section).await?.join("\n"))
}

async fn server(operator: &Operator, findings: &mut Findings) {
    match info(operator, "server").await {
        Ok(info) => {
            let (name, version) = match field(&info, "valkey_version") {
                Some(version) => ("Valkey", version),
                None => ("Redis", field(&info, "redis_version").unwrap_or("?")),
            };
            let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
            match major >= OLDEST {
                true => findings.add("server", Level::Ok, format!("{name} {version} answers")),
                false => {
                    findings.add("server", Level::Fail, format!("{name} {version}: Resil needs Redis 7.0 or Valkey 8"))
                }
            }
        }
        Err(error) => findings.blind("server", &error, "+info"),
    }
}

async fn module(operator: &Operator, findings: &mut Findings) {
    let (modules, own) = match (info(operator, "modules").await, info(operator, "resil").await) {
        (Ok(modules), Ok(own)) => (modules, own),
        (Err(error), _) | (_, Err(error)) => return findings.blind("module", &error, "+info"),
    };
    let number = modules
        .lines()
        .filter(|line| line.contains("name=resil,"))
        .find_map(|line| line.split("ver=").nth(1)?.split(',').next());
    // 10203 is 1.2.3.
    let number = number.and_then(|number| number.parse::<u32>().ok());
    let number = number.map(|number| format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100));
    let version = field(&own, "resil_version")
        .map(str::to_owned)
        .or(number)
        .unwrap_or_else(|| "of an unknown version".to_owned());
    findings.add("module", Level::Ok, format!("loaded, {version}; this tool is {}", env!("CARGO_PKG_VERSION")));
    match field(&own, "resil_internal_errors").and_then(|count| count.parse::<u64>().ok()) {
        Some(0) | None => {}
        Some(count) => findings.add(
            "internal errors",
            Level::Fail,
            format!("{count}: the server's log names them; please report them"),
        ),
    }
}

async fn memory(operator: &Operator, findings: &mut Findings) {
    let config = match operator.config("maxmemory*").await {
        Ok(config) => config,
        Err(error) => return findings.blind("eviction", &error, "+config|get"),
    };
    let get = |name: &str| config.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value);
    match (get("maxmemory-policy"), get("maxmemory")) {
        ("noeviction", "0") => findings.add("eviction", Level::Warn, "noeviction, and no maxmemory: set one, so that the server refuses writes before the machine is out of memory"),
        ("noeviction", _) => findings.add("eviction", Level::Ok, "noeviction"),
        (policy, "0") => findings.add("eviction", Level::Warn, format!("{policy} evicts nothing without maxmemory; set noeviction before you set one")),
        (policy, _) => findings.add("eviction", Level::Fail, format!("{policy}: the server may forget limits, breakers and locks; CONFIG SET maxmemory-policy noeviction")),
    }
}

async fn persistence(operator: &Operator, findings: &mut Findings) {
    let info = match info(operator, "persistence").await {
        Ok(info) => info,
        Err(error) => return findings.blind("persistence", &error, "+info"),
    };
    let saves = operator.config("save").await.ok().and_then(|config| config.into_iter().next()).map(|(_, value)| value);
    let is_failing = |name: &str| field(&info, name).is_some_and(|status| status != "ok");
    if is_failing("rdb_last_bgsave_status") || is_failing("aof_last_write_status") {
        findings.add(
            "persistence",
            Level::Fail,
            "the last save or write of the append-only file failed: look at the disk and the log",
        );
    } else if field(&info, "aof_enabled") == Some("1") {
        findings.add("persistence", Level::Ok, "append-only file");
    } else if saves.as_deref().is_some_and(str::is_empty) {
        findings.add(
            "persistence",
            Level::Warn,
            "none: a restart forgets limits, locks and dead letters; CONFIG SET appendonly yes",
        );
    } else {
        findings.add("persistence", Level::Warn, "snapshots only: a crash forgets what came after the last one; CONFIG SET appendonly yes for dead letters and idempotency");
    }
}

async fn replication(operator: &Operator, findings: &mut Findings) {
    let info = match info(operator, "replication").await {
        Ok(info) => info,
        Err(error) => return findings.blind("replicas", &error, "+info"),
    };
    let lines: Vec<&str> = info.lines().filter(|line| line.starts_with("slave") && line.contains("state=")).collect();
    let late = lines.iter().filter(|line| !line.contains("state=online")).count();
    match (field(&info, "role"), lines.len(), late) {
        (Some("slave"), _, _) => {
            findings.add("replicas", Level::Warn, "this is a replica: it shows, and decides nothing; name the primary")
        }
        (_, 0, _) => findings.add("replicas", Level::Warn, "none: if this server is lost, so is what the fleet shares"),
        (_, all, 0) => findings.add("replicas", Level::Ok, format!("{all} online")),
        (_, all, late) => findings.add("replicas", Level::Warn, format!("{late} of {all} are not online yet")),
    }
}

async fn buffers(operator: &Operator, findings: &mut Findings) {
    match operator.config("client-output-buffer-limit").await {
        Ok(config) => {
            let text = config.first().map_or("", |(_, value)| value);
            let words: Vec<&str> = text.split_whitespace().collect();
            let hard = words
                .iter()
                .position(|word| *word == "pubsub")
                .and_then(|at| words.get(at + 1))
                .and_then(|hard| hard.parse::<u64>().ok());
            match hard {
                Some(hard) if hard > 0 && hard < 1 << 20 => {
                    findings.add("output buffers", Level::Warn, format!("pubsub may have {hard} bytes: listeners of events are cut off early; 33554432 is the default"));
                }
                _ => findings.add("output buffers", Level::Ok, text),
            }
        }
        Err(error) => findings.blind("output buffers", &error, "+config|get"),
    }
}

async fn clock(operator: &Operator, findings: &mut Findings) {
    let before = SystemTime::now();
    match operator.time().await {
        Ok(theirs) => {
            let trip = before.elapsed().unwrap_or_default();
            let ours = before.duration_since(UNIX_EPOCH).unwrap_or_default() + trip / 2;
            let apart = theirs.abs_diff(ours);
            let text = format!("{} apart from this machine's", spans::shown(apart));
            match apart > CLOCK_WARN + trip {
                true => findings.add(
                    "clock",
                    Level::Warn,
                    format!("{text}: run NTP on both; the server's clock alone decides, and must not jump"),
                ),
                false => findings.add("clock", Level::Ok, text),
            }
        }
        Err(error) => findings.blind("clock", &error, "+time"),
    }
}

async fn rights(operator: &Operator, findings: &mut Findings) {
    let user = match operator.user().await {
        Ok(user) => user,
        Err(error) => return findings.blind("rights", &error, "+acl|whoami"),
    };
    let mut refused = Vec::new();
    for (what, command) in RIGHTS {
        match operator.may(&user, command).await {
            Ok(true) => {}
            Ok(false) => refused.push(what),
            Err(error) => return findings.blind("rights", &error, "+acl|dryrun"),
        }
    }
    match refused.as_slice() {
        [] => findings.add("rights", Level::Ok, format!("{user} may do everything that is looked at")),
        refused => findings.add(
            "rights",
            Level::Warn,
            format!("{user} may not use: {}; docs/access.md has rules to copy", refused.join(", ")),
        ),
    }
}
