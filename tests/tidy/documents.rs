//! Pages: links lead somewhere, and lines can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::debts::Debts;
use crate::source::{files, read, workspace};

const LINE_MAX: usize = 180;

fn pages() -> Vec<PathBuf> {
    files(&["."], &[".md"])
}

/// Lines of prose: tables and code may be as wide as they need.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return false;
        }
        !in_code && !line.trim_start().starts_with('|')
    })
}

#[test]
fn lines_of_pages_can_be_read() {
    let mut long = BTreeMap::new();
    for page in pages() {
        let count = prose(&read(&page)).filter(|line| line.chars().count() > LINE_MAX).count();
        if count > 0 && !page.starts_with("docs/commands") {
            long.insert(page.display().to_string(), count);
        }
    }
    Debts::compare("lines of pages over 180 characters", long);
}

/// As GitHub makes anchors of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let kept = line.trim_start_matches('#').trim().to_lowercase();
            let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
            kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
        })
        .collect()
}

fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[test]
fn links_of_pages_lead_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = read(&page);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.starts_with("mailto:") || link.contains(' ') {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if path.is_empty() { page.clone() } else { normal(&page.parent().unwrap_or(Path::new("")).join(path)) };
            if !workspace().join(&target).exists() {
                broken.push(format!("{}: {link}", page.display()));
            } else if !anchor.is_empty()
                && target.extension().is_some_and(|kind| kind == "md")
                && !anchors(&read(&target)).contains(anchor)
            {
                broken.push(format!("{}: {link} (no such heading)", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

const COMMANDS: &str = "module/src/commands/";

/// docs/architecture.md lists the files on the way of a waiting ACQUIRE, in order: it stays short, and true.
#[test]
fn the_way_of_a_waiting_acquire_takes_sixteen_files() {
    let page = read(Path::new("docs/architecture.md"));
    let (_, way) = page.split_once("### The way of RES.LOCK ACQUIRE").expect("the page has the way");
    let way = way.split("\n### ").next().unwrap_or_default();
    let files: Vec<&str> = way
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
        .map(|line| line.split('`').nth(1).expect("each step names its file"))
        .collect();
    assert!((10..=16).contains(&files.len()), "{} files", files.len());
    for file in &files {
        assert!(workspace().join(file).is_file(), "{file} is on the way, and is not there");
    }
    let once: BTreeSet<_> = files.iter().copied().collect();
    assert_eq!(once.len(), files.len(), "no file is passed twice");
    // A hop between commands is easily left out. Those that only read are not on the way.
    for file in files.iter().filter(|file| file.starts_with(COMMANDS)) {
        let text = read(Path::new(file));
        let others = text.lines().filter_map(|line| line.strip_prefix("use super::")?.split("::").next());
        for other in others.filter(|other| *other != "reading") {
            let other = format!("{COMMANDS}{other}.rs");
            assert!(once.contains(other.as_str()), "{file} goes on to {other}, which is not on the way");
        }
    }
}

/// docs/adding-a-command.md counts files: as many as it lists, at most so many, and those to edit are there.
#[test]
fn adding_a_command_takes_25_files_and_8_edits() {
    let page = read(Path::new("docs/adding-a-command.md"));
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let cells: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
    let files = |column: usize| -> Vec<&str> {
        cells.iter().flat_map(|row| row[column].split('`').skip(1).step_by(2)).collect()
    };
    let (new, edited) = (files(2), files(3));
    let together = cells.iter().find(|row| row[1] == "together").expect("the page has a sum");
    assert_eq!([together[2], together[3]], [new.len().to_string(), edited.len().to_string()], "the sum is right");
    assert!(new.len() + edited.len() <= 25 && edited.len() <= 8, "{} new, {} edited", new.len(), edited.len());
    for file in &edited {
        assert!(workspace().join(file).is_file(), "{file} is to be edited, and is not there");
    }
    for file in &new {
        let folder = Path::new(file).parent().expect("a folder");
        assert!(workspace().join(folder).is_dir(), "{} is not there", folder.display());
        assert!(file.contains("meter") && !workspace().join(file).exists(), "{file} is only an example");
    }
    assert!(page.contains(&format!("That is {} files.", new.len() + edited.len())));
}

/// The generated files that the page names say so themselves, and are those that nobody edits.
#[test]
fn files_that_are_called_generated_say_that_they_are() {
    let page = read(Path::new("docs/adding-a-command.md"));
    let (_, generated) = page.split_once("Generated files are not counted.").expect("the page names them");
    let named: Vec<&str> = generated.split('`').skip(1).step_by(2).filter(|name| name.contains('.')).collect();
    let files: Vec<&&str> = named.iter().filter(|name| !name.contains(' ')).collect();
    assert!(files.len() >= 10, "{files:?}");
    for file in files {
        let text = read(Path::new(file));
        assert!(text.to_lowercase().contains("generated") && text.contains("--bin generate"), "{file}");
    }
}
