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

    fn text_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.text(bytes),
            None => self.null(),
        }
    }

    /// An array of a word and numbers: `["GRANTED", 7, 30000, 0]`.
    fn verdict(&mut self, word: &str, numbers: &[i64]) {
        self.array(1 + numbers.len());
        self.text(word.as_bytes());
        for number in numbers {
            self.integer(*number);
        }
    }
}

/// A reply as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Integer(i64),
    Text(Vec<u8>),
    Null,
    Array(Vec<Value>),
    /// Where an older protocol sends an array of keys and values in turn, [`Command::read`] makes a map of it.
    ///
    /// [`Command::read`]: crate::command::Command::read
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
        integers(self.array()?)
    }

    pub fn into_array(self) -> Result<Vec<Self>, Unexpected> {
        match self {
            Self::Array(elements) => Ok(elements),
            _ => Err(Unexpected("an array")),
        }
    }

    pub fn into_text(self) -> Result<Vec<u8>, Unexpected> {
        match self {
            Self::Text(bytes) => Ok(bytes),
            _ => Err(Unexpected("a text")),
        }
    }

    /// Writes it as a server does.
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Integer(number) => sink.integer(*number),
            Self::Text(bytes) => sink.text(bytes),
            Self::Null => sink.null(),
            Self::Array(elements) => {
                sink.array(elements.len());
                elements.iter().for_each(|element| element.write(sink));
            }
            Self::Map(pairs) => {
                sink.map(pairs.len());
                for (key, value) in pairs {
                    key.write(sink);
                    value.write(sink);
                }
            }
        }
    }

    /// A map whose keys are texts. From an older protocol it is an array of keys and values in turn, and so are the
    /// maps inside it, which are known by their names.
    pub fn into_map(self) -> Result<Self, Unexpected> {
        let pairs = match self {
            Self::Map(pairs) => pairs,
            Self::Array(flat) if flat.len().is_multiple_of(2) => {
                let mut pairs = Vec::with_capacity(flat.len() / 2);
                let mut flat = flat.into_iter();
                while let (Some(key), Some(value)) = (flat.next(), flat.next()) {
                    let value = match (&key, value) {
                        (Self::Text(name), value) if name == b"config" => value.into_map()?,
                        (Self::Text(name), value @ Self::Array(_))
                            if [b"redrive".as_slice(), b"refused", b"chaos"].contains(&name.as_slice()) =>
                        {
                            value.into_map()?
                        }
                        (Self::Text(name), Self::Array(rows)) if name == b"holders" || name == b"waiters" => {
                            Self::Array(rows.into_iter().map(Self::into_map).collect::<Result<_, _>>()?)
                        }
                        (_, value) => value,
                    };
                    pairs.push((key, value));
                }
                pairs
            }
            _ => return Err(Unexpected("a map")),
        };
        if pairs.iter().all(|(key, _)| matches!(key, Self::Text(_))) {
            Ok(Self::Map(pairs))
        } else {
            Err(Unexpected("a map of texts"))
        }
    }

    /// The elements of an array, to be taken one by one.
    pub fn into_fields(self) -> Result<Fields, Unexpected> {
        self.into_array().map(|elements| Fields(elements.into_iter()))
    }
}

/// Exactly `N` integers.
pub(crate) fn integers<const N: usize>(elements: &[Value]) -> Result<[i64; N], Unexpected> {
    let elements: &[Value; N] = elements.try_into().map_err(|_| Unexpected("another number of elements"))?;
    let mut numbers = [0; N];
    for (number, element) in numbers.iter_mut().zip(elements) {
        *number = element.integer()?;
    }
    Ok(numbers)
}

/// The elements of an array in order: each is what it is asked for, and none may be left over.
#[derive(Debug)]
pub struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    #[allow(clippy::should_implement_trait)] // a missing element is an error here, not an end
    pub fn next(&mut self) -> Result<Value, Unexpected> {
        self.0.next().ok_or(Unexpected("another element"))
    }

    pub fn integer(&mut self) -> Result<i64, Unexpected> {
        self.next()?.integer()
    }

    /// An integer within what `T` can be.
    pub fn number<T: TryFrom<i64>>(&mut self) -> Result<T, Unexpected> {
        T::try_from(self.integer()?).map_err(|_| Unexpected("a number within its bounds"))
    }

    /// 1 or 0.
    pub fn flag(&mut self) -> Result<bool, Unexpected> {
        match self.integer()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Unexpected("1 or 0")),
        }
    }

    pub fn text(&mut self) -> Result<Vec<u8>, Unexpected> {
        self.next()?.into_text()
    }

    pub fn text_or_null(&mut self) -> Result<Option<Vec<u8>>, Unexpected> {
        match self.next()? {
            Value::Null => Ok(None),
            value => value.into_text().map(Some),
        }
    }

    /// One of the words that `from_text` knows: a state, a reason.
    pub fn word<T>(&mut self, from_text: fn(&[u8]) -> Option<T>, what: &'static str) -> Result<T, Unexpected> {
        from_text(&self.text()?).ok_or(Unexpected(what))
    }

    /// `read`, if nothing is left.
    pub fn finish<T>(self, read: T) -> Result<T, Unexpected> {
        if self.0.as_slice().is_empty() { Ok(read) } else { Err(Unexpected("no further element")) }
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
