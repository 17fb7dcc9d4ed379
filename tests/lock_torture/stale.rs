//! Why fences exist: the demonstration `fenced_store` shows both outcomes.

use std::process::Command;

#[test]
fn updates_are_lost_without_fences_and_never_with_them() {
    let output = Command::new(env!("CARGO_BIN_EXE_fenced_store")).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let says = |line: &str| assert!(text.lines().any(|said| said.trim() == line), "{line:?} is not in:\n{text}");
    says("without fences: 1 of 2 deposits is in the account: 110 instead of 150. An update was lost.");
    says("with fences: 2 of 2 deposits are in the account: 150. The stale write was refused.");
}
