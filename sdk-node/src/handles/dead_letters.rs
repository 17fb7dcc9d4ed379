//! Messages that failed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use napi::bindgen_prelude::{BigInt, Buffer};
use napi_derive::napi;
use parking_lot::Mutex;
use resil::dead_letters::{self, FailureNote, Letter, LetterFilter, LetterView, Settlement};
use resil::{CancellationToken, Error, Failure};
use serde_json::{Value, json};

use crate::client::Client;
use crate::convert::{bigint, duration, makes, methods, number, run, run_with, settings, shown};
use crate::executor::Word;
use crate::executor::attempt::Detail;
use crate::thrown::Thrown;

#[napi]
pub struct DeadLetters(dead_letters::DeadLetters);

/// A message of its parts.
fn letter(id: String, payload: Option<Buffer>, headers: Option<Buffer>, said: &str) -> Result<Letter, Error> {
    let bytes = |bytes: Buffer| Bytes::from(bytes.to_vec());
    Ok(Letter { id, payload: payload.map(bytes), headers: headers.map(bytes), ..settings(said)? })
}

fn note(error: String, said: &str) -> Result<FailureNote, Error> {
    Ok(FailureNote { error, ..settings(said)? })
}

/// A message with its bytes, which JSON has not.
#[napi(object, object_from_js = false)]
pub struct ShownLetter {
    pub json: String,
    pub payload: Option<Buffer>,
    pub headers: Option<Buffer>,
}

impl ShownLetter {
    fn of(view: &LetterView) -> Result<Self, Error> {
        let buffer = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| Buffer::from(bytes.to_vec()));
        Ok(Self { json: shown(view)?, payload: buffer(&view.payload), headers: buffer(&view.headers) })
    }
}

#[napi(object, object_from_js = false)]
pub struct ShownPage {
    pub letters: Vec<ShownLetter>,
    pub cursor: Option<BigInt>,
}

/// What a message that was taken says of itself.
#[napi(object, object_from_js = false)]
pub struct MessageParts {
    pub json: String,
    pub payload: Option<Buffer>,
    pub headers: Buffer,
    pub fence: BigInt,
}

fn parts(message: &dead_letters::TakenMessage) -> Result<MessageParts, Error> {
    let json = json!({
        "id": message.id(),
        "reference": message.reference(),
        "kind": message.kind(),
        "source": message.source(),
        "aggregate": message.aggregate(),
        "schema": message.schema(),
        "attempt": message.attempt(),
        "lapses": message.lapses(),
        "deaths": message.deaths(),
        "failureClass": message.failure_class(),
        "group": message.group(),
        "error": message.error(),
        "case": message.case(),
    });
    Ok(MessageParts {
        json: json.to_string(),
        payload: message.payload().map(|payload| Buffer::from(payload.to_vec())),
        headers: Buffer::from(message.headers().to_vec()),
        fence: bigint(message.fence()),
    })
}

/// A message that was taken.
#[napi]
pub struct TakenLetter {
    message: Arc<dead_letters::TakenMessage>,
    /// `None` once it was settled.
    letter: Mutex<Option<dead_letters::TakenLetter>>,
}

impl TakenLetter {
    fn of(letter: dead_letters::TakenLetter) -> Self {
        Self { message: letter.message(), letter: Mutex::new(Some(letter)) }
    }

    fn settle(&self) -> Result<dead_letters::TakenLetter, Error> {
        let settled = || Error::InvalidArgument("this message was settled before".to_owned());
        self.letter.lock().take().ok_or_else(settled)
    }
}

#[napi]
impl TakenLetter {
    #[napi]
    pub fn parts(&self) -> napi::Result<MessageParts> {
        parts(&self.message).map_err(|error| napi::Error::from_reason(error.to_string()))
    }

    #[napi(getter)]
    pub fn is_lost(&self) -> bool {
        self.message.lost().is_cancelled()
    }

