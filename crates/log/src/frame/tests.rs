use super::*;
use crate::disk::Buffer;

const PLACE: Place = Place { database: DatabaseId(0x0123_4567_89AB_CDEF_0011_2233_4455_6677), file: 3, offset: 8192 };

fn header() -> Header {
    Header {
        place: PLACE,
        incarnation: 4,
        first_epoch: 10,
        last_epoch: 11,
        durable: 9,
        consistent: Order { era: 0, timestamp: 500 },
        manifest: 6,
        written_ns: 1_700_000_000_000_000_000,
        before: 0xDEAD_BEEF,
    }
}

/// Two records with every kind of change.
fn records() -> Writer {
    let mut writer = Writer::new();
    let mut body = Body::new();
    body.put(1, &[7, 0, 0, 0, 9, 0]).unwrap();
    body.patch(2, b"key", &[(0, &[0, 0]), (2, &[5]), (10, &[0, 1])]).unwrap();
    body.delete(u32::MAX, b"").unwrap();
    writer.push(Order { era: 1, timestamp: 1000 }, 3, &body).unwrap();
    body.clear();
    body.put(1, &[]).unwrap();
    writer.push(Order { era: 1, timestamp: 998 }, 0, &body).unwrap();
    writer
}

fn encoded(records: &Writer) -> (Buffer, u32) {
    let mut buffer = Buffer::zeroed(frame_bytes(records.content().len()));
    let (sum, length) = encode(&header(), records, &mut buffer);
    assert_eq!(length, buffer.len());
    (buffer, sum)
}

/// Records in words.
fn told(frame: &Frame<'_>) -> Vec<String> {
    let record = |record: Record<'_>| {
        let changes: Vec<String> = record.changes().map(|change| tell(change.unwrap())).collect();
        format!("{}.{} by {}: {}", record.order.era, record.order.timestamp, record.worker, changes.join(", "))
    };
    frame.records().map(|it| record(it.unwrap())).collect()
}

fn tell(change: Change<'_>) -> String {
    match change {
        Change::Put { table, row } => format!("put {table} {:?}", row.collect::<Vec<_>>()),
        Change::Patch { table, key, ranges } => {
            let ranges: Vec<_> = ranges.map(|(first, words)| (first, words.collect::<Vec<_>>())).collect();
            format!("patch {table} {key:?} {ranges:?}")
        }
        Change::Delete { table, key } => format!("delete {table} {key:?}"),
    }
}

#[test]
fn what_is_encoded_is_decoded() {
    let (buffer, sum) = encoded(&records());
    let frame = Frame::decode(&buffer, PLACE).unwrap();
    assert_eq!((frame.header, frame.checksum, frame.bytes), (header(), sum, BLOCK));
    assert_eq!(Frame::peek(&buffer), Ok((header(), BLOCK)));
    assert_eq!(
        told(&frame),
        [
            "1.1000 by 3: put 1 [7, 0, 0, 0, 9, 0], patch 2 [107, 101, 121] [(0, [0, 0]), (2, [5]), (10, [0, 1])], delete 4294967295 []",
            "1.998 by 0: put 1 []",
        ]
    );
}

#[test]
fn an_empty_frame_carries_its_header() {
    let (buffer, _) = encoded(&Writer::new());
    let frame = Frame::decode(&buffer, PLACE).unwrap();
    assert_eq!((frame.header, frame.records().count()), (header(), 0));
}

/// Later versions read what this version has written, or refuse it by its format's number.
#[test]
fn the_bytes_stay_the_same() {
    let (buffer, _) = encoded(&records());
    let text: String = buffer[..207].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        text,
        concat!(
            "706c796368724c46",                               // magic
            "02000000",                                       // format, codec
            "720e918f",                                       // checksum
            "7766554433221100efcdab8967452301",               // database
            "0400000000000000",                               // incarnation
            "03000000000000000020000000000000",               // file, offset
            "0a000000000000000b00000000000000",               // epochs
            "0900000000000000",                               // durable epoch
            "0000000000000000f401000000000000",               // consistent point
            "0600000000000000",                               // manifest
            "00002a36fe9c9717",                               // wall clock
            "4b00000002000000",                               // bytes of content, records
            "efbeadde00000000",                               // the frame before
            "d20191c9",                                       // checksum of the content
            "4002d00f0c",                                     // length, era, timestamp, worker
            "0406000107000000000000000301090000000000000001", // a row
            "00",
            "09036b657903", // patches of a key
            "0002020000010001050000000000000007020101",
            "0100000000000000",
            "feffffff3f00", // a deletion
            "020003000400", // the second record
        )
    );
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (mut buffer, _) = encoded(&records());
    for bit in 0..8 * buffer.len() {
        buffer[bit / 8] ^= 1 << (bit % 8);
        let fault = Frame::decode(&buffer, PLACE).unwrap_err();
        assert!(matches!(fault, Fault::Header | Fault::Content(_)), "bit {bit}: {fault}");
        buffer[bit / 8] ^= 1 << (bit % 8);
    }
}

