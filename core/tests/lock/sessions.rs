//! Sessions beside a plain list of the bindings.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use resil_core::lock::Kind;
use resil_core::waited::Reason;
use resil_core::waited::session::{Binding, ClientId, ClosedHolding, Due, HoldingId, Loss, Sessions};
use resil_core::{Instant, Span};

use super::key::{HOUR, MS, SECOND, START};
use super::seed;

const LOSSES: usize = 1_000;

fn at(us: i64) -> Instant {
    Instant::from_us(us)
}

fn place(db: i32, key: &str, fence: u64) -> HoldingId {
    HoldingId { db, key: key.as_bytes().into(), fence }
}

/// How often a lease is written down.
fn period(lease: i64) -> i64 {
    if lease < 100 * MS { SECOND } else { lease.max(SECOND) / 3 }
}

fn plainly(client: ClientId) -> Binding {
    Binding { client, grace: Span::ZERO }
}

fn closed(place: HoldingId, kind: Kind) -> ClosedHolding {
    ClosedHolding { place, kind, grace: Span::ZERO, at: at(START) }
}

/// Closes a connection and takes all that hung on it, some of it by its key.
fn close(sessions: &mut Sessions, client: ClientId) -> Vec<ClosedHolding> {
    sessions.close(client, at(START));
    let mut closed: Vec<ClosedHolding> =
        (0..3).flat_map(|db| sessions.closed_in(db, &[1], usize::MAX, |_| 1)).collect();
    closed.extend(std::iter::from_fn(|| sessions.take_closed()));
    assert!(!sessions.is_closing());
    closed
}

#[derive(Debug, Clone, Copy)]
struct Spot {
    db: i32,
    key: u8,
    fence: u64,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Bind(Binding, Spot, i64),
    Unbind(Spot),
    Lose(Spot, Reason),
    Heard(ClientId),
    Heartbeat(ClientId),
    Close(ClientId),
    TakeDue,
    LookAtAll,
    Clear,
}

fn spot() -> impl Strategy<Value = Spot> {
    (0..3i32, 0..3u8, 0..3u64).prop_map(|(db, key, fence)| Spot { db, key, fence })
}

fn what() -> impl Strategy<Value = What> {
    let lease = select(vec![10 * MS, SECOND, 3 * SECOND, 10 * SECOND]);
    prop_oneof![
        30 => ((1..5u64, 0..3i64), spot(), lease).prop_map(|((client, grace), spot, lease)| {
            What::Bind(Binding { client, grace: Span::from_us(grace) }, spot, lease)
        }),
        6 => spot().prop_map(What::Unbind),
        8 => (spot(), select(vec![Reason::Expired, Reason::Broken])).prop_map(|(spot, why)| What::Lose(spot, why)),
        6 => (1..6u64).prop_map(What::Heard),
        8 => (1..6u64).prop_map(What::Heartbeat),
        4 => (1..6u64).prop_map(What::Close),
        10 => Just(What::TakeDue),
        1 => Just(What::LookAtAll),
        1 => Just(What::Clear),
    ]
}

impl Spot {
    fn place(self) -> HoldingId {
        HoldingId { db: self.db, key: [self.key].into(), fence: self.fence }
    }
}

#[derive(Debug, Clone)]
struct Bound {
    place: HoldingId,
    client: ClientId,
    grace: Span,
    lease: i64,
    due: i64,
}

/// Who is bound to whom; what was lost and not reported.
#[derive(Debug, Default)]
struct List {
    bound: Vec<Bound>,
    losses: Vec<(ClientId, Loss)>,
    heard: Vec<(ClientId, i64)>,
}

impl List {
    fn unbind(&mut self, place: &HoldingId) -> Option<ClientId> {
        let which = self.bound.iter().position(|bound| bound.place == *place)?;
        let client = self.bound.remove(which).client;
        self.forget_the_idle();
        Some(client)
    }

    fn connections(&self) -> usize {
        (0..10).filter(|client| self.knows(*client)).count()
    }

    fn knows(&self, client: ClientId) -> bool {
        self.bound.iter().any(|bound| bound.client == client) || self.losses.iter().any(|(lost, _)| *lost == client)
    }

