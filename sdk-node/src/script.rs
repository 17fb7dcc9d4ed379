//! For tests: a server that says what it is told.

use napi::bindgen_prelude::Env;
use napi_derive::napi;
use resil::Error;
use resil::testing::{Reply, Script as Inner, Value};

use crate::client::Client;
use crate::convert::now;
use crate::errors::{OwnError, own};
use crate::testing::TestClock;

#[napi]
pub struct Script(Inner);

#[napi]
impl Script {
    #[napi(factory)]
    pub fn make(clock: Option<&TestClock>) -> Self {
        let script = Inner::new();
        Self(match clock {
            Some(clock) => script.clock(&clock.0),
            None => script,
        })
    }

    /// The next command is answered so: a reply as JSON.
    #[napi]
    pub fn answer(&self, env: Env, reply: String) -> napi::Result<()> {
        let reply = now(&env, read(&reply))?;
        // Clones are one.
        drop(self.0.clone().answer(Reply::from(reply)));
        Ok(())
    }

    /// The next command fails so.
    #[napi]
    pub fn fail(&self, error: OwnError) {
        let error = own(&error).unwrap_or(Error::Internal(error.message));
        drop(self.0.clone().fail(error));
    }

    /// The next command finds nobody there.
    #[napi]
    pub fn away(&self) {
        drop(self.0.clone().away());
    }

    #[napi]
    pub fn go_away(&self) {
        self.0.go_away();
    }

    #[napi]
    pub fn come_back(&self) {
        self.0.come_back();
    }

    #[napi]
    pub fn connect(&self) -> Client {
        Client(self.0.connect())
    }

    #[napi(getter)]
    pub fn asked(&self) -> Vec<Vec<String>> {
        self.0.asked()
    }

    #[napi(getter)]
    pub fn left(&self) -> u32 {
        self.0.left() as u32
    }
}

fn read(reply: &str) -> Result<Value, Error> {
    let json = serde_json::from_str(reply).map_err(|error| Error::InvalidArgument(format!("reply: {error}")))?;
    value(json)
}

fn value(json: serde_json::Value) -> Result<Value, Error> {
    use serde_json::Value as Json;
    Ok(match json {
        Json::Null => Value::Null,
        Json::String(text) => Value::Text(text.into_bytes()),
        Json::Number(number) => Value::Integer(number.as_i64().ok_or_else(|| no_reply(&number.to_string()))?),
        Json::Array(elements) => Value::Array(elements.into_iter().map(value).collect::<Result<_, _>>()?),
        Json::Object(pairs) => {
            let pair = |(name, of): (String, Json)| Ok((Value::Text(name.into_bytes()), value(of)?));
            Value::Map(pairs.into_iter().map(pair).collect::<Result<_, Error>>()?)
        }
        Json::Bool(said) => return Err(no_reply(&said.to_string())),
    })
}

fn no_reply(said: &str) -> Error {
    Error::InvalidArgument(format!(
        "reply must be made of whole numbers of 64 bits, texts, null, lists and maps, got {said}"
    ))
}
