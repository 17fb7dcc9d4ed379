//! The terminal as a screen: another page of it, keys without Enter, its size. It is as it was when this is dropped, also by a panic, and a
//! signal ends `top` like a key does: it must not leave a terminal that shows nothing of what is typed.

use std::io::{Read, Write};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::failure::Failure;

pub struct Terminal {
    before: Termios,
    keys: UnboundedReceiver<u8>,
    /// Heard from the first moment on: also of one that comes while the server is asked.
    signals: [Signal; 3],
}

impl Terminal {
    pub fn open() -> Result<Self, Failure> {
        let wrong = |error: rustix::io::Errno| Failure::Refused(format!("the terminal cannot be used: {error}"));
        let signals =
            [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?];
        let before = tcgetattr(std::io::stdin()).map_err(wrong)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).map_err(wrong)?;
        let (sender, keys) = unbounded_channel();
        // Ends with the process: a read of a terminal cannot be called off.
        std::thread::spawn(move || {
            for byte in std::io::stdin().lock().bytes() {
                let Ok(byte) = byte else { break };
                if sender.send(byte).is_err() {
                    break;
                }
            }
        });
        let terminal = Self { before, keys, signals };
        let mut out = std::io::stdout().lock();
        out.write_all(b"\x1b[?1049h\x1b[?25l")?;
        out.flush()?;
        drop(out);
        Ok(terminal)
    }

    /// Width and height in characters.
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    pub fn show(&mut self, lines: &[String]) -> Result<(), Failure> {
        let mut frame = String::from("\x1b[H");
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                frame.push_str("\r\n");
            }
            frame.push_str(line);
            frame.push_str("\x1b[K");
        }
        frame.push_str("\x1b[J");
        let mut out = std::io::stdout().lock();
        out.write_all(frame.as_bytes())?;
        out.flush()?;
        Ok(())
    }

    /// Waits until it is time to stop: q, Escape, Ctrl-C, a closed terminal, or a signal. May be dropped and called again.
    pub async fn quits(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.signals;
        loop {
            tokio::select! {
                key = self.keys.recv() => {
                    if matches!(key, None | Some(b'q' | b'Q' | 0x1b | 0x03 | 0x04)) {
                        return;
                    }
                }
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hangup.recv() => return,
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = out.flush();
    }
}
