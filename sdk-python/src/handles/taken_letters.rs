//! Messages that were taken, and those that come one by one.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use futures_util::StreamExt;
use futures_util::stream::Stream;
use resil::dead_letters::{FailureNote, LetterView, TakenLetter, TakenMessage};

use crate::dead_letters::{view, words};
use crate::items::{anext, next};
use crate::prelude::*;

/// A message that was taken, as its handler sees it.
#[pyclass(module = "resil", name = "TakenMessage", subclass, frozen)]
pub struct PyTakenMessage {
    message: OfProcess<Arc<TakenMessage>>,
    generation: Generation,
}

impl PyTakenMessage {
    pub fn of(message: Arc<TakenMessage>) -> Self {
        Self { message: OfProcess::new(message), generation: Generation::now() }
    }
}

#[pymethods]
impl PyTakenMessage {
    #[getter]
    fn id(&self) -> String {
        self.message.id().into_owned()
    }

    /// None if it is stored elsewhere.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.message.payload().map(|payload| PyBytes::new(py, payload))
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.message.headers())
    }

    /// Where it is, if it is stored elsewhere.
    #[getter]
    fn reference(&self) -> Option<String> {
        self.message.reference().map(Into::into)
    }

    #[getter]
    fn kind(&self) -> Option<String> {
        self.message.kind().map(Into::into)
    }

    #[getter]
    fn source(&self) -> Option<String> {
        self.message.source().map(Into::into)
    }

    #[getter]
    fn aggregate(&self) -> Option<String> {
        self.message.aggregate().map(Into::into)
    }

    #[getter]
    fn schema(&self) -> Option<u32> {
        self.message.schema()
    }

    /// Failures that counted so far.
    #[getter]
    fn attempt(&self) -> u32 {
        self.message.attempt()
    }

    /// How many of its takers were not heard of again.
    #[getter]
    fn lapses(&self) -> u32 {
        self.message.lapses()
    }

    /// How often it died and was redriven.
    #[getter]
    fn deaths(&self) -> u32 {
        self.message.deaths()
    }

    #[getter]
    fn failure_class(&self, py: Python<'_>) -> PyResult<Object> {
        shown(py, &self.message.failure_class())
    }

    #[getter]
    fn group(&self) -> Option<String> {
        self.message.group().map(Into::into)
    }

    /// How it failed last.
    #[getter]
    fn error(&self) -> Option<String> {
        self.message.error().map(Into::into)
    }

    /// The case that redrove it.
    #[getter]
    fn case(&self) -> Option<u32> {
        self.message.case()
    }

    /// Goes to the store of the effect, which refuses numbers below the highest it has seen.
    #[getter]
    fn fence(&self) -> u64 {
        self.message.fence()
    }

    /// Set when the lease is lost.
    #[getter]
    fn lost(&self) -> Lost {
        Lost::of_run(self.message.lost().clone(), self.generation)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(format!("<resil.{} {:?}>", slf.get_type().name()?, slf.get().message.id()))
    }
}

/// A message that was taken, to be settled once. Forgotten, it is given back.
#[pyclass(module = "resil", name = "TakenLetter", extends = PyTakenMessage, frozen)]
pub struct PyTakenLetter(OfProcess<Mutex<Option<TakenLetter>>>);

impl PyTakenLetter {
    pub fn make(py: Python<'_>, letter: TakenLetter) -> PyResult<Object> {
        let message = PyClassInitializer::from(PyTakenMessage::of(letter.message()));
        let letter = Self(OfProcess::new(Mutex::new(Some(letter))));
        Ok(Py::new(py, message.add_subclass(letter))?.into_any())
    }

    fn settle(&self) -> PyResult<TakenLetter> {
        self.0.generation().check()?;
        self.0.lock().take().ok_or_else(|| PyRuntimeError::new_err("this message was settled before"))
    }
}

#[pymethods]
impl PyTakenLetter {
    /// It was handled. LockLostError if another has taken it meanwhile.
    fn done(&self) -> PyResult<Pending> {
        let letter = self.settle()?;
        Ok(Pending::done("letter.done()", async move { letter.done().await }))
    }

    /// It failed, with a text or an exception: it is retried later, or it dies.
    #[pyo3(signature = (error, **options))]
    fn fail(&self, error: Arg<'_>, options: Option<Kwargs<'_>>) -> PyResult<Pending> {
        let note = FailureNote { error: words(error)?, ..read(options)? };
        let letter = self.settle()?;
        Ok(Pending::shown("letter.fail()", async move { letter.fail(note).await }))
    }

