//! The pure core and the wire, without a server: what a decision costs by itself.
//!
//! `cargo bench -p resil-benches --bench core` and a name to filter by.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use resil_core::codec;
use resil_core::rate_limit::{Ask, Packed, Quota, TierSet, step};
use resil_core::window::{self, Rule, Window};
use resil_core::{Instant, Span};
use resil_wire::argv::Argv;
use resil_wire::command::{Allowed, Arguments};
use resil_wire::gcra::Gcra;
use resil_wire::mgcra::Mgcra;
use resil_wire::pages;

const NOW: Instant = Instant::from_us(1_794_000_000_000_000);

fn quota(limit: u32, period_s: i64) -> Quota {
    Quota::new(limit, Span::from_secs(period_s), limit).expect("a valid quota")
}

fn tiers_of(quotas: &[Quota]) -> TierSet {
    let taken = step(&[], quotas, Ask::Take(1), NOW).expect("few tiers");
    taken.change.expect("a first cell is granted")
}

fn gcra(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gcra");
    let later = NOW.plus(Span::from_ms(10));
    let mut bench = |name: &str, tiers: &TierSet, quotas: &[Quota], ask: Ask| {
        group.bench_function(name, |bencher| {
            bencher.iter(|| step(black_box(tiers), black_box(quotas), black_box(ask), black_box(later)));
        });
    };
    let one = [quota(100, 60)];
    let three = [quota(100, 60), quota(1_000, 3_600), quota(10_000, 86_400)];
    let full = [quota(1, 3_600)];
    bench("one tier, no key yet", &TierSet::new(), &one, Ask::Take(1));
    bench("one tier, granted", &tiers_of(&one), &one, Ask::Take(1));
    bench("one tier, denied", &tiers_of(&full), &full, Ask::Take(1));
    bench("one tier, peek", &tiers_of(&one), &one, Ask::Peek);
    bench("three tiers, granted", &tiers_of(&three), &three, Ask::Take(1));
    group.finish();
}

/// A log of `len` entries, ten microseconds apart, the newest at `NOW`.
fn log_of(len: usize) -> Window {
    let first_us = NOW.as_us() - 10 * (len as i64 - 1);
    let entries = (0..len).map(|index| Some((first_us + 10 * index as i64, 1)));
    Window::from_entries(Span::from_secs(60).as_us(), entries).expect("a sound log")
}

fn windows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("window");
    let later = NOW.plus(Span::from_ms(10));
    for len in [10, 100_000] {
        let log = log_of(len);
        let roomy = Rule { limit: 200_000, period: Span::from_secs(60) };
        let full = Rule { limit: len as u32, ..roomy };
        group.bench_function(format!("step over {len} entries, granted"), |bencher| {
            bencher.iter(|| window::step(black_box(&log), black_box(roomy), Ask::Take(1), black_box(later)));
        });
        group.bench_function(format!("step over {len} entries, denied"), |bencher| {
            bencher.iter(|| window::step(black_box(&log), black_box(full), Ask::Take(1), black_box(later)));
        });
        // Each grant a little later, so that one entry leaves as one comes: the state of a busy key.
        let sliding = Rule { limit: 200_000, period: Span::from_us(10 * len as i64) };
        group.bench_function(format!("grant and apply, {len} entries"), |bencher| {
            let mut log = log.clone();
            let mut now = NOW;
            bencher.iter(|| {
                now = now.plus(Span::from_us(10));
                let granted = window::step(&log, sliding, Ask::Take(1), now).change.expect("there is room");
                log.apply(black_box(&granted));
            });
        });
    }
    group.finish();
}

fn bytes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec");
    let one = tiers_of(&[quota(100, 60)]);
    let three = tiers_of(&[quota(100, 60), quota(1_000, 3_600), quota(10_000, 86_400)]);
    for (name, tiers) in [("one tier", &one), ("three tiers", &three)] {
        let encoded = codec::to_vec(|out| codec::encode_tiers(tiers, out));
        group.bench_function(format!("encode {name}"), |bencher| {
            bencher.iter_batched_ref(
                || Vec::with_capacity(96),
                |out: &mut Vec<u8>| codec::encode_tiers(black_box(tiers), out),
                BatchSize::SmallInput,
            );
        });
        group.bench_function(format!("decode {name}"), |bencher| {
            bencher.iter(|| codec::decode_tiers(black_box(&encoded)));
        });
    }
    let log = log_of(1_000);
    let encoded = codec::to_vec(|out| codec::encode_log(&log, out));
    group.bench_function("encode a log of 1000", |bencher| {
        bencher.iter(|| codec::to_vec(|out| codec::encode_log(black_box(&log), out)));
    });
    group.bench_function("decode a log of 1000", |bencher| bencher.iter(|| codec::decode_log(black_box(&encoded))));
    group.finish();

    let mut group = criterion.benchmark_group("packed");
    let packed = Packed::pack(&one[0]).expect("a usual tier");
    group.bench_function("pack", |bencher| bencher.iter(|| Packed::pack(black_box(&one[0]))));
    group.bench_function("unpack", |bencher| bencher.iter(|| black_box(packed).unpack()));
    group.finish();
}

fn wire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    let words = |line: &'static str| -> Vec<&'static [u8]> { line.split(' ').map(str::as_bytes).collect() };
    let one = words("key:0000000001 100 60s");
    let three = words("key:0000000001 100 60s AND 1000 1h AND 10000 1d COST 2");
    let many = words("1 {k}a 100 60s 100 {k}b 1000 1h 1000 {k}c 10000 1d 10000");
    let wrong = words("key:0000000001 100 60x");
    let gcra = |args| Gcra::parse(Argv::new(args, &pages::GCRA), &Allowed::DEFAULT);
    let mgcra = |args| Mgcra::parse(Argv::new(args, &pages::MGCRA), &Allowed::DEFAULT);
    group.bench_function("RES.GCRA", |bencher| bencher.iter(|| gcra(black_box(&one)).map(drop)));
    group.bench_function("RES.GCRA, three tiers", |bencher| bencher.iter(|| gcra(black_box(&three)).map(drop)));
    group.bench_function("RES.GCRA, refused", |bencher| bencher.iter(|| gcra(black_box(&wrong)).map(drop)));
    group.bench_function("RES.MGCRA, three keys", |bencher| bencher.iter(|| mgcra(black_box(&many)).map(drop)));
    group.finish();
}

criterion_group!(core, gcra, windows, bytes, wire);
criterion_main!(core);
