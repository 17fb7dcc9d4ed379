//! Documents of files beside those that are stored: what would change, and storing them all or none.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use resil::policies::Policies;
use resil::settings::{PolicyFile, PolicySettings};
use resil::{Code, Error};
use serde_json::{Value, json};

use crate::failure::Failure;

/// What becomes of one policy.
pub struct Planned {
    pub name: String,
    /// As the server writes it.
    document: String,
    /// What is stored now, and its version.
    before: Option<(u64, String)>,
    /// The version that was stored.
    version: Option<u64>,
}

fn parsed(document: &str) -> Value {
    serde_json::from_str(document).unwrap_or(Value::Null)
}

impl Planned {
    pub fn is_change(&self) -> bool {
        self.before.as_ref().is_none_or(|(_, before)| *before != self.document)
    }

    pub fn action(&self) -> &'static str {
        match &self.before {
            None => "create",
            Some(_) if self.is_change() => "change",
            Some(_) => "same",
        }
    }

    /// The fields that differ: `- retry.maxAttempts: 3` and `+ retry.maxAttempts: 4`.
    pub fn changes(&self) -> Vec<String> {
        let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
        if let Some((_, before)) = &self.before {
            flatten("", &parsed(before), &mut old);
        }
        flatten("", &parsed(&self.document), &mut new);
        let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let differ = paths.into_iter().filter(|path| old.get(*path) != new.get(*path));
        differ
            .flat_map(|path| {
                let line = |sign: char, value: Option<&Value>| value.map(|value| format!("{sign} {path}: {value}"));
                [line('-', old.get(path)), line('+', new.get(path))]
            })
            .flatten()
            .collect()
    }

    pub fn json(&self) -> Value {
        let before = self.before.as_ref().map(|(version, _)| version);
        json!({ "name": self.name, "action": self.action(), "versionBefore": before, "version": self.version,
            "changes": self.changes() })
    }
}

fn flatten(path: &str, value: &Value, fields: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, fields);
            }
        }
        value => {
            fields.insert(path.to_owned(), value.clone());
        }
    }
}

fn text_of(file: &Path) -> Result<String, Failure> {
    let wrong = |error: std::io::Error| Failure::Usage(format!("{}: {error}", file.display()));
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(wrong)?;
        return Ok(text);
    }
    std::fs::read_to_string(file).map_err(wrong)
}

/// What is wrong with a document is no wrong argument: 1.
fn invalid(file: &str, error: &Error) -> Failure {
    match error.code() {
        Code::InvalidPolicy | Code::InvalidArgument => Failure::Refused(format!("{file}: {error}")),
        _ => error.clone().into(),
    }
}

/// The policies of all files, by name.
pub fn read_files(files: &[PathBuf], name: Option<&str>) -> Result<BTreeMap<String, String>, Failure> {
    let mut documents = BTreeMap::new();
    for file in files {
        let (text, shown) = (text_of(file)?, file.display().to_string());
        let read: Vec<(String, PolicySettings)> = match name {
            Some(name) => {
                let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
                let one = if is_json { PolicySettings::from_json(&text) } else { PolicySettings::from_yaml(&text) };
                vec![(name.to_owned(), one.map_err(|error| invalid(&shown, &error))?)]
            }
            None => {
                let all = PolicyFile::from_text(&text).map_err(|error| invalid(&shown, &error))?;
                let one =
                    |name: &String| Ok((name.clone(), all.settings(name).map_err(|error| invalid(&shown, &error))?));
                all.policies.keys().map(one).collect::<Result<_, Failure>>()?
            }
        };
        for (name, mut settings) in read {
            // It is stored under its name, and need not repeat it.
            settings.name = settings.name.filter(|own| *own != name);
            let document = settings.to_json().map_err(|error| invalid(&shown, &error))?;
            if documents.insert(name.clone(), document).is_some() {
                return Err(Failure::Usage(format!("{shown}: the policy {name:?} is in the files twice")));
            }
        }
    }
    Ok(documents)
}

/// Compares documents with those that are stored. One that is not valid is refused by its path.
pub async fn plan(policies: &Policies, documents: BTreeMap<String, String>) -> Result<Vec<Planned>, Failure> {
    let mut planned = Vec::with_capacity(documents.len());
    for (name, document) in documents {
        let document = policies.check(&document).await.map_err(|error| invalid(&name, &error))?;
        let before = policies.get(&name).await?.map(|stored| (stored.version, stored.policy));
        planned.push(Planned { name, document, before, version: None });
    }
    Ok(planned)
}

/// Stores what differs, each only if it is as it was compared. If one is refused, those before it are taken back.
pub async fn apply(
    policies: &Policies,
    mut planned: Vec<Planned>,
    actor: &str,
    reason: &str,
) -> Result<Vec<Planned>, Failure> {
    for at in 0..planned.len() {
        let one = &planned[at];
        if !one.is_change() {
            continue;
        }
        let change = policies.set(&one.name, one.document.clone()).actor(actor).reason(reason);
        let change = match one.before {
            Some((version, _)) => change.expecting(version),
            // A deleted one has a version, and is no obstacle.
            None => change,
        };
        match change.await {
            Ok(changed) => planned[at].version = Some(changed.version),
            Err(error) => {
                let left = take_back(policies, &planned[..at], actor).await;
                let name = &planned[at].name;
                let after = match left.as_slice() {
                    [] => "nothing was changed".to_owned(),
                    left => format!("these could not be taken back and stay as they were applied: {}", left.join(", ")),
                };
                let text = format!("{name}: {error}; {after}");
                return Err(match crate::failure::is_away(&error) {
                    true => Failure::Unreachable(text),
                    false => Failure::Refused(text),
                });
            }
        }
    }
    Ok(planned)
}

/// The names of those that could not be taken back.
async fn take_back(policies: &Policies, done: &[Planned], actor: &str) -> Vec<String> {
    let mut left = Vec::new();
    for one in done.iter().rev() {
        let Some(version) = one.version else { continue };
        let change = match &one.before {
            Some((_, before)) => policies.set(&one.name, before.clone()),
            None => policies.delete(&one.name),
        };
        let change =
            change.expecting(version).actor(actor).reason("taken back: another policy of the same apply was refused");
        if change.await.is_err() {
            left.push(one.name.clone());
        }
    }
    left
}
