//! The Python SDK, built for release, beside what one would use instead from Python: by `peers/python`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use resil_harness::{Options, Server};
use serde_json::Value;

use crate::foreign::{self, Program};

/// What selects it, as a row's name would.
pub const NAME: &str = "python: the SDK";

/// Prints its tables and bars, or why there are none.
pub fn print(quick: bool) {
    println!("\n## Python\n");
    match tables(quick) {
        Ok(tables) => println!("{}", tables.trim_end()),
        Err(reason) => println!("The Python SDK was left out: {reason}"),
    }
}

fn tables(quick: bool) -> Result<String, String> {
    let program = foreign::python("python/main.py")?;
    let program = with_package(program, &library()?)?;
    let (server, plain) = (Server::fresh(), Server::start(Options::default().without_module()));
    let quick = quick.then(|| "--quick".to_owned());
    program.run(&[server.port().to_string(), plain.port().to_string()].into_iter().chain(quick).collect::<Vec<_>>())
}

/// The package as it is installed: its Python files, and the library in their midst.
fn with_package(program: Program, library: &Path) -> Result<Program, String> {
    let place = foreign::copied_all("../../sdk-python/python/resil", "python/resil", &["py", "pyi"])?;
    foreign::replaced(library, &place.join("_native.abi3.so"))?;
    Ok(program.env("PYTHONPATH", place.parent().unwrap_or(&place)))
}

/// The library as users have it. `RESIL_PYTHON` names one built elsewhere.
fn library() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("RESIL_PYTHON") {
        return PathBuf::from(path).canonicalize().map_err(|error| format!("RESIL_PYTHON: {error}"));
    }
    eprintln!("python: a release build of the SDK");
    let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--package", "resil-python", "--message-format=json-render-diagnostics"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        return Err(said.lines().find(|line| line.starts_with("error")).unwrap_or("cargo failed").to_owned());
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    messages.lines().filter_map(artefact).next_back().ok_or_else(|| "cargo names no library".to_owned())
}

/// The dynamic library a message of cargo's names, if it is the SDK's.
fn artefact(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_ours = message["reason"] == "compiler-artifact" && message["target"]["name"] == "resil_native";
    let mut files = message["filenames"].as_array().filter(|_| is_ours)?.iter().filter_map(Value::as_str);
    files.find(|file| file.ends_with(env::consts::DLL_SUFFIX)).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_the_one_cargo_names() {
        let of = |name: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"name":"{name}"}},"filenames":["/t/lib{name}.rlib","/t/lib{name}.so"]}}"#
            )
        };
        assert_eq!(artefact(&of("resil_native")), Some(PathBuf::from("/t/libresil_native.so")));
        assert_eq!(artefact(&of("resil")), None);
    }
}
