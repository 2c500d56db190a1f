//! Frames, records and manifests: what is encoded is decoded, no bytes make a decoder panic, and what is decoded without an error is what encoding gives.

use polychron_log::DatabaseId;
use polychron_log::backup::Origin;
use polychron_log::checkpoint::block::{self, Block};
use polychron_log::checkpoint::{self, Contents};
use polychron_log::disk::{BLOCK, Buffer};
use polychron_log::frame::{
    self, Body, Change, Fault, Frame, Header, Malformed, Order, Piece, Place, Record, Records, Writer,
};
use polychron_log::manifest::{self, Checkpoint, CheckpointFile, Manifest};

use crate::input::Input;

/// Bytes as records and as frames, and a frame made of them.
pub(crate) fn run_frames(bytes: &[u8]) {
    let place = Place { database: DatabaseId(1), file: 2, offset: 0 };
    assert!(Frame::decode(bytes, place).is_err() || bytes.len() >= BLOCK, "a frame has a block");
    for count in [0, 1, 2, u32::MAX] {
        any_records(bytes, count);
    }
    let mut input = Input::new(bytes);
    let (writer, told) = made_records(&mut input);
    let header = made_header(&mut input, place);
    let mut buffer = Buffer::zeroed(frame::frame_bytes(writer.content().len()));
    let (sum, length) = frame::encode(&header, &writer, &mut buffer);
    let frame = Frame::decode(&buffer, place).expect("what is encoded is decoded");
    assert_eq!((frame.header, frame.checksum, frame.bytes), (header, sum, length), "the header is as it was");
    let records: Vec<_> = frame.records().map(|record| tell(&record.expect("it was encoded"))).collect();
    assert_eq!(records, told.into_iter().map(Ok).collect::<Vec<_>>(), "the records are as they were");
    let mut content = writer.content().to_vec();
    for _ in 0..=input.below(2) {
        let at = input.number() as usize % content.len().max(1);
        content.get_mut(at).into_iter().for_each(|byte| *byte ^= input.byte());
    }
    any_records(&content, writer.count());
    let bit = input.number() as usize % (8 * length);
    buffer[bit / 8] ^= 1 << (bit % 8);
    assert!(matches!(Frame::decode(&buffer, place), Err(Fault::Header | Fault::Content(_))), "bit {bit} is noticed");
}

/// Bytes taken for records: if they are, writing the same again gives the same bytes.
fn any_records(bytes: &[u8], count: u32) {
    let read = Records::new(bytes, count).map(|record| record.and_then(|record| rewritten(&record)));
    // They cannot be more than the bytes.
    let records: Result<Vec<Rewritten>, Malformed> = read.take(bytes.len() + 1).collect();
    let Ok(records) = records else { return };
    let mut writer = Writer::new();
    for (order, worker, piece, body) in records {
        writer.push_piece(order, worker, piece, &body).expect("it was within the limits");
    }
    assert_eq!(writer.content(), bytes, "there is one way to write records");
}

/// A record, written again.
type Rewritten = (Order, u32, Piece, Body);

fn rewritten(record: &Record<'_>) -> Result<Rewritten, Malformed> {
    let mut body = Body::new();
    for change in record.changes() {
        let written = match change? {
            Change::Put { table, row } => body.put(table, &row.collect::<Vec<_>>()),
            Change::Patch { table, key, ranges } => {
                let ranges: Vec<_> = ranges.map(|(first, words)| (first, words.collect::<Vec<_>>())).collect();
                let ranges: Vec<_> = ranges.iter().map(|(first, words)| (*first, words.as_slice())).collect();
                body.patch(table, key, &ranges)
            }
            Change::Delete { table, key } => body.delete(table, key),
        };
        written.expect("what was read can be written");
    }
    Ok((record.order, record.worker, record.piece, body))
}

type Range = (usize, Vec<u64>);

