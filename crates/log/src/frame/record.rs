//! Records: what one transaction has changed, or a piece of that where it is long.
//!
//! A record is the length of its body, how era and timestamp of its order differ from the record before (signed), the worker, and the body: changes, one
//! after the other. The worker's number is shifted left by two bits: the higher one of these says that the transaction goes on in the next record, the lower one that
//! it has begun in one before. Then the number of the record's first change in its transaction follows, which is not 0. A change is table and kind in one number, and
//!
//! - `Put`: the row's words; its key follows from them;
//! - `Patch`: the key, how many ranges, and of each the distance from the one before and its words;
//! - `Delete`: the key.
//!
//! All numbers have seven bits a byte, as few bytes as they need. Words are counted, and then come runs in turn: how many zeroes, how many others, and
//! these. Rows are mostly small numbers in wide columns and unused space, so that many words are zero.
//!
//! There is one way to write everything: bytes that are read without an error are the ones that writing the same again gives.

use polychron_base::key::MAX_KEY_BYTES;

use super::edit::{DELETE, Edit, PATCH, PUT};
use super::{MAX_CONTENT_BYTES, MAX_ROW_WORDS, Order, Refused};
use crate::codec::{Reader, put_varint, unzigzag, zigzag};

/// A record contradicts itself, though its checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record is malformed")]
pub struct Malformed;

/// The changes of a transaction, encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    bytes: Vec<u8>,
}

impl Body {
    /// No changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the changes and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The changes as they are encoded.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// A row is now these words.
    ///
    /// # Errors
    /// [`Refused::Invalid`] beyond [`MAX_ROW_WORDS`].
    pub fn put(&mut self, table: u32, words: &[u64]) -> Result<(), Refused> {
        self.push(table, &Edit::Put(words))
    }

    /// Ranges of a row's words, each by its first word, are now these.
    ///
    /// # Errors
    /// [`Refused::Invalid`] when they are not in ascending order and disjoint, or one is empty, or a limit is passed.
    pub fn patch(&mut self, table: u32, key: &[u8], ranges: &[(usize, &[u64])]) -> Result<(), Refused> {
        self.push(table, &Edit::Patch(key, ranges))
    }

    /// A row is gone.
    ///
    /// # Errors
    /// [`Refused::Invalid`] for a key that is too long.
    pub fn delete(&mut self, table: u32, key: &[u8]) -> Result<(), Refused> {
        self.push(table, &Edit::Delete(key))
    }

    fn push(&mut self, table: u32, edit: &Edit<'_>) -> Result<(), Refused> {
        edit.check()?;
        edit.write(table, &mut self.bytes);
        Ok(())
    }
}

/// How long a record may be beside its body: five numbers.
pub(crate) const FRONT_BYTES: usize = 5 * 10;

const IS_LATER: u64 = 1;
const GOES_ON: u64 = 2;

/// Gathers the records of a frame.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    content: Vec<u8>,
    count: u32,
    last: Order,
}

impl Writer {
    /// No records.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the records and keeps the room.
    pub fn clear(&mut self) {
        self.content.clear();
        (self.count, self.last) = (0, Order::default());
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`Refused::Full`] when a frame would be longer than [`MAX_CONTENT_BYTES`].
    pub fn push(&mut self, order: Order, worker: u32, body: &Body) -> Result<(), Refused> {
        self.push_piece(order, worker, Piece::WHOLE, body)
    }

    /// The same of a piece of a transaction.
    ///
    /// # Errors
    /// As of [`push`](Self::push).
    pub fn push_piece(&mut self, order: Order, worker: u32, piece: Piece, body: &Body) -> Result<(), Refused> {
        self.push_with(order, worker, piece, body.bytes.len(), |content| content.extend_from_slice(&body.bytes))
    }

