//! What there is, without knowing a key: `RES.LIST` and `RES.TOP` as rows of named fields, which lists, `top` and the exporter share.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use resil::Client;
use resil::operator::{KeyFilter, KeyKind, KeyRow, RowField};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::{Output, json_bytes};
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
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

/// A row of RES.LIST or RES.TOP: its key, and what is known of it under the names of the command's page.
#[derive(Clone, PartialEq, Debug)]
pub struct OverviewRow {
    pub key: Vec<u8>,
    pub name: Option<String>,
    fields: Vec<(&'static str, Shown)>,
}

/// What a row says under one of its names.
#[derive(Clone, PartialEq, Debug)]
enum Shown {
    Number(i64),
    Bytes(Vec<u8>),
    Nothing,
}

impl OverviewRow {
    fn of(row: &impl KeyRow) -> Self {
        let field = |field: RowField<'_>| match field {
            RowField::Number(number) => Shown::Number(number),
            RowField::Text(text) => Shown::Bytes(text.to_vec()),
            RowField::Nothing => Shown::Nothing,
        };
        let fields = row.fields().into_iter().filter(|(name, _)| *name != "key");
        let fields = fields.map(|(name, value)| (name, field(value))).collect();
        Self { key: row.key().to_vec(), name: row.name(), fields }
    }

    fn all(rows: &[impl KeyRow]) -> Vec<Self> {
        rows.iter().map(Self::of).collect()
    }

    fn field(&self, name: &str) -> Option<&Shown> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    pub fn number(&self, name: &str) -> Option<i64> {
        match self.field(name) {
            Some(Shown::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A number, or a dash.
    pub fn count(&self, name: &str) -> String {
        self.number(name).map_or_else(|| "-".to_owned(), |number| number.to_string())
    }

    pub fn bytes(&self, name: &str) -> &[u8] {
        match self.field(name) {
            Some(Shown::Bytes(bytes)) => bytes,
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
                Shown::Nothing => Value::Null,
                Shown::Number(number) => json!(number),
                Shown::Bytes(bytes) => json_bytes(bytes),
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

/// The rows there are, sorted by key. Standard error says if there are more.
pub async fn list(
    client: &Client,
    output: &Output,
    kind: KeyKind,
    args: &ListArgs,
) -> Result<Vec<OverviewRow>, Failure> {
    let wanted = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let (state, pattern, limit) = (args.state.clone(), args.r#match.clone(), wanted.saturating_add(1));
    let mut rows = listed(client, kind, &KeyFilter { state, pattern, limit }).await?;
    if rows.len() > wanted {
        rows.truncate(wanted);
        output.notice(&format!("there are more than {wanted}; --limit shows more, --state and --match fewer"));
    }
    Ok(rows)
}

/// States that an operator must see, however many keys there are in other states.
fn states_of_note(kind: KeyKind) -> &'static [&'static str] {
    match kind {
        KeyKind::Breaker => &["open", "forced-open", "half-open", "ramping", "forced-closed", "disabled", "metrics"],
        KeyKind::Lock => &["contended"],
        KeyKind::Bulkhead => &["full"],
        KeyKind::Policy | KeyKind::DeadLetters => &[],
    }
}

/// The first `limit` of a kind. If there may be more, those in a state of note are added to them.
pub async fn list_all(client: &Client, kind: KeyKind, limit: usize) -> Result<Vec<OverviewRow>, resil::Error> {
    let mut rows = listed(client, kind, &KeyFilter { limit, ..KeyFilter::default() }).await?;
    if rows.len() < limit {
        return Ok(rows);
    }
    let mut seen: BTreeSet<Vec<u8>> = rows.iter().map(|row| row.key.clone()).collect();
    for state in states_of_note(kind) {
        let filter = KeyFilter { state: Some((*state).to_owned()), limit, ..KeyFilter::default() };
        let noted = listed(client, kind, &filter).await?;
        rows.extend(noted.into_iter().filter(|row| seen.insert(row.key.clone())));
    }
    Ok(rows)
}

async fn listed(client: &Client, kind: KeyKind, filter: &KeyFilter) -> Result<Vec<OverviewRow>, resil::Error> {
    let operator = client.operator();
    Ok(match kind {
        KeyKind::Breaker => OverviewRow::all(&operator.breakers(filter).await?),
        KeyKind::Lock => OverviewRow::all(&operator.locks(filter).await?),
        KeyKind::Bulkhead => OverviewRow::all(&operator.bulkheads(filter).await?),
        KeyKind::Policy => OverviewRow::all(&operator.policies(filter).await?),
        KeyKind::DeadLetters => OverviewRow::all(&operator.ledgers(filter).await?),
    })
}

/// The keys that were refused most, the most frequent first.
pub async fn denied(client: &Client, limit: usize) -> Result<Vec<OverviewRow>, resil::Error> {
    Ok(OverviewRow::all(&client.operator().denied(limit).await?))
}
