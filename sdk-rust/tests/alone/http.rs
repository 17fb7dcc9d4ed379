//! What HTTP clients get is what the specifications say, and never too little waiting.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use resil::http::{
    IDEMPOTENCY_KEY_BYTES_MAX, IdempotencyKey, Limited, Problem, RETRY_AFTER_MAX, RateLimit, Reset, Shown, fingerprint,
    parse_retry_after, retry_after_seconds,
};
use resil::limiter::{DecidedBy, Limit, Verdict};
use resil::testing::Clock;
use resil::{Code, Error, Leased};
use serde_json::{Value, json};

const GRANTED: RateLimit<'static> = RateLimit {
    policy: "default",
    limit: 100,
    window: Some(Duration::from_secs(10)),
    remaining: 50,
    retry_after: None,
    reset_after: Duration::from_millis(4_001),
};

#[test]
fn a_granted_request_learns_what_is_left_and_until_when() {
    let [policy, state] = GRANTED.ietf();
    assert_eq!(policy, ("ratelimit-policy", r#""default";q=100;w=10"#.to_owned()));
    assert_eq!(state, ("ratelimit", r#""default";r=50;t=5"#.to_owned()));
    assert_eq!(GRANTED.retry_after(), None);
    let names: Vec<_> = GRANTED.headers(Reset::After).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
    );
}

#[test]
fn a_refused_request_has_one_moment_in_both_headers() {
    let refused = RateLimit { remaining: 0, retry_after: Some(Duration::from_millis(1_500)), ..GRANTED };
    assert_eq!(refused.ietf()[1].1, r#""default";r=0;t=2"#);
    assert_eq!(refused.retry_after(), Some(("retry-after", "2".to_owned())));
    assert!(refused.headers(Reset::After).contains(&("retry-after", "2".to_owned())));
}

#[test]
fn the_old_headers_count_seconds_from_now_or_since_1970() {
    assert_eq!(
        GRANTED.legacy(Reset::After),
        [("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "50"), ("x-ratelimit-reset", "5")]
            .map(|(name, value)| (name, value.to_owned()))
    );
    let now = UNIX_EPOCH + Duration::from_millis(1_000_500);
    // 1000.5 + 4.001 = 1004.501, rounded up once, not twice.
    assert_eq!(GRANTED.legacy(Reset::At(now))[2].1, "1005");
}

#[test]
fn what_a_structured_field_cannot_say_is_not_said() {
    let odd = RateLimit { window: Some(Duration::from_millis(500)), limit: u64::MAX, policy: "a\"b\\ü", ..GRANTED };
    assert_eq!(odd.ietf()[0].1, r#""a\"b\\%C3%BC";q=999999999999999"#);
    let none = RateLimit { window: None, ..GRANTED };
    assert_eq!(none.ietf()[0].1, r#""default";q=100"#);
}

/// 6 November 1994, 08:49:37.
const EXAMPLE: u64 = 784_111_777;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn the_three_notations_of_a_date_are_the_same_moment() {
    for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
        assert_eq!(parse_retry_after(text, at(EXAMPLE - 7)), Some(Duration::from_secs(7)), "{text}");
        assert_eq!(parse_retry_after(text, at(EXAMPLE + 7)), Some(Duration::ZERO), "{text} has passed");
    }
    let leap_day = parse_retry_after("Thu, 29 Feb 2024 23:59:59 GMT", at(1_709_251_199 - 5));
    assert_eq!(leap_day, Some(Duration::from_secs(5)));
}

#[test]
fn two_digit_years_are_at_most_fifty_years_ahead() {
    let in_2026 = at(1_790_000_000);
    let near = parse_retry_after("Saturday, 01-Jan-28 00:00:00 GMT", in_2026).unwrap();
    assert_eq!(near, Duration::from_secs(1_830_297_600 - 1_790_000_000), "2028");
    assert_eq!(parse_retry_after("Sunday, 06-Nov-94 08:49:37 GMT", in_2026), Some(Duration::ZERO), "1994");
}

#[test]
fn only_seconds_and_dates_are_waits() {
    for text in [
        "",
        " ",
        "-1",
        "1.5",
        "+5",
        "soon",
        "5 s",
        "٣",
        "Mon, 06 Nov 1994 08:49:37 GMT", // it was a Sunday
        "Sun, 06 Nov 1994 08:49:37",     // no zone
        "Sun, 06 Nov 1994 08:49:37 CET",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:00 GMT",
        "Sun, 06 Nov 1994 8:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Foo 1994 08:49:37 GMT",
        "Sun, 06-Nov 1994 08:49:37 GMT",
        "Sun Nov  6 08:49:37 199x",
        "Sun, ",
        ", GMT",
        "Sun,  GMT",
    ] {
        assert_eq!(parse_retry_after(text, at(0)), None, "{text:?}");
    }
}

#[test]
fn a_wait_that_would_last_for_ever_is_capped() {
    for text in ["99999999999", "99999999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        assert_eq!(parse_retry_after(text, at(0)), Some(RETRY_AFTER_MAX), "{text}");
    }
}

proptest! {
    #[test]
    fn whatever_a_server_sends_is_read_without_harm(text in ".{0,40}", now in 0u64..5_000_000_000) {
        if let Some(wait) = parse_retry_after(&text, at(now)) {
            prop_assert!(wait <= RETRY_AFTER_MAX);
        }
    }

    #[test]
    fn seconds_are_rounded_up_and_never_by_more_than_one(nanos in any::<u64>()) {
        let wait = Duration::from_nanos(nanos);
        let seconds = Duration::from_secs(retry_after_seconds(wait));
        prop_assert!(seconds >= wait && seconds - wait < Duration::from_secs(1));
        prop_assert_eq!(
            parse_retry_after(&retry_after_seconds(wait).to_string(), at(0)),
            Some(seconds.min(RETRY_AFTER_MAX))
        );
    }

    #[test]
    fn no_key_of_one_scope_is_one_of_another(
        (one, other) in (prop::option::of("[ab:%}]{0,4}"), prop::option::of("[ab:%}]{0,4}")),
        (key, name) in ("[ab:%]{1,5}", "[ab:%]{1,5}"),
    ) {
        let (key, name) = (IdempotencyKey::required(Some(key.as_bytes())).unwrap(), IdempotencyKey::required(Some(name.as_bytes())).unwrap());
        let are_same = one == other && key == name;
        prop_assert_eq!(key.scoped(one.as_deref()) == name.scoped(other.as_deref()), are_same);
    }

    #[test]
    fn a_key_is_the_same_in_quotes_and_without(key in "[!#-+\\--\\[\\]-~]{1,255}") {
        let bare = IdempotencyKey::required(Some(key.as_bytes())).unwrap();
        let in_quotes = IdempotencyKey::required(Some(format!("\"{key}\"").as_bytes())).unwrap();
        prop_assert_eq!(bare.as_str(), &key);
        prop_assert_eq!(bare, in_quotes);
    }

    #[test]
    fn requests_that_differ_have_different_fingerprints(
        a in ("[A-Z]{0,3}", "[/a-z]{0,3}", prop::collection::vec(0u8..3, 0..3)),
        b in ("[A-Z]{0,3}", "[/a-z]{0,3}", prop::collection::vec(0u8..3, 0..3)),
    ) {
        let of = |request: &(String, String, Vec<u8>)| fingerprint(&request.0, &request.1, &request.2);
        prop_assert_eq!(of(&a) == of(&b), a == b);
    }
}

#[test]
fn a_fingerprint_does_not_change_from_version_to_version() {
    // sha256 over (0000000000000004 "POST" 0000000000000009 "/payments" 0000000000000002 "{}").
    let known = "982d5df8cac14d8ed59406e836a32e27c4d2217f4343091092fc589607573063";
    assert_eq!(fingerprint("POST", "/payments", b"{}"), known);
    assert_ne!(fingerprint("POST", "/a", b""), fingerprint("POST/", "a", b""));
}

#[test]
fn an_unusable_key_is_a_bad_request_with_reason() {
    let long = "k".repeat(IDEMPOTENCY_KEY_BYTES_MAX + 1);
    let cases: [(Option<&[u8]>, &str); 9] = [
        (None, "required"),
        (Some(b""), "empty"),
        (Some(b"  "), "empty"),
        (Some(b"\"\""), "empty"),
        (Some(long.as_bytes()), "256 bytes"),
        (Some(b"a\x00b"), "printable"),
        (Some("schlüssel".as_bytes()), "printable"),
        (Some(b"\"open"), "closing quote"),
        (Some(b"\"a\"b"), "after its quotes"),
    ];
    for (header, reason) in cases {
        let error = IdempotencyKey::required(header).unwrap_err();
        assert_eq!((error.code(), Problem::of(&error).status), (Code::InvalidArgument, 400));
        assert!(error.to_string().contains(reason), "{error}");
        assert!(Problem::of(&error).body().contains(reason), "the client is notified");
    }
    assert_eq!(IdempotencyKey::optional(None), Ok(None));
    assert!(IdempotencyKey::optional(Some(b"")).is_err(), "a key that is there has to be right");
    let escaped = IdempotencyKey::required(Some(br#""a\"b\\c";version=1"#)).unwrap();
    assert_eq!(escaped.as_str(), r#"a"b\c"#);
}

fn members(problem: &Problem) -> Value {
    serde_json::from_str(&problem.body()).expect("JSON")
}

#[test]
fn outcomes_of_idempotent_work_have_their_statuses() {
    let name: std::sync::Arc<str> = "pay:secret-42".into();
    let busy = Problem::of(&Error::IdempotencyBusy { name: name.clone(), retry_after: None });
    assert_eq!(busy.status, 409);
    assert!(busy.headers.contains(&("retry-after", "1".to_owned())), "in progress always says when to ask again");
    let busy =
        Problem::of(&Error::IdempotencyBusy { name: name.clone(), retry_after: Some(Duration::from_millis(30_000)) });
    assert!(busy.headers.contains(&("retry-after", "1".to_owned())), "not its whole lease: it may be done any moment");
    assert_eq!(members(&busy)["retry_after_ms"], 1_000);
    let mismatch = Problem::of(&Error::IdempotencyMismatch { name });
    assert_eq!(mismatch.status, 422);
    assert_eq!(mismatch.headers, [("content-type", "application/problem+json".to_owned())]);
    assert_eq!(
        members(&mismatch),
        json!({
            "type": "about:blank", "title": "Unprocessable Content", "status": 422,
            "detail": Code::IdempotencyMismatch.meaning(), "code": "IDEMPOTENCY_MISMATCH", "retryable": false,
        })
    );
}

#[test]
fn an_exhausted_limit_is_the_drafts_problem_type() {
    let error = Error::RateLimitExceeded { name: "user:alice".into(), retry_after: Some(Duration::from_secs(3)) };
    let problem = Problem::of(&error).violated_policies(&["daily"]).instance("/requests/7");
    assert_eq!(problem.status, 429);
    let members = members(&problem);
    assert_eq!(members["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(members["violated-policies"], json!(["daily"]));
    assert_eq!(members["instance"], "/requests/7");
}

#[test]
fn no_reply_tells_what_only_the_service_may_know() {
    let secret = "swordfish";
    let name: std::sync::Arc<str> = secret.into();
    let errors = [
        Error::CircuitOpen { name: name.clone(), retry_after: None },
        Error::RateLimitExceeded { name: name.clone(), retry_after: None },
        Error::BulkheadFull { name: name.clone(), retry_after: None },
        Error::LockTimeout { name: name.clone(), waited: Duration::ZERO, retry_after: None },
        Error::LockLost { what: Leased::Lock, name: name.clone(), reason: secret },
        Error::Deadlock { name: name.clone() },
        Error::IdempotencyBusy { name: name.clone(), retry_after: None },
        Error::IdempotencyMismatch { name: name.clone() },
        Error::IdempotencyHeld { name: name.clone(), attempt: 2 },
        Error::LoadFailed { name, message: secret.to_owned() },
        Error::BackendUnavailable(secret),
        Error::PermissionDenied(secret),
        Error::Crashed(secret.to_owned()),
        Error::Internal(secret.to_owned()),
    ];
    for error in errors {
        let problem = Problem::from(&error);
        assert!(!problem.body().contains(secret), "{:?}", error.code());
        assert_eq!(problem.status, error.code().http());
        assert_eq!(members(&problem)["status"], error.code().http());
    }
}

#[tokio::test]
async fn a_limiter_tells_its_first_tiers_rate() {
    let client = resil::connect("memory://").await.unwrap();
    let pro = client.limiter("pro", Limit::per_minute(100).burst(10).and(Limit::per_day(2_000))).unwrap();
    assert_eq!(pro.quota(), (100, Duration::from_secs(60)));
    let exact = client.limiter("exact", Limit::window(7, Duration::from_millis(1_500))).unwrap();
    assert_eq!(exact.quota(), (7, Duration::from_millis(1_500)));
}

#[test]
fn no_key_reaches_the_replies_of_another_scope() {
    let key = |text: &str| IdempotencyKey::required(Some(text.as_bytes())).expect("a key");
    for tenant in [None, Some(""), Some("ann"), Some("%"), Some("ann:k1")] {
        let theirs = key("k1").scoped(tenant);
        for scope in [None, Some(""), Some("ann"), Some("%"), Some("%25"), Some("ann%3Ak1")] {
            for tried in ["k1", "ann:k1", ":k1", "%:k1", &theirs] {
                let is_same = scope == tenant && tried == "k1";
                assert_eq!(key(tried).scoped(scope) == theirs, is_same, "{tried} of {scope:?} and k1 of {tenant:?}");
            }
        }
    }
}

#[tokio::test]
async fn headers_of_several_tiers_name_the_binding_one() {
    let (clock, url) = (Clock::driven(), "memory://");
    let client = resil::ConnectSettings::new(url).clock(clock.clone()).connect().await.unwrap();
    let limit = Limit::per_second(2).burst(4).and(Limit::per_minute(5));
    let api = client.limiter("api", limit).unwrap();
    let mut seen = Vec::new();
    for _ in 0..6 {
        let verdict = api.check("ann").await.unwrap();
        assert_eq!(verdict.each_tier().len(), 2);
        let reported = verdict.each_tier()[verdict.binding];
        assert_eq!(
            (verdict.limit, verdict.capacity, verdict.remaining),
            (reported.limit, reported.capacity, reported.remaining)
        );
        let limited = Limited::of("api", &verdict, Shown::All, Reset::After);
        let value = |name| limited.headers.iter().find(|header| header.0 == name).map(|header| header.1.clone());
        assert_eq!(value("ratelimit-policy").unwrap(), r#""api-1s";q=4;w=2, "api-1m";q=5;w=60"#, "always the same");
        seen.push((value("ratelimit").unwrap(), value("x-ratelimit-limit").unwrap(), value("retry-after")));
        if let Some(refusal) = limited.refusal {
            assert!(refusal.body().contains(r#"["api-1m"]"#), "{}", refusal.body());
        }
        clock.advance(Duration::from_millis(250));
    }
    let of =
        |state: &str, limit: &str, wait: Option<&str>| (state.to_owned(), limit.to_owned(), wait.map(str::to_owned));
    assert_eq!(seen[0], of(r#""api-1s";r=3;t=1"#, "4", None));
    assert_eq!(seen[4].0.split(';').next(), Some(r#""api-1m""#), "{:?}", seen[4]);
    assert_eq!(seen[5], of(r#""api-1m";r=0;t=11"#, "5", Some("11")), "five a minute are used up");
}

const REFUSED: Verdict = Verdict {
    granted: 0,
    limit: 100,
    period: Duration::from_secs(60),
    capacity: 10,
    remaining: 0,
    retry_after: Some(Duration::from_millis(1_100)),
    reset_after: Duration::from_secs(30),
    decided_by: DecidedBy::Server,
    tiers: Vec::new(),
    binding: 0,
};

#[test]
fn a_verdict_becomes_headers_and_a_refusal_a_whole_reply() {
    let limited = |verdict: &Verdict, shown| Limited::of("pro", verdict, shown, Reset::After);
    let names = |limited: &Limited| limited.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>();

    let refused = limited(&REFUSED, Shown::All);
    assert_eq!(refused.headers[0].1, r#""pro";q=10;w=6"#, "a burst of ten fills in six seconds");
    assert_eq!(refused.headers[1].1, r#""pro";r=0;t=2"#);
    let reply = refused.refusal.expect("it was refused");
    assert_eq!(reply.status, 429);
    assert!(reply.headers.contains(&("retry-after", "2".to_owned())));
    let body: Value = serde_json::from_str(&reply.body()).unwrap();
    assert_eq!((&body["code"], &body["violated-policies"]), (&json!("RATE_LIMIT_EXCEEDED"), &json!(["pro"])));

    let granted = Verdict { granted: 1, retry_after: Some(Duration::ZERO), ..REFUSED };
    assert!(limited(&granted, Shown::All).refusal.is_none());
    assert_eq!(names(&limited(&granted, Shown::Ietf)), ["ratelimit-policy", "ratelimit"]);
    assert_eq!(
        names(&limited(&granted, Shown::Legacy)),
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
    );
    assert!(names(&limited(&granted, Shown::Nothing)).is_empty());
    assert_eq!(names(&limited(&REFUSED, Shown::Nothing)), ["retry-after"], "who is refused learns when");

    let never = limited(&Verdict { retry_after: None, ..REFUSED }, Shown::All);
    assert!(!names(&never).contains(&"retry-after"), "it will never be granted");
    assert_eq!(never.refusal.map(|reply| reply.status), Some(429));
    assert_eq!(Shown::named("ietf"), Ok(Shown::Ietf));
    assert_eq!(Shown::named("IETF").map_err(|error| error.code()), Err(Code::InvalidArgument));
}

proptest! {
    #![proptest_config(crate::drive::seed::config())]

    // Property 14: granted or refused, a call has all three headers, and they say what is so.
    #[test]
    fn every_verdict_has_its_three_headers(limit in 1u32..20, calls in 1usize..30, at_s in 0u64..2_000_000_000) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = resil::connect("memory://").await.unwrap();
            let limiter = client.limiter("api", Limit::per_hour(limit)).unwrap();
            for call in 0..calls {
                let verdict = limiter.check("ann").await.unwrap();
                let shown = RateLimit::of("api", &verdict);
                for reset in [Reset::After, Reset::At(at(at_s))] {
                    let [of, left, until] = shown.legacy(reset);
                    prop_assert_eq!(of, ("x-ratelimit-limit", limit.to_string()));
                    let expected = (limit as usize).saturating_sub(call + 1);
                    prop_assert_eq!(left, ("x-ratelimit-remaining", expected.to_string()));
                    let from = if reset == Reset::After { 0 } else { at_s };
                    let seconds: u64 = until.1.parse().expect("a number");
                    prop_assert_eq!(until.0, "x-ratelimit-reset");
                    prop_assert!(seconds > from && seconds <= from + 3_601, "{} after {}", seconds, from);
                }
                let is_refused = call >= limit as usize;
                prop_assert_eq!(shown.retry_after().is_some(), is_refused, "and 429 says when to come back");
            }
            Ok(())
        })?;
    }
}
