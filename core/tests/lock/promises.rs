//! What locks and bulkheads promise, watched from outside while anything may happen: no model, only what is seen.

use std::collections::BTreeMap;

use super::key::{Acquired, LockReply};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use resil_core::Span;
use resil_core::lock::{HolderEdit, Kind, Released};
use resil_core::waited::Renewed;
use resil_core::waited::fence::Floor;

use super::driver::Driver;
use super::key::{Key, MS, SECOND, permit, reader, writer};
use super::model::Said;
use super::schedule::{Event, Gap, Request, What, calm, wild};
use super::seed;

/// A server that has just started, or that may not write, has not ended yet what is over.
fn is_up_to_date(event: &Event) -> bool {
    !matches!(event.what, What::GiveUp | What::Restart | What::Promote(_))
}

/// A position in the queue, and the call that has it.
#[derive(Debug)]
struct Stood {
    priority: u8,
    id: u64,
}

/// A property over schedules in which nobody ever waits, or loses, would promise little.
#[test]
fn the_schedules_reach_everything_that_can_happen() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::new();
    for case in 0..100 {
        let mut driver = Driver::new(case % 2 == 0);
        for event in wild().new_tree(&mut runner).expect("a schedule").current() {
            driver.play(&event);
            let said = match &driver.said {
                Said::Granted(_) => "granted",
                Said::Refused(_) => "refused",
                Said::Queued => "queued",
                Said::Deadlock => "deadlock",
                Said::Lost(reason) => reason,
                Said::Released(_) => "let go",
                Said::Broke(_) | Said::Was(_) | Said::Nothing => "done",
            };
            let reported = driver.key.replies.iter().map(|reply| match reply {
                LockReply::Granted { .. } => "served",
                LockReply::TimedOut { .. } => "timed out",
                LockReply::Refused { .. } => "refused",
                LockReply::Superseded { .. } => "superseded",
            });
            for what in reported.chain([said]) {
                *seen.entry(what).or_insert(0) += 1;
            }
        }
    }
    for what in [
        "granted",
        "refused",
        "queued",
        "deadlock",
        "let go",
        "expired",
        "taken",
        "broken",
        "absent",
        "released",
        "closed",
        "served",
        "timed out",
        "superseded",
    ] {
        assert!(seen.get(what).is_some_and(|times| *times >= 20), "schedules hardly see {what}: {seen:?}");
    }
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn there_are_never_two_writers_nor_readers_beside_one(events in wild()) {
        let mut driver = Driver::new(false);
        for event in &events {
            driver.play(event);
            prop_assert!(driver.key.writers() == 0 || driver.key.holders.len() == 1, "{:?}", driver.key.owners());
        }
    }

    #[test]
    fn nobody_holds_beyond_the_end_of_its_lease(bulkhead: bool, events in wild()) {
        let mut driver = Driver::new(bulkhead);
        for event in events.iter() {
            driver.play(event);
            let now = driver.key.now;
            let over = driver.key.holders.iter().find(|holder| holder.ends.as_us() <= now);
            prop_assert!(over.is_none() || !is_up_to_date(event), "{:?} at {}", over, now);
        }
    }

    #[test]
    fn an_owner_holds_once_or_waits_once_and_never_both(bulkhead: bool, events in wild()) {
        let mut driver = Driver::new(bulkhead);
        for event in &events {
            driver.play(event);
            let mut owners = driver.key.owners();
            owners.extend(driver.key.queued());
            let all = owners.len();
            owners.sort();
            owners.dedup();
            prop_assert_eq!(owners.len(), all);
        }
    }

    /// Within a priority the queue is served in the order of arrival; nobody is passed over, and no newcomer goes first.
    #[test]
    fn nobody_overtakes_and_nobody_is_skipped(bulkhead: bool, events in calm()) {
        let mut driver = Driver::new(bulkhead);
        driver.key.ageing = Span::ZERO;
        let mut queue: Vec<Stood> = Vec::new();
        for event in &events {
            driver.play(event);
            let key = &driver.key;
            let call = match event.what {
                What::Acquire(request) => Some((key.calls, request)),
                _ => None,
            };
            let own = |stood: &Stood| call.is_some_and(|(id, _)| stood.id == id);
            let granted = matches!(driver.said, Said::Granted(_));
            // Who left is gone without a reply.
            let answered = |id| key.replies.iter().any(|reply| reply.id() == id);
            queue.retain(|stood| key.open.contains(&stood.id) || answered(stood.id));
            for reply in &key.replies {
                // The call of this step learns of its grant, or that it waited in vain, by its verdict; who stood behind
                // it comes after.
                let over = call.is_some_and(|(id, _)| !key.open.contains(&id));
                if over && !matches!(reply, LockReply::Superseded { .. }) && queue.first().is_some_and(own) {
                    queue.remove(0);
                }
                let Some(at) = queue.iter().position(|stood| stood.id == reply.id()) else {
                    prop_assert_eq!(Some(reply.id()), call.map(|(id, _)| id), "answered as soon as it asked");
                    continue;
                };
                match (reply, call) {
                    (LockReply::Superseded { .. }, Some((id, Request { wait: Some(_), .. }))) => queue[at].id = id,
                    (LockReply::Granted { .. }, _) => {
                        prop_assert_eq!(at, 0, "the first is served");
                        queue.remove(0);
                    }
                    _ => drop(queue.remove(at)),
                }
            }
            if let Some((id, request)) = call {
                let priority = if bulkhead { request.priority } else { 0 };
                let place = queue.iter().filter(|stood| stood.priority <= priority).count();
                if key.open.contains(&id) && !queue.iter().any(own) {
                    queue.insert(place, Stood { priority, id });
                }
                if let Some(at) = queue.iter().position(own).filter(|_| !key.open.contains(&id)) {
                    prop_assert!(at == 0 || !granted, "the first is served");
                    queue.remove(at);
                } else if granted && is_new(key, request.owner) {
                    prop_assert_eq!(place, 0, "a newcomer goes before nobody");
                }
            }
            let seen: Vec<u64> = queue.iter().map(|stood| stood.id).collect();
            prop_assert_eq!(seen, key.queue.waiters().map(|waiter| waiter.id).collect::<Vec<_>>());
        }
    }

    /// Whatever happens, a caller that waits is answered once: at the latest when its patience ends.
    #[test]
    fn every_call_that_waits_gets_exactly_one_reply(bulkhead: bool, events in wild()) {
        let mut driver = Driver::new(bulkhead);
        for event in &events {
            driver.play(event);
            let mut waiting: Vec<u64> = driver.key.queue.waiters().map(|waiter| waiter.id).collect();
            waiting.sort_unstable();
            driver.key.open.sort_unstable();
            prop_assert_eq!(&waiting, &driver.key.open);
        }
        let key = &mut driver.key;
        key.tick();
        while let Some(wake) = key.wake {
            key.now = wake;
            key.tick();
        }
        prop_assert!(key.open.is_empty() && key.queue.is_empty() && key.holders.is_empty());
    }

    /// A timer at that instant, and no other, is all a server needs.
    #[test]
    fn it_is_woken_exactly_when_something_happens(bulkhead: bool, events in wild()) {
        let mut driver = Driver::new(bulkhead);
        for event in &events {
            driver.play(event);
            // A clock set back before the promotion passes it once more, and leases that live then start anew there.
            let settled = is_up_to_date(event) && driver.key.promoted.is_none_or(|promoted| promoted <= driver.key.now);
            let Some(wake) = driver.key.wake.filter(|_| settled) else { continue };
            prop_assert!(wake > driver.key.now);
            let mut early = driver.key.clone();
            early.now = wake - 1;
            early.tick();
            prop_assert!(early.edits.is_empty() && early.replies.is_empty(), "nothing was due: {:?}", early.edits);
            let mut due = driver.key.clone();
            due.now = wake;
            due.tick();
            prop_assert!(!due.edits.is_empty() || !due.replies.is_empty());
        }
    }

    /// A caller that is refused, waits, or has lost, leaves no trace in what is stored and replicated.
    #[test]
    fn a_refusal_changes_nothing(bulkhead: bool, events in wild()) {
        let mut driver = Driver::new(bulkhead);
        for event in &events {
            driver.pass(event.gap);
            driver.key.tick();
            let before = driver.key.bytes();
            driver.play(&Event { gap: Gap::None, ..*event });
            // Leaving the queue can let others in, and so can a patience of nothing.
            let quiet = driver.key.replies.is_empty();
            if quiet && matches!(driver.said, Said::Refused(_) | Said::Queued | Said::Deadlock | Said::Lost(_)) {
                prop_assert_eq!(&driver.key.edits, &vec![]);
                prop_assert_eq!(driver.key.bytes(), before);
            }
        }
    }

    #[test]
    fn a_release_or_renewal_by_a_stranger_changes_nothing(bulkhead: bool, events in wild()) {
        let mut driver = Driver::new(bulkhead);
        for event in &events {
            driver.play(event);
            let key = &mut driver.key;
            key.tick();
            let (before, queue) = (key.bytes(), key.queued());
            let fence = key.holders.iter().next().map(|holder| holder.fence);
            prop_assert!(matches!(key.release("stranger", None), Released::Lost(_)));
            prop_assert!(matches!(key.release("stranger", fence), Released::Lost(_)));
            prop_assert!(matches!(key.renew("stranger", fence, SECOND), Renewed::Lost(_)));
            prop_assert_eq!((key.bytes(), key.queued()), (before, queue));
        }
    }

    /// With one `max` and one QUEUE for all.
    #[test]
    fn a_bulkhead_and_its_queue_keep_to_max_and_queue(
        max in 1..5u32,
        queue in 0..5usize,
        events in calm(),
    ) {
        let mut driver = Driver::new(true);
        for event in &events {
            let mut event = *event;
            if let What::Acquire(request) = &mut event.what {
                (request.max, request.most) = (max, queue);
            }
            driver.play(&event);
            let (active, queued) = (driver.key.holders.len(), driver.key.queue.len());
            prop_assert!(active <= max as usize && active + queued <= max as usize + queue, "{} and {}", active, queued);
        }
    }

    /// Whatever `max` each of them came with.
    #[test]
    fn nobody_waits_while_the_newest_max_has_room(events in calm()) {
        let mut driver = Driver::new(true);
        let mut newest = 0;
        for event in &events {
            driver.play(event);
            if let What::Acquire(request) = event.what {
                newest = request.max as usize;
            }
            let (active, queued) = (driver.key.holders.len(), driver.key.queue.len());
            let up_to_date = is_up_to_date(event);
            prop_assert!(queued == 0 || active >= newest || !up_to_date, "{} and {} of {}", active, queued, newest);
        }
    }

    /// What happens to one key is the same whether or not anything happens to others; only fences are shared.
    #[test]
    fn keys_are_independent(steps in vec((0..3usize, 0..5u8, 0..6u8, 1..=SECOND), 200..=210)) {
        let mut alone = [Key::lock(), Key::bulkhead(), Key::lock()];
        let mut together = alone.clone();
        let mut floor = Floor::default();
        let mut now = alone[0].now;
        for (which, owner, what, gap) in steps {
            now += gap;
            let shared = &mut together[which];
            (shared.floor, shared.now, alone[which].now) = (floor, now, now);
            let seen = small_step(&mut together[which], owner, what);
            floor = together[which].floor;
            prop_assert_eq!(seen, small_step(&mut alone[which], owner, what));
            for (alone, together) in alone.iter().zip(&together) {
                prop_assert_eq!((alone.owners(), alone.queued()), (together.owners(), together.queued()));
            }
        }
    }
}

