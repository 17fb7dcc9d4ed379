//! `resil top` on a terminal, which `script` makes: tiny ones, colours, a server that dies.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use resil_harness::{Server, ok as ask};

use crate::scene::{binary, ok, resil, run};

/// What `resil top` writes to a terminal of this size until q is pressed after `after`.
fn on_a_terminal(url: &str, columns: u32, rows: u32, after: impl FnOnce()) -> String {
    let line = format!("stty cols {columns} rows {rows}; exec '{}' top --interval 100ms", binary().display());
    let mut child = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .env("RESIL_URL", url)
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script runs");
    after();
    let mut keys = child.stdin.take().expect("piped");
    keys.write_all(b"q").expect("q is pressed");
    let output = child.wait_with_output().expect("it ends");
    drop(keys);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// A frame without its escapes, as lines.
fn frames(text: &str) -> Vec<Vec<String>> {
    let mut frames = Vec::new();
    for frame in text.split("\x1b[H").skip(1) {
        let frame = frame.split("\x1b[J").next().unwrap_or_default();
        let mut plain = String::new();
        let mut rest = frame;
        while let Some(at) = rest.find('\x1b') {
            plain.push_str(&rest[..at]);
            let end = rest[at..].find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |end| at + end + 1);
            rest = &rest[end..];
        }
        plain.push_str(rest);
        frames.push(plain.split("\r\n").map(str::to_owned).collect());
    }
    frames
}

#[test]
fn top_fits_every_terminal_and_gives_it_back() {
    let server = Server::fresh();
    ask(
        &mut server.connect(),
        &["RES.BREAKER", "FORCE", "resil:breaker:{payments}", "OPEN", "REASON", "a long reason, so that lines are cut"],
    );
    for (columns, rows) in [(120, 40), (40, 10), (10, 3), (1, 1)] {
        let text = on_a_terminal(&server.url(), columns, rows, || std::thread::sleep(Duration::from_millis(700)));
        let frames = frames(&text);
        assert!(!frames.is_empty(), "{text:?}");
        for frame in &frames {
            assert!(frame.len() <= rows as usize, "{columns}x{rows}: {frame:#?}");
            assert!(frame.iter().all(|line| line.chars().count() <= columns as usize), "{columns}x{rows}: {frame:#?}");
        }
        if columns >= 100 {
            assert!(
                frames.iter().flatten().any(|line| line.contains("payments") && line.contains("forced-open")),
                "{frames:#?}"
            );
        }
        assert!(text.contains("\x1b[?1049l"), "the page of before is back");
    }
}

#[test]
fn top_goes_on_after_the_server_was_killed() {
    let mut server = Server::fresh();
    let url = server.url();
    let text = on_a_terminal(&url, 100, 30, || {
        std::thread::sleep(Duration::from_millis(600));
        server.kill9();
        std::thread::sleep(Duration::from_millis(1_500));
        server.start_again();
        ok(&server.url(), &["breaker", "force", "risen", "--new", "--to", "open", "--reason", "test"]);
        std::thread::sleep(Duration::from_secs(4));
    });
    let frames = frames(&text);
    let at = |word: &str| frames.iter().position(|frame| frame.iter().any(|line| line.contains(word)));
    let (away, risen) = (at("trying again"), at("risen"));
    assert!(away.is_some() && risen > away, "away {away:?}, back {risen:?} of {} frames", frames.len());
}

#[test]
fn colours_are_for_terminals_alone() {
    let server = Server::fresh();
    ask(&mut server.connect(), &["RES.BREAKER", "FORCE", "resil:breaker:{payments}", "OPEN"]);
    assert!(!ok(&server.url(), &["breaker", "list"]).contains('\x1b'));
    assert!(ok(&server.url(), &["breaker", "list", "--color", "always"]).contains('\x1b'));
    let line = format!("'{}' breaker list", binary().display());
    let on_terminal = |no_color: &str| {
        let mut script = Command::new("script");
        script
            .args(["-qefc", &line, "/dev/null"])
            .env("RESIL_URL", server.url())
            .env("NO_COLOR", no_color)
            .stdin(Stdio::null());
        run(script).out
    };
    assert!(on_terminal("").contains("\x1b[31m"));
    assert!(!on_terminal("1").contains("\x1b[31m"));
    assert_eq!(run(resil(&server.url(), &["top"])).code, 0, "without a terminal it is one screen");
}

/// What `top` leaves behind when a signal or a key ends it: the page of before, a visible cursor, and an exit that is none of a signal.
#[test]
fn top_gives_the_terminal_back_at_its_end() {
    for (how, is_paused) in [("INT", false), ("TERM", false), ("TERM", true), ("HUP", false), ("q", true)] {
        let server = Server::fresh();
        let pid_file = tempfile::NamedTempFile::new().expect("a file");
        let line = format!(
            "echo $$ >'{}'; exec '{}' top --interval 100ms --timeout 20s",
            pid_file.path().display(),
            binary().display()
        );
        let mut child = Command::new("script")
            .args(["-qefc", &line, "/dev/null"])
            .env("RESIL_URL", server.url())
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script runs");
        std::thread::sleep(Duration::from_millis(900));
        if is_paused {
            server.pause();
            std::thread::sleep(Duration::from_millis(400));
        }
        let mut keys = child.stdin.take().expect("piped");
        let began = std::time::Instant::now();
        if how == "q" {
            keys.write_all(b"q").expect("q is pressed");
        } else {
            let pid = std::fs::read_to_string(pid_file.path()).expect("its number");
            let sent = Command::new("kill").args([&format!("-{how}"), pid.trim()]).status();
            assert!(sent.is_ok_and(|status| status.success()), "{how}");
        }
        let output = child.wait_with_output().expect("it ends");
        let took = began.elapsed();
        drop(keys);
        if is_paused {
            server.resume();
        }
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.ends_with("\x1b[?25h\x1b[?1049l"), "{how} {is_paused}: {text:?}");
        assert!(output.status.success(), "{how} {is_paused}: {:?}", output.status);
        assert!(took < Duration::from_secs(5), "{how} {is_paused}: {took:?}");
    }
}
