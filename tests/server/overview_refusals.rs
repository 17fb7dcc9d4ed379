//! What `RES.LIST` and `RES.TOP` cannot take.

use resil_harness::{Options, Server, ok};

use crate::driven::refusal;
use crate::overview::create;
use crate::pages::page;

#[test]
fn a_refused_list_says_what_it_can_take() {
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    ok(&mut connection, &create("LOCK", "k"));
    for (line, named) in [
        ("RES.LIST", "kind"),
        ("RES.LIST THINGS", "BREAKER, LOCK, BULKHEAD, POLICY, DLQ"),
        ("RES.LIST LOCK LIMIT 0", "LIMIT must be"),
        ("RES.LIST LOCK LIMIT -1", "LIMIT must be"),
        ("RES.LIST LOCK LIMIT 99999999999999999999", "LIMIT must be"),
        ("RES.LIST LOCK CURSOR -1", "CURSOR must be"),
        ("RES.LIST LOCK CURSOR abc", "CURSOR must be"),
        ("RES.LIST LOCK CURSOR 99999999999999999999", "CURSOR must be"),
        ("RES.LIST LOCK STATE open", "held, contended"),
        ("RES.LIST LOCK MATCH", "MATCH"),
        ("RES.LIST LOCK LIMIT 1 LIMIT 1", "LIMIT"),
        ("RES.TOP", "kind"),
        ("RES.TOP DENIED LIMIT 129", "LIMIT must be"),
        ("RES.TOP MOST", "DENIED, WAITING, HELD"),
    ] {
        let error = refusal(&mut connection, line);
        assert!(error.contains(named), "{line}: {error}");
    }
    // A cursor that nobody gave is one from which nothing follows.
    for cursor in ["2", "4294967295", "4294967296", "4294967297", "9223372036854775807"] {
        for kind in ["LOCK", "BREAKER"] {
            let (next, rows) = page(&mut connection, &format!("RES.LIST {kind} CURSOR {cursor}"));
            assert_eq!((next.as_str(), rows.len()), ("0", 0), "{kind} {cursor}");
        }
    }
}
