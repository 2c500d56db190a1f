//! Sessions: what one client says, from its first message to its last. A thread serves a session until its client is silent, and may be another one each time.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use polychron::Protocol;
use polychron_base::clock::Duration;
use polychron_sql::{Connection, KeptBecause, Parking, SqlError, SqlState, TransactionStatus};

use crate::Shared;
use crate::answers::Answers;
use crate::error::{End, malformed};
use crate::frames::{Cut, Frame, Incoming, LONGEST, cut};
use crate::messages::{Message, decode, is_extended, is_known};
use crate::registry::Place;
use crate::socket::Socket;
use crate::startup::{Newcomer, Start};
use crate::threads::{self, Task};

/// Memory that is kept for the next message.
const KEPT: usize = 1 << 20;
/// How long a client is silent, outside of transactions, before its session needs no thread, if transactions are not parked.
const SILENCE: Duration = Duration::from_millis(100);
/// The same of one that listens: there it hears at once.
const SILENCE_OF_LISTENERS: Duration = Duration::from_millis(2);
/// How many notifications are told before what is gathered is written.
const TOLD_AT_ONCE: usize = 1000;
/// How long a session that may be parked looks away.
const LOOK: Duration = Duration::from_millis(50);
/// How long a statement, or a new client, waits for a worker.
pub(crate) const WORKER_WAIT: Duration = Duration::from_secs(1);

/// What moves between a client and its session.
pub(crate) struct Wire {
    pub(crate) socket: Arc<Socket>,
    pub(crate) incoming: Incoming,
    pub(crate) answers: Answers,
    /// The client was found to be gone when rows were written.
    pub(crate) is_gone: bool,
    /// How long a read waits.
    longest_wait: Option<Duration>,
}

/// What has become of a read that waits for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Bytes,
    /// None have come in the time.
    Nothing,
    /// The client is gone.
    End,
}

impl Wire {
    /// Waits for the next frame; `false` at the end of the stream. What is gathered is written before it waits.
    pub(crate) fn fill(&mut self) -> Result<bool, End> {
        if !self.incoming.has_frame(LONGEST) {
            self.answers.write(&self.socket)?;
            self.set_longest_wait(None)?;
        }
        while !self.has_next()? {
            if !self.incoming.read(&self.socket)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the next frame is there. Behind a message that is none nobody knows what follows, and its length tells nothing.
    fn has_next(&self) -> Result<bool, End> {
        match self.incoming.waiting().first().copied() {
            None => Ok(false),
            Some(kind) if is_known(kind) => match cut(self.incoming.waiting(), 1, LONGEST) {
                Cut::Whole(_) => Ok(true),
                Cut::More => Ok(false),
                Cut::Wrong => Err(End::violation("invalid message length")),
            },
            Some(kind) => Err(End::violation(format!("invalid frontend message type {kind}"))),
        }
    }

    /// Writes what is gathered of the rows of an answer, if it is much. Where the client does not read, its query waits.
    pub(crate) fn write_much(&mut self) -> io::Result<()> {
        self.answers.write_much(&self.socket).map_err(|_| {
            self.is_gone = true;
            io::ErrorKind::BrokenPipe.into()
        })
    }

    /// Sets how long reads wait. The socket is told only of changes, so that a busy client costs no system call.
    fn set_longest_wait(&mut self, time: Option<Duration>) -> Result<(), End> {
        if self.longest_wait != time {
            self.socket.set_read_timeout(time)?;
            self.longest_wait = time;
        }
        Ok(())
    }

    /// Waits for bytes, for this time at most.
    fn wait(&mut self, time: Option<Duration>) -> Result<Read, End> {
        self.set_longest_wait(time)?;
        match self.incoming.read(&self.socket) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(Read::Nothing),
            read => Ok(if read? { Read::Bytes } else { Read::End }),
        }
    }
}

/// A client that has shown who it is.
pub(crate) struct Session<P: Protocol> {
    pub(crate) connection: Connection<P>,
    pub(crate) wire: Wire,
    /// An error of the extended protocol has come: nothing is done up to Sync.
    is_skipping: bool,
    /// The settings that the client was told, and how often settings had changed then.
    told_settings: Vec<(&'static str, String)>,
    settings_changes: u64,
    /// The last to go: the server waits for it.
    place: Arc<Place>,
}

/// Why a thread does not go on with a session that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The client is silent, and the session needs no thread. If the transaction ends with the silence: after this time.
    Silent(Option<Duration>),
    /// The client has ended the session.
    Ended,
}

/// What a session waits for has come, or not.
enum Rest {
    Frame,
    Gone,
    Silent(Option<Duration>),
}

/// What has become of a client that has come.
pub(crate) enum Begun<P: Protocol> {
    Session(Box<Session<P>>),
    /// It goes on after this time.
    Later(Box<Newcomer>, Duration),
}

/// Goes through the start of a connection. The error is how it has ended there.
pub(crate) fn begin<P: Protocol>(shared: &Arc<Shared<P>>, mut newcomer: Box<Newcomer>) -> Result<Begun<P>, End> {
    let timeout = shared.database.sql_database().configured_time("authentication_timeout");
    newcomer.begin(timeout.unwrap_or(shared.options.authentication_timeout));
    let admitted = newcomer.admit(shared);
    if let Ok(Start::Later(time)) = admitted {
        return Ok(Begun::Later(newcomer, time));
    }
    let Newcomer { socket, place, incoming, answers, .. } = *newcomer;
    let mut wire = Wire { socket, incoming, answers, is_gone: false, longest_wait: None };
    let connection = match admitted {
        Ok(Start::Session(connection)) => *connection,
        Ok(_) => return Err(End::Gone),
        Err(end) => return Err(wire.answers.write(&wire.socket).map_or_else(|gone| gone, |()| end)),
    };
    let (told_settings, settings_changes) = (connection.reported_parameters().collect(), connection.settings_changes());
    let mut session = Session { connection, wire, is_skipping: false, told_settings, settings_changes, place };
    session.wire.answers.ready(TransactionStatus::Idle);
    let (server, number) = (Arc::downgrade(shared), session.place.number);
    session.connection.on_notification(move || {
        if let Some(server) = server.upgrade()
            && let Some(session) = server.silent.rouse(number)
        {
            threads::run(&server, Task::GoOn(session));
        }
    });
    // It has said nothing yet.
    let _ = session.connection.park();
    Ok(Begun::Session(Box::new(session)))
}

impl<P: Protocol> Session<P> {
    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// Serves the client until it is silent or goes.
    ///
    /// # Errors
    /// How the session ends otherwise.
    pub(crate) fn serve(&mut self) -> Result<Pause, End> {
        let served = self.serve_messages();
        if !matches!(served, Ok(Pause::Silent(_))) {
            // What was answered before is told, whatever ends the session.
            self.wire.answers.write(&self.wire.socket)?;
        }
        served
    }

