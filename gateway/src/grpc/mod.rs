//! `resil.v1.ResilienceService`: each method as the definition in `proto/` says it.

mod calls;
mod execute;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::extract::{Request as HttpRequest, State as Shared};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response as HttpResponse};
use futures_util::Stream;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

pub use self::calls::{CallView, Calls};
use crate::audit::{Deed, Outcome};
use crate::circuits::{self, CircuitWatch};
use crate::errors::{status_of, with_code};
use crate::health::HealthState;
use crate::identity::Peer;
use crate::proto::resil::v1 as proto;
use crate::proto::resil::v1::resilience_service_server::{ResilienceService, ResilienceServiceServer};
use crate::roles::{Caller, Role};
use crate::run::Gateway;
use crate::{now_ms, policies};

/// What a watcher may be behind.
const UNREAD_MAX: usize = 256;
const TEXT_MAX: usize = 512;

pub struct Service(Arc<Gateway>);

/// Everything that the gRPC port serves, and the one who says how the service is.
pub fn router(gateway: &Arc<Gateway>) -> (axum::Router, tonic_health::server::HealthReporter) {
    let (reporter, check) = tonic_health::server::health_reporter();
    let max = gateway.config.grpc.max_message;
    let service = ResilienceServiceServer::new(Service(Arc::clone(gateway)))
        .max_decoding_message_size(max)
        .max_encoding_message_size(64 << 20);
    let reflection = |builder: tonic_reflection::server::Builder<'static>| {
        builder
            .register_encoded_file_descriptor_set(crate::proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // The definitions have those of the examples as well, which are served elsewhere.
            .with_service_name("resil.v1.ResilienceService")
            .with_service_name("grpc.health.v1.Health")
    };
    let mut routes = tonic::service::Routes::new(service).add_service(check);
    if let Ok(v1) = reflection(tonic_reflection::server::Builder::configure()).build_v1() {
        routes = routes.add_service(v1);
    }
    if let Ok(alpha) = reflection(tonic_reflection::server::Builder::configure()).build_v1alpha() {
        routes = routes.add_service(alpha);
    }
    let let_in = axum::middleware::from_fn_with_state(Arc::clone(gateway), let_in);
    (routes.prepare().into_axum_router().layer(let_in), reporter)
}

