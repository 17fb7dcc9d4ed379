//! A layer for gRPC channels: retries, hedging, deadlines and a breaker, by the statuses of gRPC.
//!
//! ```no_run
//! use resil::grpc::GrpcLayer;
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let channel = tonic::transport::Channel::from_static("http://orders:50051").connect_lazy();
//! let layer = GrpcLayer::from_service_config(r#"{ "methodConfig": [{
//!     "name": [{ "service": "shop.v1.Orders" }],
//!     "timeout": "2s",
//!     "retryPolicy": {
//!         "maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
//!         "retryableStatusCodes": ["UNAVAILABLE"]
//!     }
//! }] }"#)?;
//! let channel = tower::ServiceBuilder::new().layer(layer).service(channel);
//! // let orders = OrdersClient::new(channel);
//! # Ok(()) }
//! ```
//!
//! # What is promised
//! - A call is made again only if its request is one message (or none) and all of it is there when the call is made: a unary call. Streams go
//!   through once, as they are; nobody waits for their messages.
//! - A call is made again only until its response begins, as in gRFC A6: a status that comes without headers before it decides. After that
//!   the response belongs to the caller.
//! - `grpc-retry-pushback-ms` of the server is obeyed. From the second attempt on, `grpc-previous-rpc-attempts` says how many came before.
//! - The deadline is the shorter one of the config's timeout and the request's `grpc-timeout`. Each attempt tells the server what is
//!   left of it. It holds until the response has ended, and ends in `DEADLINE_EXCEEDED`.
//! - The breaker is asked for each attempt, before the channel is. While it is open the response is `UNAVAILABLE`, and nothing is sent.
//!   It learns what the first thing that came back says: a message is a success, a status speaks for itself, and statuses that are about the
//!   request (`NOT_FOUND`, ...) say nothing. Reaching the deadline is a failure, being dropped is not.
//! - The service is always ready, as [those for tower](crate::tower) are.
//!
//! What a server answered is passed on as it came. After exhausted attempts it is the last response, with `resil-code` and a pushback
//! that keeps the next hop from beginning anew.
//!
//! # Where hedging differs from gRPC's
//! See [`Hedge`]: a status that is not fatal lets the others go on but does not begin the next at once, and a server
//! that pushes back with a negative number has answered for all.

mod deadline;
mod request;
mod response;
mod service;

use std::sync::Arc;
use std::time::Duration;

use metrics::Counter;
use tower_layer::Layer;

pub use self::response::ResponseBody;
pub use self::service::{GrpcFuture, GrpcService};

use super::{MethodSettings, RetryStatuses, ServiceConfig};
use crate::breaker::Breaker;
use crate::clock::Clock;
use crate::error::Error;
use crate::policy::{Budget, BudgetSettings, Hedge, HedgeSettings, Retry, RetrySettings, TimeoutSettings};
use crate::settings::InPart;
use crate::telemetry;

/// The layer. Cheap to clone; clones, and the services made with them, share everything.
#[derive(Debug, Clone)]
pub struct GrpcLayer(Arc<LayerParts>);

#[derive(Debug)]
struct LayerParts {
    config: ServiceConfig,
    /// At the places that the config names.
    methods: Vec<Method>,
    /// For methods that the config does not name.
    others: Method,
    breaker: Option<Breaker>,
    attempt_timeout: Option<Duration>,
    clock: Clock,
    timeouts: Counter,
}

#[derive(Debug, Clone)]
struct Method {
    attempts: Attempts,
    timeout: Option<Duration>,
}

#[derive(Debug, Clone)]
enum Attempts {
    One,
    Retry(Retry, RetryStatuses),
    Hedge(Hedge, RetryStatuses),
}

type Retried = (RetrySettings, RetryStatuses);
type Hedged = (HedgeSettings, RetryStatuses);

/// Makes a [`GrpcLayer`]. What is not named is not there.
#[derive(Debug, Clone)]
#[must_use]
pub struct GrpcLayerBuilder {
    name: Arc<str>,
    config: ServiceConfig,
    retry: Option<Retried>,
    hedge: Option<Hedged>,
    timeouts: TimeoutSettings,
    breaker: Option<Breaker>,
    clock: Clock,
}