    /// A caller that has nothing bound is not listened to.
    fn forget_the_idle(&mut self) {
        let bound: Vec<ClientId> = self.bound.iter().map(|bound| bound.client).collect();
        let losses: Vec<ClientId> = self.losses.iter().map(|(client, _)| *client).collect();
        self.heard.retain(|(client, _)| bound.contains(client) || losses.contains(client));
    }

    /// A caller that was silent for a lease has lost what hangs on it.
    fn hear(&mut self, client: ClientId, now: i64) {
        let last = self.heard.iter().find(|(heard, _)| *heard == client).map_or(now, |(_, last)| *last);
        let mut lapsed: Vec<Bound> =
            self.bound.iter().filter(|bound| bound.client == client && bound.lease <= now - last).cloned().collect();
        lapsed.sort_by(|a, b| (a.lease, &a.place).cmp(&(b.lease, &b.place)));
        for Bound { place, .. } in lapsed {
            self.bound.retain(|bound| bound.place != place);
            let loss = Loss { key: place.key.clone(), fence: place.fence, reason: Reason::Expired };
            self.losses.push((client, loss));
        }
        match self.heard.iter_mut().find(|(heard, _)| *heard == client) {
            Some((_, last)) => *last = now.max(*last),
            None => self.heard.push((client, now)),
        }
    }
}

fn sorted<T: Ord>(mut places: Vec<T>) -> Vec<T> {
    places.sort();
    places
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn sessions_are_what_a_plain_list_says(steps in vec((0..=SECOND, what()), 200..=220)) {
        let (mut sessions, mut list, mut now) = (Sessions::default(), List::default(), START);
        for (gap, what) in steps {
            now += gap;
            match what {
                What::Bind(binding, spot, lease) => {
                    let Binding { client, grace } = binding;
                    sessions.bind(binding, spot.place(), Kind::Lock, Span::from_us(lease), at(now));
                    list.unbind(&spot.place());
                    list.hear(client, now);
                    list.bound.push(Bound { place: spot.place(), client, grace, lease, due: now + period(lease) });
                }
                What::Unbind(spot) => {
                    prop_assert_eq!(sessions.unbind(&spot.place()), list.unbind(&spot.place()));
                }
                What::Lose(spot, reason) => {
                    let Spot { key, fence, .. } = spot;
                    let client = list.unbind(&spot.place());
                    prop_assert_eq!(sessions.lose(&spot.place(), reason), client.is_some());
                    if let Some(client) = client {
                        list.losses.push((client, Loss { key: [key].into(), fence, reason }));
                    }
                }
                What::Heard(client) => {
                    sessions.heard(client, at(now));
                    if list.knows(client) {
                        list.hear(client, now);
                    }
                }
                What::Heartbeat(client) => {
                    if list.knows(client) {
                        list.hear(client, now);
                    }
                    let bound = list.bound.iter().filter(|bound| bound.client == client).count();
                    let lost = list.losses.iter().filter(|(lost, _)| *lost == client).map(|(_, loss)| loss.clone());
                    prop_assert_eq!(sessions.heartbeat(client, at(now)), (bound, lost.collect()));
                    list.losses.retain(|(lost, _)| *lost != client);
                    list.forget_the_idle();
                }
                What::Close(client) => {
                    let closed = close(&mut sessions, client).into_iter().map(|closed| (closed.place, closed.grace)).collect();
                    let mine = list.bound.iter().filter(|bound| bound.client == client);
                    let mine = mine.map(|bound| (bound.place.clone(), bound.grace)).collect();
                    prop_assert_eq!(sorted(closed), sorted(mine));
                    list.bound.retain(|bound| bound.client != client);
                    list.losses.retain(|(lost, _)| *lost != client);
                    list.forget_the_idle();
                }
                What::TakeDue => {
                    let due = sessions.take_due(at(now), usize::MAX);
                    let mut naive = Vec::new();
                    for bound in list.bound.iter_mut().filter(|bound| bound.due <= now) {
                        bound.due = now + period(bound.lease);
                        naive.push(bound.place.clone());
                    }
                    for Due { place, client, lease, .. } in &due {
                        let bound = list.bound.iter().find(|bound| bound.place == *place).map(|bound| {
                            (bound.client, bound.lease)
                        });
                        prop_assert_eq!(bound, Some((*client, lease.as_us())));
                    }
                    prop_assert_eq!(sorted(due.into_iter().map(|due| due.place).collect()), sorted(naive));
                }
                What::LookAtAll => {
                    now -= HOUR;
                    sessions.look_at_all(at(now));
                    list.bound.iter_mut().for_each(|bound| bound.due = now);
                    list.heard.iter_mut().for_each(|(_, heard)| *heard = now.min(*heard));
                }
                What::Clear => {
                    sessions.clear();
                    list = List::default();
                }
            }
            prop_assert_eq!(sessions.bound(), list.bound.len());
            prop_assert_eq!(sessions.len(), list.connections());
            prop_assert_eq!(sessions.is_empty(), list.connections() == 0);
            prop_assert_eq!(sessions.next_due().map(Instant::as_us), list.bound.iter().map(|bound| bound.due).min());
            for bound in &list.bound {
                prop_assert!(sessions.is_bound(&bound.place));
                prop_assert_eq!(sessions.grace(&bound.place), Some(bound.grace));
                let heard = list.heard.iter().find(|(client, _)| *client == bound.client).map(|(_, heard)| at(*heard));
                prop_assert_eq!(sessions.last_heard(bound.client), heard);
            }
        }
    }
}

