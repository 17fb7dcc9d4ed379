//! Waking an asyncio event loop from threads that do not have the GIL.
//!
//! A thread of the runtime must never wait for the GIL: it carries everybody's commands. So a wake is a push to a queue,
//! and one byte into a socket that the loop watches, unless the loop was woken already. The loop then takes the whole queue
//! at once. A loop that cannot watch a socket (Windows' proactor) is woken by a thread that may wait.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Duration;

use pyo3::exceptions::PyNotImplementedError;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use resil::CancellationToken;

use crate::edge::call_method1;
use crate::prelude::*;

/// How long a loop may take from cancelling its tasks to its end.
const ENDING: Duration = Duration::from_secs(1);

/// What the loop's own thread is asked to do.
type Job = Box<dyn FnOnce(Python<'_>) + Send>;

enum Woken {
    Waiter(Arc<Waiter>),
    Job(Job),
}

/// An event loop, as far as it has to be woken.
pub struct EventLoop {
    generation: Generation,
    queue: Mutex<Vec<Woken>>,
    /// Set when the loop watches no more: nothing that is pushed from then on is ever done.
    ended: CancellationToken,
    /// Whether the loop was woken and has not come yet.
    is_notified: AtomicBool,
    tell: Signal,
    /// The loop has come.
    hear: Signal,
}

type Signal = Box<dyn Fn() + Send + Sync>;

thread_local! {
    /// The loop that ran on this thread last.
    static LAST: RefCell<Option<(Object, Arc<EventLoop>)>> = const { RefCell::new(None) };
}

/// The loop that runs on this thread, if one does.
pub fn running(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let found = imported!(py, "asyncio", "_get_running_loop")?.call0()?;
    Ok((!found.is_none()).then_some(found))
}

impl EventLoop {
    /// The one that runs on this thread; the error of asyncio if none does.
    pub fn current(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Arc<Self>)> {
        let running = imported!(py, "asyncio", "get_running_loop")?.call0()?;
        let known = LAST.with_borrow(|last| match last {
            Some((of, event_loop)) if of.is(&running) => Some(Arc::clone(event_loop)),
            _ => None,
        });
        if let Some(known) = known {
            return Ok((running, known));
        }
        let made = Self::watched_by(&running)?;
        let former = LAST.replace(Some((running.clone().unbind(), Arc::clone(&made))));
        drop(former);
        Ok((running, made))
    }

    /// Where functions of this kind run: the loop that runs here for a coroutine function, a thread for any other.
    pub fn of(py: Python<'_>, kind: Kind) -> PyResult<Option<Arc<Self>>> {
        (kind == Kind::Coroutine).then(|| Ok(Self::current(py)?.1)).transpose()
    }

    fn watched_by(running: Arg<'_>) -> PyResult<Arc<Self>> {
        #[cfg(unix)]
        match Self::with_socket(running) {
            Err(error) if error.is_instance_of::<PyNotImplementedError>(running.py()) => {}
            made => return made,
        }
        Self::with_thread(running)
    }

    fn new(tell: Signal, hear: Signal) -> Arc<Self> {
        let (queue, ended, is_notified) = (Mutex::default(), CancellationToken::new(), AtomicBool::new(false));
        Arc::new(Self { generation: Generation::now(), queue, ended, is_notified, tell, hear })
    }

    #[cfg(unix)]
    fn with_socket(running: Arg<'_>) -> PyResult<Arc<Self>> {
        use std::os::fd::AsRawFd;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let watched = theirs.as_raw_fd();
        // A full socket has been heard, too; a closed one has nobody behind it.
        let tell = move || drop(std::io::Write::write(&mut &ours, &[1]));
        let hear = move || {
            let mut bytes = [0; 64];
            while matches!(std::io::Read::read(&mut &theirs, &mut bytes), Ok(read) if read == bytes.len()) {}
        };
        let made = Self::new(Box::new(tell), Box::new(hear));
        // The loop keeps the drain, and with it the sockets, for as long as it watches.
        let drain = Py::new(running.py(), Drain(Arc::clone(&made)))?;
        running.call_method1("add_reader", (watched, drain))?;
        Ok(made)
    }

    fn with_thread(running: Arg<'_>) -> PyResult<Arc<Self>> {
        let (tell, notices) = std::sync::mpsc::channel();
        let made = Self::new(Box::new(move || _ = tell.send(())), Box::new(|| ()));
        let (event_loop, drain) = (running.clone().unbind(), Py::new(running.py(), Drain(Arc::clone(&made)))?);
        std::thread::Builder::new().name("resil-wake".to_owned()).spawn(move || {
            while notices.recv().is_ok() {
                let tell = |py: Python<'_>| {
                    let drain = drain.clone_ref(py).into_any();
                    call_method1(event_loop.bind(py), intern!(py, "call_soon_threadsafe"), drain).is_ok()
                };
                if Python::try_attach(tell) != Some(true) {
                    return;
                }
            }
        })?;
        Ok(made)
    }

    /// Has the loop's thread do something, soon.
    pub fn later(&self, job: impl FnOnce(Python<'_>) + Send + 'static) {
        self.push(Woken::Job(Box::new(job)));
    }

    /// Whether the loop has ended, or does so within moments: `asyncio.run` cancels all tasks first.
    pub async fn ends_soon(&self) -> bool {
        tokio::time::timeout(ENDING, self.ended.cancelled()).await.is_ok()
    }

    /// What waits to be done is dropped, and those who wait for it learn that.
    fn end(&self) {
        // To end the one of the parent would wake tasks of its runtime.
        if !self.generation.is_here() {
            return;
        }
        let dropped = {
            let mut queue = self.queue.lock();
            self.ended.cancel();
            std::mem::take(&mut *queue)
        };
        for woken in dropped {
            if let Woken::Waiter(waiter) = woken {
                listeners::abandon(waiter);
            }
        }
    }

    fn push(&self, woken: Woken) {
        // Nobody comes for it in a child, and the loop of the parent must not be woken.
        if !self.generation.is_here() {
            return std::mem::forget(woken);
        }
        {
            let mut queue = self.queue.lock();
            if self.ended.is_cancelled() {
                drop(queue);
                return match woken {
                    // What it waited for may be there (a lock), and nobody comes for it.
                    Woken::Waiter(waiter) => listeners::abandon(waiter),
                    Woken::Job(job) => drop(job),
                };
            }
            queue.push(woken);
        }
        if !self.is_notified.swap(true, Ordering::AcqRel) {
            (self.tell)();
        }
    }

    fn take(&self) -> Vec<Woken> {
        (self.hear)();
        // What is pushed from here on tells the loop again.
        self.is_notified.store(false, Ordering::Release);
        std::mem::take(&mut *self.queue.lock())
    }
}

/// What the loop calls when it was woken. The loop alone holds it, so it goes when the loop is closed.
#[pyclass(frozen)]
struct Drain(Arc<EventLoop>);

impl Drop for Drain {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[pymethods]
impl Drain {
    fn __call__(&self, py: Python<'_>) {
        for woken in self.0.take() {
            match woken {
                Woken::Waiter(waiter) => waiter.resume(py),
                Woken::Job(job) => job(py),
            }
        }
    }
}

/// A task that waits on a loop for one pending call.
pub struct Waiter {
    home: Arc<EventLoop>,
    /// Woken since it was last polled.
    is_woken: AtomicBool,
    is_queued: AtomicBool,
    on: Mutex<WaitsOn>,
}

enum WaitsOn {
    Nothing,
    /// A future of asyncio that is resolved by a wake.
    Future(Object),
    /// What a coroutine of the user's waits on: it is looked whether that is still wanted.
    Theirs(Py<PyWeakrefReference>),
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.home.push(Woken::Waiter(Arc::clone(self)));
        }
    }
}

