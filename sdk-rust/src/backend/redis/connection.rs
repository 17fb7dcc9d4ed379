//! One connection to a server, for all callers: each writes its command to the end of what is to be sent, and one
//! task sends all that is there at once and hands out what is answered.
//!
//! # The promise
//! - Replies come in the order of the questions, one for each; a question is written whole or not at all.
//! - Nothing is sent twice. A question whose caller has gone before it was sent is not sent, unless it [says so](CallerGone);
//!   one that was sent may have had its effect, even if its caller has gone.
//! - What is not sent yet stays bounded, however long a server stalls: see [`capacity`].
//! - When the connection ends, for any reason, every call that waits gets that error, and so does the [`PushListener`], which also gets
//!   what the server pushes. When the last handle is dropped, the connection ends.
//!
//! # Why not redis-rs' own
//! It wakes its task for every command, and reads replies value by value: from 64 tasks that is most of the time of a call.
//! It is still what greets the server (protocol, password, database, name): see [`stream`].
//!
//! # One packet for many
//! A task that is woken by a question is the next to run, so it would send every question alone. If others are on their
//! way it lets those run first that can, once: they may have commands, too. A lone command is sent at once.
//!
//! # Nobody stands still
//! A caller that is answered usually asks again. If all were answered before anything is sent, the server would wait while they run,
//! and they would all wait for the server afterwards. So some are answered, what they ask is sent, and then the next.

mod capacity;
mod stream;
mod tls;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};
use redis::ConnectionInfo;
use resil_wire::reply::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use self::capacity::Capacity;
use self::stream::Stream;
use super::resp::{self, Frame, Unread};
use super::trouble::Trouble;

/// What is read at once, unless a reply is larger.
const READ_AT_ONCE: usize = 64 * 1024;
/// With so many sent and not answered nothing more is sent: somebody reads, and says nothing.
const UNANSWERED_MAX: usize = 1 << 16;
/// So many callers get their replies before their next commands are sent: the server is not to stand still while all others get theirs.
const ANSWERED_AT_ONCE: usize = 16;
/// Buffers that grew beyond this are given back when they are empty.
const KEPT_BYTES: usize = 256 * 1024;

type Answered = Result<Value, Trouble>;

/// A handle to the connection.
#[derive(Clone)]
pub(super) struct Connection(Arc<Handle>);

struct Handle {
    submissions: Arc<Submissions>,
    task: AbortHandle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where questions are handed in.
#[derive(Default)]
struct Submissions {
    pending: Mutex<Pending>,
    task: AtomicWaker,
    capacity: Capacity,
}

#[derive(Default)]
struct Pending {
    /// What is not sent yet.
    outbox: Vec<u8>,
    unsent: VecDeque<PendingCommand>,
    full_at: capacity::FullAt,
    is_over: bool,
}

struct PendingCommand {
    caller: oneshot::Sender<Answered>,
    /// How many bytes of the outbox it is.
    length: usize,
    prefix: Prefix,
    gone: CallerGone,
}

impl PendingCommand {
    fn is_cancelled(&self) -> bool {
        self.gone == CallerGone::Forget && self.caller.is_closed()
    }
}

/// What becomes of a question whose caller has gone before it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallerGone {
    Forget,
    Send,
}

/// What goes before a command, so that nothing comes between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    None,
    /// For a key that is on its way to this node. Nobody needs the reply to it.
    Asking,
}

/// Gets what a connection receives unasked.
pub(super) trait PushListener: Send + Sync {
    fn is_pushed(&self, push: Vec<Value>);
    /// The connection ended.
    fn is_over(&self);
}

/// An alarm that rings when the connection ends.
impl PushListener for Notify {
    fn is_pushed(&self, _: Vec<Value>) {}

    fn is_over(&self) {
        self.notify_one();
    }
}

/// A stream that greeted and gave its name, for what redis-rs does with it: it greets again.
pub(super) async fn named_stream(
    info: &ConnectionInfo,
    name: &str,
) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>, Trouble> {
    let mut stream = stream::connect(info).await?;
    let mut naming = Vec::new();
    resp::write_plain(&["CLIENT", "SETNAME", name], &mut naming);
    let introduced = async {
        stream.write_all(&naming).await?;
        // Whatever it says: one line.
        while stream.read_u8().await? != b'\n' {}
        Ok::<_, std::io::Error>(())
    };
    introduced.await.map_err(redis::RedisError::from)?;
    Ok(stream)
}

impl Connection {
    /// Connects and greets.
    pub async fn open(info: &ConnectionInfo, name: &str, listener: Arc<dyn PushListener>) -> Result<Self, Trouble> {
        let stream = stream::connect(info).await?;
        let connection = Self::over(stream, listener);
        // A user who may not has a connection without a name. Waited for: what nobody waits for is not sent.
        let _ = connection.ask_anyway(|outbox| resp::write_plain(&["CLIENT", "SETNAME", name], outbox)).await;
        Ok(connection)
    }

