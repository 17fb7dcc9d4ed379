use super::*;

#[test]
fn an_error_keeps_its_code_and_its_time() {
    // Below the most that is said about what another holds: more is never reported.
    let after = Some(Duration::from_millis(300));
    for code in Code::all() {
        let reported = Error::restored(code, "orders", "retry.maxAttempts must be from 1 to 100", after);
        assert_eq!(reported.code(), code);
        let names_it = reported.to_string().contains("orders");
        let keeps_time = reported.retry_after() == after;
        let waits =
            [Code::CircuitOpen, Code::RateLimitExceeded, Code::BulkheadFull, Code::LockTimeout, Code::IdempotencyBusy];
        assert_eq!(keeps_time, waits.contains(&code), "{code:?}");
        assert!(names_it || !waits.contains(&code), "{code:?}");
    }
    let field = Error::restored(Code::InvalidPolicy, "", "retry.maxAttempts must be from 1 to 100", None);
    assert_eq!(field.to_string(), "retry.maxAttempts must be from 1 to 100");
}
