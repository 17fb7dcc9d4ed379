//! One command: its JSON, and the page it becomes.

use std::fmt::Write as _;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// How this is run.
pub const COMMAND: &str = "cargo run -p resil-harness --bin generate";

/// Commands that write but never create a key: they cannot be out of memory.
const NEVER_CREATE: [&str; 1] = ["RES.BREAKER|RESET"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// `PARENT|CHILD` for a subcommand.
    pub name: String,
    pub summary: String,
    syntax: String,
    /// The reply in a few words, for HELP.
    shape: Option<String>,
    /// What `options` in the syntax of subcommands stands for.
    options: Option<String>,
    complexity: String,
    since: String,
    flags: Vec<String>,
    acl_categories: Vec<String>,
    keys: Keys,
    arguments: Vec<Argument>,
    notes: Notes,
    reply: Vec<Field>,
    /// What can go wrong besides what can with every command: `` `CODE`: what it means ``.
    #[serde(default)]
    errors: Vec<String>,
    events: Vec<String>,
    example: Option<Example>,
    #[serde(default)]
    pub subcommands: Vec<Page>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    first: i64,
    last: i64,
    step: i64,
    access: Option<String>,
    /// One more key may stand behind this word, from position `from` on.
    keyword: Option<String>,
    #[serde(default, rename = "from")]
    _from: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Argument {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    token: Option<String>,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    multiple: bool,
    /// For COMMAND DOCS only: the token is repeated with each.
    #[serde(default, rename = "multiple_token")]
    _multiple_token: bool,
    #[serde(default)]
    arguments: Vec<Argument>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Field {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    call: String,
    reply: Value,
}

/// Notes in the order they were written.
struct Notes(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Notes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Notes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of texts")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Notes, A::Error> {
                let mut notes = Vec::new();
                while let Some(note) = map.next_entry()? {
                    notes.push(note);
                }
                Ok(Notes(notes))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl Page {
    pub fn title(&self) -> String {
        self.name.replace('|', " ")
    }

    /// `res.lock` for `RES.LOCK`.
    pub fn file_stem(&self) -> String {
        self.name.to_lowercase()
    }

    /// Where a heading with its title is found in a page.
    pub fn anchor(&self) -> String {
        self.title().to_lowercase().replace('.', "").replace(' ', "-")
    }

    pub fn syntax(&self) -> &str {
        &self.syntax
    }

    pub fn shape(&self) -> Option<&str> {
        self.shape.as_deref()
    }

    pub fn options(&self) -> Option<&str> {
        self.options.as_deref()
    }

    pub fn is_read_only(&self) -> bool {
        self.flags.iter().any(|flag| flag == "readonly")
    }

    pub fn is_help(&self) -> bool {
        self.name.ends_with("|HELP")
    }

    /// The page, with all subcommands.
    pub fn render(&self) -> String {
        let mut text = format!("# {}\n\n{}\n\n", self.title(), self.summary);
        if self.subcommands.is_empty() {
            self.render_into("", "##", &mut text);
            return text;
        }
        let _ = writeln!(text, "| subcommand | |\n| --- | --- |");
        for page in &self.subcommands {
            let _ = writeln!(text, "| [{}](#{}) | {} |", page.title(), page.anchor(), page.summary);
        }
        for page in &self.subcommands {
            let _ = write!(text, "\n## {}\n\n{}\n\n", page.title(), page.summary);
            page.render_into(self.options.as_deref().unwrap_or_default(), "###", &mut text);
        }
        text
    }

    /// All below the heading; `level` is that of the headings in it.
    fn render_into(&self, options: &str, level: &str, text: &mut String) {
        let _ = write!(text, "```\n{}\n```\n\n", self.syntax);
        let _ = writeln!(text, "| | |\n| --- | --- |");
        let _ = writeln!(text, "| since | {} |", self.since);
        let _ = writeln!(text, "| complexity | {} |", self.complexity);
        let _ = writeln!(text, "| flags | {} |", self.flags_text());
        let _ = writeln!(text, "| ACL categories | {} |", self.categories_text());
        let _ = writeln!(text, "| keys | {} |", self.keys_text());
        self.render_arguments(&format!("{} {options}", self.syntax), level, text);
        self.render_reply(level, text);
        self.render_errors(level, text);
        let _ = writeln!(text, "\n{level} Events\n\n{}", self.events_text());
        if let Some(example) = &self.example {
            let _ =
                writeln!(text, "\n{level} Example\n\n```\n> {}\n{}```", example.call, in_terminal(&example.reply, ""));
        }
    }

    fn writes(&self) -> bool {
        self.flags.iter().any(|flag| flag == "write")
    }

    fn is_internal(&self) -> bool {
        self.name.starts_with("RES._")
    }

    fn flags_text(&self) -> String {
        if self.flags.is_empty() { "those of the subcommand".into() } else { listed(self.flags.iter().cloned()) }
    }

    fn categories_text(&self) -> String {
        if self.acl_categories.is_empty() {
            return self.flags_text();
        }
        let categories = listed(self.acl_categories.iter().map(|name| format!("@{name}")));
        format!("{categories}, and `@resil` where the server lets modules have a category")
    }

    fn events_text(&self) -> String {
        if self.events.is_empty() {
            return "None.".into();
        }
        format!("Keyspace notifications of the module class (`d`): {}.", listed(self.events.iter().cloned()))
    }

    fn keys_text(&self) -> String {
        let Keys { first, last, step, access, keyword, .. } = &self.keys;
        let how = match access.as_deref() {
            None if self.flags.is_empty() => return self.flags_text(),
            None => return "none".into(),
            Some("read") => "read",
            Some(_) => "read and written",
        };
        match (first == last, step) {
            (true, _) => match keyword {
                Some(word) => format!("argument {first} and the one behind {word}, {how}; of one slot in a cluster"),
                None => format!("argument {first}, {how}"),
            },
            (false, step) => format!("argument {first} and every {step} after it, {how}; of one slot in a cluster"),
        }
    }

    fn render_arguments(&self, syntax: &str, level: &str, text: &mut String) {
        let mut rows = Vec::new();
        self.arguments.iter().for_each(|argument| argument.rows("", syntax, &mut rows));
        if rows.is_empty() {
            return;
        }
        let _ = writeln!(text, "\n{level} Arguments\n\n| argument | type | | meaning |\n| --- | --- | --- | --- |");
        let mut explained = Vec::new();
        for (form, argument, needed) in rows {
            let is_its = |name: &str| argument.token.as_deref() == Some(name) || argument.name == name;
            // A note may be for several, `OK|FAIL`; else it is given once, where the name first appears.
            let is_of = |note: &str| note.split('|').any(is_its);
            let is_new = |note: &String| note.contains('|') || !explained.contains(note);
            let note = self.notes.0.iter().find(|(name, _)| is_of(name) && is_new(name));
            explained.extend(note.map(|(name, _)| name.clone()));
            let note = note.map_or("", |(_, note)| note);
            let _ = writeln!(text, "| `{form}` | {} | {needed} | {note} |", argument.type_text());
        }
        for (name, note) in self.notes.0.iter().filter(|(name, _)| !explained.contains(name)) {
            let _ = writeln!(text, "| `{}` | | | {note} |", name.replace('|', "\\|"));
        }
    }

    fn render_reply(&self, level: &str, text: &mut String) {
        if self.reply.is_empty() {
            return;
        }
        let _ = writeln!(text, "\n{level} Reply\n");
        for (index, Field { name, kind, text: meaning }) in self.reply.iter().enumerate() {
            let _ = writeln!(text, "{}. `{name}` ({kind}): {meaning}", index + 1);
        }
    }

    /// The same for all commands, as far as it can concern them; then its own.
    fn render_errors(&self, level: &str, text: &mut String) {
        let has_keys = self.keys.access.is_some();
        let mut errors = Vec::new();
        if !self.arguments.is_empty() {
            errors.push("`ERR`: an argument is missing, surplus, given twice or out of bounds; the line names it, what was given and what is allowed");
        }
        if self.name == "RES._APPLY" {
            errors.push("`ERR`: the sender is neither the primary nor a file that is being loaded");
        } else if self.name == "CL.THROTTLE" {
            errors.push("`WRONGTYPE`: the key holds neither a limit nor a value of redis-cell");
        } else if has_keys {
            errors.push("`WRONGTYPE`: a key holds a value of another type");
        }
        if self.writes() && !self.is_internal() && !NEVER_CREATE.contains(&self.name.as_str()) {
            errors.push(
                "`OOM`: a key would have to be created, and the server is above maxmemory; everything else still works",
            );
        }
        if self.writes() {
            errors.push("`READONLY`: on a replica");
        }
        errors.extend(self.errors.iter().map(String::as_str));
        if errors.is_empty() {
            return;
        }
        let _ = writeln!(text, "\n{level} Errors\n");
        errors.iter().for_each(|error| {
            let _ = writeln!(text, "- {error}");
        });
    }
}

impl Argument {
    /// How it is typed: `BURST n`, `[A | B]`, `key limit ...`. What stands for a value is what the syntax calls it.
    fn form(&self, syntax: &str) -> String {
        let parts: Vec<String> = self.arguments.iter().map(|argument| argument.form_with_brackets(syntax)).collect();
        let value = match self.kind.as_str() {
            "oneof" => parts.join(" | "),
            "block" => parts.join(" "),
            "pure-token" => String::new(),
            _ => {
                let named = self.token.as_deref().and_then(|token| word_after(token, syntax));
                named.unwrap_or(&self.name).to_owned()
            }
        };
        let words = [self.token.clone().unwrap_or_default(), value];
        let mut form = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        if self.multiple {
            form += " ...";
        }
        form
    }

    fn form_with_brackets(&self, syntax: &str) -> String {
        let form = self.form(syntax);
        if self.optional { format!("[{form}]") } else { form }
    }

    fn type_text(&self) -> &str {
        match self.kind.as_str() {
            "pure-token" => "keyword",
            "oneof" => "one of",
            kind => kind,
        }
    }

    /// A row for itself, or for each of its parts where only these have names of their own.
    fn rows<'a>(&'a self, needed: &str, syntax: &str, rows: &mut Vec<(String, &'a Argument, String)>) {
        let needed = match (needed, self.optional) {
            ("", true) => "optional",
            ("", false) if self.kind == "oneof" => "one of these",
            (needed, _) => needed,
        };
        let group = match self.kind.as_str() {
            "oneof" if self.optional => "one of these, optional",
            _ if self.multiple => "repeated",
            _ => needed,
        };
        if self.arguments.is_empty() || self.token.is_some() {
            let form = self.form(syntax).replace('|', "\\|");
            return rows.push((form, self, needed.to_owned()));
        }
        self.arguments.iter().for_each(|argument| argument.rows(group, syntax, rows));
    }
}

/// `n` for `BURST` in `[BURST n]`.
fn word_after<'a>(token: &str, syntax: &'a str) -> Option<&'a str> {
    let mut words = syntax.split(' ').map(|word| word.trim_matches(['[', ']', '.']));
    words.by_ref().find(|word| *word == token)?;
    words.next().filter(|word| !word.is_empty() && *word != "|")
}

fn listed(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

/// A reply as redis-cli shows it.
fn in_terminal(reply: &Value, indent: &str) -> String {
    match reply {
        Value::Number(number) => format!("(integer) {number}\n"),
        Value::String(text) => format!("\"{text}\"\n"),
        Value::Array(elements) if elements.is_empty() => "(empty array)\n".into(),
        Value::Array(elements) => {
            let mut text = String::new();
            for (index, element) in elements.iter().enumerate() {
                let place = format!("{}) ", index + 1);
                let deeper = format!("{indent}{}", " ".repeat(place.len()));
                let lead = if index == 0 { "" } else { indent };
                text += &format!("{lead}{place}{}", in_terminal(element, &deeper));
            }
            text
        }
        _ => "(nil)\n".into(),
    }
}
