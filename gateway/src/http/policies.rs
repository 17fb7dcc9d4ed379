//! Policies: what is stored, what a document would change, storing it, going back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use resil::policies::{PolicyChange, StoredPolicy};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Reply;
use super::acts::{Actor, Because, Body, Looker, Segments};
use crate::errors::{Problem, bounded};
use crate::roles::Role;
use crate::run::Gateway;

/// JSON of a document that is JSON or YAML. A large one takes long to read, and calls and the connection to Redis share these threads.
pub async fn document_of(text: String) -> Result<String, Problem> {
    let read = tokio::task::spawn_blocking(move || read_document(&text)).await;
    read.unwrap_or_else(|_| Err(Problem::wrong_field("document", "cannot be read")))
}

fn read_document(text: &str) -> Result<String, Problem> {
    if serde_json::from_str::<Value>(text).is_ok() {
        // As it is, so that names that are there twice are found.
        return Ok(text.to_owned());
    }
    let value: Value = serde_saphyr::from_str(text).map_err(|error| {
        let words = error.to_string().split_whitespace().take(40).collect::<Vec<_>>().join(" ");
        Problem::wrong_field("document", &format!("is neither JSON nor YAML: {words}"))
    })?;
    if !value.is_object() {
        return Err(Problem::wrong_field("document", "must be a map of settings"));
    }
    Ok(value.to_string())
}

fn indented(document: &str) -> String {
    let parsed = serde_json::from_str::<Value>(document).ok();
    parsed.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| document.to_owned())
}

fn policy(stored: &StoredPolicy) -> Value {
    let at = u64::try_from(stored.at.as_millis()).unwrap_or(u64::MAX);
    json!({"name": stored.name, "version": stored.version, "document": indented(&stored.policy), "at": at, "actor": stored.actor,
        "reason": stored.reason})
}

pub async fn list(State(gateway): State<Arc<Gateway>>, _: Looker) -> Reply {
    let stored = gateway.client.policies().list().await?;
    let file = gateway.policies.has_file().then(|| {
        let path = gateway.config.policies.file.as_deref().and_then(|path| path.file_name());
        let problem = gateway.policies.file_problem().map(|error| match error {
            // It names a path of this machine.
            resil::Error::InvalidArgument(_) => "the file cannot be read".to_owned(),
            other => other.to_string(),
        });
        json!({"path": path.map(|name| name.to_string_lossy()), "names": gateway.policies.file_names(), "problem": problem})
    });
    Ok(Json(json!({ "policies": stored.iter().map(policy).collect::<Vec<_>>(), "file": file })))
}

pub async fn show(State(gateway): State<Arc<Gateway>>, _: Looker, Segments(name): Segments<String>) -> Reply {
    let stored = gateway.client.policies().get(&name).await?.ok_or_else(|| Problem::not_found("policy"))?;
    Ok(Json(policy(&stored)))
}

pub async fn show_version(
    State(gateway): State<Arc<Gateway>>,
    _: Looker,
    Segments((name, version)): Segments<(String, u64)>,
) -> Reply {
    let stored = gateway.client.policies().get_version(&name, version).await?;
    Ok(Json(policy(&stored.ok_or_else(|| Problem::not_found("version of this policy"))?)))
}

pub async fn history(State(gateway): State<Arc<Gateway>>, _: Looker, Segments(name): Segments<String>) -> Reply {
    let records = gateway.client.policies().history(&name).await?;
    let rows: Vec<Value> = records
        .iter()
        .map(|record| {
            let at = u64::try_from(record.at.as_millis()).unwrap_or(u64::MAX);
            json!({"version": record.version, "deleted": record.is_deleted, "at": at, "actor": record.actor, "reason": record.reason})
        })
        .collect();
    Ok(Json(json!({ "versions": rows })))
}

#[derive(Deserialize)]
pub struct CheckAsked {
    document: String,
}

pub async fn check(State(gateway): State<Arc<Gateway>>, _: Looker, Body(asked): Body<CheckAsked>) -> Reply {
    let document = match document_of(asked.document).await {
        Ok(document) => document,
        Err(problem) => return Ok(Json(json!({"valid": false, "field": "document", "message": problem.detail}))),
    };
    match gateway.client.policies().check(&document).await {
        Ok(canonical) => Ok(Json(json!({"valid": true, "canonical": indented(&canonical)}))),
        Err(resil::Error::InvalidPolicy { field, reason }) => {
            Ok(Json(json!({"valid": false, "field": field, "message": bounded(reason)})))
        }
        Err(resil::Error::InvalidArgument(text)) => {
            Ok(Json(json!({"valid": false, "field": "document", "message": bounded(text)})))
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Deserialize)]
pub struct DiffAsked {
    #[serde(default)]
    document: Option<String>,
    #[serde(default)]
    version: Option<u64>,
    #[serde(default)]
    against: Option<u64>,
}

fn flatten(path: &str, value: &Value, fields: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, fields);
            }
        }
        value => drop(fields.insert(path.to_owned(), value.clone())),
    }
}

