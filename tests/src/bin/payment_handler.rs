//! A runner of the test `flight`: pays behind an idempotency key, and dies where it is asked to, as by kill -9.
//!
//! `payment_handler <resil url> <bank url> <script> <key> <token> before|inside|after|never <lease> [options of BEGIN]`

use std::process::Command;
use std::time::Duration;

use redis::{Client, Value};
use resil_harness::ok;

fn die() -> ! {
    let own = std::process::id().to_string();
    let _ = Command::new("kill").args(["-s", "KILL", &own]).status();
    std::thread::sleep(Duration::from_secs(10));
    panic!("kill -s KILL {own} did nothing")
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [resil, bank, script, key, token, dies, options @ ..] = &args[..] else { panic!("usage: see the source") };
    let connect = |url: &str| Client::open(url).and_then(|client| client.get_connection()).expect("the server replies");
    let (mut resil, mut bank) = (connect(resil), connect(bank));
    let mut begin: Vec<&str> = vec!["RES.IDEMP", "BEGIN", key, token];
    begin.extend(options.iter().map(String::as_str));
    begin.extend(["FINGERPRINT", "amount=10"]);
    let Value::Array(reply) = ok(&mut resil, &begin) else { panic!("a list") };
    let [_, Value::Int(fence), Value::Int(attempt), _] = reply[..] else { panic!("not RUN: {reply:?}") };
    println!("RUN {attempt}");
    if dies == "before" {
        die();
    }
    let fence = fence.to_string();
    let payment = ["EVAL", script.as_str(), "1", key, &fence, token];
    if dies == "inside" {
        let mut command = redis::Cmd::new();
        payment.iter().for_each(|word| {
            command.arg(*word);
        });
        bank.send_packed_command(&command.get_packed_command()).expect("it takes it");
        die();
    }
    ok(&mut bank, &payment);
    if dies == "after" {
        die();
    }
    ok(&mut resil, &["RES.IDEMP", "COMMIT", key, token, "1h", &format!("receipt-{token}")]);
}
