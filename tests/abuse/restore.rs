//! Payloads of RESTORE.

use resil_harness::{Options, Server};

use crate::engine::payload::{Body, crc64};
use crate::engine::resp::Client;
use crate::engine::restoring::{Restoring, restore};
use crate::engine::samples::real_payloads;
use crate::engine::seed::{say, seeded};
use crate::engine::server_state::digest_of;

const PAYLOADS: usize = 100_000;

#[test]
fn a_forged_payload_is_refused_or_becomes_usable() {
    let mut restoring = Restoring::start(seeded("restore"));
    restoring.run(PAYLOADS);
    let (accepted, refused) = (restoring.accepted, restoring.refused);
    say(&format!("restore: {accepted} payloads accepted, {refused} refused"));
    assert!(accepted > PAYLOADS / 20 && refused > PAYLOADS / 4, "both kinds were met: {accepted} and {refused}");
}

/// Without it the test above might only see the server's own checks.
#[test]
fn a_payload_taken_apart_and_resealed_is_equal() {
    // The check value of this CRC in its catalogue.
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    let server = Server::start(Options::default().module_args(["test-clock", "yes"]).config("rdbcompression", "no"));
    let mut client = Client::new(&server);
    for payload in real_payloads(&mut client) {
        let body = Body::of(&payload);
        assert_eq!(body.sealed(), payload);
        let pieces = body.pieces().expect("a plain payload holds its state as it is");
        assert_eq!(body.with_pieces(&pieces).sealed(), payload);
        for key in [b"one".as_slice(), b"two"] {
            assert!(!client.call(&restore(key, &body.sealed())).is_error());
        }
        assert_eq!(digest_of(&mut client, b"one"), digest_of(&mut client, b"two"));
    }
}
