//! Cached values under a name: an invalidation, by key, by tag or of the whole name, never loses to a load that began before it.
//!
//! The judge knows nothing of generations. It numbers everything that happens, remembers which number each load began
//! at, and which keys and tags were invalidated when; whatever anybody is served is held against that.

mod seed;

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::codec::to_vec;
use resil_core::generations::{self, GenerationEdits, Generations, Leaves, Validity};
use resil_core::limits::{AGEING_DEFAULT, TAGS_REMEMBERED};
use resil_core::single_flight::{
    self, Flight, Flights, Lead, LeadRequest, Publication, Published, Seen, UnderName, decode_edits, decode_flight,
    encode_edits, encode_flight,
};
use resil_core::waited::{Decision, Floor, Machine, Queue, Reason, Reply, Setting, Stepped, WaitedKey, Waiting};
use resil_core::{Instant, Plain, Span, Step, Stored};

const START: i64 = 1_000_000_000_000;
const TAGS: [&[u8]; 2] = [b"blue", b"red"];
const KEYS: usize = 2;

#[derive(Debug, Clone)]
enum Op {
    Join {
        key: usize,
        waits: bool,
        early: bool,
    },
    Publish {
        key: usize,
        tags: usize,
        ttl_ms: i64,
        stale_ms: i64,
    },
    Set {
        key: usize,
        tags: usize,
    },
    Clear {
        tag: Option<usize>,
        soft: bool,
    },
    Invalidate {
        key: usize,
        soft: bool,
    },
    /// The name's key is evicted.
    Evict,
    Later {
        ms: i64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS;
    prop_oneof![
        6 => (key.clone(), any::<bool>(), any::<bool>()).prop_map(|(key, waits, early)| Op::Join { key, waits, early }),
        5 => (key.clone(), 0..4usize, 0..200i64, 0..200i64)
            .prop_map(|(key, tags, ttl_ms, stale_ms)| Op::Publish { key, tags, ttl_ms, stale_ms }),
        1 => (key.clone(), 0..4usize).prop_map(|(key, tags)| Op::Set { key, tags }),
        3 => (prop::option::of(0..2usize), any::<bool>()).prop_map(|(tag, soft)| Op::Clear { tag, soft }),
        1 => (key, any::<bool>()).prop_map(|(key, soft)| Op::Invalidate { key, soft }),
        1 => Just(Op::Evict),
        2 => (0..150i64).prop_map(|ms| Op::Later { ms }),
    ]
}

#[derive(Debug, Default)]
struct OneKey {
    flight: Flight,
    replica: Flight,
    queue: Queue<LeadRequest>,
    /// Who leads, and when it was notified.
    leads: Option<(Vec<u8>, u64)>,
    /// When each waiting call came, and as whom.
    waits: Vec<(u64, u64, Vec<u8>)>,
}

/// What was invalidated when.
#[derive(Debug)]
struct Invalidation {
    at: u64,
    key: Option<usize>,
    tag: Option<usize>,
    soft: bool,
}

#[derive(Debug)]
struct World {
    keys: [OneKey; KEYS],
    known: Generations,
    replica: Generations,
    floor: Floor,
    now: Instant,
    happened: u64,
    invalidations: Vec<Invalidation>,
    served: usize,
}

fn tags_of(bits: usize) -> Vec<&'static [u8]> {
    (0..2).filter(|tag| bits & 1 << tag != 0).map(|tag| TAGS[tag]).collect()
}

impl World {
    fn new() -> Self {
        Self {
            keys: Default::default(),
            known: Generations::default(),
            replica: Generations::default(),
            floor: Floor::default(),
            now: Instant::from_us(START),
            happened: 0,
            invalidations: Vec::new(),
            served: 0,
        }
    }

    /// What is done to the name travels as bytes, makes the same of a copy, and can be stored.
    fn name<V>(&mut self, step: Step<V, GenerationEdits>) -> V {
        if let Some(edits) = step.change {
            let sent = to_vec(|out| Generations::encode_edits(&edits, out));
            Generations::apply_all(&mut self.known, edits);
            Generations::apply_all(&mut self.replica, Generations::decode_edits(&sent).expect("edits of a step"));
            assert_eq!(self.known, self.replica);
            let bytes = to_vec(|out| Generations::encode(&self.known, out));
            assert_eq!(Generations::decode(&bytes).as_ref(), Ok(&self.known));
        }
        step.verdict
    }

