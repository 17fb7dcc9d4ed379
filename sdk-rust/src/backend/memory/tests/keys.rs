//! Keys: of one kind, for as long as they are needed, shared by name.

use resil_core::Instant;

use super::*;

#[test]
fn another_kind_of_key_is_refused_as_on_servers() {
    let (memory, _clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE k a 10s").expect("free");
    for text in ["RES.GCRA k 1 1s", "RES.BULKHEAD ENTER k a 1 1s", "RES.BREAKER ADMIT k", "RES.SFLIGHT GET k"] {
        assert_eq!(reply(&memory, text), "WRONGTYPE Operation against a key holding the wrong kind of value");
    }
    call(&memory, "RES.GCRA free 1 1s").expect("a limit");
    let refused = reply(&memory, "RES.MGCRA 1 free 5 1m 5 k 1 1s 1");
    assert!(refused.starts_with("WRONGTYPE"), "{refused}");
    assert_eq!(reply(&memory, "RES.GCRA.PEEK free 1 1s"), "0 1 0 1000 1000", "nothing was lost of the other key");
}

#[test]
fn a_key_that_is_over_can_become_another_kind() {
    let (memory, clock) = driven();
    call(&memory, "RES.GCRA k 1 1s").expect("a limit");
    clock.advance(60_000 * MS);
    assert!(reply(&memory, "RES.LOCK ACQUIRE k a 10s").starts_with("GRANTED "));
}

#[test]
fn several_limits_are_taken_together_or_not_at_all() {
    let (memory, _clock) = driven();
    assert_eq!(reply(&memory, "RES.MGCRA 1 a 2 1m 2 b 1 1m 1"), "1 -1 2 1 0 30000 1 0 0 60000");
    assert!(reply(&memory, "RES.MGCRA 1 a 2 1m 2 b 1 1m 1").starts_with("0 1 "), "b refuses");
    assert_eq!(reply(&memory, "RES.GCRA.PEEK a 2 1m"), "1 2 1 0 30000", "and a was not charged");
}

#[test]
fn a_million_keys_that_are_used_once_do_not_stay() {
    let (memory, clock) = driven();
    let mut most = 0;
    for number in 0..1_000_000 {
        let key = format!("one-off:{number}");
        let quotas =
            std::iter::once(resil_core::rate_limit::Quota::new(5, resil_core::Span::from_ms(100), 5).expect("a quota"))
                .collect();
        let take = resil_wire::gcra::Gcra { key: key.as_bytes(), quotas, ask: resil_core::rate_limit::Ask::Take(1) };
        memory.call(&Command::Gcra(take)).expect("granted");
        if number % 100 == 0 {
            clock.advance(MS);
            most = most.max(memory.keys());
        }
    }
    // A key is needed for some 200 ms, in which 20,000 others come.
    assert!(most < 100_000, "{most} keys at once");
    clock.advance(60_000 * MS);
    for _ in 0..1_000_000 {
        call(&memory, "RES.GCRA.PEEK another 1 1s").expect("a reading");
        if memory.keys() == 0 {
            return;
        }
    }
    panic!("{} keys stay although nobody needs them", memory.keys());
}

#[test]
fn a_store_is_shared_if_and_only_if_named() {
    let clock = Clock::driven();
    let (one, other) = (Memory::named("shared", clock.clone()), Memory::named("shared", clock.clone()));
    call(&one, "RES.LOCK ACQUIRE k a 10s").expect("free");
    assert_eq!(reply(&other, "RES.LOCK CHECK k a"), "1");
    assert_eq!(reply(&Memory::named("", clock.clone()), "RES.LOCK CHECK k a"), "0");
    drop((one, other));
    assert_eq!(reply(&Memory::named("shared", clock), "RES.LOCK CHECK k a"), "0", "it went with the last who had it");
}

#[test]
fn what_a_server_refuses_is_refused_with_its_sentence() {
    let (memory, _clock) = driven();
    let long = [b'x'; 2_000];
    let lease = resil_core::Span::from_secs(1);
    let renew = |owner, lease| resil_wire::holding::RenewCall {
        key: b"k",
        owner,
        lease,
        fence: None,
        bind: Default::default(),
    };
    let reported = |command: Command<'_>| memory.call(&command).expect_err("refused").to_string();
    assert_eq!(
        reported(Command::LockRenew(renew(&long, lease).into())),
        "owner must have from 1 to 512 bytes, got 2000"
    );
    let hours = resil_core::Span::from_days(2);
    assert!(
        reported(Command::LockRenew(renew(b"a", hours).into())).starts_with("lease must be a duration from 10ms to 1d")
    );
    let limits = [&b"a"[..], b"a"]
        .into_iter()
        .map(|key| (key, resil_core::rate_limit::Quota::new(1, lease, 1).expect("a quota")))
        .collect();
    assert_eq!(reported(Command::Mgcra(resil_wire::mgcra::Mgcra { cost: 1, limits })), "key 'a' is named twice");
}

#[test]
fn a_heartbeat_has_nothing_to_say() {
    let (memory, _clock) = driven();
    call(&memory, "RES.LOCK ACQUIRE k a 10s BOUND").expect("free");
    assert_eq!(reply(&memory, "RES.HEARTBEAT"), "0 ");
    assert!(reply(&memory, "RES.LOCK INFO k").contains("bound=0"));
}

#[test]
fn the_clock_forgets_nothing_played_at_given_instants() {
    let (memory, _clock) = driven();
    let at = |ms: i64| Instant::from_us(1_700_000_000_000_000 + ms * 1_000);
    let taken = |key: usize, ms| {
        let words = words(&format!("RES.GCRA k{key} 1 1h"));
        with_command(&words, |command| memory.call_at(command, at(ms))).map(|reply| shown(&reply)).expect("valid")
    };
    // Enough keys and calls that every shard would be swept many times.
    for key in 0..2_000 {
        assert!(taken(key, 0).starts_with("1 "), "{key} is new");
    }
    for key in 0..2_000 {
        assert!(taken(key, 1).starts_with("0 "), "{key} is used up");
    }
}
