//! A gateway, from start to drain.
//!
//! # The end
//! 1. Not ready, and no new call: `/readyz` says 503, gRPC says UNAVAILABLE, watchers and dashboards get a message to reconnect elsewhere.
//! 2. Calls in flight are waited for, until the configured time is over.
//! 3. The ports close; connections end after what they are sending. What is held in the server is given back.
//! 4. The process ends: with 0 if nothing was cut off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use resil::idempotency::{IdempotencySettings, Idempotent};
use resil::telemetry::MetricCounts;
use resil::{Client, ConnectSettings};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::AuditLog;
use crate::config::{Config, ConfigError};
use crate::drain::Drain;
use crate::feed::Feed;
use crate::grpc::Calls;
use crate::health::{HealthBook, Prober, Reporter, Webhooks};
use crate::metrics::CallMetrics;
use crate::policies::PolicyBook;
use crate::roles::Access;
use crate::serve::Port;
use crate::tls::{self, Protocol};
use crate::upstream::{Upstream, Upstreams};
use crate::{now_ms, random_id};

/// Connections have so long to end after the last call did.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// Stored policies are waited for so long at the start.
const LOAD_WITHIN: Duration = Duration::from_secs(2);

/// Everything that requests need.
pub struct Gateway {
    pub config: Config,
    pub instance: String,
    pub client: Client,
    pub access: Access,
    pub upstreams: Arc<Upstreams>,
    pub policies: Arc<PolicyBook>,
    pub feed: Arc<Feed>,
    pub health: Arc<HealthBook>,
    pub reporter: Arc<Reporter>,
    pub audit: AuditLog,
    pub drain: Drain,
    pub calls: Arc<Calls>,
    pub call_metrics: CallMetrics,
    pub counts: MetricCounts,
    pub idempotent: Idempotent,
    /// The server was reached once.
    pub has_connected: AtomicBool,
    /// What has no end of its own ends now.
    pub stop: CancellationToken,
    pub api_rates: crate::http::ClientRates,
}

