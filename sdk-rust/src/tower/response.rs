//! Answers that count as failures.
//!
//! Policies judge errors. An answer that is judged bad travels through them as one ([`Bad`]), and comes out as the answer it is.

use super::guarded::{Nesting, ask};
use crate::error::Failure;
use crate::policy::{Class, Classify};
use tower_service::Service;

/// Says which answers are failures. Every `Fn(&Response) -> Option<Class>` does; `None` is a good answer. Write the type
/// of a closure's argument.
pub trait ClassifyResponse<Res> {
    fn classify_response(&self, response: &Res) -> Option<Class>;
}

impl<Res, F: Fn(&Res) -> Option<Class>> ClassifyResponse<Res> for F {
    fn classify_response(&self, response: &Res) -> Option<Class> {
        self(response)
    }
}

/// What answers are unless somebody says otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub struct EveryResponseIsGood;

impl<Res> ClassifyResponse<Res> for EveryResponseIsGood {
    fn classify_response(&self, _response: &Res) -> Option<Class> {
        None
    }
}

/// What a policy sees as an error.
pub(super) enum Bad<Res, E> {
    Response(Res, Class),
    Error(E),
}

/// Calls the service; an answer that is judged bad is an error until [`settle`].
pub(super) async fn ask_judged<N, S, Req>(
    judge: &impl ClassifyResponse<S::Response>,
    service: S,
    request: Req,
) -> Result<S::Response, Failure<Bad<S::Response, N::Own>>>
where
    S: Service<Req>,
    N: Nesting<S::Error>,
{
    match ask::<N, S, Req>(service, request).await {
        Ok(response) => match judge.classify_response(&response) {
            None => Ok(response),
            Some(class) => Err(Failure::Inner(Bad::Response(response, class))),
        },
        Err(failure) => Err(failure.flat_map(|error| Failure::Inner(Bad::Error(error)))),
    }
}

/// The same classifier for what policies see.
pub(super) fn judged<Res, E>(classify: &impl Classify<E>) -> impl Classify<Bad<Res, E>> {
    |bad: &Bad<Res, E>| match bad {
        Bad::Response(_, class) => *class,
        Bad::Error(error) => classify.classify(error),
    }
}

/// Answers are answers again.
pub(super) fn settle<Res, E>(result: Result<Res, Failure<Bad<Res, E>>>) -> Result<Res, Failure<E>> {
    match result {
        Ok(response) | Err(Failure::Inner(Bad::Response(response, _))) => Ok(response),
        Err(Failure::Inner(Bad::Error(error))) => Err(Failure::Inner(error)),
        Err(Failure::Resil(error)) => Err(Failure::Resil(error)),
        Err(Failure::Exhausted { attempts, last }) => match settle(Err(*last)) {
            Ok(response) => Ok(response),
            Err(last) => Err(Failure::Exhausted { attempts, last: Box::new(last) }),
        },
    }
}

/// `around` for policies that only have a `run` for plain errors.
pub(super) fn flatten<T, E>(result: Result<T, Failure<Failure<E>>>) -> Result<T, Failure<E>> {
    result.map_err(|failure| failure.flat_map(|inner| inner))
}