/// Only what is meant as gRPC: a page of another origin can make a browser send a form or a text, but not this.
fn is_grpc(headers: &http::HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.strip_prefix("application/grpc").is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

/// Who is it? Health checks of an orchestrator have no token.
async fn let_in(Shared(gateway): Shared<Arc<Gateway>>, mut request: HttpRequest, next: Next) -> HttpResponse {
    let peer = request.extensions().get::<Peer>().cloned();
    let Some(peer) = peer.map(|peer| peer.in_mesh(&gateway.config.mesh, request.headers())) else {
        return refused(Status::internal("a connection without an address"));
    };
    if !is_grpc(request.headers()) {
        return http::StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let is_health = request.uri().path().starts_with("/grpc.health.v1.Health/");
    match gateway.access.caller(&peer, request.headers(), now_ms()) {
        Some(caller) => drop(request.extensions_mut().insert(caller)),
        None if is_health => {}
        None => {
            crate::metrics::UNAUTHENTICATED.fetch_add(1, Relaxed);
            return refused(with_code(
                Status::unauthenticated("a token or a certificate is needed"),
                "UNAUTHENTICATED",
            ));
        }
    }
    next.run(request).await
}

fn refused(status: Status) -> HttpResponse {
    status.into_http::<axum::body::Body>()
}

impl Service {
    /// The caller, if it may do this.
    fn caller<T>(&self, request: &Request<T>, needed: Role, what: &'static str) -> Result<Caller, Status> {
        let Some(caller) = request.extensions().get::<Caller>() else {
            return Err(with_code(Status::unauthenticated("a token or a certificate is needed"), "UNAUTHENTICATED"));
        };
        if caller.may(needed) {
            return Ok(caller.clone());
        }
        let action = format!("needs the role {}", needed.text());
        let deed = Deed {
            kind: what,
            target: "",
            action: &action,
            actor: None,
            correlation_id: None,
            outcome: Outcome::Refused,
        };
        self.0.audit.write(deed, Some(caller));
        Err(with_code(Status::permission_denied(format!("this needs the role {}", needed.text())), "FORBIDDEN"))
    }
}

/// The deadline of a call, as its client has it (`grpc-timeout`).
pub fn timeout_of<T>(request: &Request<T>) -> Option<Duration> {
    let text = request.metadata().get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

fn proto_health(state: Option<HealthState>) -> proto::HealthStatus {
    match state {
        None => proto::HealthStatus::Unspecified,
        Some(HealthState::Healthy) => proto::HealthStatus::Healthy,
        Some(HealthState::Degraded) => proto::HealthStatus::Degraded,
        Some(HealthState::Unhealthy) => proto::HealthStatus::Unhealthy,
    }
}

type WatchStream = Pin<Box<dyn Stream<Item = Result<proto::WatchCircuitStateResponse, Status>> + Send>>;

#[tonic::async_trait]
impl ResilienceService for Service {
    async fn execute_with_resilience(
        &self,
        request: Request<proto::ExecuteWithResilienceRequest>,
    ) -> Result<Response<proto::ExecuteWithResilienceResponse>, Status> {
        let pass = self.0.drain.enter()?;
        let caller = self.caller(&request, Role::Operate, "call")?;
        let timeout = timeout_of(&request);
        let traceparent =
            request.metadata().get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (gateway, asked) = (Arc::clone(&self.0), request.into_inner());
        let has_key = !asked.idempotency_key.is_empty();
        let call = async move {
            let response = execute::execute(&gateway, asked, &caller, timeout, traceparent).await;
            drop(pass);
            response
        };
        // A client that hangs up does not cut a call with a key in half: a caller that asks again gets its response.
        let response = match has_key {
            true => tokio::spawn(call).await.unwrap_or_else(|_| Err(Status::internal("the call ended without a word"))),
            false => call.await,
        };
        response.map(Response::new)
    }

    async fn get_circuit_state(
        &self,
        request: Request<proto::GetCircuitStateRequest>,
    ) -> Result<Response<proto::GetCircuitStateResponse>, Status> {
        let _pass = self.0.drain.enter()?;
        self.caller(&request, Role::Look, "circuit.look")?;
        let name = request.into_inner().name;
        let key = circuits::key_of(&name, &self.0.upstreams, &self.0.policies).map_err(|error| status_of(&error))?;
        let snapshot = self.0.client.operator().breaker(key.as_bytes()).await.map_err(|error| status_of(&error))?;
        let circuit = Some(circuits::proto_circuit(&name, &key, &snapshot));
        Ok(Response::new(proto::GetCircuitStateResponse { circuit }))
    }

    async fn update_policy(
        &self,
        request: Request<proto::UpdatePolicyRequest>,
    ) -> Result<Response<proto::UpdatePolicyResponse>, Status> {
        let _pass = self.0.drain.enter()?;
        let caller = self.caller(&request, Role::Govern, "policy.set")?;
        let asked = request.into_inner();
        for (field, text) in [("actor", &asked.actor), ("reason", &asked.reason)] {
            if text.len() > TEXT_MAX || text.chars().any(char::is_control) {
                return Err(Status::invalid_argument(format!(
                    "{field} must have at most {TEXT_MAX} bytes and no control characters"
                )));
            }
        }
        let document = crate::http::document_of(asked.document)
            .await
            .map_err(|problem| Status::invalid_argument(problem.detail))?;
        let actor = match asked.actor.as_str() {
            "" => caller.name.as_deref().unwrap_or("gateway").to_owned(),
            actor => actor.to_owned(),
        };
        let mut change = self.0.client.policies().set(&asked.name, document).actor(&actor).reason(&asked.reason);
        if let Some(version) = asked.expected_version {
            change = change.expecting(version);
        }
        let changed = change.await.map_err(|error| status_of(&error))?;
        let action = format!("stored version {}: {}", changed.version, asked.reason);
        let deed = Deed {
            kind: "policy.set",
            target: &asked.name,
            action: &action,
            actor: Some(&actor),
            correlation_id: None,
            outcome: Outcome::Done,
        };
        self.0.audit.write(deed, Some(&caller));
        let action = match changed.action {
            resil::policies::PolicyAction::Created => proto::PolicyAction::Created,
            resil::policies::PolicyAction::Same => proto::PolicyAction::Same,
            _ => proto::PolicyAction::Changed,
        };
        Ok(Response::new(proto::UpdatePolicyResponse { version: changed.version, action: action.into() }))
    }

    async fn health_check(
        &self,
        request: Request<proto::HealthCheckRequest>,
    ) -> Result<Response<proto::HealthCheckResponse>, Status> {
        self.caller(&request, Role::Look, "health.look")?;
        let wanted = request.into_inner().service;
        let views: Vec<_> =
            self.0.health.views().into_iter().filter(|view| wanted.is_empty() || view.service == wanted).collect();
        if views.is_empty() && !wanted.is_empty() {
            return Err(with_code(Status::not_found(format!("there is no service {wanted:?}")), "NOT_FOUND"));
        }
        let overall = crate::health::aggregate(views.iter().filter_map(|view| view.state));
        let services = views.into_iter().map(|view| proto::ServiceHealth {
            service: view.service,
            status: proto_health(view.state).into(),
            since: view.since_ms.map(circuits::proto_time),
            checked_at: view.checked_ms.map(circuits::proto_time),
            detail: view.detail,
        });
        Ok(Response::new(proto::HealthCheckResponse {
            status: proto_health(Some(overall)).into(),
            services: services.collect(),
            time: Some(circuits::proto_time(now_ms())),
        }))
    }

    type WatchCircuitStateStream = WatchStream;

    async fn watch_circuit_state(
        &self,
        request: Request<proto::WatchCircuitStateRequest>,
    ) -> Result<Response<Self::WatchCircuitStateStream>, Status> {
        self.caller(&request, Role::Look, "circuit.watch")?;
        if self.0.drain.is_draining() {
            return Err(crate::drain::NoPass::Draining.into());
        }
        let Some(place) = self.0.feed.place() else {
            return Err(with_code(Status::resource_exhausted("too many are watching"), "OVERLOADED"));
        };
        let name = request.into_inner().name;
        let key = circuits::key_of(&name, &self.0.upstreams, &self.0.policies).map_err(|error| status_of(&error))?;
        let (sender, receiver) = tokio::sync::mpsc::channel(UNREAD_MAX);
        let watch = CircuitWatch { client: self.0.client.clone(), feed: Arc::clone(&self.0.feed), name, key };
        let stop = self.0.stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = watch.run(sender.clone()) => {}
                // A watch has no end of its own: the gateway ends it when it goes.
                () = stop.cancelled() => {
                    let _ = sender.try_send(Err(crate::drain::NoPass::Draining.into()));
                }
            }
            drop(place);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver).map(|item| item))))
    }
}

/// The policy that a call runs under: the one it names, if its upstream allows that, else the upstream's.
fn policy_name<'a>(asked: &'a str, upstream: &'a crate::upstream::Upstream) -> Result<&'a str, Status> {
    match asked {
        "" => Ok(&upstream.policy),
        asked if upstream.allows_policy(asked) => Ok(asked),
        asked => Err(with_code(
            Status::permission_denied(format!("the upstream {:?} does not allow the policy {asked:?}", upstream.name)),
            "FORBIDDEN",
        )),
    }
}

fn chosen(gateway: &Gateway, name: &str) -> Result<policies::Chosen, Status> {
    gateway.policies.choose(name).map_err(|error| status_of(&error))
}
