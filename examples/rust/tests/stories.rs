//! Every example keeps its promises: in memory, on a real server, and as the program that a newcomer runs.

use std::process::Command;

use resil_harness::Server;

#[allow(dead_code)]
#[path = "../payments.rs"]
mod payments;

mod a_payment {
    use super::payments::{PayError, Seen, story};
    use super::*;
    use resil::{Code, Failure};

    fn judge(seen: Seen) {
        assert_eq!((seen.requests, seen.replays, seen.payments_after_duplicates), (100, 99, 1), "one pays");
        assert_eq!(seen.mismatch, Some(Code::IdempotencyMismatch));
        match seen.sleeper {
            Err(Failure::Inner(PayError::StaleFence { carried, seen })) => assert!(carried < seen),
            other => panic!("the ledger refuses who slept over its lease: {other:?}"),
        }
        assert_eq!((seen.successor.attempt, seen.successor.replayed), (2, false));
        assert!(seen.sleeper_again.replayed);
        assert_eq!(seen.sleeper_again.value, seen.successor.value, "both give the same receipt");
        assert_eq!((seen.after_crash.attempt, seen.after_crash.replayed), (2, false));
        assert_eq!((seen.payments_in_all, seen.balance), (3, 100_000 - 700 - 900 - 300));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn is_made_once_in_memory() {
        judge(story("memory://").await.expect("the story"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn is_made_once_on_a_server() {
        let server = Server::fresh();
        judge(story(&server.url()).await.expect("the story"));
    }
}

#[test]
fn a_newcomer_can_run_every_example_without_any_set_up() {
    for program in [env!("CARGO_BIN_EXE_payments")] {
        let output = Command::new(program).env_remove("RESIL_URL").output().expect("it starts");
        let (told, problem) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program}: {problem}");
        assert!(told.lines().count() >= 5, "{program} tells a story: {told}");
    }
}
