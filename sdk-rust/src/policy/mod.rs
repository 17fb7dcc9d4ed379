//! (to come)

pub mod classify;
