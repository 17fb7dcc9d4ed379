//! What a limiter's verdict does to a response: headers on each, and the whole response for a refused caller.
//!
//! This is what a middleware needs, whatever its HTTP library and language: check, ask [`Limited::of`], add the headers, and
//! response with the refusal if there is one.

use super::rate_limit::{all_policies, tier_names};
use super::{Header, Problem, RateLimit, Reset};
use crate::error::Error;
use crate::limiter::Verdict;

/// Which headers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shown {
    /// `RateLimit`, `RateLimit-Policy` and `X-RateLimit-*`.
    #[default]
    All,
    /// `RateLimit` and `RateLimit-Policy`.
    Ietf,
    /// `X-RateLimit-*`.
    Legacy,
    /// None but the `Retry-After` of a refusal.
    Nothing,
}

impl Shown {
    /// By its name: `all`, `ietf`, `legacy`, `none`.
    pub fn named(name: &str) -> Result<Self, Error> {
        match name {
            "all" => Ok(Self::All),
            "ietf" => Ok(Self::Ietf),
            "legacy" => Ok(Self::Legacy),
            "none" => Ok(Self::Nothing),
            _ => Err(Error::InvalidArgument(format!("headers must be all, ietf, legacy or none, got {name:?}"))),
        }
    }
}

/// What to add to a response, and what to send instead.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Limited {
    /// For the response, however it is made.
    pub headers: Vec<Header>,
    /// The response, if the request was refused: 429.
    pub refusal: Option<Problem>,
}

impl Limited {
    /// `policy` is what clients know the limit as. A limit with several tiers is several policies to clients, each with its period behind its
    /// name: `RateLimit-Policy` names them all (`"api-1s";q=10;w=1, "api-1h";q=1000;w=3600`), and everything else is about the one that
    /// binds.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use resil::http::{Limited, Reset, Shown};
    /// use resil::limiter::Limit;
    ///
    /// let client = resil::connect("memory://").await?;
    /// let limiter = client.limiter("free", Limit::per_minute(1))?;
    /// let ask = async || -> Result<_, resil::Error> {
    ///     Ok(Limited::of("free", &limiter.check("ann").await?, Shown::All, Reset::After))
    /// };
    /// let first = ask().await?;
    /// assert!(first.refusal.is_none());
    /// assert_eq!(first.headers[0], ("ratelimit-policy", r#""free";q=1;w=60"#.to_string()));
    /// let second = ask().await?.refusal.expect("one a minute");
    /// assert_eq!(second.status, 429);
    /// assert!(second.headers.contains(&("retry-after", "60".to_string())));
    /// # Ok::<(), resil::Error>(()) }).unwrap();
    /// ```
    pub fn of(policy: &str, verdict: &Verdict, shown: Shown, reset: Reset) -> Self {
        let names = tier_names(policy, verdict);
        let binding = names.get(verdict.binding).map_or(policy, String::as_str);
        let rate_limit = RateLimit::of(binding, verdict);
        let ietf = || {
            let [_, state] = rate_limit.ietf();
            [("ratelimit-policy", all_policies(&names, verdict)), state]
        };
        let mut headers = match shown {
            Shown::All => ietf().into_iter().chain(rate_limit.legacy(reset)).collect(),
            Shown::Ietf => ietf().to_vec(),
            Shown::Legacy => rate_limit.legacy(reset).to_vec(),
            Shown::Nothing => Vec::new(),
        };
        headers.extend(rate_limit.retry_after());
        let refusal = (!verdict.is_granted()).then(|| {
            let error = Error::RateLimitExceeded { name: policy.into(), retry_after: verdict.retry_after };
            let refusal = Problem::of(&error).violated_policies(&[binding]);
            if verdict.retry_after.is_some() { refusal } else { refusal.never_granted() }
        });
        Self { headers, refusal }
    }
}
