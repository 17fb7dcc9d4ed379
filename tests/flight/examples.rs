//! The examples of docs/idempotency.md run, and say what the page says.

use std::process::Command;

fn says(program: &str, lines: &[&str]) {
    let output = Command::new(program).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for line in lines {
        assert!(text.lines().any(|said| said.trim() == *line), "{line:?} is not in:\n{text}");
    }
}

#[test]
fn a_resumed_saga_does_no_step_twice() {
    says(
        env!("CARGO_BIN_EXE_saga"),
        &[
            "crashed between two steps: reserve 1, charge 1, ship 1",
            "crashed inside a step: reserve 1, charge 1, ship 1",
            "two workers at once: reserve 1, charge 1, ship 1",
        ],
    );
}

#[test]
fn an_event_that_is_delivered_again_is_processed_once() {
    says(
        env!("CARGO_BIN_EXE_processed_events"),
        &[
            "30 deliveries of 10 events: 10 were processed",
            "a consumer that died before the effect: its own redelivery was processed",
            "another consumer in its place: the event was skipped, and is lost",
            "with BEGIN and COMMIT another consumer processed it",
        ],
    );
}
