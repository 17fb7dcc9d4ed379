//! Who may do what, where keys are, and who hears of it.

use resil_harness::{Cluster, Server};

use crate::driven::{Say, driven, start_driven};
use crate::scene::Caller;
use crate::{ask, ticket};

#[test]
fn the_subject_is_a_declared_key() {
    let (_server, mut connection) = start_driven();
    assert_eq!(ask(&mut connection, "COMMAND GETKEYS RES.GUARD ENTER p o SUBJECT s COST 2"), "[p s]");
    assert_eq!(ask(&mut connection, "COMMAND GETKEYS RES.GUARD ENTER p o COST 2"), "[p]");
    ask(&mut connection, "ACL SETUSER worker on >x ~p* +@all");
    ask(&mut connection, r#"RES.POLICY SET p {"rateLimit":{"limit":1,"period":"1h"}}"#);
    ask(&mut connection, "AUTH worker x");
    ticket(&ask(&mut connection, "RES.GUARD ENTER p o SUBJECT p:s"));
    assert!(ask(&mut connection, "RES.GUARD ENTER p o SUBJECT other").starts_with("-NOPERM "));
}

#[test]
fn a_subject_of_another_slot_is_refused_in_a_cluster() {
    let cluster = Cluster::start(3, driven());
    let mut connection = cluster.node_for_key("{p}").connect();
    connection.clock_at_ms(0);
    assert_eq!(ask(&mut connection, r#"RES.POLICY SET {p} {"rateLimit":{"limit":1,"period":"1h"}}"#), "[1 created]");
    ticket(&ask(&mut connection, "RES.GUARD ENTER {p} o SUBJECT {p}:alice"));
    let error = ask(&mut connection, "RES.GUARD ENTER {p} q SUBJECT {q}:alice");
    assert!(error.starts_with("-CROSSSLOT "), "{error}");
}

#[test]
fn keys_of_other_types_are_refused_both_ways() {
    let (_server, mut connection) = start_driven();
    ask(&mut connection, "SET text x");
    ask(&mut connection, r#"RES.POLICY SET p {"rateLimit":{"limit":1,"period":"1h"}}"#);
    for line in [
        "RES.POLICY SET text {}",
        "RES.POLICY GET text",
        "RES.POLICY HISTORY text",
        "RES.POLICY DELETE text",
        "RES.GUARD ENTER text o",
        "RES.GUARD EXIT text 1 OK",
        "RES.GUARD STATE text",
        "RES.GUARD ENTER p o SUBJECT text",
        "RES.GUARD ENTER p o SUBJECT p",
        "RES.GCRA p 1 1s",
        "RES.LOCK ACQUIRE p o 1s",
        "GET p",
    ] {
        let error = ask(&mut connection, line);
        assert!(error.starts_with("-WRONGTYPE "), "{line}: {error}");
    }
    assert_eq!(ask(&mut connection, "TYPE p"), "resil-pol");
}

#[test]
fn every_change_is_one_event() {
    let (server, mut connection) = start_driven();
    let mut listener = Caller::of(server.connect());
    listener.send("SUBSCRIBE resil:events:p");
    listener.reply();
    let breaker = r#"RES.POLICY SET p {"breaker":{"consecutiveFailures":1}}"#;
    ask(&mut connection, breaker);
    ask(&mut connection, breaker);
    ask(&mut connection, "RES.POLICY SET p {} ACTOR ada REASON why");
    ask(&mut connection, breaker);
    let admitted = ticket(&ask(&mut connection, "RES.GUARD ENTER p o"));
    ask(&mut connection, &format!("RES.GUARD EXIT p {admitted} FAIL CORRELATION trace"));
    ask(&mut connection, "RES.POLICY DELETE p");
    let expected = [
        r#""action":"created""#,
        r#""action":"changed","actor":"ada""#,
        r#""action":"changed""#,
        r#""correlation":"trace""#,
        r#""action":"deleted""#,
    ];
    for part in expected {
        let heard = listener.reply();
        assert!(heard.replace('\\', "").contains(part), "{part}: {heard}");
    }
}

#[test]
fn what_live_policies_take_is_counted() {
    let (_server, mut connection) = start_driven();
    ask(&mut connection, r#"RES.POLICY SET p {"bulkhead":{"maxConcurrentCalls":1},"retry":{}}"#);
    let a = ticket(&ask(&mut connection, "RES.GUARD ENTER p a"));
    ask(&mut connection, "RES.GUARD ENTER p b");
    ask(&mut connection, &format!("RES.GUARD EXIT p {a} FAIL"));
    let counts = [("guard_keys", 1), ("guard_granted", 1), ("guard_denied", 1), ("guard_retries", 1)];
    for (field, count) in counts {
        assert_eq!(connection.info_number("resil", field), count, "{field}");
    }
    let state = ask(&mut connection, "RES.GUARD STATE p");
    assert!(state.contains("bulkhead 1") && state.contains("retrying 1"), "{state}");
}

#[test]
fn without_memory_no_key_is_made_and_all_else_works() {
    let server = Server::start(driven());
    let mut connection = server.connect();
    connection.clock_at_ms(0);
    ask(&mut connection, "RES.POLICY SET p {}");
    ask(&mut connection, "CONFIG SET maxmemory 1");
    assert_eq!(ask(&mut connection, r#"RES.POLICY SET p {"rateLimit":{"limit":9,"period":"1s"}}"#), "[2 changed]");
    for line in ["RES.GUARD ENTER p b SUBJECT customer", "RES.POLICY SET q {}"] {
        let error = ask(&mut connection, line);
        assert!(error.starts_with("-OOM "), "{line}: {error}");
    }
    let a = ticket(&ask(&mut connection, "RES.GUARD ENTER p a"));
    assert_eq!(ask(&mut connection, &format!("RES.GUARD EXIT p {a} OK")), "[DONE]");
    assert_eq!(ask(&mut connection, "RES.POLICY DELETE p"), "[3 deleted]");
}

#[test]
fn the_documented_roles_can_do_exactly_their_work() {
    let (server, mut connection) = start_driven();
    let rules = include_str!("../../docs/access.md").lines();
    let rules = rules
        .filter(|line| line.starts_with("ACL SETUSER guarded ") || line.starts_with("ACL SETUSER policy-operator "));
    assert_eq!(rules.inspect(|rule| assert_eq!(ask(&mut connection, rule), "OK", "{rule}")).count(), 2);
    let (mut service, mut operator) = (server.connect(), server.connect());
    assert_eq!(ask(&mut service, "AUTH guarded secret"), "OK");
    assert_eq!(ask(&mut operator, "AUTH policy-operator secret"), "OK");
    let key = "resil:policy:{p}";
    assert_eq!(ask(&mut operator, &format!(r#"RES.POLICY SET {key} {{"breaker":{{}}}}"#)), "[1 created]");
    assert!(ask(&mut operator, &format!("RES.POLICY GET {key}")).contains("actor policy-operator"));
    let admitted = ticket(&ask(&mut service, &format!("RES.GUARD ENTER {key} o")));
    assert_eq!(ask(&mut service, &format!("RES.GUARD EXIT {key} {admitted} OK")), "[DONE]");
    for line in ["RES.POLICY SET KEY {}", "RES.POLICY DELETE KEY", "RES.BREAKER FORCE KEY OPEN"] {
        let error = ask(&mut service, &line.replace("KEY", key));
        assert!(error.starts_with("-NOPERM "), "{line}: {error}");
    }
    for line in ["RES.GUARD ENTER KEY o", "RES.POLICY SET other {}"] {
        let error = ask(&mut operator, &line.replace("KEY", key));
        assert!(error.starts_with("-NOPERM "), "{line}: {error}");
    }
}
