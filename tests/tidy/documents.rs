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

/// docs/architecture.md lists the files on the way of a waiting ACQUIRE, in order: it stays short, and true.
#[test]
fn the_way_of_a_waiting_acquire_is_at_most_sixteen_files() {
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
    let once: BTreeSet<_> = files.iter().collect();
    assert_eq!(once.len(), files.len(), "no file is passed twice");
}
