//! What is generated from commands/*.json and checked in is what the generator writes.

use std::process::Command;

#[test]
fn generated_files_are_what_the_json_says() {
    let output = Command::new(env!("CARGO_BIN_EXE_generate")).arg("--check").output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
