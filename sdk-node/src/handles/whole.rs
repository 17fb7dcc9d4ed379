//! Whole policies, from settings and from files, and batches.

use std::cell::RefCell;
use std::pin::pin;

use futures_util::StreamExt;
use futures_util::stream;
use napi::bindgen_prelude::{BigInt, Buffer, Env};
use napi_derive::napi;
use resil::Failure;
use resil::dispatcher::{self, ItemError};
use resil::idempotency::Run;
use resil::policy::{PolicyBuilder, Stage};
use resil::settings::{CallSettings, PolicyFile, PolicySettings};

use crate::client::Client;
use crate::convert::{bigint, now, run_with, settings};
use crate::edge::to_js;
use crate::executor::attempt::{Attempt, Call, Detail};
use crate::executor::{Outcome, Word, begin};
use crate::guard::{Guard, Layer, PolicySource};
use crate::idempotent::{Came, Idempotent, attempt, remember};
use crate::policies::Budget;
use crate::thrown::Thrown;

#[napi]
pub struct Policy(pub(crate) PolicySource);

#[napi]
pub struct Policies {
    client: resil::Client,
    file: PolicyFile,
}

#[napi]
impl Client {
    #[napi]
    pub fn policy(&self, env: Env, name: String, said: String, budget: Option<&Budget>) -> napi::Result<Policy> {
        let make = || {
            let settings = PolicySettings { name: Some(name), ..settings(&said)? };
            let builder = PolicyBuilder::from_settings(&self.0, &settings)?;
            budget.iter().fold(builder, |builder, budget| builder.budget(budget.0.clone())).build()
        };
        now(&env, make()).map(|made| Policy(PolicySource::Made(made)))
    }

    /// Of JSON in JavaScript's dialect.
    #[napi]
    pub fn policies(&self, env: Env, said: String) -> napi::Result<Policies> {
        let client = self.0.clone();
        now(&env, settings::<PolicyFile>(&said)).map(|file| Policies { client, file })
    }

    /// Of a file's text: YAML, which JSON is, too.
    #[napi]
    pub fn policies_of_text(&self, env: Env, text: String) -> napi::Result<Policies> {
        let client = self.0.clone();
        now(&env, PolicyFile::from_text(&text)).map(|file| Policies { client, file })
    }
}

#[napi]
impl Policies {
    #[napi(getter)]
    pub fn names(&self) -> Vec<String> {
        self.file.policies.keys().cloned().collect()
    }

    #[napi]
    pub fn policy(&self, env: Env, name: String) -> napi::Result<Policy> {
        now(&env, self.file.policy(&self.client, &name)).map(|made| Policy(PolicySource::Made(made)))
    }
}

#[napi]
impl Policy {
    #[napi]
    pub fn guard(&self) -> Guard {
        Guard::of(vec![Layer::Policy(self.0.clone())])
    }

    #[napi(getter)]
    pub fn name(&self) -> String {
        self.0.now().name().to_owned()
    }

    /// The version in use of a stored policy that is followed.
    #[napi(getter)]
    pub fn version(&self) -> Option<BigInt> {
        if let PolicySource::Followed(policy) = &self.0 { policy.version().map(bigint) } else { None }
    }

    /// Why what is in use is not what is stored, or in the file, if it is not.
    #[napi(getter)]
    pub fn problem(&self) -> Option<String> {
        let problem = match &self.0 {
            PolicySource::Made(_) => None,
            PolicySource::Followed(policy) => policy.problem(),
            PolicySource::Watched(watched, last) => {
                watched.problem().or_else(|| watched.policy(last.lock().name()).err())
            }
        };
        problem.map(|problem| problem.to_string())
    }

    #[napi(getter)]
    pub fn order(&self) -> Vec<&'static str> {
        self.0.now().order().iter().map(|stage: &Stage| stage.text()).collect()
    }

    #[napi(getter)]
    pub fn warnings(&self) -> Vec<String> {
        self.0.now().warnings().to_vec()
    }

    /// Whether it has a stage that has to know which errors may go away.
    #[napi(getter)]
    pub fn judges(&self) -> bool {
        self.0.now().order().iter().any(|stage| matches!(stage, Stage::Retry | Stage::Hedge))
    }

    /// Once for all who name the same key.
    #[napi]
    pub fn call_once(
        &self,
        idempotent: &Idempotent,
        key: String,
        fingerprint: Buffer,
        said: String,
        remembers: bool,
    ) -> napi::Result<Word> {
        let (policy, idempotent, fingerprint) = (self.0.now(), idempotent.0.clone(), fingerprint.to_vec());
        run_with(|call| async move {
            let particular: CallSettings<'static> = settings(&said)?;
            let work = |run: Run| attempt(call, run);
            let (options, remember) = (particular.by_ref(), remember(remembers));
            let classify = |thrown: &Thrown| thrown.class(0);
            let outcome = policy.around_once(&idempotent, &key, &fingerprint, options, classify, &remember, work).await;
            outcome.map(Came::of)
        })
    }
}