    /// Ends an idle transaction whose time is over, with its session.
    pub(crate) fn expired() -> End {
        let message = "terminating connection due to idle-in-transaction timeout";
        End::fatal(SqlState::IDLE_IN_TRANSACTION_TIMEOUT, message)
    }

    fn serve_messages(&mut self) -> Result<Pause, End> {
        let mut content = Vec::new();
        loop {
            if !self.wire.has_next()? {
                while self.tell() {
                    self.wire.answers.write(&self.wire.socket)?;
                }
                self.wire.answers.write(&self.wire.socket)?;
                self.place.note_bytes(self.wire.incoming.received, self.wire.answers.sent);
                if !self.connection.is_in_transaction() {
                    if !self.place.set_idle(true) {
                        return Err(End::shutdown());
                    }
                    if self.connection.is_worker_wanted() && !self.connection.is_pipelined() {
                        let _ = self.connection.park();
                    }
                }
                match self.rest()? {
                    Rest::Frame => self.place.set_idle(false),
                    // Idle as it is, it ends with the server.
                    Rest::Silent(ends_after) => return Ok(Pause::Silent(ends_after)),
                    Rest::Gone if self.place.is_stopping() => return Err(End::shutdown()),
                    Rest::Gone => return Ok(Pause::Ended),
                };
            }
            let next = self.wire.incoming.second_kind(LONGEST);
            // Messages are short but for COPY's, which are taken where they lie.
            let frame = self.wire.incoming.take(1, LONGEST);
            let kind = frame.kind;
            content.clear();
            content.extend_from_slice(frame.content);
            if !self.step(Frame { kind, content: &content }, next)? {
                return Ok(Pause::Ended);
            }
            if content.capacity() > KEPT {
                content = Vec::new();
            }
            self.wire.answers.write_much(&self.wire.socket)?;
        }
    }

