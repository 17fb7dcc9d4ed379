//! `resil doctor`: is this server fit for Resil, and may this user use it? Each line is ok, warn or fail, with what to do.
//!
//! A check that this user may not make is a warning, not a failure: the right is named. A check that could not be made for any other reason
//! has failed, and so has every node of a cluster that is away.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use resil::operator::Operator;
use resil::{Code, Error};
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::failure::{Failure, SERVER};
use crate::output::{Cell, Output, Table, Tone};
use crate::spans;

#[derive(Args)]
pub struct DoctorArgs {}

/// More than this and leases, seen from this machine, seem to end at other times.
const CLOCK_WARN: Duration = Duration::from_secs(1);
const NOT_LOOKED_AT: &str = "not looked at";
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
        let (level, text) = match error.code() {
            Code::PermissionDenied => {
                (Level::Warn, format!("{NOT_LOOKED_AT}: this user may not; the right is {right}"))
            }
            _ => (Level::Fail, format!("{NOT_LOOKED_AT}: {error}")),
        };
        self.add(check, level, text);
    }
}

pub async fn run(connect: &ConnectArgs, output: &Output, _: &DoctorArgs) -> Result<(), Failure> {
    let mut findings = Findings::default();
    let client = match connect.client().await {
        Ok(client) => Some(client),
        Err(Failure::Unreachable(text)) => {
            match text.contains("module") {
                true => {
                    findings.add("server", Level::Ok, "it replies");
                    findings.add(
                        "module",
                        Level::Fail,
                        "not loaded: put `loadmodule /path/to/libresil.so` into redis.conf and restart",
                    );
                }
                false => {
                    let server = SERVER.get().map_or("the server", String::as_str);
                    let text = format!("{server}: {text}: check --url, the port and the password");
                    findings.add("server", Level::Fail, text);
                }
            }
            None
        }
        Err(other) => return Err(other),
    };
    if let Some(client) = &client {
        let operator = client.operator().without_lost_nodes();
        server(&operator, &mut findings).await;
        module(&operator, &mut findings).await;
        memory(&operator, &mut findings).await;
        persistence(&operator, &mut findings).await;
        replication(&operator, &mut findings).await;
        buffers(&operator, &mut findings).await;
        clock(&operator, &mut findings).await;
        rights(&operator, &mut findings).await;
        for (address, why) in operator.lost_nodes() {
            let text = format!("{address} is away ({why}): nothing of it was looked at");
            findings.add("cluster node", Level::Fail, text);
        }
    }
    if client.is_some() && findings.0.iter().all(|(_, _, text)| text.starts_with(NOT_LOOKED_AT)) {
        let text = "nothing could be looked at: use a user who may, such as looker of docs/operations.md";
        findings.add("doctor", Level::Fail, text);
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

/// What each node says in `INFO section`; of a server that is no cluster, one without a name.
async fn info(operator: &Operator, section: &str) -> Result<Vec<(Option<String>, String)>, Error> {
    operator.info_by_node(section).await
}

/// Looks at each node. What all of them say alike is said once.
fn each_node<T>(
    findings: &mut Findings,
    check: &'static str,
    nodes: &[(Option<String>, T)],
    judge: impl Fn(&T) -> (Level, String),
) {
    let judged: Vec<(Option<&str>, Level, String)> = nodes
        .iter()
        .map(|(node, said)| {
            let (level, text) = judge(said);
            (node.as_deref(), level, text)
        })
        .collect();
    let Some((_, level, text)) = judged.first() else { return };
    if judged.iter().all(|(_, other, words)| (other, words) == (level, text)) {
        return findings.add(check, *level, text.clone());
    }
    for (node, level, text) in &judged {
        findings.add(check, *level, format!("{}: {text}", node.unwrap_or_default()));
    }
}

async fn server(operator: &Operator, findings: &mut Findings) {
    match info(operator, "server").await {
        Ok(nodes) => each_node(findings, "server", &nodes, |info| {
            let (name, version) = match field(info, "valkey_version") {
                Some(version) => ("Valkey", version),
                None => ("Redis", field(info, "redis_version").unwrap_or("?")),
            };
            let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
            match major >= OLDEST {
                true => (Level::Ok, format!("{name} {version} replies")),
                false => (Level::Fail, format!("{name} {version}: Resil needs Redis 7.0 or Valkey 8")),
            }
        }),
        Err(error) => findings.blind("server", &error, "+info"),
    }
}

async fn module(operator: &Operator, findings: &mut Findings) {
    let (modules, own) = match (info(operator, "modules").await, info(operator, "resil").await) {
        (Ok(modules), Ok(own)) => (modules, own),
        (Err(error), _) | (_, Err(error)) => return findings.blind("module", &error, "+info"),
    };
    // An older module says its version only in the list of modules, where 10203 is 1.2.3.
    let listed = |node: &Option<String>| {
        let (_, modules) = modules.iter().find(|(other, _)| other == node)?;
        let line = modules.lines().find(|line| line.contains("name=resil,"))?;
        let number: u32 = line.split("ver=").nth(1)?.split(',').next()?.parse().ok()?;
        Some(format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100))
    };
    let said: Vec<_> = own
        .iter()
        .map(|(node, own)| {
            let version = field(own, "resil_version").map(str::to_owned).or_else(|| listed(node));
            (node.clone(), version.unwrap_or_else(|| "of an unknown version".to_owned()))
        })
        .collect();
    each_node(findings, "module", &said, |version| {
        (Level::Ok, format!("loaded, {version}; this tool is {}", env!("CARGO_PKG_VERSION")))
    });
    for (node, own) in &own {
        match field(own, "resil_internal_errors").and_then(|count| count.parse::<u64>().ok()) {
            Some(0) | None => {}
            Some(count) => {
                let node = node.as_ref().map(|node| format!("{node}: ")).unwrap_or_default();
                let text = format!("{node}{count}: the server's log names them; please report them");
                findings.add("internal errors", Level::Fail, text);
            }
        }
    }
}

async fn memory(operator: &Operator, findings: &mut Findings) {
    let nodes = match operator.config_by_node("maxmemory*").await {
        Ok(nodes) => nodes,
        Err(error) => return findings.blind("eviction", &error, "+config|get"),
    };
    each_node(findings, "eviction", &nodes, |config| {
        let get = |name: &str| config.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value);
        match (get("maxmemory-policy"), get("maxmemory")) {
            ("noeviction", "0") => (Level::Warn, "noeviction, and no maxmemory: set one, so that the server refuses writes before the machine is out of memory".to_owned()),
            ("noeviction", _) => (Level::Ok, "noeviction".to_owned()),
            (policy, "0") => (Level::Warn, format!("{policy} evicts nothing without maxmemory; set noeviction before you set one")),
            (policy, _) => (Level::Fail, format!("{policy}: the server may forget limits, breakers and locks; CONFIG SET maxmemory-policy noeviction")),
        }
    });
}

