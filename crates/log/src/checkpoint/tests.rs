use super::block::*;
use super::*;
use crate::DatabaseId;
use crate::disk::{BLOCK, Buffer};
use crate::frame::{Body, Malformed, Order, Writer as Records};

fn place() -> Place {
    let contents = Contents::Rows { table: 3, part: 2, range: Range { bits: 3, prefix: 5 } };
    let database = DatabaseId(0x0123_4567_89AB_CDEF_0011_2233_4455_6677);
    Place { database, checkpoint: 8, contents, block: 1, before: 0xABCD_EF01 }
}

fn rows(table: u32) -> Body {
    let mut body = Body::new();
    body.put(table, &[7, 0, 0, 9]).unwrap();
    body.put(table, &[8]).unwrap();
    body
}

fn encoded(place: &Place, content: &[u8], count: u32) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes_of(content.len()));
    let (sum, length) = encode(place, content, count, &mut buffer);
    let block = Block::decode(&buffer, place).unwrap();
    assert_eq!((block.checksum, block.bytes, block.count), (sum, length, count));
    buffer
}

fn told(buffer: &[u8], place: &Place) -> Vec<Vec<u64>> {
    Block::decode(buffer, place).unwrap().rows().map(Result::unwrap).collect()
}

#[test]
fn what_is_encoded_is_decoded() {
    let place = place();
    let buffer = encoded(&place, rows(3).as_bytes(), 2);
    assert_eq!(told(&buffer, &place), [vec![7, 0, 0, 9], vec![8]]);
    assert_eq!(Block::decode(&buffer, &place).unwrap().records().count(), 0);
    assert_eq!(Block::peek(&buffer), Ok(BLOCK));
    let mut records = Records::new();
    records.push(Order { era: 1, timestamp: 7 }, 4, &rows(9)).unwrap();
    let place = Place { contents: Contents::Records, ..place };
    let buffer = encoded(&place, records.content(), 1);
    let block = Block::decode(&buffer, &place).unwrap();
    let record = block.records().next().unwrap().unwrap();
    assert_eq!((record.order.timestamp, record.worker, record.changes().count()), (7, 4, 2));
    assert_eq!(block.rows().count(), 0);
}

#[test]
fn changes_are_a_record_before_all_others() {
    let place = Place { contents: Contents::Changes, ..place() };
    let mut changes = rows(3);
    changes.delete(4, b"key").unwrap();
    let count = |count| {
        let mut buffer = Buffer::zeroed(bytes_of(changes.bytes()));
        encode(&place, changes.as_bytes(), count, &mut buffer);
        let block = Block::decode(&buffer, &place).unwrap();
        assert_eq!((block.rows().count(), block.records().count()), (0, 0));
        let record = block.changes()?.expect("these are changes");
        assert_eq!((record.order, record.changes().count()), (Order::default(), 3));
        Ok(())
    };
    assert_eq!([2, 3, 4].map(count), [Err(Malformed), Ok(()), Err(Malformed)]);
}

/// Later versions read what this version has written, or refuse it by its format's number.
#[test]
fn the_bytes_stay_the_same() {
    let buffer = encoded(&place(), rows(3).as_bytes(), 2);
    let text: String = buffer[..112].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        text,
        concat!(
            "706c796368724342",                                 // magic
            "02000003",                                         // format, kind, bits
            "29b5bf0f",                                         // checksum
            "7766554433221100efcdab8967452301",                 // database
            "08000000000000000300000002000000",                 // checkpoint, table, part
            "0100000000000000",                                 // block
            "2200000002000000",                                 // bytes of content, how many rows
            "01efcdab05000000",                                 // block before, prefix
            "000000000000000000000000000000000000000000000000", // zeroes
            "0c0400010700000000000000",                         // table, words, run, word
            "02010900",                                         // run, word
        )
    );
}

