//! A connection against a peer that says what the test wants, over a pair of sockets.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::*;

const BOUND: Duration = Duration::from_secs(20);

struct Scene {
    connection: Connection,
    peer: UnixStream,
    alarm: Arc<Notify>,
}

fn scene() -> Scene {
    let (ours, peer) = UnixStream::pair().expect("a pair of sockets");
    let alarm = Arc::new(Notify::new());
    Scene { connection: Connection::over(Box::new(ours), alarm.clone()), peer, alarm }
}

fn word(word: &str) -> impl FnOnce(&mut Vec<u8>) {
    move |outbox| resp::write_plain(&[word], outbox)
}

fn written(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    resp::write_plain(&[word], &mut bytes);
    bytes
}

async fn expect(peer: &mut UnixStream, bytes: &[u8]) {
    let mut seen = vec![0; bytes.len()];
    timeout(BOUND, peer.read_exact(&mut seen)).await.expect("in time").expect("it is sent");
    assert_eq!(String::from_utf8_lossy(&seen), String::from_utf8_lossy(bytes));
}

async fn answered(asked: PendingReply) -> Answered {
    timeout(BOUND, asked).await.expect("in time")
}

#[tokio::test]
async fn each_question_gets_its_own_reply_whatever_comes_in_between() {
    let Scene { connection, mut peer, .. } = scene();
    let asked: Vec<_> = ["a", "b", "c"].map(|each| connection.ask_anyway(word(each))).into_iter().collect();
    expect(&mut peer, &[written("a"), written("b"), written("c")].concat()).await;
    peer.write_all(b":1\r\n>1\r\n+other\r\n-READONLY x\r\n:3\r\n").await.unwrap();
    let replies: Vec<_> = join_all(asked.into_iter().map(answered)).await;
    assert_eq!(replies, [Ok(Value::Integer(1)), Err(Trouble::Demoted), Ok(Value::Integer(3))]);
}

#[tokio::test]
async fn a_caller_that_left_before_sending_sends_nothing() {
    let Scene { connection, mut peer, .. } = scene();
    // Nothing is sent before this task waits for something.
    let first = connection.ask_anyway(word("first"));
    drop(connection.ask_anyway(word("gone")));
    let last = connection.ask_anyway(word("last"));
    expect(&mut peer, &[written("first"), written("last")].concat()).await;
    peer.write_all(b":1\r\n:2\r\n").await.unwrap();
    assert_eq!(answered(first).await, Ok(Value::Integer(1)));
    assert_eq!(answered(last).await, Ok(Value::Integer(2)));
}

#[tokio::test]
async fn a_required_question_is_sent_though_its_caller_left() {
    let Scene { connection, mut peer, .. } = scene();
    let first = connection.ask_anyway(word("first"));
    drop(connection.ask(CallerGone::Send, word("gone")).expect("there is capacity"));
    drop(connection.ask_anyway(word("cancelled")));
    let last = connection.ask_anyway(word("last"));
    expect(&mut peer, &[written("first"), written("gone"), written("last")].concat()).await;
    peer.write_all(b":1\r\n:2\r\n:3\r\n").await.unwrap();
    assert_eq!(answered(first).await, Ok(Value::Integer(1)));
    assert_eq!(answered(last).await, Ok(Value::Integer(3)));
}

#[tokio::test]
async fn the_reply_to_a_caller_that_left_reaches_nobody() {
    let Scene { connection, mut peer, .. } = scene();
    let gone = connection.ask_anyway(word("gone"));
    expect(&mut peer, &written("gone")).await;
    drop(gone);
    let next = connection.ask_anyway(word("next"));
    expect(&mut peer, &written("next")).await;
    peer.write_all(b":1\r\n:2\r\n").await.unwrap();
    assert_eq!(answered(next).await, Ok(Value::Integer(2)));
}

#[tokio::test]
async fn the_connections_end_notifies_everybody_and_rings_the_alarm() {
    for last_words in [&b""[..], b"$5\r\nhal", b"not the protocol", b":1\r\n:2\r\n:3\r\n"] {
        let Scene { connection, mut peer, alarm } = scene();
        let sent = [connection.ask_anyway(word("sent")), connection.ask_anyway(word("sent"))];
        expect(&mut peer, &[written("sent"), written("sent")].concat()).await;
        peer.write_all(last_words).await.unwrap();
        drop(peer);
        timeout(BOUND, alarm.notified()).await.expect("it rings");
        for asked in sent {
            let reply = answered(asked).await;
            assert!(matches!(reply, Err(Trouble::Gone(_)) | Ok(Value::Integer(_))), "{reply:?}");
        }
        assert_eq!(answered(connection.ask_anyway(word("late"))).await, Err(Trouble::Gone(BROKE)));
    }
}

#[tokio::test]
async fn the_connection_ends_with_the_last_handle() {
    let Scene { connection, mut peer, .. } = scene();
    drop(connection.clone());
    let asked = connection.ask_anyway(word("asked"));
    expect(&mut peer, &written("asked")).await;
    drop(connection);
    assert_eq!(answered(asked).await, Err(Trouble::Gone(BROKE)));
    let read = timeout(BOUND, peer.read(&mut [0; 8])).await.expect("in time");
    assert!(matches!(read, Ok(0)), "{read:?}");
}

