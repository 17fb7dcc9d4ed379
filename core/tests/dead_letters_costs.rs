//! What a ledger costs when it is as large as it may be: a million entries of 500 bytes. Times mean something in release mode only:
//!
//! `cargo test --release -p resil-core --test dead_letters_costs -- --ignored --nocapture`
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use resil_core::dead_letters::{self, *};
use resil_core::waited::{Decision, Floor, Machine, Queue, Setting, Stepped, WaitedKey, Waiting};
use resil_core::{Instant, Span};

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// What a real allocator gives for so many bytes: the next of its size classes.
fn class(bytes: usize) -> usize {
    let step = (bytes.max(16).next_power_of_two() / 8).max(16);
    bytes.div_ceil(step) * step
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(class(layout.size()), Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(class(layout.size()), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What this thread has used of the processor: others may use it as well.
struct CpuTime(Duration);

impl CpuTime {
    fn now() -> Self {
        #[repr(C)]
        struct Time {
            seconds: i64,
            nanos: i64,
        }
        unsafe extern "C" {
            fn clock_gettime(clock: i32, time: *mut Time) -> i32;
        }
        const OF_THIS_THREAD: i32 = 3;
        let mut time = Time { seconds: 0, nanos: 0 };
        // SAFETY: as in time.h of 64-bit Linux.
        unsafe { clock_gettime(OF_THIS_THREAD, &raw mut time) };
        Self(Duration::new(time.seconds as u64, time.nanos as u32))
    }

    fn elapsed(&self) -> Duration {
        Self::now().0 - self.0
    }
}

const ENTRIES: usize = 1_000_000;
const LIMIT: Duration = Duration::from_millis(5);
const BYTES_BEYOND_MAX: usize = 300;
const ROOM: Room = Room { entries: 2 * ENTRIES, bytes: usize::MAX / 200, resolved: 100_000 };

struct Costs {
    ledger: Ledger,
    queue: Queue<TakeRequest>,
    floor: Floor,
    now: i64,
    promoted: Option<i64>,
    timer: Option<i64>,
    misses: Vec<String>,
    calls: u64,
}

impl Costs {
    fn new() -> Self {
        let now = 1_700_000_000_000_000;
        let (ledger, queue, floor) = (Ledger::default(), Queue::default(), Floor::default());
        Self { ledger, queue, floor, now, promoted: None, timer: None, misses: Vec::new(), calls: 0 }
    }

    fn step<V>(
        &mut self,
        act: impl FnOnce(&mut WaitedKey<'_, Ledgers>, &mut Setting<'_>) -> Stepped<Ledgers, V>,
    ) -> (V, Duration) {
        let mut key = WaitedKey { state: &mut self.ledger, queue: &mut self.queue };
        let mut setting = Setting {
            now: Instant::from_us(self.now),
            promoted_at: self.promoted.map(Instant::from_us),
            up_since: Instant::EPOCH,
            ageing: Span::ZERO,
            floor: &mut self.floor,
            heard: None,
        };
        let begin = CpuTime::now();
        let outcome = act(&mut key, &mut setting);
        // What is replicated belongs to it.
        let mut bytes = Vec::new();
        if !outcome.edits.is_empty() {
            Ledgers::encode_edits(&self.ledger, &outcome.edits, &mut bytes);
        }
        let verdict = outcome.verdict;
        drop((bytes, outcome.edits, outcome.replies));
        self.timer = outcome.timer_at.map(Instant::as_us);
        (verdict, begin.elapsed())
    }

    /// Notes the slowest of several, and the median.
    fn held_to(&mut self, what: &str, mut took: Vec<Duration>) {
        took.sort_unstable();
        let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
        println!("{what:<50} median {median:>10.1?}  worst {worst:>10.1?}  of {}", took.len());
        if worst > LIMIT {
            self.misses.push(format!("{what}: {worst:?}"));
        }
    }

    fn fail(&mut self, id: &str, body: &[u8], counting: dead_letters::Counting, group: Option<&[u8]>) -> Duration {
        let facts = Facts { id: id.as_bytes(), payload: Some(body), kind: b"order.placed", ..Facts::default() };
        let (fence, class, after, prior, random) = (None, None, None, 0, 0);
        let error = b"connection refused";
        let failing = Failing { facts, error, fence, class, group, after, prior, counting, random };
        let (verdict, took) = self.step(|key, setting| fail(key, &failing, &ROOM, setting));
        assert!(!matches!(verdict, Failed::Full));
        took
    }

    fn take(&mut self, token: &str, count: usize) -> (Vec<(Vec<u8>, u64)>, Duration) {
        let request = TakeRequest { lease: Span::from_secs(30), count, meta: Box::default(), bind_to: None };
        let (verdict, took) = self.step(|key, setting| take(key, token.as_bytes(), request, None, setting));
        let Decision::Granted(taken) = verdict else { return (Vec::new(), took) };
        (taken.entries.iter().map(|entry| (entry.message.id().to_vec(), entry.fence)).collect(), took)
    }

    fn done(&mut self, pairs: &[(Vec<u8>, u64)]) -> Duration {
        let pairs: Vec<(&[u8], u64)> = pairs.iter().map(|(id, fence)| (&id[..], *fence)).collect();
        self.step(|key, setting| done(key, &pairs, &ROOM, setting)).1
    }

    /// Ticks while a timer is due.
    fn slices(&mut self, what: &str) {
        let mut took = Vec::new();
        while took.is_empty() || self.timer.is_some_and(|at| at <= self.now) {
            took.push(self.step(Ledgers::tick).1);
            assert!(took.len() < 2_000_000, "{what} never ends");
        }
        self.held_to(what, took);
    }

    fn diagnose(&mut self, groups: &[Vec<u8>], category: Category) -> u32 {
        let groups = groups.iter().map(|group| &group[..]).collect();
        let (cause, fix, decision, auto) = (&b"cause"[..], &b"fix"[..], &b""[..], None);
        let diagnosis = Diagnosis { groups, category, cause, fix, decision, auto };
        let (verdict, took) = self.step(|key, setting| diagnose(key, &diagnosis, &Governor::default(), setting));
        self.held_to("DIAGNOSE", vec![took]);
        let Diagnosed::Case(number) = verdict else { panic!("{verdict:?}") };
        number
    }

    fn end(self) {
        assert!(self.misses.is_empty(), "over {LIMIT:?}: {:#?}", self.misses);
    }
}

fn id(at: usize) -> String {
    // Ids of sources come in no order.
    format!("orders/{:016x}", (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[test]
#[ignore = "a million entries, in release mode"]
fn a_million_retries_cost_little() {
    let mut costs = Costs::new();
    let body = vec![b'x'; 500];
    let before = ALLOCATED.load(Relaxed);
    let mut took = Vec::with_capacity(ENTRIES);
    let noted = took.capacity() * size_of::<Duration>();
    for at in 0..ENTRIES {
        costs.now += 10;
        took.push(costs.fail(&id(at), &body, dead_letters::Counting::Counted, None));
    }
    let heap = ALLOCATED.load(Relaxed) - before - class(noted);
    let beyond = heap / ENTRIES - (id(0).len() + body.len() + b"order.placed".len());
    println!(
        "{beyond} bytes per entry beyond id, payload, headers, texts; the ledger says {} in all",
        costs.ledger.bytes() / ENTRIES
    );
    costs.held_to("FAIL, new", took);
    costs.now += 60_000_000;
    let again = (0..1_000).map(|at| costs.fail(&id(at * 997), &body, dead_letters::Counting::Counted, None)).collect();
    costs.held_to("FAIL, known", again);
    let filter = ListFilter { kind: Some(b"nothing"), ..ListFilter::default() };
    let listed = (0..200).map(|page| {
        let begin = CpuTime::now();
        costs.ledger.list(&filter, page * 5_000, 1_000, |_| {});
        begin.elapsed()
    });
    let listed = listed.collect();
    costs.held_to("LIST, nothing matches", listed);
    let (mut taking, mut ending) = (Vec::new(), Vec::new());
    for turn in 0..100 {
        let (taken, took) = costs.take(&format!("token {turn}"), 1_000);
        assert_eq!(taken.len(), 1_000);
        taking.push(took);
        ending.push(costs.done(&taken));
    }
    costs.held_to("TAKE COUNT 1000", taking);
    costs.held_to("DONE 1000 pairs", ending);
    for turn in 0..300 {
        costs.take(&format!("lapses {turn}"), 1_000);
    }
    costs.now += 31_000_000;
    costs.slices("300 leases of 1,000 entries end");
    for call in 0..300 {
        costs.calls += 1;
        let request = TakeRequest { lease: Span::from_secs(30), count: 1_000, meta: Box::default(), bind_to: None };
        let waiting = Some(Waiting { id: costs.calls, wait: Span::from_secs(600), most: 1_000 });
        let token = format!("waits {call}");
        let pause = ConfigChange { paused: Some(Pause::On), ..ConfigChange::default() };
        costs.step(|key, setting| configure(key, &pause, &Governor::default(), setting));
        costs.step(|key, setting| take(key, token.as_bytes(), request, waiting, setting));
    }
    let pause = ConfigChange { paused: Some(Pause::Off), ..ConfigChange::default() };
    let (_, took) = costs.step(|key, setting| configure(key, &pause, &Governor::default(), setting));
    costs.held_to("CONFIG PAUSED no, 300 wait for 1,000 each", vec![took]);
    costs.slices("300 that waited get up to 1,000 entries each");
    costs.now -= 3_600_000_000;
    costs.slices("a clock is set back");
    assert!(beyond <= BYTES_BEYOND_MAX, "{beyond} bytes per entry");
    costs.end();
}

#[test]
#[ignore = "a hundred thousand leases, in release mode"]
fn a_hundred_thousand_leases_cost_little_at_a_promotion() {
    let mut costs = Costs::new();
    for at in 0..100_000 {
        costs.fail(&id(at), b"x", dead_letters::Counting::Counted, None);
    }
    costs.now += 60_000_000;
    for at in 0..100_000 {
        assert_eq!(costs.take(&format!("token {at}"), 1).0.len(), 1);
    }
    costs.now += 29_000_000;
    costs.promoted = Some(costs.now);
    costs.slices("leases are mended at a promotion");
    assert_eq!(costs.ledger.leases().filter(|lease| lease.ends.as_us() == costs.now + 30_000_000).count(), 100_000);
    costs.now += 31_000_000;
    costs.slices("100,000 leases end");
    costs.end();
}

#[test]
#[ignore = "a million entries, in release mode"]
fn a_million_dead_letters_cost_little() {
    let mut costs = Costs::new();
    let body = vec![b'x'; 500];
    let before = ALLOCATED.load(Relaxed);
    let mut took = Vec::with_capacity(ENTRIES);
    let noted = took.capacity() * size_of::<Duration>();
    let groups: Vec<Vec<u8>> = (0..100).map(|group| format!("group {group}").into_bytes()).collect();
    for at in 0..ENTRIES {
        costs.now += 10;
        took.push(costs.fail(&id(at), &body, dead_letters::Counting::Final, Some(&groups[at % 100])));
    }
    let heap = ALLOCATED.load(Relaxed) - before - class(noted);
    let beyond = heap / ENTRIES - (id(0).len() + body.len() + b"order.placed".len());
    println!("{beyond} bytes per dead entry beyond id, payload, headers, texts");
    costs.held_to("FAIL FINAL, new", took);
    costs.now += 1_000_000;
    let case = costs.diagnose(&groups, Category::Contract);
    let governor = Governor::default();
    for (what, kind) in [("all", None), ("none", Some(b"nothing"[..].into()))] {
        let filter = RedriveFilter { kind, ..RedriveFilter::default() };
        let request =
            RedriveRequest { case, filter, count: None, rate: None, first: 10, oneshot: false, dry_run: true };
        let took = (0..100).map(|_| costs.step(|key, setting| redrive(key, &request, &governor, setting)).1).collect();
        costs.held_to(&format!("REDRIVE DRYRUN of 100 groups, {what} match"), took);
    }
    let took =
        (0..100).map(|_| costs.step(|key, setting| close(key, case, Discard::No, &governor, setting)).1).collect();
    costs.held_to("CLOSE, a million unresolved", took);
    let filter = RedriveFilter { kind: Some(b"nothing"[..].into()), ..RedriveFilter::default() };
    let request = RedriveRequest { case, filter, count: None, rate: None, first: 10, oneshot: false, dry_run: false };
    let (verdict, took) = costs.step(|key, setting| redrive(key, &request, &governor, setting));
    assert!(matches!(verdict, Redriven::Started(_)), "{verdict:?}");
    costs.held_to("REDRIVE", vec![took]);
    costs.slices("a search over a million");
    let request = RedriveRequest { filter: RedriveFilter::default(), first: 1_000_000, ..request };
    costs.step(|key, setting| redrive(key, &request, &governor, setting));
    let (mut taking, mut ending) = (Vec::new(), Vec::new());
    for turn in 0..1_000 {
        costs.now += 600_000;
        let (taken, took) = costs.take(&format!("token {turn}"), 1_000);
        assert_eq!(taken.len(), 1);
        taking.push(took);
        ending.push(costs.done(&taken));
    }
    costs.held_to("TAKE, redriven, 100 groups", taking);
    costs.held_to("DONE, resolved", ending);
    costs.step(|key, setting| stop(key, case, &governor, setting));
    let poison = costs.diagnose(&groups[..50], Category::Poison);
    let (_, took) = costs.step(|key, setting| close(key, poison, Discard::UnderWay, &governor, setting));
    costs.held_to("CLOSE DISCARD", vec![took]);
    costs.slices("half a million are archived");
    costs.now += 91 * 86_400_000_000;
    let request = PurgeRequest { older: Span::from_days(90), place: None, limit: 1_000 };
    costs.slices("resolved ones expire");
    let took = (0..300).map(|_| costs.step(|key, setting| purge(key, &request, false, &governor, setting)).1).collect();
    costs.held_to("PURGE LIMIT 1000", took);
    for at in 0..ENTRIES {
        costs.ledger.apply(LedgerEdit::Held { arrival: at as u64 + 1, held: true });
    }
    let took = (0..150).map(|_| costs.step(|key, setting| purge(key, &request, false, &governor, setting)).1).collect();
    costs.held_to("PURGE of what is held", took);
    costs.end();
}
