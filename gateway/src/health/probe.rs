//! Looking at services: the gRPC health protocol, a GET, or the state of a circuit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use resil::Client;
use resil::breaker::State;
use tokio_util::sync::CancellationToken;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;

use super::{HealthBook, HealthState};
use crate::config::{Config, ProbeKind, ServiceConfig};
use crate::policies::PolicyBook;
use crate::upstream::{GrpcUpstream, Link, Upstreams};

/// What one look found.
type Finding = (HealthState, &'static str);

pub struct Prober {
    pub book: Arc<HealthBook>,
    pub upstreams: Arc<Upstreams>,
    pub policies: Arc<PolicyBook>,
    pub client: Client,
    pub services: BTreeMap<String, ServiceConfig>,
    pub every: Duration,
    pub timeout: Duration,
}

impl Prober {
    pub fn new(
        config: &Config,
        client: &Client,
        book: &Arc<HealthBook>,
        upstreams: &Arc<Upstreams>,
        policies: &Arc<PolicyBook>,
    ) -> Arc<Self> {
        Arc::new(Self {
            book: Arc::clone(book),
            upstreams: Arc::clone(upstreams),
            policies: Arc::clone(policies),
            client: client.clone(),
            services: config.services.clone(),
            every: config.health.every.0,
            timeout: config.health.timeout.0,
        })
    }

    /// Looks at every service, each in its own time, until the gateway ends.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut looking = tokio::task::JoinSet::new();
        for name in self.services.keys() {
            let (prober, stop, name) = (Arc::clone(&self), stop.clone(), name.clone());
            looking.spawn(async move {
                while !stop.is_cancelled() {
                    prober.look(&name).await;
                    tokio::select! {
                        () = tokio::time::sleep(prober.every) => {}
                        () = stop.cancelled() => return,
                    }
                }
            });
        }
        while looking.join_next().await.is_some() {}
    }

    pub async fn look(&self, name: &str) {
        let Some(service) = self.services.get(name) else { return };
        let found = match tokio::time::timeout(self.timeout, self.ask(service)).await {
            Ok(found) => found,
            Err(_) => Some((HealthState::Unhealthy, "it did not answer in time")),
        };
        // Nothing was found out: what was known stays.
        if let Some((state, detail)) = found {
            self.book.found(name, state, detail);
        }
    }

    async fn ask(&self, service: &ServiceConfig) -> Option<Finding> {
        let upstream = service.upstream.as_deref().and_then(|name| self.upstreams.get(name));
        match (service.probe, upstream.map(|upstream| &upstream.link)) {
            (ProbeKind::Grpc, Some(Link::Grpc(link))) => {
                Some(ask_grpc(link, service.service.as_deref().unwrap_or_default()).await)
            }
            (ProbeKind::Http, Some(Link::Http(link))) => {
                let status = link.probe(service.path.as_deref().unwrap_or("/health")).await;
                Some(match status {
                    Ok(200..=299) => (HealthState::Healthy, "it answers"),
                    Ok(500..) => (HealthState::Unhealthy, "it answers with an error"),
                    Ok(_) => (HealthState::Degraded, "it answers, but not to this question"),
                    Err(_) => (HealthState::Unhealthy, "it cannot be reached"),
                })
            }
            (ProbeKind::Circuit, _) => {
                let policy = upstream.map(|upstream| upstream.policy.as_str()).or(service.circuit.as_deref())?;
                let key = self.policies.circuit_key(policy).ok()?;
                let circuit = self.client.operator().breaker(key.as_bytes()).await.ok()?;
                Some(of_circuit(circuit.state))
            }
            _ => None,
        }
    }
}

fn of_circuit(state: State) -> Finding {
    match state {
        State::Open => (HealthState::Unhealthy, "the circuit is open"),
        State::ForcedOpen => (HealthState::Unhealthy, "the circuit is forced open"),
        State::HalfOpen => (HealthState::Degraded, "the circuit is half-open"),
        State::Ramping => (HealthState::Degraded, "the circuit is ramping up"),
        _ => (HealthState::Healthy, "the circuit lets calls pass"),
    }
}

async fn ask_grpc(link: &GrpcUpstream, service: &str) -> Finding {
    let request = HealthCheckRequest { service: service.to_owned() };
    match link.health().check(request).await {
        Ok(response) => match response.into_inner().status() {
            ServingStatus::Serving => (HealthState::Healthy, "it serves"),
            ServingStatus::NotServing => (HealthState::Unhealthy, "it says that it does not serve"),
            _ => (HealthState::Degraded, "it does not know"),
        },
        Err(status) if matches!(status.code(), tonic::Code::Unimplemented | tonic::Code::NotFound) => {
            (HealthState::Degraded, "it answers, but has no such health check")
        }
        Err(_) => (HealthState::Unhealthy, "it cannot be reached"),
    }
}
