//! A message that kills its taker dies after three, and takes no other with it.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use resil_harness::{Options, Server, becomes_true};
use tempfile::TempDir;

use crate::judge::{drain, read_journals};
use crate::worker::{DEADLY, NAME, ORDERS, PRIMARY, ask};

const MESSAGES: usize = 40;

fn employ(dir: &TempDir, number: usize) -> Child {
    // What a worker forgets three times dies, too, and rightly. So these forget nothing.
    let orders = format!("{} {number} {number} 1 reliable", dir.path().display());
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", NAME]).env(ORDERS, orders);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("a process")
}

#[test]
fn a_deadly_message_dies_after_three_alone() {
    let server = Server::start(Options::default());
    let dir = TempDir::with_prefix("crashes-").expect("a folder");
    std::fs::write(dir.path().join(PRIMARY), format!("{} 0", server.port())).expect("a file");
    let mut connection = server.connect();
    assert_eq!(
        ask(&mut connection, "RES.DLQ CONFIG d JITTER none CLASS transient BASE 100ms CAP 100ms RETRIES 1000 ACTOR t"),
        "OK"
    );
    for n in 0..MESSAGES {
        let id = if n == MESSAGES / 2 { DEADLY.to_owned() } else { format!("good-{n}") };
        assert!(ask(&mut connection, &format!("RES.DLQ FAIL d {id} ERROR e PAYLOAD p")).starts_with("[RETRY 1 "));
    }
    // One worker in a process, so that nobody dies for another.
    let mut workers: Vec<Child> = (0..4).map(|number| employ(&dir, number)).collect();
    let (mut number, mut deaths) = (4, 0);
    let died = becomes_true(Duration::from_secs(40), || {
        for worker in &mut workers {
            if worker.try_wait().expect("a child").is_some() {
                deaths += 1;
                *worker = employ(&dir, number);
                number += 1;
            }
        }
        sleep(Duration::from_millis(10));
        ask(&mut connection, &format!("RES.DLQ GET d {DEADLY} STATE")) == "dead"
    });
    for mut worker in workers {
        drop(worker.stdin.take());
        worker.wait().expect("it ended");
    }
    let entry = ask(&mut connection, &format!("RES.DLQ GET d {DEADLY}"));
    assert!(died, "{deaths} workers died: {entry}");
    assert!(entry.contains("reason crash") && entry.contains("lapses 3"), "{entry}");
    assert_eq!(read_journals(dir.path()).deadly, 3, "three were enough");
    drain(&mut connection);
    let dead = ask(&mut connection, "RES.DLQ LIST d STATE dead");
    assert_eq!(dead.matches("[id ").count(), 1, "{dead}");
    for n in (0..MESSAGES).filter(|n| *n != MESSAGES / 2) {
        assert_eq!(ask(&mut connection, &format!("RES.DLQ GET d good-{n} STATE")), "done");
    }
}
