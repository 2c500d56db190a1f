//! What a session says to others, and hears of them.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use polychron_base::clock::{Clock as _, Duration, SystemClock};
use polychron_engine::Protocol;
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::{Listening, MOST_BYTES, Mailbox, Message, Note, Notification, Place, Post, lock};
use crate::connection::Connection;
use crate::control::Modes;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::outcome::Outcome;
use crate::parse::{self, Command};
use crate::session::Then;

/// The longest name of a channel, and the longest text, in bytes.
const LONGEST_NAME: usize = 63;
const LONGEST_TEXT: usize = 7999;
/// How long a wait without end looks away.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// What the transaction of a session has said, and what its session listens to.
#[derive(Debug, Default)]
struct Said {
    notes: Vec<Note>,
    /// The same, to find out what was said already.
    known: HashSet<Note>,
    /// What the notes take.
    bytes: usize,
    listening: Vec<Listening>,
    /// The channels as the latest commit has left them.
    channels: BTreeSet<Arc<str>>,
    place: Option<Place>,
}

impl Said {
    fn forget_notes(&mut self) {
        self.notes.clear();
        self.known.clear();
        self.bytes = 0;
    }
}

/// How much a transaction has said up to a savepoint: notes, and statements about channels.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SaidMark(usize, usize);

/// The part of a session in LISTEN and NOTIFY.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    said: Mutex<Said>,
    post: OnceLock<Arc<Post>>,
    mailbox: Arc<Mailbox>,
    /// Whether the transaction has said something. One thread at a time has the session, and looks at it without the lock.
    is_used: AtomicBool,
}

impl Outbox {
    pub(crate) fn connect(&self, post: &Arc<Post>) {
        let _ = self.post.set(post.clone());
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.is_used.store(true, Ordering::Relaxed);
        lock(&self.said)
    }

    /// The statements of the transaction run from the beginning: they say again what they say.
    pub(crate) fn repeat(&self) {
        if !self.is_used() {
            return;
        }
        let mut said = self.said();
        said.forget_notes();
        let place = said.place.take();
        drop(said);
        // Whoever stands behind it goes on.
        drop(place);
    }

    /// The transaction has ended, and what it has said is told, or comes to nothing.
    pub(crate) fn end(&self) {
        if !self.is_used() {
            return;
        }
        self.repeat();
        self.said().listening.clear();
        self.is_used.store(false, Ordering::Relaxed);
    }

    pub(crate) fn mark(&self) -> SaidMark {
        if !self.is_used() {
            return SaidMark::default();
        }
        let said = self.said();
        SaidMark(said.notes.len(), said.listening.len())
    }

    pub(crate) fn return_to(&self, mark: SaidMark) {
        if !self.is_used() {
            return;
        }
        let mut said = self.said();
        let kept = mark.0.min(said.notes.len());
        let undone = said.notes.split_off(kept);
        for note in undone {
            said.bytes -= Message::size(&note);
            said.known.remove(&note);
        }
        said.listening.truncate(mark.1);
    }

