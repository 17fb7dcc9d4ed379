use super::*;

#[test]
fn an_error_comes_back_with_its_code_and_when_to_ask_again() {
    // Below the most that is said about what another holds: more is never told.
    let after = Some(Duration::from_millis(300));
    for code in Code::all() {
        let told = Error::told(code, "orders", "retry.maxAttempts must be from 1 to 100", after);
        assert_eq!(told.code(), code);
        let names_it = told.to_string().contains("orders");
        let keeps_time = told.retry_after() == after;
        let waits =
            [Code::CircuitOpen, Code::RateLimitExceeded, Code::BulkheadFull, Code::LockTimeout, Code::IdempotencyBusy];
        assert_eq!(keeps_time, waits.contains(&code), "{code:?}");
        assert!(names_it || !waits.contains(&code), "{code:?}");
    }
    let field = Error::told(Code::InvalidPolicy, "", "retry.maxAttempts must be from 1 to 100", None);
    assert_eq!(field.to_string(), "retry.maxAttempts must be from 1 to 100");
}
