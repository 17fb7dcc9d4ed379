use super::*;

#[test]
fn a_reply_comes_back_without_its_connections_headers() {
    let headers: [(&[u8], &[u8]); 4] =
        [(b"X-Odd", b"gr\xfcn\n\""), (b"Transfer-Encoding", b"chunked"), (b"RateLimit", b"r=1"), (b"x-odd", b"2")];
    let reply = RecordedResponse::new(422, headers, &b"\n\x00\xff\n"[..]);
    let again = RecordedResponse::read(&reply.to_bytes()).unwrap();
    assert_eq!(again, reply);
    assert_eq!((again.status(), &again.body()[..]), (422, &b"\n\x00\xff\n"[..]));
    let kept = [(b"x-odd".to_vec(), b"gr\xfcn\n\"".to_vec()), (b"x-odd".to_vec(), b"2".to_vec())];
    assert_eq!(again.headers(), kept);
}

#[test]
fn what_is_no_reply_is_not_read_as_one() {
    for bytes in [
        &b""[..],
        b"{}\n",
        br#"{"status":201,"headers":[]}"#,
        b"{\"status\":1,\"headers\":[]}\n",
        b"{\"status\":201,\"headers\":[[\"\",\"\"]]}\n",
        "{\"status\":201,\"headers\":[[\"a\",\"€\"]]}\n".as_bytes(),
    ] {
        assert_eq!(RecordedResponse::read(bytes), None, "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn what_may_be_otherwise_next_time_is_not_final() {
    assert!([200, 201, 303, 400, 404, 409, 422].into_iter().all(is_final));
    assert!(![401, 403, 408, 425, 429, 500, 502, 503, 599].into_iter().any(is_final));
}
