//! docs/policy.schema.json and the tables of docs/policies.md are what the schema says. `RESIL_POLICY=write` writes them.

use std::path::{Path, PathBuf};

use resil_core::policy::{read, schema};

const BEGIN: &str = "<!-- from the schema: begin -->\n";
const END: &str = "<!-- from the schema: end -->";

fn docs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(file)
}

fn publish(file: &str, text: &str) {
    if std::env::var("RESIL_POLICY").as_deref() == Ok("write") {
        std::fs::write(docs(file), text).expect("docs can be written");
        return;
    }
    let there = std::fs::read_to_string(docs(file)).unwrap_or_default();
    assert!(there == text, "docs/{file} is not what the schema says: run this with RESIL_POLICY=write");
}

#[test]
fn the_json_schema_is_the_one_of_the_rows() {
    publish("policy.schema.json", &format!("{:#}\n", schema::json_schema()));
}

#[test]
fn the_reference_page_has_every_field() {
    let page = std::fs::read_to_string(docs("policies.md")).expect("docs/policies.md");
    let (before, rest) = page.split_once(BEGIN).expect("the page has the place of the tables");
    let (_, after) = rest.split_once(END).expect("the page has the end of the tables");
    let tables = format!("{}## Names from another layout\n\n{}\n", schema::reference(), schema::other_names());
    publish("policies.md", &format!("{before}{BEGIN}\n{tables}{END}{after}"));
}

#[test]
fn examples_of_the_reference_page_are_valid() {
    let page = std::fs::read_to_string(docs("policies.md")).expect("docs/policies.md");
    let examples: Vec<&str> = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 4, "{}", examples.len());
    for example in examples {
        assert!(read(example).is_ok(), "{:?}\n{example}", read(example));
    }
}