/// A frame of many chunks: damage in each is found where it is.
#[test]
fn damage_is_told_with_its_place() {
    let mut writer = Writer::new();
    let mut body = Body::new();
    body.put(1, &(1..=20_000).collect::<Vec<u64>>()).unwrap();
    (0..3).for_each(|number| writer.push(Order { era: 0, timestamp: number }, 0, &body).unwrap());
    let (mut buffer, _) = encoded(&writer);
    let frame = Frame::decode(&buffer, PLACE).unwrap();
    assert_eq!(frame.records().filter(|record| record.is_ok()).count(), 3);
    let start = 128 + 4 * writer.content().len().div_ceil(CHUNK);
    for at in [start, start + CHUNK - 1, start + CHUNK, start + 5 * CHUNK + 7, start + writer.content().len() - 1] {
        buffer[at] ^= 1;
        let chunk = start + (at - start) / CHUNK * CHUNK;
        assert_eq!(Frame::decode(&buffer, PLACE).unwrap_err(), Fault::Content(chunk));
        buffer[at] ^= 1;
    }
    for blocks in 0..buffer.len() / BLOCK {
        assert_eq!(Frame::decode(&buffer[..blocks * BLOCK], PLACE).unwrap_err(), Fault::Cut);
    }
}

#[test]
fn a_frame_of_another_place_is_not_believed() {
    let (buffer, _) = encoded(&records());
    let others =
        [Place { file: 4, ..PLACE }, Place { offset: 4096, ..PLACE }, Place { database: DatabaseId(1), ..PLACE }];
    for place in others {
        assert_eq!(Frame::decode(&buffer, place).unwrap_err(), Fault::Misplaced(PLACE));
    }
    assert_eq!(Frame::decode(&[0; BLOCK], PLACE).unwrap_err(), Fault::Empty);
    assert_eq!(Frame::decode(&[1; BLOCK], PLACE).unwrap_err(), Fault::Header);
}

#[test]
fn another_format_is_told_from_damage() {
    for at in [8, 10, 11] {
        let (mut buffer, _) = encoded(&records());
        buffer[at] = 9;
        let sum = checksum(&[&buffer[..CHECKSUM.start], &buffer[CHECKSUM.end..HEADER + 4]]);
        assert_eq!(Frame::decode(&buffer, PLACE).unwrap_err(), Fault::Header);
        buffer[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(Frame::decode(&buffer, PLACE).unwrap_err(), Fault::Unsupported(_)));
    }
}

