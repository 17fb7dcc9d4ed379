//! What reaches standard output: tables for people, JSON for programs.
//!
//! Whatever comes from the server may hold anything, also sequences that a terminal obeys: keys, owners, reasons and errors go through
//! [`escaped`]. It writes `\xHH` for bytes that are not printable and `\\` for a backslash, so that a key that was shown can be given
//! back with `--key`. JSON escapes them in its own way; a key that is not UTF-8 is `{"b64": "…"}` there, as in events.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

use base64::Engine as _;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::failure::Failure;

#[derive(Args)]
pub struct OutputArgs {
    /// Prints JSON instead of a table
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colours; NO_COLOR is honoured
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorWhen,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    Auto,
    Always,
    Never,
}

/// What a cell says about the health of a thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    Plain,
    Good,
    Warn,
    Bad,
    Dim,
    Heading,
}

impl Tone {
    pub fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\x1b[32m",
            Self::Warn => "\x1b[33m",
            Self::Bad => "\x1b[31m",
            Self::Dim => "\x1b[2m",
            Self::Heading => "\x1b[1m",
        }
    }
}

/// So many columns of a terminal for one cell of a table.
const CELL_MAX: usize = 80;

/// A piece of text that is safe to show, and its tone.
#[derive(Clone, Debug)]
pub struct Cell {
    pub text: String,
    pub tone: Tone,
}

impl Cell {
    /// Escapes what is not printable.
    pub fn new(text: impl AsRef<[u8]>) -> Self {
        Self { text: escaped(text.as_ref()), tone: Tone::Plain }
    }

    pub fn toned(text: impl AsRef<[u8]>, tone: Tone) -> Self {
        Self { text: escaped(text.as_ref()), tone }
    }
}

impl<T: AsRef<[u8]>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// Rows under headings.
#[derive(Clone, Debug)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Its lines, each cut to `width` columns if there is one.
    pub fn lines(&self, has_colors: bool, width: Option<usize>) -> Vec<String> {
        // A name that is longer than a line would push all others apart. JSON has it whole.
        let fitting = |cell: &Cell| match cell.text.width() > CELL_MAX {
            true => Cell { text: format!("{}…", cut(&cell.text, CELL_MAX - 1)), tone: cell.tone },
            false => cell.clone(),
        };
        let fitted: Vec<Vec<Cell>> = self.rows.iter().map(|row| row.iter().map(fitting).collect()).collect();
        let headings = self.headings.iter().map(|text| Cell::toned(text, Tone::Heading)).collect();
        let rows: Vec<&Vec<Cell>> = std::iter::once(&headings).chain(&fitted).collect();
        let columns = self.headings.len();
        let length = |column: usize| rows.iter().filter_map(move |row| row.get(column)).map(|cell| cell.text.width());
        let lengths: Vec<usize> = (0..columns).map(|column| length(column).max().unwrap_or(0)).collect();
        let line = |row: &Vec<Cell>| {
            let (mut line, mut left) = (String::new(), width.unwrap_or(usize::MAX));
            for (column, cell) in row.iter().enumerate() {
                let is_last = column + 1 == row.len();
                let padding = if is_last { 0 } else { lengths[column] - cell.text.width() + 2 };
                let text = cut(&cell.text, left);
                left -= text.width();
                let padding = padding.min(left);
                left -= padding;
                paint(&mut line, text, cell.tone, has_colors);
                line.extend(std::iter::repeat_n(' ', padding));
            }
            line.truncate(line.trim_end().len());
            line
        };
        rows.into_iter().map(line).collect()
    }
}

/// As much of it as fits into so many columns of a terminal.
pub fn cut(text: &str, columns: usize) -> &str {
    let mut left = columns;
    let end = text.char_indices().find(|(_, c)| {
        let width = c.width().unwrap_or(0);
        let fits = width <= left;
        left = left.saturating_sub(width);
        !fits
    });
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

pub fn paint(line: &mut String, text: &str, tone: Tone, has_colors: bool) {
    if has_colors && tone != Tone::Plain && !text.is_empty() {
        let _ = write!(line, "{}{text}\x1b[0m", tone.code());
    } else {
        line.push_str(text);
    }
}

/// Where the reply goes.
#[derive(Clone, Copy)]
pub struct Output {
    pub is_json: bool,
    pub has_colors: bool,
}

impl Output {
    pub fn new(args: &OutputArgs) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let has_colors = match args.color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => !is_plain && std::io::stdout().is_terminal(),
        };
        Self { is_json: args.json, has_colors: has_colors && !args.json }
    }

    /// What is worth knowing beside the reply, on standard error: a sentence that is safe already.
    pub fn notice(&self, text: &str) {
        let line = match self.is_json {
            true => safe_json(&json!({ "notice": text }).to_string()),
            false => format!("resil: {text}"),
        };
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    pub fn raw(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()?;
        Ok(())
    }

    /// Lines that are safe already.
    pub fn lines<L: AsRef<str>>(&self, lines: impl IntoIterator<Item = L>) -> Result<(), Failure> {
        let mut text = String::new();
        for line in lines {
            text.push_str(line.as_ref());
            text.push('\n');
        }
        self.raw(text.as_bytes())
    }

    pub fn json(&self, value: &Value) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        self.raw(format!("{}\n", safe_json(&text)).as_bytes())
    }

    pub fn json_line(&self, value: &Value) -> Result<(), Failure> {
        self.raw(format!("{}\n", safe_json(&value.to_string())).as_bytes())
    }

    /// JSON if that was asked for, else the table, or a word where it is empty.
    pub fn table(&self, value: impl FnOnce() -> Value, table: &Table, nothing: &str) -> Result<(), Failure> {
        match self.is_json {
            true => self.json(&value()),
            false if table.is_empty() => self.lines([nothing]),
            false => self.lines(table.lines(self.has_colors, None)),
        }
    }

    /// A thing with named properties.
    pub fn thing(&self, value: impl FnOnce() -> Value, properties: &[(&str, Cell)]) -> Result<(), Failure> {
        if self.is_json {
            return self.json(&value());
        }
        self.lines(self.properties(properties))
    }

    pub fn properties(&self, properties: &[(&str, Cell)]) -> Vec<String> {
        let width = properties.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let line = |(name, cell): &(&str, Cell)| {
            let mut line = String::new();
            paint(&mut line, &format!("{name:width$}"), Tone::Dim, self.has_colors);
            line.push_str("  ");
            paint(&mut line, &cell.text, cell.tone, self.has_colors);
            line.truncate(line.trim_end().len());
            line
        };
        properties.iter().map(line).collect()
    }

    /// What was done, or was not: a sentence that is safe already, or a document.
    pub fn done(&self, value: impl FnOnce() -> Value, sentence: &str) -> Result<(), Failure> {
        if self.is_json { self.json(&value()) } else { self.lines([sentence]) }
    }
}

