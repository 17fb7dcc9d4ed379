//! Connecting, and the handle from which everything is made.

use napi::bindgen_prelude::Env;
use napi_derive::napi;
use resil::settings::ConnectSettings;
use resil::{ConnectOptions, Error, Notice};

use crate::convert::{now, ours, settings, shown, span};
use crate::executor::mailbox::{Event, Letter};
use crate::executor::{Word, mailbox};
use crate::testing::TestClock;

/// Under this number JavaScript hears of servers that are away.
const NOTICES: u32 = 0;

#[napi]
pub struct Client(pub(crate) resil::Client);

#[napi]
pub fn connect(env: Env, url: String, said: String, clock: Option<&TestClock>) -> napi::Result<Word> {
    let settings: ConnectSettings = now(&env, settings(&said))?;
    let clock = clock.map(|clock| clock.0.clone());
    let mailbox = mailbox()?;
    ours(async move {
        let Some(runtime) = crate::runtime::runtime() else {
            return Err(Error::Internal("no threads can be started".to_owned()));
        };
        let hear = move |notice: &Notice| {
            if let Notice::Away { address, reason } = notice {
                let event = Event::Away { address: address.clone(), reason: reason.clone() };
                mailbox.post(Letter::Event(NOTICES, event));
            }
        };
        let options = settings.options(&url)?.runtime(runtime.handle().clone()).on_notice(hear);
        clock.into_iter().fold(options, ConnectOptions::clock).connect().await.map(Client)
    })
}

#[napi]
impl Client {
    /// As JSON.
    #[napi]
    pub fn health(&self, env: Env) -> napi::Result<String> {
        now(&env, shown(&self.0.health()))
    }

    /// Until the server can be reached.
    #[napi]
    pub fn wait_ready(&self, env: Env, within: String) -> napi::Result<Word> {
        let within = now(&env, span("within", &within))?;
        let client = self.0.clone();
        ours(async move { client.wait_ready(within).await })
    }

    #[napi(getter)]
    pub fn is_shutting_down(&self) -> bool {
        self.0.is_shutting_down()
    }

    /// Fails when a shutdown gives up what is still in flight.
    #[napi]
    pub fn cut_off(&self) -> napi::Result<Word> {
        let client = self.0.clone();
        ours(async move {
            client.cut_off().await;
            Err::<(), _>(Error::ShuttingDown)
        })
    }

    /// Its report as JSON, and whether it is clean.
    #[napi]
    pub fn shutdown(&self, env: Env, deadline: String) -> napi::Result<Word> {
        let deadline = now(&env, span("deadline", &deadline))?;
        let client = self.0.clone();
        ours(async move {
            let report = client.shutdown(deadline).await;
            Ok(vec![shown(&report)?, report.is_clean().to_string()])
        })
    }
}