async fn persistence(operator: &Operator, findings: &mut Findings) {
    let nodes = match info(operator, "persistence").await {
        Ok(nodes) => nodes,
        Err(error) => return findings.blind("persistence", &error, "+info"),
    };
    let saves = operator.config_by_node("save").await.unwrap_or_default();
    let saves_nothing = |node: &Option<String>| {
        let of_node = saves.iter().find(|(other, _)| other == node).and_then(|(_, config)| config.first());
        of_node.is_some_and(|(_, value)| value.is_empty())
    };
    let said: Vec<_> = nodes.into_iter().map(|(node, info)| (node.clone(), (info, saves_nothing(&node)))).collect();
    each_node(findings, "persistence", &said, |(info, saves_nothing)| {
        let is_failing = |name: &str| field(info, name).is_some_and(|status| status != "ok");
        let (level, text) = if is_failing("rdb_last_bgsave_status") || is_failing("aof_last_write_status") {
            (Level::Fail, "the last save or write of the append-only file failed: look at the disk and the log")
        } else if field(info, "aof_enabled") == Some("1") {
            (Level::Ok, "append-only file")
        } else if *saves_nothing {
            (Level::Warn, "none: a restart forgets limits, locks and dead letters; CONFIG SET appendonly yes")
        } else {
            (
                Level::Warn,
                "snapshots only: a crash forgets what came after the last one; CONFIG SET appendonly yes for dead letters and idempotency",
            )
        };
        (level, text.to_owned())
    });
}

async fn replication(operator: &Operator, findings: &mut Findings) {
    let nodes = match info(operator, "replication").await {
        Ok(nodes) => nodes,
        Err(error) => return findings.blind("replicas", &error, "+info"),
    };
    each_node(findings, "replicas", &nodes, |info| {
        let lines: Vec<&str> =
            info.lines().filter(|line| line.starts_with("slave") && line.contains("state=")).collect();
        let late = lines.iter().filter(|line| !line.contains("state=online")).count();
        match (field(info, "role"), lines.len(), late) {
            (Some("slave"), _, _) => {
                (Level::Warn, "this is a replica: it shows, and decides nothing; name the primary".to_owned())
            }
            (_, 0, _) => (Level::Warn, "none: if this server is lost, so is what the fleet shares".to_owned()),
            (_, all, 0) => (Level::Ok, format!("{all} online")),
            (_, all, late) => (Level::Warn, format!("{late} of {all} are not online yet")),
        }
    });
}

async fn buffers(operator: &Operator, findings: &mut Findings) {
    match operator.config_by_node("client-output-buffer-limit").await {
        Ok(nodes) => each_node(findings, "output buffers", &nodes, |config| {
            let text = config.first().map_or("", |(_, value)| value);
            let words: Vec<&str> = text.split_whitespace().collect();
            let hard = words
                .iter()
                .position(|word| *word == "pubsub")
                .and_then(|at| words.get(at + 1))
                .and_then(|hard| hard.parse::<u64>().ok());
            match hard {
                Some(hard) if hard > 0 && hard < 1 << 20 => (
                    Level::Warn,
                    format!(
                        "pubsub may have {hard} bytes: listeners of events are cut off early; 33554432 is the default"
                    ),
                ),
                _ => (Level::Ok, text.to_owned()),
            }
        }),
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
