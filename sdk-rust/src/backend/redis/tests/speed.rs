//! How a call compares with a GET of redis-rs on the same connection. Run it by hand, in release:
//! `cargo test --release -p resil --lib backend::redis::tests::speed -- --ignored --nocapture`

use std::sync::Arc;

use super::*;

const TASKS: usize = 64;
const SPAN: Duration = Duration::from_secs(3);

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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn calls_per_second_beside_get() {
    let server = Server::fresh();
    let redis = Arc::new(connected(&server).await);
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    for round in 0..3 {
        let of_get = per_second({
            let connection = connection.clone();
            move |number| {
                let mut connection = connection.clone();
                async move {
                    let _: Option<String> =
                        redis::cmd("GET").arg(format!("k{number}")).query_async(&mut connection).await.unwrap();
                }
            }
        })
        .await;
        let of_call = per_second({
            let redis = redis.clone();
            move |number| {
                let redis = redis.clone();
                async move {
                    redis.call(&take(format!("g{number}").as_bytes())).await.unwrap();
                }
            }
        })
        .await;
        let of_read = per_second({
            let redis = redis.clone();
            move |number| {
                let redis = redis.clone();
                async move {
                    redis.call(&Command::FlightGet(format!("f{number}").as_bytes())).await.unwrap();
                }
            }
        })
        .await;
        println!(
            "round {round}: GET {of_get:.0}/s, RES.GCRA {of_call:.0}/s ({:.2}x), RES.SFLIGHT GET {of_read:.0}/s ({:.2}x)",
            of_call / of_get,
            of_read / of_get
        );
    }
}
