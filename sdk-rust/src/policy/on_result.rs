//! Results that are failures: a 503 that came as a result, not as an error.
//!
//! A judge says which results are failures, and of what [`Class`]. Policies see those as errors: retried, or counted against what was
//! called. In the end a result is a result again: when all attempts are used up, the last one is returned as it came.

use std::future::Future;

use futures_util::FutureExt;

use super::chain::Policy;
use super::classify::{Class, Classify};
use super::hedge::Hedge;
use super::retry::Retry;
use crate::breaker::Breaker;
use crate::error::Failure;

/// What a policy sees as an error.
#[doc(hidden)]
#[derive(Debug)]
pub enum Unfit<T, E> {
    Result(T, Class),
    Error(E),
}

/// What a call came to, judged.
#[doc(hidden)]
pub fn judged<T, E>(
    judge: impl FnOnce(&T) -> Option<Class>,
    ended: Result<T, Failure<E>>,
) -> Result<T, Failure<Unfit<T, E>>> {
    let value = ended.map_err(|failure| failure.flat_map(|error| Failure::Inner(Unfit::Error(error))))?;
    match judge(&value) {
        None => Ok(value),
        Some(class) => Err(Failure::Inner(Unfit::Result(value, class))),
    }
}

/// The same classifier for what policies see.
#[doc(hidden)]
pub fn classified<T, E>(classify: impl Classify<E>) -> impl Classify<Unfit<T, E>> {
    move |unfit: &Unfit<T, E>| match unfit {
        Unfit::Result(_, class) => *class,
        Unfit::Error(error) => classify.classify(error),
    }
}

/// Results are results again.
#[doc(hidden)]
pub fn settled<T, E>(ended: Result<T, Failure<Unfit<T, E>>>) -> Result<T, Failure<E>> {
    match ended {
        Ok(value) | Err(Failure::Inner(Unfit::Result(value, _))) => Ok(value),
        Err(Failure::Inner(Unfit::Error(error))) => Err(Failure::Inner(error)),
        Err(Failure::Resil(error)) => Err(Failure::Resil(error)),
        Err(Failure::Exhausted { attempts, last }) => match settled(Err(*last)) {
            Ok(value) => Ok(value),
            Err(last) => Err(Failure::Exhausted { attempts, last: Box::new(last) }),
        },
    }
}

/// `call_on_result!(Policy, [operation's bounds], |policy, classify, call| how it is called)`.
macro_rules! call_on_result {
    ($type:ty, $operation:ident, |$policy:ident, $classify:ident, $call:ident| $does:expr) => {
        impl $type {
            /// As `call`, with results that are failures: `on_result` says which, and of what class. When there is no other
            /// attempt, the result is returned as it came.
            ///
            /// `|response: &Response| (response.status == 503).then_some(Class::Retry)`
            pub async fn call_on_result<T, E, Fut>(
                &self,
                on_result: impl Fn(&T) -> Option<Class>,
                classify: impl Classify<E>,
                operation: impl $operation() -> Fut,
            ) -> Result<T, Failure<E>>
            where
                Fut: Future<Output = Result<T, E>>,
            {
                let ($policy, $classify, judge) = (self, classified(classify), &on_result);
                let $call = move || operation().map(move |ended| judged(judge, ended.map_err(Failure::Inner)));
                settled($does.await)
            }
        }
    };
}

call_on_result!(Retry, Fn, |retry, classify, call| retry.around(classify, call));
call_on_result!(Hedge, Fn, |hedge, classify, call| hedge.around(classify, call));
call_on_result!(Breaker, FnOnce, |breaker, classify, call| breaker.around(classify, call));
call_on_result!(Policy, Fn, |policy, classify, call| policy.around_with(Default::default(), classify, call));
