//! Who may do what: tokens, sessions of browsers, certificates, and the three roles.
//!
//! # What holds
//! - A role includes those below it: look < operate < govern.
//! - A token is compared by its digest, in the same time whether or not it is known, with every token there is.
//! - A session is a signed text in a cookie; nothing of it is stored. Its key is made of all tokens, so every gateway with the same
//!   configuration knows it, and a changed token ends all sessions.
//! - Without tokens only loopback is let in, with the role govern.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::config::{Config, IdentityConfig};
use crate::identity::Peer;

/// How long a session lasts.
pub const SESSION_MS: u64 = 12 * 3_600_000;
/// The cookie of a session.
pub const COOKIE: &str = "resil_session";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees everything.
    Look,
    /// Calls upstreams, forces circuits, breaks locks, holds dead letters.
    Operate,
    /// Changes policies, redrives dead letters.
    Govern,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Look, Self::Operate, Self::Govern];

    pub fn text(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Operate => "operate",
            Self::Govern => "govern",
        }
    }

    fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.text() == text)
    }
}

/// How a caller showed who it is: what a browser sends by itself needs a CSRF header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Token,
    Cookie,
    Loopback,
    Certificate,
}

/// Somebody who may do something.
#[derive(Debug, Clone)]
pub struct Caller {
    pub role: Role,
    /// The name of the token, or the identity.
    pub name: Option<Arc<str>>,
    pub spiffe_id: Option<Arc<str>>,
    pub shown: Shown,
    /// What `X-Resil-Csrf` must be, where it is needed.
    pub csrf: Option<String>,
}

impl Caller {
    pub fn may(&self, needed: Role) -> bool {
        self.role >= needed
    }
}

struct KnownToken {
    name: Arc<str>,
    role: Role,
    digest: [u8; 32],
}

/// Everybody who may do anything.
pub struct Access {
    tokens: Vec<KnownToken>,
    identities: Vec<IdentityConfig>,
    has_certificates: bool,
    key: [u8; 32],
}

fn digest(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

pub fn is_loopback(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback()),
    }
}

impl Access {
    pub fn new(config: &Config) -> Self {
        let token = |token: &crate::config::TokenConfig| {
            let text = token.token.as_ref().map_or("", |secret| secret.expose());
            KnownToken { name: token.name.as_str().into(), role: token.role, digest: digest(text.as_bytes()) }
        };
        let tokens: Vec<KnownToken> = config.tokens.iter().map(token).collect();
        let mut key = Sha256::new();
        key.update(b"resil-gateway session key");
        for token in &tokens {
            key.update(token.digest);
            key.update(token.role.text());
        }
        if tokens.is_empty() {
            key.update(rand::random::<[u8; 32]>());
        }
        let tls = config.tls.as_ref();
        Self {
            tokens,
            identities: tls.map(|tls| tls.identities.clone()).unwrap_or_default(),
            has_certificates: tls.is_some_and(|tls| tls.client_ca_file.is_some()),
            key: key.finalize().into(),
        }
    }

    pub fn needs_token(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Looks at every token, whatever it finds.
    fn token(&self, given: &str) -> Option<(Role, Arc<str>)> {
        let given = digest(given.as_bytes());
        let mut found = u32::MAX;
        for (at, token) in self.tokens.iter().enumerate() {
            let is_it: Choice = token.digest.ct_eq(&given);
            found.conditional_assign(&u32::try_from(at).unwrap_or(u32::MAX), is_it);
        }
        let token = self.tokens.get(usize::try_from(found).ok()?)?;
        Some((token.role, Arc::clone(&token.name)))
    }

    /// Who is at the other end, by what they brought. `None`: nobody who may do anything.
    pub fn caller(&self, peer: &Peer, headers: &http::HeaderMap, now_ms: u64) -> Option<Caller> {
        let spiffe_id = peer.spiffe_id.clone();
        let named = |role, name, shown, csrf| Caller { role, name, spiffe_id: spiffe_id.clone(), shown, csrf };
        if let Some(header) = headers.get(http::header::AUTHORIZATION) {
            // A caller that shows a token is judged by it alone.
            let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
            let (role, name) = self.token(token.trim()).filter(|_| scheme.eq_ignore_ascii_case("bearer"))?;
            return Some(named(role, Some(name), Shown::Token, None));
        }
        if let Some(cookie) = cookie(headers)
            && let Some((role, name)) = self.read_session(cookie, now_ms)
        {
            return Some(named(role, Some(name), Shown::Cookie, Some(self.csrf(cookie))));
        }
        if self.has_certificates && peer.has_certificate {
            // A certificate says who it is, and so also that it is nobody whom we know.
            let role = self.role_of(peer.spiffe_id.as_deref())?;
            return Some(named(role, peer.spiffe_id.clone(), Shown::Certificate, None));
        }
        if !self.needs_token() && is_loopback(peer.address) {
            return Some(named(Role::Govern, None, Shown::Loopback, Some(self.csrf("loopback"))));
        }
        None
    }

    fn role_of(&self, spiffe_id: Option<&str>) -> Option<Role> {
        if self.identities.is_empty() {
            return Some(Role::Operate);
        }
        let spiffe_id = spiffe_id?;
        let fits = |identity: &&IdentityConfig| match identity.spiffe_id.strip_suffix("/*") {
            Some(start) => spiffe_id.strip_prefix(start).is_some_and(|rest| rest.starts_with('/')),
            None => identity.spiffe_id == spiffe_id,
        };
        self.identities.iter().filter(fits).map(|identity| identity.role).max()
    }

    fn mac(&self, parts: &[&str]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key of any length is a key");
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        mac
    }

    /// The cookie of the one who has this token.
    pub fn begin_session(&self, token: &str, now_ms: u64) -> Option<(String, Role, Arc<str>)> {
        let (role, name) = self.token(token)?;
        let shown = BASE64_URL_SAFE_NO_PAD.encode(name.as_bytes());
        let text = format!("{}.{shown}.{}.{}", role.text(), now_ms + SESSION_MS, crate::random_id());
        let mac = BASE64_URL_SAFE_NO_PAD.encode(self.mac(&["session", &text]).finalize().into_bytes());
        Some((format!("{text}.{mac}"), role, name))
    }

    fn read_session(&self, cookie: &str, now_ms: u64) -> Option<(Role, Arc<str>)> {
        let (text, mac) = cookie.rsplit_once('.')?;
        let mac = BASE64_URL_SAFE_NO_PAD.decode(mac).ok()?;
        self.mac(&["session", text]).verify_slice(&mac).ok()?;
        let mut parts = text.split('.');
        let role = Role::from_text(parts.next()?)?;
        let name = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok()?;
        let until_ms: u64 = parts.next()?.parse().ok()?;
        (now_ms < until_ms).then(|| (role, name.into()))
    }

    pub fn csrf(&self, session: &str) -> String {
        let mac = self.mac(&["csrf", session]).finalize().into_bytes();
        BASE64_URL_SAFE_NO_PAD.encode(&mac[..24])
    }
}

/// Equal, in a time that says nothing about where they differ.
pub fn is_same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

fn cookie(headers: &http::HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(http::header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|value| value.split(';')).find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}
