//! COPY: data that go to the client, or come from it.

use std::cell::RefCell;
use std::io;

use polychron::Protocol;
use polychron_sql::{CopyShape, SqlError, SqlState, Take};

use crate::answers::Answers;
use crate::error::{End, malformed};
use crate::frames::LONGEST;
use crate::messages::{Message, decode};
use crate::session::{Session, Wire};
use crate::socket::Socket;

/// Data for the client, a row with each call. Where the client does not read, the query waits.
struct Rows<'w> {
    answers: &'w RefCell<&'w mut Answers>,
    socket: &'w Socket,
    /// The client is gone.
    is_gone: bool,
}

impl io::Write for Rows<'_> {
    fn write(&mut self, row: &[u8]) -> io::Result<usize> {
        let mut answers = self.answers.borrow_mut();
        answers.put(b'd', |out| out.extend_from_slice(row));
        if answers.write_much(self.socket).is_err() {
            self.is_gone = true;
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(row.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How the data of a client end.
enum Ended {
    Done,
    /// With the reason.
    Failed(String),
    /// Something else came.
    Wrong(SqlError),
    /// They were not taken.
    Refused(SqlError),
}

/// Hands the data that the client sends to `take`, until they end.
fn receive(wire: &mut Wire, take: &mut Take<'_>) -> Result<Ended, End> {
    loop {
        if !wire.fill()? {
            return Err(End::Gone);
        }
        let frame = wire.incoming.take(1, LONGEST);
        let kind = frame.kind;
        match decode(frame) {
            Ok(Message::CopyData(data)) => {
                if let Err(error) = take(data) {
                    return Ok(Ended::Refused(error));
                }
            }
            Ok(Message::CopyDone) => return Ok(Ended::Done),
            Ok(Message::CopyFail(reason)) => return Ok(Ended::Failed(reason.to_owned())),
            // Clients send them without looking at what runs.
            Ok(Message::Flush | Message::Sync) => {}
            Ok(Message::Terminate) => return Err(End::Gone),
            Ok(_) => {
                let message = format!("unexpected message type 0x{kind:02X} during COPY from stdin");
                return Ok(Ended::Wrong(malformed(message)));
            }
            Err(error) => return Ok(Ended::Wrong(error)),
        }
    }
}

fn given_up(reason: &str) -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, format!("COPY from stdin failed: {reason}"))
}

impl Wire {
    /// Asks the client for the data of a COPY, and hands them to `take`. The outer error ends the session.
    pub(crate) fn receive_copy(&mut self, shape: CopyShape, take: &mut Take<'_>) -> Result<Result<(), SqlError>, End> {
        self.answers.copy(b'G', shape);
        Ok(match receive(self, take)? {
            Ended::Done => Ok(()),
            Ended::Failed(reason) => Err(given_up(&reason)),
            Ended::Wrong(error) | Ended::Refused(error) => Err(error),
        })
    }
}

impl<P: Protocol> Session<P> {
    /// Runs a COPY whose data the client gets.
    pub(crate) fn copy_out(&mut self, text: &str) -> Result<Result<(), SqlError>, End> {
        let socket = &*self.wire.socket.clone();
        let answers = RefCell::new(&mut self.wire.answers);
        let mut rows = Rows { answers: &answers, socket, is_gone: false };
        let mut begun = |shape| answers.borrow_mut().copy(b'H', shape);
        let copied = self.connection.copy_out_by_row(text, &mut begun, &mut rows);
        if rows.is_gone {
            return Err(End::Gone);
        }
        Ok(copied.map(|count| {
            self.wire.answers.plain(b'c');
            self.wire.answers.complete(&format!("COPY {count}"));
        }))
    }

    /// Runs a COPY whose data the client sends.
    pub(crate) fn copy_in(&mut self, text: &str) -> Result<Result<(), SqlError>, End> {
        let mut copy = match self.connection.copy_in(text) {
            Ok(copy) => copy,
            Err(error) => return Ok(Err(error)),
        };
        self.wire.answers.copy(b'G', copy.shape());
        Ok(match receive(&mut self.wire, &mut |data| copy.write(data))? {
            Ended::Done => copy.finish().map(|count| self.wire.answers.complete(&format!("COPY {count}"))),
            Ended::Failed(reason) => {
                copy.abandon(&reason);
                Err(given_up(&reason))
            }
            Ended::Wrong(error) => {
                copy.abandon(error.message());
                Err(error)
            }
            Ended::Refused(error) => Err(error),
        })
    }
}
