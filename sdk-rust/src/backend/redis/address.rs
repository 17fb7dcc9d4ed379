//! What a URL says: one server, a cluster, or a service that sentinels know.
//!
//! # The forms
//! - `redis://[user[:password]@]host[:port][/db]`, and `rediss://` over TLS.
//! - `unix:///path[?db=n&user=name&pass=secret]`, also `redis+unix://`.
//! - `redis+cluster://[user[:password]@]host:port,host:port[/db]`, and `rediss+cluster://`.
//! - `redis+sentinel://[user[:password]@]host[:port],host[:port]/service[/db]`, and `rediss+sentinel://`. User and
//!   password are the server's; those of the sentinels are `?sentinel_user=name&sentinel_pass=secret`.
//!
//! Everywhere `?protocol=resp2` asks for the older protocol, for proxies that do not know the newer one. Characters such
//! as `/ # ? @ :` in a password have to be percent-encoded.
//!
//! # TLS
//! Certificates are checked against the roots of the system (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured), by
//! rustls. `#insecure` at the end of the URL checks nothing: for tests.
//!
//! # Secrets
//! A URL that cannot be read is refused with a fixed sentence: no part of it, so neither password nor address, gets into
//! an error. What was read is not printed either.

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::error::Error;

const SENTINEL_PORT: u16 = 26379;

#[derive(Clone)]
pub(super) enum Address {
    Server(ConnectionInfo),
    /// Nodes to begin with; there is at least one.
    Cluster(Vec<ConnectionInfo>),
    Sentinel(Sentinels),
}

#[derive(Clone)]
pub(super) struct Sentinels {
    pub each: Vec<ConnectionInfo>,
    pub service: String,
    /// How to reach a server; its address is what the sentinels say.
    pub server: ConnectionInfo,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Server(_) => "Server",
            Self::Cluster(_) => "Cluster",
            Self::Sentinel(_) => "Sentinel",
        })
    }
}

/// Where it leads to, for the log: hosts and ports, never a user or a password.
impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let each = |infos: &[ConnectionInfo]| infos.iter().map(|info| info.addr().to_string()).collect::<Vec<_>>();
        match self {
            Self::Server(info) => write!(f, "{}", info.addr()),
            Self::Cluster(seeds) => f.write_str(&each(seeds).join(", ")),
            Self::Sentinel(sentinels) => {
                write!(f, "{} of the sentinels {}", sentinels.service, each(&sentinels.each).join(", "))
            }
        }
    }
}

impl Address {
    /// The number of the database; a cluster has one.
    pub fn db(&self) -> i64 {
        match self {
            Self::Server(server) => server.redis_settings().db(),
            Self::Cluster(_) => 0,
            Self::Sentinel(sentinels) => sentinels.server.redis_settings().db(),
        }
    }

    pub fn parse(url: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = url.split_once("://") else { return Err(invalid("it has no scheme")) };
        let (family, is_tls) = match scheme {
            "redis" => ("server", false),
            "rediss" => ("server", true),
            "unix" | "redis+unix" => return unix(url).map(Self::Server),
            "redis+cluster" => ("cluster", false),
            "rediss+cluster" => ("cluster", true),
            "redis+sentinel" => ("sentinel", false),
            "rediss+sentinel" => ("sentinel", true),
            _ => return Err(invalid("its scheme is not known")),
        };
        let parts = UrlParts::of(rest, if is_tls { "rediss" } else { "redis" })?;
        if is_tls {
            install_crypto();
        }
        match family {
            "server" => match parts.hosts.as_slice() {
                [host] => parts.info(host, parts.path).map(Self::Server),
                _ => Err(invalid("it names several hosts; redis+cluster:// and redis+sentinel:// take more than one")),
            },
            "cluster" => {
                parts.hosts.iter().map(|host| parts.info(host, parts.path)).collect::<Result<_, _>>().map(Self::Cluster)
            }
            _ => sentinels(&parts).map(Self::Sentinel),
        }
    }
}

/// The same way in, at another place.
pub(super) fn at(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let address = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    info.clone().set_addr(address)
}

