//! Messages that failed: one ledger decides whether each is retried or dead.

use pyo3::exceptions::{PyBaseException, PyException, PyKeyboardInterrupt, PySystemExit};
use pyo3::types::PyString;
use resil::dead_letters::{
    DeadLetters, DeadLettersSettings, Diagnosis, FailureNote, LedgerChange, Letter, LetterFilter, LetterView,
    RedriveRun, RedriveSettings, Settlement, TakenMessage,
};

use crate::client::PyClient;
use crate::prelude::*;
use crate::taken_letters::{PyLetterStream, PyTakenLetter, PyTakenMessage};

/// What is said of a failure, among the options of a message.
const NOTE: [&str; 5] = ["failure_class", "group", "after", "prior", "count"];

fn bytes(name: &str, given: OptArg<'_>) -> PyResult<Option<bytes::Bytes>> {
    given.map(|given| key(name, given).map(Into::into)).transpose()
}

/// A message, and what is said of its failure.
fn letter(
    id: Arg<'_>,
    payload: OptArg<'_>,
    headers: OptArg<'_>,
    options: Option<Kwargs<'_>>,
) -> PyResult<(Letter, FailureNote)> {
    let of_letter = options.map_or_else(|| Ok(PyDict::new(id.py())), |options| options.copy())?;
    let of_note = PyDict::new(id.py());
    for name in NOTE {
        if let Some(value) = of_letter.get_item(name)? {
            of_letter.del_item(name)?;
            of_note.set_item(name, value)?;
        }
    }
    let own = ["payload", "headers", "failure_class", "group", "after", "prior", "count"];
    let letter: Letter = read_beside(&own, Some(&of_letter))?;
    let letter = Letter { id: text("id", id)?, ..letter };
    let letter = Letter { payload: bytes("payload", payload)?, headers: bytes("headers", headers)?, ..letter };
    Ok((letter, read(Some(&of_note))?))
}

/// An exception, or a text, as words.
pub fn words(given: Arg<'_>) -> PyResult<String> {
    if given.is_instance_of::<PyString>() {
        return text("error", given);
    }
    match given.is_instance_of::<PyException>() {
        true => Ok(error_words(given)),
        false => Err(wrong_type("error", "str or an exception", given)),
    }
}

/// Exceptions of a group that are looked at.
const MEMBERS_MAX: usize = 8;

/// The exceptions of a group, without groups among them; nothing of any other exception.
pub fn members<'py>(error: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let (mut found, mut left) = (Vec::new(), vec![error.clone()]);
    for _ in 0..MEMBERS_MAX * 2 {
        let Some(next) = left.pop() else { break };
        // A class of the language since 3.11, and of a package before.
        match next.getattr("exceptions").ok().and_then(|all| all.cast_into::<PyTuple>().ok()) {
            Some(all) => left.extend(all.iter().rev().filter(|it| it.is_instance_of::<PyBaseException>())),
            None if next.is(error) => {}
            None => found.push(next),
        }
    }
    found.truncate(MEMBERS_MAX);
    found
}

/// Its class and its text, and those of the exceptions in a group.
pub fn error_words(error: Arg<'_>) -> String {
    let all: Vec<String> = members(error).iter().map(own_words).collect();
    if all.is_empty() { own_words(error) } else { format!("{}: {}", own_words(error), all.join("; ")) }
}

fn own_words(error: Arg<'_>) -> String {
    let class = error.get_type().name().map_or_else(|_| "Exception".to_owned(), |name| name.to_string());
    match error.str().map(|text| text.to_string_lossy().into_owned()) {
        Ok(text) if !text.is_empty() => format!("{class}: {text}"),
        _ => class,
    }
}

/// What becomes of a message whose handler raised this.
fn settlement(py: Python<'_>, error: &PyErr, judge: Option<&Object>) -> Settlement {
    let words = error_words(error.value(py).as_any());
    let judged = judge.map(|judge| judge.bind(py).call1((error.value(py),)).and_then(|said| read_judged(&said)));
    match judged {
        Some(Ok(Some(Settlement::Fail(note)))) => return FailureNote { error: words, ..note }.into(),
        Some(Ok(Some(given_back))) => return given_back,
        Some(Err(broken)) => return FailureNote::new(error_words(broken.value(py).as_any())).into(),
        Some(Ok(None)) | None => {}
    }
    match ours(py, error) {
        Some(ours) => Settlement::of_code(ours.code(), words, ours.retry_after()),
        None if is_interruption(py, error) => Settlement::given_back(),
        None => FailureNote::new(words).into(),
    }
}

