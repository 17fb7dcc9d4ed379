//! The Node SDK beside what one would use instead, by the programs of `peers/node`: a release build, laid out as the package
//! that users install.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use resil_harness::{Options, Server};

use crate::{cell, foreign};

/// What selects it, as a row's name would.
pub const NAME: &str = "sdk: node";

const FILES: [&str; 8] =
    ["package.json", "main.mjs", "checks.mjs", "policies.mjs", "locks.mjs", "telemetry.mjs", "caches.mjs", "turns.mjs"];
const ROUNDS: &str = "7";
const ROUNDS_QUICK: &str = "2";

/// Prints its tables, or why there are none.
pub fn print(quick: bool) {
    println!("\n### Node\n");
    match tables(if quick { ROUNDS_QUICK } else { ROUNDS }) {
        Ok(tables) => println!("{}", tables.trim_end()),
        Err(reason) => println!("The Node SDK was left out: {reason}"),
    }
}

fn tables(rounds: &str) -> Result<String, String> {
    let library = library()?;
    let place = foreign::node_packages("node", &FILES)?;
    // After npm, which removes what it did not install.
    lay_out(&place.join("node_modules/resil"), &library)?;
    let (ours, plain) = (Server::fresh(), Server::start(Options::default().without_module()));
    let program = place.join("main.mjs");
    let urls = [ours.url(), plain.url()];
    foreign::run(Command::new("node").arg(program).args(urls).arg(rounds))
}

/// The library of a release build. `RESIL_NODE` names one built elsewhere.
fn library() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("RESIL_NODE") {
        return PathBuf::from(path).canonicalize().map_err(|error| format!("RESIL_NODE: {error}"));
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--release", "--package", "resil-node", "--message-format=json"];
    let said = foreign::run(Command::new(cargo).args(build).current_dir(env!("CARGO_MANIFEST_DIR")))?;
    let mut files = said.lines().filter_map(|message| cell::artefact(message, "resil_node"));
    files.next_back().ok_or_else(|| "cargo names no library".to_owned())
}

/// The package as npm would unpack it.
fn lay_out(place: &Path, library: &Path) -> Result<(), String> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk-node");
    let problem = |error: std::io::Error| format!("{}: {error}", place.display());
    if place.exists() {
        fs::remove_dir_all(place).map_err(problem)?;
    }
    for folder in ["lib", "lib/middleware"] {
        fs::create_dir_all(place.join(folder)).map_err(problem)?;
        for file in fs::read_dir(package.join(folder)).map_err(problem)? {
            let file = file.map_err(problem)?.path();
            let name = file.file_name().unwrap_or_default();
            if file.is_file() {
                fs::copy(&file, place.join(folder).join(name)).map_err(problem)?;
            }
        }
    }
    fs::copy(package.join("package.json"), place.join("package.json")).map_err(problem)?;
    // In place of the dev build that may lie beside the sources.
    fs::copy(library, place.join("lib/resil.node")).map_err(problem)?;
    Ok(())
}
