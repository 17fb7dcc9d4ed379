//! What docs/gateway.md and deploy/ show works as it is shown.

use std::path::Path;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use resil_gateway::config::Config;
use resil_gateway::upstream::BytesCodec;
use tokio_stream::StreamExt;
use tonic::transport::Endpoint;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files that a server says define a symbol.
async fn reflected(channel: tonic::transport::Channel, symbol: &str) -> DescriptorPool {
    let request = tonic_reflection::pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(symbol.to_owned())),
    };
    let answers = ServerReflectionClient::new(channel).server_reflection_info(tokio_stream::once(request)).await;
    let answer = answers.expect("reflection is on").into_inner().next().await.expect("an answer").expect("no error");
    let Some(MessageResponse::FileDescriptorResponse(files)) = answer.message_response else { panic!("no file") };
    let mut pool = DescriptorPool::global();
    for file in &files.file_descriptor_proto {
        pool.decode_file_descriptor_proto(&**file).expect("a definition");
    }
    pool
}

/// Every grpcurl of the page, as grpcurl makes it: the definition by reflection, JSON to a message, the call.
#[tokio::test(flavor = "multi_thread")]
async fn every_grpcurl_of_the_page_works() {
    let demo = resil_gateway::demo::start(0, 0).await.expect("it starts");
    let target = format!("http://{}", demo.running.grpc_address);
    let channel = Endpoint::from_shared(target).expect("an address").connect_lazy();
    let pool = reflected(channel.clone(), "resil.v1.ResilienceService").await;
    let gateway = std::sync::Arc::clone(&demo.running.gateway);
    crate::scene::within("policies are known", || async { gateway.policies.is_stored("catalog") }).await;
    let page = read("docs/gateway.md");
    let mut methods = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("grpcurl ")) {
        let json = line.split('\'').nth(1).expect("a message");
        let (service, method) = line.rsplit(' ').next().and_then(|name| name.split_once('/')).expect("a method");
        let service = pool.get_service_by_name(service).unwrap_or_else(|| panic!("{service}"));
        let method = service.methods().find(|own| own.name() == method).unwrap_or_else(|| panic!("{method}"));
        let mut parsed = serde_json::Deserializer::from_str(json);
        let message =
            DynamicMessage::deserialize(method.input(), &mut parsed).unwrap_or_else(|error| panic!("{json}: {error}"));
        let path = format!("/{}/{}", service.full_name(), method.name()).parse().expect("a path");
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.expect("the port is open");
        let request = tonic::Request::new(bytes::Bytes::from(message.encode_to_vec()));
        let answered = grpc
            .server_streaming(request, path, BytesCodec)
            .await
            .unwrap_or_else(|status| panic!("{line}: {status:?}"));
        let answer = answered.into_inner().message().await.expect("no error").expect("a message");
        let answer = DynamicMessage::decode(method.output(), answer).expect("as defined");
        let shown =
            answer.serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new()).expect("JSON");
        assert!(shown.as_object().is_some_and(|shown| !shown.is_empty()), "{line}: {shown}");
        methods.push(method.name().to_owned());
    }
    methods.sort();
    let all = ["ExecuteWithResilience", "GetCircuitState", "HealthCheck", "UpdatePolicy", "WatchCircuitState"];
    assert_eq!(methods, all, "each method has its example");
    demo.end().await;
}

#[test]
fn the_samples_of_deploy_are_valid() {
    let own = |path: &str| read(&format!("deploy/gateway/{path}"));
    let config = Config::from_text(&own("gateway.yaml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((config.tokens.len(), config.upstreams.len()), (3, 2));
    resil::settings::PolicyFile::from_text(&own("policies.yaml")).unwrap_or_else(|error| panic!("{error}"));
    let (kubernetes, mut checked) = (own("kubernetes.yaml"), 0);
    for part in kubernetes.split("\n---\n") {
        let value: serde_json::Value = serde_saphyr::from_str(part).unwrap_or_else(|error| panic!("{error}"));
        if let Some(text) = value["data"]["gateway.yaml"].as_str() {
            Config::from_text(text).unwrap_or_else(|error| panic!("{error}"));
            let policies = value["data"]["policies.yaml"].as_str().expect("policies");
            resil::settings::PolicyFile::from_text(policies).unwrap_or_else(|error| panic!("{error}"));
            checked += 1;
        }
        if value["kind"] == "Deployment" {
            let container = &value["spec"]["template"]["spec"]["containers"][0];
            for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
                assert_eq!(container[probe]["httpGet"]["path"], path);
            }
            assert_eq!(container["startupProbe"]["grpc"]["port"], 50_056);
            checked += 1;
        }
    }
    assert_eq!(checked, 2);
    let compose: serde_json::Value =
        serde_saphyr::from_str(&own("compose.yaml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(compose["services"]["gateway"]["command"][0], "serve");
    // What compose takes from this machine is here, but for the module and the secrets, which its first lines ask for.
    let mounted = ["gateway", "redis"].map(|service| compose["services"][service]["volumes"].clone());
    let mounted = mounted.iter().flat_map(|volumes| volumes.as_array().expect("volumes"));
    let sources: Vec<&str> = mounted.filter_map(|volume| volume.as_str()?.split(':').next()).collect();
    assert!(sources.contains(&"../../target/release/libresil.so"), "{sources:?}");
    for file in sources.iter().filter_map(|source| source.strip_prefix("./")) {
        own(file);
    }
    let build = &compose["services"]["gateway"]["build"];
    assert_eq!(
        (build["context"].as_str(), build["dockerfile"].as_str()),
        (Some("../.."), Some("deploy/gateway/Containerfile"))
    );
    assert!(read("Cargo.toml").contains("\"gateway\""), "the context is the workspace");
    // The container file: the program that cargo makes, started as the manifests start it, as a user without rights, on the ports there are.
    let container = own("Containerfile");
    let words = |key: &str| -> Vec<String> {
        let lines = container.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        lines.flat_map(str::split_whitespace).map(|word| word.trim_matches(['[', ']', '"']).to_owned()).collect()
    };
    assert_eq!(words("RUN"), ["cargo", "build", "--release", "-p", env!("CARGO_PKG_NAME")]);
    assert!(words("COPY").contains(&"/src/target/release/resil-gateway".to_owned()), "{:?}", words("COPY"));
    assert_eq!(
        (words("ENTRYPOINT"), words("CMD")),
        (vec!["/usr/local/bin/resil-gateway".to_owned()], vec!["serve".to_owned()])
    );
    assert!(words("FROM").last().is_some_and(|base| base.ends_with(":nonroot")), "{:?}", words("FROM"));
    assert_eq!(words("EXPOSE"), [config.grpc.port, config.http.port].map(|port| port.to_string()));
    assert_eq!(words("ENV"), ["RESILIENCE_HOST=0.0.0.0"]);
    let unit = own("resil-gateway.service");
    for line in ["KillSignal=SIGTERM", "TimeoutStopSec=45", "ExecStart=/usr/local/bin/resil-gateway serve --config"] {
        assert!(unit.contains(line), "{line}");
    }
}