/// Not an error of the handler: it was cut short. Whatever else it raises counts, or it would be given out for ever.
pub fn is_interruption(py: Python<'_>, error: &PyErr) -> bool {
    let cancelled = py.import("asyncio").and_then(|asyncio| asyncio.getattr("CancelledError"));
    let is_cancelled = cancelled.and_then(|class| error.value(py).is_instance(&class));
    let is_an_end = error.is_instance_of::<PyKeyboardInterrupt>(py) || error.is_instance_of::<PySystemExit>(py);
    is_an_end || is_cancelled.unwrap_or(false)
}

/// None: the usual. "give-back", or what is said of the failure.
fn read_judged(said: Arg<'_>) -> PyResult<Option<Settlement>> {
    if said.is_none() {
        return Ok(None);
    }
    if said.is_instance_of::<PyString>() && text("judge", said)? == "give-back" {
        return Ok(Some(Settlement::given_back()));
    }
    let expected = "None, \"give-back\", or a dict such as {\"count\": \"final\"}";
    let note = said.cast::<PyDict>().map_err(|_| wrong_type("what judge returned", expected, said))?;
    read::<FailureNote>(Some(note)).map(|note| Some(note.into()))
}

/// A message as a dict.
pub fn view(py: Python<'_>, view: &LetterView) -> PyResult<Object> {
    let dict = shown(py, view)?;
    let bytes = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map(|bytes| PyBytes::new(py, bytes));
    dict.bind(py).set_item("payload", bytes(&view.payload))?;
    dict.bind(py).set_item("headers", bytes(&view.headers))?;
    Ok(dict)
}

/// A ledger of messages that failed; `client.dead_letters(...)` makes it.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> orders = client.dead_letters("orders")
/// >>> orders.fail("shop/42", "timeout", payload=b"7 pieces").wait()["verdict"]
/// 'retry'
/// >>> [letter] = orders.take(wait=5).wait()
/// >>> letter.payload
/// b'7 pieces'
/// >>> letter.done().wait()
#[pyclass(module = "resil", name = "DeadLetters", frozen)]
pub struct PyDeadLetters(Owned<DeadLetters>);

#[pymethods]
impl PyDeadLetters {
    #[getter]
    fn name(&self) -> &str {
        self.0.peek().name()
    }

    /// The same ledger, governed by `actor`.
    fn by(&self, actor: Arg<'_>) -> PyResult<Self> {
        Ok(Self(Owned::new(self.0.get()?.by(text("actor", actor)?))))
    }

    /// Records that a message failed: retried later, or dead. Whatever the verdict, it can be acknowledged where it came from; after an
    /// exception it must not be. `error` is a text or an exception.
    #[pyo3(signature = (id, error, *, payload=None, headers=None, **options))]
    fn fail(
        &self,
        id: Arg<'_>,
        error: Arg<'_>,
        payload: OptArg<'_>,
        headers: OptArg<'_>,
        options: Option<Kwargs<'_>>,
    ) -> PyResult<Pending> {
        let (letters, (letter, note)) = (self.0.get()?, letter(id, payload, headers, options)?);
        let note = FailureNote { error: words(error)?, ..note };
        Ok(Pending::shown("dead_letters.fail()", async move { letters.fail(&letter, note).await }))
    }

    /// Whether a message has to wait for an earlier one of its aggregate; then it is parked behind it.
    #[pyo3(signature = (id, *, payload=None, headers=None, **options))]
    fn park(
        &self,
        id: Arg<'_>,
        payload: OptArg<'_>,
        headers: OptArg<'_>,
        options: Option<Kwargs<'_>>,
    ) -> PyResult<Pending> {
        let (letters, (letter, _)) = (self.0.get()?, letter(id, payload, headers, options)?);
        Ok(Pending::shown("dead_letters.park()", async move { letters.park(&letter).await }))
    }

    /// Takes what is due, at most `count` messages; waits up to `wait` seconds for the first. A list of TakenLetter.
    #[pyo3(signature = (count=None, wait=None))]
    fn take(&self, count: OptArg<'_>, wait: OptArg<'_>) -> PyResult<Pending> {
        let count = count.map_or(Ok(1), |count| whole("count", count))?;
        let (letters, wait) = (self.0.get()?, optional_seconds("wait", wait)?.unwrap_or_default());
        Ok(Pending::new("dead_letters.take()", async move {
            let batch = raised_later(letters.take(count, wait).await)?;
            Python::attach(|py| {
                let letters = batch.into_iter().map(|letter| PyTakenLetter::make(py, letter));
                letters.collect::<PyResult<Vec<_>>>()?.into_py_any(py)
            })
        }))
    }