/// True if the owner got in by this step, and neither from the queue nor from its former position in it.
fn is_new(key: &Key, owner: u8) -> bool {
    let owner = format!("owner {owner}");
    let got_in = |edit: &HolderEdit| matches!(edit, HolderEdit::Granted(holder) if holder.owner() == owner.as_bytes());
    let moved = |reply: &LockReply| matches!(reply, LockReply::Superseded { .. });
    key.edits.iter().any(got_in) && !key.served().contains(&owner) && !key.replies.iter().any(moved)
}

/// A verdict and its replies without their fences.
fn small_step(key: &mut Key, owner: u8, what: u8) -> String {
    let name = format!("owner {owner}");
    let wish = match key.kind {
        Kind::Bulkhead => permit(2).queue(2),
        Kind::Lock if owner.is_multiple_of(2) => reader(),
        Kind::Lock => writer(),
    };
    let verdict = match what {
        0..=2 => match key.ask(&name, wish.lease(900 * MS).waits(2 * SECOND)) {
            Acquired::Granted(grant) => format!("granted {:?}", (grant.lease, grant.waited, grant.active)),
            other => format!("{other:?}"),
        },
        3 => format!("{:?}", key.release(&name, None)),
        4 => match key.renew(&name, None, SECOND) {
            Renewed::Granted(grant) => format!("renewed {:?}", (grant.lease, grant.active)),
            Renewed::Lost(reason) => reason.text().into(),
        },
        _ => format!("{:?}", key.tick()),
    };
    let replies: Vec<String> = key
        .replies
        .iter()
        .map(|reply| match reply {
            LockReply::Granted { id, grant, .. } => format!("{id} granted after {:?}", grant.waited),
            other => format!("{other:?}"),
        })
        .collect();
    format!("{verdict}, {replies:?}")
}
