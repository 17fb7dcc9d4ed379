//! Commands drawn from their pages in `commands/`: a new one is tried before anybody has written a strategy for it.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use resil_wire::command::{Allowed, Command, PAGES};
use resil_wire::reply::Value;
use serde_json::Value as Json;

/// The pages of all commands that an SDK can send.
fn pages() -> Vec<Json> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../commands");
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("commands/").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let mut pages = Vec::new();
    for file in files {
        let page: Json = serde_json::from_slice(&fs::read(&file).expect("a readable file")).expect("JSON");
        let subcommands = page["subcommands"].as_array().cloned().unwrap_or_default();
        pages.extend(subcommands.into_iter().chain([page]));
    }
    pages.retain(|page| PAGES.iter().any(|known| name_of(page).as_deref() == Some(known.name)));
    pages
}

/// As it is typed. The lists beside the pages have none.
fn name_of(page: &Json) -> Option<String> {
    Some(page.get("name")?.as_str()?.replace('|', " "))
}

/// For each page its command, with any of its options. A text is one that is a duration, too.
pub fn drawn() -> Vec<BoxedStrategy<Command<'static>>> {
    let strategy = |page: Json| {
        let what = format!("a call of {}", page["name"]);
        any::<u64>().prop_filter_map(what, move |choices| drawn_of(&page, choices)).boxed()
    };
    pages().into_iter().map(strategy).collect()
}

fn drawn_of(page: &Json, mut choices: u64) -> Option<Command<'static>> {
    let mut words = name_of(page)?;
    page["arguments"].as_array()?.iter().for_each(|argument| say(argument, &mut choices, &mut words));
    let words: Vec<&[u8]> = String::leak(words).split(' ').map(str::as_bytes).collect();
    Command::parse(words.leak(), Allowed::DEFAULT).ok()
}

fn say(argument: &Json, choices: &mut u64, words: &mut String) {
    let mut draw = |among: u64| {
        let drawn = *choices % among;
        *choices /= among;
        drawn
    };
    if argument["optional"] == true && draw(2) == 0 {
        return;
    }
    if let Some(token) = argument["token"].as_str() {
        *words += &format!(" {token}");
    }
    let inner = argument["arguments"].as_array().map(Vec::as_slice).unwrap_or_default();
    match argument["type"].as_str().expect("a type") {
        "pure-token" => {}
        "oneof" => {
            let chosen = draw(inner.len() as u64) as usize;
            say(&inner[chosen], choices, words);
        }
        "block" => inner.iter().for_each(|argument| say(argument, choices, words)),
        "key" => *words += &format!(" key:{}", draw(3)),
        // The one duration that must be long.
        _ if argument["name"] == "older" => *words += &format!(" {}00d", 1 + draw(9)),
        "integer" => *words += &format!(" {}", 1 + draw(9)),
        _ => *words += &format!(" {}s", 1 + draw(9)),
    }
}

/// The reply that the command's page shows.
pub fn shown_reply(command: &Command<'_>) -> Value {
    let page = pages().into_iter().find(|page| name_of(page).as_deref() == Some(command.name())).expect("a page");
    as_value(&page["example"]["reply"])
}

fn as_value(json: &Json) -> Value {
    match json {
        Json::Number(number) => Value::Integer(number.as_i64().expect("an integer")),
        Json::String(text) => Value::Text(text.as_bytes().to_vec()),
        Json::Array(values) => Value::Array(values.iter().map(as_value).collect()),
        _ => Value::Null,
    }
}
