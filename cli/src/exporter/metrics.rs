//! The page itself: the text format of Prometheus, with HELP and TYPE for every family, and each family once.
//!
//! `INFO resil` is exported whole. What it counts ends with `_total`; what it has under [`GAUGES`], or ends with `_keys`, goes up and
//! down. Times are in milliseconds there, and in seconds here; its histograms become cumulative buckets.
//!
//! Of a cluster, gauges are added up. Counters and histograms have the label `node` instead: without the counts of a node that went away a
//! sum would go back, and Prometheus would take the whole rest for new.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::help::help_of;
use crate::overview::OverviewRow;

/// Series with a name of theirs, of each family.
pub const NAMED_MAX: usize = 100;
/// Bytes of a label.
const LABEL_MAX: usize = 128;
/// What INFO has that goes up and down, beside the numbers of keys.
const GAUGES: [&str; 5] = ["eviction_risk", "blocked_waiters", "async_waiters", "sessions", "bound"];
const BREAKER_STATES: [&str; 8] =
    ["closed", "open", "half-open", "ramping", "forced-open", "forced-closed", "disabled", "metrics"];

#[derive(Clone)]
struct Family {
    kind: &'static str,
    help: String,
    /// The part behind the name, and the value.
    series: Vec<(String, String)>,
}

/// What a scrape gets.
#[derive(Clone)]
pub struct Page(BTreeMap<String, Family>);

