//! What may befall a server: a pause, an orderly end, a crash, and coming back on the same data.

use std::process::ExitStatus;
use std::time::Duration;

use crate::command::reply;
use crate::process::Signal;
use crate::server::Server;

/// An orderly shutdown waits up to 10 s for lagging replicas (shutdown-timeout), then saves.
const END_BOUND: Duration = Duration::from_secs(30);

impl Server {
    /// The crash: no goodbye, nothing saved.
    pub fn kill9(&mut self) {
        self.end_by(Signal::Kill);
    }

    /// The orderly end by SIGTERM, as service managers do it.
    pub fn terminate(&mut self) -> ExitStatus {
        self.resume();
        self.end_by(Signal::Terminate)
    }

    /// Frozen: connections stay open and nothing replies, as in a long stall of the machine.
    pub fn pause(&self) {
        self.running().send(Signal::Stop);
    }

    pub fn resume(&self) {
        self.running().send(Signal::Continue);
    }

    /// After `kill9` or `terminate`: starts on the same folder, and on the same port if that is still free.
    pub fn start_again(&mut self) {
        assert!(!self.is_alive(), "the server still runs");
        self.launch();
    }

    /// Down by SHUTDOWN SAVE and up again: everything that can be saved is there.
    pub fn restart_after_save(&mut self) {
        // The reply to a shutdown is a closed connection; whether it ended is seen below.
        let _ = reply(&mut self.connect(), &["SHUTDOWN", "SAVE"]);
        self.wait_until_ended();
        self.launch();
    }

    /// Down by SIGTERM and up again: what the configuration says is saved is there.
    pub fn restart_after_terminate(&mut self) {
        self.terminate();
        self.launch();
    }

    /// Down by SIGKILL and up again: only what was on disk is there.
    pub fn restart_after_kill(&mut self) {
        self.kill9();
        self.launch();
    }

    fn end_by(&mut self, signal: Signal) -> ExitStatus {
        self.running().send(signal);
        self.wait_until_ended()
    }

    fn wait_until_ended(&mut self) -> ExitStatus {
        let Some(status) = self.running().wait_until_ended(END_BOUND) else {
            self.fail(&format!("did not end within {END_BOUND:?}"))
        };
        if self.running().crashed() {
            self.fail(&format!("crashed instead of ending: {status}"));
        }
        self.process = None;
        status
    }
}