#[test]
fn the_last_binding_decides_what_a_close_returns() {
    let mut sessions = Sessions::default();
    let place = place(0, "k", 7);
    sessions.bind(plainly(1), place.clone(), Kind::Lock, Span::from_secs(9), at(START));
    sessions.bind(plainly(2), place.clone(), Kind::Lock, Span::from_secs(9), at(START));
    assert_eq!(close(&mut sessions, 1), []);
    assert_eq!(close(&mut sessions, 2), [closed(place, Kind::Lock)]);
    assert!(sessions.is_empty() && sessions.next_due().is_none());
}

#[test]
fn a_lease_is_looked_at_every_third_of_it() {
    let mut sessions = Sessions::default();
    sessions.bind(plainly(1), place(0, "k", 7), Kind::Bulkhead, Span::from_secs(9), at(START));
    assert_eq!(sessions.take_due(at(START + 3 * SECOND - 1), 9), []);
    for turn in 1..=3 {
        let due = at(START + turn * 3 * SECOND);
        assert_eq!((sessions.next_due(), sessions.take_due(due, 9).len()), (Some(due), 1));
        assert_eq!(sessions.take_due(due, 9), [], "once each time");
    }
}

#[test]
fn a_connection_keeps_a_short_lease_and_silence_loses_it() {
    let mut sessions = Sessions::default();
    let (short, longer, long) = (place(0, "s", 1), place(0, "l", 2), place(0, "x", 3));
    for (place, ms) in [(&short, 30), (&longer, 500), (&long, 9_000)] {
        sessions.bind(plainly(1), place.clone(), Kind::Lock, Span::from_ms(ms), at(START));
    }
    assert_eq!((sessions.next_lapse(), sessions.keeps(&long)), (Some(at(START + 30 * MS)), None));
    sessions.heard(1, at(START + 20 * MS));
    assert_eq!(sessions.keeps(&short), Some((1, at(START + 50 * MS), Span::from_ms(30))));
    // It was heard of in between: nothing has ended.
    assert_eq!(sessions.take_lapse(at(START + 30 * MS)), Some(1));
    assert_eq!(sessions.lapsed(1, at(START + 30 * MS), 100), []);
    assert_eq!((sessions.next_lapse(), sessions.take_lapse(at(START + 49 * MS))), (Some(at(START + 50 * MS)), None));
    assert_eq!(sessions.take_lapse(at(START + 50 * MS)), Some(1));
    assert_eq!(sessions.lapsed(1, at(START + 50 * MS), 100), [(short.clone(), Kind::Lock)]);
    assert_eq!(sessions.next_lapse(), Some(at(START + 520 * MS)));
    // A sign of life comes before its key was looked at, and too late.
    sessions.heard(1, at(START + 60 * MS));
    assert!(!sessions.is_bound(&short) && sessions.is_bound(&longer));
    assert_eq!(sessions.take_lapse(at(START + 520 * MS)), Some(1));
    assert_eq!(
        (sessions.lapsed(1, at(START + 520 * MS), 100), sessions.next_lapse()),
        (vec![], Some(at(START + 560 * MS)))
    );
    assert_eq!(sessions.take_lapse(at(START + 560 * MS)), Some(1));
    assert_eq!(sessions.lapsed(1, at(START + 560 * MS), 100), [(longer, Kind::Lock)]);
    assert!(sessions.is_bound(&long) && sessions.next_lapse().is_none(), "a long one ends by the timer of its key");
}

