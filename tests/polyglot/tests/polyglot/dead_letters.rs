//! A message that failed in one language is taken in another, with the same bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

use crate::fleet::{Fleet, Heard};

fn done(fleet: &mut Fleet, worker: usize, what: &Json) -> Json {
    let tag = fleet.ask(worker, what);
    match fleet.hear() {
        (_, Heard::Done(heard, value)) if heard == tag => value,
        other => panic!("{:?}: {other:?}", fleet.language(worker)),
    }
}

#[test]
fn a_message_failed_in_one_language_is_taken_in_another() {
    let mut fleet = Fleet::of_each(1);
    let payload = STANDARD.encode((0..=255).collect::<Vec<u8>>());
    for failing in 0..fleet.size() {
        for taking in 0..fleet.size() {
            let id = format!("{failing}/{taking}");
            let fail = json!({ "do": "fail_letter", "name": "orders", "id": id, "payload": payload });
            assert_eq!(done(&mut fleet, failing, &fail), json!("retry"));
            let taken = done(&mut fleet, taking, &json!({ "do": "take_letter", "name": "orders" }));
            let between = format!("{:?} to {:?}", fleet.language(failing), fleet.language(taking));
            assert_eq!(
                taken,
                json!({ "id": id, "payload": payload, "kind": "order", "error": "no paper" }),
                "{between}"
            );
        }
    }
}
