//! Events as a server sees them, and how they are played: on a ledger, on its replica and bytes, and beside the model.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use resil_core::dead_letters::{
    BatchRenewed, Category, Class, Closed, ConfigChange, Counting, Diagnosed, Discard, Ended, Failed, Jitter, Parked,
    Place, RedriveRequest, Redriven, Standing,
};
use resil_core::waited::Decision;

use super::asking::{fault, redrive};
use super::key::*;
use super::model::{Alert, LEASE, Model, Said, State};

pub const IDS: usize = 7;
const GROUPS: [&str; 3] = ["order/no luck", "order/other", "order/no word from its takers"];

#[derive(Debug, Clone)]
pub enum Event {
    Fail {
        id: usize,
        counting: Counting,
        class: Option<Class>,
        after: Option<i64>,
        prior: u32,
        error: usize,
        other: bool,
    },
    FailBy {
        which: Index,
        counting: Counting,
        error: usize,
    },
    Take {
        token: usize,
        count: usize,
    },
    Done(Index),
    Return(Index, i64),
    Renew(usize, i64),
    Close(usize),
    TakeBack(usize),
    Park(usize),
    Later(i64),
    Restart(i64),
    Promote(i64),
    Diagnose {
        groups: usize,
        category: Category,
        auto: Option<i64>,
    },
    Redrive {
        case: Index,
        first: u32,
        count: Option<u32>,
        oneshot: bool,
    },
    Stop(Index),
    CloseCase(Index, bool),
    Hold(usize, bool),
    Purge,
    See(usize),
    /// So many others die at once.
    Deaths(usize),
}

fn counting() -> impl Strategy<Value = Counting> {
    prop_oneof![6 => Just(Counting::Counted), 1 => Just(Counting::NotCounted), 4 => Just(Counting::Final)]
}

fn class() -> impl Strategy<Value = Option<Class>> {
    prop_oneof![4 => Just(None), 1 => Just(Some(Class::Business)), 1 => Just(Some(Class::External))]
}

