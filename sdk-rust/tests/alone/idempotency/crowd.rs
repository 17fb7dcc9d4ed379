//! Whatever callers do, one runs at a time and there is one result.

use super::*;

/// What one caller does.
#[derive(Debug, Clone)]
struct Caller {
    process: usize,
    after_ms: u64,
    takes_ms: u64,
    way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Succeeds,
    Fails,
    /// Dropped that long after it was made.
    Leaves {
        after_ms: u64,
    },
}

fn callers() -> impl Strategy<Value = Vec<Caller>> {
    let way = prop_oneof![
        3 => Just(Way::Succeeds),
        2 => Just(Way::Fails),
        2 => (0_u64..30_000).prop_map(|after_ms| Way::Leaves { after_ms }),
    ];
    let caller = (0_usize..3, 0_u64..20_000, 0_u64..25_000, way)
        .prop_map(|(process, after_ms, takes_ms, way)| Caller { process, after_ms, takes_ms, way });
    prop::collection::vec(caller, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn one_runs_at_a_time_and_there_is_one_result(callers in callers()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = Clock::driven();
            let store = format!("random-{}", rand::random::<u64>());
            let mut works = Vec::new();
            for _ in 0..3 {
                works.push(work(&store, &clock, |settings| settings.wait(60 * SECOND)).await);
            }
            let running = Arc::new(AtomicU32::new(0));
            let done = Arc::new(AtomicU32::new(0));
            struct Leaves(Arc<AtomicU32>);
            impl Drop for Leaves {
                fn drop(&mut self) {
                    self.0.fetch_sub(1, SeqCst);
                }
            }
            let tasks: Vec<_> = callers
                .iter()
                .cloned()
                .map(|Caller { process, after_ms, takes_ms, way }| {
                    let (work, clock, running, done) =
                        (works[process].clone(), clock.clone(), Arc::clone(&running), Arc::clone(&done));
                    tokio::spawn(async move {
                        clock.sleep(Duration::from_millis(after_ms)).await;
                        let call = work.run("42", b"", async |_| {
                            assert_eq!(running.fetch_add(1, SeqCst), 0, "two run at once");
                            let _leaves = Leaves(Arc::clone(&running));
                            clock.sleep(Duration::from_millis(takes_ms)).await;
                            if way == Way::Fails {
                                return Err("no");
                            }
                            Ok(done.fetch_add(1, SeqCst).to_string())
                        });
                        match way {
                            Way::Leaves { after_ms } => tokio::select! {
                                outcome = call => Some(outcome),
                                () = clock.sleep(Duration::from_millis(after_ms)) => None,
                            },
                            _ => Some(call.await),
                        }
                    })
                })
                .collect();
            drive(&clock, 200 * SECOND).await;
            let mut ran = 0;
            for task in tasks {
                assert!(task.is_finished(), "nobody is stuck");
                match task.await.unwrap() {
                    Some(Ok(outcome)) => {
                        assert_eq!(outcome.value.as_deref(), Some(&b"0"[..]), "there is one result");
                        assert!(outcome.recorded);
                        ran += u32::from(!outcome.replayed);
                    }
                    Some(Err(Failure::Inner(error))) => assert_eq!(error, "no"),
                    Some(Err(other)) => assert_eq!(other.code(), Some(Code::IdempotencyBusy)),
                    None => {}
                }
            }
            assert!(ran <= 1 && done.load(SeqCst) <= 1, "the work is done once");
        });
    }
}
