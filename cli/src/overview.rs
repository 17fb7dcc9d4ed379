//! What there is, without knowing a key: `RES.LIST` and `RES.TOP` as rows of named fields, which lists, `top` and the exporter share.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use resil::Client;
use resil::operator::{KeyFilter, KeyKind, KeyRow, Operator, RowField};
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

impl ListArgs {
    /// One more than is shown: then it is known that there are more.
    pub fn filter(&self) -> KeyFilter {
        KeyFilter { state: self.state.clone(), pattern: self.r#match.clone(), limit: self.wanted().saturating_add(1) }
    }

    fn wanted(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }
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

    pub fn all(rows: &[impl KeyRow]) -> Vec<Self> {
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

    /// How it stands in a table, so that no two look the same: the name, which a policy's breaker shares with its policy; for a key that
    /// is none of the SDKs', what has to be typed.
    pub fn label(&self) -> Vec<u8> {
        match &self.name {
            Some(name) if self.number("policy") == Some(1) => [name.as_bytes(), b" (policy)"].concat(),
            Some(name) => name.clone().into_bytes(),
            None => [b"--key ", &*self.key].concat(),
        }
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

/// Fails if nodes of a cluster did not reply: what was shown is not all there is.
pub fn all_nodes(operator: &Operator) -> Result<(), Failure> {
    match operator.lost_nodes().as_slice() {
        [] => Ok(()),
        lost => Err(Failure::Unreachable(format!("{}: what they have is not shown", away(lost)))),
    }
}

/// `the node 10.0.0.3:6379 is away (the connection was refused)`
pub fn away(lost: &[(String, String)]) -> String {
    let each: Vec<String> = lost.iter().map(|(address, why)| format!("the node {address} is away ({why})")).collect();
    each.join(", ")
}

/// The rows there are, sorted by key, and whom to ask with [`all_nodes`] whether they are all. Standard error says if there are more.
pub async fn list(
    client: &Client,
    output: &Output,
    kind: KeyKind,
    args: &ListArgs,
) -> Result<(Vec<OverviewRow>, Operator), Failure> {
    let operator = client.operator().without_lost_nodes();
    let rows = listed(&operator, kind, &args.filter()).await?;
    Ok((shorten(output, args, rows), operator))
}

/// The rows that are shown of those that [`ListArgs::filter`] finds.
pub fn shorten(output: &Output, args: &ListArgs, mut rows: Vec<OverviewRow>) -> Vec<OverviewRow> {
    let wanted = args.wanted();
    if rows.len() > wanted {
        rows.truncate(wanted);
        output.notice(&format!("there are more than {wanted}; --limit shows more, --state and --match fewer"));
    }
    rows
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
pub async fn list_all(operator: &Operator, kind: KeyKind, limit: usize) -> Result<Vec<OverviewRow>, resil::Error> {
    let mut rows = listed(operator, kind, &KeyFilter { limit, ..KeyFilter::default() }).await?;
    if rows.len() < limit {
        return Ok(rows);
    }
    let mut seen: BTreeSet<Vec<u8>> = rows.iter().map(|row| row.key.clone()).collect();
    for state in states_of_note(kind) {
        let filter = KeyFilter { state: Some((*state).to_owned()), limit, ..KeyFilter::default() };
        let noted = listed(operator, kind, &filter).await?;
        rows.extend(noted.into_iter().filter(|row| seen.insert(row.key.clone())));
    }
    Ok(rows)
}

async fn listed(operator: &Operator, kind: KeyKind, filter: &KeyFilter) -> Result<Vec<OverviewRow>, resil::Error> {
    Ok(match kind {
        KeyKind::Breaker => OverviewRow::all(&operator.breakers(filter).await?),
        KeyKind::Lock => OverviewRow::all(&operator.locks(filter).await?),
        KeyKind::Bulkhead => OverviewRow::all(&operator.bulkheads(filter).await?),
        KeyKind::Policy => OverviewRow::all(&operator.policies(filter).await?),
        KeyKind::DeadLetters => OverviewRow::all(&operator.ledgers(filter).await?),
    })
}

/// The keys that were refused most, the most frequent first.
pub async fn denied(operator: &Operator, limit: usize) -> Result<Vec<OverviewRow>, resil::Error> {
    Ok(OverviewRow::all(&operator.denied(limit).await?))
}
