//! The servers that are there, by number, and what is answered to each request.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use resil_harness::{Postgres, RabbitMq, Server, error_line, reply, wait_for_sync, wait_until_counted};
use serde_json::{Value, json};

use crate::request::Request;
use crate::word::{Word, json_of};

/// What is no server of ours.
enum Broker {
    Rabbit(RabbitMq),
    Postgres(Postgres),
}

impl Broker {
    fn url(&self) -> String {
        match self {
            Self::Rabbit(rabbit) => rabbit.url(),
            Self::Postgres(postgres) => postgres.url(),
        }
    }

    fn kill(&mut self) {
        match self {
            Self::Rabbit(rabbit) => rabbit.kill(),
            Self::Postgres(postgres) => postgres.kill(),
        }
    }

    fn restart(&mut self) {
        match self {
            Self::Rabbit(rabbit) => rabbit.restart(),
            Self::Postgres(postgres) => postgres.restart(),
        }
    }
}

#[derive(Default)]
pub struct Room {
    servers: BTreeMap<u64, Server>,
    brokers: BTreeMap<u64, Broker>,
    last_id: u64,
}

impl Room {
    pub fn reply(&mut self, line: &str) -> Value {
        let answered = serde_json::from_str(line)
            .map_err(|error| error.to_string())
            .and_then(|request| without_panic(|| self.meet(request)))
            .and_then(|reply| reply);
        answered.unwrap_or_else(|error| json!({ "error": error }))
    }

    /// Ends all that is left, and says which of them had crashed.
    pub fn close(self) -> Result<(), String> {
        let outcomes = self.servers.into_values().map(|server| without_panic(|| drop(server)));
        let crashes: Vec<String> = outcomes.filter_map(Result::err).collect();
        if crashes.is_empty() { Ok(()) } else { Err(crashes.join("\n")) }
    }

    fn meet(&mut self, request: Request) -> Result<Value, String> {
        match request {
            Request::Start { options } => Ok(self.keep(Server::start(options.into_options()))),
            Request::Replica { of, options } => {
                let primary = self.server(of)?;
                let replica = Server::replica_of(primary, options.into_options());
                wait_until_counted(primary, &replica);
                Ok(self.keep(replica))
            }
            Request::Sync { id, replica } => {
                let [primary, replica] = [id, replica].map(|id| self.servers.get(&id).ok_or_else(|| unknown(id)));
                wait_for_sync(primary?, replica?);
                Ok(json!({ "id": id }))
            }
            Request::Kill { id } => {
                self.running(id)?.kill9();
                Ok(json!({ "id": id }))
            }
            Request::Restart { id } => {
                let server = self.server(id)?;
                if server.is_alive() {
                    server.kill9();
                }
                server.start_again();
                Ok(described(id, server))
            }
            Request::RestartOrderly { id } => {
                let server = self.running(id)?;
                server.restart_after_terminate();
                Ok(described(id, server))
            }
            Request::Pause { id } => {
                self.running(id)?.pause();
                Ok(json!({ "id": id }))
            }
            Request::Resume { id } => {
                self.running(id)?.resume();
                Ok(json!({ "id": id }))
            }
            Request::Say { id, words, resp3 } => said(self.running(id)?, words, resp3),
            Request::Rabbit => Ok(self.keep_broker(Broker::Rabbit(RabbitMq::start()))),
            Request::Postgres => Ok(self.keep_broker(Broker::Postgres(Postgres::start()))),
            Request::KillBroker { id } => {
                self.broker(id)?.kill();
                Ok(json!({ "id": id }))
            }
            Request::RestartBroker { id } => {
                self.broker(id)?.restart();
                Ok(json!({ "id": id }))
            }
            Request::Registered { id, queue } => match self.broker(id)? {
                Broker::Rabbit(rabbit) => {
                    rabbit.wait_until_registered(&queue);
                    Ok(json!({ "id": id }))
                }
                Broker::Postgres(_) => Err(format!("{id} has no queues")),
            },
            Request::Log { id } => Ok(json!({ "id": id, "log": self.server(id)?.log() })),
            Request::Stop { id } => {
                drop(self.servers.remove(&id).ok_or_else(|| unknown(id))?);
                Ok(json!({ "id": id }))
            }
        }
    }

    fn keep(&mut self, server: Server) -> Value {
        self.last_id += 1;
        let description = described(self.last_id, &server);
        self.servers.insert(self.last_id, server);
        description
    }

    fn keep_broker(&mut self, broker: Broker) -> Value {
        self.last_id += 1;
        let description = json!({ "id": self.last_id, "url": broker.url() });
        self.brokers.insert(self.last_id, broker);
        description
    }

    fn broker(&mut self, id: u64) -> Result<&mut Broker, String> {
        self.brokers.get_mut(&id).ok_or_else(|| unknown(id))
    }

    fn server(&mut self, id: u64) -> Result<&mut Server, String> {
        self.servers.get_mut(&id).ok_or_else(|| unknown(id))
    }

    fn running(&mut self, id: u64) -> Result<&mut Server, String> {
        let server = self.server(id)?;
        if server.is_alive() { Ok(server) } else { Err(format!("server {id} does not run")) }
    }
}

fn unknown(id: u64) -> String {
    format!("there is no server {id}")
}

fn described(id: u64, server: &Server) -> Value {
    let url = format!("redis://127.0.0.1:{}", server.port());
    json!({ "id": id, "url": url, "port": server.port(), "pid": server.pid() })
}

fn said(server: &Server, words: Vec<Word>, resp3: bool) -> Result<Value, String> {
    if words.is_empty() {
        return Err("words are empty".to_owned());
    }
    let words = words.into_iter().map(Word::into_bytes).collect::<Result<Vec<_>, _>>()?;
    let mut connection = if resp3 { server.connect_resp3() } else { server.connect() };
    match reply(&mut connection, &words) {
        Ok(value) => Ok(json!({ "reply": json_of(&value) })),
        Err(error) if error.code().is_some() => Ok(json!({ "refusal": error_line(&error) })),
        Err(error) => Err(error.to_string()),
    }
}

/// The harness is made for tests, which end where they fail; here the next request is still to be met.
fn without_panic<T>(action: impl FnOnce() -> T) -> Result<T, String> {
    // What a panic leaves half done is one server, and every request looks at its state anew.
    catch_unwind(AssertUnwindSafe(action)).map_err(|panic| message_of(panic.as_ref()))
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