/// Characters that a terminal, or the order of a queue, obeys.
fn is_hidden(c: char) -> bool {
    let is_format =
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    c.is_control() || is_format
}

/// Printable, and readable by [`unescaped`].
pub fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                c if is_hidden(c) => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        let _ = write!(text, "\\x{byte:02x}");
                    }
                }
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// What [`escaped`] was made of.
pub fn unescaped(text: &[u8]) -> Result<Vec<u8>, String> {
    let wrong = "after a backslash comes xHH, n, r, t or another backslash";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&kind, after) = rest.split_first().ok_or(wrong)?;
        rest = after;
        bytes.push(match kind {
            b'\\' => b'\\',
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let (digits, after) = rest.split_at_checked(2).ok_or(wrong)?;
                rest = after;
                let digits =
                    std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|d| d.is_ascii_hexdigit()));
                u8::from_str_radix(digits.ok_or(wrong)?, 16).map_err(|_| wrong)?
            }
            _ => return Err(wrong.to_owned()),
        });
    }
    Ok(bytes)
}

/// JSON whose strings hold nothing that a terminal obeys. Outside of strings it is ASCII already.
pub fn safe_json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && is_hidden(c) {
            let _ = write!(safe, "\\u{:04x}", c as u32);
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Bytes in JSON: text, or `{"b64": …}`.
pub fn json_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "b64": base64::engine::general_purpose::STANDARD.encode(bytes) }),
    }
}

pub fn as_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// How the SDK spells a value of an enumeration.
pub fn word(value: &impl Serialize) -> String {
    as_json(value).as_str().unwrap_or_default().to_owned()
}

/// Asks on a terminal whether to go ahead; the question is safe already. Where nobody can be asked the arguments are enough.
pub fn confirm(question: &str, is_sure: bool) -> Result<(), Failure> {
    let mut err = std::io::stderr();
    if is_sure || !std::io::stdin().is_terminal() || !err.is_terminal() {
        return Ok(());
    }
    write!(err, "{question}? [y/N] ")?;
    err.flush()?;
    let mut reply = String::new();
    std::io::stdin().read_line(&mut reply)?;
    match reply.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Refused("nothing was changed".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_escaped_can_be_given_back() {
        let odd: [&[u8]; 6] = [
            b"plain",
            b"a\xff\xfeb",
            b"\x1b[2J\x07",
            b"back\\slash\\x41",
            "é\u{202e}\u{9b}z".as_bytes(),
            b"\r\n\t\x00",
        ];
        for bytes in odd {
            let shown = escaped(bytes);
            assert!(!shown.chars().any(is_hidden), "{shown}");
            assert_eq!(unescaped(shown.as_bytes()).as_deref(), Ok(bytes), "{shown}");
        }
        for wrong in ["\\", "\\x", "\\x4", "\\xg0", "\\q", "\\x+1"] {
            assert!(unescaped(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_holds_nothing_that_a_terminal_obeys() {
        let text = json!({ "key": "a\u{9b}31m\u{202e}\u{7f}" }).to_string();
        let safe = safe_json(&text);
        assert!(safe.is_ascii(), "{safe}");
        assert_eq!(serde_json::from_str::<Value>(&safe).ok(), serde_json::from_str(&text).ok());
    }

    #[test]
    fn lines_are_cut_to_the_width() {
        let mut table = Table::new(&["key", "state"]);
        table.row([Cell::new("resil:breaker:{payments}"), Cell::toned("open", Tone::Bad)]);
        table.row([Cell::new("resil:breaker:{支払い}"), Cell::toned("open", Tone::Bad)]);
        for width in 0..40 {
            let lines = table.lines(false, Some(width));
            assert!(lines.iter().all(|line| line.width() <= width), "{width}: {lines:?}");
        }
        let lines = table.lines(false, None);
        let state_at = |line: &str| line.rfind(' ').map(|at| line[..at].width());
        assert_eq!((state_at(&lines[0]), state_at(&lines[1])), (state_at(&lines[1]), state_at(&lines[2])), "{lines:?}");
    }
}
