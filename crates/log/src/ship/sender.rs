//! The primary's side of one standby: it looks where the standby is, and sends what comes behind that.

use std::sync::Arc;

use polychron_engine::mutations::left_out;
use polychron_engine::redo::Order;
use polychron_sync::Mutex;

use super::base::Basing;
use super::message::{Decoder, Hello, MOST_FROM_STANDBY, Mark, Message, Refusal, Silence, encode};
use super::{Trouble, refused};
use crate::DatabaseId;
use crate::checkpoint::{Checkpoints, run};
use crate::disk::{Access, BLOCK, Buffer, Disk};
use crate::flush::Log;
use crate::flush::flusher::Framed;
use crate::flush::pool::path_of;
use crate::flush::replicas::Replica;
use crate::frame::{Frame, Header};
use crate::manifest::Manifests;
use crate::read::{self, Cursor};
use crate::steps::ShipStep;

/// An open database, of which standbys are sent the log.
pub struct Source<'s, D: Disk> {
    /// Its log.
    pub log: &'s Log<D>,
    /// Its manifests.
    pub manifests: &'s Mutex<Manifests<D>>,
    /// Its checkpoints, which give log files back.
    pub checkpoints: &'s Checkpoints<D>,
}

impl<D: Disk> Clone for Source<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Disk> Copy for Source<'_, D> {}

/// One connection to a standby.
pub struct Sender<D: Disk> {
    decoder: Decoder,
    /// How many messages were sent.
    sent: u64,
    state: State<D>,
    /// The tables that the standby knows are of this mark.
    mark: Mark,
    /// Its number, where log files are kept for it.
    hold: Option<u64>,
    /// The last epoch that the standby had before it was sent anything, if it is not known to be one of this history.
    unsure: u64,
    database: DatabaseId,
}

/// The reports of a standby to the primary that sends it frames.
pub struct Hearing {
    decoder: Decoder,
    /// The connection's number; none if the standby has nothing to say.
    connection: Option<u64>,
    unsure: u64,
    silence: Silence,
}

enum State<D: Disk> {
    /// The standby has said nothing yet.
    Silent,
    /// It has, and there is an answer.
    Greeted(Hello),
    /// It is sent files.
    Basing(Box<Basing<D>>),
    /// It is sent frames, the next one from here.
    Following(Cursor),
    /// Nothing more is sent.
    Ended(Option<Trouble>),
}

impl<D: Disk + Clone> Default for Sender<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D: Disk + Clone> Sender<D> {
    /// A connection that begins.
    pub fn new() -> Self {
        Self {
            decoder: Decoder::new(MOST_FROM_STANDBY),
            sent: 0,
            state: State::Silent,
            mark: Mark::default(),
            hold: None,
            unsure: 0,
            database: DatabaseId(0),
        }
    }

    /// Whether the standby has not said yet what it has.
    pub fn is_silent(&self) -> bool {
        matches!(self.state, State::Silent)
    }

    /// Whether nothing more is sent.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }

    /// The place of the next frame, if the standby is sent frames.
    pub(super) fn cursor(&self) -> Option<&Cursor> {
        if let State::Following(cursor) = &self.state { Some(cursor) } else { None }
    }

