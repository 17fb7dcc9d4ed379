//! A cache in front of a store that is slow, and sometimes down.
//!
//! - Of all who need a value that is not there, in all processes, one loads it; the others get what it loaded.
//! - A value that is out of date is served while one loads it anew: nobody waits for the store twice.
//! - After a change is committed it is invalidated, and no process returns the old value to a get that begins afterwards.
//! - That there is no such thing is remembered, too. So is, for a moment, that the store is down.
//!
//! `cargo run -p resil-examples --bin slow_store [url]`

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use resil::cache::CacheSettings;
use resil::cache::{Cached, Loaded};
use resil::{Client, Code, Failure};
use resil_examples::{Problem, connect, url};
use serde::{Deserialize, Serialize};

const SLOW: Duration = Duration::from_millis(300);

// ---- the store: a database that takes its time ---------------------------------------------------------------------------------

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    pub name: String,
    pub cents: i64,
}

#[derive(Debug)]
pub struct StoreError;

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too many connections")
    }
}

impl std::error::Error for StoreError {}

#[derive(Debug, Default)]
struct Store {
    rows: Mutex<HashMap<String, Product>>,
    is_down: Mutex<bool>,
    loads: AtomicU64,
}

impl Store {
    async fn load(&self, id: &str) -> Result<Option<Product>, StoreError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(SLOW).await;
        if *self.is_down.lock().expect("nobody panics in here") {
            return Err(StoreError);
        }
        Ok(self.rows.lock().expect("nobody panics in here").get(id).cloned())
    }

    fn commit(&self, id: &str, product: Product) {
        self.rows.lock().expect("nobody panics in here").insert(id.to_owned(), product);
    }

    fn goes_down(&self) {
        *self.is_down.lock().expect("nobody panics in here") = true;
    }

    /// How many loads there were since this was last asked.
    fn loads(&self) -> u64 {
        self.loads.swap(0, Ordering::SeqCst)
    }
}

// ---- the service ---------------------------------------------------------------------------------------------------------------

#[derive(Clone)]
struct Catalogue {
    cached: Cached,
    store: Arc<Store>,
}

impl Catalogue {
    fn new(client: &Client, store: &Arc<Store>) -> Result<Self, resil::Error> {
        let cached = client.cached(
            "product",
            CacheSettings::new()
                .ttl(Duration::from_secs(60))
                .stale(Duration::from_secs(600))
                .negative_ttl(Duration::from_secs(30))
                .error_ttl(Duration::from_secs(30))
                .load_timeout(Duration::from_secs(10)),
        )?;
        Ok(Self { cached, store: Arc::clone(store) })
    }

    async fn product(&self, id: &str) -> Result<Loaded<Product>, Failure<Arc<StoreError>>> {
        let store = Arc::clone(&self.store);
        self.cached.get_json(id, async move |id| store.load(&id).await).await
    }

    /// The order matters: what is invalidated before the commit may be loaded again before it, and stays old.
    async fn change(&self, id: &str, product: Product) -> Result<(), resil::Error> {
        self.store.commit(id, product);
        self.cached.invalidate(id).await.map(|_| ())
    }
}

/// What `many` callers of each process got for `id`, all at once.
async fn crowd(
    processes: &[Catalogue],
    many: usize,
    id: &str,
) -> Vec<Result<Loaded<Product>, Failure<Arc<StoreError>>>> {
    let mut callers = tokio::task::JoinSet::new();
    for process in processes {
        for _ in 0..many {
            let (process, id) = (process.clone(), id.to_owned());
            callers.spawn(async move { process.product(&id).await });
        }
    }
    callers.join_all().await
}

// ---- the story -----------------------------------------------------------------------------------------------------------------

/// What was seen, for the tests to judge.
#[derive(Debug)]
pub struct Seen {
    pub first: Vec<Option<Product>>,
    pub loads_first: u64,
    pub stale: usize,
    pub stale_took: Duration,
    pub loads_stale: u64,
    pub after_commit: Vec<Option<Product>>,
    pub unknown: usize,
    pub loads_unknown: u64,
    pub served_while_down: Option<Product>,
    pub failed: usize,
    pub loads_while_down: u64,
}