    /// Adds a record whose body, of so many bytes, `fill` appends.
    pub(crate) fn push_with(
        &mut self,
        order: Order,
        worker: u32,
        piece: Piece,
        bytes: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Refused> {
        if self.content.len() + bytes + FRONT_BYTES > MAX_CONTENT_BYTES {
            return Err(Refused::Full);
        }
        let Order { era, timestamp } = order;
        put_varint(&mut self.content, bytes as u64);
        put_varint(&mut self.content, zigzag(era.wrapping_sub(self.last.era)));
        put_varint(&mut self.content, zigzag(timestamp.wrapping_sub(self.last.timestamp)));
        let is_later = if piece.first > 0 { IS_LATER } else { 0 };
        let goes_on = if piece.goes_on { GOES_ON } else { 0 };
        put_varint(&mut self.content, u64::from(worker) << 2 | goes_on | is_later);
        if piece.first > 0 {
            put_varint(&mut self.content, u64::from(piece.first));
        }
        let start = self.content.len();
        fill(&mut self.content);
        debug_assert_eq!(self.content.len() - start, bytes);
        (self.count, self.last) = (self.count + 1, order);
        Ok(())
    }

    /// Adds a record that was read.
    ///
    /// # Errors
    /// As of [`push`](Self::push).
    pub fn push_record(&mut self, record: &Record<'_>) -> Result<(), Refused> {
        let Record { order, worker, piece, body } = record;
        self.push_with(*order, *worker, *piece, body.len(), |content| content.extend_from_slice(body))
    }

    /// Gives memory back that a huge record took.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.content.shrink_to(bytes);
    }

    /// How many records there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The encoded records.
    pub fn content(&self) -> &[u8] {
        &self.content
    }
}

/// The records of a frame, or of any bytes.
#[derive(Clone, Debug)]
pub struct Records<'b> {
    reader: Reader<'b>,
    left: u32,
    last: Order,
}

impl<'b> Records<'b> {
    /// So many records, of which the bytes have nothing else.
    pub fn new(content: &'b [u8], count: u32) -> Self {
        Self { reader: Reader::new(content), left: count, last: Order::default() }
    }

    fn read(&mut self) -> Option<Record<'b>> {
        let length = usize::try_from(self.reader.varint()?).ok()?;
        let era = self.last.era.wrapping_add(unzigzag(self.reader.varint()?));
        let timestamp = self.last.timestamp.wrapping_add(unzigzag(self.reader.varint()?));
        let head = self.reader.varint()?;
        let worker = u32::try_from(head >> 2).ok()?;
        let first = match head & IS_LATER {
            0 => 0,
            _ => u32::try_from(self.reader.varint()?).ok().filter(|first| *first > 0)?,
        };
        let body = self.reader.take(length)?;
        self.last = Order { era, timestamp };
        Some(Record { order: self.last, worker, piece: Piece { first, goes_on: head & GOES_ON > 0 }, body })
    }
}

impl<'b> Iterator for Records<'b> {
    type Item = Result<Record<'b>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            // What is behind the last one is none.
            let is_whole = std::mem::replace(&mut self.reader, Reader::new(&[])).left() == 0;
            return if is_whole { None } else { Some(Err(Malformed)) };
        }
        let record = self.read();
        self.left = if record.is_some() { self.left - 1 } else { 0 };
        if record.is_none() {
            self.reader = Reader::new(&[]);
        }
        Some(record.ok_or(Malformed))
    }
}

/// Which piece of its transaction a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of its first change among those of the transaction.
    pub first: u32,
    /// The next record has more of the transaction.
    pub goes_on: bool,
}

impl Piece {
    /// All of it.
    pub const WHOLE: Self = Self { first: 0, goes_on: false };
}

/// The changes of one transaction, or a piece of them.
#[derive(Clone, Copy, Debug)]
pub struct Record<'b> {
    /// Its place in the order of changes.
    pub order: Order,
    /// The worker that executed it.
    pub worker: u32,
    /// Which changes of the transaction these are.
    pub piece: Piece,
    body: &'b [u8],
}

impl<'b> Record<'b> {
    /// How long its changes are, in bytes.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// The changes, in the order in which they were made.
    pub fn changes(&self) -> Changes<'b> {
        changes_of(self.body)
    }

    /// The changes as they are encoded.
    pub(crate) fn body(&self) -> &'b [u8] {
        self.body
    }

    /// A record with this body, of the first of all orders.
    pub(crate) fn before_all(body: &'b [u8]) -> Self {
        Self::of(Order::default(), Piece::WHOLE, body)
    }

    /// A record with this body, whoever executed it.
    pub(crate) fn of(order: Order, piece: Piece, body: &'b [u8]) -> Self {
        Self { order, worker: 0, piece, body }
    }
}

