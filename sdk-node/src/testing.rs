//! For tests: a clock to drive, and raw commands.

use napi::bindgen_prelude::{Array, BigInt, Buffer, Either, Env, JsValue, Null, Object, ToNapiValue, Unknown};
use napi::sys;
use napi_derive::napi;
use resil::Error;
use resil::clock::Clock;
use resil::testing::{Value, raw, raw_at};

use crate::client::Client;
use crate::convert::{millis, now, ours, span};
use crate::executor::Word;

/// How many tasks live on the threads of the SDK: what watches, renews and connects.
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
        self.0.advance(now(&env, span("span", &by))?);
        Ok(())
    }

    #[napi(getter)]
    pub fn next_wake_ms(&self) -> Option<f64> {
        self.0.next_wake().map(millis)
    }
}

/// A reply on its way to JavaScript.
pub struct Reply(Value);

/// Whole numbers up to this are exact as numbers of JavaScript.
const SAFE: u64 = (1 << 53) - 1;

impl ToNapiValue for Reply {
    unsafe fn to_napi_value(env: sys::napi_env, reply: Self) -> napi::Result<sys::napi_value> {
        converted(&Env::from_raw(env), &reply.0).map(|value| value.raw())
    }
}

fn converted<'env>(env: &'env Env, value: &Value) -> napi::Result<Unknown<'env>> {
    // SAFETY: everything is made by this environment, in the call that is under way.
    let unknown = |raw: napi::Result<sys::napi_value>| Ok(unsafe { Unknown::from_raw_unchecked(env.raw(), raw?) });
    let raw = env.raw();
    match value {
        Value::Integer(number) if number.unsigned_abs() <= SAFE => {
            unknown(unsafe { ToNapiValue::to_napi_value(raw, *number as f64) })
        }
        Value::Integer(number) => unknown(unsafe { ToNapiValue::to_napi_value(raw, BigInt::from(*number)) }),
        Value::Text(bytes) => {
            unknown(unsafe { ToNapiValue::to_napi_value(raw, String::from_utf8_lossy(bytes).into_owned()) })
        }
        Value::Null => unknown(unsafe { ToNapiValue::to_napi_value(raw, Null) }),
        Value::Array(elements) => {
            let mut array: Array<'env> = env.create_array(0)?;
            for element in elements {
                array.insert(converted(env, element)?)?;
            }
            unknown(unsafe { ToNapiValue::to_napi_value(raw, array) })
        }
        Value::Map(pairs) => {
            let mut object = Object::new(env)?;
            for (name, value) in pairs {
                let name = match name {
                    Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    other => format!("{other:?}"),
                };
                object.set(name, converted(env, value)?)?;
            }
            unknown(unsafe { ToNapiValue::to_napi_value(raw, object) })
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
    ours(async move { raw(&client, &words).await.map(Reply) })
}

#[napi]
pub fn raw_command_at(
    env: Env,
    client: &Client,
    words: Vec<Either<String, Buffer>>,
    at_us: BigInt,
) -> napi::Result<Reply> {
    let ask = || {
        let (at_us, fits) = at_us.get_i64();
        if !fits {
            return Err(Error::InvalidArgument("atUs must fit into 64 bits".to_owned()));
        }
        raw_at(&client.0, &words_of(words), at_us)
    };
    now(&env, ask()).map(Reply)
}