    fn over(stream: Stream, listener: Arc<dyn PushListener>) -> Self {
        let submissions = Arc::new(Submissions::default());
        let (inbox, outgoing, sent) = (Inbox::default(), Outgoing::default(), VecDeque::new());
        let driver = Driver {
            stream,
            submissions: Arc::clone(&submissions),
            inbox,
            outgoing,
            sent,
            let_others: false,
            listener,
        };
        let task = tokio::spawn(driver).abort_handle();
        Self(Arc::new(Handle { submissions, task }))
    }

    /// Writes a command where it is sent from. The reply comes to the future that is returned. None if what is not
    /// sent yet leaves no capacity: then it has to be [asked in turn](Self::ask_when_there_is_capacity).
    #[inline]
    pub fn ask(&self, gone: CallerGone, write: impl FnOnce(&mut Vec<u8>)) -> Option<PendingReply> {
        let submissions = &self.0.submissions;
        let pending = submissions.pending.lock();
        if pending.outbox.len() >= pending.full_at.bytes {
            return None;
        }
        Some(submissions.hand_in(pending, (Prefix::None, gone), write))
    }

    /// The same, whether there is capacity or not: for the few questions that tell whether somebody is still there.
    pub fn ask_anyway(&self, write: impl FnOnce(&mut Vec<u8>)) -> PendingReply {
        self.ask_prefixed(Prefix::None, write)
    }

    /// The same with something before it.
    pub fn ask_prefixed(&self, prefix: Prefix, write: impl FnOnce(&mut Vec<u8>)) -> PendingReply {
        let submissions = &self.0.submissions;
        submissions.hand_in(submissions.pending.lock(), (prefix, CallerGone::Forget), write)
    }
}

impl Submissions {
    #[inline]
    fn hand_in(
        &self,
        mut pending: MutexGuard<'_, Pending>,
        (prefix, gone): (Prefix, CallerGone),
        write: impl FnOnce(&mut Vec<u8>),
    ) -> PendingReply {
        let (caller, reply) = oneshot::channel();
        if !pending.is_over {
            let before = pending.outbox.len();
            if prefix == Prefix::Asking {
                resp::write_plain(&["ASKING"], &mut pending.outbox);
            }
            write(&mut pending.outbox);
            let length = pending.outbox.len() - before;
            pending.unsent.push_back(PendingCommand { caller, length, prefix, gone });
            let is_first = pending.unsent.len() == 1;
            drop(pending);
            if is_first {
                self.task.wake();
            }
        }
        PendingReply(reply)
    }
}

/// See [`Connection::ask`].
pub(super) struct PendingReply(oneshot::Receiver<Answered>);

impl Future for PendingReply {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let answered = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(answered.unwrap_or(Err(Trouble::Gone(BROKE))))
    }
}

pub(super) const BROKE: &str = "the connection broke";

/// The task: it ends with the connection.
struct Driver {
    stream: Stream,
    submissions: Arc<Submissions>,
    inbox: Inbox,
    outgoing: Outgoing,
    /// The calls that wait for a reply, the oldest first.
    sent: VecDeque<oneshot::Sender<Answered>>,
    /// Others were let run first.
    let_others: bool,
    listener: Arc<dyn PushListener>,
}

/// What is being sent.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
}

/// What arrived: `bytes[start..end]` is not read yet.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut pending = self.submissions.pending.lock();
        pending.is_over = true;
        pending.outbox = Vec::new();
        let unsent = std::mem::take(&mut pending.unsent);
        drop(pending);
        // Callers learn it by their senders being dropped, and those that wait for capacity find that it is over.
        drop(unsent);
        self.submissions.capacity.has_grown();
        self.sent.clear();
        self.listener.is_over();
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let driver = &mut *self;
        driver.submissions.task.register(context.waker());
        match driver.drive(context) {
            Ok(()) => Poll::Pending,
            Err(Over) => Poll::Ready(()),
        }
    }
}

/// The connection ended, or speaks another language.
struct Over;

impl Driver {
    /// As far as it goes without waiting. What is asked goes first: the server works on it while others are answered.
    fn drive(&mut self, context: &mut Context<'_>) -> Result<(), Over> {
        loop {
            self.send(context)?;
            if self.hand_out()? == Handed::Enough {
                // Those who were answered run now, and ask again.
                self.let_others = true;
                context.waker().wake_by_ref();
                return Ok(());
            }
            match self.inbox.fill(&mut self.stream, context) {
                Poll::Ready(arrived) => arrived?,
                // Each reply made capacity for another command.
                Poll::Pending => return self.send(context),
            }
        }
    }