/// A change in plain values.
#[derive(Debug, PartialEq)]
enum Told {
    Put(u32, Vec<u64>),
    Patch(u32, Vec<u8>, Vec<Range>),
    Delete(u32, Vec<u8>),
}

type ToldRecord = (Order, u32, Piece, Vec<Told>);

fn tell(record: &Record<'_>) -> Result<ToldRecord, Malformed> {
    let change = |change: Result<Change<'_>, Malformed>| {
        Ok(match change? {
            Change::Put { table, row } => Told::Put(table, row.collect()),
            Change::Patch { table, key, ranges } => {
                Told::Patch(table, key.to_vec(), ranges.map(|(first, words)| (first, words.collect())).collect())
            }
            Change::Delete { table, key } => Told::Delete(table, key.to_vec()),
        })
    };
    let Record { order, worker, piece, .. } = *record;
    Ok((order, worker, piece, record.changes().map(change).collect::<Result<_, _>>()?))
}

/// Records from the input, and the same in plain values.
fn made_records(input: &mut Input<'_>) -> (Writer, Vec<ToldRecord>) {
    let mut writer = Writer::new();
    let mut told = Vec::new();
    for _ in 0..input.below(4) {
        let (body, changes) = made_body(input);
        let order = Order { era: u64::from(input.byte()), timestamp: input.number() };
        let worker = input.number() as u32;
        let piece = Piece { first: if input.flag() { input.number() as u32 } else { 0 }, goes_on: input.flag() };
        writer.push_piece(order, worker, piece, &body).expect("there is room");
        told.push((order, worker, piece, changes));
    }
    (writer, told)
}

fn made_body(input: &mut Input<'_>) -> (Body, Vec<Told>) {
    let (mut body, mut changes) = (Body::new(), Vec::new());
    for _ in 0..input.below(4) {
        let table = input.number() as u32;
        let change = match input.below(3) {
            0 => Told::Put(table, words(input)),
            1 => Told::Patch(table, input.key(), ranges(input)),
            _ => Told::Delete(table, input.key()),
        };
        match &change {
            Told::Put(table, words) => body.put(*table, words),
            Told::Patch(table, key, ranges) => {
                let ranges: Vec<_> = ranges.iter().map(|(first, words)| (*first, words.as_slice())).collect();
                body.patch(*table, key, &ranges)
            }
            Told::Delete(table, key) => body.delete(*table, key),
        }
        .expect("it is within the limits");
        changes.push(change);
    }
    (body, changes)
}

/// Words with runs of zeroes.
fn words(input: &mut Input<'_>) -> Vec<u64> {
    let count = usize::from(input.byte());
    (0..count).map(|_| if input.flag() { input.number() } else { 0 }).collect()
}

fn ranges(input: &mut Input<'_>) -> Vec<Range> {
    let mut end = 0;
    let mut range = || {
        let first = end + input.below(20);
        let mut words = words(input);
        words.push(input.number());
        end = first + words.len();
        (first, words)
    };
    vec![range(), range()]
}

fn made_header(input: &mut Input<'_>, place: Place) -> Header {
    Header {
        place,
        incarnation: input.number(),
        first_epoch: input.number(),
        last_epoch: input.number(),
        durable: input.number(),
        consistent: Order { era: input.number(), timestamp: input.number() },
        manifest: input.number(),
        written_ns: input.number(),
        before: input.number() as u32,
    }
}

/// Where a manifest has its checksum, which covers all but itself.
const CHECKSUM: std::ops::Range<usize> = 12..16;

