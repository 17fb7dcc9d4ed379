//! TLS of our own ports, and the roots by which upstreams are known.

use std::path::Path;
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{ConfigError, TlsConfig};

/// What a port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    fn alpn(self) -> Vec<u8> {
        match self {
            Self::Http1 => b"http/1.1".to_vec(),
            Self::Http2 => b"h2".to_vec(),
        }
    }
}

fn certificates(path: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let wrong = |why: String| ConfigError::new(path, why);
    let read = CertificateDer::pem_file_iter(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let all: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| wrong(format!("is not PEM: {error}")))?;
    if all.is_empty() { Err(wrong("has no certificate".to_owned())) } else { Ok(all) }
}

fn roots(path: &str, file: &Path) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, file)? {
        roots.add(certificate).map_err(|error| ConfigError::new(path, format!("has a bad certificate: {error}")))?;
    }
    Ok(roots)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// For one of our ports.
pub fn server(config: &TlsConfig, protocol: Protocol) -> Result<Arc<ServerConfig>, ConfigError> {
    let chain = certificates("tls.certificateFile", &config.certificate_file)?;
    let key = PrivateKeyDer::from_pem_file(&config.key_file)
        .map_err(|error| ConfigError::new("tls.keyFile", format!("cannot be read: {error}")))?;
    let wrong = |error: rustls::Error| ConfigError::new("tls", format!("is wrong: {error}"));
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(wrong)?;
    let builder = match &config.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let roots = Arc::new(roots("tls.clientCaFile", file)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            // A browser without a certificate may still have a token.
            let is_required = protocol == Protocol::Http2 || config.require_client_on_http;
            let verifier = if is_required { verifier } else { verifier.allow_unauthenticated() };
            let verifier = verifier.build().map_err(|error| ConfigError::new("tls.clientCaFile", error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut server = builder.with_single_cert(chain, key).map_err(wrong)?;
    server.alpn_protocols = vec![protocol.alpn()];
    Ok(Arc::new(server))
}

/// For upstreams and webhooks: the system's roots, or those of a file.
pub fn client(path: &str, ca_file: Option<&Path>) -> Result<ClientConfig, ConfigError> {
    let roots = match ca_file {
        Some(file) => roots(path, file)?,
        None => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        }
    };
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| ConfigError::new(path, error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
