//! A server with the module for tests in other languages.
//!
//! Prints one line of JSON when ready, `{"port":…,"pid":…,"url":"…"}`, and stays until its input closes or
//! it is told to end (SIGTERM, SIGINT, SIGHUP). The server ends with it, however it ends.

use std::io::{self, Read, Write};
use std::sync::mpsc;

use resil_harness::{Flavor, Options, Server};

const USAGE: &str = "usage: serve [option ...]     ends when its input closes
  --server NAME          a folder of target/servers; else RESIL_SERVER, else redis-7.0
  --module-arg ARG       one more argument for the module
  --config 'NAME VALUE'  one more line of redis.conf
  --without-module       a plain server
  --replica              a second server that replicates the first; the JSON has it as \"replica\"";

struct Wishes {
    options: Options,
    with_replica: bool,
}

fn main() {
    let wishes = match parse(std::env::args().skip(1)) {
        Ok(Some(wishes)) => wishes,
        Ok(None) => return println!("{USAGE}"),
        Err(problem) => {
            eprintln!("serve: {problem}\n{USAGE}");
            std::process::exit(2);
        }
    };
    // Before any thread exists, so that all of them leave these signals to the one that waits for them.
    let signals = block_ending_signals();
    let server = Server::start(wishes.options.clone());
    let replica = wishes.with_replica.then(|| Server::replica_of(&server, wishes.options));
    let described = match &replica {
        None => format!("{{{}}}", fields(&server)),
        Some(replica) => format!("{{{},\"replica\":{{{}}}}}", fields(&server), fields(replica)),
    };
    // A reader that is gone already is no reason to panic: its end of our input is closed too.
    let _ = writeln!(io::stdout(), "{described}").and_then(|()| io::stdout().flush());
    wait_for_the_end(signals);
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Wishes>, String> {
    let mut wishes = Wishes { options: Options::default(), with_replica: false };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let options = wishes.options;
        wishes.options = match word.as_str() {
            "--server" => options.flavor(Flavor::named(&value()?)),
            "--module-arg" => options.module_arg(value()?),
            "--config" => {
                let line = value()?;
                let (name, value) = line.split_once(' ').ok_or(format!("--config {line:?} has no value"))?;
                options.config(name, value)
            }
            "--without-module" => options.without_module(),
            "--replica" => {
                wishes.with_replica = true;
                options
            }
            "-h" | "--help" => return Ok(None),
            _ => return Err(format!("unknown option {word:?}")),
        };
    }
    Ok(Some(wishes))
}

/// Numbers and an address of our own making: nothing in them needs escaping.
fn fields(server: &Server) -> String {
    format!("\"port\":{},\"pid\":{},\"url\":\"{}\"", server.port(), server.pid(), server.url())
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

fn wait_for_the_end(signals: libc::sigset_t) {
    let (ended, end) = mpsc::channel();
    let input_ended = ended.clone();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
        let _ = input_ended.send(());
    });
    std::thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: the set is initialised and its signals are blocked in every thread.
        unsafe { libc::sigwait(&signals, &mut signal) };
        let _ = ended.send(());
    });
    let _ = end.recv();
}