    fn step<V>(
        &mut self,
        key: usize,
        act: impl FnOnce(&mut WaitedKey<'_, Flights>, &Generations, &mut Setting<'_>) -> Stepped<Flights, V>,
    ) -> V {
        let one = &mut self.keys[key];
        let mut setting = Setting {
            now: self.now,
            promoted_at: None,
            up_since: Instant::EPOCH,
            ageing: AGEING_DEFAULT,
            floor: &mut self.floor,
            heard: None,
        };
        let mut waited = WaitedKey { state: &mut one.flight, queue: &mut one.queue };
        let outcome = act(&mut waited, &self.known, &mut setting);
        if !outcome.edits.is_empty() {
            let sent = decode_edits(&to_vec(|out| encode_edits(&outcome.edits, out))).expect("edits of a step");
            sent.into_iter().for_each(|edit| one.replica.apply(edit));
        }
        let bytes = to_vec(|out| encode_flight(&one.flight, out));
        assert_eq!(bytes, to_vec(|out| encode_flight(&one.replica, out)));
        assert_eq!(decode_flight(&bytes).as_ref(), Ok(&one.flight));
        self.happened += 1;
        for reply in outcome.replies {
            let at = self.keys[key].waits.iter().position(|(id, ..)| *id == reply.id()).expect("somebody who waits");
            let (_, came, token) = self.keys[key].waits.remove(at);
            match reply {
                Reply::Granted { .. } => self.keys[key].leads = Some((token, self.happened)),
                Reply::Refused { refusal, .. } | Reply::TimedOut { refusal, .. } => self.judge(key, came, &refusal),
                Reply::Superseded { .. } => {}
            }
        }
        outcome.verdict
    }

    /// Who came at `came` is served this.
    fn judge(&mut self, key: usize, came: u64, seen: &Seen) {
        let (bytes, is_stale) = match seen {
            Seen::Value { bytes, .. } => (bytes, false),
            Seen::Stale { bytes, .. } => (bytes, true),
            _ => return,
        };
        self.served += 1;
        let began = u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
        let tags = usize::from(bytes[8]);
        for invalidation in &self.invalidations {
            let concerns = match (invalidation.key, invalidation.tag) {
                (Some(other), _) => other == key,
                (None, Some(tag)) => tags & 1 << tag != 0,
                (None, None) => true,
            };
            let lost = concerns && invalidation.at < came && invalidation.at > began;
            assert!(!lost || is_stale && invalidation.soft, "{seen:?} came at {came}: {invalidation:?}, began {began}");
        }
    }

    fn join(&mut self, key: usize, token: &[u8], waits: bool, early: bool) -> Decision<Lead, Seen> {
        let (came, early) = (self.happened, early.then_some(50));
        let hit = single_flight::hit(&self.keys[key].flight, early, Some(&self.known), self.now);
        if let Some(seen) = hit {
            self.judge(key, came, &seen);
            return Decision::Refused(seen);
        }
        let begun = generations::begin(&self.known, &mut self.floor, self.now);
        let generation = self.name(begun);
        let request = LeadRequest { lease: Span::from_ms(100), bind_to: None, generation, early };
        let waiting = waits.then_some(Waiting { id: came, wait: Span::from_ms(300), most: 100 });
        if waits {
            self.keys[key].waits.push((came, came, token.to_vec()));
        }
        let joined = self
            .step(key, |one, known, setting| single_flight::join(one, token, request, waiting, Some(known), setting));
        if waits && joined != Decision::Queued {
            self.keys[key].waits.retain(|(id, ..)| *id != came);
        }
        match &joined {
            Decision::Granted(lead) => {
                // What it gets beside the lead is served, too.
                if let Some(bytes) = &lead.stale {
                    let bytes = bytes.clone();
                    self.judge(
                        key,
                        came,
                        &match lead.fresh {
                            Some(fresh) => Seen::Value { bytes, age: Span::ZERO, fresh },
                            None => Seen::Stale { bytes, age: Span::ZERO },
                        },
                    );
                }
                self.keys[key].leads = Some((token.to_vec(), self.happened));
            }
            Decision::Refused(seen) => self.judge(key, came, &seen.clone()),
            Decision::Queued | Decision::Conflict => {}
        }
        joined
    }

