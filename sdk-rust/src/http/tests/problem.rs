use super::*;

#[test]
fn an_abandoned_call_says_when_and_its_error_nothing() {
    let limited = Error::RateLimitExceeded { name: "api".into(), retry_after: Some(Duration::from_millis(1_500)) };
    let given_up = Failure::<&str>::Exhausted { attempts: 3, last: Box::new(limited.into()) };
    let problem = Problem::of_failure(&given_up).unwrap();
    assert_eq!(problem.status, 503);
    let shown = serde_json::to_value(&problem).unwrap();
    assert_eq!(shown["headers"]["retry-after"], "2");
    assert_eq!((&shown["body"]["code"], &shown["body"]["retry_after_ms"]), (&json!("RETRY_EXHAUSTED"), &json!(1_500)));
    assert_eq!(Problem::of_failure(&Failure::Inner("a secret")), None);
}
