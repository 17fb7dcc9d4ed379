//! Writes what follows from commands/*.json: names, usages and HELP for Rust, the pages of docs/commands/, what every
//! language knows of the errors, and what Python and Node declare, register and export of their handles.
//!
//! `cargo run -p resil-harness --bin generate` writes; `-- --check` only says what differs, and fails if anything does.
//! A JSON file that is not of the expected shape is an error: unknown fields are refused.
//!
//! It uses nothing of the workspace, so that it also runs while the rest does not compile.

mod docs;
mod errors;
mod handles;
mod page;
mod rust_pages;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use page::Page;

/// Files by their paths in the workspace, with their contents.
type Files = BTreeMap<String, String>;

fn main() -> ExitCode {
    let check = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [word] if word == "--check" => true,
        _ => {
            eprintln!("usage: generate [--check]");
            return ExitCode::from(2);
        }
    };
    match generated().and_then(|files| if check { compare(&files) } else { write(&files) }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("generate: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace; tests/harness is two below it.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(".")).to_owned()
}

fn generated() -> Result<Files, String> {
    let pages = pages()?;
    let mut files = docs::files(&pages);
    files.insert("wire/src/pages.rs".into(), rust_pages::file(&pages));
    files.insert("module/src/commands/pages.rs".into(), rust_pages::registered(&pages));
    let rows: Vec<errors::ErrorRow> = read_json(&workspace().join("commands/errors.json"))?;
    let present = |path: &str| fs::read_to_string(workspace().join(path)).map_err(|error| format!("{path}: {error}"));
    let handles: handles::Handles = read_json(&workspace().join("commands/handles.json"))?;
    files.extend(errors::files(&rows, &handles.python, &present)?);
    files.extend(handles::files(&handles, &found()?));
    Ok(files)
}

fn found() -> Result<handles::Found, String> {
    let mut python_stubs = Vec::new();
    for name in names_in("sdk-python/python/resil/_stubs", ".pyi")? {
        let path = workspace().join(format!("sdk-python/python/resil/_stubs/{name}.pyi"));
        python_stubs.push((name, fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?));
    }
    let mut node_sources = names_in("sdk-node/src/handles", ".rs")?;
    node_sources.retain(|name| name != "mod");
    Ok(handles::Found { node_sources, node_types: names_in("sdk-node/lib/types", ".d.ts")?, python_stubs })
}

/// The names of a folder's files that end like this, without the end, in order.
fn names_in(folder: &str, end: &str) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(workspace().join(folder)).map_err(|error| format!("{folder}: {error}"))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter_map(|name| name.strip_suffix(end).map(str::to_owned)).collect();
    names.sort();
    Ok(names)
}

/// Every page of commands/, by name; those of subcommands are inside that of their command.
fn pages() -> Result<Vec<Page>, String> {
    let mut parsed = Vec::new();
    for path in list(&workspace().join("commands"), "json")? {
        // The lists of errors and handles lie beside the pages and describe no command.
        if path.ends_with("errors.json") || path.ends_with("handles.json") {
            continue;
        }
        let page: Page = read_json(&path)?;
        if path.file_stem().is_none_or(|stem| *stem.to_string_lossy() != *page.file_stem()) {
            return Err(format!("{}: the file of {} should be named after it", path.display(), page.name));
        }
        parsed.push(page);
    }
    parsed.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(parsed)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The files of a folder with this extension.
fn list(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect())
}

fn write(files: &Files) -> Result<(), String> {
    for surplus in surplus(files)? {
        fs::remove_file(&surplus).map_err(|error| error.to_string())?;
    }
    for (name, text) in files {
        // What is as it should be keeps its time, so that nothing is built again for it.
        if differs(name, text) {
            fs::write(workspace().join(name), text).map_err(|error| format!("{name}: {error}"))?;
        }
    }
    Ok(())
}

fn differs(name: &str, text: &str) -> bool {
    fs::read_to_string(workspace().join(name)).ok().as_deref() != Some(text)
}

fn compare(files: &Files) -> Result<(), String> {
    let mut wrong: Vec<String> =
        files.iter().filter(|(name, text)| differs(name, text)).map(|(name, _)| name.clone()).collect();
    wrong.extend(surplus(files)?.iter().map(|path| format!("{} (has no command)", path.display())));
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("these files differ from commands/: {}\nrun `{}`", wrong.join(", "), page::COMMAND))
}

/// Pages of docs/commands/ without a command.
fn surplus(files: &Files) -> Result<Vec<PathBuf>, String> {
    let root = workspace();
    let known = |path: &Path| {
        path.strip_prefix(&root).is_ok_and(|path| files.contains_key(&*path.to_string_lossy().replace('\\', "/")))
    };
    Ok(list(&root.join("docs/commands"), "md")?.into_iter().filter(|path| !known(path)).collect())
}
