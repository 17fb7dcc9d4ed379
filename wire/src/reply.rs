//! Replies, neutral of protocol: the module writes them to the server, an SDK reads them from a connection.

use std::fmt;

/// Where a reply is written. Arrays announce their length first, then their elements follow.
pub trait Sink {
    fn array(&mut self, len: usize);
    /// A map announces the number of its pairs; keys and values follow in turn.
    fn map(&mut self, pairs: usize);
    fn integer(&mut self, number: i64);
    fn text(&mut self, bytes: &[u8]);
    fn null(&mut self);
}

/// A reply as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Integer(i64),
    Text(Vec<u8>),
    Null,
    Array(Vec<Value>),
    /// A map, or, from an older protocol, an array of keys and values in turn.
    Map(Vec<(Value, Value)>),
}

/// The reply is not of the shape the command promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexpected(pub &'static str);

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unexpected reply: {} was expected", self.0)
    }
}

impl std::error::Error for Unexpected {}

impl Value {
    /// What `write` writes, as a value.
    pub fn written(write: impl FnOnce(&mut dyn Sink)) -> Self {
        let mut flat = Flat(Vec::new());
        write(&mut flat);
        flat.0.reverse();
        flat.take()
    }

    pub fn integer(&self) -> Result<i64, Unexpected> {
        match self {
            Self::Integer(number) => Ok(*number),
            _ => Err(Unexpected("an integer")),
        }
    }

    pub fn array(&self) -> Result<&[Self], Unexpected> {
        match self {
            Self::Array(elements) => Ok(elements),
            _ => Err(Unexpected("an array")),
        }
    }

    pub fn text(&self) -> Result<&[u8], Unexpected> {
        match self {
            Self::Text(bytes) => Ok(bytes),
            _ => Err(Unexpected("a text")),
        }
    }

    /// An array of exactly `N` integers.
    pub fn integers<const N: usize>(&self) -> Result<[i64; N], Unexpected> {
        let numbers: Result<Vec<i64>, _> = self.array()?.iter().map(Self::integer).collect();
        numbers?.try_into().map_err(|_| Unexpected("another number of elements"))
    }
}

enum Piece {
    Array(usize),
    Map(usize),
    Leaf(Value),
}

/// Pieces in the order they were written, then reversed to be taken from the end.
struct Flat(Vec<Piece>);

impl Sink for Flat {
    fn array(&mut self, len: usize) {
        self.0.push(Piece::Array(len));
    }

    fn integer(&mut self, number: i64) {
        self.0.push(Piece::Leaf(Value::Integer(number)));
    }

    fn map(&mut self, pairs: usize) {
        self.0.push(Piece::Map(pairs));
    }

    fn text(&mut self, bytes: &[u8]) {
        self.0.push(Piece::Leaf(Value::Text(bytes.to_vec())));
    }

    fn null(&mut self) {
        self.0.push(Piece::Leaf(Value::Null));
    }
}

impl Flat {
    fn take(&mut self) -> Value {
        match self.0.pop() {
            Some(Piece::Leaf(value)) => value,
            Some(Piece::Map(pairs)) => Value::Map((0..pairs).map(|_| (self.take(), self.take())).collect()),
            Some(Piece::Array(len)) => Value::Array((0..len).map(|_| self.take()).collect()),
            None => Value::Array(Vec::new()),
        }
    }
}
