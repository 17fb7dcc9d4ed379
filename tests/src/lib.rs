//! What the tests share: the conformance vectors of `tests/vectors`.

pub mod vectors;