    /// Waits for the next frame. After `park_after` the transaction is parked, or the worker alone given back, and the thread goes on without the session; after
    /// `idle_in_transaction_session_timeout` an open transaction ends with its session. A client that sends less than a frame is silent all the same.
    fn rest(&mut self) -> Result<Rest, End> {
        let is_in_transaction = self.connection.is_in_transaction();
        let ends_after = self.connection.idle_timeout().filter(|_| is_in_transaction);
        let parks_after = match self.connection.park_after() {
            _ if !is_in_transaction && !self.connection.is_pipelined() && self.connection.is_listening() => {
                Some(SILENCE_OF_LISTENERS)
            }
            // Transactions are not parked; the worker of none is not wanted.
            None if !is_in_transaction => Some(SILENCE),
            time => time.filter(|time| ends_after.is_none_or(|ends| *time < ends)),
        };
        let mut time = parks_after.or(ends_after);
        // Only a silence looks at clocks.
        loop {
            match self.wire.wait(time)? {
                Read::Bytes if self.wire.has_next()? => return Ok(Rest::Frame),
                Read::Bytes => continue,
                Read::End => return Ok(Rest::Gone),
                Read::Nothing => {}
            }
            let rested = self.connection.idle_for().unwrap_or_default();
            let left = ends_after.map(|ends| ends.saturating_sub(rested));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Self::expired());
            }
            // Nobody has told it while it waited here.
            if self.hears() {
                return Ok(Rest::Silent(left));
            }
            time = match parks_after.map(|_| self.connection.park_idle()) {
                Some(Parking::NoTransaction | Parking::Parked) => return Ok(Rest::Silent(left)),
                Some(Parking::Kept(KeptBecause::NotIdle)) => parks_after,
                // It stays open as long as nobody wants what it has.
                Some(Parking::Kept(KeptBecause::Reads)) => Some(left.map_or(LOOK, |left| left.min(LOOK))),
                // A transaction that cannot be parked stays open, in this thread.
                _ => left,
            };
        }
    }

    /// The session has no thread for some time: memory that only the next messages need goes.
    pub(crate) fn shrink(&mut self) {
        self.wire.incoming.shrink();
        self.wire.answers.shrink();
        self.connection.shrink();
    }

    /// Does what a message says; `next` is the kind of the message behind it, if that has come. `false`: it was the last one.
    fn step(&mut self, frame: Frame<'_>, next: Option<u8>) -> Result<bool, End> {
        let kind = frame.kind;
        if self.is_skipping && !matches!(kind, b'S' | b'X') {
            return Ok(true);
        }
        let done = match decode(frame) {
            Ok(Message::Terminate) => return Ok(false),
            Ok(message) => self.answer(message, next)?,
            Err(error) => Err(self.connection.fail_request(error)),
        };
        if let Err(error) = done {
            self.wire.answers.error(&error);
            match kind {
                _ if is_extended(kind) => self.is_skipping = true,
                b'Q' | b'F' | b'S' => self.ready(),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Answers a message. The outer error ends the session, the inner one is told.
    fn answer(&mut self, message: Message<'_>, next: Option<u8>) -> Result<Result<(), SqlError>, End> {
        Ok(match message {
            Message::Query(text) => {
                self.simple(text)?;
                self.ready();
                Ok(())
            }
            Message::Parse { name, text, types } => self.parse(name, text, types),
            Message::Bind(bind) => self.bind(&bind),
            Message::Describe(named) => self.describe(named),
            Message::Close(named) => {
                self.close(named);
                Ok(())
            }
            Message::Execute { portal, most } => return self.execute(portal, most, next),
            Message::Flush => {
                self.wire.answers.write(&self.wire.socket)?;
                Ok(())
            }
            Message::Sync => {
                self.is_skipping = false;
                let ended = self.connection.end_pipeline();
                if ended.is_ok() {
                    self.ready();
                }
                ended
            }
            Message::FunctionCall => {
                let message = "function calls of the protocol are not supported: use SELECT";
                let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
                Err(self.connection.fail_request(error))
            }
            // The client still sends what a COPY that has failed would have taken.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => Ok(()),
            Message::Terminate => Err(malformed("the session has ended")),
        })
    }

    /// Whether the session was told something that its client can be told now.
    pub(crate) fn hears(&self) -> bool {
        self.connection.has_notifications() && !self.connection.is_pipelined()
    }

    /// Tells the client what the session was told, outside of transactions, and whether there was something.
    fn tell(&mut self) -> bool {
        if !self.hears() {
            return false;
        }
        let told = self.connection.notifications(TOLD_AT_ONCE);
        told.iter().for_each(|told| self.wire.answers.notification(told));
        !told.is_empty()
    }

    /// Tells the client that it may go on, what has become of its transaction, and what has changed of its settings.
    fn ready(&mut self) {
        let status = self.connection.transaction_status();
        if status == TransactionStatus::Idle {
            self.connection.forget_portals();
        }
        if self.connection.settings_changes() != self.settings_changes {
            self.tell_settings();
        }
        if status == TransactionStatus::Idle {
            self.tell();
        }
        self.wire.answers.ready(status);
    }

    /// Tells the client which of the settings that it was told are others now.
    #[cold]
    fn tell_settings(&mut self) {
        self.settings_changes = self.connection.settings_changes();
        for (told, (name, value)) in self.told_settings.iter_mut().zip(self.connection.reported_parameters()) {
            if told.1 != value {
                self.wire.answers.parameter_status(name, &value);
                told.1 = value;
            }
        }
    }
}