#[test]
fn every_flipped_bit_is_noticed() {
    let place = place();
    let mut buffer = encoded(&place, rows(3).as_bytes(), 2);
    for bit in 0..8 * BLOCK {
        buffer[bit / 8] ^= 1 << (bit % 8);
        assert!(Block::decode(&buffer, &place).is_err(), "bit {bit}");
        buffer[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_block_of_another_place_is_noticed() {
    let place = place();
    let buffer = encoded(&place, rows(3).as_bytes(), 2);
    let rows = |table, part, range| Contents::Rows { table, part, range };
    let range = Range { bits: 3, prefix: 5 };
    let others = [
        Place { database: DatabaseId(1), ..place },
        Place { checkpoint: 7, ..place },
        Place { block: 0, ..place },
        Place { before: 0, ..place },
        Place { contents: rows(2, 2, range), ..place },
        Place { contents: rows(3, 1, range), ..place },
        Place { contents: rows(3, 2, Range { bits: 4, prefix: 5 }), ..place },
        Place { contents: rows(3, 2, Range { bits: 3, prefix: 4 }), ..place },
        Place { contents: Contents::Records, ..place },
    ];
    for other in others {
        assert_eq!(Block::decode(&buffer, &other).err(), Some(Fault::Misplaced), "{other:?}");
    }
}

#[test]
fn what_is_cut_short_is_no_block() {
    let place = place();
    let mut long = Body::new();
    long.put(3, &[1; 2000]).unwrap();
    let buffer = encoded(&place, long.as_bytes(), 1);
    for length in [0, 1, BLOCK - 1, BLOCK, buffer.len() - 1] {
        assert_eq!(Block::decode(&buffer[..length], &place).err(), Some(Fault::Cut), "{length} bytes");
    }
    assert_eq!(Block::decode(&[0; BLOCK], &place).err(), Some(Fault::Damaged));
}

#[test]
fn another_format_is_told_from_damage() {
    let place = place();
    let mut buffer = encoded(&place, rows(3).as_bytes(), 2);
    buffer[8] = 9;
    assert_eq!(Block::decode(&buffer, &place).err(), Some(Fault::Damaged));
    let sum = checksum(&[&buffer[..12], &buffer[16..96 + rows(3).bytes()]]);
    buffer[12..16].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(Block::decode(&buffer, &place).err(), Some(Fault::Unsupported(9)));
}

/// Rows of another table, and one too many or too few, under a right checksum.
#[test]
fn counts_and_tables_are_not_believed() {
    let place = place();
    for (table, count, good) in [(3, 2, 2), (3, 1, 1), (3, 3, 2), (3, u32::MAX, 2), (3, 0, 0), (4, 2, 0)] {
        let buffer = encoded(&place, rows(table).as_bytes(), count);
        let found: Vec<bool> = Block::decode(&buffer, &place).unwrap().rows().map(|row| row.is_ok()).collect();
        let expected = [vec![true; good], vec![false; usize::from((table, count) != (3, 2))]].concat();
        assert_eq!(found, expected, "{count} rows of {table}");
    }
}

#[test]
fn ranges_share_all_keys() {
    for bits in [0, 1, 3, Range::MAX_BITS] {
        for key in 0..200_u64 {
            let hash = hash(&key.to_be_bytes());
            let having: Vec<Range> = Range::all(bits).filter(|range| range.has(hash)).collect();
            assert_eq!(having.len(), 1, "{key} of {bits} bits");
            assert!(Range::all(2).all(|other| !other.has(hash) || other.meets(having[0])));
        }
    }
    assert_eq!(Range::all(1).filter(|range| range.meets(Range { bits: 3, prefix: 6 })).count(), 1);
    // Files of all versions have the same ranges.
    assert_eq!([hash(b""), hash(b"1"), hash(&1_u64.to_be_bytes())], [0, 2_035_331_315, 1_095_631_033]);
    let in_first = (0..1000_u64).filter(|key| hash(&key.to_be_bytes()) >> 31 == 0).count();
    assert!((400..600).contains(&in_first), "{in_first} of 1000 keys are in the first half");
}
