//! TLS to Postgres, asked for as libpq has it: by `sslmode` and `sslrootcert` of the URL.
//!
//! | `sslmode` | TLS | the certificate |
//! | --- | --- | --- |
//! | `disable` | never | |
//! | `prefer`, the default | if the server has it | is not checked |
//! | `require` | always | is signed by `sslrootcert`, if that is given |
//! | `verify-ca` | always | is signed by `sslrootcert`, or by a root of the system |
//! | `verify-full` | always | the same, and is for this host |

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::tls::{Trust, config, roots_of_system};

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

const MODES: &str = "sslmode must be disable, prefer, require, verify-ca or verify-full";

/// How a server is reached: what tokio-postgres reads of the URL, and what it does not.
pub(super) struct PostgresWay {
    pub config: Config,
    pub tls: MakeTls,
}

impl PostgresWay {
    /// Of a URL, or of words such as `host=... user=...`.
    pub fn parse(url: &str) -> Result<Self, tokio_postgres::Error> {
        let (plain, [mode, root]) = without(url, ["sslmode", "sslrootcert"]);
        let mut config: Config = plain.parse()?;
        let checks = match (mode.as_deref(), root) {
            (Some("disable"), _) => TlsChecks::Nothing,
            (None | Some("prefer"), _) => TlsChecks::Nothing,
            (Some("require"), None) => TlsChecks::Nothing,
            (Some("require" | "verify-ca"), root) => TlsChecks::Signed(root),
            (Some("verify-full"), root) => TlsChecks::SignedForHost(root),
            (Some(_), _) => TlsChecks::Refuse,
        };
        config.ssl_mode(match mode.as_deref() {
            Some("disable") => SslMode::Disable,
            None | Some("prefer") => SslMode::Prefer,
            _ => SslMode::Require,
        });
        Ok(Self { config, tls: MakeTls(checks) })
    }

    /// For the log: hosts and ports, never a user or a password.
    pub fn address(url: &str) -> String {
        let Ok(Self { config, .. }) = Self::parse(url) else { return "an unreadable URL".to_owned() };
        let (hosts, ports) = (config.get_hosts(), config.get_ports());
        let each = hosts.iter().enumerate().map(|(at, host)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5_432);
            match host {
                Host::Tcp(host) => format!("{host}:{port}"),
                #[cfg(unix)]
                Host::Unix(folder) => format!("{}:{port}", folder.display()),
            }
        });
        each.collect::<Vec<_>>().join(", ")
    }

    /// Whether it can be read at all.
    pub fn is_valid(url: &str) -> bool {
        Self::parse(url).is_ok_and(|way| !matches!(way.tls.0, TlsChecks::Refuse))
    }
}

/// The text without these options, and their values.
fn without<const N: usize>(url: &str, names: [&str; N]) -> (String, [Option<String>; N]) {
    let mut found = std::array::from_fn(|_| None);
    let mut is_other = |option: &&str, decode: fn(&str) -> String| {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match names.iter().position(|wanted| *wanted == name.trim()) {
            Some(at) => {
                found[at] = Some(decode(value));
                false
            }
            None => true,
        }
    };
    let plain = if url.contains("://") {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let decode = |value: &str| {
            let pair = format!("v={value}");
            let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
            pairs.next().map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        let left: Vec<&str> =
            query.split('&').filter(|option| !option.is_empty() && is_other(option, decode)).collect();
        if left.is_empty() { place.to_owned() } else { format!("{place}?{}", left.join("&")) }
    } else {
        let decode = |value: &str| value.trim_matches('\'').to_owned();
        url.split_whitespace().filter(|option| is_other(option, decode)).collect::<Vec<_>>().join(" ")
    };
    (plain, found)
}

/// What is looked at of a certificate.
#[derive(Debug, Clone)]
enum TlsChecks {
    Nothing,
    /// By the roots of this file, or of the system.
    Signed(Option<String>),
    SignedForHost(Option<String>),
    /// The mode is not known.
    Refuse,
}

impl TlsChecks {
    fn config(&self) -> Result<ClientConfig, BoxedError> {
        let trust = match self {
            Self::Nothing => Trust::Anybody,
            Self::Signed(root) => Trust::Signed(roots(root.as_deref())?),
            Self::SignedForHost(root) => Trust::SignedForHost(roots(root.as_deref())?),
            Self::Refuse => return Err(MODES.into()),
        };
        let mut config = config(trust)?;
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(config)
    }
}

fn roots(file: Option<&str>) -> Result<RootCertStore, BoxedError> {
    let Some(file) = file.filter(|file| *file != "system") else { return Ok(roots_of_system()) };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(Path::new(file));
    for certificate in certificates.map_err(|_| "sslrootcert cannot be read")? {
        roots.add(certificate.map_err(|_| "sslrootcert is not made of certificates in PEM")?)?;
    }
    if roots.is_empty() {
        return Err("sslrootcert has no certificate in it".into());
    }
    Ok(roots)
}

/// Makes the TLS of each connection.
#[derive(Debug, Clone)]
pub(super) struct MakeTls(TlsChecks);

impl<S> MakeTlsConnect<S> for MakeTls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = PostgresTls<S>;
    type TlsConnect = ConnectTls;
    type Error = BoxedError;

    fn make_tls_connect(&mut self, host: &str) -> Result<ConnectTls, BoxedError> {
        // A server without a name is reached over a socket of the system, where there is no TLS.
        let name = ServerName::try_from(host.to_owned()).or_else(|_| ServerName::try_from("localhost"))?.to_owned();
        Ok(ConnectTls { checks: self.0.clone(), name })
    }
}

#[derive(Debug)]
pub(super) struct ConnectTls {
    checks: TlsChecks,
    name: ServerName<'static>,
}

impl<S> TlsConnect<S> for ConnectTls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = PostgresTls<S>;
    type Error = BoxedError;
    type Future = Pin<Box<dyn Future<Output = Result<PostgresTls<S>, BoxedError>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connector = TlsConnector::from(Arc::new(self.checks.config()?));
            Ok(PostgresTls(connector.connect(self.name, stream).await?))
        })
    }
}

/// What is sent over TLS.
#[derive(Debug)]
pub(super) struct PostgresTls<S>(TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for PostgresTls<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for PostgresTls<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PostgresTls<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::{PostgresWay, without};

    #[test]
    fn what_tokio_postgres_does_not_know_is_taken_out() {
        let (plain, found) = without(
            "postgres://a:b@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fetc%2Froot.pem",
            ["sslmode", "sslrootcert"],
        );
        assert_eq!(plain, "postgres://a:b@h/d?connect_timeout=3");
        assert_eq!(found, [Some("verify-full".to_owned()), Some("/etc/root.pem".to_owned())]);
        let (plain, found) = without("host=h user=a sslmode='require'", ["sslmode", "sslrootcert"]);
        assert_eq!((plain.as_str(), found), ("host=h user=a", [Some("require".to_owned()), None]));
    }

    #[test]
    fn modes_are_those_of_libpq() {
        for mode in ["disable", "prefer", "require", "verify-ca", "verify-full"] {
            assert!(PostgresWay::is_valid(&format!("postgres://a@h/d?sslmode={mode}")), "{mode}");
        }
        assert!(PostgresWay::is_valid("postgres://a@h/d"));
        assert!(!PostgresWay::is_valid("postgres://a@h/d?sslmode=maybe"));
        assert!(!PostgresWay::is_valid("postgres://a@h/d?ssl=on"));
    }
}
