//! A picture as lines that fit the terminal, however small it is.

use super::{Picture, is_cut};
use crate::output::{Cell, Table, Tone, escaped, paint};
use crate::overview::OverviewRow;

/// `size` is width and height; without one everything is shown.
pub fn draw(
    picture: &Picture,
    trouble: Option<&str>,
    has_colors: bool,
    rows: usize,
    size: Option<(usize, usize)>,
) -> Vec<String> {
    let width = size.map(|(width, _)| width);
    let mut lines = vec![headline(picture, trouble, has_colors, width)];
    let parts = [
        ("BREAKERS", "none", first(&picture.breakers, rows, crate::breaker::table), total(&picture.breakers)),
        (
            "LOCKS",
            "none is held or waited for",
            first(&picture.locks, rows, crate::holding::locks),
            total(&picture.locks),
        ),
        denied(picture, rows),
        ("LEDGERS", "none", first(&picture.ledgers, rows, crate::dlq::table), total(&picture.ledgers)),
    ];
    // Each part has its share of the height: a title, headings, and at least one row.
    let share = size.map_or(usize::MAX, |(_, height)| (height.saturating_sub(1) / parts.len()).max(3));
    for (title, nothing, table, total) in parts {
        let mut part = vec![String::new()];
        let count = if total != "0" { format!(" {total}") } else { format!(" {nothing}") };
        let mut heading = String::new();
        paint(&mut heading, cut(title, width), Tone::Heading, has_colors);
        let left = width.map(|width| width.saturating_sub(title.len()));
        paint(&mut heading, cut(&count, left), Tone::Dim, has_colors);
        part.push(heading);
        if !table.is_empty() {
            part.extend(table.lines(has_colors, width));
        }
        part.truncate(share);
        lines.extend(part);
    }
    if let Some((_, height)) = size {
        lines.truncate(height);
    }
    lines
}

/// `10000+` where there are more than were looked at.
fn total(rows: &[OverviewRow]) -> String {
    format!("{}{}", rows.len(), if is_cut(rows) { "+" } else { "" })
}

fn cut(text: &str, width: Option<usize>) -> &str {
    width.map_or(text, |width| crate::output::cut(text, width))
}

fn first(all: &[OverviewRow], rows: usize, table: impl Fn(&[OverviewRow]) -> Table) -> Table {
    table(&all[..all.len().min(rows)])
}

fn denied(picture: &Picture, rows: usize) -> (&'static str, &'static str, Table, String) {
    let mut table = Table::new(&["key", "kind", "in a minute, about"]);
    for row in picture.denied.iter().take(rows) {
        table.row([Cell::new(&row.key), Cell::new(row.text("kind")), Cell::new(row.count("estimate"))]);
    }
    ("REFUSED MOST", "nothing in the last minute", table, picture.denied.len().to_string())
}

fn headline(picture: &Picture, trouble: Option<&str>, has_colors: bool, width: Option<usize>) -> String {
    let count = |state: &str| picture.breakers.iter().filter(|row| row.bytes("state") == state.as_bytes()).count();
    let open = count("open") + count("forced-open");
    let waiters: i64 = picture.locks.iter().filter_map(|row| row.number("waiters")).sum();
    let dead: i64 = picture.ledgers.iter().filter_map(|row| row.number("dead")).sum();
    let (text, tone) = match trouble {
        Some(trouble) => (format!("resil top: {} (trying again; q quits)", escaped(trouble.as_bytes())), Tone::Bad),
        None => {
            let tone = if open > 0 || dead > 0 { Tone::Warn } else { Tone::Good };
            (
                format!(
                    "resil top: {open}{} open, {waiters} wait for locks, {dead} dead letters (q quits)",
                    if is_cut(&picture.breakers) { "+" } else { "" }
                ),
                tone,
            )
        }
    };
    let mut line = String::new();
    paint(&mut line, cut(&text, width), tone, has_colors);
    line
}
