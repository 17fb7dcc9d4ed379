//! Single flight in detail, by a clock that stands: whose turn it is, what is stale, and whose patience ends when.

use crate::driven::Say;
use crate::scene::{Caller, Scene};
use crate::talk::number;

fn scene_with_followers(names: &[&str]) -> (Scene, Vec<Caller>) {
    let mut scene = Scene::driven();
    scene.ask("RES.SFLIGHT JOIN k leader 10s");
    let followers = names.iter().map(|name| scene.waits(&format!("RES.SFLIGHT JOIN k {name} 10s WAIT 1m"))).collect();
    (scene, followers)
}

#[test]
fn the_lead_passes_down_the_line_in_order() {
    let (mut scene, mut followers) = scene_with_followers(&["b", "c", "d", "e"]);
    let mut fence = number(&scene.ask("RES.SFLIGHT JOIN k leader 10s"), 1);
    let mut passed = |follower: &mut Caller| {
        let lead = follower.reply();
        assert!(lead.starts_with("[LEAD ") && number(&lead, 1) > fence, "{lead}");
        fence = number(&lead, 1);
        follower.is_in_step();
    };
    scene.ask("RES.SFLIGHT ABANDON k leader");
    passed(&mut followers[0]);
    scene.main.clock_at_ms(10_000);
    passed(&mut followers[1]);
    scene.ask("RES.SFLIGHT INVALIDATE k");
    passed(&mut followers[2]);
    assert_eq!(scene.waiters(), 1, "the last one waits on");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH k b 1s EMPTY"), "[LOST expired]");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH k c 1s EMPTY"), "[LOST invalidated]");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH k d 1s VALUE v"), "[PUBLISHED 1]");
    assert_eq!(followers[3].reply(), "[VALUE v 0 1000]");
}

#[test]
fn a_followers_patience_is_its_own() {
    let (mut scene, mut followers) = scene_with_followers(&["b"]);
    let mut impatient = scene.waits("RES.SFLIGHT JOIN k c 10s WAIT 100ms");
    scene.main.clock_at_ms(100);
    assert_eq!(impatient.reply(), "[BUSY 9900]");
    impatient.is_in_step();
    assert_eq!(scene.waiters(), 1);
    scene.ask("RES.SFLIGHT PUBLISH k leader 1s EMPTY");
    assert_eq!(followers[0].reply(), "[EMPTY 0]");
}

#[test]
fn a_renewed_lead_is_not_passed_on() {
    let (mut scene, mut followers) = scene_with_followers(&["b"]);
    scene.main.clock_at_ms(9_000);
    assert_eq!(crate::scene::verdict(&scene.ask("RES.SFLIGHT RENEW k leader 10s")), "GRANTED");
    scene.main.clock_at_ms(18_999);
    assert_eq!(scene.waiters(), 1);
    scene.main.clock_at_ms(19_000);
    assert_eq!(followers[0].verdict(), "LEAD");
}

#[test]
fn a_bound_leader_that_closes_passes_the_lead() {
    let mut scene = Scene::driven();
    let mut leader = Caller::new(&scene.server);
    leader.send("RES.SFLIGHT JOIN k leader 1h BOUND");
    assert_eq!(leader.verdict(), "LEAD");
    let mut follower = scene.waits("RES.SFLIGHT JOIN k b 1h WAIT 1m");
    drop(leader);
    assert_eq!(follower.verdict(), "LEAD");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH k leader 1s EMPTY"), "[LOST closed]");
}

#[test]
fn the_same_token_asking_again_takes_its_own_place() {
    let (mut scene, mut followers) = scene_with_followers(&["b", "c"]);
    let mut again = Caller::new(&scene.server);
    again.send("RES.SFLIGHT JOIN k b 10s WAIT 1m");
    let reported = followers[0].reply();
    assert!(reported.starts_with('-'), "the earlier call is superseded: {reported}");
    scene.ask("RES.SFLIGHT ABANDON k leader");
    assert_eq!(again.verdict(), "LEAD");
    assert_eq!(scene.waiters(), 1);
}

#[test]
fn an_abandon_by_a_waiter_takes_it_out() {
    let (mut scene, mut followers) = scene_with_followers(&["b", "c"]);
    assert_eq!(scene.ask("RES.SFLIGHT ABANDON k b"), "[ABANDONED]");
    assert_eq!(followers[0].verdict(), "-SUPERSEDED");
    followers[0].is_in_step();
    assert_eq!(scene.ask("RES.SFLIGHT ABANDON k b"), "[LOST taken]", "it neither leads nor waits");
    assert_eq!(scene.waiters(), 1);
    scene.ask("RES.SFLIGHT ABANDON k leader");
    assert_eq!(followers[1].verdict(), "LEAD");
}

#[test]
fn an_error_with_a_time_reaches_later_callers() {
    let (mut scene, mut followers) = scene_with_followers(&["b"]);
    scene.ask("RES.SFLIGHT PUBLISH k leader 5s ERROR down");
    assert_eq!(followers[0].reply(), "[ERROR down]");
    scene.main.clock_at_ms(4_999);
    assert_eq!(scene.ask("RES.SFLIGHT JOIN k c 10s WAIT 1m"), "[ERROR down]");
    scene.main.clock_at_ms(5_000);
    assert_eq!(scene.verdict("RES.SFLIGHT JOIN k c 10s"), "LEAD");
}

