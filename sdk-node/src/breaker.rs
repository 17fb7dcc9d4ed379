//! Circuit breakers.

use std::sync::{Arc, Weak};

use napi::bindgen_prelude::Env;
use napi_derive::napi;
use parking_lot::Mutex;
use resil::Error;
use resil::breaker::{self, Force};
use resil::settings::BreakerSettings;

use crate::client::Client;
use crate::convert::{now, optional_span, ours, settings, shown};
use crate::executor::mailbox::{Event, Letter};
use crate::executor::{Word, mailbox};
use crate::guard::{Guard, Layer};

#[napi]
pub struct Breaker {
    breaker: breaker::Breaker,
    /// Who listens here; gone with this.
    listening: Option<Arc<()>>,
}

#[napi]
impl Client {
    #[napi]
    pub fn breaker(&self, env: Env, name: String, said: String) -> napi::Result<Breaker> {
        let make = || {
            let options = settings::<BreakerSettings>(&said)?.options(None)?;
            self.0.breaker(&name, options)
        };
        now(&env, make()).map(|breaker| Breaker { breaker, listening: None })
    }
}

#[napi]
impl Breaker {
    #[napi]
    pub fn guard(&self) -> Guard {
        Guard::of(vec![Layer::Breaker(self.breaker.clone())])
    }

    #[napi(getter)]
    pub fn last_known_state(&self) -> Option<&'static str> {
        self.breaker.last_known_state().map(breaker::State::text)
    }

    /// From now on transitions are events of this number, for as long as this is there.
    #[napi]
    pub fn listen(&mut self, number: u32) -> napi::Result<()> {
        let mailbox = mailbox()?;
        let token = Arc::new(());
        let alive: Weak<()> = Arc::downgrade(&token);
        self.listening = Some(token);
        self.breaker.on_transition(move |transition| {
            if alive.strong_count() > 0 {
                let (previous, new) = (transition.previous.text(), transition.new.text());
                mailbox.post(Letter::Event(number, Event::Transition(previous, new, transition.generation)));
            }
        });
        Ok(())
    }

    #[napi]
    pub fn admit(&self) -> napi::Result<Word> {
        let breaker = self.breaker.clone();
        ours(async move { breaker.admit().await.map(|permit| Permit(Mutex::new(Some(permit)))) })
    }

    /// As JSON.
    #[napi]
    pub fn state(&self) -> napi::Result<Word> {
        let breaker = self.breaker.clone();
        ours(async move { shown(&breaker.state().await?) })
    }

    #[napi]
    pub fn force(&self, env: Env, to: String, length: Option<String>, reason: String) -> napi::Result<Word> {
        let read = || {
            let force: Force = serde_json::from_value(to.clone().into()).map_err(|_| {
                let allowed = "allowed: open, closed, disabled, metrics, auto";
                Error::InvalidArgument(format!("state cannot be {to:?}; {allowed}"))
            })?;
            Ok((force, optional_span("for", length.as_deref())?))
        };
        let (force, length) = now(&env, read())?;
        let breaker = self.breaker.clone();
        ours(async move { breaker.force(force, length, &reason).await.map(breaker::State::text) })
    }

    #[napi]
    pub fn reset(&self) -> napi::Result<Word> {
        let breaker = self.breaker.clone();
        ours(async move { breaker.reset().await })
    }

    #[napi]
    pub fn configure(&self, env: Env, said: String) -> napi::Result<Word> {
        let options = now(&env, settings::<BreakerSettings>(&said).and_then(|settings| settings.options(None)))?;
        let breaker = self.breaker.clone();
        ours(async move { breaker.configure(&options).await })
    }
}

/// Leave to make one call.
#[napi]
pub struct Permit(Mutex<Option<breaker::Permit>>);

#[napi]
impl Permit {
    /// 0 success, 1 failure, 2 ignore, else cancel. Only the first report counts.
    #[napi]
    pub fn report(&self, outcome: u32) -> napi::Result<Word> {
        let permit = self.0.lock().take();
        ours(async move {
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
