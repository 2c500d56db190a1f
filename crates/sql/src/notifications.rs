//! LISTEN and NOTIFY: what transactions tell sessions when they commit.
//!
//! A transaction that tells something takes a place in the line of the database just before it commits, and fills it when it has committed, or gives it up. Places are looked at in their order,
//! each once it is filled. So what a transaction tells comes behind all that those have told whose writes it has read, and that have committed before it began to. What it says about
//! channels, LISTEN and UNLISTEN, has its place there, too: a session hears all that takes a place behind that.
//!
//! Until then notes are the session's own. A transaction that is run again notes them again; what is told is what the run has noted that counts.

mod outbox;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use hashbrown::HashMap;
use polychron_sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::{SqlError, SqlState};

pub(crate) use outbox::{Channel, Outbox, SaidMark};

/// What all sessions together have not received yet takes so many bytes at most.
const MOST_BYTES: usize = 64 << 20;
/// What a note takes besides its texts, and a reference to it.
const NOTE_BYTES: usize = 96;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A channel and what is told there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Note {
    channel: Arc<str>,
    text: Arc<str>,
}

/// What a session was told.
#[derive(Clone)]
pub struct Notification(Arc<Message>);

impl Notification {
    /// The channel that the session listens to.
    pub fn channel(&self) -> &str {
        &self.0.note.channel
    }

    /// What was told with it; nothing where NOTIFY has said nothing.
    pub fn payload(&self) -> &str {
        &self.0.note.text
    }

    /// The number of the session that has told it (`pg_backend_pid`).
    pub fn process(&self) -> u32 {
        self.0.process
    }
}

impl fmt::Debug for Notification {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (channel, payload) = (self.channel(), self.payload());
        out.debug_struct("Notification").field("channel", &channel).field("payload", &payload).finish_non_exhaustive()
    }
}

/// A note on its way, which is counted as long as somebody has it.
#[derive(Debug)]
struct Message {
    note: Note,
    process: u32,
    bytes: Arc<AtomicUsize>,
}

impl Message {
    fn size(note: &Note) -> usize {
        note.channel.len() + note.text.len() + NOTE_BYTES
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // Relaxed, here and below: a count, which nothing is handed over with.
        self.bytes.fetch_sub(Self::size(&self.note), Ordering::Relaxed);
    }
}

/// What a statement says about channels.
#[derive(Clone, Debug)]
enum Listening {
    Begin(Arc<str>),
    End(Arc<str>),
    EndAll,
}

/// What a transaction has told that has committed.
#[derive(Debug)]
struct Told {
    by: Arc<Mailbox>,
    listening: Vec<Listening>,
    messages: Vec<Arc<Message>>,
}

/// A place in the line.
#[derive(Debug)]
enum Entry {
    /// Its transaction commits at this time.
    Open,
    /// It has ended, and tells something if it has committed.
    Ended(Option<Told>),
}

#[derive(Debug, Default)]
struct Line {
    /// The number of the first place.
    first: u64,
    entries: VecDeque<Entry>,
    listeners: HashMap<Arc<str>, Vec<Arc<Mailbox>>>,
}

/// What the sessions of a database tell each other.
#[derive(Debug, Default)]
pub(crate) struct Post {
    line: Mutex<Line>,
    bytes: Arc<AtomicUsize>,
}

impl Line {
    /// Hands out what is at the head of the line, and notes who has got something.
    fn hand_out(&mut self, bytes: &Arc<AtomicUsize>, woken: &mut Vec<Arc<Mailbox>>) {
        while let Some(Entry::Ended(_)) = self.entries.front() {
            self.first += 1;
            let Some(Entry::Ended(Some(told))) = self.entries.pop_front() else { continue };
            told.listening.iter().for_each(|of| self.listen(of, &told.by));
            for message in told.messages {
                for mailbox in self.listeners.get(&message.note.channel).into_iter().flatten() {
                    mailbox.put(&message, bytes);
                    if !woken.iter().any(|own| Arc::ptr_eq(own, mailbox)) {
                        woken.push(mailbox.clone());
                    }
                }
            }
        }
    }