/// Bytes as a manifest, a manifest made of them, and this one with some bytes changed and a right checksum.
pub(crate) fn run_manifests(bytes: &[u8]) {
    any_manifest(bytes);
    let mut input = Input::new(bytes);
    let made = made_manifest(&mut input);
    let generation = input.number();
    let mut encoded = manifest::encode(&made, generation);
    assert_eq!(manifest::decode(&encoded), Ok((made, generation)), "what is encoded is decoded");
    for _ in 0..=input.below(3) {
        let at = input.number() as usize % encoded.len();
        encoded[at] ^= input.byte();
    }
    let sum = crc32c::crc32c_append(crc32c::crc32c(&encoded[..CHECKSUM.start]), &encoded[CHECKSUM.end..]);
    encoded[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    any_manifest(&encoded);
}

fn any_manifest(bytes: &[u8]) {
    if let Ok((manifest, generation)) = manifest::decode(bytes) {
        let again = manifest::encode(&manifest, generation);
        assert_eq!(bytes.get(..again.len()), Some(again.as_slice()), "there is one way to write a manifest");
    }
}

/// Bytes as what a backup says of itself, and the same made of them and changed.
pub(crate) fn run_origins(bytes: &[u8]) {
    any_origin(bytes);
    let mut input = Input::new(bytes);
    let made = Origin {
        database: DatabaseId(input.wide()),
        incarnation: input.number(),
        epoch: input.number(),
        consistent: Order { era: input.number(), timestamp: input.number() },
        first_log_file: input.number(),
        manifest: input.number(),
        written_ns: input.number(),
    };
    let mut encoded = made.encode();
    assert_eq!(Origin::decode(&encoded), Some(Ok(made)), "what is encoded is decoded");
    let bit = input.number() as usize % (8 * encoded.len());
    encoded[bit / 8] ^= 1 << (bit % 8);
    assert_eq!(Origin::decode(&encoded), None, "bit {bit} is noticed");
    for _ in 0..input.below(3) {
        let at = input.number() as usize % encoded.len();
        encoded[at] ^= input.byte();
    }
    let sum = crc32c::crc32c_append(crc32c::crc32c(&encoded[..CHECKSUM.start]), &encoded[CHECKSUM.end..]);
    encoded[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    any_origin(&encoded);
}

fn any_origin(bytes: &[u8]) {
    if let Some(Ok(origin)) = Origin::decode(bytes) {
        assert_eq!(bytes.get(..BLOCK), Some(&origin.encode()[..]), "there is one way to write what a backup is of");
    }
}

fn made_manifest(input: &mut Input<'_>) -> Manifest {
    let checkpoint = input.maybe(|input| {
        let number = input.number();
        let file = |input: &mut Input<'_>| CheckpointFile {
            number: input.number(),
            contents: made_contents(input),
            count: input.number(),
            bytes: input.number(),
            checksum: input.number() as u32,
        };
        Checkpoint {
            number,
            epoch: input.number(),
            incarnation: input.number(),
            consistent: Order { era: input.number(), timestamp: input.number() },
            files: (0..input.below(5)).map(|_| file(input)).collect(),
        }
    });
    Manifest {
        database: DatabaseId(input.wide()),
        incarnation: input.number(),
        first_log_file: input.number(),
        durable: input.number(),
        checkpoint,
        catalog: input.bytes(200),
    }
}

fn made_contents(input: &mut Input<'_>) -> Contents {
    match input.below(3) {
        0 => return Contents::Records,
        1 => return Contents::Changes,
        _ => {}
    }
    let bits = input.below(usize::from(checkpoint::Range::MAX_BITS) + 1) as u8;
    let range = checkpoint::Range { bits, prefix: input.number() as u32 % (1 << bits) };
    Contents::Rows { table: input.number() as u32, part: input.number() as u32, range }
}

/// Bytes as a block of a checkpoint; a block made of them, with a bit changed; and this one with some bytes changed and a right checksum.
pub(crate) fn run_blocks(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let place = block::Place {
        database: DatabaseId(1),
        checkpoint: input.number(),
        contents: made_contents(&mut input),
        block: input.number(),
        before: input.number() as u32,
    };
    any_block(bytes, &place);
    let (content, count) = made_content(&mut input, place.contents);
    let mut buffer = Buffer::zeroed(block::bytes_of(content.len()));
    let (sum, length) = block::encode(&place, &content, count, &mut buffer);
    let decoded = Block::decode(&buffer, &place).expect("what is encoded is decoded");
    assert_eq!((decoded.checksum, decoded.bytes, decoded.count), (sum, length, count), "the block is as it was");
    assert_eq!(
        decoded.rows().filter(Result::is_ok).count()
            + decoded.records().filter(Result::is_ok).count()
            + decoded.changes().expect("it is well formed").map_or(0, |record| record.changes().count()),
        count as usize
    );
    any_block(&buffer, &place);
    let other = block::Place { block: place.block.wrapping_add(1), ..place };
    assert!(Block::decode(&buffer, &other).is_err(), "a block of another place is noticed");
    let bit = input.number() as usize % (8 * length);
    buffer[bit / 8] ^= 1 << (bit % 8);
    assert!(Block::decode(&buffer, &place).is_err(), "bit {bit} is noticed");
    buffer[bit / 8] ^= 1 << (bit % 8);
    for _ in 0..=input.below(3) {
        let at = input.number() as usize % (BLOCK_HEADER + content.len());
        buffer[at] ^= input.byte();
    }
    let end = BLOCK_HEADER + content.len();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&buffer[..CHECKSUM.start]), &buffer[CHECKSUM.end..end]);
    buffer[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    any_block(&buffer, &place);
}

