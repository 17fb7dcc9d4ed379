//! What sessions say of a holding that is bound to a connection.

use alloc::boxed::Box;

use super::ending::Reason;
use crate::lock::Kind;
use crate::time::{Instant, Span};

/// A connection.
pub type ClientId = u64;

/// The connection a holding is bound to, and the grace it has once that connection has closed. Zero: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    pub client: ClientId,
    pub grace: Span,
}

/// A holding: the key it is in, and its fence. `db` is whatever number stays with a key: sessions only compare it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldingId {
    pub db: i32,
    pub key: Box<[u8]>,
    pub fence: u64,
}

/// A bound holding that was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub key: Box<[u8]>,
    pub fence: u64,
    pub reason: Reason,
}

/// A bound holding whose lease is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due<K = Kind> {
    pub place: HoldingId,
    pub kind: K,
    pub client: ClientId,
    pub lease: Span,
}

/// A holding whose connection has closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedHolding<K = Kind> {
    pub place: HoldingId,
    pub kind: K,
    pub grace: Span,
    /// When it closed.
    pub at: Instant,
}
