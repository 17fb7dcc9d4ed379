//! Values under a name: tags, clearing, values that are set; who hears of it; what a lost name means.

use resil_harness::{Cluster, Options};

use crate::driven::Say;
use crate::hearing::Hearing;
use crate::scene::Scene;
use crate::talk::number;

fn keep(scene: &mut Scene, key: &str, place: &str) {
    assert!(scene.ask(&format!("RES.SFLIGHT JOIN {key} loader 10s UNDER name")).starts_with("[LEAD "));
    assert_eq!(scene.ask(&format!("RES.SFLIGHT PUBLISH {key} loader 1h UNDER name {place} VALUE v")), "[PUBLISHED 0]");
}

#[test]
fn ten_thousand_values_are_cleared_by_writing_one_number() {
    let mut scene = Scene::driven();
    for index in 0..10_000 {
        keep(&mut scene, &format!("k{index}"), "TAG all TAG other");
    }
    scene.ask("CONFIG RESETSTAT");
    scene.ask("RES.SFLIGHT CLEAR name TAG all");
    let stats = scene.main.text("INFO commandstats");
    let line = stats.lines().find(|line| line.to_lowercase().contains("res.sflight|clear")).expect("it was counted");
    let took: i64 = line.split("usec=").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok()).expect("usec");
    assert!(took < 5_000, "{line}");
    for index in [0, 4_711, 9_999] {
        assert_eq!(scene.ask(&format!("RES.SFLIGHT GET k{index} UNDER name")), "[MISS]");
    }
}

#[test]
fn followers_of_a_voided_load_lead_only_once() {
    let mut scene = Scene::driven();
    scene.ask("RES.SFLIGHT JOIN k leader 10s UNDER name");
    let mut followers: Vec<_> =
        ["b", "c", "d"].map(|name| scene.waits(&format!("RES.SFLIGHT JOIN k {name} 10s UNDER name WAIT 1m"))).into();
    scene.ask("RES.SFLIGHT CLEAR name TAG t");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH k leader 1m UNDER name TAG t VALUE old"), "[LOST invalidated]");
    assert_eq!(followers[0].verdict(), "LEAD");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH k b 1m UNDER name TAG t VALUE new"), "[PUBLISHED 2]");
    for follower in &mut followers[1..] {
        assert_eq!(follower.reply(), "[VALUE new 0 60000]");
    }
}

#[test]
fn a_value_that_is_set_reaches_waiters() {
    let mut scene = Scene::driven();
    scene.ask("RES.SFLIGHT JOIN k leader 10s UNDER name");
    let mut follower = scene.waits("RES.SFLIGHT JOIN k b 10s UNDER name WAIT 1m");
    assert_eq!(scene.ask("RES.SFLIGHT SET k 1m UNDER name VALUE set"), "1");
    assert_eq!(follower.reply(), "[VALUE set 0 60000]");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH k leader 1m UNDER name VALUE old"), "[LOST invalidated]");
}

#[test]
fn a_deleted_or_evicted_name_voids_its_values() {
    let mut scene = Scene::driven();
    keep(&mut scene, "k", "TAG t");
    scene.ask("RES.SFLIGHT JOIN late leader 10s UNDER name");
    scene.ask("DEL name");
    assert_eq!(scene.ask("RES.SFLIGHT GET k UNDER name"), "[MISS]");
    assert!(scene.ask("RES.SFLIGHT JOIN k loader 10s UNDER name").starts_with("[LEAD "), "the name is made anew");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH late leader 1m UNDER name VALUE v"), "[LOST invalidated]");
    assert_eq!(scene.ask("TYPE name"), "resil-gen");
    assert_eq!(scene.main.info_number("resil", "generations_keys"), 1);
}

#[test]
fn a_generation_only_grows_even_when_remade() {
    let mut scene = Scene::driven();
    let mut last = 0;
    for _ in 0..3 {
        keep(&mut scene, "k", "");
        for line in
            ["RES.SFLIGHT CLEAR name TAG a", "RES.SFLIGHT CLEAR name", "RES.SFLIGHT CLEAR name TAG a TAG b SOFT"]
        {
            let generation: i64 = scene.ask(line).parse().expect("a number");
            assert!(generation > last, "{generation} after {last}");
            last = generation;
        }
        scene.ask("DEL name k");
    }
}

#[test]
fn a_names_listener_hears_what_is_out_of_date() {
    let mut scene = Scene::driven();
    let mut hearing = Hearing::to(&scene.server, "resil:invalidated:*");
    keep(&mut scene, "k", "TAG t");
    scene.ask("RES.SFLIGHT INVALIDATE k UNDER name");
    scene.ask("RES.SFLIGHT INVALIDATE nothing UNDER name");
    scene.ask("RES.SFLIGHT SET k 1m UNDER name VALUE v");
    scene.ask("RES.SFLIGHT CLEAR name TAG t TAG u");
    scene.ask("RES.SFLIGHT CLEAR name");
    scene.ask("RES.SFLIGHT INVALIDATE k");
    let heard: Vec<String> =
        hearing.exactly(6).into_iter().map(|(channel, message)| format!("{channel} {message}")).collect();
    let wanted = ["key k", "key nothing", "key k", "tag t", "tag u", "all"];
    assert_eq!(heard, wanted.map(|what| format!("resil:invalidated:name {what}")));
}

