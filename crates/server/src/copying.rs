//! COPY: data that go to the client, or come from it.

use std::cell::RefCell;
use std::io;

use polychron::Protocol;
use polychron_sql::{SqlError, SqlState};

use crate::answers::Answers;
use crate::error::{End, malformed};
use crate::frames::LONGEST;
use crate::messages::{Message, decode};
use crate::session::Session;
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
        let ended = loop {
            if !self.wire.fill()? {
                return Err(End::Gone);
            }
            let frame = self.wire.incoming.take(1, LONGEST);
            let kind = frame.kind;
            match decode(frame) {
                Ok(Message::CopyData(data)) => {
                    if let Err(error) = copy.write(data) {
                        return Ok(Err(error));
                    }
                }
                Ok(Message::CopyDone) => break Ended::Done,
                Ok(Message::CopyFail(reason)) => break Ended::Failed(reason.to_owned()),
                // Clients send them without looking at what runs.
                Ok(Message::Flush | Message::Sync) => {}
                Ok(Message::Terminate) => return Err(End::Gone),
                Ok(_) => {
                    let message = format!("unexpected message type 0x{kind:02X} during COPY from stdin");
                    break Ended::Wrong(malformed(message));
                }
                Err(error) => break Ended::Wrong(error),
            }
        };
        Ok(match ended {
            Ended::Done => copy.finish().map(|count| self.wire.answers.complete(&format!("COPY {count}"))),
            Ended::Failed(reason) => {
                copy.abandon(&reason);
                Err(SqlError::new(SqlState::QUERY_CANCELED, format!("COPY from stdin failed: {reason}")))
            }
            Ended::Wrong(error) => {
                copy.abandon(error.message());
                Err(error)
            }
        })
    }
}
