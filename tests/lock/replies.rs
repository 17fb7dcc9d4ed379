//! What each subcommand replies, byte for byte, to both protocols; and what the server knows of them.

use resil_harness::{Options, Server, eventually, wait_for_sync};

use crate::driven::{SOON, Say};
use crate::scene::{Caller, FIRST, Scene, receive, send};

/// Lines and their replies at one instant; `F` is the first fence.
const TALK: &[(&str, &str)] = &[
    ("RES.LOCK ACQUIRE k a 30s META text", "[GRANTED F 30000 0]"),
    ("RES.LOCK ACQUIRE k b 30s", "[TAKEN a 30000 0]"),
    ("RES.LOCK ACQUIRE k b 30s WAIT 0", "[TAKEN a 30000 0]"),
    ("RES.LOCK CHECK k a", "1"),
    ("RES.LOCK CHECK k a FENCE F", "1"),
    ("RES.LOCK CHECK k a FENCE 1", "0"),
    ("RES.LOCK CHECK k b", "0"),
    ("RES.LOCK RENEW k a 20s", "[GRANTED F 20000 0]"),
    ("RES.LOCK RENEW k b 20s", "[LOST taken]"),
    ("RES.LOCK RELEASE k b", "[LOST taken]"),
    ("RES.LOCK RELEASE k a", "[RELEASED 0]"),
    ("RES.LOCK RELEASE k a", "[RELEASED 0]"),
    ("RES.LOCK RENEW k a 20s", "[LOST released]"),
    ("RES.LOCK RELEASE k b", "[LOST absent]"),
    ("RES.LOCK BREAK k", "0"),
    ("RES.LOCK BREAK none ACTOR ann REASON why", "0"),
    ("RES.LOCK ACQUIRE s r1 1500us00", "-ERR"),
    ("RES.LOCK ACQUIRE s r1 1s SHARED", "[GRANTED F+1 1000 0]"),
    ("RES.LOCK ACQUIRE s r2 2s SHARED", "[GRANTED F+2 2000 0]"),
    ("RES.LOCK ACQUIRE s w 2s", "[TAKEN r2 2000 0]"),
    ("RES.LOCK BREAK s", "2"),
    ("RES.BULKHEAD ENTER b a 2 30s", "[GRANTED 1 0 30000 0]"),
    ("RES.BULKHEAD ENTER b c 2 20s", "[GRANTED 2 0 20000 0]"),
    ("RES.BULKHEAD ENTER b d 2 20s", "[FULL 2 0 20000]"),
    ("RES.BULKHEAD RENEW b c 10s", "[GRANTED F+4 10000 0]"),
    ("RES.BULKHEAD RENEW b d 10s", "[LOST absent]"),
    ("RES.BULKHEAD LEAVE b c", "[RELEASED 0]"),
    ("RES.BULKHEAD LEAVE b c", "[RELEASED 0]"),
    ("RES.BULKHEAD LEAVE b d", "[LOST absent]"),
    ("RES.HEARTBEAT", "[0 []]"),
];

fn with_fences(text: &str) -> String {
    let numbered =
        (0..9).rev().fold(text.to_owned(), |text, n| text.replace(&format!("F+{n}"), &(FIRST + n).to_string()));
    let word = |word: &str| if word == "F" { FIRST.to_string() } else { word.to_owned() };
    numbered.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn both_protocols_get_the_same_verdicts() {
    for resp3 in [false, true] {
        let mut scene = Scene::driven();
        if resp3 {
            scene.main = scene.server.connect_resp3();
        }
        for (line, wanted) in TALK {
            let reply = scene.ask(&with_fences(line));
            let wanted = with_fences(wanted);
            assert!(
                if wanted.starts_with('-') { reply.starts_with(&wanted) } else { reply == wanted },
                "{line}: {reply}"
            );
        }
    }
}

#[test]
fn info_is_nested_in_resp3_and_flat_in_resp2() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 30s");
    let _waiter = scene.waits("RES.LOCK ACQUIRE k b 30s WAIT 30s SHARED");
    scene.main.clock_at_us(1_500_500);
    let mut modern = scene.server.connect_resp3();
    send(&mut modern, "RES.LOCK INFO k");
    let wanted = "{holders: [{owner: a, fence: F, held_ms: 1500, remaining_ms: 28500, mode: exclusive, meta: nil, bound: 0, grace_ms: 0}], \
                  holders_total: 1, waiters: [{owner: b, mode: shared, waited_ms: 1500}], waiters_total: 1, last_fence: F, exists: 1}";
    assert_eq!(receive(&mut modern), wanted.replace(": F", &format!(": {FIRST}")));
    let flat = scene.ask("RES.LOCK INFO k");
    let wanted = "[holders [[owner a fence F held_ms 1500 remaining_ms 28500 mode exclusive meta nil bound 0 grace_ms 0]] holders_total 1 \
                  waiters [[owner b mode shared waited_ms 1500]] waiters_total 1 last_fence F exists 1]";
    assert_eq!(flat, wanted.replace("fence F", &format!("fence {FIRST}")));
    assert_eq!(
        scene.ask("RES.LOCK INFO k LIMIT 0"),
        format!("[holders [] holders_total 1 waiters [] waiters_total 1 last_fence {FIRST} exists 1]")
    );
    assert_eq!(
        scene.ask("RES.LOCK INFO none"),
        "[holders [] holders_total 0 waiters [] waiters_total 0 last_fence 0 exists 0]"
    );
    scene.ask("RES.BULKHEAD ENTER b a 1 30s BOUND");
    let _inside = scene.waits("RES.BULKHEAD ENTER b c 1 30s WAIT 30s PRIORITY 3");
    let reply = scene.ask("RES.BULKHEAD INFO b");
    assert!(
        reply.contains("mode shared meta nil bound 1") && reply.contains("[owner c priority 3 waited_ms 0]"),
        "{reply}"
    );
}

