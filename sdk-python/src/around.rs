//! What can be put around a function, in the shapes that all of them share: `policy.call(fn, ...)` and `@policy`.

use crate::prelude::*;

/// What a policy needs of the functions in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// It waits for them to end, and for nothing else.
    NoWait,
    /// It waits for them to end, and may wait for something else: a plain function is refused inside of a running event loop.
    Nothing,
    /// It may stop waiting for one: a plain function runs in a thread.
    ToLeave,
    /// It may run several at once.
    Several,
}

/// What to do with a plain function inside of a running event loop.
const PLAIN: &str = "make fn a coroutine function (a lambda that returns a coroutine is none), or call it in a thread: \
                     await asyncio.to_thread(...)";

/// A policy, as its functions see it.
pub trait Runs: Send + Sync + 'static {
    fn run(&self, py: Python<'_>, work: Arc<Work>) -> PyResult<Running>;

    fn needs(&self) -> Needs {
        Needs::Nothing
    }

    /// As it is for one call, if it may change.
    fn now(&self) -> Option<Box<dyn Runs>> {
        None
    }

    /// Refuses a function that cannot be put in it, when it is decorated.
    fn check(&self, _func: Arg<'_>) -> PyResult<()> {
        Ok(())
    }

    /// Gives a decorated function what it has beside its call. `around` is the object of this policy.
    fn decorated(&self, _around: Arg<'_>, _function: Arg<'_>) -> PyResult<()> {
        Ok(())
    }

    /// Shows the collector the functions it holds. Each is held by one object: see [`Judge::again`](crate::judge::Judge::again).
    fn traverse(&self, _visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        Ok(())
    }
}

/// A function of the user's with its arguments, and whether it is a coroutine function.
pub struct Call<'a> {
    kind: Kind,
    func: Arg<'a>,
    args: Args<'a>,
    kwargs: Option<Kwargs<'a>>,
}

impl<'a> Call<'a> {
    pub fn of(func: Arg<'a>, args: Args<'a>, kwargs: Option<Kwargs<'a>>) -> PyResult<Self> {
        Ok(Self { kind: Kind::of(func)?, func, args, kwargs })
    }

    /// Runs it through something that needs this of it: the result, or something to await.
    pub fn through(
        self,
        what: &'static str,
        needs: Needs,
        run: impl FnOnce(Arc<Work>) -> PyResult<Running>,
    ) -> PyResult<Object> {
        let Self { kind, func, args, kwargs } = self;
        let py = func.py();
        let stage = (kind == Kind::Coroutine && needs != Needs::Several).then(SharedStage::default);
        let how = match (kind, &stage) {
            (Kind::Plain, _) if matches!(needs, Needs::NoWait | Needs::Nothing) => How::Here,
            (_, Some(stage)) => How::Inside(Arc::clone(stage)),
            (kind, None) => How::Beside(kind),
        };
        if kind == Kind::Plain && needs != Needs::NoWait {
            refuse_to_block(py, PLAIN)?;
        }
        let running = run(Work::new(func, args, kwargs, how))?;
        match kind {
            Kind::Plain => drive(py, running),
            Kind::Coroutine => Pending::on_stage(what, stage, running).into_py_any(py),
        }
    }
}

/// Something that can be put around a function.
///
/// As a decorator (`@policy`) or with `policy.call(fn, *args, **kwargs)`. A plain function gives its result; a coroutine
/// function gives something to await.
#[pyclass(module = "resil", subclass, frozen)]
pub struct Around {
    runs: OfProcess<Box<dyn Runs>>,
    what: &'static str,
    /// What its repr says of it.
    label: String,
    /// Of the client it was made from, if it was.
    generation: Option<Generation>,
}

impl Around {
    /// A policy of this process, which a child of a fork may use as well.
    pub fn local(what: &'static str, label: String, runs: impl Runs) -> Self {
        Self { runs: OfProcess::new(Box::new(runs)), what, label, generation: None }
    }

