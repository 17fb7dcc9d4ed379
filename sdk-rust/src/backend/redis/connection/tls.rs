//! TLS by rustls, as redis-rs does it for the connections that are left to it: the roots of the system (`SSL_CERT_FILE` and
//! `SSL_CERT_DIR` are honoured), or none at all for tests.

use std::sync::Arc;

use redis::RedisError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::trouble::Trouble;

/// `insecure` trusts any server.
pub(super) async fn encrypted(stream: TcpStream, host: &str, insecure: bool) -> Result<TlsStream<TcpStream>, Trouble> {
    let name =
        ServerName::try_from(host.to_owned()).map_err(|_| Trouble::Gone("no certificate can be for this host"))?;
    let config = if insecure {
        let Some(provider) = CryptoProvider::get_default() else { return Err(Trouble::Gone("TLS is not set up")) };
        let verifier = Arc::new(TrustsAnyServer(Arc::clone(provider)));
        ClientConfig::builder().dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
    };
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| RedisError::from(error).into())
}

#[derive(Debug)]
struct TrustsAnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustsAnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