pub async fn story(url: &str) -> Result<Seen, Problem> {
    let store = Arc::new(Store::default());
    let mut processes = Vec::new();
    for process in ["web-1", "web-2"] {
        processes.push(Catalogue::new(&connect(url, "slow_store", process).await?, &store)?);
    }
    // A server remembers earlier runs of this program; the products of this one are others.
    let run = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_micros();
    let (tea, no_such_thing, coffee) = (format!("tea-{run}"), format!("none-{run}"), format!("coffee-{run}"));
    let price = |cents| Product { name: "tea".to_owned(), cents };
    let values = |got: Vec<Result<Loaded<Product>, _>>| -> Result<Vec<_>, Problem> {
        got.into_iter().map(|got| got.map(Loaded::into_value).map_err(|failure| format!("{failure}").into())).collect()
    };

    println!("A thousand callers in two processes want a product that nobody has loaded:");
    store.commit(&tea, price(420));
    let first = values(crowd(&processes, 500, &tea).await)?;
    let loads_first = store.loads();
    println!("  {} results, {loads_first} load", first.len());

    println!("It is out of date, but better than nothing:");
    processes[0].cached.invalidate_soft(&tea).await?;
    let begun = Instant::now();
    let got = crowd(&processes, 50, &tea).await;
    let (stale_took, stale) = (begun.elapsed(), got.iter().flatten().filter(|loaded| loaded.is_stale()).count());
    println!("  {stale} of {} were served the old one, within {} ms", got.len(), stale_took.as_millis());
    // One of them was asked to load it anew, behind its back.
    while processes[1].product(&tea).await?.is_stale() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let loads_stale = store.loads();
    println!("  meanwhile: {loads_stale} load");

    println!("The price changes; web-1 commits, and invalidates:");
    processes[0].change(&tea, price(450)).await?;
    let after_commit = values(crowd(&processes, 50, &tea).await)?;
    println!("  {} replies, all new: {}", after_commit.len(), after_commit.iter().all(|got| *got == Some(price(450))));
    store.loads();

    println!("A hundred ask for something that is not there, twice:");
    let nobody = [crowd(&processes, 50, &no_such_thing).await, crowd(&processes, 50, &no_such_thing).await].concat();
    let unknown = nobody.iter().filter(|got| matches!(got, Ok(Loaded::NotFound))).count();
    let loads_unknown = store.loads();
    println!("  {unknown} times \"not found\", {loads_unknown} load");

    println!("The store is down:");
    store.goes_down();
    processes[0].cached.invalidate_soft(&tea).await?;
    let served_while_down = processes[1].product(&tea).await?.into_value();
    println!("  what is known is still served: {served_while_down:?}");
    let refused = crowd(&processes, 100, &coffee).await;
    let failed = refused.iter().filter(|got| is_the_stores_error(got)).count();
    // The refresh of what is known failed, too, once.
    tokio::time::sleep(SLOW).await;
    let loads_while_down = store.loads();
    println!("  {failed} callers of another product get the store's error; it was asked {loads_while_down} times");
    Ok(Seen {
        first,
        loads_first,
        stale,
        stale_took,
        loads_stale,
        after_commit,
        unknown,
        loads_unknown,
        served_while_down,
        failed,
        loads_while_down,
    })
}

/// In the process that loaded it is the error itself, in the others its words.
fn is_the_stores_error(got: &Result<Loaded<Product>, Failure<Arc<StoreError>>>) -> bool {
    match got {
        Err(Failure::Inner(_)) => true,
        Err(other) => other.code() == Some(Code::LoadFailed) && other.to_string().contains("too many connections"),
        Ok(_) => false,
    }
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    story(&url()).await.map(|_| ())
}