fn label(bytes: &[u8]) -> String {
    let mut text = crate::output::escaped(bytes);
    while text.len() > LABEL_MAX {
        text.pop();
    }
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn labels(pairs: &[(&str, &[u8])]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", label(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

impl Page {
    pub fn here() -> Self {
        Self::with_up("1")
    }

    /// The server is away, or too slow.
    pub fn away() -> Self {
        Self::with_up("0")
    }

    fn with_up(up: &str) -> Self {
        let mut page = Self(BTreeMap::new());
        page.add("resil_up", "gauge", "Whether the server answered this scrape.", "", up);
        page
    }

    pub fn took(&mut self, span: Duration) {
        let help = "How long this scrape took.";
        self.add("resil_scrape_duration_seconds", "gauge", help, "", &format!("{:.6}", span.as_secs_f64()));
    }

    /// Nodes of a cluster say the same gauges: their numbers add up.
    fn add(&mut self, name: &str, kind: &'static str, help: &str, part: &str, value: &str) {
        self.put(name, kind, help, part, value, |one, other| one + other);
    }

    fn put(&mut self, name: &str, kind: &'static str, help: &str, part: &str, value: &str, both: fn(f64, f64) -> f64) {
        let family =
            self.0.entry(name.to_owned()).or_insert_with(|| Family { kind, help: help.to_owned(), series: Vec::new() });
        match family.series.iter_mut().find(|(own, _)| own == part) {
            Some((_, seen)) => {
                *seen = both(seen.parse().unwrap_or(0.0), value.parse().unwrap_or(0.0)).to_string();
            }
            None => family.series.push((part.to_owned(), value.to_owned())),
        }
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, Family { kind, help, series }) in &self.0 {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (part, value) in series {
                let _ = writeln!(text, "{name}{part} {value}");
            }
        }
        text
    }

    /// Which nodes of a cluster answered, and which did not.
    pub fn nodes<'a>(&mut self, here: impl Iterator<Item = &'a str>, lost: impl Iterator<Item = &'a str>) {
        let help = "Whether a node of the cluster answered this scrape.";
        for (node, is_up) in here.map(|node| (node, "1")).chain(lost.map(|node| (node, "0"))) {
            self.add("resil_node_up", "gauge", help, &labels(&[("node", node.as_bytes())]), is_up);
        }
    }

    /// `INFO resil`, of this node if it is a cluster.
    pub fn info(&mut self, node: Option<&str>, info: &str) {
        let of_node: Vec<(&str, &[u8])> = node.map(|node| ("node", node.as_bytes())).into_iter().collect();
        for line in info.lines() {
            let Some((name, value)) = line.trim().split_once(':') else { continue };
            let Some(field) = name.strip_prefix("resil_") else { continue };
            if !field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                continue;
            }
            if let Some(histogram) = Buckets::read(value) {
                self.histogram(field.strip_suffix("_ms").unwrap_or(field), &of_node, &histogram);
            } else if field == "bytes" {
                for (kind, bytes) in value.split(',').filter_map(|part| part.split_once('=')) {
                    let part = labels(&[("kind", kind.as_bytes())]);
                    self.add("resil_bytes", "gauge", "What the values of each kind of key take, about.", &part, bytes);
                }
            } else if field == "breakers" {
                for (state, count) in value.split(',').filter_map(|part| part.split_once('=')) {
                    self.breakers_in(&state.replace('_', "-"), count);
                }
            } else if field == "version" || field == "module_version" {
                let help = "Nodes with this version of the module.";
                self.add("resil_module_info", "gauge", help, &labels(&[("version", value.as_bytes())]), "1");
            } else if field == "oldest_wait_ms" {
                // Of several nodes the oldest wait is the longest.
                let ms: f64 = value.parse().unwrap_or(0.0);
                let (name, seconds) = ("resil_oldest_wait_seconds", (ms / 1_000.0).to_string());
                self.put(name, "gauge", &help_of(field), "", &seconds, f64::max);
            } else if value.parse::<i64>().is_ok() {
                let is_gauge = field.ends_with("_keys") || field.ends_with("_bytes") || GAUGES.contains(&field);
                let help = help_of(field);
                let part = if of_node.is_empty() { String::new() } else { labels(&of_node) };
                match is_gauge {
                    // One risk is a risk.
                    true if field == "eviction_risk" => {
                        self.put(&format!("resil_{field}"), "gauge", &help, "", value, f64::max)
                    }
                    true => self.add(&format!("resil_{field}"), "gauge", &help, "", value),
                    false => self.add(&format!("resil_{field}_total"), "counter", &help, &part, value),
                }
            }
        }
    }

    /// Series of one family keep their order; the names of its parts differ from the family's.
    fn histogram(&mut self, field: &str, of_node: &[(&str, &[u8])], Buckets { bounds, count, sum_ms }: &Buckets) {
        let (name, help) = (format!("resil_{field}_seconds"), help_of(field));
        let mut add = |part: &str, value: String| self.add(&name, "histogram", &help, part, &value);
        let bounds = bounds.iter().map(|(bound, up_to)| (bound.as_str(), up_to)).chain([("+Inf", count)]);
        for (bound, up_to) in bounds {
            let part = labels(&[of_node, &[("le", bound.as_bytes())]].concat());
            add(&format!("_bucket{part}"), up_to.to_string());
        }
        let part = if of_node.is_empty() { String::new() } else { labels(of_node) };
        add(&format!("_sum{part}"), (*sum_ms as f64 / 1_000.0).to_string());
        add(&format!("_count{part}"), count.to_string());
    }

    fn breakers_in(&mut self, state: &str, count: &str) {
        let part = labels(&[("state", state.as_bytes())]);
        self.add("resil_breakers", "gauge", "Breakers by their state.", &part, count);
    }

    /// `is_all`: there are no others.
    pub fn breakers(&mut self, rows: &[OverviewRow], is_all: bool) {
        // INFO knows all of them but those of policies, and counts a force that has ended until the breaker is called again. So rows are
        // counted, unless there are too many of them.
        if is_all {
            self.0.remove("resil_breakers");
        }
        let has_breakers = self.0.contains_key("resil_breakers");
        for state in BREAKER_STATES {
            let is_counted = |row: &&OverviewRow| {
                row.bytes("state") == state.as_bytes() && (!has_breakers || row.number("policy") == Some(1))
            };
            let count = rows.iter().filter(is_counted).count();
            self.breakers_in(state, &count.to_string());
        }
        let is_open =
            |row: &&OverviewRow| ["open", "forced-open"].iter().any(|state| row.bytes("state") == state.as_bytes());
        let others = |row: &&OverviewRow| !is_open(row) && row.bytes("state") != b"closed";
        let help = "Breakers that are not closed, by name and key: 1. At most 100, open ones first.";
        for row in rows.iter().filter(is_open).chain(rows.iter().filter(others)).take(NAMED_MAX) {
            let part = labels(&[("breaker", row.shown()), ("key", &row.key), ("state", row.bytes("state"))]);
            // Keys that are longer than a label may look the same.
            self.put("resil_breaker_not_closed", "gauge", help, &part, "1", f64::max);
        }
    }

    pub fn locks(&mut self, rows: &[OverviewRow], has_keys: bool) {
        let number = |row: &OverviewRow, name: &str| row.number(name).unwrap_or(0).max(0);
        let waiters: i64 = rows.iter().map(|row| number(row, "waiters")).sum();
        let oldest = rows.iter().map(|row| number(row, "oldest_wait_ms")).max().unwrap_or(0);
        let held = rows.iter().map(|row| number(row, "held_ms")).max().unwrap_or(0);
        let seconds = |ms: i64| (ms as f64 / 1_000.0).to_string();
        self.add(
            "resil_locks",
            "gauge",
            "Locks that are held or waited for, of the 10,000 that are looked at.",
            "",
            &rows.len().to_string(),
        );
        self.add("resil_lock_waiters", "gauge", "Calls that wait for locks.", "", &waiters.to_string());
        self.add("resil_lock_oldest_wait_seconds", "gauge", "The longest wait for a lock.", "", &seconds(oldest));
        self.add(
            "resil_lock_longest_held_seconds",
            "gauge",
            "The longest hold of a lock, of the 10,000 that are looked at.",
            "",
            &seconds(held),
        );
        if has_keys {
            let mut waited: Vec<&OverviewRow> = rows.iter().filter(|row| number(row, "waiters") > 0).collect();
            waited.sort_by_key(|row| std::cmp::Reverse(number(row, "waiters")));
            for row in waited.into_iter().take(NAMED_MAX) {
                let part = labels(&[("lock", row.shown())]);
                let count = number(row, "waiters").to_string();
                self.add(
                    "resil_lock_waiters_by_key",
                    "gauge",
                    "Calls that wait for a lock, at most 100 locks.",
                    &part,
                    &count,
                );
            }
        }
    }

    pub fn bulkheads(&mut self, rows: &[OverviewRow]) {
        let waiters: i64 = rows.iter().filter_map(|row| row.number("waiters")).sum();
        self.add(
            "resil_bulkheads",
            "gauge",
            "Shared bulkheads that are used or waited for, of the 10,000 that are looked at.",
            "",
            &rows.len().to_string(),
        );
        self.add("resil_bulkhead_waiters", "gauge", "Calls that wait for shared bulkheads.", "", &waiters.to_string());
    }

    pub fn ledgers(&mut self, rows: &[OverviewRow]) {
        let families = [
            ("waiting", "Messages that wait for their next attempt."),
            ("taken", "Messages that a worker has."),
            ("dead", "Messages that are dead."),
            ("cases_open", "Root causes that are not closed."),
            ("alerts_unseen", "Alerts that nobody has looked at."),
        ];
        let mut rows: Vec<&OverviewRow> = rows.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.number("dead")));
        for row in rows.into_iter().take(NAMED_MAX) {
            for (field, help) in families {
                let part = labels(&[("ledger", row.shown()), ("key", &row.key)]);
                let value = row.number(field).unwrap_or(0).to_string();
                self.add(
                    &format!("resil_dlq_{field}"),
                    "gauge",
                    &format!("{help} At most 100 ledgers."),
                    &part,
                    &value,
                );
            }
        }
    }

    pub fn denied(&mut self, rows: &[OverviewRow], has_keys: bool) {
        let sum: i64 = rows.iter().filter_map(|row| row.number("estimate")).sum();
        let help = "Refusals of the last minute of the keys that are refused most: an estimate.";
        self.add("resil_denied_top_estimate", "gauge", help, "", &sum.to_string());
        if has_keys {
            for row in rows {
                let part = labels(&[("key", &row.key), ("kind", row.bytes("kind"))]);
                let value = row.number("estimate").unwrap_or(0).to_string();
                self.add(
                    "resil_denied_by_key_estimate",
                    "gauge",
                    "Refusals of the last minute: an estimate.",
                    &part,
                    &value,
                );
            }
        }
    }
}