/// The changes that a record's body has.
pub(crate) fn changes_of(body: &[u8]) -> Changes<'_> {
    Changes { reader: Reader::new(body) }
}

/// The changes of a record.
#[derive(Clone, Debug)]
pub struct Changes<'b> {
    reader: Reader<'b>,
}

impl<'b> Iterator for Changes<'b> {
    type Item = Result<Change<'b>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.left() == 0 {
            return None;
        }
        let change = read_change(&mut self.reader);
        if change.is_none() {
            self.reader = Reader::new(&[]);
        }
        Some(change.ok_or(Malformed))
    }
}

/// One change of a row.
#[derive(Clone, Copy, Debug)]
pub enum Change<'b> {
    /// The row is now these words.
    Put {
        /// Of which table, by its number in the catalog.
        table: u32,
        /// All words of the row.
        row: Words<'b>,
    },
    /// Ranges of the row's words are others.
    Patch {
        /// Of which table, by its number in the catalog.
        table: u32,
        /// The encoded key of the row.
        key: &'b [u8],
        /// The ranges.
        ranges: Ranges<'b>,
    },
    /// The row is gone.
    Delete {
        /// Of which table, by its number in the catalog.
        table: u32,
        /// The encoded key of the row.
        key: &'b [u8],
    },
}

#[inline]
fn read_change<'b>(reader: &mut Reader<'b>) -> Option<Change<'b>> {
    let head = reader.varint()?;
    let table = u32::try_from(head >> 2).ok()?;
    match head & 3 {
        PUT => Some(Change::Put { table, row: read_words(reader, 0)? }),
        PATCH => {
            let (key, count) = (read_key(reader)?, reader.varint()?);
            let before = *reader;
            let mut end = 0;
            for _ in 0..count {
                let (first, words) = read_range(reader, end)?;
                end = first + words.len();
            }
            let ranges = Ranges { reader: before.until(reader)?, left: count, end: 0 };
            (count > 0).then_some(Change::Patch { table, key, ranges })
        }
        DELETE => Some(Change::Delete { table, key: read_key(reader)? }),
        _ => None,
    }
}

#[inline]
fn read_key<'b>(reader: &mut Reader<'b>) -> Option<&'b [u8]> {
    let length = usize::try_from(reader.varint()?).ok().filter(|length| *length <= MAX_KEY_BYTES)?;
    reader.take(length)
}

/// The first word of a range, and its words.
#[inline]
fn read_range<'b>(reader: &mut Reader<'b>, end: usize) -> Option<(usize, Words<'b>)> {
    let distance = usize::try_from(reader.varint()?).ok().filter(|distance| *distance <= MAX_ROW_WORDS - end)?;
    let words = read_words(reader, end + distance)?;
    (words.len() > 0).then_some((end + distance, words))
}

/// Words of a row from some word on. They are walked through here, so that using them cannot fail.
#[inline]
fn read_words<'b>(reader: &mut Reader<'b>, first: usize) -> Option<Words<'b>> {
    let count = usize::try_from(reader.varint()?).ok().filter(|count| *count <= MAX_ROW_WORDS - first)?;
    let before = *reader;
    read_runs(reader, count, |_, others| !others.iter().fold(false, |found, word| found | (*word == [0; 8])))?;
    Some(Words { reader: before.until(reader)?, zeroes: 0, others: 0, left: count })
}

/// Reads so many words, run by run: for each how many zeroes, and behind them others. `None` where a run is not all right.
#[inline]
fn read_runs<'b>(
    reader: &mut Reader<'b>,
    count: usize,
    mut is_right: impl FnMut(usize, &'b [[u8; 8]]) -> bool,
) -> Option<()> {
    let mut left = count;
    while left > 0 {
        let (zeroes, others) = reader.varints()?;
        let zeroes = usize::try_from(zeroes).ok().filter(|zeroes| *zeroes <= left)?;
        let others = usize::try_from(others).ok().filter(|others| *others <= left - zeroes)?;
        let is_first = left == count;
        left -= zeroes + others;
        // Runs are as long as they can be.
        let is_longest = (zeroes > 0 || is_first) && (others > 0 || left == 0) && zeroes + others > 0;
        let words = reader.take(8 * others)?.as_chunks().0;
        if !is_longest || !is_right(zeroes, words) {
            return None;
        }
    }
    Some(())
}