/// Runs items, a few at a time.
#[napi]
pub struct Dispatcher(dispatcher::Dispatcher);

#[napi]
pub fn make_dispatcher(env: Env, said: String) -> napi::Result<Dispatcher> {
    now(&env, settings(&said).and_then(dispatcher::Dispatcher::new)).map(Dispatcher)
}

/// What an item came to: 0 it succeeded, 1 it failed, 2 it was cancelled, 3 it did not run.
fn status<T, E>(result: &Result<T, ItemError<E>>) -> u32 {
    match result {
        Ok(_) => 0,
        Err(ItemError::Cancelled) => 2,
        Err(ItemError::NotRun) => 3,
        Err(_) => 1,
    }
}

fn work_on(call: Call, item: u32) -> Attempt {
    call.attempt(Some(Detail { item: Some(item), ..Detail::default() }))
}

#[napi]
impl Dispatcher {
    /// What each item came to, in their order.
    #[napi]
    pub fn run(&self, count: u32) -> napi::Result<Word> {
        let dispatcher = self.0.clone();
        run_with(|call| async move {
            let results = dispatcher.run_local(0..count, |item| work_on(call, item)).await;
            Ok(results.iter().map(status).collect::<Vec<u32>>())
        })
    }

    /// The number of an item and what it came to, in turn, in the order of completion.
    #[napi]
    pub fn run_unordered(&self, count: u32) -> napi::Result<Word> {
        let dispatcher = self.0.clone();
        run_with(|call| async move {
            let results = dispatcher.run_unordered_local(0..count, |item| work_on(call, item)).await;
            Ok(results.iter().flat_map(|(item, result)| [*item as u32, status(result)]).collect::<Vec<u32>>())
        })
    }

    /// Asks for items (`next`), works on them, and hands over what each came to (`give`), until there are no more. It keeps the process
    /// alive only while it waits for none of that.
    #[napi]
    pub fn stream(&self, is_ordered: bool) -> napi::Result<Word> {
        let dispatcher = self.0.clone();
        begin(false, move |call| {
            Box::pin(async move {
                match streamed(&dispatcher, call, is_ordered).await {
                    Ok(()) => Outcome::Value(Box::new(|env| to_js(env, ()))),
                    Err(failure) => Outcome::Failed(failure),
                }
            })
        })
    }
}

async fn streamed(dispatcher: &dispatcher::Dispatcher, call: Call, is_ordered: bool) -> Result<(), Failure<Thrown>> {
    let broken = RefCell::new(None);
    let ask = |ask, item, status| {
        call.attempt(Some(Detail { ask: Some(ask), item: Some(item), status, ..Detail::default() }))
    };
    let items = stream::unfold(0u32, |item| {
        let (next, broken) = (ask("next", item, None), &broken);
        async move {
            match next.await {
                // Bytes, though none: there is one.
                Ok(done) => done.bytes.map(|_| (item, item.wrapping_add(1))),
                Err(failure) => {
                    *broken.borrow_mut() = Some(failure);
                    None
                }
            }
        }
    });
    let work = |item| async move { work_on(call, item).await.map(|_| item).map_err(|failure| (item, failure)) };
    let give = async |result: Result<u32, ItemError<(u32, Failure<Thrown>)>>| {
        let item = match &result {
            Ok(item) | Err(ItemError::Failed((item, _))) => *item,
            Err(_) => u32::MAX,
        };
        ask("give", item, Some(status(&result))).await.map(drop)
    };
    if is_ordered {
        let mut results = pin!(dispatcher.stream_local(items, work));
        while let Some(result) = results.next().await {
            give(result).await?;
        }
    } else {
        let mut results = pin!(dispatcher.stream_unordered_local(items, work));
        while let Some(result) = results.next().await {
            give(result).await?;
        }
    }
    broken.into_inner().map_or(Ok(()), Err)
}