/// Bytes that mean nothing are zero, and lengths are within their limits, under a right checksum, too.
#[test]
fn the_header_is_not_believed() {
    for (at, value) in [(124, 1_u32), (112, MAX_CONTENT_BYTES as u32 + 1), (112, 40 << 20), (112, u32::MAX)] {
        let (mut buffer, _) = encoded(&records());
        buffer[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let content = u32::from_le_bytes(buffer[112..116].try_into().unwrap()) as usize;
        let end = (HEADER + 4 * content.div_ceil(CHUNK)).min(BLOCK);
        let sum = checksum(&[&buffer[..CHECKSUM.start], &buffer[CHECKSUM.end..end]]);
        buffer[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Frame::decode(&buffer, PLACE).unwrap_err(), Fault::Header, "{value} at {at}");
    }
}

#[test]
fn a_buffer_is_used_again() {
    let mut buffer = Buffer::zeroed(2 * BLOCK);
    buffer.fill(0xAA);
    let (_, length) = encode(&header(), &records(), &mut buffer);
    assert_eq!(buffer[..length], encoded(&records()).0[..]);
    assert!(buffer[length..].iter().all(|byte| *byte == 0xAA));
}

#[test]
fn zeroes_take_no_room() {
    let bytes = |words: &[u64]| {
        let mut body = Body::new();
        body.put(1, words).unwrap();
        body.bytes()
    };
    assert_eq!(bytes(&[0; 100]), 4);
    assert!(bytes(&[0; MAX_ROW_WORDS]) < 10);
    let mut words = [0; 100];
    words[50] = u64::MAX;
    assert_eq!(bytes(&words), 4 + 8 + 2);
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let mut body = Body::new();
    let long_key = [0; polychron_base::key::MAX_KEY_BYTES + 1];
    let long_row = vec![1; MAX_ROW_WORDS + 1];
    let refused = [
        body.put(1, &long_row),
        body.delete(1, &long_key),
        body.patch(1, &long_key, &[(0, &[1])]),
        body.patch(1, b"", &[]),
        body.patch(1, b"", &[(0, &[])]),
        body.patch(1, b"", &[(0, &[1, 2]), (1, &[1])]),
        body.patch(1, b"", &[(MAX_ROW_WORDS, &[1])]),
        body.patch(1, b"", &[(usize::MAX, &[1])]),
    ];
    assert!(refused.iter().all(|result| matches!(result, Err(Refused::Invalid(_)))), "{refused:?}");
    assert_eq!(body, Body::new());
    body.delete(1, &long_key[1..]).unwrap();
    body.put(1, &long_row[1..]).unwrap();
    let mut writer = Writer::new();
    let pushed = (0..100).take_while(|_| writer.push(Order::default(), 0, &body).is_ok()).count();
    assert_eq!(pushed, MAX_CONTENT_BYTES / (body.bytes() + 6));
    assert_eq!(writer.count() as usize, pushed);
    assert_eq!(Frame::decode(&encoded(&writer).0, PLACE).unwrap().records().count(), pushed);
}

/// Records that contradict themselves, which a right checksum does not exclude.
#[test]
fn malformed_records_are_errors() {
    let fails = |content: &[u8], count| {
        Records::new(content, count)
            .any(|record| record.map_or(true, |record| record.changes().any(|change| change.is_err())))
    };
    let records = records();
    let content = records.content();
    assert!(!fails(content, 2));
    assert!(fails(content, 1) && fails(content, 3));
    for length in 0..content.len() {
        assert!(fails(&content[..length], 2), "{length}");
    }
    let put = |words: &[u8]| [&[words.len() as u8 + 1, 0, 0, 0, 4], words].concat();
    assert!(!fails(&put(&[3, 3, 0]), 1));
    let malformed: [&[u8]; 9] = [
        &[3],                                     // words are missing
        &[3, 4, 0],                               // more zeroes than words
        &[3, 2, 2],                               // more others
        &[3, 1, 0, 2, 0],                         // two runs of zeroes
        &[1, 0, 0, 1, 0],                         // an empty run
        &[1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],       // a zero among the others
        &[1, 0x80, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1], // a number of more bytes than it needs
        &[0x81, 0x80, 0x08, 0x81, 0x80, 0x08, 0], // a row beyond the limit
        &[0, 7],                                  // a change of no kind
    ];
    for words in malformed {
        assert!(fails(&put(words), 1), "{words:?}");
    }
    let body = |bytes: &[u8]| {
        let mut record = Vec::new();
        crate::codec::put_varint(&mut record, bytes.len() as u64);
        [&record, &[0; 3][..], bytes].concat()
    };
    let key =
        |length: u16| [&[6, length as u8 | 0x80, (length >> 7) as u8], vec![1; length.into()].as_slice()].concat();
    assert!(!fails(&body(&key(1024)), 1));
    assert!(fails(&body(&key(1025)), 1), "the key is too long");
    // A patch of a key without bytes: how many ranges, then distance and words of each.
    assert!(!fails(&body(&[5, 0, 1, 3, 1, 1, 0]), 1));
    assert!(fails(&body(&[5, 0, 0]), 1), "no range");
    assert!(fails(&body(&[5, 0, 1, 3, 0]), 1), "a range without words");
    assert!(fails(&body(&[5, 0, 1, 0x80, 0x80, 0x08, 1, 1, 0]), 1), "a range beyond the limit");
    assert!(fails(&body(&[5, 0, 1, 0x80, 0x80, 0x10, 1, 1, 0]), 1), "a range far beyond the limit");
}

/// A piece has two bits, and one behind the first a number; none is written in two ways.
#[test]
fn pieces_say_where_they_belong() {
    let order = Order { era: 0, timestamp: 1 };
    let written = |pieces: &[Piece]| {
        let (mut writer, mut body) = (Writer::new(), Body::new());
        body.delete(1, b"").unwrap();
        body.delete(1, b"k").unwrap();
        pieces.iter().for_each(|piece| writer.push_piece(order, 5, *piece, &body).unwrap());
        writer
    };
    let piece = |first, goes_on| Piece { first, goes_on };
    let taken = |pieces: &[Piece]| {
        let writer = written(pieces);
        let records: Vec<_> = Records::new(writer.content(), writer.count()).map(Result::unwrap).collect();
        assert!(records.iter().all(|record| record.worker == 5));
        assert!(records.iter().map(|record| &record.piece).eq(pieces));
        let mut follow = Pieces::default();
        records.iter().try_for_each(|record| follow.take(record)).and_then(|()| follow.end())
    };
    for right in [&[Piece::WHOLE][..], &[piece(0, true), piece(2, true), piece(4, false), Piece::WHOLE]] {
        assert_eq!(taken(right), Ok(()), "{right:?}");
    }
    let wrong: [&[Piece]; 7] = [
        &[piece(0, true)],
        &[piece(2, false)],
        &[piece(0, true), piece(4, false)],
        &[piece(0, true), piece(2, true), Piece::WHOLE],
        &[piece(0, true), piece(0, true)],
        &[piece(0, false), piece(2, false)],
        &[piece(0, true), piece(u32::MAX, false)],
    ];
    for wrong in wrong {
        assert_eq!(taken(wrong), Err(Malformed), "{wrong:?}");
    }
    assert_eq!(written(&[piece(2, true)]).content(), [5, 0, 2, 5 << 2 | 3, 2, 6, 0, 6, 1, b'k']);
    let no_number = [2, 0, 2, 5 << 2 | 1, 0, 6, 0];
    assert!(Records::new(&no_number, 1).next().unwrap().is_err(), "a later piece has changes before it");
}
