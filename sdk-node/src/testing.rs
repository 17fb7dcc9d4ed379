//! For tests: a clock to drive, a scripted server, and raw commands.

use napi::bindgen_prelude::{Array, BigInt, Buffer, Either, Env, Null, Object, Unknown};
use napi_derive::napi;
use resil::Error;
use resil::clock::Clock;
use resil::testing::{self, Value, raw, raw_at};

use crate::client::Client;
use crate::convert::{duration, millis, now};
use crate::edge::to_js;
use crate::errors::{OwnError, own};
use crate::executor::{Outcome, Word, begin};

/// How many tasks live on the threads of the SDK: those that watch, renew and connect.
#[napi]
pub fn live_tasks() -> u32 {
    crate::runtime::runtime().map_or(0, |runtime| runtime.metrics().num_alive_tasks() as u32)
}

#[napi]
pub struct TestClock(pub(crate) Clock);

#[napi]
impl TestClock {
    #[napi(factory)]
    pub fn driven() -> Self {
        Self(Clock::driven())
    }

    #[napi(factory)]
    pub fn system() -> Self {
        Self(Clock::system())
    }

    #[napi(getter)]
    pub fn now_ms(&self) -> f64 {
        millis(self.0.now())
    }

    #[napi]
    pub fn advance(&self, env: Env, by: String) -> napi::Result<()> {
        self.0.advance(now(&env, duration("duration", &by))?);
        Ok(())
    }

    #[napi(getter)]
    pub fn next_wake_ms(&self) -> Option<f64> {
        self.0.next_wake().map(millis)
    }
}

/// Whole numbers up to this are exact as numbers of JavaScript.
const SAFE: u64 = (1 << 53) - 1;

/// A reply as a value of JavaScript.
fn converted<'env>(env: &'env Env, value: &Value) -> napi::Result<Unknown<'env>> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match value {
        Value::Integer(number) if number.unsigned_abs() <= SAFE => to_js(env, *number as f64),
        Value::Integer(number) => to_js(env, BigInt::from(*number)),
        Value::Text(bytes) => to_js(env, text(bytes)),
        Value::Null => to_js(env, Null),
        Value::Array(elements) => {
            let mut array: Array<'env> = env.create_array(0)?;
            for element in elements {
                array.insert(converted(env, element)?)?;
            }
            to_js(env, array)
        }
        Value::Map(pairs) => {
            let mut object = Object::new(env)?;
            for (name, value) in pairs {
                let name = match name {
                    Value::Text(bytes) => text(bytes),
                    other => format!("{other:?}"),
                };
                object.set(name, converted(env, value)?)?;
            }
            to_js(env, object)
        }
    }
}

fn words_of(words: Vec<Either<String, Buffer>>) -> Vec<Vec<u8>> {
    let word = |word: Either<String, Buffer>| match word {
        Either::A(text) => String::into_bytes(text),
        Either::B(bytes) => bytes.to_vec(),
    };
    words.into_iter().map(word).collect()
}

#[napi]
pub fn raw_command(client: &Client, words: Vec<Either<String, Buffer>>) -> napi::Result<Word> {
    let (client, words) = (client.0.clone(), words_of(words));
    begin(true, |_| {
        Box::pin(async move {
            match raw(&client, &words).await {
                Ok(reply) => Outcome::Value(Box::new(move |env| converted(env, &reply))),
                Err(error) => Outcome::Failed(error.into()),
            }
        })
    })
}

#[napi]
pub fn raw_command_at<'env>(
    env: &'env Env,
    client: &Client,
    words: Vec<Either<String, Buffer>>,
    at_us: BigInt,
) -> napi::Result<Unknown<'env>> {
    let ask = || {
        let (at_us, fits) = at_us.get_i64();
        if !fits {
            return Err(Error::InvalidArgument("atUs must fit into 64 bits".to_owned()));
        }
        raw_at(&client.0, &words_of(words), at_us)
    };
    now(env, ask()).and_then(|reply| converted(env, &reply))
}

#[napi]
pub struct Script(testing::Script);

#[napi]
impl Script {
    #[napi(factory)]
    pub fn make(clock: Option<&TestClock>) -> Self {
        let script = testing::Script::new();
        Self(match clock {
            Some(clock) => script.clock(&clock.0),
            None => script,
        })
    }

    /// The reply to the next command, as JSON.
    #[napi]
    pub fn reply(&self, env: Env, reply: String) -> napi::Result<()> {
        let json = serde_json::from_str(&reply).map_err(|error| Error::InvalidArgument(format!("reply: {error}")));
        let reply = now(&env, json.and_then(value))?;
        // Clones share one script.
        drop(self.0.clone().reply(testing::Reply::from(reply)));
        Ok(())
    }

    #[napi]
    pub fn fail(&self, error: OwnError) {
        let error = own(&error).unwrap_or(Error::Internal(error.message));
        drop(self.0.clone().fail(error));
    }

    /// The next command finds no server.
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

fn value(json: serde_json::Value) -> Result<Value, Error> {
    use serde_json::Value as Json;
    let odd = |given: &dyn std::fmt::Display| {
        let allowed = "whole numbers of 64 bits, texts, null, lists and maps";
        Error::InvalidArgument(format!("reply must be made of {allowed}, got {given}"))
    };
    Ok(match json {
        Json::Null => Value::Null,
        Json::String(text) => Value::Text(text.into_bytes()),
        Json::Number(number) => Value::Integer(number.as_i64().ok_or_else(|| odd(&number))?),
        Json::Array(elements) => Value::Array(elements.into_iter().map(value).collect::<Result<_, _>>()?),
        Json::Object(pairs) => {
            let pair = |(name, of): (String, Json)| Ok((Value::Text(name.into_bytes()), value(of)?));
            Value::Map(pairs.into_iter().map(pair).collect::<Result<_, Error>>()?)
        }
        Json::Bool(given) => return Err(odd(&given)),
    })
}
