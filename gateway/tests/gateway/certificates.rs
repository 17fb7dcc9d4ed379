//! Certificates of clients: which are let in, and who they are.

use http::header::HeaderValue;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use resil_gateway::proto::resil::v1 as proto;
use resil_gateway::proto::resil::v1::resilience_service_client::ResilienceServiceClient;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::scene::Scene;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

/// A certificate and its key.
fn issue(authority: &Issuer, identities: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let uri = |id: &&str| SanType::URI((*id).try_into().expect("ASCII"));
    params.subject_alt_names.extend(identities.iter().map(uri));
    change(&mut params);
    (params.signed_by(&key, authority).expect("signed").pem(), key.serialize_pem())
}

/// A gateway with mTLS, and how to be a client of it.
struct Guarded {
    scene: Scene,
    authority: Issuer,
    _folder: tempfile::TempDir,
}

impl Guarded {
    async fn start(store: &str, more: &str) -> Self {
        let (folder, authority) = (tempfile::tempdir().expect("a folder"), authority());
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let (certificate, key) = issue(&authority, &[], |_| ());
        let (ca, certificate, key) =
            (write("ca.pem", &authority.pem()), write("server.pem", &certificate), write("server.key", &key));
        let more = format!(
            "tls:
  certificateFile: {certificate}
  keyFile: {key}
  clientCaFile: {ca}
  identities:
    - {{ spiffeId: \"spiffe://shop/*\", role: govern }}
{more}"
        );
        Self { scene: Scene::start(store, &more).await, authority, _folder: folder }
    }

    fn client(&self, identity: Option<(String, String)>) -> ResilienceServiceClient<Channel> {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.authority.pem()));
        if let Some((certificate, key)) = identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        let target = format!("https://localhost:{}", self.scene.running.grpc_address.port());
        let endpoint = Endpoint::from_shared(target).expect("an address").tls_config(tls).expect("TLS");
        ResilienceServiceClient::new(endpoint.connect_lazy())
    }
}

fn update() -> proto::UpdatePolicyRequest {
    proto::UpdatePolicyRequest { name: "p".into(), document: "{}".into(), actor: "cart".into(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_asked_for_and_their_identity_is_audited() {
    let guarded = Guarded::start("memory://mtls", "").await;
    assert!(guarded.client(None).update_policy(update()).await.is_err(), "a certificate is needed");
    let known = issue(&guarded.authority, &["spiffe://shop/sa/cart"], |_| ());
    guarded.client(Some(known)).update_policy(update()).await.expect("it may govern");
    let event = guarded.scene.running.gateway.audit.latest(1).pop().expect("an event");
    assert_eq!((event.kind, event.spiffe_id.as_deref()), ("policy.set", Some("spiffe://shop/sa/cart")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_proves_nothing_is_nobody() {
    let guarded = Guarded::start("memory://mtls-nobody", "").await;
    let past = |params: &mut CertificateParams| {
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
    };
    let future = |params: &mut CertificateParams| {
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(4000, 1, 1), rcgen::date_time_ymd(4001, 1, 1));
    };
    let ours = ["spiffe://shop/sa/cart"];
    let handshakes = [
        ("another authority", issue(&authority(), &ours, |_| ())),
        ("expired", issue(&guarded.authority, &ours, past)),
        ("not valid yet", issue(&guarded.authority, &ours, future)),
    ];
    for (what, identity) in handshakes {
        let status = guarded.client(Some(identity)).update_policy(update()).await.expect_err(what);
        assert_ne!(status.code(), tonic::Code::Unauthenticated, "{what} ends before anything is asked: {status:?}");
    }
    for (what, identities) in [
        ("no identity", &[][..]),
        ("a neighbour", &["spiffe://shopkeeper/sa/cart"]),
        ("two identities", &["spiffe://shop/sa/cart", "spiffe://shop/sa/root"]),
        ("not a SPIFFE id", &["https://shop/sa/cart"]),
    ] {
        let identity = issue(&guarded.authority, identities, |_| ());
        let status = guarded.client(Some(identity)).update_policy(update()).await.expect_err(what);
        assert_eq!(status.code(), tonic::Code::Unauthenticated, "{what}: {status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_of_a_mesh_adds_nothing_to_certificates() {
    let guarded = Guarded::start("memory://mtls-mesh", "mesh: { identityHeader: l5d-client-id }\n").await;
    let mut client = guarded.client(Some(issue(&guarded.authority, &[], |_| ())));
    let mut request = tonic::Request::new(update());
    let spoofed = HeaderValue::from_static("spiffe://shop/sa/root").to_str().expect("ASCII").parse().expect("a value");
    request.metadata_mut().insert("l5d-client-id", spoofed);
    let status = client.update_policy(request).await.expect_err("it says who it is by its certificate alone");
    assert_eq!(status.code(), tonic::Code::Unauthenticated, "{status:?}");
}
