//! A lock that somebody holds by a connection, and that three others wait for: what happens when its key leaves?

use redis::Connection;
use resil_harness::{Options, Server};

use crate::asked::{Asked, Caller, Ear, waiters};

pub struct Scene {
    pub server: Server,
    /// For whatever the test says.
    pub connection: Connection,
    /// `a`, who holds `k`.
    pub holder: Connection,
    pub fence: u64,
    /// `w0`, `w1` and `w2`, in this order.
    pub waiters: Vec<Caller>,
    pub ear: Ear,
}

impl Scene {
    /// Their patience ends before the lease, so the key is to be looked at at two instants.
    pub fn fresh() -> Self {
        Self::with("1h")
    }

    /// Their patience ends after the lease.
    pub fn patient() -> Self {
        Self::with("40s")
    }

    fn with(lease: &str) -> Self {
        let server = Server::start(Options::default());
        let (connection, mut holder) = (server.connect(), server.connect());
        let ear = Ear::at(&server);
        let fence = holder.hold(&format!("k a {lease} BOUND"));
        let waiters = waiters(&server, "k", 3, "1h WAIT 60s");
        Self { server, connection, holder, fence, waiters, ear }
    }

    /// The first in the queue has the lock, the others wait on, and the former holder was notified once, by each way there is.
    #[track_caller]
    pub fn assert_handed_on(&mut self, reason: &str) {
        self.assert_handed_on_as(&[reason]);
    }

    /// The same where one of several reasons will do.
    #[track_caller]
    pub fn assert_handed_on_as(&mut self, reasons: &[&str]) {
        let fence = self.waiters[0].granted();
        assert!(fence > self.fence, "{fence} after {}", self.fence);
        let look = self.connection.look("k");
        assert_eq!((look.owners(), look.waiters.len()), (vec!["w0"], 2), "{look:?}");
        self.assert_reported_once(reasons);
        assert_eq!(self.holder.ask("RES.LOCK RENEW k a 1h"), "LOST taken");
        self.assert_line_goes_on(fence);
    }

    /// One event, and one heartbeat that tells.
    #[track_caller]
    pub fn assert_reported_once(&mut self, reasons: &[&str]) {
        let events: Vec<String> = reasons.iter().map(|reason| format!("k a {} {reason}", self.fence)).collect();
        let losses = self.ear.losses();
        let of_a: Vec<&String> = losses.iter().filter(|loss| loss.starts_with("k a ")).collect();
        assert!(of_a.len() == 1 && events.contains(of_a[0]), "expected one of {events:?}, heard {losses:?}");
        let beats: Vec<String> = reasons.iter().map(|reason| format!("[0, [k {} {reason}]]", self.fence)).collect();
        let beat = self.holder.ask("RES.HEARTBEAT");
        assert!(beats.contains(&beat), "{beat}");
        assert_eq!(self.holder.ask("RES.HEARTBEAT"), "[0, ]", "it is reported once");
    }

    /// The others get it one after the other.
    #[track_caller]
    pub fn assert_line_goes_on(&mut self, mut fence: u64) {
        for (index, waiter) in self.waiters.iter_mut().enumerate().skip(1) {
            let former = format!("w{}", index - 1);
            assert!(self.connection.ask(&format!("RES.LOCK RELEASE k {former}")).starts_with("RELEASED "));
            let next = waiter.granted();
            assert!(next > fence, "{next} after {fence}");
            fence = next;
        }
        assert!(self.connection.look("k").waiters.is_empty());
    }

    /// `owner` holds, all three wait.
    #[track_caller]
    pub fn assert_all_wait_for(&mut self, owner: &str) {
        // Whatever is left to do is done by a timer of no delay: give it a turn.
        for _ in 0..20 {
            self.connection.ask("PING");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let look = self.connection.look("k");
        assert_eq!(look.owners(), [owner]);
        assert_eq!(look.waiters, ["w0", "w1", "w2"]);
    }
}
