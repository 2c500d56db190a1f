//! The messages between a primary and a standby.
//!
//! A message is an envelope of four numbers, all of them little-endian, and its content:
//!
//! | bytes | what |
//! |---|---|
//! | 0–3 | length of what is behind byte 16 |
//! | 4–7 | checksum of all behind it |
//! | 8–15 | how many messages of this connection and direction came before |
//! | 16 | kind |
//! | 17– | content |
//!
//! So one that is damaged, left out, repeated or overtaken is recognised, whatever carries it. A connection begins with the standby's `Hello`, which the
//! primary answers by `Refused`, or by `Welcome` and all further messages. Behind a `Welcome` the standby says again and again what it has: `Durable`, when that is more, and to each `Alive`. Nothing is kept of a message that is longer than the receiver expects.

use std::sync::Arc;

use polychron_base::clock::{Clock, Duration};
use polychron_engine::redo::Order;

use crate::DatabaseId;
use crate::codec::{Reader, checksum};
use crate::frame::{MAX_CONTENT_BYTES, frame_bytes};
use crate::read::Cursor;

/// The version of the messages. `Hello` and `Refused` stay as they are.
const VERSION: u32 = 3;
const ENVELOPE: usize = 16;
/// The longest message that a primary expects.
pub(super) const MOST_FROM_STANDBY: usize = 256;
/// How much of a file is sent at once.
pub(super) const PIECE: usize = 1 << 20;

/// The longest message that a standby expects: a frame, or a list of tables, which lies in a manifest.
pub(super) fn most_from_primary() -> usize {
    frame_bytes(MAX_CONTENT_BYTES).max(crate::manifest::MAX_BYTES) + 64
}

/// When a list of tables began to count: the opening of the database, and the manifest's generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub(crate) incarnation: u64,
    pub(crate) generation: u64,
}

/// The state of a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The database; 0 of a standby that has nothing yet.
    pub(super) database: DatabaseId,
    /// The highest incarnation that it has seen.
    pub(super) incarnation: u64,
    /// Where its log ends.
    pub(super) end: Cursor,
    /// Where the last frame of its log begins.
    pub(super) last: (u64, u64),
    /// Which tables it knows.
    pub(super) mark: Mark,
}

/// The position up to which a standby is durable, of frames that the primary on this connection has or has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Durable {
    /// Which standby it is, however often it connects.
    pub(super) standby: u128,
    /// All up to this epoch.
    pub(super) epoch: u64,
    /// This opening, and the order up to which its transactions have ended, by the last of those frames.
    pub(super) incarnation: u64,
    pub(super) consistent: Order,
}

/// Why a primary sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The messages have another version.
    Version = 1,
    /// It is another database.
    OtherDatabase = 2,
    /// The standby has seen a later opening of the database.
    Fenced = 3,
    /// The standby's log is not a part of the primary's.
    OtherHistory = 4,
    /// The log behind what the standby has is gone.
    TooFarBehind = 5,
}

