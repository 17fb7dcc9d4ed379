//! Deadlines, attempts that hang, and hedges.

use super::*;

#[tokio::test]
async fn a_deadline_reaches_the_server_and_counts_as_failure() {
    let resil = resil::connect("memory://").await.expect("memory");
    let breaker = resil.breaker("c", BreakerSettings::new().consecutive_failures(1)).expect("valid");
    let reported = Arc::new(Mutex::new(None));
    let seen_timeout = Arc::clone(&reported);
    let shop = Shop::new(move |seen| {
        *seen_timeout.lock() = seen.header("grpc-timeout").map(str::to_owned);
        std::future::pending()
    });
    let config = retrying(5, r#", "timeout": "0.1s""#);
    let layer = layer().service_config(config).breaker(breaker).build().expect("valid");
    let client = ShopClient::new(shop.start().await, &layer);
    let began = std::time::Instant::now();
    let got = bounded(client.get("x")).await.expect_err("hangs");
    assert_eq!(got.code(), Code::DeadlineExceeded, "{got:?}");
    assert!(began.elapsed() >= 95 * MS, "not before: {:?}", began.elapsed());
    let reported = reported.lock().clone().expect("the server was notified");
    let micros = reported.strip_suffix('u').or(reported.strip_suffix('n')).expect("a fine unit").parse::<u32>();
    assert!(micros.is_ok(), "{reported}");
    let got = bounded(client.get("x")).await.expect_err("open");
    assert_eq!(said(&got, "resil-code"), Some("CIRCUIT_OPEN"));
    assert_eq!(shop.calls(), 1);
}

#[tokio::test]
async fn the_shorter_of_the_callers_and_the_configs_deadline_holds() {
    let shop = Shop::new(|_seen| std::future::pending());
    let layer = layer().service_config(retrying(2, r#", "timeout": "60s""#)).build().expect("valid");
    let client = ShopClient::new(shop.start().await, &layer);
    let mut request = Request::new(item("x"));
    request.set_timeout(30 * MS);
    assert_eq!(bounded(client.get_with(request)).await.expect_err("hangs").code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn the_deadline_still_holds_while_the_reply_comes_in() {
    let shop = Shop::listing(|| stream::iter([Ok(item("first"))]).chain(stream::pending()));
    let layer = layer().service_config(retrying(2, r#", "timeout": "0.1s""#)).build().expect("valid");
    let client = ShopClient::new(shop.start().await, &layer);
    let items = bounded(client.list()).await.expect("the response begins");
    assert_eq!(items[0].as_ref().expect("came in time"), &item("first"));
    // However often tonic repeats it.
    let codes: Vec<_> = items[1..].iter().map(|item| item.as_ref().map_err(Status::code)).collect();
    assert!(!codes.is_empty() && codes.iter().all(|code| *code == Err(Code::DeadlineExceeded)), "{codes:?}");
}

#[tokio::test]
async fn an_attempt_that_hangs_is_dropped_and_made_again() {
    let shop = Shop::new(async |seen| match seen.number {
        1 => std::future::pending().await,
        _ => Ok(Response::new(item("second"))),
    });
    let settings = RetrySettings { initial_backoff: MS, ..RetrySettings::default() };
    let timeouts = TimeoutSettings { attempt: Some(50 * MS), total: None };
    let layer = layer().retry(&settings, RetryStatuses::default()).timeouts(timeouts).build().expect("valid");
    let client = ShopClient::new(shop.start().await, &layer);
    assert_eq!(bounded(client.get("x")).await.expect("the second").into_inner(), item("second"));
    assert_eq!(shop.calls(), 2);
}

/// Says that it was dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[tokio::test]
async fn a_hedge_overtakes_a_slow_reply_and_cancels_it() {
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancelled);
    let shop = Shop::new(move |seen| {
        let loser = (seen.number == 1).then(|| Dropped(Arc::clone(&flag)));
        async move {
            if loser.is_some() {
                std::future::pending::<()>().await;
            }
            Ok(Response::new(item(seen.header("grpc-previous-rpc-attempts").unwrap_or("none"))))
        }
    });
    let config = r#"{ "methodConfig": [{ "name": [{}], "hedgingPolicy": {
        "maxAttempts": 2, "hedgingDelay": "3s", "nonFatalStatusCodes": ["UNAVAILABLE"] } }] }"#;
    let clock = Clock::driven();
    let config = ServiceConfig::parse(config).expect("valid");
    let layer = layer().service_config(config).clock(clock.clone()).build().expect("valid");
    let client = ShopClient::new(shop.start().await, &layer);
    let call = tokio::spawn(async move { client.get("x").await });
    eventually(|| shop.calls() == 1 && clock.next_wake().is_some()).await;
    clock.advance(Duration::from_secs(3));
    assert_eq!(bounded(call).await.expect("no panic").expect("the hedge").into_inner(), item("1"));
    eventually(|| cancelled.load(SeqCst)).await;
    assert_eq!(shop.calls(), 2);
}
