//! RES.BREAKER as a caller sees it: the replies of ADMIT, REPORT, TALLY and STATE by the names of their fields.

use std::collections::BTreeMap;

use redis::{Connection, Value};
use resil_harness::ok;

use crate::driven::Say;

/// `[admitted, state, permit, retry_after_ms, generation]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    pub admitted: bool,
    pub state: String,
    pub permit: Option<String>,
    pub retry_after_ms: i64,
    pub generation: i64,
}

impl Admission {
    #[track_caller]
    pub fn of(reply: Value) -> Self {
        let (admitted, state, permit, retry_after_ms, generation): (i64, String, Option<String>, i64, i64) =
            redis::from_redis_value(reply).expect("an admission has five fields");
        assert_eq!(admitted == 1, permit.is_some(), "who is admitted has a permit, and nobody else");
        Self { admitted: admitted == 1, state, permit, retry_after_ms, generation }
    }

    #[track_caller]
    pub fn permit(&self) -> &str {
        self.permit.as_deref().unwrap_or_else(|| panic!("not admitted: {self:?}"))
    }

    /// Denied, for so long.
    #[track_caller]
    pub fn assert_denied(&self, state: &str, retry_after_ms: i64) {
        assert_eq!((self.admitted, self.state.as_str(), self.retry_after_ms), (false, state, retry_after_ms));
    }
}

/// `[counted, state, generation, retry_after_ms, why]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub counted: bool,
    pub state: String,
    pub generation: i64,
    pub retry_after_ms: i64,
    pub why: String,
}

impl Reply {
    #[track_caller]
    pub fn of(reply: Value) -> Self {
        let (counted, state, generation, retry_after_ms, why): (i64, String, i64, i64, String) =
            redis::from_redis_value(reply).expect("a reply has five fields");
        assert_eq!(counted == 1, why == "counted", "{why}");
        Self { counted: counted == 1, state, generation, retry_after_ms, why }
    }

    /// Why it counted or not, and the state afterwards.
    pub fn said(&self) -> (&str, &str) {
        (&self.why, &self.state)
    }
}

/// The map of STATE; the fields of its configuration as `config.open` and so on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look(pub BTreeMap<String, String>);

impl Look {
    #[track_caller]
    pub fn of(reply: Value) -> Self {
        let mut fields = BTreeMap::new();
        add_fields("", reply, &mut fields);
        Self(fields)
    }

    #[track_caller]
    pub fn text(&self, field: &str) -> &str {
        self.0.get(field).unwrap_or_else(|| panic!("no {field} in {self:?}"))
    }

    #[track_caller]
    pub fn number(&self, field: &str) -> i64 {
        self.text(field).parse().unwrap_or_else(|_| panic!("{field} is no number: {self:?}"))
    }

    pub fn state(&self) -> &str {
        self.text("state")
    }
}

/// A map comes as an array of names and values where the protocol has no maps.
fn add_fields(prefix: &str, reply: Value, fields: &mut BTreeMap<String, String>) {
    let pairs: Vec<(Value, Value)> = match reply {
        Value::Map(pairs) => pairs,
        Value::Array(values) => values.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
        other => panic!("expected a map, got {other:?}"),
    };
    for (name, value) in pairs {
        let name = prefix.to_owned() + &redis::from_redis_value::<String>(name).expect("names are text");
        match value {
            Value::Int(number) => fields.insert(name, number.to_string()),
            Value::BulkString(bytes) => fields.insert(name, bytes.escape_ascii().to_string()),
            nested => {
                add_fields(&format!("{name}."), nested, fields);
                None
            }
        };
    }
}

/// What a test asks a breaker; `line` begins with the key.
pub trait Breaker {
    fn admit(&mut self, line: &str) -> Admission;
    fn report(&mut self, key: &str, permit: &str, outcome: &str) -> Reply;
    fn tally(&mut self, line: &str) -> Reply;
    fn look(&mut self, key: &str) -> Look;
    fn config(&mut self, line: &str) -> i64;
    fn force(&mut self, line: &str) -> (String, i64);
    /// A call that is admitted and comes to `outcome`: `OK`, `FAIL`, with more words behind it.
    fn call(&mut self, line: &str, outcome: &str) -> Reply;
    /// Fails until it is open: closed breakers only, and where failures in a row can trip.
    fn trip(&mut self, key: &str) -> Reply;
}

impl Breaker for Connection {
    #[track_caller]
    fn admit(&mut self, line: &str) -> Admission {
        Admission::of(self.say(&format!("RES.BREAKER ADMIT {line}")))
    }

    #[track_caller]
    fn report(&mut self, key: &str, permit: &str, outcome: &str) -> Reply {
        Reply::of(self.say(&format!("RES.BREAKER REPORT {key} {permit} {outcome}")))
    }

    #[track_caller]
    fn tally(&mut self, line: &str) -> Reply {
        Reply::of(self.say(&format!("RES.BREAKER TALLY {line}")))
    }

    #[track_caller]
    fn look(&mut self, key: &str) -> Look {
        Look::of(ok(self, &["RES.BREAKER", "STATE", key]))
    }

    #[track_caller]
    fn config(&mut self, line: &str) -> i64 {
        self.integer(&format!("RES.BREAKER CONFIG {line}"))
    }

    #[track_caller]
    fn force(&mut self, line: &str) -> (String, i64) {
        let reply = self.say(&format!("RES.BREAKER FORCE {line}"));
        redis::from_redis_value(reply).expect("a state and a generation")
    }

    #[track_caller]
    fn call(&mut self, line: &str, outcome: &str) -> Reply {
        let admission = self.admit(line);
        let key = line.split_whitespace().next().expect("a key");
        self.report(key, admission.permit(), outcome)
    }

    #[track_caller]
    fn trip(&mut self, key: &str) -> Reply {
        assert_eq!(self.look(key).state(), "closed");
        let threshold = self.look(key).number("config.consecutive");
        let replies: Vec<Reply> = (0..threshold).map(|_| self.call(key, "FAIL")).collect();
        let last = replies.into_iter().next_back().expect("a threshold above zero");
        assert_eq!(last.state, "open");
        last
    }
}
