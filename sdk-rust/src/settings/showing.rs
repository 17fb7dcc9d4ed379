//! What is shown to another language: any value as plain objects in its dialect.
//!
//! The other direction of [`reading`](super::reading), by the same signs: names of fields and choices are respelled, keys of
//! maps are not, and durations and moments are known by the names they have to serde.

use std::time::Duration;

use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::value::Serializer as Plain;
use serde_json::{Error, Map, Value};

use super::dialect::Dialect;
use super::moment_text::MOMENT;
use crate::policy::span_text::{self, SPAN};

/// Writes values of this dialect.
#[derive(Clone, Copy)]
pub(super) struct Show(pub Dialect);

impl Show {
    fn name(self, name: &str) -> String {
        self.0.spelling.spell(name)
    }

    fn span(self, duration: Duration) -> Value {
        self.0.numbers.shown(duration)
    }
}

pub(super) struct List {
    show: Show,
    items: Vec<Value>,
    /// Of a variant: its name.
    under: Option<&'static str>,
}

pub(super) struct Object {
    show: Show,
    entries: Map<String, Value>,
    /// Of an entry whose value is still to come.
    key: Option<String>,
    under: Option<&'static str>,
}

fn under(show: Show, variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        None => value,
        Some(variant) => Value::Object(Map::from_iter([(show.name(variant), value)])),
    }
}

impl List {
    fn new(show: Show, len: Option<usize>, under: Option<&'static str>) -> Self {
        Self { show, items: Vec::with_capacity(len.unwrap_or(0)), under }
    }

    fn push(&mut self, item: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.items.push(item.serialize(self.show)?);
        Ok(())
    }

    fn done(self) -> Value {
        under(self.show, self.under, Value::Array(self.items))
    }
}

impl Object {
    fn new(show: Show, under: Option<&'static str>) -> Self {
        Self { show, entries: Map::new(), key: None, under }
    }

    fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.entries.insert(self.show.name(name), value.serialize(self.show)?);
        Ok(())
    }

    fn done(self) -> Value {
        under(self.show, self.under, Value::Object(self.entries))
    }
}

macro_rules! plain {
    ($($method:ident($type:ty)),* $(,)?) => {
        $(fn $method(self, value: $type) -> Result<Value, Error> { Plain.$method(value) })*
    };
}

impl Serializer for Show {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = List;
    type SerializeMap = Object;
    type SerializeStruct = Object;
    type SerializeStructVariant = Object;

    plain! {
        serialize_bool(bool), serialize_i8(i8), serialize_i16(i16), serialize_i32(i32), serialize_i64(i64),
        serialize_u8(u8), serialize_u16(u16), serialize_u32(u32), serialize_u64(u64), serialize_f32(f32),
        serialize_f64(f64), serialize_char(char), serialize_str(&str), serialize_bytes(&[u8]),
        serialize_unit_struct(&'static str),
    }

    fn serialize_unit(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_none(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Error> {
        value.serialize(self)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, Error> {
        Ok(Value::String(self.name(variant)))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<Value, Error> {
        let plain = value.serialize(self)?;
        match name {
            SPAN => {
                let span = plain.as_str().and_then(span_text::read).ok_or_else(|| Error::custom("not a duration"))?;
                Ok(self.span(span))
            }
            MOMENT => Ok(self.span(Duration::from_millis(plain.as_u64().unwrap_or(0)))),
            _ => Ok(plain),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Error> {
        Ok(under(self, Some(variant), value.serialize(self)?))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<List, Error> {
        Ok(List::new(self, len, None))
    }

    fn serialize_tuple(self, len: usize) -> Result<List, Error> {
        Ok(List::new(self, Some(len), None))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<List, Error> {
        Ok(List::new(self, Some(len), None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<List, Error> {
        Ok(List::new(self, Some(len), Some(variant)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Object, Error> {
        Ok(Object::new(self, None))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Object, Error> {
        Ok(Object::new(self, None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Object, Error> {
        Ok(Object::new(self, Some(variant)))
    }
}

macro_rules! lists {
    ($($trait:ident::$method:ident),* $(,)?) => {
        $(impl $trait for List {
            type Ok = Value;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Error> {
                self.push(item)
            }

            fn end(self) -> Result<Value, Error> {
                Ok(self.done())
            }
        })*
    };
}

lists! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

macro_rules! objects {
    ($($trait:ident),* $(,)?) => {
        $(impl $trait for Object {
            type Ok = Value;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
                self.field(name, value)
            }

            fn end(self) -> Result<Value, Error> {
                Ok(self.done())
            }
        })*
    };
}

objects! { SerializeStruct, SerializeStructVariant }

impl SerializeMap for Object {
    type Ok = Value;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = match key.serialize(self.show)? {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            _ => return Err(Error::custom("a key must be text")),
        };
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let key = self.key.take().ok_or_else(|| Error::custom("a value without a key"))?;
        self.entries.insert(key, value.serialize(self.show)?);
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.done())
    }
}