#[test]
fn a_value_that_says_under_is_no_key() {
    let mut scene = Scene::driven();
    scene.ask("ACL SETUSER app on nopass +@all ~k* ~name* &*");
    scene.ask("AUTH app x");
    for value in ["UNDER", "under"] {
        scene.ask("RES.SFLIGHT JOIN k t 10s");
        assert_eq!(scene.ask(&format!("RES.SFLIGHT PUBLISH k t 1m STALE 1m VALUE {value}")), "[PUBLISHED 0]");
        assert_eq!(scene.ask("RES.SFLIGHT GET k"), format!("[VALUE {value} 0 60000]"));
        scene.ask("RES.SFLIGHT INVALIDATE k");
        scene.ask("RES.SFLIGHT JOIN k t 10s UNDER name");
        assert_eq!(
            scene.ask(&format!("RES.SFLIGHT PUBLISH k t 1m UNDER name TAG UNDER VALUE {value}")),
            "[PUBLISHED 0]"
        );
        scene.ask("RES.SFLIGHT INVALIDATE k");
    }
    let refused = scene.ask("RES.SFLIGHT JOIN k t 10s UNDER elsewhere");
    assert!(refused.contains("NOPERM"), "the name is a key, too: {refused}");
}

#[test]
fn a_name_of_another_slot_is_refused() {
    let cluster = Cluster::start(2, Options::default());
    let mut connection = cluster.node_for_key("{a}k").connect();
    let refused = crate::talk::ask(&mut connection, "RES.SFLIGHT JOIN {a}k t 10s UNDER {b}name");
    assert!(refused.contains("CROSSSLOT"), "{refused}");
    let lead = crate::talk::ask(&mut connection, "RES.SFLIGHT JOIN {a}k t 10s UNDER {a}name");
    assert!(lead.starts_with("[LEAD ") && number(&lead, 1) > 0, "{lead}");
    for line in ["RES.SFLIGHT MGET {b}name {a}k", "RES.SFLIGHT MGET {a}name {a}k {b}k"] {
        let refused = crate::talk::ask(&mut connection, line);
        assert!(refused.contains("CROSSSLOT"), "{line}: {refused}");
    }
    assert_eq!(crate::talk::ask(&mut connection, "RES.SFLIGHT MGET {a}name {a}k {a}other"), "[[MISS] [MISS]]");
}

#[test]
fn many_values_are_got_as_one_is() {
    let mut scene = Scene::driven();
    keep(&mut scene, "fresh", "TAG t");
    keep(&mut scene, "tagged", "TAG gone");
    keep(&mut scene, "softened", "TAG soft STALE 1h");
    scene.ask("RES.SFLIGHT SET empty 1h UNDER name EMPTY");
    scene.ask("RES.SFLIGHT SET elsewhere 1h UNDER other VALUE v");
    scene.ask("RES.SFLIGHT CLEAR name TAG gone");
    scene.ask("RES.SFLIGHT CLEAR name TAG soft SOFT");
    let keys = ["fresh", "tagged", "softened", "empty", "elsewhere", "missing", "fresh"];
    let each = keys.map(|key| scene.ask(&format!("RES.SFLIGHT GET {key} UNDER name")));
    assert_eq!(each[..4], ["[VALUE v 0 3600000]", "[MISS]", "[STALE v 0]", "[EMPTY 0]"]);
    let many = scene.ask(&format!("RES.SFLIGHT MGET name {}", keys.join(" ")));
    assert_eq!(many, format!("[{}]", each.join(" ")));
    scene.ask("RES.SFLIGHT CLEAR name");
    let many = scene.ask("RES.SFLIGHT MGET name fresh softened empty");
    assert_eq!(many, "[[MISS] [MISS] [MISS]]", "the name was cleared");
}

#[test]
fn many_values_have_at_most_a_megabyte_and_one_more() {
    let mut scene = Scene::driven();
    let large = "x".repeat(600 << 10);
    for key in ["a", "b", "c", "d"] {
        scene.ask(&format!("RES.SFLIGHT SET {key} 1h UNDER name VALUE {large}"));
    }
    let many = scene.ask("RES.SFLIGHT MGET name a b c d");
    assert_eq!(many.replace(&large, "large"), "[[VALUE large 0 3600000] [VALUE large 0 3600000] nil nil]");
    let hundred = vec!["a"; 100].join(" ");
    assert!(scene.ask(&format!("RES.SFLIGHT MGET name {hundred}")).starts_with("[[VALUE "));
    let refused = scene.ask(&format!("RES.SFLIGHT MGET name a {hundred}"));
    assert!(refused.contains("at most 100 times"), "{refused}");
}

#[test]
fn a_name_that_is_another_kind_of_key_is_refused() {
    let mut scene = Scene::driven();
    scene.ask("SET name text");
    for line in [
        "RES.SFLIGHT JOIN k t 10s UNDER name",
        "RES.SFLIGHT GET k UNDER name",
        "RES.SFLIGHT SET k 1s UNDER name VALUE v",
        "RES.SFLIGHT INVALIDATE k UNDER name",
        "RES.SFLIGHT CLEAR name",
    ] {
        let refused = scene.ask(line);
        assert!(refused.contains("WRONGTYPE"), "{line}: {refused}");
    }
    assert_eq!(scene.ask("EXISTS k"), "0");
}