    #[napi]
    pub fn done(&self) -> napi::Result<Word> {
        let letter = self.settle();
        run(async move { letter?.done().await })
    }

    #[napi]
    pub fn fail(&self, error: String, said: String) -> napi::Result<Word> {
        // What is wrong with the note leaves the message as it is.
        let letter = note(error, &said).and_then(|note| Ok((self.settle()?, note)));
        run(async move {
            let (letter, note) = letter?;
            shown(&letter.fail(note).await?)
        })
    }

    #[napi]
    pub fn give_back(&self, delay: String) -> napi::Result<Word> {
        let letter = duration("delay", &delay).and_then(|delay| Ok((self.settle()?, delay)));
        run(async move {
            let (letter, delay) = letter?;
            letter.give_back(delay).await
        })
    }
}

#[napi]
impl DeadLetters {
    #[napi(getter)]
    pub fn name(&self) -> String {
        self.0.name().to_owned()
    }

    #[napi]
    pub fn by(&self, actor: String) -> Self {
        Self(self.0.by(actor))
    }

    #[napi]
    pub fn fail(
        &self,
        id: String,
        error: String,
        payload: Option<Buffer>,
        headers: Option<Buffer>,
        of_letter: String,
        of_note: String,
    ) -> napi::Result<Word> {
        let letters = self.0.clone();
        let said = letter(id, payload, headers, &of_letter).and_then(|letter| Ok((letter, note(error, &of_note)?)));
        run(async move {
            let (letter, note) = said?;
            shown(&letters.fail(&letter, note).await?)
        })
    }

    #[napi]
    pub fn park(
        &self,
        id: String,
        payload: Option<Buffer>,
        headers: Option<Buffer>,
        of_letter: String,
    ) -> napi::Result<Word> {
        let letters = self.0.clone();
        let letter = letter(id, payload, headers, &of_letter);
        run(async move { shown(&letters.park(&letter?).await?) })
    }

    /// Runs the function for each message, until a shutdown: an item is a message, whose parts are asked for by its number.
    #[napi]
    pub fn run(&self, handled: &HandledMessages) -> napi::Result<Word> {
        let (letters, messages) = (self.0.clone(), Rc::clone(&handled.0));
        run_with(|call| async move {
            let handler = |message: Arc<dead_letters::TakenMessage>| {
                let number = messages.borrow_mut().add(Arc::clone(&message));
                let detail = Detail { item: Some(number), attempt: message.attempt(), ..Detail::default() };
                let lost = message.lost().clone();
                let (messages, fence) = (Rc::clone(&messages), message.fence());
                let attempt = call.attempt(Some(Detail { fence: Some(fence), ..detail }));
                async move {
                    let settled = attempt.warned_by(lost.cancelled_owned()).await;
                    messages.borrow_mut().all.remove(&number);
                    settled.map(drop)
                }
            };
            let report = letters.run_until(&CancellationToken::new(), judge, handler).await;
            report.and_then(|report| shown(&report)).map_err(Failure::Resil)
        })
    }
}

/// What becomes of a message whose handler threw this. What JavaScript has to say of it is written as JSON.
fn judge(failure: &Failure<Thrown>) -> Settlement {
    let usual = |error: &Error| Settlement::of_code(error.code(), error.to_string(), error.retry_after());
    match failure {
        Failure::Resil(error) => usual(error),
        Failure::Inner(thrown) => {
            let said = thrown.recorded.as_deref().and_then(|said| std::str::from_utf8(said).ok()).unwrap_or("{}");
            if serde_json::from_str::<Value>(said).is_ok_and(|said| said == "give-back") {
                return Settlement::given_back();
            }
            let error = thrown.message.to_string();
            note(error.clone(), said).unwrap_or_else(|_| FailureNote::new(error)).into()
        }
        Failure::Exhausted { last, .. } => judge(last),
    }
}

/// The messages that are being handled, by their numbers.
#[derive(Default)]
struct Handled {
    all: HashMap<u32, Arc<dead_letters::TakenMessage>>,
    last: u32,
}

