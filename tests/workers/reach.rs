//! How sources are reached: streams on a cluster, and Postgres over TLS.

use std::time::Duration;

use resil::worker::postgres::{Outbox, OutboxSettings, OutboxSource, connect};
use resil::worker::streams::{StreamPublisher, StreamSettings, StreamSource};
use resil::worker::{OutgoingMessage, WorkError, WorkerSettings};
use resil_harness::{Cluster, Options, Postgres, reply};

use crate::scene::{LedgerServer, RunningWorker, Seen, eventually};

const BOUND: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clusters_streams_are_read_on_their_nodes() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(3, Options::default())).await.unwrap();
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let client = resil::connect(&format!("redis+cluster://{}", nodes.join(","))).await.unwrap();
    let streams = ["orders", "payments", "parcels", "refunds"];
    let homes: std::collections::HashSet<u16> =
        streams.iter().map(|stream| cluster.node_for_key(stream).port()).collect();
    assert!(homes.len() > 1, "they are of several nodes");
    for stream in streams {
        let publisher = StreamPublisher::new(&client, stream, None).unwrap();
        for number in 0..20 {
            publisher.publish(&OutgoingMessage::new(format!("{number}")).id(format!("{number}"))).await.unwrap();
        }
        let worker = client.worker(stream, WorkerSettings::new()).unwrap();
        let source = StreamSource::new(&client, StreamSettings::new(stream).delete(true)).unwrap();
        let (seen, run) = (Seen::default(), worker.clone());
        let saw = seen.clone();
        let running = RunningWorker::new(&worker, async move {
            run.run(source, move |message| {
                saw.add(String::from_utf8_lossy(message.payload()));
                // One fails at first: its retry waits in a ledger of the cluster.
                let is_unlucky = message.id().ends_with("/7") && message.attempt() == 0;
                async move { if is_unlucky { Err(WorkError::retry("not yet")) } else { Ok(()) } }
            })
            .await
        });
        seen.reaches(21, BOUND).await;
        let report = running.stop().await;
        assert_eq!((report.done, report.retried, report.unsettled), (20, 1, 0), "{report:?}");
        let mut node = cluster.node_for_key(stream).connect();
        assert_eq!(reply(&mut node, &["XLEN", stream]).unwrap(), redis::Value::Int(0), "acknowledged where they are");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_is_read_over_tls_and_certificates_are_checked() {
    let (server, ledger) =
        tokio::task::spawn_blocking(|| (Postgres::start_with_tls(), LedgerServer::start())).await.unwrap();
    let (port, root) = (server.port(), server.root_certificate().to_string_lossy().into_owned());
    let url = |host: &str, how: &str| format!("postgres://postgres@{host}:{port}/postgres?connect_timeout=3{how}");
    // The server takes nobody without TLS; by default, TLS is used where there is some.
    assert!(connect(&url("127.0.0.1", "&sslmode=disable")).await.is_err());
    for how in ["", "&sslmode=prefer", "&sslmode=require"] {
        connect(&url("127.0.0.1", how)).await.unwrap_or_else(|error| panic!("{how:?}: {error:?}"));
    }
    // Nobody in the system's list signed it.
    for how in ["&sslmode=verify-full", "&sslmode=verify-ca"] {
        let refused = connect(&url("127.0.0.1", how)).await.expect_err(how);
        assert!(format!("{refused:?}").contains("UnknownIssuer"), "{refused:?}");
    }
    let checked = format!("&sslmode=verify-full&sslrootcert={}", root.replace('/', "%2F"));
    let verified = url("127.0.0.1", &checked);
    connect(&verified).await.unwrap().batch_execute(&Outbox::default().migration()).await.unwrap();
    connect(&url("localhost", &checked)).await.unwrap();
    let wrong = connect(&url("127.0.0.1", "&sslmode=verify-full&sslrootcert=%2Fno%2Fsuch.pem")).await;
    assert!(format!("{:?}", wrong.expect_err("no such file")).contains("sslrootcert cannot be read"));

    let client = ledger.client().await;
    let worker = client.worker("tls", WorkerSettings::new()).unwrap();
    let source = OutboxSource::new(&client, OutboxSettings::new(&verified)).unwrap();
    let (seen, run) = (Seen::default(), worker.clone());
    let saw = seen.clone();
    let running = RunningWorker::new(&worker, async move {
        run.run(source, move |message| {
            saw.add(message.id());
            async { Ok(()) }
        })
        .await
    });
    let database = connect(&verified).await.unwrap();
    let row = database.query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[]).await.unwrap();
    assert!(row.get::<_, bool>(0), "it is TLS");
    Outbox::default().add(&database, &OutgoingMessage::new("x").id("m1")).await.unwrap();
    seen.reaches(1, BOUND).await;
    eventually("it is acknowledged", BOUND, || async {
        database.query_one("SELECT count(*) FROM resil_outbox", &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    running.stop().await;
}
