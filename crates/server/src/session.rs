//! Sessions: what one client says, from its first message to its last, on a thread of its own.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use polychron::Protocol;
use polychron_base::clock::Duration;
use polychron_sql::{Connection, SqlError, SqlState, TransactionStatus};

use crate::Shared;
use crate::answers::Answers;
use crate::error::{End, malformed};
use crate::extended::Extended;
use crate::frames::{Frame, Incoming, LONGEST};
use crate::messages::{Message, decode, is_extended, is_known};
use crate::registry::Place;
use crate::socket::Socket;
use crate::startup::Newcomer;

/// Memory that is kept for the next message.
const KEPT: usize = 1 << 20;

/// What moves between a client and its session.
pub(crate) struct Wire<'s> {
    pub(crate) socket: &'s Socket,
    pub(crate) incoming: Incoming,
    pub(crate) answers: Answers,
    /// How long a read waits.
    longest_wait: Option<Duration>,
}

impl Wire<'_> {
    /// Waits for the next frame; `false` at the end of the stream. What is gathered is written before it waits.
    pub(crate) fn fill(&mut self) -> Result<bool, End> {
        if !self.incoming.has_frame(LONGEST) {
            self.answers.write(self.socket)?;
            self.set_longest_wait(None)?;
        }
        // Behind a message that is none nobody knows what follows, and its length tells nothing.
        loop {
            match self.incoming.waiting().first().copied() {
                Some(kind) if is_known(kind) => return self.incoming.fill(self.socket, 1, LONGEST),
                Some(kind) => return Err(End::violation(format!("invalid frontend message type {kind}"))),
                None if !self.incoming.read(self.socket)? => return Ok(false),
                None => {}
            }
        }
    }

    /// Sets how long reads wait. The socket is told only of changes, so that a busy client costs no system call.
    fn set_longest_wait(&mut self, time: Option<Duration>) -> Result<(), End> {
        if self.longest_wait != time {
            self.socket.set_read_timeout(time)?;
            self.longest_wait = time;
        }
        Ok(())
    }

    /// Waits for bytes, for this time at most; `false`: none have come.
    fn wait(&mut self, time: Duration) -> Result<bool, End> {
        self.set_longest_wait(Some(time))?;
        match self.incoming.read(self.socket) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
            read => Ok(read.map(|_| true)?),
        }
    }
}

/// A client that has shown who it is.
pub(crate) struct Session<'s, P: Protocol> {
    pub(crate) connection: Connection<P>,
    pub(crate) wire: Wire<'s>,
    pub(crate) extended: Extended,
    place: &'s Place,
    /// An error of the extended protocol has come: nothing is done up to Sync.
    is_skipping: bool,
    /// The name of the application that the client was told.
    application: String,
}

/// Serves a client until it goes.
pub(crate) fn run<P: Protocol>(shared: &Arc<Shared<P>>, socket: &Arc<Socket>, place: Place) {
    let mut answers = Answers::default();
    let served = catch_unwind(AssertUnwindSafe(|| serve(shared, socket, &place)));
    let end = served.unwrap_or_else(|_| End::fatal(SqlState::INTERNAL_ERROR, "the session has panicked"));
    if let End::Fatal(error) = end {
        answers.fatal(&error);
        let _ = answers.write(socket);
    }
    socket.shut_down(Shutdown::Both);
    drop(place);
}

/// The answer is how the session has ended.
fn serve<P: Protocol>(shared: &Arc<Shared<P>>, socket: &Arc<Socket>, place: &Place) -> End {
    let mut newcomer = Newcomer::new(socket, place, &shared.options);
    let admitted = newcomer.admit(shared);
    let (incoming, answers) = (std::mem::take(&mut newcomer.incoming), std::mem::take(&mut newcomer.answers));
    let mut wire = Wire { socket, incoming, answers, longest_wait: None };
    let connection = match admitted {
        Ok(Some(connection)) => connection,
        Ok(None) => return End::Gone,
        Err(end) => return wire.answers.write(socket).map_or_else(|gone| gone, |()| end),
    };
    let application = connection.application_name().to_owned();
    let extended = Extended::default();
    let mut session = Session { connection, wire, extended, place, is_skipping: false, application };
    session.wire.answers.ready(TransactionStatus::Idle);
    let end = match session.serve() {
        Ok(()) => End::Gone,
        Err(end) => end,
    };
    // What was answered before is told, whatever ends the session.
    match session.wire.answers.write(socket) {
        Ok(()) => end,
        Err(gone) => gone,
    }
}

impl<P: Protocol> Session<'_, P> {
    fn serve(&mut self) -> Result<(), End> {
        let mut content = Vec::new();
        loop {
            let waits = !self.wire.incoming.has_frame(LONGEST);
            if waits {
                self.wire.answers.write(self.wire.socket)?;
                self.place.note_bytes(self.wire.incoming.received, self.wire.answers.sent);
                if !self.connection.is_in_transaction() && !self.place.set_idle(true) {
                    return Err(End::shutdown());
                }
                self.rest()?;
            }
            let has_frame = self.wire.fill()?;
            if waits {
                self.place.set_idle(false);
            }
            if !has_frame {
                return if self.place.is_stopping() { Err(End::shutdown()) } else { Ok(()) };
            }
            let next = self.wire.incoming.second_kind(LONGEST);
            // Messages are short but for COPY's, which are taken where they lie.
            let frame = self.wire.incoming.take(1, LONGEST);
            let kind = frame.kind;
            content.clear();
            content.extend_from_slice(frame.content);
            if !self.step(Frame { kind, content: &content }, next)? {
                return Ok(());
            }
            if content.capacity() > KEPT {
                content = Vec::new();
            }
            self.wire.answers.write_much(self.wire.socket)?;
        }
    }

    /// Waits for the client. After `park_after` the transaction is parked, or the worker alone given back; after
    /// `idle_in_transaction_session_timeout` an open transaction ends with its session.
    fn rest(&mut self) -> Result<(), End> {
        let ends_after = self.connection.idle_timeout().filter(|_| self.connection.is_in_transaction());
        let parks_after = self.connection.park_after().filter(|time| ends_after.is_none_or(|ends| *time < ends));
        if let Some(time) = parks_after {
            if self.wire.wait(time)? {
                return Ok(());
            }
            // A transaction that cannot be parked stays open.
            let _ = self.connection.park_idle();
        }
        if let Some(time) = ends_after
            && !self.wire.wait(time.saturating_sub(parks_after.unwrap_or_default()))?
        {
            let message = "terminating connection due to idle-in-transaction timeout";
            return Err(End::fatal(SqlState::IDLE_IN_TRANSACTION_TIMEOUT, message));
        }
        Ok(())
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
                self.wire.answers.write(self.wire.socket)?;
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

    /// Tells the client that it may go on, what has become of its transaction, and what has changed of its settings.
    fn ready(&mut self) {
        let status = self.connection.transaction_status();
        if status == TransactionStatus::Idle {
            self.extended.forget_portals();
        }
        if self.connection.application_name() != self.application {
            self.connection.application_name().clone_into(&mut self.application);
            self.wire.answers.parameter_status("application_name", &self.application);
        }
        self.wire.answers.ready(status);
    }
}
