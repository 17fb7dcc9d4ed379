use super::*;

#[test]
fn a_trace_id_is_read_from_a_traceparent_only() {
    let id = "0af7651916cd43dd8448eb211c80319c";
    assert_eq!(trace_id(&format!("00-{id}-b7ad6b7169203331-01")), Some(id));
    for text in ["", "00", "00-", &format!("ff-{id}-b7-01"), &format!("00-{}-b7-01", "0".repeat(32)), id] {
        assert_eq!(trace_id(text), None, "{text}");
    }
}