/// A histogram of INFO: `count=3,sum=17,le_1=0,…,inf=0`.
struct Buckets {
    /// Upper bounds in seconds, as text, and how many are at or below.
    bounds: Vec<(String, u64)>,
    count: u64,
    sum_ms: u64,
}

impl Buckets {
    fn read(value: &str) -> Option<Self> {
        let (mut bounds, mut count, mut sum_ms, mut above) = (Vec::new(), None, None, 0);
        for pair in value.split(',') {
            let (name, number) = pair.split_once('=')?;
            let number: u64 = number.parse().ok()?;
            match name {
                "count" => count = Some(number),
                "sum" => sum_ms = Some(number),
                "inf" | "le_inf" => above = number,
                name => bounds.push((name.strip_prefix("le_")?.parse::<u64>().ok()?, number)),
            }
        }
        let (count, sum_ms) = (count?, sum_ms?);
        // Earlier modules count each bucket by itself. If both readings fit, they are the same.
        let is_single = bounds.iter().map(|(_, number)| number).sum::<u64>() + above == count;
        let mut so_far = 0;
        let bounds = bounds
            .into_iter()
            .map(|(ms, number)| {
                so_far = if is_single { so_far + number } else { number };
                ((ms as f64 / 1_000.0).to_string(), so_far)
            })
            .collect();
        Some(Self { bounds, count, sum_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_cumulative_whatever_info_says() {
        let info = "resil_lock_wait_ms:count=6,sum=17,le_1=1,le_2=2,le_5=1,inf=2\r\nresil_hold_ms:count=6,sum=17,le_1=1,le_2=3,le_5=4,inf=6";
        let mut page = Page::here();
        page.info(None, info);
        let text = page.text();
        for name in ["lock_wait", "hold"] {
            for line in [
                r#"_bucket{le="0.001"} 1"#,
                r#"_bucket{le="0.002"} 3"#,
                r#"_bucket{le="0.005"} 4"#,
                r#"_bucket{le="+Inf"} 6"#,
                "_sum 0.017",
                "_count 6",
            ] {
                assert!(text.contains(&format!("resil_{name}_seconds{line}\n")), "{line} in {text}");
            }
        }
    }

    #[test]
    fn gauges_of_a_cluster_add_up_except_the_oldest_wait() {
        let node = |wait: u32| {
            format!(
                "resil_version:0.1.0\r\nresil_gcra_denied:3\r\nresil_gcra_keys:2\r\nresil_oldest_wait_ms:{wait}\r\n\
                 resil_eviction_risk:1\r\nresil_lock_wait_ms:count=6,sum=17,le_1=1,le_2=3,le_5=4,inf=6"
            )
        };
        let mut page = Page::here();
        for (port, wait) in [(1, 40), (2, 70), (3, 5)] {
            page.info(Some(&format!("h:{port}")), &node(wait));
        }
        page.nodes(["h:1", "h:2", "h:3"].into_iter(), ["h:4"].into_iter());
        let text = page.text();
        for line in [
            r#"resil_gcra_denied_total{node="h:2"} 3"#,
            "resil_gcra_keys 6",
            "resil_oldest_wait_seconds 0.07",
            "resil_eviction_risk 1",
            r#"resil_lock_wait_seconds_bucket{node="h:1",le="0.002"} 3"#,
            r#"resil_lock_wait_seconds_bucket{node="h:3",le="+Inf"} 6"#,
            r#"resil_lock_wait_seconds_count{node="h:3"} 6"#,
            r#"resil_module_info{version="0.1.0"} 3"#,
            r#"resil_node_up{node="h:1"} 1"#,
            r#"resil_node_up{node="h:4"} 0"#,
        ] {
            assert!(text.lines().any(|own| own == line), "{line} in {text}");
        }
    }

    #[test]
    fn labels_are_bounded_and_escaped() {
        let text = label(b"a\"b\\c\n\xff");
        assert_eq!(text, r#"a\"b\\\\c\\n\\xff"#);
        assert!(label(&[b'x'; 10_000]).len() <= LABEL_MAX);
    }
}
