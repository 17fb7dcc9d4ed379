//! A stretch of network between a client and its server: it can be cut on one side or both, closed, and frozen in one direction or
//! both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use resil_harness::Server;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fine,
    /// Nothing passes in these directions, neither bytes nor the end of a connection; nobody is notified.
    Frozen(Way),
    /// Nobody gets in.
    Closed,
}

/// Which way something goes, or which side it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
    Both,
}

impl Way {
    fn includes(self, other: Self) -> bool {
        self == Self::Both || self == other
    }
}

#[derive(Debug, Clone, Copy)]
struct State {
    weather: Weather,
    /// Connections made before are cut, on both sides or on one of them: then the other one is not notified.
    era: u64,
    server_era: u64,
    client_era: u64,
}

impl State {
    /// On which side a connection that was made in `born` is cut.
    fn cut_since(&self, born: &Self) -> Option<Way> {
        match self {
            _ if self.era != born.era => Some(Way::Both),
            _ if self.server_era != born.server_era => Some(Way::ToServer),
            _ if self.client_era != born.client_era => Some(Way::ToClient),
            _ => None,
        }
    }
}

pub struct Proxy {
    address: SocketAddr,
    target: Arc<AtomicU16>,
    state: Arc<watch::Sender<State>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn to(server: &Server) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let target = Arc::new(AtomicU16::new(server.port()));
        let fine = State { weather: Weather::Fine, era: 0, server_era: 0, client_era: 0 };
        let state = Arc::new(watch::Sender::new(fine));
        let accepting = tokio::spawn({
            let (state, target) = (Arc::clone(&state), Arc::clone(&target));
            async move {
                loop {
                    let Ok((inner, _)) = listener.accept().await else { return };
                    if state.borrow().weather == Weather::Closed {
                        continue;
                    }
                    // It is connected to later if the server does not accept now.
                    tokio::spawn(carry(inner, target.load(SeqCst), state.subscribe()));
                }
            }
        });
        Self { address, target, state, accepting }
    }

    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Ends every connection; the next ones are to another server.
    pub fn turn_to(&self, server: &Server) {
        self.target.store(server.port(), SeqCst);
        self.cut();
    }

    /// Ends every connection.
    pub fn cut(&self) {
        self.cut_at(Way::Both);
    }

    /// Resets every connection on one side, or on both.
    pub fn cut_at(&self, side: Way) {
        self.state.send_modify(|state| match side {
            Way::Both => state.era += 1,
            Way::ToServer => state.server_era += 1,
            Way::ToClient => state.client_era += 1,
        });
    }

    /// Ends every connection and lets nobody in.
    pub fn close(&self) {
        self.state.send_modify(|state| (state.weather, state.era) = (Weather::Closed, state.era + 1));
    }

    pub fn freeze(&self) {
        self.freeze_way(Way::Both);
    }

    pub fn freeze_way(&self, way: Way) {
        self.state.send_modify(|state| state.weather = Weather::Frozen(way));
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

async fn carry(mut inner: TcpStream, target: u16, mut state: watch::Receiver<State>) {
    let born = *state.borrow_and_update();
    let Ok(mut outer) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    // Both sides are closed by a reset, as by a machine that knows of no connection.
    let _ = (inner.set_zero_linger(), outer.set_zero_linger());
    let cut = {
        let ((inner_read, inner_write), (outer_read, outer_write)) = (inner.split(), outer.split());
        let (there, back) = (state.clone(), state.clone());
        tokio::select! {
            () = one_way(inner_read, outer_write, Way::ToServer, there) => Way::Both,
            () = one_way(outer_read, inner_write, Way::ToClient, back) => Way::Both,
            cut = state.wait_for(|state| state.cut_since(&born).is_some()) => {
                cut.ok().and_then(|state| state.cut_since(&born)).unwrap_or(Way::Both)
            }
        }
    };
    let kept = match cut {
        Way::Both => return,
        Way::ToServer => inner,
        Way::ToClient => outer,
    };
    // The other side learns nothing until everything is cut.
    let _ = state.wait_for(|state| state.era != born.era).await;
    drop(kept);
}

/// Until one side ends; what is read during a frost arrives after it.
async fn one_way(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, way: Way, mut state: watch::Receiver<State>) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await.unwrap_or(0);
        let is_frozen = |state: &State| matches!(state.weather, Weather::Frozen(frozen) if frozen.includes(way));
        let _ = state.wait_for(|state| !is_frozen(state)).await;
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
