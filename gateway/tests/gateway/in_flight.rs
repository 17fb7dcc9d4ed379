//! What is in flight: runs and loads of all callers, whatever they are called, however many there are, and while the server is away.

use std::time::{Duration, Instant};

use http::StatusCode;
use resil_harness::Server;
use serde_json::{Value, json};

use crate::scene::{Scene, within};

/// Longer than any list may take on a machine that has much else to do.
const BOUND: Duration = Duration::from_secs(10);

fn begin(pipeline: &mut redis::Pipeline, key: &[u8], owner: &[u8]) {
    pipeline.cmd("RES.IDEMP").arg("BEGIN").arg(key).arg(owner).arg("1h").ignore();
}

fn join(pipeline: &mut redis::Pipeline, key: &[u8], owner: &[u8]) {
    pipeline.cmd("RES.SFLIGHT").arg("JOIN").arg(key).arg(owner).arg("1h").ignore();
}

fn texts(rows: &Value, field: &str) -> Vec<String> {
    let of = |row: &Value| row[field].as_str().expect("a text").to_owned();
    let mut texts: Vec<String> = rows.as_array().expect("a list").iter().map(of).collect();
    texts.sort();
    texts
}

async fn timed(scene: &Scene, path: &str) -> (StatusCode, Value) {
    tokio::time::timeout(BOUND, scene.get(path)).await.unwrap_or_else(|_| panic!("{path} takes longer than {BOUND:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_and_loads_with_odd_names_are_shown_as_text() {
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let long = "k".repeat(4_096);
    let names: [&[u8]; 8] = [
        b"",
        b"<img src=x onerror=alert(1)>",
        b"a\0b\n\x1b[2J",
        b"\xff\xfe",
        b"resil:idemp:{}",
        b"%2e%2e/..\\\"'",
        "\u{202e}\u{43a}\u{43b}\u{44e}\u{447}".as_bytes(),
        long.as_bytes(),
    ];
    let mut pipeline = redis::pipe();
    for name in names {
        begin(&mut pipeline, &[b"run ", name].concat(), b"<b>\xff\n");
        join(&mut pipeline, &[b"load ", name].concat(), b"<b>\xff\n");
    }
    pipeline.query::<()>(&mut server.connect()).expect("any bytes will do");
    for (path, list, prefix) in [("/api/runs", "runs", "run "), ("/api/loads", "loads", "load ")] {
        let mut expected = names.map(|name| format!("{prefix}{}", String::from_utf8_lossy(name))).to_vec();
        expected.sort();
        let (status, found) = timed(&scene, path).await;
        assert_eq!(
            (status, texts(&found[list], "key"), &found["more"]),
            (StatusCode::OK, expected.clone(), &json!(false))
        );
        assert!(texts(&found[list], "owner").iter().all(|owner| owner == "<b>\u{fffd}\n"), "{found}");
        assert_eq!(texts(&timed(&scene, "/api/work").await.1[list], "key"), expected);
        let few = timed(&scene, &format!("{path}?match=*%3Cimg*")).await.1;
        assert_eq!(texts(&few[list], "key").len(), 1, "{few}");
        assert_eq!(timed(&scene, &format!("{path}?state=contended")).await.1[list], json!([]));
        for wrong in ["state=open", "state=%00", "state=running&state=held"] {
            let (status, problem) = timed(&scene, &format!("{path}?{wrong}")).await;
            assert_eq!(
                (status, &problem["code"]),
                (StatusCode::BAD_REQUEST, &json!("INVALID_ARGUMENT")),
                "{wrong}: {problem}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn very_many_runs_are_cut_and_the_list_says_so() {
    const MANY: usize = 6_000;
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let mut pipeline = redis::pipe();
    for number in 0..MANY {
        begin(&mut pipeline, format!("run-{number}").as_bytes(), b"me");
        join(&mut pipeline, format!("load-{number}").as_bytes(), b"me");
    }
    pipeline.query::<()>(&mut server.connect()).expect("room for them");
    let (_, work) = timed(&scene, "/api/work").await;
    for (list, more) in [("runs", "moreRuns"), ("loads", "moreLoads")] {
        assert_eq!((work[list].as_array().map(Vec::len), &work[more]), (Some(500), &json!(true)), "{list}");
        let (_, all) = timed(&scene, &format!("/api/{list}")).await;
        assert_eq!((all[list].as_array().map(Vec::len), &all["more"]), (Some(5_000), &json!(true)), "{list}");
        // A pattern that takes long where it is matched without care.
        let pattern = "*-".repeat(60);
        let (status, none) = timed(&scene, &format!("/api/{list}?match={pattern}x")).await;
        assert_eq!((status, &none[list]), (StatusCode::OK, &json!([])));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_in_flight_are_refused_while_the_server_is_away() {
    let mut server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let mut pipeline = redis::pipe();
    begin(&mut pipeline, b"run", b"me");
    pipeline.query::<()>(&mut server.connect()).expect("it is there");
    assert_eq!(timed(&scene, "/api/work").await.1["runs"][0]["key"], "run");
    let paths = ["/api/work", "/api/runs", "/api/loads"];
    server.pause();
    for path in paths {
        let begun = Instant::now();
        let (status, problem) = timed(&scene, path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path} after {:?}: {problem}", begun.elapsed());
    }
    server.resume();
    within("it responds again", || async { scene.get("/api/runs").await.0 == StatusCode::OK }).await;
    server.kill9();
    for path in paths {
        let (status, problem) = timed(&scene, path).await;
        let expected = (StatusCode::SERVICE_UNAVAILABLE, &json!("BACKEND_UNAVAILABLE"));
        assert_eq!((status, &problem["code"]), expected, "{path}: {problem}");
        let text = problem.to_string();
        assert!(!text.contains(&server.port().to_string()), "{path} names an address: {text}");
    }
    server.start_again();
    // It has lost what it had.
    within("the server is found again", || async { scene.get("/api/runs").await.1["runs"] == json!([]) }).await;
}
