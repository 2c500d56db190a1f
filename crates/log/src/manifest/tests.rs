use super::*;
use crate::checkpoint::Range;

fn manifest() -> Manifest {
    let contents = Contents::Rows { table: 3, part: 1, range: Range { bits: 2, prefix: 3 } };
    let file = CheckpointFile { number: 6, contents, count: 9, bytes: 1 << 20, checksum: 0xABCD_EF01 };
    let carried = CheckpointFile { number: 7, contents: Contents::Records, count: 2, bytes: 4096, checksum: 1 };
    Manifest {
        database: DatabaseId(0x0123_4567_89AB_CDEF_0011_2233_4455_6677),
        incarnation: 5,
        first_log_file: 42,
        durable: 1_000_000,
        checkpoint: Some(Checkpoint {
            number: 7,
            epoch: 999_999,
            incarnation: 4,
            consistent: Order { era: 1, timestamp: 2 },
            files: vec![file, carried],
        }),
        catalog: b"tables".to_vec(),
    }
}

#[test]
fn what_is_encoded_is_decoded() {
    let without = Manifest { checkpoint: None, catalog: Vec::new(), ..manifest() };
    let large = Manifest { catalog: vec![7; 3 * BLOCK], ..manifest() };
    for manifest in [manifest(), without, large] {
        let mut bytes = encode(&manifest, 9);
        assert_eq!(decode(&bytes), Ok((manifest.clone(), 9)));
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        // Blocks of a longer manifest that lay there before.
        bytes.extend_from_slice(&[1; BLOCK]);
        assert_eq!(decode(&bytes), Ok((manifest, 9)));
    }
}

/// Later versions read what this version has written, or refuse it by its format's number.
#[test]
fn the_bytes_stay_the_same() {
    let bytes = encode(&manifest(), 9);
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        text,
        concat!(
            "706c796368724d46",                                 // magic
            "0100",                                             // format
            "00000d11dd4e",                                     // checksum
            "0900000000000000",                                 // generation
            "7766554433221100efcdab8967452301",                 // database
            "0500000000000000",                                 // incarnation
            "9b0000000000000000000000000000002a00000000000000", // length, first log file
            "40420f0000000000",                                 // durable epoch
            "060000007461626c6573",                             // catalog
            "0107000000000000003f420f0000000000",               // checkpoint: number, epoch
            "040000000000000001000000000000000200000000000000", // incarnation, consistent point
            "02000000",                                         // how many files
            "060000000000000000020300000001000000",             // checkpoint, kind, bits, table, part
            "0300000009000000000000000000100000000000",         // prefix, how many rows, length
            "01efcdab",                                         // checksum
            "070000000000000001000000000000000000",
            "0000000002000000000000000010000000000000",
            "01000000",
        )
    );
}

#[test]
fn every_flipped_bit_is_noticed() {
    let mut bytes = encode(&manifest(), 9);
    bytes.resize(BLOCK, 0);
    for bit in 0..8 * BLOCK {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode(&bytes), Err(Fault::Invalid), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn what_is_cut_short_is_no_manifest() {
    let bytes = encode(&manifest(), 9);
    for length in 1..bytes.len() {
        assert_eq!(decode(&bytes[..length]), Err(Fault::Invalid), "{length} bytes");
    }
    assert_eq!(decode(&[]), Err(Fault::Empty));
    assert_eq!(decode(&[0; BLOCK]), Err(Fault::Empty));
}

#[test]
fn another_format_is_told_from_damage() {
    let mut bytes = encode(&manifest(), 9);
    bytes[8] = 3;
    assert_eq!(decode(&bytes), Err(Fault::Invalid));
    let sum = checksum(&[&bytes[..CHECKSUM.start], &bytes[CHECKSUM.end..]]);
    bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(decode(&bytes), Err(Fault::Unsupported(3)));
}

/// Lengths that contradict each other, under a right checksum.
#[test]
fn lengths_are_not_believed() {
    let original = encode(&manifest(), 9);
    let catalog = HEADER + 16;
    let count = catalog + 4 + 6 + 1 + 40;
    for at in [catalog, count] {
        for value in [0, 1, 5, 7, 1 << 20, u32::MAX] {
            let mut bytes = original.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let sum = checksum(&[&bytes[..CHECKSUM.start], &bytes[CHECKSUM.end..]]);
            bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(decode(&bytes), Err(Fault::Invalid), "{value} at {at}");
        }
    }
}

/// Versions that do not know changes do not know such a manifest either, and take no older one for the newest.
#[test]
fn a_checkpoint_with_changes_has_a_format_of_its_own() {
    let mut manifest = manifest();
    assert_eq!(encode(&manifest, 1)[8], 1);
    let changes = CheckpointFile { number: 9, contents: Contents::Changes, count: 3, bytes: 4096, checksum: 2 };
    manifest.checkpoint.as_mut().expect("it has one").files.push(changes);
    let bytes = encode(&manifest, 2);
    assert_eq!((bytes[8], decode(&bytes)), (2, Ok((manifest, 2))));
}