/// How long the header of a block is.
const BLOCK_HEADER: usize = 96;

/// Bytes taken for a block: if they are one, writing the same again gives the same bytes.
fn any_block(bytes: &[u8], place: &block::Place) {
    let Ok(decoded) = Block::decode(bytes, place) else { return };
    let rows: Result<Vec<Vec<u64>>, Malformed> = decoded.rows().collect();
    let records: Result<Vec<Rewritten>, Malformed> = decoded.records().map(|record| rewritten(&record?)).collect();
    let (Ok(rows), Ok(records)) = (rows, records) else { return };
    let content = match place.contents {
        Contents::Rows { table, .. } => encoded_rows(table, &rows),
        Contents::Records => encoded_records(&records),
        Contents::Changes => {
            let Ok(Some(record)) = decoded.changes() else { return };
            let body = rewritten(&record).expect("it is well formed").3;
            body.as_bytes().to_vec()
        }
    };
    let mut again = Buffer::zeroed(block::bytes_of(content.len()));
    block::encode(place, &content, decoded.count, &mut again);
    assert_eq!(bytes.get(..again.len()), Some(&*again), "there is one way to write a block");
}

/// The content of a block, and how many rows or records it has.
fn made_content(input: &mut Input<'_>, contents: Contents) -> (Vec<u8>, u32) {
    match contents {
        Contents::Rows { table, .. } => {
            let rows: Vec<Vec<u64>> = (0..input.below(4)).map(|_| words(input)).collect();
            (encoded_rows(table, &rows), rows.len() as u32)
        }
        Contents::Records => {
            let (writer, _) = made_records(input);
            (writer.content().to_vec(), writer.count())
        }
        Contents::Changes => {
            let (body, changes) = made_body(input);
            (body.as_bytes().to_vec(), changes.len() as u32)
        }
    }
}

/// Rows as they lie in a block: each as a record with one change has it behind its front.
fn encoded_rows(table: u32, rows: &[Vec<u64>]) -> Vec<u8> {
    let mut body = Body::new();
    rows.iter().for_each(|row| body.put(table, row).expect("it is within the limits"));
    body.as_bytes().to_vec()
}

fn encoded_records(records: &[Rewritten]) -> Vec<u8> {
    let mut writer = Writer::new();
    for (order, worker, piece, body) in records {
        writer.push_piece(*order, *worker, *piece, body).expect("it was within the limits");
    }
    writer.content().to_vec()
}
