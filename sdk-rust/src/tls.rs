//! TLS by rustls: which servers are trusted.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Whose certificates are taken.
#[derive(Debug)]
pub(crate) enum Trust {
    /// Anybody's: what is sent is hidden from listeners, and from nobody in between.
    Anybody,
    /// One that such a root has signed, for any host.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only Postgres has it"))]
    Signed(RootCertStore),
    /// The same, for the host that is asked for.
    SignedForHost(RootCertStore),
}

/// The roots of the system; `SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured.
pub(crate) fn roots_of_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// The provider that the process has chosen, or else ours.
fn provider() -> Arc<CryptoProvider> {
    match CryptoProvider::get_default() {
        Some(chosen) => Arc::clone(chosen),
        None => Arc::new(rustls::crypto::ring::default_provider()),
    }
}

/// How such a client speaks.
pub(crate) fn config(trust: Trust) -> Result<ClientConfig, Error> {
    let provider = provider();
    let building = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let signed = match trust {
        Trust::SignedForHost(roots) => return Ok(building.with_root_certificates(roots).with_no_client_auth()),
        Trust::Signed(roots) => {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build();
            Some(verifier.map_err(|error| Error::General(error.to_string()))?)
        }
        Trust::Anybody => None,
    };
    let verifier = Arc::new(TrustsAnyHost { provider, signed });
    Ok(building.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

#[derive(Debug)]
struct TrustsAnyHost {
    provider: Arc<CryptoProvider>,
    /// Who must have signed. `None`: nobody.
    signed: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for TrustsAnyHost {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(signed) = &self.signed else { return Ok(ServerCertVerified::assertion()) };
        match signed.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match &self.signed {
            Some(signed) => signed.verify_tls12_signature(message, certificate, signature),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match &self.signed {
            Some(signed) => signed.verify_tls13_signature(message, certificate, signature),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
