//! The Python SDK beside what one would use instead, by the programs of `peers/python`: a release build, laid out as the package
//! that users install.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use resil_harness::{Options, Server};

use crate::{cell, foreign};

/// What selects it, as a row's name would.
pub const NAME: &str = "sdk: python";

/// Prints its tables and bars, or why there are none.
pub fn print(quick: bool) {
    println!("\n### Python\n");
    match tables(quick) {
        Ok(tables) => println!("{}", tables.trim_end()),
        Err(reason) => println!("The Python SDK was left out: {reason}"),
    }
}

fn tables(quick: bool) -> Result<String, String> {
    let (python, library) = (foreign::python_with_packages()?, library()?);
    let place = foreign::installed("python");
    lay_out(&place.join("resil"), &library).map_err(|error| format!("{}: {error}", place.display()))?;
    let (ours, plain) = (Server::fresh(), Server::start(Options::default().without_module()));
    let ports = [ours.port(), plain.port()].map(|port| port.to_string());
    let program = foreign::source("python/main.py");
    foreign::run(
        Command::new(python).arg(program).args(ports).args(quick.then_some("--quick")).env("PYTHONPATH", place),
    )
}

/// The library of a release build. `RESIL_PYTHON` names one built elsewhere.
fn library() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("RESIL_PYTHON") {
        return PathBuf::from(path).canonicalize().map_err(|error| format!("RESIL_PYTHON: {error}"));
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--release", "--package", "resil-python", "--message-format=json"];
    let said = foreign::run(Command::new(cargo).args(build).current_dir(env!("CARGO_MANIFEST_DIR")))?;
    let mut files = said.lines().filter_map(|message| cell::artefact(message, "resil_native"));
    files.next_back().ok_or_else(|| "cargo names no library".to_owned())
}

/// The package as pip would unpack it.
fn lay_out(place: &Path, library: &Path) -> std::io::Result<()> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk-python/python/resil");
    if place.exists() {
        fs::remove_dir_all(place)?;
    }
    fs::create_dir_all(place)?;
    for file in fs::read_dir(package)? {
        let path = file?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|ending| ending == "py")) {
            fs::copy(&path, place.join(name))?;
        }
    }
    fs::copy(library, place.join("_native.abi3.so")).map(drop)
}