impl GrpcLayerBuilder {
    /// What methods are retried or hedged, and how long they may take. For the methods it names it wins over everything
    /// that is said here.
    pub fn service_config(mut self, config: ServiceConfig) -> Self {
        self.config = config;
        self
    }

    /// Retries for all methods that the service config does not name. Only for methods that may be called twice.
    pub fn retry(mut self, settings: &RetrySettings, statuses: RetryStatuses) -> Self {
        self.retry = Some((settings.clone(), statuses));
        self
    }

    /// Hedging for all methods that the service config does not name; not beside retries. After `statuses` the other
    /// attempts go on.
    pub fn hedge(mut self, settings: &HedgeSettings, statuses: RetryStatuses) -> Self {
        self.hedge = Some((settings.clone(), statuses));
        self
    }

    /// `total` for all methods that the service config does not name; `attempt` for every attempt, until its response begins.
    pub fn timeouts(mut self, timeouts: TimeoutSettings) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Asked for every attempt.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Another clock than the machine's, for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    pub fn build(self) -> Result<GrpcLayer, Error> {
        let Self { name, config, retry, hedge, timeouts, breaker, clock } = self;
        timeouts.validate().in_part("timeout")?;
        // One throttle for all methods, as in gRPC: it is about the server, not about one of its methods.
        let throttle = config.retry_throttling.as_ref().map(BudgetSettings::from);
        let throttle = throttle.map(|settings| Budget::with_clock(&settings, clock.clone())).transpose()?;
        let attempts = |retry: Option<Retried>, hedge: Option<Hedged>, budget: Option<Budget>| {
            Ok(match (retry, hedge) {
                (None, None) => Attempts::One,
                (Some((settings, statuses)), None) => {
                    let retry = Retry::new(&settings)?.named(&name).with_clock(clock.clone());
                    Attempts::Retry(budget.into_iter().fold(retry, Retry::with_budget), statuses)
                }
                (None, Some((settings, statuses))) => {
                    let hedge = Hedge::new(&settings)?.named(&name).with_clock(clock.clone());
                    Attempts::Hedge(budget.into_iter().fold(hedge, Hedge::with_budget), statuses)
                }
                (Some(_), Some(_)) => {
                    return Err(Error::invalid("hedge", "does not go with retry; allowed: one of them"));
                }
            })
        };
        let mut methods = Vec::new();
        for method in config.method_configs() {
            let MethodSettings { retry, hedge, timeouts } = method.settings()?;
            let statuses = method.policy.as_ref().map(RetryStatuses::from);
            let attempts = attempts(retry.zip(statuses), hedge.zip(statuses), throttle.clone())?;
            methods.push(Method { attempts, timeout: timeouts.total });
        }
        let attempts = attempts(retry, hedge, None)?;
        Ok(GrpcLayer(Arc::new(LayerParts {
            config,
            methods,
            others: Method { attempts, timeout: timeouts.total },
            breaker,
            attempt_timeout: timeouts.attempt,
            clock,
            timeouts: telemetry::timed_out(&name, "total"),
        })))
    }
}

impl GrpcLayer {
    /// `name` is what it is called in metrics and events.
    pub fn builder(name: &str) -> GrpcLayerBuilder {
        GrpcLayerBuilder {
            name: name.into(),
            config: ServiceConfig::default(),
            retry: None,
            hedge: None,
            timeouts: TimeoutSettings::default(),
            breaker: None,
            clock: Clock::system(),
        }
    }

    /// What the service config says and nothing else. See [`service_config`](super::service_config) for the JSON.
    pub fn from_service_config(json: &str) -> Result<Self, Error> {
        Self::builder(telemetry::UNNAMED).service_config(ServiceConfig::parse(json)?).build()
    }
}

impl LayerParts {
    fn method(&self, path: &str) -> &Method {
        self.config.place(path).and_then(|place| self.methods.get(place)).unwrap_or(&self.others)
    }
}

impl<S> Layer<S> for GrpcLayer {
    type Service = GrpcService<S>;

    fn layer(&self, service: S) -> GrpcService<S> {
        GrpcService::new(service, self.clone())
    }
}
