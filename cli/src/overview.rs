//! What there is, without knowing a key: `RES.LIST` and `RES.TOP` as rows of named fields, which lists, `top` and the exporter share.

use std::time::Duration;

use clap::Args;
use resil::Client;
use resil::operator::{KeyFilter, KeyKind, KeyRow, Ranking, RowField};
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

/// A row of RES.LIST or RES.TOP: its key, and what is known of it under the names of the command's page.
#[derive(Clone, PartialEq, Debug)]
pub struct OverviewRow {
    pub key: Vec<u8>,
    pub name: Option<String>,
    pub fields: Vec<(String, RowField)>,
}

impl OverviewRow {
    fn of(kind: Option<KeyKind>, row: KeyRow) -> Self {
        let KeyRow { key, fields } = row;
        Self { name: kind.and_then(|kind| kind.name(&key)), key, fields }
    }

    fn field(&self, name: &str) -> Option<&RowField> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    pub fn number(&self, name: &str) -> Option<i64> {
        match self.field(name) {
            Some(RowField::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A number, or a dash.
    pub fn count(&self, name: &str) -> String {
        self.number(name).map_or_else(|| "-".to_owned(), |number| number.to_string())
    }

    pub fn bytes(&self, name: &str) -> &[u8] {
        match self.field(name) {
            Some(RowField::Bytes(bytes)) => bytes,
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
                RowField::Nothing => Value::Null,
                RowField::Number(number) => json!(number),
                RowField::Bytes(bytes) => json_bytes(bytes),
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
pub async fn list(client: &Client, kind: KeyKind, args: &ListArgs) -> Result<Vec<OverviewRow>, Failure> {
    let filter = KeyFilter { state: args.state.clone(), pattern: args.r#match.clone(), limit: args.limit };
    let rows = client.operator().list(kind, &filter).await?;
    Ok(rows.into_iter().map(|row| OverviewRow::of(Some(kind), row)).collect())
}

/// At most `limit` of a kind.
pub async fn list_all(client: &Client, kind: KeyKind, limit: usize) -> Result<Vec<OverviewRow>, resil::Error> {
    let rows = client.operator().list(kind, &KeyFilter { limit, ..KeyFilter::default() }).await?;
    Ok(rows.into_iter().map(|row| OverviewRow::of(Some(kind), row)).collect())
}

/// The keys that stand out, the largest first; `None` if the server cannot tell.
pub async fn rank(client: &Client, ranking: Ranking, limit: u32) -> Result<Option<Vec<OverviewRow>>, resil::Error> {
    let rows = client.operator().rank(ranking, limit).await?;
    Ok(rows.map(|rows| rows.into_iter().map(|row| OverviewRow::of(None, row)).collect()))
}