fn later() -> impl Strategy<Value = i64> {
    prop_oneof![
        10 => (1..2_000i64).prop_map(|ms| ms * MS),
        6 => (1..60i64).prop_map(|seconds| seconds * SECOND),
        1 => (1..20i64).prop_map(|minutes| minutes * MINUTE),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let fail = (
        0..IDS,
        counting(),
        class(),
        prop::option::weighted(0.2, (1..5_400_000i64).prop_map(|ms| ms * MS)),
        0..4u32,
        0..2usize,
        0..10u8,
    );
    let fail = fail.prop_map(|(id, counting, class, after, prior, error, other)| {
        let prior = prior.saturating_sub(2) * 3;
        Event::Fail { id, counting, class, after, prior, error, other: other == 0 }
    });
    let redrive = (any::<Index>(), 1..4u32, prop::option::weighted(0.3, 1..4u32), any::<bool>());
    let redrive = redrive.prop_map(|(case, first, count, oneshot)| Event::Redrive { case, first, count, oneshot });
    let category = prop_oneof![
        2 => Just((Category::Contract, None)),
        1 => Just((Category::Poison, None)),
        3 => (1..120i64).prop_map(|minutes| (Category::Infrastructure, Some(minutes * MINUTE))),
    ];
    let diagnose =
        (1..8usize, category).prop_map(|(groups, (category, auto))| Event::Diagnose { groups, category, auto });
    prop_oneof![
        20 => fail,
        18 => (any::<Index>(), counting(), 0..2usize)
            .prop_map(|(which, counting, error)| Event::FailBy { which, counting, error }),
        30 => (0..4usize, 1..4usize).prop_map(|(token, count)| Event::Take { token, count }),
        14 => any::<Index>().prop_map(Event::Done),
        5 => (any::<Index>(), 0..10i64).prop_map(|(which, delay)| Event::Return(which, delay * SECOND)),
        3 => (0..4usize, 1..60i64).prop_map(|(token, lease)| Event::Renew(token, lease * SECOND)),
        2 => (0..4usize).prop_map(Event::Close),
        2 => (0..4usize).prop_map(Event::TakeBack),
        8 => (0..IDS).prop_map(Event::Park),
        45 => later().prop_map(Event::Later),
        1 => (0..60i64).prop_map(|away| Event::Restart(away * SECOND)),
        1 => (0..5i64).prop_map(|by| Event::Promote(by * SECOND)),
        6 => diagnose,
        14 => redrive,
        1 => any::<Index>().prop_map(Event::Stop),
        5 => (any::<Index>(), any::<bool>()).prop_map(|(case, discard)| Event::CloseCase(case, discard)),
        4 => (0..IDS, any::<bool>()).prop_map(|(id, held)| Event::Hold(id, held)),
        1 => Just(Event::Purge),
        3 => (0..20usize).prop_map(Event::See),
        1 => (4..9usize).prop_map(Event::Deaths),
        1 => (1..100i64).prop_map(|days| Event::Later(days * DAY)),
    ]
}

/// Clocks go forward.
pub fn calm() -> impl Strategy<Value = Vec<Event>> {
    vec(event(), 200..260)
}

pub fn short() -> impl Strategy<Value = Vec<Event>> {
    vec(event(), 0..60)
}

/// Clocks are set back, too.
pub fn wild() -> impl Strategy<Value = Vec<Event>> {
    let back = prop_oneof![(1..2_000i64).prop_map(|ms| -ms * MS), (1..100i64).prop_map(|hours| -hours * HOUR)];
    let back = back.prop_map(Event::Later);
    let behind = (-3_600..1i64).prop_map(|by| Event::Promote(by * SECOND));
    vec(prop_oneof![30 => event(), 1 => back, 1 => behind], 200..260)
}

#[derive(Debug, Clone, Default)]
pub struct Driver {
    pub key: Key,
    /// Every fence that was given out, the latest last.
    pub fences: Vec<(String, u64)>,
    pub cases: usize,
    others: usize,
}

pub fn id(at: usize) -> String {
    format!("m{at}")
}

pub fn aggregate(at: usize) -> &'static str {
    ["", "x", "y"][at % 3]
}

impl Driver {
    pub fn new() -> Self {
        let mut driver = Self::default();
        driver.key.configure(&ConfigChange { jitter: Some(Jitter::None), ..ConfigChange::default() });
        driver
    }

    /// One of the last fences, or one that never was.
    fn fence(&self, which: Index) -> (String, u64) {
        let last = self.fences.len().min(8);
        let at = which.index(last + 1);
        if at == last { (id(0), 5) } else { self.fences[self.fences.len() - 1 - at].clone() }
    }

    fn case(&self, which: Index) -> u32 {
        let last = self.cases.min(3);
        (self.cases - which.index(last + 1).min(self.cases)) as u32
    }