impl Waiter {
    pub fn new(py: Python<'_>) -> PyResult<Arc<Self>> {
        let (_, home) = EventLoop::current(py)?;
        let (is_woken, is_queued) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Arc::new(Self { home, is_woken, is_queued, on: Mutex::new(WaitsOn::Nothing) }))
    }

    pub fn take_woken(&self) -> bool {
        self.is_woken.swap(false, Ordering::AcqRel)
    }

    /// A future to give to the task: resolved by the next wake.
    pub fn future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (running, _) = EventLoop::current(py)?;
        let future = running.call_method0(intern!(py, "create_future"))?;
        future.setattr(intern!(py, "_asyncio_future_blocking"), true)?;
        self.wait_on(WaitsOn::Future(future.clone().unbind()));
        Ok(future)
    }

    /// By reference only: a call that nobody wants any more must be able to go.
    pub fn theirs(&self, pending: &Bound<'_, Pending>) -> PyResult<()> {
        self.wait_on(WaitsOn::Theirs(PyWeakrefReference::new(pending)?.unbind()));
        Ok(())
    }

    pub fn nothing(&self) {
        self.wait_on(WaitsOn::Nothing);
    }

    /// What it waited on before; dropped without the lock.
    fn wait_on(&self, on: WaitsOn) -> WaitsOn {
        std::mem::replace(&mut *self.on.lock(), on)
    }

    /// Its loop was closed: the task that waits is let go, and gives back what it waited for.
    pub fn abandon(&self, py: Python<'_>) {
        if let WaitsOn::Future(future) = self.wait_on(WaitsOn::Nothing) {
            // It has no loop to call the task with, and says so; but it forgets the task.
            let _ = future.call_method0(py, intern!(py, "cancel"));
        }
    }

    fn resume(&self, py: Python<'_>) {
        self.is_queued.store(false, Ordering::Release);
        match self.wait_on(WaitsOn::Nothing) {
            WaitsOn::Nothing => {}
            WaitsOn::Future(future) => {
                // It may have been cancelled meanwhile: then nobody waits.
                let _ = future.call_method1(py, intern!(py, "set_result"), (py.None(),));
            }
            WaitsOn::Theirs(pending) => {
                if let Ok(Some(pending)) = pending.bind(py).upgrade_as::<Pending>() {
                    Pending::look_again(&pending);
                }
            }
        }
    }
}
