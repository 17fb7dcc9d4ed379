//! Who is at the other end of a connection: an address, and a SPIFFE identity where one is proved.
//!
//! An identity comes from the client's certificate (the one URI among its names), or from the header of a mesh. The header is believed
//! only from the addresses that the configuration trusts: anybody else could write it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::MeshConfig;

/// The longest identity; SPIFFE has 2,048 bytes.
const IDENTITY_MAX: usize = 2_048;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// It has shown a certificate that we trust.
    pub has_certificate: bool,
    pub spiffe_id: Option<Arc<str>>,
}

impl Peer {
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, has_certificate: false, spiffe_id: None }
    }

    pub fn with_certificate(address: SocketAddr, certificate: &[u8]) -> Self {
        Self { address, has_certificate: true, spiffe_id: spiffe_id_of(certificate) }
    }

    /// With the identity that the mesh names, if it is believed. A certificate says more than a header.
    pub fn in_mesh(mut self, mesh: &MeshConfig, headers: &http::HeaderMap) -> Self {
        if self.spiffe_id.is_none()
            && let Some(header) = &mesh.identity_header
            && is_trusted(mesh, self.address.ip())
            && let Some(value) = headers.get(header.as_str()).and_then(|value| value.to_str().ok())
        {
            self.spiffe_id = identity_in(value).map(Into::into);
        }
        self
    }
}

fn is_trusted(mesh: &MeshConfig, address: IpAddr) -> bool {
    if mesh.trusted.is_empty() { address.is_loopback() } else { mesh.trusted.contains(&address.to_canonical()) }
}

/// What a mesh writes: an identity, or fields of which one is `URI=`.
fn identity_in(value: &str) -> Option<&str> {
    // The last element is of the nearest proxy; what came before may have been sent by the client.
    let nearest = value.rsplit(',').next()?.trim();
    let uri = nearest.split(';').find_map(|field| field.trim().strip_prefix("URI="));
    let identity = uri.unwrap_or(nearest).trim_matches('"');
    let is_plain = identity.bytes().all(|byte| byte.is_ascii_graphic());
    (is_plain && !identity.is_empty() && identity.len() <= IDENTITY_MAX && !identity.contains('=')).then_some(identity)
}

/// The SPIFFE id of a certificate. By the standard it has exactly one URI among its names.
fn spiffe_id_of(certificate: &[u8]) -> Option<Arc<str>> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    match (uris.next(), uris.next()) {
        (Some(uri), None) if uri.starts_with("spiffe://") && uri.len() <= IDENTITY_MAX => Some(uri.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_believed_from_trusted_addresses_only() {
        let mesh =
            MeshConfig { identity_header: Some("l5d-client-id".into()), trusted: vec!["10.0.0.1".parse().unwrap()] };
        let mut headers = http::HeaderMap::new();
        headers.insert("l5d-client-id", "spiffe://cluster/ns/shop/sa/cart".parse().unwrap());
        let from = |address: &str| {
            Peer::plain(address.parse().unwrap()).in_mesh(&mesh, &headers).spiffe_id.map(|id| id.to_string())
        };
        assert_eq!(from("10.0.0.1:9").as_deref(), Some("spiffe://cluster/ns/shop/sa/cart"));
        assert_eq!(from("10.0.0.2:9"), None);
        assert_eq!(from("127.0.0.1:9"), None);
    }

    #[test]
    fn the_nearest_proxy_is_believed_and_nothing_before_it() {
        let forwarded = "By=x;URI=spiffe://evil/sa/root,By=spiffe://a/gw;Hash=1;URI=spiffe://a/sa/cart";
        assert_eq!(identity_in(forwarded), Some("spiffe://a/sa/cart"));
        assert_eq!(identity_in("Hash=1;Subject=\"\""), None);
        assert_eq!(
            identity_in("cart.shop.serviceaccount.identity.linkerd.cluster.local"),
            Some("cart.shop.serviceaccount.identity.linkerd.cluster.local")
        );
        assert_eq!(identity_in("line\tbreak"), None);
    }
}