    /// Plays an event on the ledger, and beside it on the model if there is one; what both said.
    pub fn play(&mut self, model: &mut Model, event: &Event) -> (Said, Said) {
        let key = &mut self.key;
        match event {
            Event::Fail { id: at, counting, class, after, prior, error, other } => {
                let mut fault = fault(&id(*at)).of(aggregate(*at)).error(["no luck", "other"][*error]).prior(*prior);
                (fault.counting, fault.class, fault.after) = (*counting, *class, *after);
                if *other {
                    fault = fault.payload(Some("other bytes"));
                }
                (failed(key.fail(&fault)), model.fail(&fault))
            }
            Event::FailBy { which, counting, error } => {
                let (id, fence) = self.fence(*which);
                let mut fault = fault(&id).payload(None).error(["no luck", "other"][*error]).by(fence);
                fault.counting = *counting;
                (failed(self.key.fail(&fault)), model.fail(&fault))
            }
            Event::Take { token, count } => {
                let token = format!("t{token}");
                let said = match key.ask(&token, LEASE, *count, None) {
                    Decision::Granted(taken) => {
                        let new: Vec<(String, u64)> =
                            taken.entries.iter().map(|entry| (id_of(entry), entry.fence)).collect();
                        let said = model.take(&token, *count);
                        for (id, fence) in &new {
                            let is_same = self.fences.contains(&(id.clone(), *fence));
                            let newest = self.fences.iter().map(|(_, fence)| *fence).max().unwrap_or_default();
                            assert!(is_same || *fence > newest || !self.key.is_checked, "fences grow");
                            if matches!(&said, Said::Taken(ids) if ids.contains(id)) {
                                model.fenced(id, *fence);
                            }
                            if !is_same {
                                self.fences.push((id.clone(), *fence));
                            }
                        }
                        return (Said::Taken(new.into_iter().map(|(id, _)| id).collect()), said);
                    }
                    Decision::Refused(none) => Said::Nothing(none.next.map(resil_core::Span::as_us)),
                    other => panic!("{other:?}"),
                };
                (said, model.take(&token, *count))
            }
            Event::Done(which) => {
                let (id, fence) = self.fence(*which);
                (ended(self.key.done(&id, fence)), model.done(&id, fence))
            }
            Event::Return(which, delay) => {
                let (id, fence) = self.fence(*which);
                (ended(self.key.give_back(&id, fence, *delay)), model.give_back(&id, fence, *delay))
            }
            Event::Renew(token, lease) => {
                let token = format!("t{token}");
                let said = match key.renew(&token, *lease) {
                    BatchRenewed::Granted { entries, .. } => Said::Renewed(entries),
                    BatchRenewed::Lost(_) => Said::Lost,
                };
                (said, model.renew(&token, *lease))
            }
            Event::Close(token) | Event::TakeBack(token) => {
                let token = format!("t{token}");
                let fence = key.ledger.by_token(token.as_bytes()).map_or(0, |(fence, _)| fence);
                let is_lapse = matches!(event, Event::Close(_));
                let was = if is_lapse { key.close(fence) } else { key.take_back(fence) };
                (Said::Was(was), model.end(&token, is_lapse))
            }
            Event::Park(at) => {
                let aggregate = ["x", "y"][at % 2];
                let said = match key.park(&id(*at), aggregate) {
                    Parked::Free => Said::Free,
                    Parked::Behind { position } => Said::Behind(position),
                    Parked::Known { standing, attempt } => Said::Known(state(standing), attempt),
                    Parked::Conflict => Said::Conflict,
                    Parked::Full => panic!("full"),
                };
                (said, model.park(&id(*at), format!("body of {}", id(*at)).as_bytes(), aggregate))
            }
            Event::Later(by) => {
                key.now += by;
                model.now = key.now;
                key.settle();
                (Said::Was(true), Said::Was(true))
            }
            Event::Restart(by) | Event::Promote(by) => {
                let promotes = matches!(event, Event::Promote(_));
                if promotes {
                    key.promote(*by)
                } else {
                    key.restart(*by)
                }
                model.now = key.now;
                model.restarts(promotes);
                (Said::Was(true), Said::Was(true))
            }
            Event::Diagnose { groups, category, auto } => {
                let groups: Vec<&str> = (0..3).filter(|bit| groups >> bit & 1 == 1).map(|bit| GROUPS[bit]).collect();
                let said = match key.diagnose_as(&groups, *category, *auto) {
                    Diagnosed::Case(number) => {
                        self.cases = number as usize;
                        Said::Case(number as usize)
                    }
                    Diagnosed::UnknownGroup(_) => Said::Unknown,
                    Diagnosed::TooMany => panic!("too many"),
                };
                (said, model.diagnose(&groups, *category, *auto))
            }
            Event::Redrive { case, first, count, oneshot } => {
                let case = self.case(*case);
                let request = RedriveRequest { first: *first, count: *count, oneshot: *oneshot, ..redrive(case) };
                let said = match self.key.redrive(&request) {
                    Redriven::Started(matched) => Said::Started(matched.count),
                    Redriven::Refused(refusal) => Said::Refused(refusal.text()),
                    Redriven::DryRun(_) => panic!("it is not"),
                };
                (said, model.redrive((case as usize).wrapping_sub(1), *first, *count, *oneshot))
            }
            Event::Stop(case) => {
                let case = self.case(*case);
                self.key.stop(case);
                model.stop((case as usize).wrapping_sub(1));
                (Said::Was(true), Said::Was(true))
            }
            Event::CloseCase(case, discards) => {
                let case = self.case(*case);
                let said = match self.key.close_case(case, if *discards { Discard::UnderWay } else { Discard::No }) {
                    Closed::Closed => Said::Closed,
                    Closed::Open(open) => Said::Open(open),
                    Closed::NoCase => Said::Refused("case"),
                    Closed::NotPoison => Said::Refused("poison"),
                    Closed::ClosedBefore => Said::Refused("closed"),
                };
                (said, model.close((case as usize).wrapping_sub(1), *discards))
            }
            Event::Hold(at, held) => (Said::Count(key.hold_id(&id(*at), *held)), model.hold(&id(*at), *held)),
            Event::Purge => (Said::Count(key.purge().0), model.purge()),
            Event::Deaths(count) => {
                let mut said = (Said::Was(true), Said::Was(true));
                for _ in 0..*count {
                    self.others += 1;
                    let fault = fault(&format!("other{}", self.others)).finally();
                    said = (failed(key.fail(&fault)), model.fail(&fault));
                    model.settle();
                }
                said
            }
            Event::See(number) => (Said::Was(key.see(*number as u64)), model.see(*number)),
        }
    }