#[test]
fn after_a_pause_exactly_one_waiter_leads() {
    let (mut scene, mut followers) = scene_with_followers(&["b", "c"]);
    scene.ask("RES.SFLIGHT ABANDON k leader RETRY 5s");
    let mut late = scene.waits("RES.SFLIGHT JOIN k d 10s WAIT 1m");
    assert_eq!(scene.ask("RES.SFLIGHT JOIN k e 10s"), "[BUSY 5000]");
    assert_eq!(scene.waiters(), 3);
    scene.main.clock_at_ms(5_000);
    assert_eq!(followers[0].verdict(), "LEAD");
    assert_eq!(scene.waiters(), 2);
    scene.ask("RES.SFLIGHT PUBLISH k b 1s VALUE v");
    assert_eq!(followers[1].reply(), "[VALUE v 0 1000]");
    assert_eq!(late.reply(), "[VALUE v 0 1000]");
}

#[test]
fn stale_is_served_inside_its_time_and_never_after() {
    let mut scene = Scene::driven();
    scene.ask("RES.SFLIGHT JOIN k a 1h");
    scene.ask("RES.SFLIGHT PUBLISH k a 1s VALUE old STALE 2s");
    scene.main.clock_at_ms(999);
    assert_eq!(scene.ask("RES.SFLIGHT GET k"), "[VALUE old 999 1]");
    scene.main.clock_at_ms(1_000);
    assert_eq!(scene.ask("RES.SFLIGHT GET k"), "[STALE old 1000]");
    assert_eq!(scene.verdict("RES.SFLIGHT JOIN k b 1h"), "LEAD");
    assert_eq!(scene.ask("RES.SFLIGHT JOIN k c 1h WAIT 1m"), "[STALE old 1000]", "it need not wait");
    scene.main.clock_at_ms(2_999);
    assert_eq!(scene.ask("RES.SFLIGHT JOIN k c 1h"), "[STALE old 2999]");
    scene.main.clock_at_ms(3_000);
    assert_eq!(scene.ask("RES.SFLIGHT GET k"), "[MISS]");
    assert_eq!(scene.verdict("RES.SFLIGHT JOIN k c 1h"), "BUSY");
}

#[test]
fn a_soft_invalidation_leaves_stale_and_voids_the_leader() {
    let mut scene = Scene::driven();
    scene.ask("RES.SFLIGHT JOIN k a 1h");
    scene.ask("RES.SFLIGHT PUBLISH k a 1h VALUE old");
    assert_eq!(scene.ask("RES.SFLIGHT INVALIDATE k SOFT"), "1");
    let lead = scene.ask("RES.SFLIGHT JOIN k b 1h");
    assert!(lead.starts_with("[LEAD ") && lead.contains(" old "), "{lead}");
    assert_eq!(scene.ask("RES.SFLIGHT JOIN k c 1h"), "[STALE old 0]");
    assert_eq!(scene.ask("RES.SFLIGHT INVALIDATE k SOFT"), "1");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH k b 1h VALUE void"), "[LOST invalidated]");
    assert_eq!(scene.ask("RES.SFLIGHT GET k"), "[STALE old 0]");
    assert_eq!(scene.verdict("RES.SFLIGHT JOIN k c 1h"), "LEAD");
}

/// Nothing is kept, but a caller that waits has it.
#[test]
fn a_value_without_a_time_is_for_waiters() {
    let (mut scene, mut followers) = scene_with_followers(&["b"]);
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH k leader 0 VALUE v"), "[PUBLISHED 1]");
    assert_eq!(followers[0].reply(), "[VALUE v 0 0]");
    assert_eq!(scene.ask("RES.SFLIGHT GET k"), "[MISS]");
}

#[test]
fn unblocked_or_killed_waiters_leave_and_the_next_leads() {
    for how in ["TIMEOUT", "ERROR", "KILL"] {
        let (mut scene, mut followers) = scene_with_followers(&["b", "c"]);
        let id = followers[0].id;
        match how {
            "KILL" => scene.main.say(&format!("CLIENT KILL ID {id}")),
            _ => scene.main.say(&format!("CLIENT UNBLOCK {id} {how}")),
        };
        let reported = followers[0].reply();
        match how {
            "TIMEOUT" => assert_eq!(reported, "[BUSY 10000]"),
            "ERROR" => assert!(reported.starts_with("-UNBLOCKED"), "{reported}"),
            _ => assert_eq!(reported, "closed"),
        }
        if how != "KILL" {
            followers[0].is_in_step();
        }
        resil_harness::eventually("it left", crate::driven::SOON, || scene.waiters() == 1);
        scene.ask("RES.SFLIGHT ABANDON k leader");
        assert_eq!(followers[1].verdict(), "LEAD");
    }
}
