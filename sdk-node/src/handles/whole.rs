//! Whole policies, from settings and from files, and batches.

use napi::bindgen_prelude::{Buffer, Env};
use napi_derive::napi;
use resil::dispatcher::{self, ItemError};
use resil::idempotency::Run;
use resil::policy::{self, Stage};
use resil::settings::{CallSettings, PolicyFile, PolicySettings};

use crate::client::Client;
use crate::convert::{now, run_with, settings};
use crate::executor::Word;
use crate::executor::attempt::Detail;
use crate::guard::{Guard, Layer};
use crate::idempotent::{Came, Idempotent, attempt, remember};
use crate::thrown::Thrown;

#[napi]
pub struct Policy(policy::Policy);

#[napi]
pub struct Policies {
    client: resil::Client,
    file: PolicyFile,
}

#[napi]
impl Client {
    #[napi]
    pub fn policy(&self, env: Env, name: String, said: String) -> napi::Result<Policy> {
        let make = || {
            let settings = PolicySettings { name: Some(name), ..settings(&said)? };
            policy::Policy::from_settings(&self.0, &settings)
        };
        now(&env, make()).map(Policy)
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
        let read = || {
            let file = if text.trim_start().starts_with('{') {
                PolicyFile::from_json(&text)?
            } else {
                PolicyFile::from_yaml(&text)?
            };
            file.validate().map(|()| file)
        };
        let client = self.0.clone();
        now(&env, read()).map(|file| Policies { client, file })
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
        now(&env, self.file.policy(&self.client, &name)).map(Policy)
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
        self.0.name().to_owned()
    }

    #[napi(getter)]
    pub fn order(&self) -> Vec<&'static str> {
        self.0.order().iter().map(|stage: &Stage| stage.text()).collect()
    }

    #[napi(getter)]
    pub fn warnings(&self) -> Vec<String> {
        self.0.warnings().to_vec()
    }

    /// Whether it has a stage that has to know which errors may go away.
    #[napi(getter)]
    pub fn judges(&self) -> bool {
        self.0.order().iter().any(|stage| matches!(stage, Stage::Retry | Stage::Hedge))
    }

    /// Once for all who name the same key.
    #[napi]
    pub fn call_once(
        &self,
        idempotent: &Idempotent,
        key: String,
        fingerprint: Buffer,
        said: String,
    ) -> napi::Result<Word> {
        let (policy, idempotent, fingerprint) = (self.0.clone(), idempotent.0.clone(), fingerprint.to_vec());
        run_with(|call| async move {
            let particular: CallSettings<'static> = settings(&said)?;
            let work = |run: Run| {
                let attempt = attempt(call, &run);
                async move { attempt.await.map(|done| done.bytes.unwrap_or_default()) }
            };
            let (options, remember) = (particular.by_ref(), remember());
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

#[napi]
impl Dispatcher {
    /// What each item came to: 0 it succeeded, 1 it failed, 2 it was cancelled, 3 it did not run.
    #[napi]
    pub fn run(&self, count: u32) -> napi::Result<Word> {
        let dispatcher = self.0.clone();
        run_with(|call| async move {
            let work = |item| call.attempt(Some(Detail { item: Some(item), ..Detail::default() }));
            let results = dispatcher.run_local(0..count, work).await;
            let status = |result: Result<_, ItemError<_>>| match result {
                Ok(_) => 0,
                Err(ItemError::Cancelled) => 2,
                Err(ItemError::NotRun) => 3,
                Err(_) => 1,
            };
            Ok(results.into_iter().map(status).collect::<Vec<u32>>())
        })
    }
}