    /// Takes what the standby says.
    ///
    /// # Errors
    /// [`Trouble::Garbled`], [`Trouble::Version`].
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        self.decoder.push(bytes);
        while let Some(content) = self.decoder.next()? {
            let Some(Message::Hello(hello)) = Message::decode(content) else {
                return Err(Trouble::Garbled("a standby says what it has, and nothing else"));
            };
            if !matches!(self.state, State::Silent) {
                return Err(Trouble::Garbled("a standby says once what it has"));
            }
            self.state = State::Greeted(hello);
        }
        Ok(())
    }

    /// The receiver of the standby's messages from now on, once its first one was answered.
    pub fn hearing(&mut self, source: Source<'_, D>) -> Hearing {
        let decoder = std::mem::replace(&mut self.decoder, Decoder::new(0));
        let connection = self.hold.filter(|_| self.cursor().is_some());
        let silence = Silence::begin(Arc::clone(source.log.clock()));
        Hearing { decoder, connection, unsure: self.unsure, silence }
    }

    /// The next message, if there is something to send now.
    ///
    /// # Errors
    /// [`Trouble`]: the connection ends.
    pub fn next(&mut self, source: Source<'_, D>) -> Result<Option<Vec<u8>>, Trouble> {
        match &mut self.state {
            State::Silent => Ok(None),
            State::Greeted(hello) => {
                let hello = *hello;
                self.answer(source, &hello)
            }
            State::Basing(basing) => match basing.next(source)? {
                Some(message) => Ok(Some(message)),
                None => {
                    self.end(source, None);
                    Ok(None)
                }
            },
            State::Following(_) => self.frame(source),
            State::Ended(None) => Ok(None),
            State::Ended(Some(trouble)) => Err(trouble.clone()),
        }
    }

    /// That the primary is there.
    pub fn alive(&mut self, source: Source<'_, D>) -> Vec<u8> {
        let Framed { epoch, consistent, .. } = source.log.framed();
        self.message(&Message::Alive { epoch, consistent })
    }

    /// The connection has ended: nothing is kept for it from now on.
    pub fn end(&mut self, source: Source<'_, D>, why: Option<Trouble>) {
        if let Some(hold) = self.hold.take() {
            source.checkpoints.shared.hold_on(hold, None);
            source.log.leave(hold);
        }
        self.state = State::Ended(why);
    }

    fn message(&mut self, message: &Message<'_>) -> Vec<u8> {
        self.sent += 1;
        encode(message, self.sent - 1)
    }

    fn refuse(&mut self, source: Source<'_, D>, refusal: Refusal, seen: u64) -> Vec<u8> {
        self.end(source, Some(refused(refusal, seen)));
        self.message(&Message::Refused(refusal))
    }

    /// Answers what the standby has said.
    fn answer(&mut self, source: Source<'_, D>, hello: &Hello) -> Result<Option<Vec<u8>>, Trouble> {
        let (manifest, _) = run::current_of(source.manifests);
        self.database = manifest.database;
        if hello.database == DatabaseId(0) {
            let hold = source.checkpoints.shared.hold(manifest.first_log_file);
            self.hold = Some(hold);
            let mut basing = Basing::begin(source)?;
            let first = basing.next(source)?;
            self.state = State::Basing(Box::new(basing));
            return Ok(first);
        }
        if hello.database != manifest.database {
            return Ok(Some(self.refuse(source, Refusal::OtherDatabase, hello.incarnation)));
        }
        if hello.incarnation > manifest.incarnation && !left_out(ShipStep::RefuseLower) {
            return Ok(Some(self.refuse(source, Refusal::Fenced, hello.incarnation)));
        }
        self.hold = Some(source.checkpoints.shared.hold(hello.end.number));
        if let Some(refusal) = self.compare(source, hello)? {
            return Ok(Some(self.refuse(source, refusal, hello.incarnation)));
        }
        self.mark = hello.mark;
        self.state = State::Following(hello.end);
        let (database, incarnation) = (manifest.database, manifest.incarnation);
        Ok(Some(self.message(&Message::Welcome { database, incarnation })))
    }

    /// Whether the standby's log is the first part of this one.
    fn compare(&mut self, source: Source<'_, D>, hello: &Hello) -> Result<Option<Refusal>, Trouble> {
        let (framed, live, files) = (source.log.framed(), source.log.live(), &source.checkpoints.files);
        if (hello.end.number, hello.end.offset) > (framed.number, framed.offset) {
            return Ok(Some(Refusal::OtherHistory));
        }
        let first = live.first().map_or(0, |live| live.number);
        if hello.end.number + 1 < first {
            return Ok(Some(Refusal::TooFarBehind));
        }
        let Some(here) = live.iter().find(|live| live.number == hello.last.0) else {
            // The checksum of the last frame is compared with what the next one says of it.
            self.unsure = if left_out(ShipStep::CompareFirst) { 0 } else { hello.end.whole };
            return Ok(None);
        };
        let file = files.open(&path_of(here.slot), Access::Read)?;
        let mut block = Buffer::zeroed(BLOCK);
        let is_read = read::read_at(&file, hello.last.1, &mut block)?;
        let is_same = |(header, bytes): (Header, usize)| {
            let place = header.place;
            (place.file, place.offset) == hello.last
                && (place.file, place.offset + bytes as u64) == (hello.end.number, hello.end.offset)
                && Frame::checksum_of(&block) == hello.end.before
                && (header.incarnation, header.last_epoch) == (hello.end.incarnation, hello.end.whole)
        };
        let is_same = is_read && Frame::peek(&block).is_ok_and(is_same);
        Ok(if is_same { None } else { Some(Refusal::OtherHistory) })
    }

    /// The next frame that is durable, or the tables that come before it.
    fn frame(&mut self, source: Source<'_, D>) -> Result<Option<Vec<u8>>, Trouble> {
        let State::Following(cursor) = &mut self.state else { return Ok(None) };
        let mut last = source.log.framed();
        if left_out(ShipStep::AwaitDurable) {
            last.offset = u64::MAX;
        }
        let (live, mut next) = (source.log.live(), *cursor);
        let bytes = match read::next_frame(&source.checkpoints.files, self.database, &live, &mut next, &last) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(_) if left_out(ShipStep::AwaitDurable) => return Ok(None),
            Err(error) => {
                let number = cursor.number;
                let is_gone = source.log.live().first().is_some_and(|first| first.number > number);
                if !is_gone {
                    return Err(error.into());
                }
                return Ok(Some(self.refuse(source, Refusal::TooFarBehind, 0)));
            }
        };
        let Ok((header, _)) = Frame::peek(&bytes) else {
            return Err(Trouble::Garbled("a frame has changed while it was read"));
        };
        let mark = Mark { incarnation: header.incarnation, generation: header.manifest };
        if let Some((mark, catalog)) = source.checkpoints.shared.tables(mark, self.mark) {
            self.mark = mark;
            return Ok(Some(self.message(&Message::Tables { mark, catalog: &catalog })));
        }
        self.state = State::Following(next);
        if let Some(hold) = self.hold {
            source.checkpoints.shared.hold_on(hold, Some(next.number));
        }
        let file_bytes = source.log.bytes_of(header.place.file);
        Ok(Some(self.message(&Message::Frame { file_bytes, frame: &bytes })))
    }
}

