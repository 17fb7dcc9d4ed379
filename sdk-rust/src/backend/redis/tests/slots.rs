use super::*;

#[test]
fn slots_are_those_of_the_server() {
    // CLUSTER KEYSLOT says so.
    for (key, slot) in [("", 0), ("123456789", 12739), ("foo", 12182), ("{user1000}.following", 3443)] {
        assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
    }
    assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"{user1000}.followers"));
    assert_eq!(slot_of(b"foo{}{bar}"), 8363, "an empty tag is no tag");
}

#[test]
fn what_a_node_says_later_counts() {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
    let range = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
    let reply = Value::Array(vec![range(0, 8000, node(text("a"), 1)), range(8001, 16383, node(Value::Nil, 2))]);
    let slots = Slots::default();
    *slots.0.lock() = SlotMap { ranges: parse(reply), moved: HashMap::new() };
    assert_eq!(slots.known(8000).as_deref(), Some("a:1"));
    assert_eq!(slots.known(8001).as_deref(), Some(":2"));
    slots.learn(8000, "b:3".to_owned());
    assert_eq!(slots.known(8000).as_deref(), Some("b:3"));
    assert_eq!(slots.known(7999).as_deref(), Some("a:1"));
    slots.forget();
    assert_eq!(slots.known(7999), None);
}
