//! Fallbacks: which failures they result, and with what.

use super::*;

fn fail_with<T>(failure: Failure<Reply>) -> impl Future<Output = Result<T, Failure<Reply>>> {
    ready(Err(failure))
}

#[test]
fn a_success_is_not_touched() {
    let fallback = Fallback::function(|_: &Failure<()>| -> u8 { panic!("nothing failed") });
    assert_eq!(poll_now(pin!(fallback.call(|| ready(Ok(1))))), Poll::Ready(Ok(1)));
}

#[test]
fn every_failure_but_bad_settings_and_arguments_is_answered() {
    let fallback = Fallback::value("instead");
    let timeout = Failure::Resil(Error::Timeout { after: ms(1) });
    for failure in [Failure::Inner(Reply::Gone), timeout.clone(), exhausted(3, timeout)] {
        assert_eq!(poll_now(pin!(fallback.around(|| fail_with(failure)))), Poll::Ready(Ok("instead")));
    }
    let invalid = Error::InvalidPolicy { field: "a".into(), reason: "b".into() };
    for error in [invalid, Error::InvalidArgument("c".into())] {
        let failure = Failure::Resil(error);
        assert_eq!(poll_now(pin!(fallback.around(|| fail_with(failure.clone())))), Poll::Ready(Err(failure.clone())));
    }
}

#[test]
fn a_predicate_chooses_otherwise() {
    let fallback = Fallback::value(0).when(|failure| failure.code() == Some(Code::Timeout));
    let gone = Failure::Inner(Reply::Gone);
    assert_eq!(poll_now(pin!(fallback.around(|| fail_with(gone.clone())))), Poll::Ready(Err(gone.clone())));
    let timeout = Failure::Resil(Error::Timeout { after: ms(1) });
    assert_eq!(poll_now(pin!(fallback.around(|| fail_with(timeout)))), Poll::Ready(Ok(0)));
}

#[test]
fn a_function_sees_the_failure_and_may_fail_itself() {
    let name = Fallback::function(|failure: &Failure<Reply>| format!("{failure:?}"));
    let reply = poll_now(pin!(name.call(|| ready(Err(Reply::Gone)))));
    assert_eq!(reply, Poll::Ready(Ok("Inner(Gone)".to_owned())));
    let clock = Clock::driven();
    let slow = clock.clone();
    let second = Fallback::async_function(move |failure: Failure<Reply>| {
        let slow = slow.clone();
        async move {
            slow.sleep(ms(5)).await;
            match failure {
                Failure::Inner(Reply::Busy) => Ok("from the second"),
                other => Err(other),
            }
        }
    });
    assert_eq!(drive(&clock, second.call(|| ready(Err(Reply::Busy)))), Ok("from the second"));
    assert_eq!(drive(&clock, second.call(|| ready(Err(Reply::Gone)))), Err(Failure::Inner(Reply::Gone)));
}
