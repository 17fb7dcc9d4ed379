use super::*;

#[test]
fn what_python_wrote_before_is_still_read() {
    let read = RecordedError::read(br#"{"error":"ValueError","message":"no"}"#);
    assert_eq!(read, Some(RecordedError::new("ValueError", "no")));
    assert_eq!(RecordedError::read(b"[]"), None);
}
