//! The peer of a connection: an address, and a SPIFFE identity where one is proved.
//!
//! An identity comes from the client's certificate (the one URI among its names), or from the header of a mesh. The header is believed
//! only from the addresses that the configuration trusts, and never from a client that has shown a certificate: anybody else could write it.

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

    /// With the identity that the mesh names, if it is believed. With a certificate, only that counts, also if it names nobody.
    pub fn in_mesh(mut self, mesh: &MeshConfig, headers: &http::HeaderMap) -> Self {
        if !self.has_certificate
            && let Some(header) = &mesh.identity_header
            && is_trusted(mesh, self.address.ip())
            // A proxy that adds a line adds the last one; those before it are the client's.
            && let Some(value) = headers.get_all(header.as_str()).iter().next_back().and_then(|value| value.to_str().ok())
        {
            self.spiffe_id = identity_in(value).map(Into::into);
        }
        self
    }
}

fn is_trusted(mesh: &MeshConfig, address: IpAddr) -> bool {
    if mesh.trusted.is_empty() { address.is_loopback() } else { mesh.trusted.contains(&address.to_canonical()) }
}

/// The parts of a text between separators that are not in quotes.
fn parts(text: &str, separator: char) -> Vec<&str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(|letter: char| {
        let was_escaped = is_escaped;
        is_escaped = letter == '\\' && is_quoted && !was_escaped;
        if letter == '"' && !was_escaped {
            is_quoted = !is_quoted;
        }
        letter == separator && !is_quoted
    })
    .collect()
}

/// What a mesh writes: an identity, or fields of which one is `URI=`.
fn identity_in(value: &str) -> Option<&str> {
    // The last element is of the nearest proxy; what came before may have been sent by the client.
    let nearest = parts(value, ',').pop()?.trim();
    let fields = parts(nearest, ';');
    let mut uris = fields.iter().filter_map(|field| {
        let (name, value) = field.trim().split_once('=')?;
        name.eq_ignore_ascii_case("URI").then_some(value)
    });
    let identity = match (uris.next(), uris.next()) {
        (Some(uri), None) => uri,
        (None, _) => nearest,
        // By the standard a certificate has one.
        (Some(_), Some(_)) => return None,
    }
    .trim_matches('"');
    let is_plain = identity.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"=,;".contains(&byte));
    (is_plain && !identity.is_empty() && identity.len() <= IDENTITY_MAX).then_some(identity)
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
        let subject = r#"Hash=1;Subject="CN=x,URI=spiffe://a/sa/root;URI=spiffe://a/sa/root";URI=spiffe://a/sa/cart"#;
        assert_eq!(identity_in(subject), Some("spiffe://a/sa/cart"), "a subject that looks like an identity is none");
        assert_eq!(identity_in(r#"Subject="CN=\"x,URI=spiffe://a/sa/root""#), None);
        assert_eq!(identity_in("URI=spiffe://a/sa/one;URI=spiffe://a/sa/two"), None, "one of two is nobody");
    }

    #[test]
    fn a_header_says_nothing_of_somebody_with_a_certificate() {
        let mesh = MeshConfig { identity_header: Some("l5d-client-id".into()), trusted: Vec::new() };
        let mut headers = http::HeaderMap::new();
        headers.append("l5d-client-id", "spiffe://a/sa/root".parse().unwrap());
        let peer = |has_certificate| Peer { has_certificate, ..Peer::plain("127.0.0.1:9".parse().unwrap()) };
        assert_eq!(peer(true).in_mesh(&mesh, &headers).spiffe_id, None);
        headers.append("l5d-client-id", "spiffe://a/sa/cart".parse().unwrap());
        let named = peer(false).in_mesh(&mesh, &headers).spiffe_id;
        assert_eq!(named.as_deref(), Some("spiffe://a/sa/cart"), "the line that the proxy added is the last");
    }
}
