//! Parts of verdicts and of replies.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use resil_core::Span;
use resil_core::circuit_breaker::{StateName, Why};
use resil_core::limits::TTL_MAX;
use resil_core::lock::Reason;
use resil_wire::command::Reply;
use resil_wire::reply::Value;

use super::span;

pub fn written(reply: &Reply) -> Value {
    Value::written(|sink| reply.write(sink))
}

pub fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..40), Just(b"LOST".to_vec())]
}

pub fn shared() -> impl Strategy<Value = Arc<[u8]>> {
    bytes().prop_map(Arc::from)
}

pub fn any_span() -> impl Strategy<Value = Span> {
    prop_oneof![Just(Span::ZERO), span(Span::ZERO, TTL_MAX)]
}

pub fn state() -> impl Strategy<Value = StateName> {
    select(StateName::ALL.to_vec())
}

pub fn why() -> impl Strategy<Value = Why> {
    select(Why::ALL.to_vec())
}

pub fn reason() -> impl Strategy<Value = Reason> {
    select(Reason::ALL.to_vec())
}