/// The kind of a new standby's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// The file of the checkpoint that the manifest names at this place.
    Checkpoint(u32),
    /// A log file, in this slot.
    Log(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'b> {
    Hello(Hello),
    Refused(Refusal),
    /// Frames follow, of an opening of this database.
    Welcome {
        database: DatabaseId,
        incarnation: u64,
    },
    /// A new standby is to have this manifest, and files follow.
    Base {
        manifest: &'b [u8],
    },
    /// A file of this length; what it begins with follows, and the rest is zero.
    File {
        kind: FileKind,
        bytes: u64,
    },
    /// A piece of the file.
    Piece(&'b [u8]),
    /// All files have come.
    BaseEnd {
        mark: Mark,
    },
    /// These are the tables from the first frame on that is of this opening and generation, or later.
    Tables {
        mark: Mark,
        catalog: &'b [u8],
    },
    /// A frame, and how long its log file is.
    Frame {
        file_bytes: u64,
        frame: &'b [u8],
    },
    /// The primary is there, and all up to this epoch is durable; up to which order transactions have ended.
    Alive {
        epoch: u64,
        consistent: Order,
    },
    Durable(Durable),
}

/// The bytes of a message, of which so many came before on its connection.
pub(super) fn encode(message: &Message<'_>, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; ENVELOPE];
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    message.write(&mut bytes);
    let length = (bytes.len() - ENVELOPE) as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(&[&bytes[8..]]);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn numbers(bytes: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    bytes.push(kind);
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
}

impl<'b> Message<'b> {
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => {
                let Hello { database, incarnation, end, last, mark } = hello;
                bytes.push(0);
                bytes.extend_from_slice(&VERSION.to_le_bytes());
                bytes.extend_from_slice(&database.0.to_le_bytes());
                let all = [
                    *incarnation,
                    end.number,
                    end.offset,
                    end.whole,
                    end.incarnation,
                    end.before.into(),
                    last.0,
                    last.1,
                    mark.incarnation,
                    mark.generation,
                ];
                all.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            }
            Self::Refused(refusal) => numbers(bytes, 1, &[*refusal as u64]),
            Self::Welcome { database, incarnation } => {
                numbers(bytes, 2, &[*incarnation]);
                bytes.extend_from_slice(&database.0.to_le_bytes());
            }
            Self::Base { manifest } => {
                numbers(bytes, 3, &[]);
                bytes.extend_from_slice(manifest);
            }
            Self::File { kind, bytes: length } => {
                let (kind, number) = match kind {
                    FileKind::Checkpoint(number) => (0, *number),
                    FileKind::Log(slot) => (1, *slot),
                };
                numbers(bytes, 4, &[kind, number.into(), *length]);
            }
            Self::Piece(piece) => {
                numbers(bytes, 5, &[]);
                bytes.extend_from_slice(piece);
            }
            Self::BaseEnd { mark } => numbers(bytes, 6, &[mark.incarnation, mark.generation]),
            Self::Tables { mark, catalog } => {
                numbers(bytes, 7, &[mark.incarnation, mark.generation]);
                bytes.extend_from_slice(catalog);
            }
            Self::Frame { file_bytes, frame } => {
                numbers(bytes, 8, &[*file_bytes]);
                bytes.extend_from_slice(frame);
            }
            Self::Alive { epoch, consistent } => numbers(bytes, 9, &[*epoch, consistent.era, consistent.timestamp]),
            Self::Durable(Durable { standby, epoch, incarnation, consistent }) => {
                numbers(bytes, 10, &[*epoch, *incarnation, consistent.era, consistent.timestamp]);
                bytes.extend_from_slice(&standby.to_le_bytes());
            }
        }
    }

    /// The message that these bytes are, behind their envelope.
    pub(super) fn decode(bytes: &'b [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            0 => return read_hello(reader),
            1 => Self::Refused(refusal_of(reader.u64()?)?),
            2 => {
                let incarnation = reader.u64()?;
                Self::Welcome { database: DatabaseId(reader.u128()?), incarnation }
            }
            3 => return Some(Self::Base { manifest: reader.rest() }),
            4 => {
                let (kind, number, bytes) = (reader.u64()?, u32::try_from(reader.u64()?).ok()?, reader.u64()?);
                let kind = match kind {
                    0 => FileKind::Checkpoint(number),
                    1 => FileKind::Log(number),
                    _ => return None,
                };
                Self::File { kind, bytes }
            }
            5 => return Some(Self::Piece(reader.rest())),
            6 => Self::BaseEnd { mark: read_mark(&mut reader)? },
            7 => {
                let mark = read_mark(&mut reader)?;
                return Some(Self::Tables { mark, catalog: reader.rest() });
            }
            8 => {
                let file_bytes = reader.u64()?;
                return Some(Self::Frame { file_bytes, frame: reader.rest() });
            }
            9 => {
                let epoch = reader.u64()?;
                Self::Alive { epoch, consistent: read_order(&mut reader)? }
            }
            10 => {
                let (epoch, incarnation, consistent) = (reader.u64()?, reader.u64()?, read_order(&mut reader)?);
                Self::Durable(Durable { standby: reader.u128()?, epoch, incarnation, consistent })
            }
            _ => return None,
        };
        (reader.left() == 0).then_some(message)
    }
}

fn read_order(reader: &mut Reader<'_>) -> Option<Order> {
    Some(Order { era: reader.u64()?, timestamp: reader.u64()? })
}

fn read_mark(reader: &mut Reader<'_>) -> Option<Mark> {
    Some(Mark { incarnation: reader.u64()?, generation: reader.u64()? })
}

