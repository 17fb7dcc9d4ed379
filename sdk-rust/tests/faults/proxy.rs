//! A stretch of network between a client and its server: it can be cut, closed, and frozen.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use resil_harness::Server;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fine,
    /// Nothing passes, neither bytes nor the end of a connection; nobody is told.
    Frozen,
    /// Nobody gets in.
    Closed,
}

#[derive(Debug, Clone, Copy)]
struct State {
    weather: Weather,
    /// Connections made before are cut.
    era: u64,
}

pub struct Proxy {
    address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn to(server: &Server) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let target = server.port();
        let state = Arc::new(watch::Sender::new(State { weather: Weather::Fine, era: 0 }));
        let accepting = tokio::spawn({
            let state = Arc::clone(&state);
            async move {
                loop {
                    let Ok((inner, _)) = listener.accept().await else { return };
                    if state.borrow().weather == Weather::Closed {
                        continue;
                    }
                    let Ok(outer) = TcpStream::connect(("127.0.0.1", target)).await else { continue };
                    tokio::spawn(carry(inner, outer, state.subscribe()));
                }
            }
        });
        Self { address, state, accepting }
    }

    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Ends every connection.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.era += 1);
    }

    /// Ends every connection and lets nobody in.
    pub fn close(&self) {
        self.state.send_modify(|state| *state = State { weather: Weather::Closed, era: state.era + 1 });
    }

    pub fn freeze(&self) {
        self.state.send_modify(|state| state.weather = Weather::Frozen);
    }

    pub fn clear_up(&self) {
        self.state.send_modify(|state| state.weather = Weather::Fine);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn carry(inner: TcpStream, outer: TcpStream, mut state: watch::Receiver<State>) {
    let era = state.borrow_and_update().era;
    let (inner_read, inner_write) = inner.into_split();
    let (outer_read, outer_write) = outer.into_split();
    let (there, back) = (state.clone(), state.clone());
    tokio::select! {
        () = one_way(inner_read, outer_write, there) => {}
        () = one_way(outer_read, inner_write, back) => {}
        _ = state.wait_for(|state| state.era != era) => {}
    }
}

/// Until one side ends; what is read during a frost arrives after it.
async fn one_way(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut state: watch::Receiver<State>,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await.unwrap_or(0);
        let _ = state.wait_for(|state| state.weather != Weather::Frozen).await;
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