    fn listen(&mut self, of: &Listening, by: &Arc<Mailbox>) {
        match of {
            Listening::Begin(channel) => {
                let listeners = self.listeners.entry(channel.clone()).or_default();
                if !listeners.iter().any(|own| Arc::ptr_eq(own, by)) {
                    listeners.push(by.clone());
                }
            }
            Listening::End(channel) => {
                if let Some(listeners) = self.listeners.get_mut(channel) {
                    listeners.retain(|own| !Arc::ptr_eq(own, by));
                    if listeners.is_empty() {
                        self.listeners.remove(channel);
                    }
                }
            }
            Listening::EndAll => self.listeners.retain(|_, listeners| {
                listeners.retain(|own| !Arc::ptr_eq(own, by));
                !listeners.is_empty()
            }),
        }
    }
}

impl Post {
    /// The part of [`MOST_BYTES`] that is taken.
    fn usage(&self) -> f64 {
        self.bytes.load(Ordering::Relaxed) as f64 / MOST_BYTES as f64
    }

    /// A place for what a transaction tells that is about to commit.
    fn reserve(self: &Arc<Self>, notes: &[Note], process: u32) -> Result<Place, SqlError> {
        let bytes: usize = notes.iter().map(Message::size).sum();
        if bytes > 0 && self.bytes.load(Ordering::Relaxed).saturating_add(bytes) > MOST_BYTES {
            let message = "too many notifications in the NOTIFY queue";
            let detail = format!("Sessions have {MOST_BYTES} bytes of notifications that their clients do not read.");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).with_detail(detail));
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let message = |note: &Note| Arc::new(Message { note: note.clone(), process, bytes: self.bytes.clone() });
        let messages = notes.iter().map(message).collect();
        let mut line = lock(&self.line);
        line.entries.push_back(Entry::Open);
        let number = line.first + line.entries.len() as u64 - 1;
        Ok(Place { post: self.clone(), number, messages })
    }

    /// The transaction at a place has ended.
    fn end(&self, number: u64, told: Option<Told>) {
        let mut woken = Vec::new();
        let mut line = lock(&self.line);
        let at = usize::try_from(number - line.first).unwrap_or(usize::MAX);
        if let Some(entry) = line.entries.get_mut(at) {
            *entry = Entry::Ended(told);
        }
        line.hand_out(&self.bytes, &mut woken);
        drop(line);
        woken.iter().for_each(|mailbox| mailbox.wake());
    }
}

/// A place in the line of a transaction that commits. Dropped, it tells nothing.
#[derive(Debug)]
struct Place {
    post: Arc<Post>,
    number: u64,
    messages: Vec<Arc<Message>>,
}

impl Place {
    fn fill(mut self, by: &Arc<Mailbox>, listening: Vec<Listening>) {
        let messages = std::mem::take(&mut self.messages);
        let told = Told { by: by.clone(), listening, messages };
        self.post.end(self.number, Some(told));
        // Its place is over.
        self.number = u64::MAX;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.number != u64::MAX {
            self.post.end(self.number, None);
        }
    }
}

/// What was told to a session, until it looks.
#[derive(Default)]
struct Mailbox {
    messages: Mutex<VecDeque<Arc<Message>>>,
    has_some: AtomicBool,
    changed: Condvar,
    /// What tells the session that something is there.
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// What the references take is counted here.
    bytes: OnceLock<Arc<AtomicUsize>>,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl Mailbox {
    fn put(&self, message: &Arc<Message>, bytes: &Arc<AtomicUsize>) {
        self.bytes.get_or_init(|| bytes.clone()).fetch_add(size_of::<Arc<Message>>(), Ordering::Relaxed);
        let mut messages = lock(&self.messages);
        messages.push_back(message.clone());
        // Under the lock, so that it says what is there.
        self.has_some.store(true, Ordering::Release);
    }

    fn wake(&self) {
        self.changed.notify_all();
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    fn take(&self, most: usize) -> Vec<Notification> {
        // Acquire: pairs with the release where something is put.
        if !self.has_some.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut messages = lock(&self.messages);
        let count = messages.len().min(most);
        let taken: Vec<_> = messages.drain(..count).map(Notification).collect();
        self.has_some.store(!messages.is_empty(), Ordering::Release);
        drop(messages);
        self.forget(taken.len());
        taken
    }

    fn forget(&self, count: usize) {
        if let Some(bytes) = self.bytes.get() {
            bytes.fetch_sub(count * size_of::<Arc<Message>>(), Ordering::Relaxed);
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let count = lock(&self.messages).len();
        self.forget(count);
    }
}
