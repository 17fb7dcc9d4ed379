//! Real servers for tests in other languages: requests come as lines of JSON, each gets one line back, in order.
//!
//! ```text
//! {"do":"start","options":{"module_args":["test-clock","yes"]}}  {"id":1,"url":"redis://127.0.0.1:40001","port":40001,"pid":7}
//! {"do":"say","id":1,"words":["RES._CLOCK","4102444800000000"]}  {"reply":"OK"}
//! {"do":"kill","id":1}                                           {"id":1}
//! {"do":"restart","id":1}                                        {"id":1,"url":"redis://127.0.0.1:40001",…}
//! {"do":"dance"}                                                 {"error":"unknown variant `dance`, expected one of …"}
//! ```
//!
//! 1. All servers end with this program, and it ends when its input does, or on SIGTERM, SIGINT or SIGHUP.
//! 2. A request that cannot be met is answered with an `error`, and everything else goes on.
//! 3. A server that crashed is reported by the request that finds it so, or else by the exit code (1) at the end.
//!
//! `request.rs` has every request with its fields. `servers.py` and `servers.mjs` beside this crate speak the lines.

mod request;
mod room;
mod word;

use std::io::{self, BufRead, Write};
use std::sync::mpsc;

use room::Room;

fn main() {
    // Before any thread exists, so that all of them leave these signals to the one that waits for them.
    let signals = block_ending_signals();
    // What the harness has to say it says in panics; each becomes a reply, so nothing is printed twice.
    std::panic::set_hook(Box::new(|_| ()));
    let mut room = Room::default();
    for line in lines_until_the_end(signals) {
        let reply = room.reply(&line);
        // A reader that is gone is no reason to panic: its end of our input is closed too.
        let mut output = io::stdout().lock();
        let _ = writeln!(output, "{reply}").and_then(|()| output.flush());
    }
    if let Err(crash) = room.close() {
        eprintln!("{crash}");
        std::process::exit(1);
    }
}

/// The lines of the input, until it ends or a signal says so.
fn lines_until_the_end(signals: libc::sigset_t) -> impl Iterator<Item = String> {
    let (sender, receiver) = mpsc::channel();
    let signalled = sender.clone();
    std::thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
            let _ = sender.send(Some(String::from_utf8_lossy(&line).into_owned()));
        }
        let _ = sender.send(None);
    });
    std::thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: the set is initialised and its signals are blocked in every thread.
        unsafe { libc::sigwait(&signals, &mut signal) };
        let _ = signalled.send(None);
    });
    receiver.into_iter().map_while(|line| line).filter(|line| !line.trim().is_empty())
}

fn block_ending_signals() -> libc::sigset_t {
    // SAFETY: a zeroed set is a valid argument of sigemptyset, which initialises it; the calls after it
    // only read or write that set.
    unsafe {
        let mut signals = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
        signals
    }
}