    fn send(&mut self, context: &mut Context<'_>) -> Result<(), Over> {
        while !self.outgoing.is_empty() || self.take_up(context) {
            match self.outgoing.write(&mut self.stream, context) {
                Poll::Ready(written) => written?,
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Moves what is unsent to what is being sent. False if nothing is to be sent now.
    fn take_up(&mut self, context: &mut Context<'_>) -> bool {
        let mut pending = self.submissions.pending.lock();
        let pending = &mut *pending;
        if pending.unsent.is_empty() || self.sent.len() >= UNANSWERED_MAX {
            self.let_others = false;
            return false;
        }
        let is_alone = pending.unsent.len() == 1 && self.sent.is_empty();
        if !is_alone && !self.let_others {
            self.let_others = true;
            context.waker().wake_by_ref();
            return false;
        }
        self.let_others = false;
        if pending.unsent.iter().any(PendingCommand::is_cancelled) {
            pending.drop_cancelled();
        }
        std::mem::swap(&mut pending.outbox, &mut self.outgoing.bytes);
        self.sent.reserve(pending.unsent.len());
        for question in pending.unsent.drain(..) {
            if question.prefix == Prefix::Asking {
                self.sent.push_back(oneshot::channel().0);
            }
            self.sent.push_back(question.caller);
        }
        if pending.full_at.is_waited_for() {
            self.submissions.capacity.has_grown();
        }
        true
    }

    /// Whole replies go to their callers, some at a time.
    fn hand_out(&mut self) -> Result<Handed, Over> {
        let mut rest = &self.inbox.bytes[self.inbox.start..self.inbox.end];
        let mut answered = 0;
        let handed = loop {
            if answered == ANSWERED_AT_ONCE {
                break Ok(Handed::Enough);
            }
            match resp::read(&mut rest) {
                Ok(Frame::Push(push)) => self.listener.is_pushed(push),
                Ok(Frame::Reply(reply)) => {
                    let Some(caller) = self.sent.pop_front() else { break Err(Over) };
                    // The caller may have gone.
                    let _ = caller.send(reply);
                    answered += 1;
                }
                Err(Unread::Incomplete) => break Ok(Handed::All),
                Err(Unread::Garbled) => break Err(Over),
            }
        };
        self.inbox.start = self.inbox.end - rest.len();
        handed
    }
}

/// How far replies were handed out.
#[derive(PartialEq, Eq)]
enum Handed {
    All,
    /// There may be more.
    Enough,
}

impl Pending {
    #[cold]
    fn drop_cancelled(&mut self) {
        let mut kept = Vec::with_capacity(self.outbox.len());
        let mut start = 0;
        let outbox = &self.outbox;
        self.unsent.retain(|question| {
            let bytes = &outbox[start..start + question.length];
            start += question.length;
            if !question.is_cancelled() {
                kept.extend_from_slice(bytes);
                return true;
            }
            false
        });
        self.outbox = kept;
    }
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes all of it, or what can be written now.
    fn write(&mut self, stream: &mut Stream, context: &mut Context<'_>) -> Poll<Result<(), Over>> {
        while self.written < self.bytes.len() {
            match ready!(Pin::new(&mut *stream).poll_write(context, &self.bytes[self.written..])) {
                Ok(0) | Err(_) => return Poll::Ready(Err(Over)),
                Ok(written) => self.written += written,
            }
        }
        // TLS keeps what the socket did not take.
        if ready!(Pin::new(&mut *stream).poll_flush(context)).is_err() {
            return Poll::Ready(Err(Over));
        }
        self.written = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl Inbox {
    /// Reads what has arrived, once.
    fn fill(&mut self, stream: &mut Stream, context: &mut Context<'_>) -> Poll<Result<(), Over>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > KEPT_BYTES {
                self.bytes = Vec::new();
            }
        }
        if self.bytes.len() - self.end < READ_AT_ONCE / 2 {
            // The beginning of a reply that is not whole goes to the front; if that is not enough there must be more capacity.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.bytes.len() - self.end < READ_AT_ONCE / 2 {
                let capacity = (self.bytes.len() * 2).max(READ_AT_ONCE);
                self.bytes.resize(capacity, 0);
            }
        }
        let mut buffer = ReadBuf::new(&mut self.bytes[self.end..]);
        match ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer)) {
            Ok(()) if !buffer.filled().is_empty() => {
                self.end += buffer.filled().len();
                Poll::Ready(Ok(()))
            }
            _ => Poll::Ready(Err(Over)),
        }
    }
}

#[cfg(all(test, unix))]
mod tests;