    /// Messages as they become due, for `async for` or `for`, until a shutdown. Each is settled by hand; one that is forgotten goes back.
    fn entries(&self) -> PyResult<PyLetterStream> {
        Ok(PyLetterStream::of_letters(self.0.get()?.entries()))
    }

    /// Calls `handler(message)` for each message until a shutdown of the client. What it returns means done; what it raises fails the
    /// message, as `judge(exception)` says: None for the usual, "give-back", or a dict such as {"count": "final"}. For a coroutine
    /// function something to await; a plain one runs in threads. How many were done, failed and given back.
    #[pyo3(signature = (handler, *, judge=None))]
    fn run(&self, handler: Arg<'_>, judge: OptArg<'_>) -> PyResult<Object> {
        if !handler.is_callable() {
            return Err(wrong_type("handler", "callable", handler));
        }
        let (py, kind, letters) = (handler.py(), Kind::of(handler)?, self.0.get()?);
        if let Some(judge) = judge.filter(|judge| !judge.is_callable()) {
            return Err(wrong_type("judge", "callable", judge));
        }
        if kind == Kind::Plain {
            refuse_to_block(
                py,
                "make handler a coroutine function, or run it in a thread: await asyncio.to_thread(...)",
            )?;
        }
        let (func, judge) = (handler.clone().unbind(), judge.map(|judge| judge.clone().unbind()));
        let running: Running = Box::pin(async move {
            let home = Python::attach(|py| EventLoop::of(py, kind))?;
            let handle = |message: Arc<TakenMessage>| {
                let prepared = Python::attach(|py| {
                    let message = PyTakenMessage::of(message).into_py_any(py)?;
                    Prepared::with(func.bind(py), message.bind(py))
                });
                let home = home.clone();
                async move { task::run(home, prepared?).await.map(drop) }
            };
            let judged = |error: &PyErr| Python::attach(|py| settlement(py, error, judge.as_ref()));
            let never = resil::CancellationToken::new();
            let report = raised_later(letters.run_until(&never, judged, handle).await)?;
            Python::attach(|py| shown(py, &report))
        });
        match kind {
            Kind::Plain => drive(py, running),
            Kind::Coroutine => Pending::on_stage("dead_letters.run()", None, running).into_py_any(py),
        }
    }

    /// A message with its payload; None if the ledger does not know it.
    fn get(&self, id: Arg<'_>) -> PyResult<Pending> {
        let (letters, id) = (self.0.get()?, text("id", id)?);
        Ok(Pending::new("dead_letters.get()", async move {
            let found = raised_later(letters.get(&id).await)?;
            Python::attach(|py| found.map_or_else(|| Ok(py.None()), |found| view(py, &found)))
        }))
    }

    /// Where a message is; None if the ledger does not know it.
    fn standing(&self, id: Arg<'_>) -> PyResult<Pending> {
        let (letters, id) = (self.0.get()?, text("id", id)?);
        Ok(Pending::shown("dead_letters.standing()", async move { letters.standing(&id).await }))
    }

    /// A page of the messages that match: `letters`, and the `cursor` of the next page, or None.
    #[pyo3(signature = (**filter))]
    fn list(&self, filter: Option<Kwargs<'_>>) -> PyResult<Pending> {
        let (letters, filter) = (self.0.get()?, read::<LetterFilter>(filter)?);
        Ok(Pending::new("dead_letters.list()", async move {
            let page = raised_later(letters.list(&filter).await)?;
            Python::attach(|py| {
                let dict = PyDict::new(py);
                let rows = page.letters.iter().map(|row| view(py, row)).collect::<PyResult<Vec<_>>>()?;
                dict.set_item("letters", rows)?;
                dict.set_item("cursor", page.cursor)?;
                Ok(dict.into_any().unbind())
            })
        }))
    }

    /// All messages that match, for `async for` or `for`.
    #[pyo3(signature = (**filter))]
    fn list_all(&self, filter: Option<Kwargs<'_>>) -> PyResult<PyLetterStream> {
        Ok(PyLetterStream::of_views(self.0.get()?.list_all(read::<LetterFilter>(filter)?)))
    }

    /// How much is in the ledger.
    fn info(&self) -> PyResult<Pending> {
        let letters = self.0.get()?;
        Ok(Pending::shown("dead_letters.info()", async move { letters.info().await }))
    }

    /// By which numbers it retries and redrives.
    fn config(&self) -> PyResult<Pending> {
        let letters = self.0.get()?;
        Ok(Pending::shown("dead_letters.config()", async move { letters.config().await }))
    }

