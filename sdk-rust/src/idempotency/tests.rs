//! What the SDK makes of each thing a server can say, and of its silence. A script plays the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use resil_core::lock::Reason;
use resil_wire::command::Reply;
use resil_wire::holding::Renewed;
use resil_wire::idempotency::{Begun, Committed};

use super::*;
use crate::backend::scripted::Scripted;
use crate::clock::Clock;
use crate::error::Code;
use crate::scripted_scene::{asked, drive, scripted, settle};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(9);

struct Scene {
    clock: Clock,
    script: Scripted,
    work: Idempotent,
}

impl Scene {
    fn new(
        replies: impl IntoIterator<Item = Result<Reply, Error>>,
        tune: impl FnOnce(IdempotencySettings) -> IdempotencySettings,
    ) -> Self {
        let (clock, script, client) = scripted(replies);
        let work = client.idempotent("pay", tune(IdempotencySettings::new().lease(LEASE))).unwrap();
        Self { clock, script, work }
    }

    /// The subcommand and the token of everything that was asked.
    fn asked(&self) -> Vec<(String, Vec<u8>)> {
        asked(&self.script)
    }

    fn names(&self) -> Vec<String> {
        self.asked().into_iter().map(|(name, _)| name).collect()
    }

    async fn drive(&self, span: Duration) {
        drive(&self.clock, span).await;
    }

    async fn pay(&self) -> Result<Outcome<Bytes>, Failure<String>> {
        self.work.run("42", b"", async |_| Ok("paid")).await
    }
}

fn run() -> Result<Reply, Error> {
    Ok(Reply::Begun(Begun::Run { fence: 7, attempt: 1, waited_ms: 0 }))
}

fn committed() -> Result<Reply, Error> {
    Ok(Reply::Committed(Committed::Committed { stored: true }))
}

fn silence() -> Result<Reply, Error> {
    Err(Error::Timeout { after: SECOND })
}

#[tokio::test]
async fn a_thousand_duplicates_in_one_process_ask_once() {
    let scene = Scene::new([run(), committed()], |builder| builder);
    let tasks: Vec<_> = (0..1_000)
        .map(|_| {
            let (work, clock) = (scene.work.clone(), scene.clock.clone());
            tokio::spawn(async move {
                work.run("42", b"", async |_| {
                    Ok::<_, String>({
                        clock.sleep(SECOND).await;
                        "paid"
                    })
                })
                .await
            })
        })
        .collect();
    scene.drive(SECOND).await;
    let mut replayed = 0;
    for task in tasks {
        let outcome = task.await.unwrap().unwrap();
        assert_eq!(outcome.value.as_deref(), Some(&b"paid"[..]));
        replayed += u32::from(outcome.replayed);
    }
    assert_eq!(replayed, 999);
    assert_eq!(scene.names(), ["BEGIN", "COMMIT"]);
}

#[tokio::test]
async fn a_lost_reply_to_begin_reuses_the_token() {
    let scene = Scene::new([silence(), run(), committed()], |builder| builder);
    assert_eq!(scene.pay().await.unwrap().attempt, 1);
    let asked = scene.asked();
    assert_eq!(scene.names(), ["BEGIN", "BEGIN", "COMMIT"]);
    assert!(asked.iter().all(|(_, token)| *token == asked[0].1));
}

#[tokio::test]
async fn a_lost_reply_to_commit_reuses_the_token() {
    let scene = Scene::new([run(), silence(), committed()], |builder| builder);
    assert!(scene.pay().await.unwrap().recorded);
    let asked = scene.asked();
    assert_eq!(scene.names(), ["BEGIN", "COMMIT", "COMMIT"]);
    assert!(asked.iter().all(|(_, token)| *token == asked[0].1));
}

#[tokio::test]
async fn every_attempt_has_its_own_token() {
    let scene = Scene::new([run(), committed(), run(), committed()], |builder| builder);
    scene.pay().await.unwrap();
    scene.pay().await.unwrap();
    let asked = scene.asked();
    assert_ne!(asked[0].1, asked[2].1);
}

