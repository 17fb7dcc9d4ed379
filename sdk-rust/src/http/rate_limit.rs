//! A verdict of a limiter as headers.
//!
//! `RateLimit-Policy` says what the limit is, and stays the same from response to response; `RateLimit` says what is left of it.
//! Both are structured fields: the name of the policy is a quoted string, integers have at most 15 digits. Seconds are
//! whole there, and rounded up: who waits that long is never early.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Header, retry_after_seconds};
use crate::limiter::Verdict;
use crate::settings::span_text;

/// The largest integer of a structured field.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// What a limiter said about a request.
///
/// ```
/// use std::time::Duration;
/// use resil::http::{RateLimit, Reset};
///
/// let verdict = RateLimit {
///     policy: "api",
///     limit: 100,
///     window: Some(Duration::from_secs(60)),
///     remaining: 0,
///     retry_after: Some(Duration::from_millis(600)),
///     reset_after: Duration::from_secs(60),
/// };
/// assert_eq!(verdict.ietf(), [
///     ("ratelimit-policy", r#""api";q=100;w=60"#.to_string()),
///     ("ratelimit", r#""api";r=0;t=1"#.to_string()),
/// ]);
/// assert_eq!(verdict.retry_after(), Some(("retry-after", "1".to_string())));
/// assert_eq!(verdict.legacy(Reset::After)[2], ("x-ratelimit-reset", "60".to_string()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit<'a> {
    /// What the limit is called, to clients.
    pub policy: &'a str,
    /// How many requests the limit allows in a window. What is left of it is never more.
    pub limit: u64,
    /// The window, if the limit has one.
    pub window: Option<Duration>,
    /// How many requests are left.
    pub remaining: u64,
    /// If the request was refused: how long until it may be granted.
    pub retry_after: Option<Duration>,
    /// How long until everything is left again.
    pub reset_after: Duration,
}

/// What `X-RateLimit-Reset` counts. There is no standard: services do either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// Seconds from now.
    After,
    /// Seconds since 1970; the time now is given.
    At(SystemTime),
}

impl<'a> RateLimit<'a> {
    /// What `verdict` says about the limit that clients know as `policy`; of several tiers, about the one that binds.
    ///
    /// Its quota is what can be had at once (the burst), in the time in which that fills again: ten a second with a burst of 20 is
    /// `q=20;w=2`. Without a burst that is the limit and its period.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use resil::http::{RateLimit, Reset};
    /// use resil::limiter::Limit;
    ///
    /// let client = resil::connect("memory://").await?;
    /// let limiter = client.limiter("api", Limit::per_minute(1))?;
    /// let response = async || Ok::<_, resil::Error>(RateLimit::of("api", &limiter.check("ann").await?).retry_after());
    /// assert_eq!(response().await?, None, "granted: there is nothing to wait for");
    /// assert_eq!(response().await?, Some(("retry-after", "60".to_string())));
    /// # Ok::<(), resil::Error>(()) }).unwrap();
    /// ```
    pub fn of(policy: &'a str, verdict: &Verdict) -> Self {
        Self {
            policy,
            limit: verdict.capacity.into(),
            window: Some(verdict.window()),
            remaining: verdict.remaining.into(),
            retry_after: verdict.retry_after.filter(|_| !verdict.is_granted()),
            reset_after: verdict.reset_after,
        }
    }

    /// The value of `RateLimit-Policy`.
    fn policy(&self) -> String {
        let mut policy = format!("{};q={}", quoted(self.policy), self.limit.min(INTEGER_MAX));
        // The window has whole seconds, and is not said if it would not be true.
        if let Some(window) = self.window.filter(|window| window.subsec_nanos() == 0 && !window.is_zero()) {
            policy.push_str(&format!(";w={}", window.as_secs().min(INTEGER_MAX)));
        }
        policy
    }

    /// `RateLimit-Policy` and `RateLimit`.
    pub fn ietf(&self) -> [Header; 2] {
        let name = quoted(self.policy);
        // Retry-After must not be earlier than the end of the window in which no more than `r` can be used.
        let effective_window = self.retry_after.unwrap_or(self.reset_after);
        let seconds = retry_after_seconds(effective_window).min(INTEGER_MAX);
        let state = format!("{name};r={};t={seconds}", self.remaining.min(INTEGER_MAX));
        [("ratelimit-policy", self.policy()), ("ratelimit", state)]
    }

    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    pub fn legacy(&self, reset: Reset) -> [Header; 3] {
        let reset = match reset {
            Reset::After => retry_after_seconds(self.reset_after),
            Reset::At(now) => {
                retry_after_seconds(now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(self.reset_after))
            }
        };
        [
            ("x-ratelimit-limit", self.limit.to_string()),
            ("x-ratelimit-remaining", self.remaining.to_string()),
            ("x-ratelimit-reset", reset.to_string()),
        ]
    }

    /// `Retry-After`, if the request was refused.
    pub fn retry_after(&self) -> Option<Header> {
        self.retry_after.map(|wait| ("retry-after", retry_after_seconds(wait).to_string()))
    }

    /// All of them.
    pub fn headers(&self, reset: Reset) -> Vec<Header> {
        self.ietf().into_iter().chain(self.legacy(reset)).chain(self.retry_after()).collect()
    }
}

/// What clients know each tier of `verdict` as: `policy` itself if it has one, else `policy` and the tier's period (`api-1m`).
pub(super) fn tier_names(policy: &str, verdict: &Verdict) -> Vec<String> {
    match &verdict.tiers[..] {
        [] => vec![policy.to_owned()],
        tiers => tiers.iter().map(|tier| format!("{policy}-{}", span_text::shown(tier.period))).collect(),
    }
}

/// The value of `RateLimit-Policy` with every tier, which stays the same from response to response.
pub(super) fn all_policies(names: &[String], verdict: &Verdict) -> String {
    let tiers = verdict.each_tier();
    let each = names.iter().zip(&tiers).map(|(name, tier)| {
        let (limit, window) = (tier.capacity.into(), Some(tier.window()));
        RateLimit { policy: name, limit, window, ..RateLimit::of(name, verdict) }.policy()
    });
    each.collect::<Vec<_>>().join(", ")
}

/// A string of a structured field: printable ASCII; everything else is percent-encoded.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("%{byte:02X}")),
        }
    }
    quoted.push('"');
    quoted
}
