//! redis-cell as published, built beside us.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The module file, or why there is none. `RESIL_CELL` names one built elsewhere.
pub fn module() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("RESIL_CELL") {
        return PathBuf::from(path).canonicalize().map_err(|error| format!("RESIL_CELL: {error}"));
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = here.join("../target/peers");
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--locked", "--package", "redis-cell", "--message-format=json"])
        .arg("--manifest-path")
        .arg(here.join("peers/Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        // The flags of our own workspace are not meant for it.
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        return Err(said.lines().find(|line| line.starts_with("error")).unwrap_or("cargo failed").to_owned());
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    messages
        .lines()
        .filter_map(|message| artefact(message, "redis_cell"))
        .next_back()
        .ok_or_else(|| "cargo names no module file".to_owned())
}

/// The dynamic library a message of cargo's names, if it is that of `library`.
pub fn artefact(message: &str, library: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_meant = message["reason"] == "compiler-artifact"
        && message["target"]["name"].as_str().is_some_and(|name| name.replace('-', "_") == library);
    let mut files = message["filenames"].as_array().filter(|_| is_meant)?.iter().filter_map(Value::as_str);
    files.find(|file| file.ends_with(std::env::consts::DLL_SUFFIX)).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_file_is_the_one_cargo_names() {
        let of = |name: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"name":"{name}"}},"filenames":["/t/lib{name}.rlib","/t/lib{name}-1.so"]}}"#
            )
        };
        assert_eq!(artefact(&of("redis_cell"), "redis_cell"), Some(PathBuf::from("/t/libredis_cell-1.so")));
        assert_eq!(artefact(&of("time"), "redis_cell"), None);
        assert_eq!(artefact("Compiling redis-cell", "redis_cell"), None);
    }
}
