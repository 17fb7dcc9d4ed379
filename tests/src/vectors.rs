//! The conformance vectors: read in place, whatever files are there. `tests/vectors/README.md` says what they mean.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// What every key in a vector begins with; a runner puts something of its own there.
const KEY_MARK: &str = "key:";

/// What a name in a call or in an expected reply begins with.
const NAME_MARK: char = '$';

/// What earlier replies of a vector were bound to, by name.
pub type Names = BTreeMap<String, serde_json::Value>;

/// The version of the format this reader knows.
const SPEC_VERSION: u32 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    spec_version: u32,
    vectors: Vec<Vector>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    /// A sentence: what is promised.
    pub name: String,
    /// Capabilities without which a runner skips the vector, and says so.
    pub needs: Vec<String>,
    pub steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// After the runner's base instant; may go back.
    pub at_us: i64,
    pub call: Vec<String>,
    #[serde(flatten)]
    pub expected: Expected,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expected {
    Reply(serde_json::Value),
    /// A part of the error.
    Error(String),
}

impl Step {
    /// The call with its keys under `prefix`, and what was bound in place of its names.
    pub fn words(&self, prefix: &str, names: &Names) -> Vec<Vec<u8>> {
        let word = |word: &String| match (word.strip_prefix(KEY_MARK), word.strip_prefix(NAME_MARK)) {
            (Some(key), _) => format!("{prefix}{key}"),
            (_, Some(name)) => match names.get(name).unwrap_or_else(|| panic!("{name} was not bound")) {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            },
            _ => word.clone(),
        };
        self.call.iter().map(word).map(String::into_bytes).collect()
    }

    /// Whether it is what is expected. What is to be bound by it is bound.
    pub fn is_met_by(&self, got: &Result<serde_json::Value, String>, names: &mut Names) -> bool {
        match (&self.expected, got) {
            (Expected::Reply(reply), Ok(got)) => fits(reply, got, names),
            (Expected::Error(part), Err(text)) => text.contains(part.as_str()),
            _ => false,
        }
    }
}

fn fits(expected: &serde_json::Value, got: &serde_json::Value, names: &mut Names) -> bool {
    use serde_json::Value;
    match (expected, got) {
        (Value::Object(_), _) => {
            let name = expected.get("bind").and_then(Value::as_str).expect("an object is a binding");
            names.insert(name.to_owned(), got.clone());
            !got.is_null()
        }
        (Value::Array(expected), Value::Array(got)) => {
            expected.len() == got.len() && expected.iter().zip(got).all(|(expected, got)| fits(expected, got, names))
        }
        (Value::String(text), _) if text.starts_with(NAME_MARK) => names.get(&text[1..]) == Some(got),
        _ => expected == got,
    }
}

/// Every vector with the name of its file, files in the order of their names.
pub fn all() -> Vec<(String, Vector)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("tests/vectors is there")
        .map(|entry| entry.expect("a readable folder").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".json") && name != "schema.json")
        .collect();
    names.sort();
    let mut vectors = Vec::new();
    for name in names {
        let text = fs::read_to_string(folder.join(&name)).expect("a readable file");
        let file: File = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(file.spec_version, SPEC_VERSION, "{name} is of a version this reader does not know");
        vectors.extend(file.vectors.into_iter().map(|vector| (name.clone(), vector)));
    }
    vectors
}
