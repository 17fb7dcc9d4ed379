use super::*;

struct Spiteful;

impl Drop for Spiteful {
    fn drop(&mut self) {
        panic!("not even dropped quietly");
    }
}

#[tokio::test]
async fn a_payload_that_panics_when_dropped_is_one_panic() {
    let never = CancellationToken::new();
    let ended = run(&never, || async { std::panic::panic_any(Spiteful) }).await;
    assert!(matches!(ended, Ended::<()>::Panicked(text) if text == "no text"));
}

#[tokio::test]
async fn a_future_that_panics_when_cancelled_is_a_panic() {
    let cancel = CancellationToken::new();
    let held = Spiteful;
    let running = run(&cancel, || async move {
        let _held = held;
        std::future::pending::<()>().await;
    });
    cancel.cancel();
    assert!(matches!(running.await, Ended::Panicked(text) if text.contains("quietly")));
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let text = panic_text(Box::new("ä".repeat(PANIC_TEXT_MAX)));
    assert_eq!(text, "ä".repeat(PANIC_TEXT_MAX / 2));
    let text = panic_text(Box::new(format!("x{}", "ä".repeat(PANIC_TEXT_MAX))));
    assert_eq!(text.len(), PANIC_TEXT_MAX - 1);
}