fn read_hello<'b>(mut reader: Reader<'_>) -> Option<Message<'b>> {
    if reader.u32()? != VERSION {
        return None;
    }
    let (database, highest) = (DatabaseId(reader.u128()?), reader.u64()?);
    let (number, offset, whole, incarnation) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    let before = u32::try_from(reader.u64()?).ok()?;
    let last = (reader.u64()?, reader.u64()?);
    let mark = read_mark(&mut reader)?;
    let end = Cursor { number, offset, whole, incarnation, before, is_unfinished: false };
    (reader.left() == 0).then_some(Message::Hello(Hello { database, incarnation: highest, end, last, mark }))
}

fn refusal_of(number: u64) -> Option<Refusal> {
    use Refusal as R;
    let all = [R::Version, R::OtherDatabase, R::Fenced, R::OtherHistory, R::TooFarBehind];
    all.into_iter().find(|refusal| *refusal as u64 == number)
}

/// Bytes are no message, or not the one that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled(pub(super) &'static str);

/// So much of a message that is not whole yet shows that the other side goes on with it.
const PART: usize = 64 << 10;

/// Puts messages together from bytes as they come.
#[derive(Debug)]
pub(super) struct Decoder {
    bytes: Vec<u8>,
    /// How many bytes of these were taken.
    taken: usize,
    next: u64,
    most: usize,
}

impl Decoder {
    /// For messages of at most so many bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), taken: 0, next: 0, most }
    }

    /// Takes bytes in. Messages are taken out before there are more.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > 4 * PIECE {
            // What a huge frame took is given back.
            self.bytes = Vec::new();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message behind its envelope, if all of it has come.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Garbled> {
        let rest = &self.bytes[self.taken..];
        let mut reader = Reader::new(rest);
        let (Some(length), Some(sum), Some(number)) = (reader.u32(), reader.u32(), reader.u64()) else {
            return Ok(None);
        };
        if length as usize > self.most || length == 0 {
            return Err(Garbled("a message has a length that none has"));
        }
        let Some(content) = reader.take(length as usize) else { return Ok(None) };
        if checksum(&[&number.to_le_bytes(), content]) != sum {
            return Err(Garbled("a message is damaged"));
        }
        if number != self.next {
            return Err(Garbled("a message is not the one that comes next"));
        }
        self.next += 1;
        let start = self.taken + ENVELOPE;
        self.taken = start + length as usize;
        Ok(Some(&self.bytes[start..self.taken]))
    }

    /// How many messages were taken, and how many parts have come of the next one.
    fn progress(&self) -> (u64, usize) {
        (self.next, (self.bytes.len() - self.taken) / PART)
    }
}

/// For how long nothing has come that counts: a message, or a long part of one. Whoever sends single bytes says nothing.
pub(super) struct Silence {
    clock: Arc<dyn Clock>,
    since_ns: u64,
    progress: (u64, usize),
}

impl Silence {
    /// A connection begins, whose time this clock shows.
    pub(super) fn begin(clock: Arc<dyn Clock>) -> Self {
        Self { since_ns: clock.now_ns(), clock, progress: (0, 0) }
    }

    /// The other side has shown in another way that it is there.
    pub(super) fn break_off(&mut self) {
        self.since_ns = self.clock.now_ns();
    }

    /// What has come was taken.
    pub(super) fn note(&mut self, decoder: &Decoder) {
        if self.progress != decoder.progress() {
            self.break_off();
            self.progress = decoder.progress();
        }
    }

    /// How long it is.
    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos(self.clock.now_ns().saturating_sub(self.since_ns))
    }
}

#[cfg(test)]
mod tests {
    use polychron_base::random::Random;

    use super::*;