    /// Changes them, for everybody who uses the ledger.
    #[pyo3(signature = (**change))]
    fn configure(&self, change: Option<Kwargs<'_>>) -> PyResult<Pending> {
        let (letters, change) = (self.0.get()?, read::<LedgerChange>(change)?);
        Ok(Pending::done("dead_letters.configure()", async move { letters.configure(&change).await }))
    }

    /// Failures that belong together.
    fn groups(&self) -> PyResult<Pending> {
        let letters = self.0.get()?;
        Ok(Pending::shown("dead_letters.groups()", async move { letters.groups().await }))
    }

    /// Root causes.
    fn cases(&self) -> PyResult<Pending> {
        let letters = self.0.get()?;
        Ok(Pending::shown("dead_letters.cases()", async move { letters.cases().await }))
    }

    /// One of them; None if there is none of this number.
    fn case(&self, case: Arg<'_>) -> PyResult<Pending> {
        let (letters, case) = (self.0.get()?, whole("case", case)?);
        Ok(Pending::shown("dead_letters.case()", async move { letters.case(case).await }))
    }

    /// What an operator must look at.
    fn alerts(&self) -> PyResult<Pending> {
        let letters = self.0.get()?;
        Ok(Pending::shown("dead_letters.alerts()", async move { letters.alerts().await }))
    }

    /// The last actions of governors.
    fn audit(&self) -> PyResult<Pending> {
        let letters = self.0.get()?;
        Ok(Pending::shown("dead_letters.audit()", async move { letters.audit().await }))
    }

    /// Writes down why the messages of `groups` died. The number of the case, under which they can be redriven.
    #[pyo3(signature = (groups, category, cause, fix, **more))]
    fn diagnose(
        &self,
        groups: Arg<'_>,
        category: Arg<'_>,
        cause: Arg<'_>,
        fix: Arg<'_>,
        more: Option<Kwargs<'_>>,
    ) -> PyResult<Pending> {
        let said = more.map_or_else(|| Ok(PyDict::new(groups.py())), |more| more.copy())?;
        for (name, value) in [("groups", groups), ("category", category), ("cause", cause), ("fix", fix)] {
            said.set_item(name, value)?;
        }
        let (letters, diagnosis) = (self.0.get()?, read::<Diagnosis>(Some(&said))?);
        Ok(Pending::ask("dead_letters.diagnose()", async move { letters.diagnose(&diagnosis).await }))
    }

