//! wire/src/pages.rs: what the commands' code wants to know of their pages. module/src/commands/pages.rs: the pages that the
//! server registers, and HELP of each.

use std::fmt::Write as _;

use crate::page::{COMMAND, Page};

/// Ends every HELP.
const LAST: &str = "A duration is an integer of milliseconds, or has one of the suffixes us ms s m h d.";

pub fn file(pages: &[Page]) -> String {
    let mut text = format!(
        "//! Generated from commands/*.json by `{COMMAND}`. Do not edit.\n\n\
         use crate::command::Page;\n\n"
    );
    for page in pages {
        if page.subcommands.is_empty() {
            write_page(page, &mut text);
        }
        page.subcommands.iter().filter(|page| !page.is_help()).for_each(|page| write_page(page, &mut text));
        if !page.subcommands.is_empty() {
            write_help(page, &mut text);
        }
    }
    text
}

/// `RES.LOCK|ACQUIRE` is `LOCK_ACQUIRE`.
fn constant(page: &Page) -> String {
    let name = page.name.trim_start_matches("RES.").trim_start_matches("CL.").trim_start_matches('_');
    name.replace(['|', '.'], "_")
}

fn write_page(page: &Page, text: &mut String) {
    let (name, usage, read_only) = (page.title(), page.syntax(), page.is_read_only());
    let constant = constant(page);
    let _ = writeln!(
        text,
        "pub const {constant}: Page = Page {{ name: {name:?}, usage: {usage:?}, is_read_only: {read_only} }};"
    );
}

/// The usage of every subcommand, what it does, and what it replies.
fn write_help(page: &Page, text: &mut String) {
    let mut lines = Vec::new();
    for subcommand in page.subcommands.iter().filter(|page| !page.is_help()) {
        lines.push(subcommand.syntax().to_owned());
        lines.push(format!("    {}", subcommand.summary));
        lines.extend(subcommand.shape().map(|shape| format!("    Reply: {shape}.")));
    }
    if let Some(options) = page.options() {
        let _ = writeln!(text, "pub const {}_OPTIONS: &str = {options:?};", constant(page));
        lines.extend(["options:".to_owned(), options.to_owned()]);
    }
    lines.push(LAST.to_owned());
    let name = constant(page);
    let usage = format!("{} HELP", page.name);
    let _ = writeln!(
        text,
        "pub const {name}_HELP: Page = Page {{ name: {usage:?}, usage: {usage:?}, is_read_only: false }};"
    );
    let _ = writeln!(text, "pub const {name}_HELP_LINES: &[&str] = &[");
    lines.iter().for_each(|line| {
        let _ = writeln!(text, "    {line:?},");
    });
    text.push_str("];\n");
}

/// What the server shall know of each command as text, and what replies HELP.
pub fn registered(pages: &[Page]) -> String {
    let mut text = format!(
        "//! Generated from commands/*.json by `{COMMAND}`. Do not edit.\n\n\
         use resil_wire::pages;\n\n\
         use super::help::help;\n\n\
         /// Every page, to be registered with the server.\n\
         pub const PAGES: &[&str] = &[\n"
    );
    pages.iter().for_each(|page| {
        let _ = writeln!(text, "    include_str!(\"../../../commands/{}.json\"),", page.file_stem());
    });
    text.push_str("];\n\n// HELP of every command that has subcommands.\nhelp! {\n");
    pages.iter().filter(|page| !page.subcommands.is_empty()).for_each(|page| {
        let _ = writeln!(text, "    {0}_HELP, {0}_HELP_LINES;", constant(page));
    });
    text.push_str("}\n");
    text
}