    /// One that was made from a client, and is refused in a child of a fork.
    pub fn shared(what: &'static str, label: String, runs: impl Runs) -> Self {
        Self { generation: Some(Generation::now()), ..Self::local(what, label, runs) }
    }

    /// With nothing to add to it.
    pub fn alone<T: PyClass<BaseType = Self>>(self, class: T) -> PyClassInitializer<T> {
        PyClassInitializer::from(self).add_subclass(class)
    }

    pub fn check_process(&self) -> PyResult<()> {
        self.generation.map_or(Ok(()), Generation::check)
    }

    fn go(&self, call: Call<'_>) -> PyResult<Object> {
        self.check_process()?;
        let py = call.func.py();
        let now = self.runs.now();
        let runs = now.as_deref().unwrap_or(&**self.runs);
        call.through(self.what, runs.needs(), |work| runs.run(py, work))
    }
}

#[pymethods]
impl Around {
    /// Runs `fn(*args, **kwargs)` through this policy: its result, or for a coroutine function something to await.
    #[pyo3(signature = (r#fn, /, *args, **kwargs))]
    fn call(&self, r#fn: Arg<'_>, args: Args<'_>, kwargs: Option<Kwargs<'_>>) -> PyResult<Object> {
        self.go(Call::of(r#fn, args, kwargs)?)
    }

    /// As a decorator: the same function with this policy around it.
    fn __call__<'py>(slf: &Bound<'py, Self>, r#fn: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().runs.check(&r#fn)?;
        if !r#fn.is_callable() {
            return Err(wrong_type("fn", "callable", &r#fn));
        }
        // Still a function, with its name, its signature and its kind.
        let decorate = match Kind::of(&r#fn)? {
            Kind::Plain => imported!(slf.py(), "resil._functions", "decorate")?,
            Kind::Coroutine => imported!(slf.py(), "resil._functions", "decorate_async")?,
        };
        let decorated = decorate.call1((slf, r#fn))?;
        slf.get().runs.decorated(slf.as_any(), &decorated)?;
        Ok(decorated)
    }

    /// What decorated plain functions call.
    fn _run(&self, func: Arg<'_>, args: Args<'_>, kwargs: Option<Kwargs<'_>>) -> PyResult<Object> {
        self.go(Call { kind: Kind::Plain, func, args, kwargs })
    }

    /// What decorated coroutine functions await.
    fn _run_async(&self, func: Arg<'_>, args: Args<'_>, kwargs: Option<Kwargs<'_>>) -> PyResult<Object> {
        self.go(Call { kind: Kind::Coroutine, func, args, kwargs })
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(format!("<resil.{} {}>", slf.get_type().name()?, slf.get().label))
    }

    // There is no `__clear__`: it cannot be changed, so every circle it is in has something in it that can.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.runs.traverse(&visit)
    }
}

/// Something as it was given, or as a function of a call's arguments says.
pub enum OfCall<T> {
    Is(T),
    Function(Object),
}

/// How an argument of this name is read.
pub type Read<T> = fn(&str, Arg<'_>) -> PyResult<T>;

impl<T: Clone> OfCall<T> {
    pub fn read(name: &str, given: Arg<'_>, read: Read<T>) -> PyResult<Self> {
        match read(name, given) {
            Ok(value) => Ok(Self::Is(value)),
            Err(_) if given.is_callable() => Ok(Self::Function(given.clone().unbind())),
            Err(error) => Err(error),
        }
    }

    pub fn of(&self, py: Python<'_>, name: &str, work: &Work, read: Read<T>) -> PyResult<T> {
        match self {
            Self::Is(value) => Ok(value.clone()),
            Self::Function(function) => read(&format!("what {name}= returned"), &work.asked(py, function)?),
        }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Is(_) => Ok(()),
            Self::Function(function) => visit.call(function),
        }
    }
}
