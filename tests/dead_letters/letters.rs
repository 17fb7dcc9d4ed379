//! What is said of ledgers again and again.

use crate::driven::{START_US, Say};
use crate::scene::{Scene, field};

/// A driven server with the ledger `d`, whose delays have no chance in them: 500 ms, 1 s, 2 s.
pub fn ledger() -> Scene {
    let mut scene = Scene::driven();
    plain_delays(&mut scene, "d");
    scene
}

pub fn plain_delays(scene: &mut Scene, key: &str) {
    assert_eq!(scene.ask(&format!("RES.DLQ CONFIG {key} JITTER none ACTOR test")), "OK");
}

/// The fences of `[TAKEN ... [[id fence ...] ...]]`, with their ids, in order.
pub fn given(reply: &str) -> Vec<(String, u64)> {
    let entries = reply.split("[[").nth(1).unwrap_or_else(|| panic!("nothing was taken: {reply}"));
    let one = |entry: &str| {
        let mut words = entry.split(' ');
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    entries.split(" [").filter_map(one).collect()
}

/// Takes one entry, whose fence is returned.
#[track_caller]
pub fn take(scene: &mut Scene, line: &str) -> (String, u64) {
    let reply = scene.ask(&format!("RES.DLQ TAKE {line}"));
    assert!(reply.starts_with("[TAKEN "), "{line}: {reply}");
    let mut all = given(&reply);
    assert_eq!(all.len(), 1, "{reply}");
    all.remove(0)
}

/// A dead entry of the group `type/error`.
#[track_caller]
pub fn dies(scene: &mut Scene, key: &str, id: &str, kind: &str, error: &str) {
    let reply = scene.ask(&format!("RES.DLQ FAIL {key} {id} ERROR {error} PAYLOAD p-{id} TYPE {kind} FINAL"));
    assert!(reply.starts_with("[DEAD 1 "), "{reply}");
}

pub fn state(scene: &mut Scene, key: &str, id: &str) -> String {
    scene.ask(&format!("RES.DLQ GET {key} {id} STATE"))
}

pub fn count(scene: &mut Scene, key: &str, what: &str) -> i64 {
    let info = scene.main.say(&format!("RES.DLQ INFO {key}"));
    field(&info, what).parse().unwrap_or_else(|_| panic!("{what} is no number"))
}

/// `F+17` as the fence it stands for, `M+17` as the millisecond.
pub fn numbered(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("+") {
        let (before, after) = rest.split_at(at);
        let base = match before.chars().last() {
            Some('F') => START_US,
            Some('M') => START_US / 1_000,
            _ => 0,
        };
        let digits = after[1..].chars().take_while(char::is_ascii_digit).count();
        match after[1..1 + digits].parse::<i64>() {
            Ok(number) if base != 0 => {
                out.push_str(&before[..before.len() - 1]);
                out.push_str(&(base + number).to_string());
            }
            _ => {
                out.push_str(before);
                out.push_str(&after[..1 + digits]);
            }
        }
        rest = &after[1 + digits..];
    }
    out + rest
}

/// Plays lines with their replies; `@500` sets the clock to so many milliseconds.
#[track_caller]
pub fn play(scene: &mut Scene, lines: &[(&str, &str)]) {
    for (line, wanted) in lines {
        match line.strip_prefix('@') {
            Some(ms) => scene.main.clock_at_ms(ms.parse().expect("a number")),
            None => assert_eq!(scene.ask(&numbered(line)), numbered(wanted), "{line}"),
        }
    }
}