/// Reads a put of a row of this table, and appends its words. `None` if there is none; then what was appended is arbitrary.
#[inline]
pub(crate) fn read_put(reader: &mut Reader<'_>, table: u32, words: &mut Vec<u64>) -> Option<()> {
    let (head, count) = reader.varints()?;
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_ROW_WORDS)?;
    if head != u64::from(table) << 2 | PUT {
        return None;
    }
    let mut at = words.len();
    words.resize(at + count, 0);
    read_runs(reader, count, |zeroes, others| {
        let target = &mut words[at + zeroes..][..others.len()];
        at += zeroes + others.len();
        let mut has_zero = false;
        for (to, from) in target.iter_mut().zip(others) {
            *to = u64::from_le_bytes(*from);
            has_zero |= *to == 0;
        }
        !has_zero
    })
}

/// Ranges of a row's words, each as its first word and its words.
#[derive(Clone, Copy, Debug)]
pub struct Ranges<'b> {
    reader: Reader<'b>,
    left: u64,
    end: usize,
}

impl<'b> Ranges<'b> {
    /// Those that are left as they are encoded, and how many they are.
    pub(crate) fn encoded(&self) -> (&'b [u8], u64) {
        (self.reader.rest(), self.left)
    }

    /// The first word, and the one behind the last, if it is one range.
    #[inline]
    pub(crate) fn covered(mut self) -> Option<(usize, usize)> {
        if self.left != 1 {
            return None;
        }
        // It was read before, when the change was.
        let (distance, count) = self.reader.varints()?;
        let first = self.end + distance as usize;
        Some((first, first + count as usize))
    }

    /// The bytes that [`encoded`](Self::encoded) gave, of all ranges of a change.
    pub(crate) fn of(bytes: &'b [u8], count: u64) -> Self {
        Self { reader: Reader::new(bytes), left: count, end: 0 }
    }
}

impl<'b> Iterator for Ranges<'b> {
    type Item = (usize, Words<'b>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // They were read before, when the change was.
        let (first, words) = read_range(&mut self.reader, self.end)?;
        self.end = first + words.len();
        Some((first, words))
    }
}

/// Words, one after the other. They take as much memory as their bytes, however many zeroes there are.
#[derive(Clone, Copy, Debug)]
pub struct Words<'b> {
    reader: Reader<'b>,
    zeroes: usize,
    others: usize,
    left: usize,
}

impl<'b> Words<'b> {
    /// All words as they are encoded, and how many they are. None was taken yet.
    pub(crate) fn encoded(&self) -> (&'b [u8], usize) {
        debug_assert_eq!(self.zeroes + self.others, 0, "some were taken");
        (self.reader.rest(), self.left)
    }

    /// The bytes that [`encoded`](Self::encoded) gave.
    pub(crate) fn of(bytes: &'b [u8], count: usize) -> Self {
        Self { reader: Reader::new(bytes), zeroes: 0, others: 0, left: count }
    }

    /// Appends the words, run by run. None was taken yet.
    pub(crate) fn append_to(self, words: &mut Vec<u64>) {
        let count = self.left;
        self.append_front_to(count, words);
    }

    /// Appends the first ones, as many as that.
    #[inline]
    pub(crate) fn append_front_to(mut self, count: usize, words: &mut Vec<u64>) {
        let wanted = words.len() + count.min(self.left);
        while words.len() < wanted {
            // They were walked through before, when the change was read.
            let Some((zeroes, others)) = self.reader.varints() else { break };
            words.resize(wanted.min(words.len() + zeroes as usize), 0);
            let Some(others) = self.reader.take(8 * others as usize) else { break };
            let left = wanted - words.len();
            words.extend(others.as_chunks().0.iter().take(left).map(|word| u64::from_le_bytes(*word)));
        }
        debug_assert_eq!(words.len(), wanted);
    }
}

impl Iterator for Words<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        if self.zeroes + self.others == 0 {
            // They were walked through before, when the change was read.
            self.zeroes = self.reader.varint()? as usize;
            self.others = self.reader.varint()? as usize;
        }
        if self.zeroes > 0 {
            self.zeroes -= 1;
            return Some(0);
        }
        self.others -= 1;
        self.reader.u64()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Words<'_> {}