    fn publish(&mut self, key: usize, tags: usize, ttl: Span, stale: Span) -> Option<Published> {
        let (token, began) = self.keys[key].leads.take()?;
        let mut bytes = began.to_be_bytes().to_vec();
        bytes.push(tags as u8);
        let (publication, tags) = (Publication::Value { bytes: bytes.into(), stale }, tags_of(tags));
        let published = self.step(key, |one, known, setting| {
            let under = Some(UnderName { known, tags: &tags });
            single_flight::publish(one, &token, ttl, publication, under, setting)
        });
        let extended = generations::extend(&self.known, self.now.plus(ttl).plus(stale));
        self.name(extended);
        Some(published)
    }

    fn play(&mut self, op: Op) {
        match op {
            Op::Join { key, waits, early } => {
                let token = format!("t{}", self.happened);
                self.join(key, token.as_bytes(), waits, early);
            }
            Op::Publish { key, tags, ttl_ms, stale_ms } => {
                self.publish(key, tags, Span::from_ms(ttl_ms), Span::from_ms(stale_ms));
            }
            Op::Set { key, tags } => {
                let begun = generations::begin(&self.known, &mut self.floor, self.now);
                self.name(begun);
                // It is as new as it is, and makes older ones of its key out of date.
                self.happened += 1;
                self.invalidations.push(Invalidation { at: self.happened, key: Some(key), tag: None, soft: false });
                self.happened += 1;
                let mut bytes = self.happened.to_be_bytes().to_vec();
                bytes.push(tags as u8);
                let publication = Publication::Value { bytes: bytes.into(), stale: Span::ZERO };
                let tags = tags_of(tags);
                self.step(key, |one, known, setting| {
                    single_flight::set(
                        one,
                        Span::from_ms(100),
                        publication,
                        Some(UnderName { known, tags: &tags }),
                        setting,
                    )
                });
            }
            Op::Clear { tag, soft } => {
                let tags: Vec<&[u8]> = tag.map(|tag| TAGS[tag]).into_iter().collect();
                let leaves = if soft { Leaves::Stale } else { Leaves::Nothing };
                let cleared = generations::clear(&self.known, &tags, leaves, &mut self.floor, self.now);
                self.name(cleared);
                self.happened += 1;
                self.invalidations.push(Invalidation { at: self.happened, key: None, tag, soft });
            }
            Op::Invalidate { key, soft } => {
                // Who leads by it begins after it.
                self.happened += 1;
                self.invalidations.push(Invalidation { at: self.happened, key: Some(key), tag: None, soft });
                self.step(key, |one, _, setting| single_flight::invalidate(one, soft, setting));
            }
            Op::Evict => {
                self.known = Generations::default();
                self.replica = Generations::default();
            }
            Op::Later { ms } => {
                self.now = self.now.plus(Span::from_ms(ms));
                for key in 0..KEYS {
                    self.step(key, |one, _, setting| Flights::tick(one, setting));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn an_invalidation_never_loses_to_an_earlier_load(ops in vec(op(), 1..80)) {
        let mut world = World::new();
        ops.into_iter().for_each(|op| world.play(op));
    }

    #[test]
    fn bytes_of_names_are_refused_or_mean_something(bytes in vec(any::<u8>(), 0..60)) {
        for tag in [b'N', b'n'] {
            let bytes = [&[tag][..], &bytes].concat();
            if let Ok(known) = Generations::decode(&bytes) {
                prop_assert_eq!(to_vec(|out| Generations::encode(&known, out)), bytes.clone());
            }
            if let Ok(edits) = Generations::decode_edits(&bytes) {
                prop_assert_eq!(to_vec(|out| Generations::encode_edits(&edits, out)), bytes);
            }
        }
    }
}

#[test]
fn one_invalidation_costs_one_load_however_many_follow() {
    let mut world = World::new();
    assert!(matches!(world.join(0, b"first", false, false), Decision::Granted(_)));
    for follower in [b"a", b"b", b"c"] {
        assert_eq!(world.join(0, follower, true, false), Decision::Queued);
    }
    world.play(Op::Clear { tag: Some(0), soft: false });
    let ttl = Span::from_secs(60);
    assert_eq!(world.publish(0, 1, ttl, Span::ZERO), Some(Published::Lost(Reason::Invalidated)));
    // The first follower leads, and what it loads counts although it came before the invalidation.
    assert_eq!(world.publish(0, 1, ttl, Span::ZERO), Some(Published::Published { followers: 2 }));
    assert!(matches!(world.join(0, b"later", false, false), Decision::Refused(Seen::Value { .. })));
    assert_eq!(world.served, 3);
}

#[test]
fn a_follower_after_a_clear_skips_the_voided_load() {
    let mut world = World::new();
    assert!(matches!(world.join(0, b"first", false, false), Decision::Granted(_)));
    world.play(Op::Clear { tag: None, soft: false });
    assert!(matches!(world.join(0, b"second", true, false), Decision::Granted(_)));
}

#[test]
fn one_caller_loads_early_and_the_others_have_the_value() {
    let mut world = World::new();
    assert!(matches!(world.join(0, b"first", false, false), Decision::Granted(_)));
    world.publish(0, 0, Span::from_ms(100), Span::ZERO);
    world.now = world.now.plus(Span::from_ms(49));
    assert!(matches!(world.join(0, b"too soon", false, true), Decision::Refused(Seen::Value { .. })));
    world.now = world.now.plus(Span::from_ms(2));
    let Decision::Granted(lead) = world.join(0, b"early", false, true) else { panic!("it is nearly over") };
    assert_eq!(lead.fresh, Some(Span::from_ms(49)));
    assert!(lead.stale.is_some());
    assert!(matches!(world.join(0, b"another", false, true), Decision::Refused(Seen::Value { .. })));
}

#[test]
fn what_is_cleared_softly_stays_stale_its_time() {
    for tag in [None, Some(0)] {
        let mut world = World::new();
        world.join(0, b"first", false, false);
        world.publish(0, 1, Span::from_secs(60), Span::from_secs(60));
        world.play(Op::Clear { tag, soft: true });
        let look = |world: &World| single_flight::look(&world.keys[0].flight, Some(&world.known), world.now);
        assert!(matches!(look(&world), Seen::Stale { .. }), "{:?}", look(&world));
        let Decision::Granted(lead) = world.join(0, b"second", false, false) else { panic!("somebody loads it anew") };
        assert!(lead.stale.is_some());
        assert!(matches!(world.join(0, b"third", false, false), Decision::Refused(Seen::Stale { .. })));
        world.now = world.now.plus(Span::from_secs(121));
        assert_eq!(look(&world), Seen::Miss);
    }
}

#[test]
fn a_name_that_is_lost_makes_everything_under_it_void() {
    let mut world = World::new();
    world.join(0, b"first", false, false);
    world.publish(0, 1, Span::from_secs(60), Span::ZERO);
    world.play(Op::Evict);
    let look = single_flight::look(&world.keys[0].flight, Some(&world.known), world.now);
    assert_eq!(look, Seen::Miss);
    assert!(matches!(world.join(0, b"second", false, false), Decision::Granted(_)));
}

#[test]
fn tags_that_are_forgotten_count_as_invalidated() {
    let (mut known, mut floor, now) = (Generations::default(), Floor::default(), Instant::from_us(START));
    let apply = |known: &mut Generations, step: Step<u64, GenerationEdits>| {
        step.change.into_iter().for_each(|edits| Generations::apply_all(known, edits));
        step.verdict
    };
    let begun = generations::begin(&known, &mut floor, now);
    let old = apply(&mut known, begun);
    for number in 0..4 * TAGS_REMEMBERED {
        let tag = number.to_string();
        let cleared = generations::clear(&known, &[tag.as_bytes()], Leaves::Nothing, &mut floor, now);
        apply(&mut known, cleared);
        assert!(known.tags() <= TAGS_REMEMBERED);
        assert_eq!(known.validity(old, &[tag.as_bytes()]), Validity::Void);
    }
    assert_eq!(known.validity(old, &[b"0"]), Validity::Void, "it was forgotten, and not forgiven");
    assert_eq!(known.validity(old, &[b"never seen"]), Validity::Void, "nobody knows");
    assert_eq!(known.validity::<&[u8]>(old, &[]), Validity::Good, "without tags only the whole name counts");
    assert_eq!(known.validity(known.current(), &[b"0"]), Validity::Good);
}

#[test]
fn a_replica_reads_what_any_clock_issues() {
    let mut world = World::new();
    // The year 2250: far beyond the middle of the numbers.
    world.now = Instant::from_us(8_800_000_000_000_000);
    world.join(0, b"first", false, false);
    world.publish(0, 1, Span::from_secs(60), Span::ZERO);
    world.play(Op::Clear { tag: Some(0), soft: false });
    world.play(Op::Set { key: 1, tags: 1 });
    assert!(world.known.current() > 8_800_000_000_000_000);
}
