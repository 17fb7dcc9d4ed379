//! A crowd at one door: a thousand connections are served one by one in the exact order of their arrival.

use crate::driven::Say;
use crate::scene::{Caller, Scene, fence};

const CROWD: usize = 1_000;

#[test]
fn a_thousand_are_served_in_the_order_they_came() {
    let mut scene = Scene::real();
    let mut last_fence = scene.fence("RES.LOCK ACQUIRE k holder 1h");
    let mut crowd: Vec<Caller> = (0..CROWD).map(|_| Caller::new(&scene.server)).collect();
    for (n, caller) in crowd.iter_mut().enumerate() {
        caller.send(&format!("RES.LOCK ACQUIRE k w{n} 1h WAIT 1m"));
        // The next one asks only when this one stands in the queue.
        while scene.waiters() != n as i64 + 1 {}
    }
    let names: Vec<String> = (0..CROWD).map(|n| format!("w{n}")).collect();
    assert_eq!(scene.who("k").1, names);
    let mut holder = "holder".to_owned();
    for (n, caller) in crowd.iter_mut().enumerate() {
        assert!(scene.ask(&format!("RES.LOCK RELEASE k {holder}")).starts_with("[RELEASED "));
        let now = fence(&caller.reply());
        assert!(now > last_fence, "{n}");
        last_fence = now;
        holder = names[n].clone();
    }
    crowd.iter_mut().for_each(Caller::is_in_step);
    assert_eq!(scene.who("k"), (vec![holder], vec![]));
    assert_eq!(scene.main.info_number("resil", "blocked_waiters"), 0);
}

#[test]
fn a_thousand_readers_are_let_in_together() {
    let mut scene = Scene::real();
    scene.ask("RES.LOCK ACQUIRE k writer 1h");
    let mut crowd: Vec<Caller> = (0..CROWD).map(|_| Caller::new(&scene.server)).collect();
    for (n, caller) in crowd.iter_mut().enumerate() {
        caller.send(&format!("RES.LOCK ACQUIRE k r{n} 1h SHARED WAIT 1m"));
    }
    while scene.waiters() != CROWD as i64 {}
    scene.ask("RES.LOCK RELEASE k writer");
    for caller in &mut crowd {
        assert_eq!(caller.verdict(), "GRANTED");
        caller.is_in_step();
    }
    assert_eq!(scene.who("k").0.len(), CROWD);
}