/// The fields that differ.
fn changes(before: Option<&str>, after: &str) -> Vec<Value> {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    let parsed = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    if let Some(before) = before {
        flatten("", &parsed(before), &mut old);
    }
    flatten("", &parsed(after), &mut new);
    let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differ = paths.into_iter().filter(|path| old.get(*path) != new.get(*path));
    differ.map(|path| json!({"path": path, "before": old.get(path), "after": new.get(path)})).collect()
}

pub async fn diff(
    State(gateway): State<Arc<Gateway>>,
    _: Looker,
    Segments(name): Segments<String>,
    Body(asked): Body<DiffAsked>,
) -> Reply {
    let policies = gateway.client.policies();
    let missing = || Problem::not_found("version of this policy");
    let before = match asked.against {
        Some(version) => Some(policies.get_version(&name, version).await?.ok_or_else(missing)?),
        None => policies.get(&name).await?,
    };
    let (to, after) = match (&asked.document, asked.version) {
        (Some(document), None) => (None, policies.check(&document_of(document.clone()).await?).await?),
        (None, Some(version)) => {
            let stored = policies.get_version(&name, version).await?.ok_or_else(missing)?;
            (Some(version), stored.policy)
        }
        _ => return Err(Problem::wrong("document or version is needed, and not both")),
    };
    let from = before.as_ref().map(|before| before.version);
    let changes = changes(before.as_ref().map(|before| before.policy.as_str()), &after);
    Ok(Json(json!({ "from": from, "to": to, "changes": changes })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetAsked {
    #[serde(default)]
    document: Option<String>,
    #[serde(default)]
    version: Option<u64>,
    #[serde(default)]
    expected_version: Option<u64>,
    #[serde(flatten)]
    because: Because,
}

async fn make(
    gateway: &Gateway,
    actor: &Actor,
    (kind, name): (&'static str, &str),
    change: PolicyChange,
    asked: &SetAsked,
) -> Reply {
    let mut change = change.actor(&asked.because.actor).reason(&asked.because.reason);
    if let Some(version) = asked.expected_version {
        change = change.expecting(version);
    }
    let changed = change.await?;
    let shown = super::shown(&changed)?;
    let action = format!(
        "{} as version {}: {}",
        shown["action"].as_str().unwrap_or_default(),
        changed.version,
        asked.because.reason
    );
    actor.done(gateway, kind, name, &action, &asked.because.actor);
    Ok(Json(shown))
}

pub async fn set(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments(name): Segments<String>,
    Body(asked): Body<SetAsked>,
) -> Reply {
    actor.must(&gateway, Role::Govern, "policy.set", &name)?;
    asked.because.check()?;
    let document = asked.document.clone().ok_or_else(|| Problem::wrong_field("document", "is needed"))?;
    let change = gateway.client.policies().set(&name, document_of(document).await?);
    make(&gateway, &actor, ("policy.set", &name), change, &asked).await
}

pub async fn rollback(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments(name): Segments<String>,
    Body(asked): Body<SetAsked>,
) -> Reply {
    actor.must(&gateway, Role::Govern, "policy.rollback", &name)?;
    asked.because.check()?;
    let version = asked.version.ok_or_else(|| Problem::wrong_field("version", "is needed"))?;
    let known = gateway.client.policies().get_version(&name, version).await?;
    known.ok_or_else(|| Problem::not_found("version of this policy"))?;
    let change = gateway.client.policies().rollback(&name, version);
    make(&gateway, &actor, ("policy.rollback", &name), change, &asked).await
}

pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments(name): Segments<String>,
    Body(asked): Body<SetAsked>,
) -> Reply {
    actor.must(&gateway, Role::Govern, "policy.delete", &name)?;
    asked.because.check()?;
    gateway.client.policies().get(&name).await?.ok_or_else(|| Problem::not_found("policy"))?;
    let change = gateway.client.policies().delete(&name);
    make(&gateway, &actor, ("policy.delete", &name), change, &asked).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_fields() {
        let found = changes(
            Some(r#"{"retry":{"maxAttempts":3},"timeout":{"total":"1s"}}"#),
            r#"{"retry":{"maxAttempts":4},"shed":2}"#,
        );
        assert_eq!(
            Value::from(found),
            json!([{"path": "retry.maxAttempts", "before": 3, "after": 4}, {"path": "shed", "before": null, "after": 2},
                {"path": "timeout.total", "before": "1s", "after": null}])
        );
    }

    #[test]
    fn a_document_is_json_or_yaml_and_a_map() {
        assert_eq!(read_document("retry:\n  maxAttempts: 4").unwrap(), r#"{"retry":{"maxAttempts":4}}"#);
        assert_eq!(
            read_document(r#"{"a":1,"a":2}"#).unwrap(),
            r#"{"a":1,"a":2}"#,
            "as it is: the server finds what is there twice"
        );
        assert!(read_document("just words").is_err());
    }
}
