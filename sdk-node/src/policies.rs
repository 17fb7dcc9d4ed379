//! What a process does by itself: retry.

use napi::bindgen_prelude::Env;
use napi_derive::napi;
use resil::policy::{LocalBulkhead, Retry, RetrySettings};

use crate::convert::now;
use crate::guard::{Guard, Layer};

#[napi]
pub fn make_retry(env: Env) -> napi::Result<Guard> {
    now(&env, Retry::new(&RetrySettings::default())).map(|retry| Guard::of(vec![Layer::Retry(retry)]))
}
#[napi]
pub fn make_bulkhead(env: Env) -> napi::Result<Guard> {
    now(&env, LocalBulkhead::new("x", 10, 10)).map(|x| Guard::of(vec![Layer::Bulkhead(x)]))
}
#[napi]
pub fn make_breaker(env: Env) -> napi::Result<Guard> {
    let c = crate::runtime::runtime().unwrap().block_on(resil::connect("memory://"));
    let c = now(&env, c)?;
    now(&env, c.breaker("x", resil::breaker::BreakerOptions::new())).map(|x| Guard::of(vec![Layer::Breaker(x)]))
}
