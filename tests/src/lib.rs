//! What the tests share: the conformance vectors of `tests/vectors`, and how files of earlier versions are looked at.

pub mod old_files;
pub mod vectors;