    /// It was not tried: it is due again after `delay` seconds, and nothing is counted.
    #[pyo3(signature = (delay=None))]
    fn give_back(&self, delay: OptArg<'_>) -> PyResult<Pending> {
        let delay = optional_seconds("delay", delay)?.unwrap_or_default();
        let letter = self.settle()?;
        Ok(Pending::done("letter.give_back()", async move { letter.give_back(delay).await }))
    }
}

type Rows = Pin<Box<dyn Stream<Item = PyResult<Object>> + Send>>;

/// What comes one by one, until it is closed.
pub struct RowStream(OfProcess<Arc<RowSource>>);

struct RowSource {
    rows: Mutex<Option<Rows>>,
    callers: Arc<RowCallers>,
}

/// The waiters for a row: several tasks and threads may wait. Each is woken when there is one, and when there will be none.
#[derive(Default)]
struct RowCallers(Mutex<Vec<Waker>>);

impl RowCallers {
    fn add(&self, caller: &Waker) {
        let mut callers = self.0.lock();
        if !callers.iter().any(|known| known.will_wake(caller)) {
            callers.push(caller.clone());
        }
    }
}

impl Wake for RowCallers {
    fn wake(self: Arc<Self>) {
        let callers = std::mem::take(&mut *self.0.lock());
        callers.into_iter().for_each(Waker::wake);
    }
}

/// Messages as they come: to be looped over with `for`, or with `async for` in a coroutine.
#[pyclass(module = "resil", name = "LetterStream", frozen, generic)]
pub struct PyLetterStream(RowStream);

impl PyLetterStream {
    fn new(rows: impl Stream<Item = PyResult<Object>> + Send + 'static) -> Self {
        Self(RowStream::new(rows))
    }

    pub fn of_letters(letters: impl Stream<Item = Result<TakenLetter, Error>> + Send + 'static) -> Self {
        Self::new(letters.map(|letter| {
            let letter = raised_later(letter)?;
            Python::attach(|py| PyTakenLetter::make(py, letter))
        }))
    }

    pub fn of_views(views: impl Stream<Item = Result<LetterView, Error>> + Send + 'static) -> Self {
        Self::new(views.map(|found| {
            let found = raised_later(found)?;
            Python::attach(|py| view(py, &found))
        }))
    }
}

impl RowStream {
    pub fn new(rows: impl Stream<Item = PyResult<Object>> + Send + 'static) -> Self {
        let (rows, callers) = (Mutex::new(Some(Box::pin(rows) as Rows)), Arc::default());
        Self(OfProcess::new(Arc::new(RowSource { rows, callers })))
    }

    pub fn next_row(&self) -> Running {
        let source = self.0.clone();
        Box::pin(poll_fn(move |context| {
            if let Err(forked) = source.generation().check() {
                return Poll::Ready(Err(forked));
            }
            // Waiting for each other would be for ever: one of them has the GIL.
            let Some(mut rows) = source.rows.try_lock() else {
                return Poll::Ready(Err(PyRuntimeError::new_err("these are being asked for elsewhere")));
            };
            let Some(running) = &mut *rows else { return Poll::Ready(none()) };
            source.callers.add(context.waker());
            let waker = Waker::from(Arc::clone(&source.callers));
            let row = match running.as_mut().poll_next(&mut Context::from_waker(&waker)) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(row)) => row,
                Poll::Ready(None) => {
                    *rows = None;
                    none()
                }
            };
            drop(rows);
            // The others ask again.
            waker.wake();
            Poll::Ready(row)
        }))
    }

    /// Takes nothing more.
    pub fn close(&self) -> PyResult<()> {
        self.0.generation().check()?;
        let _inside = runtime::enter()?;
        let rows = self.0.rows.try_lock().map(|mut rows| rows.take());
        drop(rows.ok_or_else(|| PyRuntimeError::new_err("these are being asked for elsewhere"))?);
        Waker::from(Arc::clone(&self.0.callers)).wake();
        Ok(())
    }
}

#[pymethods]
impl PyLetterStream {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Object>> {
        refuse_to_block(py, "use async for")?;
        next(py, self.0.next_row())
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__(&self) -> Pending {
        anext("async for letter in letters", self.0.next_row())
    }

    /// Takes nothing more, and gives back what nobody asked for.
    fn close(&self) -> PyResult<()> {
        self.0.close()
    }

    /// The same, for `contextlib.aclosing`.
    fn aclose(&self) -> PyResult<Pending> {
        self.close()?;
        Ok(Pending::new("letters.aclose()", async { none() }))
    }
}
