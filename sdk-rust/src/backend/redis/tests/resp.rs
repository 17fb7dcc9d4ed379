use proptest::prelude::*;

use super::*;
use crate::error::Error;

fn said(bytes: &str) -> Frame {
    let mut rest = bytes.as_bytes();
    let said = read(&mut rest).unwrap_or_else(|unread| panic!("{bytes:?}: {unread:?}"));
    assert!(rest.is_empty(), "{bytes:?} was not read to its end");
    for end in 0..bytes.len() {
        let mut part = &bytes.as_bytes()[..end];
        assert_eq!(read(&mut part), Err(Unread::Incomplete), "{:?}", &bytes[..end]);
        assert_eq!(part.len(), end, "what is not whole is left where it is");
    }
    said
}

fn text(text: &str) -> Value {
    Value::Text(text.as_bytes().to_vec())
}

#[test]
fn a_command_is_written_as_the_server_reads_it() {
    let mut outbox = b"before".to_vec();
    write(&Command::FlightInfo(b"key\r\n\0"), &mut outbox);
    assert_eq!(outbox, b"before*3\r\n$11\r\nRES.SFLIGHT\r\n$4\r\nINFO\r\n$6\r\nkey\r\n\0\r\n");
    outbox.clear();
    write_plain(&["a"; 12], &mut outbox);
    assert_eq!(outbox, format!("*12\r\n{}", "$1\r\na\r\n".repeat(12)).as_bytes());
}

#[test]
fn every_kind_of_value_is_read_only_when_whole() {
    for (bytes, value) in [
        (":0\r\n", Value::Integer(0)),
        (":-9223372036854775808\r\n", Value::Integer(i64::MIN)),
        (":9223372036854775807\r\n", Value::Integer(i64::MAX)),
        ("+OK\r\n", text("OK")),
        ("$3\r\na\r\n\r\n", text("a\r\n")),
        ("$0\r\n\r\n", text("")),
        ("$-1\r\n", Value::Null),
        ("*-1\r\n", Value::Null),
        ("_\r\n", Value::Null),
        ("#t\r\n", Value::Integer(1)),
        (",1.5\r\n", text("1.5")),
        ("=6\r\ntxt:ab\r\n", text("ab")),
        ("*0\r\n", Value::Array(vec![])),
        ("*2\r\n:1\r\n*1\r\n$1\r\na\r\n", Value::Array(vec![Value::Integer(1), Value::Array(vec![text("a")])])),
        ("%1\r\n$2\r\nid\r\n:7\r\n", Value::Map(vec![(text("id"), Value::Integer(7))])),
        ("|1\r\n+ttl\r\n:9\r\n:1\r\n", Value::Integer(1)),
        ("*2\r\n-ERR x\r\n:1\r\n", Value::Array(vec![Value::Null, Value::Integer(1)])),
    ] {
        assert_eq!(said(bytes), Frame::Reply(Ok(value)), "{bytes:?}");
    }
    assert_eq!(
        said(">2\r\n+message\r\n:1\r\n"),
        Frame::Push(vec![Value::Text(b"message".to_vec()), Value::Integer(1)])
    );
}

#[test]
fn an_error_is_known_by_its_code() {
    assert_eq!(said("-READONLY You can't write\r\n"), Frame::Reply(Err(Trouble::Demoted)));
    assert_eq!(said("!10\r\nDEADLOCK x\r\n"), Frame::Reply(Err(Trouble::Deadlock)));
    let refused = Error::InvalidArgument("no such thing".to_owned());
    assert_eq!(said("-ERR no such thing\r\n"), Frame::Reply(Err(Trouble::Refused(refused))));
}

#[test]
fn what_is_not_the_protocol_is_not_read() {
    for bytes in ["x", ":x\r\n", ":\r\n", ":1\rx", "$3\r\nabcd\r\n", "$-2\r\n", "*-2\r\n", ":9223372036854775808\r\n"] {
        assert_eq!(read(&mut bytes.as_bytes()), Err(Unread::Garbled), "{bytes:?}");
    }
    let deep = "*1\r\n".repeat(1_000_000);
    assert_eq!(read(&mut deep.as_bytes()), Err(Unread::Garbled));
    let vast = format!("*{}\r\n", i64::MAX);
    assert_eq!(read(&mut vast.as_bytes()), Err(Unread::Incomplete), "nothing is made before it is there");
}

proptest! {
    #[test]
    fn whatever_arrives_reading_it_never_fails_otherwise(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut rest = &bytes[..];
        while read(&mut rest).is_ok() {}
    }

    #[test]
    fn replies_are_read_one_after_another(numbers in prop::collection::vec(any::<i64>(), 0..20)) {
        let bytes: String = numbers.iter().map(|number| format!("*1\r\n:{number}\r\n")).collect();
        let mut rest = bytes.as_bytes();
        for number in numbers {
            let expected = Value::Array(vec![Value::Integer(number)]);
            prop_assert_eq!(read(&mut rest), Ok(Frame::Reply(Ok(expected))));
        }
        prop_assert!(rest.is_empty());
    }
}
