//! Circuit breakers.

use std::sync::{Arc, Weak};

use napi::bindgen_prelude::Env;
use napi_derive::napi;
use parking_lot::Mutex;
use resil::Error;
use resil::breaker::{self, Force};
use resil::policy::Policy;
use resil::settings::BreakerSettings;

use crate::client::Client;
use crate::convert::{makes, methods, now, optional_duration, run, settings, shown};
use crate::executor::queue::{Message, Notification};
use crate::executor::{Word, queue};
use crate::guard::{Guard, Layer};

#[napi]
pub struct Breaker(
    pub(crate) breaker::Breaker,
    /// Gone with this handle, and the listener with it.
    pub(crate) Option<Arc<()>>,
);

#[napi]
impl Breaker {
    #[napi]
    pub fn guard(&self, env: Env) -> napi::Result<Guard> {
        let policy = Policy::builder(self.0.name()).breaker(self.0.clone()).build();
        now(&env, policy).map(|policy| Guard::of(vec![Layer::Breaker(policy)]))
    }

    #[napi(getter)]
    pub fn last_known_state(&self) -> Option<&'static str> {
        self.0.last_known_state().map(breaker::State::text)
    }

    /// From now on this listener hears of transitions, for as long as this handle exists.
    #[napi]
    pub fn listen(&mut self, listener: u32) -> napi::Result<()> {
        let queue = queue()?;
        let token = Arc::new(());
        let alive: Weak<()> = Arc::downgrade(&token);
        self.1 = Some(token);
        self.0.on_transition(move |transition| {
            if alive.strong_count() > 0 {
                let (previous, new) = (transition.previous.text(), transition.new.text());
                queue.post(Message::Notify(listener, Notification::Transition(previous, new, transition.generation)));
            }
        });
        Ok(())
    }
}

methods! { Breaker(breaker) {
    admit() => breaker.admit().await.map(|permit| Permit(Mutex::new(Some(permit))));
    /// As JSON.
    state() => shown(&breaker.state().await?);
    force(to: String, duration: Option<String>, reason: String) => {
        let force: Force = serde_json::from_value(to.clone().into()).map_err(|_| {
            let allowed = "allowed: open, open-then-probe, closed, disabled, metrics, auto";
            Error::InvalidArgument(format!("state cannot be {to:?}; {allowed}"))
        })?;
        let duration = optional_duration("duration", duration.as_deref())?;
        breaker.force(force, duration, &reason).await.map(breaker::State::text)
    };
    reset() => breaker.reset().await;
    configure(said: String) => breaker.configure(&settings::<BreakerSettings>(&said)?).await;
} }

/// A permit for one call.
#[napi]
pub struct Permit(Mutex<Option<breaker::Permit>>);

#[napi]
impl Permit {
    /// 0 success, 1 failure, 2 ignore, else cancel. Only the first report counts.
    #[napi]
    pub fn report(&self, outcome: u32) -> napi::Result<Word> {
        let permit = self.0.lock().take();
        run(async move {
            if let Some(permit) = permit {
                match outcome {
                    0 => permit.success().await,
                    1 => permit.failure().await,
                    2 => permit.ignore().await,
                    _ => permit.cancel().await,
                }
            }
            Ok(())
        })
    }
}

makes! {
    breaker(BreakerSettings) -> Breaker = |breaker| Breaker(breaker, None);
}
