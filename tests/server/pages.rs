//! The pages of `RES.LIST`, read.

use std::collections::BTreeMap;

use redis::{Connection, Value};

use crate::driven::say;

pub fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        Value::Nil => "nil".to_owned(),
        other => panic!("not a text: {other:?}"),
    }
}

pub fn array(value: Value) -> Vec<Value> {
    if let Value::Array(elements) = value { elements } else { panic!("not an array: {value:?}") }
}

pub fn page(connection: &mut Connection, line: &str) -> (String, Vec<BTreeMap<String, String>>) {
    let mut reply = array(say(connection, line)).into_iter();
    let cursor = text(&reply.next().expect("a cursor"));
    let row = |row: Value| array(row).chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
    (cursor, array(reply.next().expect("rows")).into_iter().map(row).collect())
}

/// The rows of all pages: a server that is short of time ends a page early.
pub fn rows(connection: &mut Connection, line: &str) -> Vec<BTreeMap<String, String>> {
    let (mut cursor, mut all) = ("0".to_owned(), Vec::new());
    loop {
        let (next, rows) = page(connection, &format!("{line} CURSOR {cursor}"));
        all.extend(rows);
        cursor = next;
        if cursor == "0" {
            return all;
        }
    }
}
