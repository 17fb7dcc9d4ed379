//! One run of a function of the user's. Dropped, it is left alone or cancelled.

use std::future::poll_fn;
use std::task::Poll;

use pyo3::exceptions::PyStopIteration;

use crate::edge::call_method1;
use crate::prelude::*;

/// What a task says to a coroutine.
pub enum Resume {
    Send(Object),
    Throw(PyErr),
}

impl Resume {
    /// What it waits on next; or how it ended.
    pub fn give_to(self, py: Python<'_>, coroutine: &Object) -> PyResult<Object> {
        let coroutine = coroutine.bind(py);
        let next = match self {
            Self::Send(value) => call_method1(coroutine, intern!(py, "send"), value),
            Self::Throw(error) => call_method1(coroutine, intern!(py, "throw"), error.into_value(py).into_any()),
        };
        next.map(Bound::unbind)
    }
}

/// What passes between a pending call and the coroutine that runs inside of it.
#[derive(Default)]
pub struct Stage {
    /// What the coroutine waits on, on its way out.
    pub yielded: Option<Object>,
    /// What the task says, on its way in.
    pub resume: Option<Resume>,
    /// A coroutine that was begun and given up on.
    pub unwinding: Option<Object>,
    /// Whether that one has got it.
    pub has_result: bool,
}

pub type SharedStage = Arc<Mutex<Stage>>;

/// A coroutine that was begun. Dropped before its end, it is handed over to be unwound: it has to run to its end.
struct Begun {
    stage: SharedStage,
    coroutine: Option<Object>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(coroutine) = self.coroutine.take() {
            self.stage.lock().unwinding = Some(coroutine);
        }
    }
}

impl Begun {
    /// Goes on if the task said something since: with the result, or with what it waits on next.
    fn poll(&mut self) -> Poll<PyResult<Object>> {
        let resume = self.stage.lock().resume.take();
        let (Some(resume), Some(coroutine)) = (resume, &self.coroutine) else { return Poll::Pending };
        let result = Python::attach(|py| match resume.give_to(py, coroutine) {
            Ok(yielded) => {
                self.stage.lock().yielded = Some(yielded);
                None
            }
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                Some(error.value(py).getattr(intern!(py, "value")).map(Bound::unbind))
            }
            Err(error) => Some(Err(error)),
        });
        let Some(result) = result else { return Poll::Pending };
        self.coroutine = None;
        Poll::Ready(result)
    }
}

impl Work {
    pub(super) async fn run(self: Arc<Self>, first: Option<Object>) -> Ended {
        let result = match &self.how {
            How::Here => Python::attach(|py| self.called(py, first)),
            How::Beside(kind) => self.beside(*kind, first).await,
            How::Inside(stage) => self.inside(stage, first).await,
        };
        Python::attach(|py| self.judged(py, result))
    }

    fn called(&self, py: Python<'_>, first: Option<Object>) -> PyResult<Object> {
        let value = self.call(py, first)?;
        if is_coroutine(py, &value)? {
            let _ = value.call_method0(py, "close");
            let text = "fn returned a coroutine: pass the coroutine function itself, and await what comes back";
            return Err(PyTypeError::new_err(text));
        }
        Ok(value)
    }

    async fn beside(&self, kind: Kind, first: Option<Object>) -> PyResult<Object> {
        let (home, prepared) = Python::attach(|py| {
            Ok::<_, PyErr>((EventLoop::of(py, kind)?, Prepared::new(py, self.bound(py, first)?)?))
        })?;
        task::run(home, prepared).await
    }

    async fn inside(&self, stage: &SharedStage, first: Option<Object>) -> PyResult<Object> {
        // The one before may still be cleaning up; the pending call polls again when it has ended.
        let is_free = || stage.lock().unwinding.is_none();
        poll_fn(|_| if is_free() { Poll::Ready(()) } else { Poll::Pending }).await;
        let mut begun = Python::attach(|py| {
            let awaitable = self.call(py, first)?;
            let coroutine = match is_coroutine(py, &awaitable)? {
                true => awaitable,
                false => awaitable.call_method0(py, intern!(py, "__await__"))?,
            };
            let mut stage_now = stage.lock();
            stage_now.has_result = false;
            stage_now.resume = Some(Resume::Send(py.None()));
            Ok::<_, PyErr>(Begun { stage: Arc::clone(stage), coroutine: Some(coroutine) })
        })?;
        poll_fn(|_| begun.poll()).await
    }
}
