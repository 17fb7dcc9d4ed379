use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn an_entrant_is_counted_until_its_pass_is_dropped() {
    let gate = Gate::default();
    let (first, second) = (gate.enter().unwrap(), gate.enter().unwrap());
    assert_eq!(gate.close(), 2);
    drop(first);
    assert_eq!(gate.close(), 1);
    drop(second);
    assert_eq!(gate.close(), 0);
}

#[test]
fn whatever_the_order_a_call_is_counted_or_refused() {
    mod modelled {
        use super::super::{ONE_CALL, SIGN};
        use std::sync::atomic::Ordering;

        in_flight!(loom::sync::atomic::AtomicUsize);

        pub fn run() {
            use loom::sync::Arc;
            use loom::sync::atomic::AtomicBool;

            let (gate, effect) = (Arc::new(InFlight::default()), Arc::new(AtomicBool::new(false)));
            let caller = loom::thread::spawn({
                let (gate, effect) = (Arc::clone(&gate), Arc::clone(&effect));
                move || {
                    let is_let_in = gate.enter() == 0;
                    if is_let_in {
                        effect.store(true, Ordering::Relaxed);
                    }
                    gate.leave();
                    is_let_in
                }
            });
            gate.close(super::super::CLOSING);
            let is_empty = gate.count() == 0;
            let seen = effect.load(Ordering::Relaxed);
            let was_let_in = caller.join().unwrap();
            assert!(!(is_empty && was_let_in && !seen), "it was in flight, or its effect is seen");
            assert_eq!(gate.count(), 0);
            assert_ne!(gate.enter(), 0, "nothing is let in after");
        }
    }
    loom::model(modelled::run);
}

#[tokio::test]
async fn a_closing_gate_lets_in_only_insiders_once() {
    let gate = Gate::default();
    let other = Gate::default();
    let checked = gate.pass_through(|| {
        other.pass_through(|| async {
            assert_eq!(gate.close(), 1);
            let inner = gate.enter().expect("it is inside");
            assert_eq!(gate.close(), 1, "the inner call is part of the outer");
            drop(inner);
            assert_eq!(gate.close(), 1);
            let outside = {
                let gate = gate.clone();
                tokio::spawn(async move { gate.enter().err() })
            };
            assert_eq!(outside.await.unwrap(), Some(Error::ShuttingDown));
        })
    });
    checked.await.unwrap().unwrap();
    assert_eq!(gate.enter().err(), Some(Error::ShuttingDown));
    assert!(other.enter().is_ok(), "another client's gate is open");
}

#[tokio::test]
async fn a_shut_gate_lets_in_nobody_and_drops_insiders() {
    let gate = Gate::default();
    let inside = gate.pass_through(|| async {
        assert_eq!(gate.shut(), 1);
        assert_eq!(gate.enter().err(), Some(Error::ShuttingDown));
        std::future::pending::<()>().await;
    });
    assert_eq!(inside.await, Err(Error::ShuttingDown));
    assert_eq!(gate.shut(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_enters_after_the_gate_was_empty() {
    for _ in 0..200 {
        let gate = Gate::default();
        let is_empty = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let (gate, is_empty) = (gate.clone(), Arc::clone(&is_empty));
                tokio::spawn(async move {
                    while let Ok(pass) = gate.enter() {
                        assert!(!is_empty.load(Ordering::SeqCst), "it was closed and empty before");
                        drop(pass);
                    }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        gate.close();
        let waited = tokio::time::timeout(std::time::Duration::from_secs(10), gate.emptied()).await;
        waited.expect("it is emptied");
        is_empty.store(true, Ordering::SeqCst);
        for caller in callers {
            caller.await.unwrap();
        }
    }
}