    /// Plays beside the model: the same must be said, and all must be in the same state.
    pub fn play_beside(&mut self, model: &mut Model, event: &Event) -> Result<Said, TestCaseError> {
        model.now = self.key.now;
        let (said, expected) = self.play(model, event);
        prop_assert_eq!(&said, &expected, "{:?}", event);
        // What begins by itself without a timer begins with the next step.
        loop {
            self.key.settle();
            self.key.tick();
            if self.key.edits.is_empty() {
                break;
            }
        }
        model.settle();
        prop_assert_eq!(alerts(&self.key), &model.alarms.raised[..], "{:?}", event);
        for at in 0..IDS {
            let known = self.key.ledger.get(id(at).as_bytes());
            let known = known.map(|entry| (entry.place, entry.attempt, entry.lapses, entry.deaths, entry.held));
            let item = model.items.iter().find(|item| item.id == id(at));
            let item = item.map(|item| (place(item.state), item.attempt, item.lapses, item.deaths, item.held));
            prop_assert_eq!(known, item, "{} after {:?}", id(at), event);
        }
        Ok(said)
    }
}

fn alerts(key: &Key) -> Vec<Alert> {
    let text = |subject: &[u8]| String::from_utf8_lossy(subject).into_owned();
    let alerts = key.ledger.alerts(0, 1_000).0.map(|alert| Alert {
        kind: alert.kind.text(),
        subject: text(&alert.subject),
        count: alert.count,
        is_seen: alert.is_seen,
    });
    alerts.collect()
}

fn place(state: State) -> Place {
    match state {
        State::Waiting => Place::Waiting,
        State::Taken => Place::Taken,
        State::Parked => Place::Parked,
        State::Dead => Place::Dead,
        State::Resolved => Place::Resolved,
        State::Archived => Place::Archived,
    }
}

fn state(standing: Standing) -> Option<State> {
    let Standing::Here(of) = standing else { return None };
    let all = [State::Waiting, State::Taken, State::Parked, State::Dead, State::Resolved, State::Archived];
    all.into_iter().find(|state| place(*state) == of)
}

fn failed(failed: Failed) -> Said {
    match failed {
        Failed::Retry { attempt, delay } => Said::Retry(attempt, delay.ceil_ms() * MS),
        Failed::Dead { deaths, group, reason } => {
            Said::Dead(deaths, String::from_utf8_lossy(&group).into_owned(), reason.text())
        }
        Failed::Known { standing, attempt } => Said::Known(state(standing), attempt),
        Failed::Lost(_) => Said::Lost,
        Failed::Conflict => Said::Conflict,
        Failed::Full => panic!("full"),
    }
}

fn ended(ended: Ended) -> Said {
    if ended == Ended::Ended { Said::Ended } else { Said::Lost }
}
