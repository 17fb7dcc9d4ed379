//! Keys are bytes: whatever they are, they work.

use resil_harness::Server;

use crate::engine::resp::{Client, words};
use crate::engine::server_state::{assert_no_internal_errors, digest_of, must};
use crate::malformed::filled;

#[test]
fn keys_of_any_bytes_work_and_survive_a_reload() {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    let long = vec![0xfe; 1 << 20];
    let keys: [&[u8]; 8] =
        [b"", b"\0", b"a\0b", b"\xff\xfe\xfd", b"\r\n", b"key with spaces", "schl\u{fc}ssel".as_bytes(), &long];
    for key in keys {
        for line in [
            "RES.GCRA # 10 1d",
            "RES.GCRA.PEEK # 10 1d",
            "RES.GCRA # 10 1d REFUND 1",
            "RES.MGCRA 1 # 10 1d 10",
            "CL.THROTTLE # 9 10 86400",
            "CL.THROTTLE # 9 10 86400 0",
        ] {
            let reply = client.call(&filled(line, key));
            assert!(!reply.is_error(), "{reply:?} for {}", key.escape_ascii());
        }
        // Taken by RES.MGCRA and CL.THROTTLE; the take of RES.GCRA was given back.
        let left = client.call(&words([b"RES.GCRA.PEEK".as_slice(), key, b"10", b"1d"])).integers();
        assert_eq!(left.expect("a verdict")[0], 8);
        let window = [key, b":window"].concat();
        for name in ["RES.WINDOW", "RES.WINDOW.PEEK"] {
            let reply = client.call(&words([name.as_bytes(), &window, b"10", b"1d"]));
            assert_eq!(reply.integers().expect("a verdict")[2], 9);
        }
        let breaker = [key, b":breaker"].concat();
        for line in ["RES.BREAKER CONFIG # OPEN 1m", "RES.BREAKER TALLY # 0 caller 1 OK 0 FAIL 9 RUN 9"] {
            assert!(!client.call(&filled(line, &breaker)).is_error());
        }
        let digests = |client: &mut Client| [key, &window, &breaker].map(|key| digest_of(client, key));
        let before = digests(&mut client);
        must(&mut client, "DEBUG RELOAD");
        assert_eq!(digests(&mut client), before);
    }
    assert_no_internal_errors(&mut client);
}

#[test]
fn words_of_the_grammar_are_keys_like_any_other() {
    let server = Server::fresh();
    let mut client = Client::new(&server);
    for key in ["AND", "BURST", "10", "1s", "COST"] {
        must(&mut client, &format!("RES.GCRA {key} 10 1d"));
        must(&mut client, &format!("RES.WINDOW {key}:w 10 1d"));
    }
    must(&mut client, "RES.MGCRA 1 AND 10 1d 10 BURST 10 1d 10");
}
