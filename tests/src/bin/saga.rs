//! A saga whose steps are each done once. `cargo run -p resil-tests --bin saga` (after `make module`).
//!
//! Each step has an idempotency key of its own: the saga's id and the step's name. A caller that resumes a saga goes through
//! all its steps again; those that are committed are replayed, and the first that is not is run. A step that died
//! between its effect and its COMMIT is run again, as attempt 2: there the effect's own store must know the key.

use std::collections::BTreeMap;

use redis::{Connection, Value};
use resil_harness::{Server, ok};

const STEPS: [&str; 3] = ["reserve", "charge", "ship"];

/// What the steps do outside of Redis. It takes a key once, and refuses a fence below the highest it has seen of it.
#[derive(Default)]
struct World {
    effects: BTreeMap<String, (i64, u32)>,
}

impl World {
    fn act(&mut self, key: &str, fence: i64) -> &'static str {
        let (highest, times) = self.effects.entry(key.to_owned()).or_default();
        if fence < *highest {
            return "refused, a later attempt was here";
        }
        *highest = fence;
        if *times > 0 {
            return "refused, it is done already";
        }
        *times += 1;
        "done"
    }

    fn count(&self, saga: &str) -> String {
        let times = |step: &&str| self.effects.get(&format!("saga:{saga}:{step}")).map_or(0, |(_, times)| *times);
        STEPS.iter().map(|step| format!("{step} {}", times(step))).collect::<Vec<_>>().join(", ")
    }
}

/// Where a worker dies.
#[derive(PartialEq)]
enum Dies {
    Never,
    After(&'static str),
    /// After the effect, before the COMMIT.
    Inside(&'static str),
}

fn words(value: Value) -> Vec<Value> {
    let Value::Array(words) = value else { panic!("a list, not {value:?}") };
    words
}

/// One worker: goes through the saga until its end, or its own. Its connection is all the server knows of it.
fn work(mut connection: Connection, worker: &str, saga: &str, world: &mut World, dies: &Dies) {
    for step in STEPS {
        let key = format!("saga:{saga}:{step}");
        let reply = words(ok(&mut connection, &["RES.IDEMP", "BEGIN", &key, worker, "1m", "BOUND", "WAIT", "10s"]));
        let [_, Value::Int(fence), Value::Int(attempt), _] = reply[..] else {
            println!("  {worker:<6} {step:<8} is done already");
            continue;
        };
        let outcome = world.act(&key, fence);
        println!("  {worker:<6} {step:<8} attempt {attempt}: {outcome}");
        if *dies == Dies::Inside(step) {
            return println!("  {worker:<6} dies before it can say so");
        }
        ok(&mut connection, &["RES.IDEMP", "COMMIT", &key, worker, "1d", outcome]);
        if *dies == Dies::After(step) {
            return println!("  {worker:<6} dies");
        }
    }
}

fn main() {
    let server = Server::fresh();
    let mut world = World::default();
    for (saga, what, dies) in [
        ("17", "crashed between two steps", Dies::After("reserve")),
        ("18", "crashed inside a step", Dies::Inside("charge")),
        ("19", "two workers at once", Dies::Never),
    ] {
        println!("Saga {saga}:");
        work(server.connect(), "ann", saga, &mut world, &dies);
        work(server.connect(), "bob", saga, &mut world, &Dies::Never);
        println!("{what}: {}\n", world.count(saga));
    }
}
