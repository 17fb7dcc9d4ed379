//! Writes docs/commands/ from commands/*.json, one page per command and an index.
//!
//! `cargo run -p resil-tests --bin command_docs` writes; `-- --check` only says what differs, and fails if anything does.
//! A JSON file that is not of the expected shape is an error: unknown fields are refused.

#[path = "command_docs/page.rs"]
mod page;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use page::{HEAD, Page};

fn main() -> ExitCode {
    let check = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [word] if word == "--check" => true,
        _ => {
            eprintln!("usage: command_docs [--check]");
            return ExitCode::from(2);
        }
    };
    match pages().and_then(|pages| if check { compare(&pages) } else { write(&pages) }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("command_docs: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

fn docs() -> PathBuf {
    workspace().join("docs/commands")
}

/// Every file of docs/commands by name.
fn pages() -> Result<BTreeMap<String, String>, String> {
    let mut files: Vec<PathBuf> =
        list(&workspace().join("commands"))?.into_iter().filter(|path| has_extension(path, "json")).collect();
    // The list of errors lies beside the pages and describes no command: docs/errors.md shows it.
    files.retain(|path| !path.ends_with("errors.json"));
    files.sort();
    let mut parsed = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let page: Page = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = file_of(&page.name);
        if path.file_stem().is_none_or(|stem| format!("{}.md", stem.to_string_lossy()) != file) {
            return Err(format!("{}: the file of {} should be named after it", path.display(), page.name));
        }
        parsed.push(page);
    }
    parsed.sort_by(|one, other| one.name.cmp(&other.name));
    let mut pages: BTreeMap<String, String> = parsed.iter().map(|page| (file_of(&page.name), page.render())).collect();
    pages.insert("README.md".into(), index(&parsed));
    Ok(pages)
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

fn file_of(name: &str) -> String {
    format!("{}.md", name.to_lowercase().replace('|', "."))
}

fn write(pages: &BTreeMap<String, String>) -> Result<(), String> {
    fs::create_dir_all(docs()).map_err(|error| error.to_string())?;
    for surplus in surplus(pages)? {
        fs::remove_file(&surplus).map_err(|error| error.to_string())?;
    }
    for (name, text) in pages {
        fs::write(docs().join(name), text).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn compare(pages: &BTreeMap<String, String>) -> Result<(), String> {
    let differs = |name: &str, text: &str| fs::read_to_string(docs().join(name)).ok().as_deref() != Some(text);
    let mut wrong: Vec<String> =
        pages.iter().filter(|(name, text)| differs(name, text)).map(|(name, _)| name.clone()).collect();
    wrong.extend(surplus(pages)?.iter().map(|path| format!("{} (has no command)", path.display())));
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "docs/commands differs from commands/: {}\nrun `cargo run -p resil-tests --bin command_docs`",
        wrong.join(", ")
    ))
}

/// Pages without a command.
fn surplus(pages: &BTreeMap<String, String>) -> Result<Vec<PathBuf>, String> {
    let known = |path: &Path| path.file_name().is_some_and(|name| pages.contains_key(&*name.to_string_lossy()));
    Ok(list(&docs())?.into_iter().filter(|path| has_extension(path, "md") && !known(path)).collect())
}

/// One table per family, what is internal last.
fn index(pages: &[Page]) -> String {
    let mut families: BTreeMap<(u8, String), Vec<&Page>> = BTreeMap::new();
    let parents: Vec<&str> =
        pages.iter().filter_map(|page| page.name.split_once('|')).map(|(parent, _)| parent).collect();
    for page in pages {
        let parent = page.name.split('|').next().unwrap_or(&page.name);
        let family = match page.name.as_str() {
            name if name.starts_with("RES._") => (2, "Internal".to_owned()),
            _ if parents.contains(&parent) => (1, parent.to_owned()),
            _ => (0, "Rate limits".to_owned()),
        };
        families.entry(family).or_default().push(page);
    }
    let mut text = format!("{HEAD}# Commands\n");
    text += "\nA duration is an integer of milliseconds, or has one of the suffixes `us ms s m h d`. Keywords may be written in \
             either case. A refusal is an answer, not an error; an error changes nothing. Maxima: [limits](../limits.md).\n";
    for ((_, family), pages) in families {
        let _ = write!(text, "\n## {family}\n\n| command | |\n| --- | --- |\n");
        for page in pages {
            let _ = writeln!(text, "| [{}]({}) | {} |", page.title(), file_of(&page.name), page.summary);
        }
    }
    text
}
