//! Connecting, and the handle from which everything is made. How, is in the file of each: `makes!`.

use napi::bindgen_prelude::Env;
use napi_derive::napi;
use resil::client::{READY_WITHIN, SHUTDOWN_DEADLINE};
use resil::{ConnectSettings, Error, Notice};

use crate::convert::{methods, now, optional_duration, run, settings, shown};
use crate::executor::queue::{Message, Notification};
use crate::executor::{Word, home, queue};
use crate::testing::TestClock;

/// Under this number JavaScript hears of servers that are away, or refuse a command.
const NOTICES: u32 = 0;

#[napi]
pub struct Client(pub(crate) resil::Client);

#[napi]
pub fn connect(url: String, said: String, clock: Option<&TestClock>) -> napi::Result<Word> {
    let clock = clock.map(|clock| clock.0.clone());
    let (queue, home) = (queue()?, home());
    run(async move {
        let settings: ConnectSettings = settings(&said)?;
        let Some(runtime) = crate::runtime::runtime() else {
            return Err(Error::Internal("no threads can be started".to_owned()));
        };
        let hear = move |notice: &Notice| {
            let notification = match notice.clone() {
                Notice::Away { address, reason } => Notification::Away { address, reason },
                Notice::Refused { address, reason } => Notification::Refused { address, reason },
                Notice::Back { address } => Notification::Back { address },
                Notice::Outlived { policy, took } => Notification::Outlived { policy, took },
                Notice::SourceAway { name, address, reason } => Notification::SourceAway { name, address, reason },
                Notice::SourceBack { name, address } => Notification::SourceBack { name, address },
                Notice::NotRecorded { worker, id, reason } => Notification::NotRecorded { worker, id, reason },
                Notice::Dead { worker, id, deaths, reason } => {
                    Notification::Dead { worker, id, deaths, reason: reason.text() }
                }
            };
            queue.post(Message::Notify(NOTICES, notification));
        };
        let settings =
            settings.url(url).runtime(runtime.handle().clone()).on_notice(hear).on_behalf_of("resil-node", home);
        clock.into_iter().fold(settings, ConnectSettings::clock).connect().await.map(Client)
    })
}

#[napi]
impl Client {
    /// As JSON.
    #[napi]
    pub fn health(&self, env: Env) -> napi::Result<String> {
        now(&env, shown(&self.0.health()))
    }

    #[napi(getter)]
    pub fn is_shutting_down(&self) -> bool {
        self.0.is_shutting_down()
    }
}

methods! { Client(client) {
    /// Until the server can be reached.
    wait_ready(within: Option<String>) => {
        client.wait_ready(optional_duration("within", within.as_deref())?.unwrap_or(READY_WITHIN)).await
    };
    /// Its report as JSON, and whether it is clean.
    shutdown(deadline: Option<String>) => {
        let deadline = optional_duration("deadline", deadline.as_deref())?.unwrap_or(SHUTDOWN_DEADLINE);
        let report = client.shutdown(deadline).await;
        Ok(vec![shown(&report)?, report.is_clean().to_string()])
    };
} }