impl Gateway {
    /// Counts a call that ended.
    pub fn count(&self, upstream: &Upstream, outcome: &'static str, took: Duration) {
        match outcome {
            "ok" => {}
            "refused" => {
                upstream.counts.refused.fetch_add(1, Ordering::Relaxed);
                self.calls.refused.fetch_add(1, Ordering::Relaxed);
            }
            _ => {
                upstream.counts.failed.fetch_add(1, Ordering::Relaxed);
                self.calls.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.call_metrics.count(&upstream.name, outcome, took);
    }

    /// Why it is not ready, if it is not.
    pub fn unready(&self) -> Option<&'static str> {
        if self.drain.is_draining() {
            return Some("draining");
        }
        if self.client.health().reason.is_none() {
            self.has_connected.store(true, Ordering::Relaxed);
        }
        (!self.has_connected.load(Ordering::Relaxed)).then_some("the server with the shared state was not reached yet")
    }
}

/// Why a gateway does not start.
#[derive(Debug)]
pub enum StartError {
    Config(ConfigError),
    Resil(resil::Error),
    Port(&'static str, SocketAddr, std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(error) => write!(f, "configuration: {error}"),
            Self::Resil(error) => write!(f, "{error}"),
            Self::Port(what, address, error) => write!(f, "the {what} port {address} cannot be opened: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<resil::Error> for StartError {
    fn from(error: resil::Error) -> Self {
        Self::Resil(error)
    }
}

/// A gateway that serves.
pub struct Running {
    pub gateway: Arc<Gateway>,
    pub grpc_address: SocketAddr,
    pub http_address: SocketAddr,
    closing: CancellationToken,
    cut: CancellationToken,
    open: TaskTracker,
    background: TaskTracker,
    grpc_health: tonic_health::server::HealthReporter,
}

async fn bind(what: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let wrong = |error| StartError::Port(what, address, error);
    let listener = TcpListener::bind(address).await.map_err(wrong)?;
    let bound = listener.local_addr().map_err(wrong)?;
    Ok((listener, bound))
}

/// Opens everything. A server that is away is no error: the gateway is not ready until it was there.
pub async fn start(config: Config) -> Result<Running, StartError> {
    let counts = crate::metrics::recorder();
    let instance = config.instance.clone().unwrap_or_else(|| format!("gateway-{}", &random_id()[..8]));
    let client = ConnectSettings::new(config.redis.url.expose())
        .command_timeout(config.redis.command_timeout.0)
        .name("resil-gateway")
        // Here, and not on a thread of its own: nothing here blocks, and a call wakes two threads less.
        .runtime(tokio::runtime::Handle::current())
        .connect()
        .await?;
    let upstreams = Arc::new(Upstreams::new(&config)?);
    let policies = PolicyBook::open(&client, config.policies.file.as_deref())?;
    let feed = Feed::new(config.limits.watchers);
    let health = HealthBook::new(&config, Arc::clone(&feed));
    let gateway = Arc::new(Gateway {
        access: Access::new(&config),
        audit: AuditLog::new(Arc::clone(&feed)),
        drain: Drain::new(config.limits.calls),
        idempotent: client.idempotent("gateway", IdempotencySettings::new())?,
        reporter: Reporter::new(&client, Webhooks::new(&config)?)?,
        api_rates: crate::http::ClientRates::new(config.limits.api_per_second),
        calls: Arc::default(),
        call_metrics: CallMetrics::default(),
        has_connected: AtomicBool::new(false),
        stop: CancellationToken::new(),
        counts,
        upstreams,
        policies,
        feed,
        health,
        instance,
        client,
        config,
    });
    let (grpc, grpc_address) = bind("gRPC", gateway.config.grpc_address()).await?;
    let (http, http_address) = bind("HTTP", gateway.config.http_address()).await?;
    let background = TaskTracker::new();
    // Best known before the first call; if the server is away they come later.
    let loaded = tokio::time::timeout(LOAD_WITHIN, gateway.policies.load()).await;
    gateway.has_connected.store(matches!(loaded, Ok(Ok(()))), Ordering::Relaxed);
    let stop = || gateway.stop.clone();
    background.spawn(Arc::clone(&gateway.policies).keep(stop()));
    background.spawn(Arc::clone(&gateway.feed).listen(gateway.client.clone(), stop()));
    let prober = Prober::new(&gateway.config, &gateway.client, &gateway.health, &gateway.upstreams, &gateway.policies);
    background.spawn(prober.run(stop()));
    background.spawn(Arc::clone(&gateway.reporter).run(Arc::clone(&gateway.health), stop()));
    let (closing, cut, open) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
    let port = |protocol| -> Result<Port, StartError> {
        let tls = gateway.config.tls.as_ref().map(|tls| tls::server(tls, protocol)).transpose()?;
        let limits = &gateway.config.limits;
        let (connections, head, body, idle) = (limits.connections, limits.head.0, limits.body.0, limits.idle.0);
        Ok(Port {
            protocol,
            tls,
            connections,
            head,
            body,
            idle,
            closing: closing.clone(),
            cut: cut.clone(),
            open: open.clone(),
        })
    };
    let (grpc_router, grpc_health) = crate::grpc::router(&gateway);
    let http_router = crate::http::router(&gateway, http_address);
    background.spawn(port(Protocol::Http2)?.serve(grpc, grpc_router));
    background.spawn(port(Protocol::Http1)?.serve(http, http_router));
    let ready = tonic_health::ServingStatus::Serving;
    grpc_health.set_service_status("", ready).await;
    grpc_health.set_service_status("resil.v1.ResilienceService", ready).await;
    tracing::info!(grpc = %grpc_address, http = %http_address, instance = gateway.instance, "the gateway serves");
    Ok(Running { gateway, grpc_address, http_address, closing, cut, open, background, grpc_health })
}

impl Running {
    /// Ends it: see the [module](self). How many calls were cut off.
    pub async fn end(self) -> usize {
        self.end_or(std::future::pending()).await
    }

    /// The same, without waiting for calls any longer once `hurry` has ended.
    pub async fn end_or(self, hurry: impl Future<Output = ()>) -> usize {
        let Self { gateway, closing, cut, open, background, grpc_health, .. } = self;
        gateway.drain.begin();
        tracing::info!(in_flight = gateway.drain.in_flight(), "draining");
        let not_serving = tonic_health::ServingStatus::NotServing;
        grpc_health.set_service_status("", not_serving).await;
        grpc_health.set_service_status("resil.v1.ResilienceService", not_serving).await;
        gateway.feed.tell("drain", &json!({ "at": now_ms() }));
        let over = async {
            tokio::select! {
                () = tokio::time::sleep(gateway.config.drain.0) => {}
                () = hurry => {}
            }
        };
        let cut_off = gateway.drain.drained_or(over).await;
        gateway.stop.cancel();
        closing.cancel();
        open.close();
        background.close();
        if tokio::time::timeout(CLOSE_WITHIN, open.wait()).await.is_err() {
            cut.cancel();
            let _ = tokio::time::timeout(CLOSE_WITHIN, open.wait()).await;
        }
        let _ = tokio::time::timeout(CLOSE_WITHIN, background.wait()).await;
        let report = gateway.client.shutdown(CLOSE_WITHIN).await;
        tracing::info!(cut_off, released = report.released.len(), "the gateway has ended");
        cut_off
    }
}
