//! Dead letters on a real server: leases that are renewed, waits that are dropped, workers that are stopped.

use std::sync::Arc;
use std::time::Duration;

use resil::dead_letters::{
    ClassChange, DeadLetters, DeadLettersSettings, FailVerdict, LedgerChange, Letter, LetterState, TakenMessage,
};
use resil::{CancellationToken, Client, Code, ConnectSettings};
use resil_harness::Server;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn ledger(server: &Server, settings: DeadLettersSettings) -> (Client, DeadLetters) {
    let client = ConnectSettings::new(server.url()).command_timeout(ms(2_000)).connect().await.expect("it is there");
    let letters = client.dead_letters("orders", settings.actor("ada")).unwrap();
    let soon = ClassChange::default().base(ms(100)).cap(ms(100));
    letters.configure(&LedgerChange::new().jitter("none").transient(soon)).await.unwrap();
    (client, letters)
}

fn order(number: u32) -> Letter {
    Letter::of("shop", &number.to_string()).payload(format!("order {number}")).kind("order.placed")
}

/// Where a message is, once it is there, for at most a while.
async fn comes_to(letters: &DeadLetters, id: &str, state: Option<LetterState>) {
    for _ in 0..500 {
        if letters.standing(id).await.unwrap() == state {
            return;
        }
        tokio::time::sleep(ms(10)).await;
    }
    panic!("{id} is {:?}, not {state:?}", letters.standing(id).await);
}

#[tokio::test]
async fn a_message_goes_its_way_and_its_lease_is_renewed() {
    let server = Server::fresh();
    let (_client, letters) = ledger(&server, DeadLettersSettings::new().lease(ms(500)).grace(ms(300))).await;
    let verdict = letters.fail(&order(1), "timeout").await.unwrap();
    assert_eq!(verdict, FailVerdict::Retry { attempt: 1, delay: ms(100) });
    let letter = letters.take(1, ms(5_000)).await.unwrap().letters.remove(0);
    assert_eq!(letter.payload(), Some(&b"order 1"[..]));
    tokio::time::sleep(ms(1_500)).await;
    assert!(!letter.lost().is_cancelled());
    letter.done().await.unwrap();
    assert_eq!(letters.standing("shop/1").await.unwrap(), Some(LetterState::Done));
    let other = letters.fail(&order(1).payload("else"), "timeout").await.unwrap_err();
    assert_eq!((other.code(), other.resource()), (Code::LedgerConflict, Some("orders")));
}

#[tokio::test]
async fn a_take_that_is_dropped_holds_nothing_back() {
    let server = Server::fresh();
    let (_client, letters) = ledger(&server, DeadLettersSettings::new()).await;
    for round in 0..20 {
        letters.fail(&order(round), "timeout").await.unwrap();
        // Some are dropped while they wait, some just when they are served.
        let _ = tokio::time::timeout(ms(90 + u64::from(round)), letters.take(1, ms(5_000))).await;
        let letter = letters.take(1, ms(5_000)).await.unwrap().letters.remove(0);
        assert_eq!((letter.attempt(), letter.lapses()), (1, 0));
        letter.done().await.unwrap();
    }
    assert_eq!(letters.info().await.unwrap().entries, 0);
}

#[tokio::test]
async fn a_letter_that_is_dropped_goes_back_on_a_server() {
    let server = Server::fresh();
    let (client, letters) = ledger(&server, DeadLettersSettings::new()).await;
    letters.fail(&order(1), "timeout").await.unwrap();
    drop(letters.take(1, ms(5_000)).await.unwrap());
    comes_to(&letters, "shop/1", Some(LetterState::Waiting)).await;
    let held = letters.take(1, ms(5_000)).await.unwrap();
    assert_eq!(held.letters[0].lapses(), 0);
    drop(held);
    assert!(client.shutdown(ms(1_000)).await.is_clean());
}

#[tokio::test]
async fn a_process_that_is_gone_loses_its_messages() {
    let server = Server::fresh();
    let (_client, letters) = ledger(&server, DeadLettersSettings::new()).await;
    letters.fail(&order(1), "timeout").await.unwrap();
    let (gone, theirs) = ledger(&server, DeadLettersSettings::new().lease(ms(60_000)).grace(ms(200))).await;
    let taken = theirs.take(1, ms(5_000)).await.unwrap();
    std::mem::forget(taken);
    gone.shutdown(Duration::ZERO).await;
    let letter = letters.take(1, ms(20_000)).await.unwrap().letters.remove(0);
    assert_eq!((letter.id().as_ref(), letter.lapses()), ("shop/1", 1));
    letter.done().await.unwrap();
}

#[tokio::test]
async fn a_loop_on_a_server_handles_everything_once() {
    let server = Server::fresh();
    let (_client, letters) = ledger(&server, DeadLettersSettings::new().concurrency(8).wait(ms(500))).await;
    for number in 0..100 {
        letters.fail(&order(number), "timeout").await.unwrap();
    }
    let stop = CancellationToken::new();
    let handled = std::sync::atomic::AtomicU32::new(0);
    let handler = |_: Arc<TakenMessage>| async {
        if handled.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 99 {
            stop.cancel();
        }
        Ok::<_, std::io::Error>(())
    };
    let report = letters.run_until(&stop, |error: &std::io::Error| resil::dead_letters::Settlement::of(error), handler);
    let report = tokio::time::timeout(ms(20_000), report).await.expect("in time").unwrap();
    assert_eq!((report.done, report.unsettled), (100, 0));
    assert_eq!(letters.info().await.unwrap().entries, 0);
}
