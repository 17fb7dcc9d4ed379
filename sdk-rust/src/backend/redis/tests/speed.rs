//! How a call compares with what redis-rs does by itself. Run it by hand, in release:
//! `cargo test --release -p resil --lib backend::redis::tests::speed -- --ignored --nocapture`

use std::sync::Arc;

use redis::IntoConnectionInfo;
use redis::io::tcp::TcpSettings;

use super::*;

const TASKS: usize = 64;
const SPAN: Duration = Duration::from_secs(2);

async fn per_second<F: Future<Output = ()> + Send + 'static>(once: impl Fn(usize) -> F + Send + Sync + 'static) -> f64 {
    let once = Arc::new(once);
    let begun = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let once = once.clone();
            tokio::spawn(async move {
                let mut done = 0u64;
                while begun.elapsed() < SPAN {
                    once(number).await;
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    done as f64 / begun.elapsed().as_secs_f64()
}

/// redis-rs by itself, with the words of a command for each task.
async fn by_itself(server: &Server, settings: TcpSettings, words: impl Fn(usize) -> Vec<String>) -> f64 {
    let info = server.url().into_connection_info().unwrap().set_tcp_settings(settings);
    let connection = redis::Client::open(info).unwrap().get_multiplexed_async_connection().await.unwrap();
    let words: Arc<Vec<Vec<String>>> = Arc::new((0..TASKS).map(words).collect());
    per_second(move |number| {
        let (mut connection, words) = (connection.clone(), words.clone());
        async move {
            let mut command = redis::Cmd::new();
            words[number].iter().for_each(|word| {
                command.arg(word);
            });
            let _: redis::Value = command.query_async(&mut connection).await.unwrap();
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn calls_per_second_beside_get() {
    let server = Server::fresh();
    let redis = Arc::new(connected(&server).await);
    let get = |number: usize| vec!["GET".to_owned(), format!("k{number}")];
    let gcra = |number: usize| ["RES.GCRA", &format!("g{number}"), "1000000", "1s"].map(str::to_owned).to_vec();
    for round in 0..3 {
        let usual = by_itself(&server, TcpSettings::default(), get).await;
        let at_once = by_itself(&server, TcpSettings::default().set_nodelay(true), get).await;
        let same_command = by_itself(&server, TcpSettings::default().set_nodelay(true), gcra).await;
        let redis = redis.clone();
        let of_call = per_second(move |number| {
            let redis = redis.clone();
            async move { drop(redis.call(&take(format!("g{number}").as_bytes())).await.unwrap()) }
        })
        .await;
        println!(
            "round {round}: GET {usual:.0}/s, with nodelay {at_once:.0}/s, RES.GCRA by redis-rs {same_command:.0}/s, \
             by a call {of_call:.0}/s: {:.2}x of GET, {:.2}x of GET with nodelay, {:.2}x of the same command",
            of_call / usual,
            of_call / at_once,
            of_call / same_command
        );
    }
}