#[test]
fn very_many_short_leases_lapse_a_few_at_a_time() {
    let mut sessions = Sessions::default();
    for fence in 1..=7 {
        sessions.bind(
            plainly(1),
            place(0, "k", fence),
            Kind::Lock,
            Span::from_ms(10 + i64::try_from(fence).unwrap_or(0)),
            at(START),
        );
    }
    sessions.bind(plainly(1), place(0, "k", 8), Kind::Lock, Span::from_ms(500), at(START));
    let mut seen = Vec::new();
    let now = at(START + 100 * MS);
    while let Some(client) = sessions.take_lapse(now) {
        let some = sessions.lapsed(client, now, 3);
        assert!(some.len() <= 3 && seen.len() < 9, "{some:?}");
        seen.extend(some.into_iter().map(|(place, _)| place.fence));
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(sessions.next_lapse(), Some(at(START + 500 * MS)));
}

#[test]
fn exactly_one_heartbeat_reports_a_loss() {
    let mut sessions = Sessions::default();
    let place = place(0, "k", 7);
    sessions.bind(plainly(1), place.clone(), Kind::Lock, Span::from_secs(9), at(START));
    assert!(sessions.lose(&place, Reason::Broken));
    assert!(!sessions.lose(&place, Reason::Expired), "it is not bound any more");
    assert_eq!(sessions.heartbeat(2, at(START)), (0, vec![]));
    let loss = Loss { key: b"k"[..].into(), fence: 7, reason: Reason::Broken };
    assert_eq!(sessions.heartbeat(1, at(START)), (0, vec![loss]));
    assert_eq!(sessions.heartbeat(1, at(START)), (0, vec![]));
    assert!(sessions.is_empty());
}

#[test]
fn a_session_never_asked_remembers_its_newest_losses() {
    let mut sessions = Sessions::default();
    for fence in 0..LOSSES as u64 + 500 {
        sessions.bind(plainly(1), place(0, "k", fence), Kind::Lock, Span::from_secs(9), at(START));
        sessions.lose(&place(0, "k", fence), Reason::Expired);
    }
    let (_, losses) = sessions.heartbeat(1, at(START));
    assert_eq!((losses.len(), losses[0].fence), (LOSSES, 500));
}

#[test]
fn a_closed_connections_grants_are_taken_once_and_not_renewed() {
    let mut sessions = Sessions::default();
    for fence in 0..3 {
        sessions.bind(plainly(1), place(0, "k", fence), Kind::Lock, Span::from_secs(9), at(START));
    }
    sessions.bind(plainly(2), place(0, "k", 3), Kind::Lock, Span::from_secs(9), at(START));
    sessions.close(1, at(START));
    assert!(!sessions.is_bound(&place(0, "k", 0)) && sessions.is_bound(&place(0, "k", 3)));
    assert_eq!(sessions.take_due(at(START + HOUR), 10).len(), 1, "a closed connection renews nothing");
    assert!(!sessions.lose(&place(0, "k", 0), Reason::Broken), "nobody is left to be reported");
    sessions.bind(plainly(2), place(0, "k", 1), Kind::Lock, Span::from_secs(9), at(START));
    assert_eq!(sessions.closed_in(0, b"k", usize::MAX, |_| 1), [closed(place(0, "k", 2), Kind::Lock)]);
    assert_eq!((sessions.take_closed(), sessions.is_closing()), (None, false));
    assert_eq!(sessions.len(), 1);
}
