//! A row is a map of named fields, written and read field by field.

use super::OverviewKind;
use crate::reply::{Sink, Unexpected, Value};

/// What a row says under one of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowField<'a> {
    Number(i64),
    Text(&'a [u8]),
    /// Not known.
    Nothing,
}

/// A field of a row.
pub(super) trait Field: Sized {
    fn field(&self) -> RowField<'_>;
    fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self.field() {
            RowField::Number(number) => sink.integer(number),
            RowField::Text(text) => sink.text(text),
            RowField::Nothing => sink.null(),
        }
    }
    fn read(value: Value) -> Result<Self, Unexpected>;
}

impl Field for i64 {
    fn field(&self) -> RowField<'_> {
        RowField::Number(*self)
    }

    fn read(value: Value) -> Result<Self, Unexpected> {
        value.integer()
    }
}

impl Field for Vec<u8> {
    fn field(&self) -> RowField<'_> {
        RowField::Text(self)
    }

    fn read(value: Value) -> Result<Self, Unexpected> {
        value.into_text()
    }
}

impl<T: Field> Field for Option<T> {
    fn field(&self) -> RowField<'_> {
        self.as_ref().map_or(RowField::Nothing, T::field)
    }

    fn read(value: Value) -> Result<Self, Unexpected> {
        match value {
            Value::Null => Ok(None),
            value => T::read(value).map(Some),
        }
    }
}

/// A word of a small set, which a row does not copy.
impl Field for &'static str {
    fn field(&self) -> RowField<'_> {
        RowField::Text(self.as_bytes())
    }

    fn read(value: Value) -> Result<Self, Unexpected> {
        const MODES: [&str; 3] = ["exclusive", "shared", "limit"];
        let states = OverviewKind::ALL.into_iter().flat_map(OverviewKind::states);
        let mut all = states.chain(OverviewKind::ALL.map(OverviewKind::text)).chain(OTHER_KINDS).chain(MODES);
        let text = value.into_text()?;
        all.find(|word| word.as_bytes() == text).ok_or(Unexpected("a word of a row"))
    }
}

/// What can be refused, and is not listed.
const OTHER_KINDS: [&str; 1] = ["limit"];

/// The fields of a map, to be taken by name.
pub(super) struct RowFields(Vec<(Value, Value)>);

impl RowFields {
    pub(super) fn of(value: Value) -> Result<Self, Unexpected> {
        match value.into_map()? {
            Value::Map(pairs) => Ok(Self(pairs)),
            _ => Err(Unexpected("a map")),
        }
    }

    pub(super) fn take<T: Field>(&mut self, name: &str) -> Result<T, Unexpected> {
        let found = self.0.iter().position(|(key, _)| matches!(key, Value::Text(key) if key == name.as_bytes()));
        let place = found.ok_or(Unexpected("a field of the row"))?;
        T::read(self.0.swap_remove(place).1)
    }
}

macro_rules! row {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
                const FIELDS: usize = [$(stringify!($field)),*].len();
                sink.map(FIELDS);
                $({
                    sink.text(stringify!($field).as_bytes());
                    self.$field.write(sink);
                })*
            }

            /// What it says, in the order of the reply.
            pub fn fields(&self) -> Vec<(&'static str, RowField<'_>)> {
                vec![$((stringify!($field), self.$field.field()),)*]
            }

            pub(super) fn read(value: Value) -> Result<Self, Unexpected> {
                let mut fields = RowFields::of(value)?;
                Ok(Self { $($field: fields.take(stringify!($field))?,)* })
            }
        }
    };
}

pub(super) use row;
