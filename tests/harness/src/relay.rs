//! A stretch of network between a client and a server of any protocol: it can be cut, delayed, frozen and closed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const FINE: u8 = 0;
/// Nothing passes, and nobody is notified.
const FROZEN: u8 = 1;
/// Nobody gets in.
const CLOSED: u8 = 2;
/// How often a frozen connection looks whether it may go on.
const LOOK: Duration = Duration::from_millis(5);
const CONNECT_BOUND: Duration = Duration::from_secs(2);

/// Carries connections to a port of this machine, until it is dropped.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    weather: AtomicU8,
    delay_us: AtomicU64,
    is_gone: AtomicBool,
    carried: AtomicU64,
    /// Of connections with lower numbers nothing passes.
    left_behind: AtomicU64,
    /// Of this one nothing passes: its number, and one more. 0: there is none.
    silenced: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Relay {
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let own = listener.local_addr().expect("a bound listener").port();
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for inner in listener.incoming().flatten() {
                if serving.is_gone.load(Ordering::Relaxed) {
                    return;
                }
                if serving.weather.load(Ordering::Relaxed) != CLOSED {
                    let serving = Arc::clone(&serving);
                    thread::spawn(move || carry(inner, port, &serving));
                }
            }
        });
        Self { port: own, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Connections that were carried so far.
    pub fn carried(&self) -> u64 {
        self.shared.carried.load(Ordering::Relaxed)
    }

    /// Ends every connection.
    pub fn cut(&self) {
        for stream in self.shared.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Ends every connection and lets nobody in.
    pub fn close(&self) {
        self.shared.weather.store(CLOSED, Ordering::Relaxed);
        self.cut();
    }

    /// Nothing passes, neither bytes nor the end of a connection.
    pub fn freeze(&self) {
        self.shared.weather.store(FROZEN, Ordering::Relaxed);
    }

    /// Of the connections there are nothing passes, for good; new ones are fine.
    pub fn freeze_those_there_are(&self) {
        self.shared.left_behind.store(self.carried(), Ordering::Relaxed);
    }

    /// Of the latest connection nothing passes, for good; the others are fine.
    pub fn freeze_the_latest(&self) {
        self.shared.silenced.store(self.carried(), Ordering::Relaxed);
    }

    /// Whatever passes takes this long, in each direction.
    pub fn delay(&self, by: Duration) {
        self.shared.delay_us.store(by.as_micros() as u64, Ordering::Relaxed);
    }

    /// As if nothing had been.
    pub fn open(&self) {
        self.shared.delay_us.store(0, Ordering::Relaxed);
        self.shared.weather.store(FINE, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_gone.store(true, Ordering::Relaxed);
        self.open();
        self.cut();
        // Wakes the thread that accepts, which then ends.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn carry(inner: TcpStream, port: u16, shared: &Arc<Shared>) {
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(outer) = TcpStream::connect_timeout(&target, CONNECT_BOUND) else { return };
    let _ = (inner.set_nodelay(true), outer.set_nodelay(true));
    let both = [inner.try_clone(), outer.try_clone()];
    let [Ok(inner_too), Ok(outer_too)] = both else { return };
    let number = shared.carried.fetch_add(1, Ordering::Relaxed);
    {
        let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|stream| stream.peer_addr().is_ok());
        open.extend([inner.try_clone(), outer.try_clone()].into_iter().flatten());
    }
    let there = Arc::clone(shared);
    let back = Arc::clone(shared);
    thread::spawn(move || one_way(inner_too, outer_too, number, &there));
    one_way(outer, inner, number, &back);
}

fn one_way(mut from: TcpStream, mut to: TcpStream, number: u64, shared: &Shared) {
    let mut bytes = [0; 64 * 1024];
    loop {
        let count = from.read(&mut bytes).unwrap_or(0);
        let is_frozen = || {
            let is_left_behind = number < shared.left_behind.load(Ordering::Relaxed)
                || number + 1 == shared.silenced.load(Ordering::Relaxed);
            !shared.is_gone.load(Ordering::Relaxed)
                && (is_left_behind || shared.weather.load(Ordering::Relaxed) == FROZEN)
        };
        while is_frozen() {
            thread::sleep(LOOK);
        }
        let delay = shared.delay_us.load(Ordering::Relaxed);
        if delay > 0 {
            thread::sleep(Duration::from_micros(delay));
        }
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            return;
        }
    }
}