/// `[user[:password]@]host,host[/path][?query][#fragment]`, taken apart but not decoded.
struct UrlParts<'a> {
    scheme: &'static str,
    user: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> UrlParts<'a> {
    fn of(rest: &'a str, scheme: &'static str) -> Result<Self, Error> {
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.iter().any(|host| host.is_empty()) {
            return Err(invalid("a host is missing"));
        }
        match fragment {
            "" => {}
            "insecure" if scheme == "rediss" => {}
            _ => return Err(invalid("only #insecure may follow it, and only with TLS")),
        }
        Ok(Self { scheme, user, hosts, path: path.trim_end_matches('/'), query, fragment })
    }

    /// How to reach `host`, as redis-rs reads a URL.
    fn info(&self, host: &str, db: &str) -> Result<ConnectionInfo, Error> {
        let Self { scheme, user, fragment, .. } = self;
        self.known_options(&["protocol"])?;
        let (at, hash) = (if user.is_empty() { "" } else { "@" }, if fragment.is_empty() { "" } else { "#" });
        tuned(&format!("{scheme}://{user}{at}{host}/{db}?{}{hash}{fragment}", self.query), self.query)
    }

    fn options(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        options(self.query)
    }

    fn known_options(&self, known: &[&str]) -> Result<(), Error> {
        check_options(self.query, known)
    }
}

fn options(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// A misspelt option that is ignored is a surprise for later.
fn check_options(query: &str, known: &[&str]) -> Result<(), Error> {
    if options(query).all(|(name, _)| known.contains(&name)) {
        return Ok(());
    }
    Err(invalid("it has an option that is not known"))
}

fn unix(url: &str) -> Result<ConnectionInfo, Error> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    check_options(query, &["db", "user", "pass", "protocol"])?;
    tuned(url, query)
}

fn tuned(url: &str, query: &str) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info().map_err(|_| {
        invalid("it is not of the form scheme://[user[:password]@]host[:port][/db], special characters percent-encoded")
    })?;
    let mut redis = info.redis_settings().clone().set_lib_name("resil", env!("CARGO_PKG_VERSION"));
    if !options(query).any(|(name, _)| name == "protocol") {
        redis = redis.set_protocol(ProtocolVersion::RESP3);
    }
    // Where redis-rs sends (TLS, clusters), it sends every command alone. So those that are made while others are on their way
    // are held back until these arrived, and go together: a third more calls per second from 64 tasks. A call that is alone is
    // never held back; one among many at most a round trip.
    Ok(info.set_redis_settings(redis).set_tcp_settings(TcpSettings::default().set_nodelay(false)))
}

fn sentinels(parts: &UrlParts<'_>) -> Result<Sentinels, Error> {
    parts.known_options(&["protocol", "sentinel_user", "sentinel_pass"])?;
    let (service, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    if service.is_empty() {
        return Err(invalid("it does not name the service: redis+sentinel://host1,host2/service[/db]"));
    }
    let option = |wanted: &str| parts.options().find(|(name, _)| *name == wanted).map_or("", |(_, value)| value);
    let (name, secret) = (option("sentinel_user"), option("sentinel_pass"));
    let protocol = option("protocol");
    let query = if protocol.is_empty() { String::new() } else { format!("protocol={protocol}") };
    let server = UrlParts { query: &query, hosts: Vec::new(), ..*parts };
    let user = if secret.is_empty() { name.to_owned() } else { format!("{name}:{secret}") };
    let sentinel = UrlParts { user: &user, query: &query, hosts: Vec::new(), ..*parts };
    let each = parts.hosts.iter().map(|host| {
        let info = sentinel.info(host, "")?;
        // A host without a port is at the sentinels' own, not at the servers'.
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        match info.addr() {
            ConnectionAddr::Tcp(name, _) | ConnectionAddr::TcpTls { host: name, .. } if !has_port => {
                Ok(at(&info, name, SENTINEL_PORT))
            }
            _ => Ok(info),
        }
    });
    Ok(Sentinels {
        each: each.collect::<Result<_, Error>>()?,
        service: service.to_owned(),
        server: server.info("sentinels.invalid", db)?,
    })
}

/// rustls asks the process which cryptography to use. A choice made before us stands.
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may be quicker; then it has chosen.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn invalid(reason: &str) -> Error {
    Error::InvalidArgument(format!("the URL cannot be used: {reason}"))
}

/// For a connection that only asks sentinels.
pub(super) fn without_database(redis: &RedisConnectionInfo) -> RedisConnectionInfo {
    redis.clone().set_db(0)
}

#[cfg(test)]
#[path = "tests/address.rs"]
mod tests;
