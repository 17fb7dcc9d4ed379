//! Hedging: who is asked when, whose result counts, and what it may cost.

use super::*;

fn settings(max_hedges: u32) -> HedgeSettings {
    let budget = BudgetSettings { percent: 1_000, ..BudgetSettings::default() };
    HedgeSettings { max_hedges, hedging_delay: ms(1_000), budget, ..HedgeSettings::default() }
}

/// How many are alive.
struct Alive(Arc<AtomicU32>);

impl Alive {
    fn new(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// What should come of calls that take so many ms: the outcome, how many are begun, when it is over.
fn model(calls: &[(u64, Result<u8, Reply>)], delay_ms: u64) -> (Result<u8, Failure<Reply>>, usize, u64) {
    let mut first_failure = None;
    let ends = |index: usize| index as u64 * delay_ms + calls[index].0;
    let (mut under_way, mut begun, mut now_ms) = (vec![0], 1, 0);
    loop {
        let next_begin = (begun < calls.len()).then_some(begun as u64 * delay_ms);
        let next_over = *under_way.iter().min_by_key(|index| ends(**index)).expect("one is under way");
        if let Some(at) = next_begin.filter(|at| *at < ends(next_over)) {
            now_ms = at;
            under_way.push(begun);
            begun += 1;
            continue;
        }
        now_ms = now_ms.max(ends(next_over));
        under_way.retain(|index| *index != next_over);
        match calls[next_over].1 {
            Ok(value) => return (Ok(value), begun, now_ms),
            Err(reply) if !classify(&reply).is_retryable() => {
                return (Err(Failure::Inner(reply)), begun, now_ms);
            }
            Err(reply) => {
                let reply = *first_failure.get_or_insert(reply);
                if under_way.is_empty() {
                    return (Err(Failure::Inner(reply)), begun, now_ms);
                }
            }
        }
    }
}

fn any_outcome() -> impl Strategy<Value = Result<u8, Reply>> {
    prop_oneof![
        any::<u8>().prop_map(Ok),
        Just(Err(Reply::Busy)),
        (0u64..9).prop_map(|ms| Err(Reply::BusyFor(ms))),
        Just(Err(Reply::NotFound)),
    ]
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn any_calls_end_as_promised_and_leave_nobody_behind(
        calls in prop::collection::vec((0u64..500, any_outcome()), 2..6),
    ) {
        // No two things happen at once: call `n` ends at a moment that ends in the digit n + 1.
        let calls: Vec<_> = calls.into_iter().enumerate().map(|(n, (tens, outcome))| (tens * 10 + n as u64 + 1, outcome)).collect();
        let clock = Clock::driven();
        let hedge = Hedge::new(&settings(calls.len() as u32 - 1)).expect("valid").with_clock(clock.clone());
        let (alive, begun, began) = (Arc::new(AtomicU32::new(0)), Cell::new(0), clock.now());
        let outcome = drive(&clock, hedge.call(classify, || {
            let (took_ms, outcome) = calls[begun.get()];
            begun.set(begun.get() + 1);
            let (one, clock) = (Alive::new(&alive), clock.clone());
            async move {
                let _one = one;
                clock.sleep(ms(took_ms)).await;
                outcome
            }
        }));
        prop_assert_eq!((outcome, begun.get(), (clock.now() - began).as_millis() as u64), model(&calls, 1_000));
        prop_assert_eq!(alive.load(SeqCst), 0, "losers are cancelled");
        prop_assert_eq!(clock.next_wake(), None);
    }
}

/// Slow first calls, one after the other; how many were hedged.
fn hedges_of(hedge: &Hedge, clock: &Clock, calls: u32) -> u32 {
    let begun = Cell::new(0);
    for _ in 0..calls {
        let outcome = drive(
            clock,
            hedge.call(retry_all, || {
                begun.set(begun.get() + 1);
                async {
                    clock.sleep(ms(3)).await;
                    Ok::<_, ()>(())
                }
            }),
        );
        assert_eq!(outcome, Ok(()));
    }
    begun.get() - calls
}

#[test]
fn extra_load_is_capped_by_its_percentage() {
    let clock = Clock::driven();
    let budget = BudgetSettings { min_per_second: 0, percent: 10, ..BudgetSettings::default() };
    let settings = HedgeSettings { hedging_delay: ms(1), budget, ..HedgeSettings::default() };
    let hedge = Hedge::new(&settings).expect("valid").with_clock(clock.clone());
    assert_eq!(hedges_of(&hedge, &clock, 300), 30);
}

#[test]
fn a_budget_shared_with_retry_is_one_budget() {
    let clock = Clock::driven();
    let shared = BudgetSettings { min_per_second: 1, percent: 0, ..BudgetSettings::default() };
    let budget = Budget::with_clock(&shared, clock.clone()).expect("valid");
    let settings = HedgeSettings { hedging_delay: ms(1), ..HedgeSettings::default() };
    let hedge = Hedge::new(&settings).expect("valid").with_clock(clock.clone()).with_budget(budget.clone());
    let retry = Retry::new(&plain_retry(5)).expect("valid").with_clock(clock.clone()).with_budget(budget);
    assert_eq!(hedges_of(&hedge, &clock, 8), 8);
    let outcome: Result<(), _> = drive(&clock, retry.call(retry_all, || ready(Err(()))));
    assert_eq!(outcome, Err(exhausted(3, Failure::Inner(()))), "two of ten were left");
}

#[test]
fn a_percentile_replaces_the_fixed_delay_after_the_warm_up() {
    let clock = Clock::driven();
    let settings = HedgeSettings { percentile: Some(90.0), warm_up: 100, ..settings(1) };
    let hedge = Hedge::new(&settings).expect("valid").with_clock(clock.clone());
    for n in 1..=100u64 {
        assert_eq!(hedge.delay(), ms(1_000), "not warm after {n} calls");
        drive(
            &clock,
            hedge.call(retry_all, || async {
                clock.sleep(ms(n)).await;
                Ok::<_, ()>(())
            }),
        )
        .expect("it succeeds");
    }
    assert!(hedge.delay() >= ms(89) && hedge.delay() <= ms(92), "{:?}", hedge.delay());
}

#[test]
fn failures_do_not_count_as_latencies() {
    let clock = Clock::driven();
    let settings = HedgeSettings { percentile: Some(50.0), warm_up: 1, ..settings(1) };
    let hedge = Hedge::new(&settings).expect("valid").with_clock(clock.clone());
    drive(&clock, hedge.call(retry_none, || ready(Err::<(), _>(())))).expect_err("it fails");
    assert_eq!(hedge.delay(), ms(1_000));
}

#[test]
fn a_dropped_call_drops_all_of_its_calls() {
    let clock = Clock::driven();
    let hedge = Hedge::new(&settings(1)).expect("valid").with_clock(clock.clone());
    let alive = Arc::new(AtomicU32::new(0));
    {
        let mut call = pin!(hedge.call(retry_all, || {
            let one = Alive::new(&alive);
            async move {
                let _one = one;
                pending::<Result<(), ()>>().await
            }
        }));
        assert!(poll_now(call.as_mut()).is_pending());
        clock.advance(ms(1_000));
        assert!(poll_now(call.as_mut()).is_pending());
        assert_eq!(alive.load(SeqCst), 2);
    }
    assert_eq!((alive.load(SeqCst), clock.next_wake()), (0, None));
}
