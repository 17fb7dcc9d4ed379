//! Random documents, made from the rows of the schema: every field, both spellings, all bounds.

use resil_core::policy::fields::{FieldKind, FieldRow, Presence, Shape};
use resil_core::policy::{Document, read_value, walk};
use serde_json::{Map, Value, json};

/// SplitMix64: the seed is the test's input, so a failure names it.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `most`, with the ends more often than chance.
    pub fn up_to(&mut self, most: u64) -> u64 {
        match self.next() % 8 {
            0 => 0,
            1 => most,
            _ => self.next() % most.saturating_add(1).max(1),
        }
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    fn text(&mut self, least: usize) -> String {
        let letters = ["a", "b", "payments", "ß", "-", "\"", "1", "_X", " "];
        let count = least + (self.next() % 3) as usize;
        (0..count).map(|_| letters[(self.next() % letters.len() as u64) as usize]).collect()
    }
}

/// A value that the kind allows.
pub fn value(random: &mut Random, kind: FieldKind) -> Value {
    match kind {
        FieldKind::Flag => json!(random.one_in(2)),
        FieldKind::Whole { least, most } => {
            let number = least + random.up_to(most - least);
            // Some languages have no other numbers than floats.
            if number < 1 << 50 && random.one_in(5) { json!(number as f64) } else { json!(number) }
        }
        FieldKind::Number { least, most } => {
            let part = random.up_to(1_000_000) as f64 / 1_000_000.0;
            json!((least + (most - least) * part).clamp(least, most))
        }
        FieldKind::Duration { least, most } => {
            let us = least.as_us() as u64 + random.up_to((most.as_us() - least.as_us()) as u64);
            let unit = [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000)];
            let fits = unit
                .iter()
                .rev()
                .find(|(_, length)| us.is_multiple_of(*length) && random.one_in(2))
                .unwrap_or(&unit[0]);
            json!(format!("{}{}", us / fits.1, fits.0))
        }
        FieldKind::Moment => json!(format!(
            "20{:02}-0{}-1{}T23:59:0{}Z",
            random.up_to(99),
            1 + random.up_to(8),
            random.up_to(9),
            random.up_to(9)
        )),
        FieldKind::Text { .. } => json!(random.text(1)),
        FieldKind::Name => json!(format!("limiter-{}", random.up_to(9))),
        FieldKind::OneOf(words) => json!(words[(random.next() % words.len() as u64) as usize]),
        FieldKind::Jitter => match random.next() % 6 {
            0 => json!({ "plusMinus": random.up_to(100) }),
            1 => json!(format!("{}%", random.up_to(100))),
            n => json!(["none", "full", "equal", "decorrelated"][n as usize - 2]),
        },
        // Any part of the usual order is an order, if it names the stages that are there.
        FieldKind::Words(words) => json!(words),
        FieldKind::Texts { .. } => (0..random.up_to(3)).map(|_| Value::String(random.text(1))).collect(),
        FieldKind::Object(shape) => object(random, shape),
        FieldKind::List { of, most } => (0..random.up_to(most as u64)).map(|_| object(random, of)).collect(),
        FieldKind::Named(shape) => {
            let names = (0..random.up_to(3)).map(|index| format!("{}{index}", random.text(0)));
            let names: Vec<String> = names.collect();
            Value::Object(names.into_iter().map(|name| (name, object(random, shape))).collect())
        }
    }
}

pub fn object(random: &mut Random, shape: &Shape) -> Value {
    let mut entries = Map::new();
    for field in shape.fields {
        let is_there = matches!(field.presence, Presence::Required) || random.one_in(2);
        if is_there {
            entries.insert(spelled(random, field), value(random, field.kind));
        }
    }
    Value::Object(entries)
}

fn spelled(random: &mut Random, field: &FieldRow) -> String {
    if random.one_in(2) { walk::snake(field.name) } else { field.name.to_owned() }
}

/// A document that is valid. Parts whose fields contradict each other are left out.
pub fn valid(random: &mut Random, shape: &Shape) -> (Value, Document) {
    let mut tree = object(random, shape);
    loop {
        let wrong = match read_value(tree.clone()) {
            Ok(document) => return (tree, document),
            Err(wrong) => wrong,
        };
        let part = wrong.path.split(['.', '[']).next().expect("a path has a first part").to_owned();
        let entries = tree.as_object_mut().expect("an object");
        let before = entries.len();
        entries.retain(|key, _| walk::camel(key) != part);
        assert!(entries.len() < before, "{wrong} names what is not there");
    }
}
