//! Each way to lose the server, and that it comes back by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use resil_harness::Options;

use super::*;
use crate::error::Code;

/// Calls from `tasks` tasks until asked to stop: how many were answered, and that none failed otherwise than it should.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<Duration>>,
}

impl Load {
    fn on(redis: &Arc<Redis>, tasks: usize) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let task = |number: usize| {
            let (redis, stop, answered) = (redis.clone(), stop.clone(), answered.clone());
            async move {
                let (key, mut longest) = (format!("load:{number}"), Duration::ZERO);
                while !stop.load(Relaxed) {
                    let begun = Instant::now();
                    match redis.call(&take(key.as_bytes())).await {
                        Ok(_) => drop(answered.fetch_add(1, Relaxed)),
                        Err(Error::BackendUnavailable(_)) => tokio::time::sleep(Duration::from_millis(2)).await,
                        Err(error) => panic!("{error:?}"),
                    }
                    longest = longest.max(begun.elapsed());
                }
                longest
            }
        };
        let tasks = (0..tasks).map(|number| tokio::spawn(task(number))).collect();
        Self { stop, answered, tasks }
    }

    /// The longest call there was.
    async fn end(self) -> Duration {
        self.stop.store(true, Relaxed);
        let mut longest = Duration::ZERO;
        for task in self.tasks {
            longest = longest.max(task.await.expect("no task panics"));
        }
        longest
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_under_load_it_fails_fast_and_returns() {
    let mut server = Server::fresh();
    let redis = Arc::new(connected(&server).await);
    let load = Load::on(&redis, 16);
    let first = redis.bind();
    let waiting = tokio::spawn({
        let redis = redis.clone();
        async move {
            assert!(is_granted(&redis.wait(&lock("a", "me", BOUND)).await));
            redis.wait(&lock("a", "you", BOUND)).await
        }
    });
    until("one waits", || async { holders_and_waiters(&redis, "a").await == (1, 1) }).await;
    server.kill9();
    becomes(&redis, Reach::Away).await;
    let begun = Instant::now();
    assert_eq!(redis.call(&take(b"k")).await.unwrap_err().code(), Code::BackendUnavailable);
    assert_eq!(redis.wait(&lock("a", "them", BOUND)).await.unwrap_err().code(), Code::BackendUnavailable);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    assert_eq!(redis.bind(), Bind::None);
    let port = server.port();
    server.start_again();
    if server.port() != port {
        return eprintln!("skipped: somebody took the port");
    }
    becomes(&redis, Reach::Here).await;
    let before = load.answered.load(Relaxed);
    until("calls are answered again", || async { load.answered.load(Relaxed) > before + 100 }).await;
    let longest = load.end().await;
    assert!(longest < Duration::from_secs(3), "a call took {longest:?}");
    assert!(matches!((first, redis.bind()), (Bind::To { .. }, Bind::To { .. })));
    // The data is gone with the crash: the waiter asked again, and has it.
    assert!(is_granted(&waiting.await.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_traffic_a_loss_is_noticed_and_mended() {
    for protocol in ["resp3", "resp2"] {
        let mut server = Server::fresh();
        let redis = connect(&format!("{}?protocol={protocol}", server.url())).await.unwrap();
        server.kill9();
        becomes(&redis, Reach::Away).await;
        let port = server.port();
        server.start_again();
        if server.port() == port {
            becomes(&redis, Reach::Here).await;
            works(&redis, "k").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_shared_connection_gets_a_successors_number() {
    let server = Server::fresh();
    let redis = connected(&server).await;
    let (old, mut reach) = (shared_id(&redis), redis.reach());
    kill_clients(&server, std::slice::from_ref(&old));
    assert!(tokio::time::timeout(BOUND, reach.wait_for(|reach| *reach == Reach::Away)).await.is_ok());
    becomes(&redis, Reach::Here).await;
    assert_ne!(shared_id(&redis), old);
    works(&redis, "k").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_server_is_away_and_keeps_bindings() {
    let server = Server::fresh();
    let options = ConnectSettings::new(server.url()).command_timeout(Duration::from_millis(300));
    let redis = Arc::new(Redis::connect(&options).await.unwrap());
    let bound = Command::LockAcquire(AcquireCall { bind: redis.bind(), ..acquire("a", "me", Duration::ZERO) });
    assert!(is_granted(&redis.call(&bound).await));
    let before = redis.bind();
    let sleeping = std::thread::spawn({
        let mut connection = server.connect();
        move || ok(&mut connection, &["DEBUG", "SLEEP", "2"])
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    let error = redis.call(&take(b"k")).await.unwrap_err();
    assert_eq!(error, Error::BackendUnavailable("the server did not reply in time"));
    assert!(
        (Duration::from_millis(290)..Duration::from_millis(1200)).contains(&begun.elapsed()),
        "{:?}",
        begun.elapsed()
    );
    becomes(&redis, Reach::Away).await;
    let begun = Instant::now();
    assert_eq!(redis.call(&take(b"k")).await.unwrap_err().code(), Code::BackendUnavailable);
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    sleeping.join().unwrap();
    becomes(&redis, Reach::Here).await;
    assert_eq!(redis.bind(), before, "the connection is the same");
    assert_eq!(holders_and_waiters(&redis, "a").await, (1, 0), "and what hung on it is held");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_is_away_until_it_goes_on() {
    let server = Server::fresh();
    let redis = connected(&server).await;
    server.pause();
    becomes(&redis, Reach::Away).await;
    server.resume();
    becomes(&redis, Reach::Here).await;
    works(&redis, "k").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_server_is_away_until_it_is_promoted() {
    let server = Server::fresh();
    let other = Server::fresh();
    let redis = connected(&server).await;
    let port = other.port().to_string();
    ok(&mut server.connect(), &["REPLICAOF", "127.0.0.1", &port]);
    let error = redis.call(&take(b"k")).await.unwrap_err();
    assert_eq!(error.code(), Code::BackendUnavailable, "{error:?}");
    becomes(&redis, Reach::Away).await;
    until("it learns why", || async {
        redis.call(&take(b"k")).await == Err(Error::BackendUnavailable("the server is a replica"))
    })
    .await;
    ok(&mut server.connect(), &["REPLICAOF", "NO", "ONE"]);
    becomes(&redis, Reach::Here).await;
    works(&redis, "k").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_out_of_memory_is_not_away() {
    let server = Server::start(Options::default().config("maxmemory", "1"));
    let redis = connected(&server).await;
    let error = redis.call(&take(b"k")).await.unwrap_err();
    assert_eq!(error, Error::BackendUnavailable("the server is out of memory"));
    assert_eq!(*redis.reach().borrow(), Reach::Here);
}

/// Between client and server; what came in before `freeze` is kept open and silent from then on.
struct Wire {
    port: u16,
    frozen: tokio::sync::watch::Sender<u64>,
}

impl Wire {
    async fn to(server: &Server) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, target) = (listener.local_addr().unwrap().port(), server.port());
        let frozen = tokio::sync::watch::Sender::new(0);
        let watched = frozen.subscribe();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut watched = watched.clone();
                let age = *watched.borrow_and_update();
                tokio::spawn(async move {
                    let mut server = tokio::net::TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                    let is_frozen = async { watched.wait_for(|now| *now > age).await.is_ok() };
                    let froze = tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => false,
                        froze = is_frozen => froze,
                    };
                    if froze {
                        std::future::pending::<()>().await;
                    }
                });
            }
        });
        Self { port, frozen }
    }

    fn freeze(&self) {
        self.frozen.send_modify(|age| *age += 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_connection_is_given_up_and_waits_move() {
    let server = Server::fresh();
    let wire = Wire::to(&server).await;
    let redis = Arc::new(connect(&format!("redis://127.0.0.1:{}", wire.port)).await.unwrap());
    assert!(is_granted(&redis.call(&lock("a", "me", Duration::ZERO)).await));
    let waiting = tokio::spawn({
        let redis = redis.clone();
        async move { redis.wait(&lock("a", "you", BOUND)).await }
    });
    until("one waits", || async { holders_and_waiters(&redis, "a").await == (1, 1) }).await;
    let (old, before) = (redis.bind(), clients(&server, 'b'));
    wire.freeze();
    becomes(&redis, Reach::Away).await;
    becomes(&redis, Reach::Here).await;
    assert_ne!(redis.bind(), old);
    until("the wait moved over", || async {
        let now = clients(&server, 'b');
        now.len() == 1 && now != before
    })
    .await;
    assert_eq!(holders_and_waiters(&redis, "a").await, (1, 1));
    release(&redis, "a", "me").await;
    assert!(is_granted(&waiting.await.unwrap()));
}

/// Lost before: a lock over several servers was released at the first ones only, if those replied at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_begun_is_sent_although_nobody_polls_it() {
    let server = Server::fresh();
    let redis = connected(&server).await;
    for number in 0..100 {
        let key = format!("key{number}");
        assert!(is_granted(&redis.call(&lock(&key, "me", Duration::ZERO)).await));
        let call = OwnedCall { key: key.as_bytes(), owner: b"me", fence: None };
        drop(redis.begin_to_the_end(Command::LockRelease(call)));
        until("it is released", || async { holders_and_waiters(&redis, &key).await == (0, 0) }).await;
    }
}
