//! `commands/errors.json` and the enum that is generated from it say the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use resil::{Code, Error, Leased};
use serde::Deserialize;

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Row {
    code: String,
    grpc: String,
    http: u16,
    retryable: bool,
    meaning: String,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(workspace().join("commands/errors.json")).expect("commands/errors.json");
    serde_json::from_str(&text).expect("a list of codes, each with code, grpc, http, retryable, meaning")
}

#[test]
fn a_loss_says_what_was_lost() {
    let lost = |what| Error::LockLost { what, name: "orders".into(), reason: "broken" }.to_string();
    assert_eq!(lost(Leased::Lock), "the lock orders was lost: broken");
    assert_eq!(lost(Leased::Permit), "the permit of the bulkhead orders was lost: broken");
    assert_eq!(lost(Leased::Work), "the right to do the work orders was lost: broken");
}

#[test]
fn the_list_is_the_enum_in_the_same_order() {
    let from_enum: Vec<Row> = Code::all()
        .map(|code| Row {
            code: code.text().to_owned(),
            grpc: code.grpc().text().to_owned(),
            http: code.http(),
            retryable: code.is_retryable(),
            meaning: code.meaning().to_owned(),
        })
        .collect();
    assert_eq!(rows(), from_enum);
}

#[test]
fn every_code_is_named_once_and_explained_by_a_sentence() {
    let rows = rows();
    let codes: BTreeSet<_> = rows.iter().map(|row| &row.code).collect();
    assert_eq!(codes.len(), rows.len());
    for row in &rows {
        assert!(row.code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'), "{}", row.code);
        assert!((400..600).contains(&row.http), "{}", row.code);
        assert!(row.meaning.ends_with('.') && row.meaning.len() > 15, "{}", row.code);
        assert!(!row.meaning.contains('|'), "it stands in a table");
    }
    let meanings: BTreeSet<_> = rows.iter().map(|row| &row.meaning).collect();
    assert_eq!(meanings.len(), rows.len(), "no two codes mean the same");
}

/// Others map these statuses already: a change here breaks them.
#[test]
fn the_promised_statuses_are_the_promised_ones() {
    let promised = [
        ("CIRCUIT_OPEN", "UNAVAILABLE", 503),
        ("RATE_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED", 429),
        ("TIMEOUT", "DEADLINE_EXCEEDED", 504),
        ("BULKHEAD_FULL", "RESOURCE_EXHAUSTED", 503),
        ("RETRY_EXHAUSTED", "UNAVAILABLE", 503),
        ("INVALID_POLICY", "INVALID_ARGUMENT", 400),
        ("LOCK_TIMEOUT", "ABORTED", 409),
        ("LOCK_LOST", "ABORTED", 409),
        ("IDEMPOTENCY_BUSY", "ABORTED", 409),
        ("IDEMPOTENCY_MISMATCH", "FAILED_PRECONDITION", 422),
        ("BACKEND_UNAVAILABLE", "UNAVAILABLE", 503),
    ];
    let rows = rows();
    for (code, grpc, http) in promised {
        let row = rows.iter().find(|row| row.code == code).unwrap_or_else(|| panic!("{code} is gone"));
        assert_eq!((row.grpc.as_str(), row.http), (grpc, http), "{code}");
    }
}

#[tokio::test]
async fn a_name_in_settings_that_is_another_is_refused() {
    use resil::breaker::BreakerSettings;
    use resil::limiter::Limit;
    use resil::shared_bulkhead::SharedBulkheadSettings;

    let client = resil::connect("memory://").await.expect("memory");
    let named = |other: &str| Some(other.to_owned());
    let limit = |name: &str| Limit { name: named(name), ..Limit::per_second(1) };
    let breaker = BreakerSettings { name: named("other"), ..BreakerSettings::new() };
    let bulkhead = SharedBulkheadSettings { name: named("other"), ..SharedBulkheadSettings::new(1) };
    let refusals = [
        client.limiter("api", limit("other")).map(drop),
        client.breaker("api", breaker).map(drop),
        client.shared_bulkhead("api", bulkhead).map(drop),
    ];
    for refused in refusals {
        assert!(matches!(refused, Err(Error::InvalidPolicy { field, .. }) if field == "name"));
    }
    client.limiter("api", limit("api")).expect("the same");
}

#[tokio::test]
async fn memory_without_slashes_is_pointed_to_the_url() {
    for url in ["memory", "memory:", "memory:/", ""] {
        let error = resil::connect(url).await.expect_err("no URL");
        assert!(error.code() == Code::InvalidArgument && error.to_string().contains("memory://"), "{url}: {error}");
    }
}