#[test]
fn help_names_every_subcommand() {
    let mut scene = Scene::real();
    let help = scene.ask("RES.LOCK HELP");
    for word in ["ACQUIRE", "RENEW", "RELEASE", "CHECK", "BREAK", "INFO"] {
        assert!(help.contains(&format!("RES.LOCK {word} key")), "{help}");
    }
    let help = scene.ask("RES.BULKHEAD HELP");
    for word in ["ENTER", "RENEW", "LEAVE", "INFO"] {
        assert!(help.contains(&format!("RES.BULKHEAD {word} key")), "{help}");
    }
}

#[test]
fn the_server_knows_keys_and_flags_of_every_subcommand() {
    let mut scene = Scene::real();
    for (line, flags) in [
        ("RES.LOCK ACQUIRE k a 1s", "RW"),
        ("RES.LOCK RENEW k a 1s", "RW"),
        ("RES.LOCK RELEASE k a", "RW"),
        ("RES.LOCK BREAK k", "RW"),
        ("RES.LOCK CHECK k a", "RO"),
        ("RES.LOCK INFO k", "RO"),
        ("RES.BULKHEAD ENTER k a 1 1s", "RW"),
        ("RES.BULKHEAD RENEW k a 1s", "RW"),
        ("RES.BULKHEAD LEAVE k a", "RW"),
        ("RES.BULKHEAD INFO k", "RO"),
    ] {
        assert_eq!(scene.ask(&format!("COMMAND GETKEYS {line}")), "[k]");
        let flagged = scene.ask(&format!("COMMAND GETKEYSANDFLAGS {line}"));
        assert!(flagged.starts_with(&format!("[[k [{flags} ")), "{line}: {flagged}");
        let name = line.split(' ').take(2).collect::<Vec<_>>().join("|");
        let info = scene.ask(&format!("COMMAND INFO {name}"));
        let flag = if flags == "RO" { "readonly" } else { "write" };
        assert!(info.contains(flag) && !info.contains("denyoom"), "{name}: {info}");
        let blocks = line.contains("ACQUIRE") || line.contains("ENTER");
        assert_eq!(info.contains("blocking"), blocks, "{name}: {info}");
    }
}

#[test]
fn a_user_can_be_let_in_by_the_subcommand() {
    let mut scene = Scene::real();
    scene.main.say("ACL SETUSER checker on nopass ~* -@all +res.lock|check");
    scene.main.say("ACL SETUSER reader on nopass ~k -@all +@read");
    scene.ask("RES.LOCK ACQUIRE k a 1m");
    let mut checker = scene.server.connect();
    checker.say("AUTH checker x");
    assert_eq!(checker.integer("RES.LOCK CHECK k a"), 1);
    for line in ["RES.LOCK INFO k", "RES.LOCK RELEASE k a", "RES.LOCK BREAK k", "RES.HEARTBEAT"] {
        assert!(checker.refusal(line).starts_with("NOPERM"), "{line}");
    }
    // Redis 7.0 lets no module into its categories.
    if !scene.ask("ACL CAT read").contains("res.lock") {
        return;
    }
    checker.say("AUTH reader x");
    assert_eq!(checker.integer("RES.LOCK CHECK k a"), 1);
    checker.say("RES.LOCK INFO k");
    for line in ["RES.LOCK CHECK other a", "RES.LOCK INFO other", "RES.LOCK ACQUIRE k a 1s", "RES.LOCK BREAK k"] {
        assert!(checker.refusal(line).starts_with("NOPERM"), "{line}");
    }
}

#[test]
fn a_replica_replies_questions_and_takes_no_orders() {
    let mut scene = Scene::real();
    let replica = Server::start(Options::default().config("replicaof", format!("127.0.0.1 {}", scene.server.port())));
    scene.ask("RES.LOCK ACQUIRE k a 1m META text");
    scene.ask("RES.BULKHEAD ENTER b a 2 1m");
    wait_for_sync(&scene.server, &replica);
    let mut there = replica.connect();
    assert_eq!(there.integer("RES.LOCK CHECK k a"), 1);
    assert_eq!(there.integer("RES.LOCK CHECK k b"), 0);
    for line in ["RES.LOCK INFO k", "RES.BULKHEAD INFO b"] {
        send(&mut there, line);
        let reply = receive(&mut there);
        assert!(reply.contains("owner a") && reply.contains("holders_total 1"), "{line}: {reply}");
    }
    for line in ["RES.LOCK ACQUIRE k b 1s", "RES.LOCK RELEASE k a", "RES.LOCK BREAK k", "RES.BULKHEAD LEAVE b a"] {
        assert!(there.refusal(line).starts_with("READONLY"), "{line}");
    }
}

#[test]
fn a_late_reply_is_in_the_waiters_protocol() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1s");
    let modern = Caller::of(scene.server.connect_resp3());
    let mut modern = scene.waits_as(modern, "RES.LOCK ACQUIRE k b 1s WAIT 500ms");
    let mut older = scene.waits("RES.LOCK ACQUIRE k c 2s WAIT 5s");
    scene.main.clock_at_ms(500);
    assert_eq!(modern.reply(), "[TIMEOUT a 500 1]");
    scene.main.clock_at_ms(1_000);
    assert_eq!(older.reply(), format!("[GRANTED {} 2000 1000]", FIRST + 1_000_000));
    modern.is_in_step();
    older.is_in_step();
    eventually("nobody waits", SOON, || scene.waiters() == 0);
}
