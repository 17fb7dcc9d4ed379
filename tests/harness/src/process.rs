//! One child process that never outlives us, and the signals we send it. All unsafe code of the harness.
//!
//! Linux can kill a child when its parent dies (`PR_SET_PDEATHSIG`), but "parent" means the *thread* that
//! forked: tests run in threads that end long before the process does. So one thread, which lives as long
//! as the process, forks for everybody.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use crate::wait::becomes_true;

type Reply = io::Result<Child>;

/// A running (or just ended) server process, leader of its own process group.
#[derive(Debug)]
pub(crate) struct Process {
    pid: i32,
    child: Mutex<Child>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Terminate,
    Kill,
    Stop,
    Continue,
}

impl Process {
    /// Starts `program` with these environment variables; whatever it prints goes to the end of `output`.
    pub(crate) fn spawn(
        program: &Path,
        args: &[OsString],
        variables: &[(&str, &str)],
        output: &Path,
    ) -> io::Result<Self> {
        Self::spawn_as(None, program, args, variables, output)
    }

    /// The same as another user, which only root may do.
    pub(crate) fn spawn_as(
        user: Option<u32>,
        program: &Path,
        args: &[OsString],
        variables: &[(&str, &str)],
        output: &Path,
    ) -> io::Result<Self> {
        let output = File::options().create(true).append(true).open(output)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        // Its own group: the fork that writes a snapshot is killed along, and a Ctrl-C at the terminal
        // reaches the tests, which then decide.
        command.process_group(0);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        hear_every_signal(&mut command);
        die_with_this_process(&mut command);
        let child = fork_from_the_lasting_thread(command)?;
        let pid = i32::try_from(child.id()).expect("a process id fits");
        Ok(Self { pid, child: Mutex::new(child) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        ended(&mut self.child())
    }

    pub(crate) fn wait_until_ended(&self, bound: Duration) -> Option<ExitStatus> {
        becomes_true(bound, || self.ended().is_some());
        self.ended()
    }

    /// Ended by one of the signals of a crash, as opposed to an exit or a kill.
    pub(crate) fn crashed(&self) -> bool {
        let signal = self.ended().and_then(|status| status.signal());
        let crashes = [libc::SIGSEGV, libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
        signal.is_some_and(|signal| crashes.contains(&signal))
    }

    pub(crate) fn send(&self, signal: Signal) {
        // Once reaped, the number may belong to somebody else; the lock keeps others from reaping meanwhile.
        let mut child = self.child();
        if ended(&mut child).is_some() {
            return;
        }
        let (target, number) = match signal {
            Signal::Terminate => (self.pid, libc::SIGTERM),
            Signal::Kill => (-self.pid, libc::SIGKILL),
            Signal::Stop => (self.pid, libc::SIGSTOP),
            Signal::Continue => (self.pid, libc::SIGCONT),
        };
        // SAFETY: kill takes two integers; the child is not reaped, so the number is still its own.
        unsafe { libc::kill(target, number) };
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.send(Signal::Kill);
        let _ = self.child().wait();
    }
}

fn ended(child: &mut Child) -> Option<ExitStatus> {
    child.try_wait().expect("a child of ours can be asked for")
}

/// A mask of ours would be the child's too, and a server that never hears SIGTERM has no orderly end.
fn hear_every_signal(command: &mut Command) {
    let unmask = || {
        // SAFETY: a zeroed set is a valid argument of sigemptyset, which initialises it; both are async-signal-safe.
        let outcome = unsafe {
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut())
        };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(unmask) };
}

#[cfg(target_os = "linux")]
fn die_with_this_process(command: &mut Command) {
    let parent = std::process::id();
    let arm = move || {
        // SAFETY: prctl with integer arguments, and getppid, are async-signal-safe and touch no memory.
        let (armed, parent_now) = unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
        if armed != 0 {
            return Err(io::Error::last_os_error());
        }
        // We died between the fork and the line above: nobody is left to send the signal.
        if parent_now.unsigned_abs() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(arm) };
}

/// Elsewhere a killed test process leaves its servers behind; drop still ends them.
#[cfg(not(target_os = "linux"))]
fn die_with_this_process(_command: &mut Command) {}

fn fork_from_the_lasting_thread(command: Command) -> Reply {
    static REQUESTS: OnceLock<mpsc::Sender<(Command, mpsc::Sender<Reply>)>> = OnceLock::new();
    let requests = REQUESTS.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<(Command, mpsc::Sender<Reply>)>();
        let serve = move || {
            for (mut command, reply) in receiver {
                let _ = reply.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("spawner".into()).spawn(serve).expect("a thread can be started");
        sender
    });
    let (reply, answered) = mpsc::channel();
    requests.send((command, reply)).expect("the spawner lives as long as the process");
    answered.recv().expect("the spawner replies every request")
}