    fn samples() -> Vec<Vec<u8>> {
        let end = Cursor { number: 3, offset: 8192, whole: 70, incarnation: 2, before: 99, is_unfinished: false };
        let mark = Mark { incarnation: 2, generation: 7 };
        let hello = Hello { database: DatabaseId(5), incarnation: 2, end, last: (3, 4096), mark };
        let messages = [
            Message::Hello(hello),
            Message::Refused(Refusal::Fenced),
            Message::Welcome { database: DatabaseId(9), incarnation: 4 },
            Message::Base { manifest: b"manifest" },
            Message::File { kind: FileKind::Checkpoint(2), bytes: 4096 },
            Message::File { kind: FileKind::Log(0), bytes: 1 << 20 },
            Message::Piece(&[7; 300]),
            Message::BaseEnd { mark },
            Message::Tables { mark, catalog: b"tables" },
            Message::Frame { file_bytes: 1 << 20, frame: &[1; 500] },
            Message::Alive { epoch: 77, consistent: Order { era: 1, timestamp: 2 } },
            Message::Durable(Durable {
                standby: 1 << 99,
                epoch: 76,
                incarnation: 2,
                consistent: Order { era: 1, timestamp: 3 },
            }),
        ];
        let encoded: Vec<_> = messages.iter().zip(0..).map(|(message, number)| encode(message, number)).collect();
        for (bytes, message) in encoded.iter().zip(&messages) {
            assert_eq!(Message::decode(&bytes[ENVELOPE..]).as_ref(), Some(message));
        }
        encoded
    }

    /// Whatever pieces they come in.
    #[test]
    fn messages_come_as_they_were_sent() {
        let (samples, mut random) = (samples(), Random::from_seed(1));
        for _ in 0..200 {
            let (mut decoder, mut found) = (Decoder::new(1000), 0);
            let all = samples.concat();
            let mut rest = all.as_slice();
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(random.range_inclusive(1, rest.len().min(90) as u64) as usize);
                decoder.push(piece);
                while let Some(content) = decoder.next().unwrap() {
                    assert_eq!(content, &samples[found][ENVELOPE..]);
                    found += 1;
                }
                rest = behind;
            }
            assert_eq!(found, samples.len());
        }
    }

    /// What is damaged, left out, repeated, overtaken or arbitrary gives messages that were sent, and then an error or nothing.
    #[test]
    fn whatever_comes_is_a_message_that_was_sent_or_an_error() {
        let samples = samples();
        for seed in 0..3000 {
            let mut random = Random::from_seed(seed);
            let mut sent = samples.clone();
            match random.below(6) {
                0 => {
                    let at = random.below(sent.len() as u64) as usize;
                    let bit = random.below(8 * sent[at].len() as u64) as usize;
                    sent[at][bit / 8] ^= 1 << (bit % 8);
                }
                1 => drop(sent.remove(random.below(10) as usize)),
                2 => {
                    let at = random.below(10) as usize;
                    let again = sent[at].clone();
                    sent.insert(at + 1, again);
                }
                3 => sent.swap(random.below(5) as usize, 5 + random.below(5) as usize),
                4 => {
                    let at = random.below(sent.len() as u64) as usize;
                    let kept = random.below(sent[at].len() as u64) as usize;
                    sent[at].truncate(kept);
                }
                _ => {
                    sent.insert(random.below(10) as usize, vec![0; 60]);
                    random.fill(sent.iter_mut().find(|it| it.len() == 60).expect("it was inserted"));
                }
            }
            let mut decoder = Decoder::new(1000);
            let (mut found, mut is_over) = (0, false);
            for bytes in sent {
                decoder.push(&bytes);
                assert!(decoder.bytes.len() < 3000);
                loop {
                    match decoder.next() {
                        Ok(Some(content)) => {
                            assert_eq!(content, &samples[found][ENVELOPE..], "seed {seed}");
                            assert!(Message::decode(content).is_some());
                            found += 1;
                        }
                        Ok(None) => break,
                        Err(_) => is_over = true,
                    }
                    if is_over {
                        break;
                    }
                }
                if is_over {
                    break;
                }
            }
            assert!(found < samples.len(), "seed {seed}");
        }
    }

    /// Contents under right checksums that are no messages are none, and nothing panics.
    #[test]
    fn no_content_is_taken_for_what_it_is_not() {
        let samples = samples();
        for seed in 0..20_000 {
            let mut random = Random::from_seed(seed);
            let mut content = samples[random.below(samples.len() as u64) as usize][ENVELOPE..].to_vec();
            let length = random.below(1 + content.len() as u64) as usize;
            if random.chance(0.5) {
                content.truncate(length);
            }
            for _ in 0..random.below(3) {
                let end = content.len().min(100) as u64;
                if end > 0 {
                    content[random.below(end) as usize] = random.next_u64() as u8;
                }
            }
            if let Some(message) = Message::decode(&content) {
                assert_eq!(&encode(&message, 0)[ENVELOPE..], content, "there is one way to write everything");
            }
        }
        assert!(Message::decode(&[]).is_none());
    }
}
