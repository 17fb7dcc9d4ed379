//! Who may do what, by the rules of docs/access.md: a worker works, an operator looks and holds, a governor decides. And who did
//! it is known.

use redis::Connection;
use resil_harness::Server;

use crate::driven::Say;
use crate::letters::{dies, ledger};
use crate::scene::{Scene, receive, send};

const WORKER: &[&str] = &[
    "RES.DLQ FAIL resil:dlq:d w ERROR e PAYLOAD p",
    "RES.DLQ TAKE resil:dlq:d t 1s",
    "RES.DLQ DONE resil:dlq:d w 1",
    "RES.DLQ RENEW resil:dlq:d t 1s",
    "RES.DLQ RETURN resil:dlq:d w 1",
    "RES.DLQ PARK resil:dlq:d w2 AGGREGATE a PAYLOAD p",
    "RES.DLQ GET resil:dlq:d w",
];

const OPERATOR: &[&str] = &[
    "RES.DLQ GET resil:dlq:d w",
    "RES.DLQ LIST resil:dlq:d",
    "RES.DLQ INFO resil:dlq:d ALERTS",
    "RES.DLQ SEEN resil:dlq:d 1",
    "RES.DLQ HOLD resil:dlq:d f1 ON",
    "RES.DLQ STOP resil:dlq:d 1",
];

const GOVERNOR: &[&str] = &[
    "RES.DLQ DIAGNOSE resil:dlq:d pay/no CATEGORY contract CAUSE c FIX f",
    "RES.DLQ REDRIVE resil:dlq:d 1",
    "RES.DLQ CLOSE resil:dlq:d 1",
    "RES.DLQ PURGE resil:dlq:d OLDER 90d",
    "RES.DLQ CONFIG resil:dlq:d CRASHES 3",
];

fn user(server: &Server, name: &str, rules: &str) -> Connection {
    let mut connection = server.connect();
    connection.say(&format!("ACL SETUSER {name} on >secret ~resil:dlq:* resetchannels {rules}"));
    connection.say(&format!("AUTH {name} secret"));
    connection
}

/// A connection of a user that docs/access.md has a rule for.
fn role(server: &Server, name: &str) -> Connection {
    let page = include_str!("../../docs/access.md");
    let start = format!("ACL SETUSER letters-{name} ");
    let rule = page.lines().find(|line| line.starts_with(&start)).expect("the page has its rule");
    let mut connection = server.connect();
    connection.say(rule);
    connection.say(&format!("AUTH letters-{name} secret"));
    connection
}

fn is_permitted(connection: &mut Connection, line: &str) -> bool {
    send(connection, line);
    !receive(connection).starts_with("-NOPERM ")
}

#[test]
fn each_role_may_do_its_own_and_nothing_else() {
    let mut scene = Scene::driven();
    dies(&mut scene, "resil:dlq:d", "f1", "pay", "no");
    let roles = [
        ("worker", vec![WORKER], vec![&OPERATOR[1..], GOVERNOR]),
        ("operator", vec![OPERATOR], vec![&WORKER[..6], GOVERNOR]),
        ("governor", vec![WORKER, OPERATOR, GOVERNOR], vec![]),
    ];
    for (name, may, may_not) in roles {
        let mut connection = role(&scene.server, name);
        for line in may.concat() {
            assert!(is_permitted(&mut connection, line), "{name}: {line}");
        }
        for line in may_not.concat() {
            assert!(!is_permitted(&mut connection, line), "{name}: {line}");
        }
        assert!(!is_permitted(&mut connection, "RES.DLQ GET other w"), "{name}: a key that is not its own");
    }
}

#[test]
fn the_default_user_says_who_acts() {
    let mut scene = ledger();
    dies(&mut scene, "d", "f1", "pay", "no");
    let before = scene.main.digest("d");
    for line in GOVERNOR.iter().chain(&OPERATOR[3..]) {
        let error = scene.ask(&line.replace("resil:dlq:d", "d"));
        assert!(error.starts_with("-ERR ACTOR is required for the user default"), "{line}: {error}");
    }
    assert_eq!(scene.main.digest("d"), before);
}

#[test]
fn the_audit_names_the_user_also_in_transactions_and_scripts() {
    let mut scene = Scene::driven();
    let key = "resil:dlq:d";
    dies(&mut scene, key, "f1", "pay", "no");
    let mut ann = user(&scene.server, "ann", "+res.dlq +eval +multi +exec");
    assert_eq!(ann.integer("RES.DLQ HOLD resil:dlq:d f1 ON"), 1);
    ann.say("MULTI");
    ann.say("RES.DLQ HOLD resil:dlq:d f1 OFF");
    ann.say("EXEC");
    let script = "return redis.call('RES.DLQ','HOLD',KEYS[1],'f1','ON')";
    resil_harness::ok(&mut ann, &["EVAL", script, "1", key]);
    let error = resil_harness::error_text(&mut scene.main, &["EVAL", script, "1", key]);
    assert!(error.contains("ACTOR is required"), "{error}");
    send(&mut scene.main, &format!("RES.DLQ INFO {key} AUDIT"));
    let audit = receive(&mut scene.main);
    assert_eq!(audit.matches("user ann ").count(), 3, "{audit}");
    assert_eq!(audit.matches(" user ").count(), 3, "{audit}");
}

#[test]
fn every_role_has_what_sdks_need_on_a_cluster() {
    let scene = ledger();
    for name in ["worker", "operator", "governor"] {
        let mut connection = role(&scene.server, name);
        for line in ["PING", "CLIENT ID", "CLIENT SETNAME sdk", "CLUSTER SLOTS"] {
            assert!(is_permitted(&mut connection, line), "{name}: {line}");
        }
    }
    for name in ["worker", "governor"] {
        assert!(is_permitted(&mut role(&scene.server, name), "SSUBSCRIBE resil:x"), "{name} waits");
    }
}
