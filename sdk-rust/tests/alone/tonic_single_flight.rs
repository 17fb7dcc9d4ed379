//! Single flight for unary calls, without a server: who shares, who does not, and what becomes of those who give up.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use crate::drive::{drive, poll_now};
use resil::ConnectSettings;
use resil::breaker::BreakerSettings;
use resil::clock::Clock;
use resil::grpc::GrpcPolicy;
use tokio::sync::Notify;
use tonic::{Code, Response, Status};

/// A call that waits to be let go, and counts.
#[derive(Clone, Default)]
struct Remote {
    calls: Arc<AtomicU32>,
    running: Arc<AtomicU32>,
    go: Arc<Notify>,
}

struct Running(Arc<AtomicU32>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Remote {
    fn call<T: Send + 'static>(&self, reply: Result<T, Status>) -> impl FnOnce() -> Answered<T> + Send + 'static {
        let remote = self.clone();
        move || {
            Box::pin(async move {
                remote.calls.fetch_add(1, SeqCst);
                remote.running.fetch_add(1, SeqCst);
                let _running = Running(Arc::clone(&remote.running));
                remote.go.notified().await;
                reply.map(Response::new)
            })
        }
    }

    fn calls(&self) -> u32 {
        self.calls.load(SeqCst)
    }

    fn running(&self) -> u32 {
        self.running.load(SeqCst)
    }
}

type Answered<T> = std::pin::Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

#[test]
fn a_caller_that_gives_up_leaves_others_their_call() {
    let (policy, remote) = (GrpcPolicy::new().clock(Clock::driven()), Remote::default());
    let mut leader = Box::pin(policy.unary("m", ["a"], remote.call(Ok(1))));
    assert!(poll_now(leader.as_mut()).is_pending());
    let mut follower = Box::pin(policy.unary("m", ["a"], remote.call(Ok(2))));
    assert!(poll_now(follower.as_mut()).is_pending());
    drop(leader);
    assert_eq!((remote.calls(), remote.running()), (1, 1));
    remote.go.notify_one();
    let Poll::Ready(reply) = poll_now(follower.as_mut()) else { panic!("nobody drives it") };
    assert_eq!(reply.expect("the leader's response").into_inner(), 1);

    let mut alone = Box::pin(policy.unary("m", ["a"], remote.call(Ok(3))));
    assert!(poll_now(alone.as_mut()).is_pending());
    assert_eq!(remote.running(), 1);
    drop(alone);
    assert_eq!(remote.running(), 0, "nobody waits for it any more");
    let mut next = Box::pin(policy.unary("m", ["a"], remote.call(Ok(4))));
    remote.go.notify_one();
    assert!(matches!(poll_now(next.as_mut()), Poll::Ready(Ok(reply)) if *reply.get_ref() == 4));
}

#[test]
fn other_ids_another_method_or_another_type_is_another_call() {
    let (policy, remote) = (GrpcPolicy::new().clock(Clock::driven()), Remote::default());
    let mut calls = [("m", vec!["a"]), ("m", vec!["a", "a"]), ("m", vec!["b"]), ("n", vec!["a"]), ("m", vec!["a"])]
        .map(|(method, ids)| Box::pin(policy.unary(method, ids, remote.call(Ok(1)))));
    for call in &mut calls {
        assert!(poll_now(call.as_mut()).is_pending());
    }
    assert_eq!(remote.calls(), 4, "the last is the first once more");
    let mut of_text = pin!(policy.unary("m", ["a"], remote.call(Ok("text"))));
    assert!(poll_now(of_text.as_mut()).is_pending());
    assert_eq!(remote.calls(), 5);
}

#[test]
fn a_status_is_shared_as_a_reply_is() {
    let (policy, remote) = (GrpcPolicy::new().clock(Clock::driven()), Remote::default());
    let mut calls = [1, 2].map(|_| Box::pin(policy.unary("m", ["a"], remote.call::<()>(Err(Status::aborted("no"))))));
    for call in &mut calls {
        assert!(poll_now(call.as_mut()).is_pending());
    }
    remote.go.notify_one();
    for call in &mut calls {
        let Poll::Ready(Err(status)) = poll_now(call.as_mut()) else { panic!("not over") };
        assert_eq!((status.code(), status.message()), (Code::Aborted, "no"));
    }
    assert_eq!(remote.calls(), 1);
}

#[test]
fn a_panic_is_internal_for_all_without_its_text() {
    let policy = GrpcPolicy::new();
    let call = policy.unary("m", ["a"], || async { panic!("secret") });
    let status: Result<Response<()>, Status> = drive(&Clock::driven(), call);
    let status = status.expect_err("panicked");
    assert_eq!(status.code(), Code::Internal);
    assert!(!status.message().contains("secret"), "{}", status.message());
}

#[test]
fn a_call_nobody_replies_to_times_out_and_counts() {
    let clock = Clock::driven();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let client = drive(&clock, ConnectSettings::new("memory://").clock(clock.clone()).connect()).expect("memory");
    let breaker = client.breaker("c", BreakerSettings::new().consecutive_failures(1)).expect("valid");
    let policy = GrpcPolicy::new().breaker(breaker).timeout(Duration::from_secs(2)).clock(clock.clone());
    let remote = Remote::default();
    let began = clock.now();
    let late = drive(&clock, policy.unary("m", ["a"], remote.call(Ok(1)))).expect_err("late");
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert_eq!(clock.now() - began, Duration::from_secs(2));
    assert_eq!(remote.running(), 0);
    let refused = drive(&clock, policy.unary("m", ["b"], remote.call(Ok(1)))).expect_err("open");
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(remote.calls(), 1);
}