impl Handled {
    fn add(&mut self, message: Arc<dead_letters::TakenMessage>) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.all.insert(self.last, message);
        self.last
    }
}

#[napi]
pub struct HandledMessages(Rc<RefCell<Handled>>);

#[napi]
impl HandledMessages {
    #[napi(factory)]
    pub fn make() -> Self {
        Self(Rc::default())
    }

    #[napi]
    pub fn parts(&self, number: u32) -> napi::Result<Option<MessageParts>> {
        let handled = self.0.borrow();
        let parts = handled.all.get(&number).map(|message| parts(message)).transpose();
        parts.map_err(|error| napi::Error::from_reason(error.to_string()))
    }
}

methods! { DeadLetters(letters) {
    take(count: u32, wait: String) => {
        let batch = letters.take(count, duration("wait", &wait)?).await?;
        Ok(batch.into_iter().map(TakenLetter::of).collect::<Vec<_>>())
    };
    get(id: String) => letters.get(&id).await?.as_ref().map(ShownLetter::of).transpose();
    standing(id: String) => shown(&letters.standing(&id).await?);
    list(said: String) => {
        let page = letters.list(&settings::<LetterFilter>(&said)?).await?;
        let letters = page.letters.iter().map(ShownLetter::of).collect::<Result<Vec<_>, _>>()?;
        Ok(ShownPage { letters, cursor: page.cursor.map(bigint) })
    };
    info() => shown(&letters.info().await?);
    config() => shown(&letters.config().await?);
    configure(said: String) => letters.configure(&settings(&said)?).await;
    groups() => shown(&letters.groups().await?);
    cases() => shown(&letters.cases().await?);
    case(number: u32) => shown(&letters.case(number).await?);
    alerts() => shown(&letters.alerts().await?);
    audit() => shown(&letters.audit().await?);
    diagnose(said: String) => letters.diagnose(&settings(&said)?).await;
    redrive(case: u32, said: String) => letters.redrive(case, &settings(&said)?).await.map(RedriveRun);
    dry_run(case: u32, said: String) => shown(&letters.dry_run(case, &settings(&said)?).await?);
    stop(case: u32) => shown(&letters.stop(case).await?);
    close(case: u32) => letters.close(case).await.map(|left| left as f64);
    discard(case: u32) => letters.discard(case).await.map(|left| left as f64);
    hold(id: String, reason: String) => letters.hold(&id, &reason).await.map(|count| count as f64);
    hold_aggregate(name: String, reason: String) => letters.hold_aggregate(&name, &reason).await.map(|count| count as f64);
    release(id: String, reason: String) => letters.release(&id, &reason).await.map(|count| count as f64);
    release_aggregate(name: String, reason: String) => {
        letters.release_aggregate(&name, &reason).await.map(|count| count as f64)
    };
    purge(older: String, said: String, limit: Option<u32>) => {
        let state = settings::<LetterFilter>(&said)?.state;
        shown(&letters.purge(duration("older", &older)?, state, limit).await?)
    };
    seen(alert: BigInt) => letters.seen(number("alert", &alert)?).await;
} }

/// A redrive that was started.
#[napi]
pub struct RedriveRun(dead_letters::RedriveRun);

#[napi]
impl RedriveRun {
    #[napi(getter)]
    pub fn case(&self) -> u32 {
        self.0.case()
    }

    #[napi(getter)]
    pub fn matched(&self) -> napi::Result<String> {
        shown(self.0.matched()).map_err(|error| napi::Error::from_reason(error.to_string()))
    }
}

methods! { RedriveRun(redrive) {
    progress() => shown(&redrive.progress().await?);
    stop() => shown(&redrive.stop().await?);
    finished() => shown(&redrive.finished().await?);
} }

makes! {
    dead_letters(dead_letters::DeadLettersSettings) -> DeadLetters = DeadLetters;
}
