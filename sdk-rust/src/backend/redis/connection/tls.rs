//! TLS by rustls, as redis-rs does it for the connections that are left to it: the roots of the system (`SSL_CERT_FILE` and
//! `SSL_CERT_DIR` are honoured), or none at all for tests.

use std::sync::Arc;

use redis::RedisError;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::trouble::Trouble;
use crate::tls::{Trust, config, roots_of_system};

/// `insecure` trusts any server.
pub(super) async fn encrypted(stream: TcpStream, host: &str, insecure: bool) -> Result<TlsStream<TcpStream>, Trouble> {
    let name =
        ServerName::try_from(host.to_owned()).map_err(|_| Trouble::Gone("no certificate can be for this host"))?;
    let trust = if insecure { Trust::Anybody } else { Trust::SignedForHost(roots_of_system()) };
    let config = config(trust).map_err(|_| Trouble::Gone("TLS is not set up"))?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| RedisError::from(error).into())
}