    /// Notes what is to be told, once.
    ///
    /// # Errors
    /// As PostgreSQL's `pg_notify`.
    fn note(&self, channel: &str, text: &str) -> Result<(), SqlError> {
        let refused = |message| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        match (channel.len(), text.len()) {
            (0, _) => return refused("channel name cannot be empty"),
            (length, _) if length > LONGEST_NAME => return refused("channel name too long"),
            (_, length) if length > LONGEST_TEXT => return refused("payload string too long"),
            _ => {}
        }
        let note = Note { channel: channel.into(), text: text.into() };
        let mut said = self.said();
        if said.known.contains(&note) {
            return Ok(());
        }
        said.bytes += Message::size(&note);
        if said.bytes > MOST_BYTES {
            let message = "too many notifications in the NOTIFY queue";
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        said.known.insert(note.clone());
        said.notes.push(note);
        Ok(())
    }

    /// What `pg_notify` does with its arguments.
    pub(crate) fn notify(&self, arguments: &[Datum<'_>]) -> Result<(), SqlError> {
        let text = |at: usize| if let Some(Datum::Text(text)) = arguments.get(at) { *text } else { "" };
        self.note(text(0), text(1))
    }

    /// The transaction is about to commit: it takes its place in the line.
    ///
    /// # Errors
    /// Others do not read what they were told.
    pub(crate) fn reserve(&self, process: u32) -> Result<(), SqlError> {
        if !self.is_used() {
            return Ok(());
        }
        let mut said = self.said();
        if let Some(post) = self.post.get().filter(|_| !said.notes.is_empty() || !said.listening.is_empty()) {
            let place = post.reserve(&said.notes, process)?;
            said.place = Some(place);
        }
        Ok(())
    }

    /// The transaction has committed.
    pub(crate) fn publish(&self) {
        if !self.is_used() {
            return;
        }
        let mut said = self.said();
        let Some(place) = said.place.take() else { return };
        let listening = std::mem::take(&mut said.listening);
        for of in &listening {
            match of {
                Listening::Begin(channel) => drop(said.channels.insert(channel.clone())),
                Listening::End(channel) => drop(said.channels.remove(channel)),
                Listening::EndAll => said.channels.clear(),
            }
        }
        drop(said);
        place.fill(&self.mailbox, listening);
    }

    /// The channels that the session listens to.
    pub(crate) fn channels(&self) -> Vec<Arc<str>> {
        lock(&self.said).channels.iter().cloned().collect()
    }

    /// How much of the memory for notifications is taken, as a part of it.
    pub(crate) fn usage(&self) -> f64 {
        self.post.get().map_or(0.0, |post| post.usage())
    }

    /// The session ends, or listens to nothing any longer.
    pub(crate) fn close(&self) {
        self.end();
        if let Some(post) = self.post.get().filter(|_| !lock(&self.said).channels.is_empty()) {
            lock(&self.said).channels.clear();
            // What stands in the line before this place is told to nobody.
            if let Ok(place) = post.reserve(&[], 0) {
                place.fill(&self.mailbox, vec![Listening::EndAll]);
            }
        }
    }
}

/// What is said about channels by a statement.
pub(crate) enum Channel {
    Listen(String),
    Unlisten(String),
    UnlistenAll,
}

impl<P: Protocol> Connection<P> {
    /// LISTEN and UNLISTEN, which hold once the transaction has committed.
    pub(crate) fn listen(&mut self, channel: Channel) -> Result<Outcome, SqlError> {
        self.session.begin(Modes::default(), false)?;
        let cut = |name: String| -> Arc<str> { name[..name.floor_char_boundary(LONGEST_NAME)].into() };
        let (of, tag) = match channel {
            Channel::Listen(name) => (Listening::Begin(cut(name)), "LISTEN"),
            Channel::Unlisten(name) => (Listening::End(cut(name)), "UNLISTEN"),
            Channel::UnlistenAll => (Listening::EndAll, "UNLISTEN"),
        };
        self.session.drawn().outbox.said().listening.push(of);
        Ok(Outcome::tagged(tag))
    }

    /// NOTIFY, as a statement that is run again with its transaction.
    pub(crate) fn notify(&mut self, channel: &str, payload: &str) -> Result<Outcome, SqlError> {
        let channel = &channel[..channel.floor_char_boundary(LONGEST_NAME)];
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let text = format!("SELECT pg_catalog.pg_notify({}, {})", quoted(channel), quoted(payload));
        let commands = parse::commands(&text)?;
        let [Command::Sql(query)] = &commands[..] else { return Err(SqlError::internal("NOTIFY is one query")) };
        let plan = self.plan_of(query, &[], &[])?.into();
        self.session.begin(Modes::default(), false)?;
        self.session.put((&plan, &[]), Then::Nothing, &self.zone)?;
        Ok(Outcome::tagged("NOTIFY"))
    }

    /// What the session was told since it has looked, the oldest first, so many at most; nothing within a transaction.
    pub fn notifications(&mut self, most: usize) -> Vec<Notification> {
        if !self.has_notifications() {
            return Vec::new();
        }
        let outbox = &self.session.drawn().outbox;
        let mut heard = outbox.mailbox.take(most);
        let said = lock(&outbox.said);
        // What came before UNLISTEN, and was not looked at, is not wanted any longer.
        heard.retain(|it| said.channels.contains(it.channel()));
        heard
    }

    /// Whether [`Connection::notifications`] has something.
    pub fn has_notifications(&self) -> bool {
        self.session.drawn().outbox.mailbox.has_some.load(Ordering::Acquire) && self.may_hear()
    }

    fn may_hear(&self) -> bool {
        !self.session.is_open()
    }

    /// Whether it listens to a channel.
    pub fn is_listening(&self) -> bool {
        !lock(&self.session.drawn().outbox.said).channels.is_empty()
    }

    /// As [`Connection::notifications`], and waits so long where there is none; `None`: without end. Meanwhile the connection has no worker. Within a transaction nothing comes, and it does not wait.
    pub fn wait_for_notifications(&mut self, longest: Option<Duration>) -> Vec<Notification> {
        let clock = SystemClock::new();
        let most = longest.and_then(|longest| u64::try_from(longest.as_nanos()).ok()).unwrap_or(u64::MAX);
        if self.may_hear() && !self.has_notifications() {
            let _ = self.park();
        }
        loop {
            let heard = self.notifications(usize::MAX);
            let left = Duration::from_nanos(most.saturating_sub(clock.now_ns())).min(LOOK_AGAIN);
            if !heard.is_empty() || left.is_zero() || !self.may_hear() {
                return heard;
            }
            let mailbox = &self.session.drawn().outbox.mailbox;
            let messages = lock(&mailbox.messages);
            if messages.is_empty() {
                drop(mailbox.changed.wait_timeout(messages, left));
            }
        }
    }

    /// Has this done, in another thread, whenever the session was told something. Only the first one counts.
    pub fn on_notification(&mut self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.session.drawn().outbox.mailbox.waker.set(Box::new(wake));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox(post: &Arc<Post>) -> Outbox {
        let outbox = Outbox::default();
        outbox.connect(post);
        outbox
    }

    fn heard(outbox: &Outbox) -> Vec<String> {
        outbox.mailbox.take(usize::MAX).iter().map(|it| it.payload().to_owned()).collect()
    }

    fn listener(post: &Arc<Post>) -> Outbox {
        let own = outbox(post);
        own.said().listening.push(Listening::Begin("c".into()));
        own.reserve(0).unwrap();
        own.publish();
        own.end();
        own
    }

    #[test]
    fn places_are_told_in_their_order() {
        let post = Arc::default();
        let own = listener(&post);
        let [first, second, third] = [(); 3].map(|()| outbox(&post));
        for (outbox, text) in [(&first, "1"), (&second, "2"), (&third, "3")] {
            outbox.note("c", text).unwrap();
            outbox.note("c", text).unwrap();
            outbox.reserve(0).unwrap();
        }
        third.publish();
        assert_eq!(heard(&own), [""; 0]);
        // One that is run again takes its place anew.
        second.repeat();
        second.note("c", "4").unwrap();
        second.reserve(0).unwrap();
        first.publish();
        assert_eq!(heard(&own), ["1", "3"]);
        second.publish();
        assert_eq!(heard(&own), ["4"]);
        assert_eq!(post.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_undone_is_not_told() {
        let post = Arc::default();
        let (own, other) = (listener(&post), outbox(&post));
        other.note("c", "kept").unwrap();
        let mark = other.mark();
        other.note("c", "undone").unwrap();
        other.note("c", "kept").unwrap();
        other.return_to(mark);
        other.note("c", "undone").unwrap();
        other.return_to(mark);
        other.reserve(0).unwrap();
        other.publish();
        other.end();
        assert_eq!(heard(&own), ["kept"]);
        other.note("c", "lost").unwrap();
        other.reserve(0).unwrap();
        other.end();
        drop(other);
        assert_eq!(heard(&own), [""; 0]);
        assert!(lock(&post.line).entries.is_empty());
    }

    #[test]
    fn who_does_not_read_stops_those_who_tell() {
        let post = Arc::default();
        let (own, other) = (listener(&post), outbox(&post));
        let text = "x".repeat(LONGEST_TEXT);
        let mut count = 0;
        let refused = loop {
            other.note("c", &text).unwrap();
            if let Err(error) = other.reserve(0) {
                break error;
            }
            other.publish();
            other.end();
            count += 1;
        };
        assert_eq!(refused.state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
        assert!(count > 8000, "{count}");
        assert_eq!(own.mailbox.take(1).len(), 1);
        own.close();
        drop(own);
        assert_eq!(post.bytes.load(Ordering::Relaxed), 0);
        other.reserve(0).unwrap();
    }
}
