use super::*;

#[test]
fn a_command_is_packed_as_it_is_written() {
    let packed = packed(&Command::FlightInfo(b"key\r\n\0"));
    assert_eq!(packed.get_packed_command(), b"*3\r\n$11\r\nRES.SFLIGHT\r\n$4\r\nINFO\r\n$6\r\nkey\r\n\0\r\n");
}

#[test]
fn fields_are_found_in_both_protocols() {
    let text = |text: &str| Given::BulkString(text.as_bytes().to_vec());
    let new = understood(Given::Map(vec![(text("id"), Given::Int(7)), (text("role"), text("master"))]));
    let old = understood(Given::Array(vec![text("id"), Given::Int(7), text("role"), text("master")]));
    for map in [new, old] {
        assert_eq!(field(&map, "id"), Some(Value::Integer(7)));
        assert_eq!(field(&map, "role"), Some(Value::Text(b"master".to_vec())));
        assert_eq!(field(&map, "mode"), None);
    }
}