    /// Lets dead messages of a case be taken again, at a rate, a few first; RedriveRefusedError says why not.
    #[pyo3(signature = (case, **settings))]
    fn redrive(&self, case: Arg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<Pending> {
        let (letters, case) = (self.0.get()?, whole("case", case)?);
        let settings: RedriveSettings = read(settings)?;
        Ok(Pending::new("dead_letters.redrive()", async move {
            let run = raised_later(letters.redrive(case, &settings).await)?;
            Python::attach(|py| PyRedriveRun(Owned::new(run)).into_py_any(py))
        }))
    }

    /// What `redrive` would cover. Nothing is changed.
    #[pyo3(signature = (case, **settings))]
    fn dry_run(&self, case: Arg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<Pending> {
        let (letters, case) = (self.0.get()?, whole("case", case)?);
        let settings: RedriveSettings = read(settings)?;
        Ok(Pending::shown("dead_letters.dry_run()", async move { letters.dry_run(case, &settings).await }))
    }

    /// Stops the redrive of a case. How far it came.
    fn stop(&self, case: Arg<'_>) -> PyResult<Pending> {
        let (letters, case) = (self.0.get()?, whole("case", case)?);
        Ok(Pending::shown("dead_letters.stop()", async move { letters.stop(case).await }))
    }

    /// Closes a case: 0. Or how many of its messages are not resolved; then it stays open.
    fn close(&self, case: Arg<'_>) -> PyResult<Pending> {
        let (letters, case) = (self.0.get()?, whole("case", case)?);
        Ok(Pending::ask("dead_letters.close()", async move { letters.close(case).await }))
    }

    /// Closes a case of poison: its messages are archived.
    fn discard(&self, case: Arg<'_>) -> PyResult<Pending> {
        let (letters, case) = (self.0.get()?, whole("case", case)?);
        Ok(Pending::ask("dead_letters.discard()", async move { letters.discard(case).await }))
    }

    /// Keeps a message whatever happens. How many it is about.
    #[pyo3(signature = (id, reason=None))]
    fn hold(&self, id: Arg<'_>, reason: OptArg<'_>) -> PyResult<Pending> {
        let (letters, id, reason) = (self.0.get()?, text("id", id)?, optional_text("reason", reason)?);
        let reason = reason.unwrap_or_default();
        Ok(Pending::ask("dead_letters.hold()", async move { letters.hold(&id, &reason).await }))
    }

    /// The same for everything of an aggregate, also what will come.
    #[pyo3(signature = (aggregate, reason=None))]
    fn hold_aggregate(&self, aggregate: Arg<'_>, reason: OptArg<'_>) -> PyResult<Pending> {
        let (letters, aggregate) = (self.0.get()?, text("aggregate", aggregate)?);
        let reason = optional_text("reason", reason)?.unwrap_or_default();
        let holding = async move { letters.hold_aggregate(&aggregate, &reason).await };
        Ok(Pending::ask("dead_letters.hold_aggregate()", holding))
    }

    /// Takes a hold back.
    #[pyo3(signature = (id, reason=None))]
    fn release(&self, id: Arg<'_>, reason: OptArg<'_>) -> PyResult<Pending> {
        let (letters, id, reason) = (self.0.get()?, text("id", id)?, optional_text("reason", reason)?);
        let reason = reason.unwrap_or_default();
        Ok(Pending::ask("dead_letters.release()", async move { letters.release(&id, &reason).await }))
    }

    /// The same of an aggregate.
    #[pyo3(signature = (aggregate, reason=None))]
    fn release_aggregate(&self, aggregate: Arg<'_>, reason: OptArg<'_>) -> PyResult<Pending> {
        let (letters, aggregate) = (self.0.get()?, text("aggregate", aggregate)?);
        let reason = optional_text("reason", reason)?.unwrap_or_default();
        let releasing = async move { letters.release_aggregate(&aggregate, &reason).await };
        Ok(Pending::ask("dead_letters.release_aggregate()", releasing))
    }

    /// Removes what ended longer ago than `older`, 90 days at least: all of it, or what is in one `state`.
    #[pyo3(signature = (older, state=None, limit=None))]
    fn purge(&self, older: Arg<'_>, state: OptArg<'_>, limit: OptArg<'_>) -> PyResult<Pending> {
        let said = PyDict::new(older.py());
        if let Some(state) = state {
            said.set_item("state", state)?;
        }
        let state = read::<LetterFilter>(Some(&said))?.state;
        let (letters, older) = (self.0.get()?, seconds("older", older)?);
        let limit = limit.map(|limit| whole("limit", limit)).transpose()?;
        Ok(Pending::shown("dead_letters.purge()", async move { letters.purge(older, state, limit).await }))
    }

    /// Somebody has looked at an alert.
    fn seen(&self, alert: Arg<'_>) -> PyResult<Pending> {
        let (letters, alert) = (self.0.get()?, whole("alert", alert)?);
        Ok(Pending::ask("dead_letters.seen()", async move { letters.seen(alert).await }))
    }

    fn __repr__(&self) -> String {
        format!("<resil.DeadLetters {:?}>", self.0.peek().name())
    }
}

/// A redrive that was started. It goes on without this.
#[pyclass(module = "resil", name = "RedriveRun", frozen)]
pub struct PyRedriveRun(Owned<RedriveRun>);

#[pymethods]
impl PyRedriveRun {
    #[getter]
    fn case(&self) -> u32 {
        self.0.peek().case()
    }

    /// What it covers.
    #[getter]
    fn matched(&self, py: Python<'_>) -> PyResult<Object> {
        shown(py, self.0.peek().matched())
    }

    fn progress(&self) -> PyResult<Pending> {
        let run = self.0.get()?;
        Ok(Pending::shown("redrive.progress()", async move { run.progress().await }))
    }

    /// Nothing more is given out.
    fn stop(&self) -> PyResult<Pending> {
        let run = self.0.get()?;
        Ok(Pending::shown("redrive.stop()", async move { run.stop().await }))
    }

    /// Waits until it has finished, was stopped, or stopped itself because too many died again.
    fn finished(&self) -> PyResult<Pending> {
        let run = self.0.get()?;
        Ok(Pending::shown("redrive.finished()", async move { run.finished().await }))
    }

    fn __repr__(&self) -> String {
        format!("<resil.RedriveRun case={}>", self.0.peek().case())
    }
}

#[pymethods]
impl PyClient {
    /// The ledger of failed messages under this name.
    #[pyo3(signature = (name, **settings))]
    fn dead_letters(&self, name: Arg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<PyDeadLetters> {
        let (client, name) = (self.get()?, text("name", name)?);
        let settings: DeadLettersSettings = read(settings)?;
        spelled(client.dead_letters(&name, settings)).map(|letters| PyDeadLetters(Owned::new(letters)))
    }
}
