//! docs/commands/: a page for each command with its subcommands, and an index.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::Files;
use crate::page::{COMMAND, Page};

fn head() -> String {
    format!("<!-- Generated from commands/ by `{COMMAND}`. Do not edit. -->\n\n")
}

pub fn files(pages: &[Page]) -> Files {
    let file = |name: &str| format!("docs/commands/{name}.md");
    let mut files: Files = pages.iter().map(|page| (file(&page.file_stem()), head() + &page.render())).collect();
    files.insert(file("README"), index(pages));
    files
}

/// One table per family, the internal commands last.
fn index(pages: &[Page]) -> String {
    let mut families: BTreeMap<(u8, String), Vec<&Page>> = BTreeMap::new();
    for page in pages {
        let family = match page.name.as_str() {
            name if name.starts_with("RES._") => (2, "Internal".to_owned()),
            name if name == "RES.HEARTBEAT" || !page.subcommands.is_empty() => (1, "Shared state".to_owned()),
            _ => (0, "Rate limits".to_owned()),
        };
        families.entry(family).or_default().push(page);
    }
    let mut text = head() + "# Commands\n";
    text += "\nA duration is an integer of milliseconds, or has one of the suffixes `us ms s m h d`. Keywords may be written in \
             either case. A refusal is a reply, not an error; an error changes nothing. Maxima: [limits](../limits.md).\n";
    for ((_, family), pages) in families {
        let _ = write!(text, "\n## {family}\n\n| command | |\n| --- | --- |\n");
        for page in pages {
            let file = format!("{}.md", page.file_stem());
            let _ = writeln!(text, "| [{}]({file}) | {} |", page.name, page.summary);
            for subcommand in &page.subcommands {
                let _ = writeln!(
                    text,
                    "| [{}]({file}#{}) | {} |",
                    subcommand.title(),
                    subcommand.anchor(),
                    subcommand.summary
                );
            }
        }
    }
    text
}