impl Hearing {
    /// Whatever it was sent is being taken.
    pub(super) fn note_taken(&mut self) {
        self.silence.break_off();
    }

    /// Takes what the standby says: what it has durably. It is asked with nothing, too, whether it has been silent for too long. One that is sent its first
    /// files says nothing.
    ///
    /// # Errors
    /// [`Trouble::Garbled`], [`Trouble::Lost`].
    pub fn receive<D: Disk>(&mut self, bytes: &[u8], source: Source<'_, D>) -> Result<(), Trouble> {
        self.decoder.push(bytes);
        while let Some(content) = self.decoder.next()? {
            let Some(Message::Durable(said)) = Message::decode(content) else {
                return Err(Trouble::Garbled("a standby says what it has durably, and nothing else"));
            };
            let framed = source.log.framed();
            let is_own = said.incarnation == framed.incarnation;
            let consistent = if is_own { said.consistent } else { Order::default() };
            let is_sent = said.epoch <= framed.epoch && consistent <= framed.consistent;
            let Some(connection) = self.connection.filter(|_| is_sent) else {
                return Err(Trouble::Garbled("a standby has what it was not sent"));
            };
            if said.epoch > self.unsure {
                source.log.acknowledge(said.standby, Replica { connection, epoch: said.epoch, consistent });
            }
        }
        self.silence.note(&self.decoder);
        let is_late = self.connection.is_some() && self.silence.time() > source.log.silence_limit();
        if is_late && !left_out(ShipStep::EndSilent) {
            return Err(Trouble::Lost("the standby has said nothing for a while".to_owned()));
        }
        Ok(())
    }
}
