//! Waiting: who is served, in which order, when, and how often.

use super::*;

#[tokio::test]
async fn a_release_hands_over_to_the_first_in_the_queue() {
    let (memory, _clock) = driven();
    let first = fence_of(&call(&memory, "RES.LOCK ACQUIRE l a 10s").expect("free"));
    let b = queued(&memory, "RES.LOCK ACQUIRE l b 10s WAIT 5s").await;
    let mut c = queued(&memory, "RES.LOCK ACQUIRE l c 10s WAIT 5s").await;
    assert_eq!(reply(&memory, "RES.LOCK RELEASE l a"), "RELEASED 0");
    let second = answered(b).await;
    assert!(second.starts_with("GRANTED "), "{second}");
    assert!(is_pending(&mut c).await, "one at a time");
    let fence: u64 = second.split(' ').nth(1).and_then(|fence| fence.parse().ok()).expect("a fence");
    assert!(fence > first, "{fence} after {first}");
    assert_eq!(reply(&memory, "RES.LOCK RELEASE l b"), "RELEASED 0");
    assert!(answered(c).await.starts_with("GRANTED "));
}

#[tokio::test]
async fn the_end_of_a_lease_hands_over_without_another_command() {
    let (memory, clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE l a 2s").expect("free");
    let b = queued(&memory, "RES.LOCK ACQUIRE l b 1h WAIT 5m").await;
    advance(&clock, 1_999 * MS).await;
    assert_eq!(reply(&memory, "RES.LOCK CHECK l a"), "1");
    clock.advance(MS);
    let reported = answered(b).await;
    assert!(reported.starts_with("GRANTED ") && reported.ends_with(" 3600000 2000"), "{reported}");
    assert_eq!(reply(&memory, "RES.LOCK RENEW l a 1s"), "LOST expired");
}

#[tokio::test]
async fn a_caller_that_waited_long_enough_is_notified_in_time() {
    let (memory, clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE l a 1h").expect("free");
    let b = queued(&memory, "RES.LOCK ACQUIRE l b 1h WAIT 5m").await;
    let c = queued(&memory, "RES.LOCK ACQUIRE l c 1h WAIT 1s").await;
    advance(&clock, 1_000 * MS).await;
    assert_eq!(answered(c).await, "TIMEOUT a 3599000 1");
    clock.advance(299_000 * MS);
    assert_eq!(answered(b).await, "TIMEOUT a 3300000 0");
}

#[tokio::test]
async fn a_call_without_the_async_side_tries_once() {
    let (memory, _clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE l a 10s").expect("free");
    assert_eq!(reply(&memory, "RES.LOCK ACQUIRE l b 10s WAIT 5s"), "TAKEN a 10000 0");
}

#[tokio::test]
async fn a_thousand_are_served_in_order_of_arrival() {
    let (memory, _clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE l holder 1h").expect("free");
    let mut queue = Vec::new();
    for number in 0..1_000 {
        queue.push(queued(&memory, &format!("RES.LOCK ACQUIRE l w{number} 1h WAIT 5m")).await);
    }
    assert_eq!(reply(&memory, "RES.LOCK RELEASE l holder"), "RELEASED 0");
    for (number, waiting) in queue.into_iter().enumerate() {
        assert!(answered(waiting).await.starts_with("GRANTED "), "{number}");
        assert_eq!(reply(&memory, "RES.LOCK INFO l LIMIT 0").matches("holders_total=1").count(), 1);
        assert_eq!(reply(&memory, &format!("RES.LOCK RELEASE l w{number}")), "RELEASED 0");
    }
}

#[tokio::test]
async fn a_waiter_that_is_dropped_has_left_the_queue() {
    let (memory, _clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE l a 1h").expect("free");
    let b = queued(&memory, "RES.LOCK ACQUIRE l b 1h WAIT 5m").await;
    let c = queued(&memory, "RES.LOCK ACQUIRE l c 1h WAIT 5m").await;
    drop(b);
    assert!(reply(&memory, "RES.LOCK INFO l").contains("waiters_total=1"));
    call(&memory, "RES.LOCK RELEASE l a").expect("held");
    assert!(answered(c).await.starts_with("GRANTED "));
}

#[tokio::test]
async fn a_reader_behind_a_leaving_writer_is_served() {
    let (memory, _clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE l a 1h SHARED").expect("free");
    let writer = queued(&memory, "RES.LOCK ACQUIRE l b 1h WAIT 5m").await;
    let reader = queued(&memory, "RES.LOCK ACQUIRE l c 1h WAIT 5m SHARED").await;
    drop(writer);
    assert!(answered(reader).await.starts_with("GRANTED "));
}

#[tokio::test]
async fn a_grant_that_was_not_read_goes_to_the_next() {
    let (memory, _clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE l a 1h").expect("free");
    let b = queued(&memory, "RES.LOCK ACQUIRE l b 1h WAIT 5m").await;
    let c = queued(&memory, "RES.LOCK ACQUIRE l c 1h WAIT 5m").await;
    call(&memory, "RES.LOCK RELEASE l a").expect("held");
    assert_eq!(reply(&memory, "RES.LOCK CHECK l b"), "1", "it is decided");
    drop(b);
    assert_eq!(reply(&memory, "RES.LOCK CHECK l b"), "0");
    assert!(answered(c).await.starts_with("GRANTED "));
}

#[tokio::test]
async fn a_grant_learned_of_elsewhere_is_not_taken_back() {
    let (memory, _clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE l a 1h").expect("free");
    let b = queued(&memory, "RES.LOCK ACQUIRE l b 1h WAIT 5m").await;
    call(&memory, "RES.LOCK RELEASE l a").expect("held");
    assert!(
        reply(&memory, "RES.LOCK ACQUIRE l b 1h").starts_with("GRANTED "),
        "the same grant, delivered to another call"
    );
    drop(b);
    assert_eq!(reply(&memory, "RES.LOCK CHECK l b"), "1");
}

#[tokio::test]
async fn an_owner_that_asks_again_keeps_its_position() {
    let (memory, _clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE l a 1h").expect("free");
    let first = queued(&memory, "RES.LOCK ACQUIRE l b 1h WAIT 5m").await;
    let other = queued(&memory, "RES.LOCK ACQUIRE l c 1h WAIT 5m").await;
    let again = queued(&memory, "RES.LOCK ACQUIRE l b 1h WAIT 5m").await;
    assert!(answered(first).await.starts_with("SUPERSEDED "));
    call(&memory, "RES.LOCK RELEASE l a").expect("held");
    assert!(answered(again).await.starts_with("GRANTED "));
    drop(other);
}

#[tokio::test]
async fn a_bulkhead_serves_by_priority_and_keeps_to_its_queue() {
    let (memory, _clock) = driven();
    call(&memory, "RES.BULKHEAD ENTER b h 1 1h").expect("free");
    let low = queued(&memory, "RES.BULKHEAD ENTER b low 1 1h WAIT 5m QUEUE 2 PRIORITY 9").await;
    let high = queued(&memory, "RES.BULKHEAD ENTER b high 1 1h WAIT 5m QUEUE 2 PRIORITY 0").await;
    assert_eq!(answered(waits(&memory, "RES.BULKHEAD ENTER b more 1 1h WAIT 5m QUEUE 2")).await, "FULL 1 2 3600000");
    call(&memory, "RES.BULKHEAD LEAVE b h").expect("inside");
    assert_eq!(answered(high).await, "GRANTED 1 1 3600000 0");
    call(&memory, "RES.BULKHEAD LEAVE b high").expect("inside");
    assert_eq!(answered(low).await, "GRANTED 1 0 3600000 0");
}

#[tokio::test]
async fn a_waiter_for_work_gets_its_result_or_runs() {
    let (memory, clock) = driven();
    assert!(reply(&memory, "RES.IDEMP BEGIN k t1 10s").starts_with("RUN "));
    let b = queued(&memory, "RES.IDEMP BEGIN k t2 10s WAIT 5m").await;
    let c = queued(&memory, "RES.IDEMP BEGIN k t3 10s WAIT 5m").await;
    assert_eq!(reply(&memory, "RES.IDEMP COMMIT k t1 1h done"), "COMMITTED stored");
    assert_eq!(answered(b).await, "REPLAY ok done 0");
    assert_eq!(answered(c).await, "REPLAY ok done 0");
    assert!(reply(&memory, "RES.IDEMP BEGIN lapse t1 10s").starts_with("RUN "));
    let next = queued(&memory, "RES.IDEMP BEGIN lapse t2 10s WAIT 5m").await;
    advance(&clock, 10_000 * MS).await;
    let reported = answered(next).await;
    assert!(reported.starts_with("RUN ") && reported.ends_with(" 2 10000"), "the second attempt: {reported}");
}

#[tokio::test]
async fn a_run_that_was_not_read_goes_to_the_next() {
    let (memory, _clock) = driven();
    assert!(reply(&memory, "RES.IDEMP BEGIN k t1 10s").starts_with("RUN "));
    let b = queued(&memory, "RES.IDEMP BEGIN k t2 10s WAIT 5m").await;
    let c = queued(&memory, "RES.IDEMP BEGIN k t3 10s WAIT 5m").await;
    assert_eq!(reply(&memory, "RES.IDEMP ABORT k t1"), "ABORTED");
    drop(b);
    assert!(answered(c).await.starts_with("RUN "));
}

#[tokio::test]
async fn followers_share_the_published_bytes() {
    use resil_wire::single_flight::Joined;
    let (memory, _clock) = driven();
    assert!(reply(&memory, "RES.SFLIGHT JOIN k t1 10s").starts_with("LEAD "));
    let followers = [
        queued(&memory, "RES.SFLIGHT JOIN k t2 10s WAIT 5m").await,
        queued(&memory, "RES.SFLIGHT JOIN k t3 10s WAIT 5m").await,
    ];
    assert_eq!(reply(&memory, "RES.SFLIGHT PUBLISH k t1 1m VALUE bytes"), "PUBLISHED 2");
    let mut seen = Vec::new();
    for follower in followers {
        match follower.await {
            Ok(Reply::Joined(Joined::Value { bytes, .. })) => seen.push(bytes),
            other => panic!("{other:?}"),
        }
    }
    match call(&memory, "RES.SFLIGHT GET k") {
        Ok(Reply::Joined(Joined::Value { bytes, .. })) => seen.push(bytes),
        other => panic!("{other:?}"),
    }
    assert_eq!(&*seen[0], b"bytes");
    assert!(seen.iter().all(|bytes| Arc::ptr_eq(bytes, &seen[0])), "one copy for all");
}

#[tokio::test]
async fn a_lead_passes_on_when_lapsed_abandoned_or_unread() {
    let (memory, clock) = driven();
    assert!(reply(&memory, "RES.SFLIGHT JOIN k t1 1s").starts_with("LEAD "));
    let b = queued(&memory, "RES.SFLIGHT JOIN k t2 10s WAIT 5m").await;
    let c = queued(&memory, "RES.SFLIGHT JOIN k t3 10s WAIT 5m").await;
    let d = queued(&memory, "RES.SFLIGHT JOIN k t4 10s WAIT 5m").await;
    advance(&clock, 1_000 * MS).await;
    assert!(answered(b).await.starts_with("LEAD "), "it lapsed");
    assert_eq!(reply(&memory, "RES.SFLIGHT ABANDON k t2"), "ABANDONED");
    drop(c);
    assert!(answered(d).await.starts_with("LEAD "), "it was not read");
}

#[tokio::test]
async fn the_keepers_task_ends_when_nobody_waits() {
    let (memory, clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE l a 1s").expect("free");
    assert_eq!(memory.tasks(), 0, "nobody has waited yet");
    let b = queued(&memory, "RES.LOCK ACQUIRE l b 1s WAIT 5m").await;
    assert_eq!(memory.tasks(), 1);
    advance(&clock, 1_000 * MS).await;
    assert!(answered(b).await.starts_with("GRANTED "));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(memory.tasks(), 0);
    assert_eq!(clock.next_wake(), None, "nothing sleeps");
}

#[test]
fn waiters_are_served_when_another_runtime_takes_over() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (memory, clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE l a 1s").expect("free");
    let (first, second) = (runtime(), runtime());
    let _waits = first.block_on(queued(&memory, "RES.LOCK ACQUIRE l b 1s WAIT 1m"));
    let c = second.block_on(queued(&memory, "RES.LOCK ACQUIRE l c 1s WAIT 2m"));
    // The first runtime stands still, with the task that was there first.
    second.block_on(async {
        advance(&clock, 120_000 * MS).await;
        assert!(answered(c).await.starts_with("TIMEOUT b "), "b had its turn, unread, and c waited in vain");
    });
    drop((first, second));
    assert_eq!(memory.tasks(), 0, "a task goes with its runtime");
    let third = runtime();
    let d = third.block_on(queued(&memory, "RES.LOCK ACQUIRE l d 1s WAIT 2m"));
    third.block_on(async {
        advance(&clock, 1_000 * MS).await;
        assert!(answered(d).await.starts_with("GRANTED "));
    });
}

#[tokio::test]
async fn a_waiter_is_notified_when_its_handle_closes() {
    let clock = Clock::driven();
    let one = Arc::new(Memory::named("closing", clock.clone()));
    let other = Arc::new(Memory::named("closing", clock));
    call(&one, "RES.LOCK ACQUIRE l a 1h").expect("free");
    let waits_there = queued(&one, "RES.LOCK ACQUIRE l b 1h WAIT 5m").await;
    let waits_here = queued(&other, "RES.LOCK ACQUIRE l c 1h WAIT 5m").await;
    one.close();
    assert!(answered(waits_there).await.contains("cannot be reached"));
    assert!(reply(&one, "RES.LOCK CHECK l a").contains("cannot be reached"));
    assert!(reply(&other, "RES.LOCK INFO l").contains("waiters_total=1"), "it has left the queue");
    call(&other, "RES.LOCK RELEASE l a").expect("held");
    assert!(answered(waits_here).await.starts_with("GRANTED "));
}

#[tokio::test]
async fn a_caller_that_releases_while_waiting_leaves_the_queue() {
    for (wants, lets_go, done) in [
        ("RES.LOCK ACQUIRE", "RES.LOCK RELEASE", "RELEASED 0"),
        ("RES.IDEMP BEGIN", "RES.IDEMP ABORT", "ABORTED"),
        ("RES.SFLIGHT JOIN", "RES.SFLIGHT ABANDON", "ABANDONED"),
    ] {
        let (memory, _clock) = driven();
        call(&memory, &format!("{wants} k a 1h")).expect("free");
        let leaves = queued(&memory, &format!("{wants} k b 1h WAIT 5m")).await;
        let mut stays = queued(&memory, &format!("{wants} k c 1h WAIT 5m")).await;
        assert_eq!(reply(&memory, &format!("{lets_go} k b")), done);
        assert!(answered(leaves).await.starts_with("SUPERSEDED "), "{wants}");
        assert!(is_pending(&mut stays).await, "{wants}");
        assert_eq!(reply(&memory, &format!("{lets_go} k a")), done);
        let passed_on = answered(stays).await;
        assert!(["GRANTED", "RUN", "LEAD"].iter().any(|word| passed_on.starts_with(word)), "{wants}: {passed_on}");
    }
}