#[tokio::test]
async fn a_commit_after_a_lost_lease_is_an_error() {
    let lost = Ok(Reply::Committed(Committed::Lost(Reason::Taken)));
    let scene = Scene::new([run(), lost], |builder| builder);
    let Failure::Resil(Error::LockLost { reason, .. }) = scene.pay().await.unwrap_err() else { panic!() };
    assert_eq!(reason, "taken");
    assert_eq!(scene.names(), ["BEGIN", "COMMIT"], "and nothing is aborted");
}

#[tokio::test]
async fn work_that_nobody_records_is_returned_with_a_flag() {
    let scene = Scene::new([run()], |builder| builder);
    let work = scene.work.clone();
    let paying = tokio::spawn(async move { work.run("42", b"", async |_| Ok::<_, String>("paid")).await });
    scene.drive(LEASE).await;
    assert!(paying.is_finished(), "bounded");
    let outcome = paying.await.unwrap().unwrap();
    assert_eq!((outcome.value.as_deref(), outcome.recorded), (Some(&b"paid"[..]), false));
    assert!(scene.names().len() > 4);
}

/// Work that never ends, and tells when it is dropped.
async fn endless(work: Idempotent, dropped: Arc<AtomicBool>) -> Result<Outcome<Bytes>, Failure<String>> {
    struct Tells(Arc<AtomicBool>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let tells = Tells(dropped);
    work.run("42", b"", async move |_| {
        let _tells = tells;
        Ok(std::future::pending::<Bytes>().await)
    })
    .await
}

#[tokio::test]
async fn a_lost_lease_cancels_the_work() {
    let lost = Ok(Reply::Renewed(Renewed::Lost(Reason::Taken)));
    let scene = Scene::new([run(), lost], |builder| builder);
    let dropped = Arc::new(AtomicBool::new(false));
    let running = tokio::spawn(endless(scene.work.clone(), Arc::clone(&dropped)));
    scene.drive(LEASE / 3).await;
    assert_eq!(running.await.unwrap().unwrap_err().code(), Some(Code::LockLost));
    assert!(dropped.load(SeqCst));
    settle().await;
    assert_eq!(scene.names(), ["BEGIN", "RENEW"]);
}

#[tokio::test]
async fn a_lease_nobody_confirms_is_not_trusted_to_its_end() {
    let scene = Scene::new([run()], |builder| builder);
    let began = scene.clock.now();
    let running = tokio::spawn(endless(scene.work.clone(), Arc::default()));
    while !running.is_finished() && scene.clock.now() < began + 2 * LEASE {
        scene.drive(SECOND / 10).await;
    }
    assert!(scene.clock.now() <= began + LEASE);
    let Failure::Resil(Error::LockLost { reason, .. }) = running.await.unwrap().unwrap_err() else { panic!() };
    assert_eq!(reason, crate::leases::LAPSED_HERE);
    assert!(scene.names().len() > 3, "renewing was tried again and again");
}

#[tokio::test]
async fn renewals_that_were_missed_once_are_made_up_for() {
    let renewed = || Ok(Reply::Renewed(Renewed::Granted { fence: 7, lease_ms: 9_000 }));
    let replies = [run(), silence(), renewed(), silence(), silence(), renewed(), renewed(), committed()];
    let scene = Scene::new(replies, |builder| builder);
    let (work, clock) = (scene.work.clone(), scene.clock.clone());
    let paying = async move |_| {
        Ok::<_, String>({
            clock.sleep(12 * SECOND).await;
            "paid"
        })
    };
    let running = tokio::spawn(async move { work.run("42", b"", paying).await });
    scene.drive(12 * SECOND).await;
    assert!(running.await.unwrap().unwrap().recorded);
}

#[tokio::test]
async fn work_that_sees_its_lost_lease_may_still_commit() {
    let lost = Ok(Reply::Renewed(Renewed::Lost(Reason::Expired)));
    let scene = Scene::new([run(), lost, committed()], |builder| builder.on_lost(OnLost::Finish));
    let work = scene.work.clone();
    let running = tokio::spawn(async move {
        work.run("42", b"", async |run| {
            Ok::<_, String>({
                run.lost().cancelled().await;
                "late"
            })
        })
        .await
    });
    scene.drive(LEASE / 3).await;
    assert!(running.await.unwrap().unwrap().recorded);
    assert_eq!(scene.names(), ["BEGIN", "RENEW", "COMMIT"]);
}

#[tokio::test]
async fn a_caller_that_leaves_during_the_commit_loses_nothing() {
    let scene = Scene::new([run(), silence(), silence(), silence(), committed()], |builder| builder);
    let work = scene.work.clone();
    let paying = tokio::spawn(async move { work.run("42", b"", async |_| Ok::<_, String>("paid")).await });
    settle().await;
    assert!(!paying.is_finished(), "it waits before it asks again");
    let before = scene.names().len();
    paying.abort();
    scene.drive(SECOND).await;
    let asked = scene.asked();
    assert!(asked.len() > before);
    assert!(asked[1..].iter().all(|(name, token)| name == "COMMIT" && *token == asked[0].1));
    assert!(scene.script.lines.lock().replies.is_empty(), "until it was heard");
}

#[tokio::test]
async fn closed_refuses_while_the_server_is_away() {
    let scene = Scene::new([], |builder| builder);
    let work = scene.work.clone();
    let paying = tokio::spawn(async move { work.run("42", b"", async |_| Ok::<_, String>("paid")).await });
    scene.drive(SECOND).await;
    assert_eq!(paying.await.unwrap().unwrap_err().code(), Some(Code::BackendUnavailable));
    assert_eq!(scene.work.once("1", SECOND, None).await.unwrap_err().code(), Code::BackendUnavailable);
}

#[tokio::test]
async fn open_runs_unfenced_and_unrecorded_while_the_server_is_away() {
    let scene = Scene::new([], |builder| builder.when_away(Away::Open));
    let work = scene.work.clone();
    let paying = tokio::spawn(async move {
        work.run("42", b"", async |run| Ok::<_, String>(format!("{:?} {}", run.fence(), run.is_first()))).await
    });
    scene.drive(SECOND).await;
    let outcome = paying.await.unwrap().unwrap();
    assert_eq!((outcome.value.as_deref(), outcome.recorded), (Some(&b"None false"[..]), false));
    assert!(scene.names().iter().all(|name| name == "BEGIN"));
    assert!(scene.work.once("1", SECOND, None).await.unwrap());
}

#[tokio::test]
async fn a_server_that_refuses_everything_is_as_good_as_away() {
    let denied = || Err(Error::PermissionDenied("this command or key"));
    for refusal in [denied, || Err(Error::ModuleMissing)] {
        for away in [Away::Open, Away::Closed] {
            let scene = Scene::new((0..9).map(|_| refusal()), |builder| builder.when_away(away));
            let work = scene.work.clone();
            let paying = tokio::spawn(async move { work.run("42", b"", async |_| Ok::<_, String>("paid")).await });
            scene.drive(SECOND).await;
            match paying.await.unwrap() {
                Ok(outcome) => assert!(away == Away::Open && !outcome.recorded),
                Err(failure) => assert_eq!((away, failure.code()), (Away::Closed, refusal().err().map(|e| e.code()))),
            }
        }
    }
    let wrong = Scene::new([Err(Error::InvalidArgument("no".to_owned()))], |builder| builder.when_away(Away::Open));
    assert_eq!(wrong.pay().await.unwrap_err().code(), Some(Code::InvalidArgument), "what was asked is wrong");
}

#[tokio::test]
async fn nothing_new_is_begun_when_closing() {
    let scene = Scene::new([run()], |builder| builder);
    scene.work.0.client.inner().closing.cancel();
    assert_eq!(scene.pay().await.unwrap_err().code(), Some(Code::ShuttingDown));
    assert!(scene.names().is_empty());
}