#[tokio::test]
async fn questions_and_replies_beyond_any_buffer_go_through() {
    let Scene { connection, mut peer, .. } = scene();
    let text = "x".repeat(3 << 20);
    let asked = [connection.ask_anyway(word(&text)), connection.ask_anyway(word("small"))];
    let question = [written(&text), written("small")].concat();
    expect(&mut peer, &question).await;
    let reply = format!("${}\r\n{text}\r\n:7\r\n", text.len());
    let reading = async { join_all(asked.into_iter().map(answered)).await };
    let (sent, replies) = tokio::join!(peer.write_all(reply.as_bytes()), reading);
    sent.unwrap();
    assert_eq!(replies, [Ok(Value::Text(text.into_bytes())), Ok(Value::Integer(7))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn many_concurrent_tasks_get_their_own_replies() {
    let Scene { connection, mut peer, .. } = scene();
    // Says everything back that it is notified.
    let echo = tokio::spawn(async move {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 4_096]);
        while let Ok(count @ 1..) = peer.read(&mut buffer).await {
            bytes.extend_from_slice(&buffer[..count]);
            let mut rest = &bytes[..];
            let mut replies = Vec::new();
            while let Some(at) = rest.windows(4).skip(5).position(|bytes| bytes.starts_with(b"\r\n")).map(|at| at + 5) {
                let Some(end) = rest[at + 2..].windows(2).position(|bytes| bytes == b"\r\n") else { break };
                let word = &rest[at + 2..at + 2 + end];
                replies.extend_from_slice(format!("+{}\r\n", String::from_utf8_lossy(word)).as_bytes());
                rest = &rest[at + 2 + end + 2..];
            }
            bytes = rest.to_vec();
            peer.write_all(&replies).await.unwrap();
        }
    });
    let tasks = (0..50).map(|task| {
        let connection = connection.clone();
        tokio::spawn(async move {
            for turn in 0..200 {
                let text = format!("{task}:{turn}");
                assert_eq!(answered(connection.ask_anyway(word(&text))).await, Ok(Value::Text(text.into_bytes())));
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    drop(connection);
    timeout(BOUND, echo).await.expect("in time").unwrap();
}

/// Asks until there is no capacity, and what was asked.
fn fill(connection: &Connection) -> (Vec<PendingReply>, Vec<u8>) {
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    let text = "x".repeat(64 << 10);
    while let Some(asked) = connection.ask(CallerGone::Forget, word(&text)) {
        all.push(asked);
        bytes.extend(written(&text));
        assert!(bytes.len() < 2 * capacity::OUTBOX_MAX, "there is no end to it");
    }
    (all, bytes)
}

#[tokio::test]
async fn callers_without_capacity_are_sent_in_turn() {
    let Scene { connection, mut peer, .. } = scene();
    let (early, bytes) = fill(&connection);
    let queued = ["a", "gone", "b"].map(|each| {
        let connection = connection.clone();
        Box::pin(async move { connection.ask_when_there_is_capacity(word(each)).await })
    });
    let [mut a, mut gone, mut b] = queued;
    for waiting in [&mut a, &mut gone, &mut b] {
        assert!(futures_util::poll!(waiting).is_pending());
    }
    drop(gone);
    // Something is sent now, so that there is capacity; but there is a queue, too.
    expect(&mut peer, &bytes).await;
    assert!(connection.ask(CallerGone::Forget, word("overtaking")).is_none());
    let line = tokio::spawn(async move { tokio::join!(a, b) });
    expect(&mut peer, &[written("a"), written("b")].concat()).await;
    let last = connection.ask(CallerGone::Forget, word("last")).expect("the line is gone");
    expect(&mut peer, &written("last")).await;
    let replies: String = (0..early.len() + 3).map(|number| format!(":{number}\r\n")).collect();
    peer.write_all(replies.as_bytes()).await.unwrap();
    let number = |number: usize| Ok(Value::Integer(number as i64));
    assert_eq!(timeout(BOUND, line).await.unwrap().unwrap(), (number(early.len()), number(early.len() + 1)));
    assert_eq!(answered(last).await, number(early.len() + 2));
}

#[tokio::test]
async fn a_caller_without_capacity_learns_of_the_connections_end() {
    let Scene { connection, peer, .. } = scene();
    let (early, _) = fill(&connection);
    let queued: Vec<_> = (0..3)
        .map(|_| {
            let connection = connection.clone();
            tokio::spawn(async move { connection.ask_when_there_is_capacity(word("late")).await })
        })
        .collect();
    tokio::task::yield_now().await;
    drop(peer);
    for waiting in queued {
        assert_eq!(timeout(BOUND, waiting).await.unwrap().unwrap(), Err(Trouble::Gone(BROKE)));
    }
    for asked in early {
        assert_eq!(answered(asked).await, Err(Trouble::Gone(BROKE)));
    }
}

#[tokio::test]
async fn a_silent_peer_is_not_sent_everything() {
    let Scene { connection, mut peer, .. } = scene();
    let mut bytes = Vec::new();
    let mut asked = Vec::new();
    while asked.len() < UNANSWERED_MAX {
        asked.push(connection.ask(CallerGone::Forget, word("x")).expect("there is capacity"));
        bytes.extend(written("x"));
    }
    expect(&mut peer, &bytes).await;
    let next = connection.ask(CallerGone::Forget, word("next")).expect("there is capacity");
    let silence = timeout(Duration::from_millis(50), peer.read(&mut [0; 8])).await;
    assert!(silence.is_err(), "{silence:?}");
    peer.write_all(b":1\r\n").await.unwrap();
    expect(&mut peer, &written("next")).await;
    drop((asked, next));
}
