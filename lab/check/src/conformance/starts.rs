//! Ranges of keys that start with a text or with bytes: what they find is what a filter over all rows leaves.

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_engine::typed::Range;
use polychron_engine::{Interactive, Isolation, Operations, Protocol, Row, Table, Transaction};
use polychron_schema::{FixedString, MAX_KEY_BYTES};

use crate::Setup;
use crate::rows::Host;
use crate::setup::{Tx, all, begin, create, done, run};

/// A row with text and bytes in every place of a key.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_bytes", columns = [bytes])]
#[index(name = "by_text", columns = [text])]
#[index(name = "by_unique", columns = [unique], unique)]
#[index(name = "by_maybe", columns = [maybe], unique)]
#[index(name = "by_fixed", columns = [fixed, bytes])]
#[index(name = "by_place", columns = [shelf, text, bytes])]
#[index(name = "by_mark", columns = [shelf, unique], unique)]
pub(crate) struct Label {
    #[key]
    bytes: Vec<u8>,
    #[key]
    text: String,
    unique: Vec<u8>,
    maybe: Option<String>,
    fixed: FixedString<3>,
    shelf: u8,
}

/// Bytes of up to three, of which many are the highest, or the one that encodings escape.
fn draw_bytes(random: &mut Random) -> Vec<u8> {
    (0..random.below(4)).map(|_| [0, 1, 254, 255, 255][random.below(5) as usize]).collect()
}

fn draw_text(random: &mut Random) -> String {
    (0..random.below(4)).map(|_| ['\0', 'a', 'b', char::MAX][random.below(4) as usize]).collect()
}

fn draw_fixed(random: &mut Random) -> String {
    (0..random.below(5)).map(|_| ['\0', '\u{1}', 'a', '\u{7f}'][random.below(4) as usize]).collect()
}

fn draw(random: &mut Random, number: u16) -> Label {
    let fixed = draw_fixed(random);
    let mut unique = draw_bytes(random);
    unique.extend(number.to_be_bytes());
    Label {
        bytes: draw_bytes(random),
        text: draw_text(random),
        unique,
        maybe: random.chance(0.7).then(|| format!("{}{number}", draw_text(random))),
        fixed: FixedString::new(&fixed[..fixed.len().min(3)]).expect("there is room"),
        shelf: [0, 1, 254, 255][random.below(4) as usize],
    }
}

/// Compares one range with the rows that a filter leaves, in the order of a key.
macro_rules! compare {
    ($t:ident, $labels:ident, $random:ident, $range:expr, holds: $holds:expr, order: $order:expr) => {{
        let mut expected: Vec<&Label> = $labels.iter().filter(|row| $holds(row)).collect();
        expected.sort_by_key(|row| $order(row));
        let keys = |row: &Label| (row.bytes.clone(), row.text.clone());
        let expected: Vec<_> = expected.into_iter().map(keys).collect();
        let found: Vec<_> = $range.map(|row| (row.bytes().to_vec(), row.text().to_owned())).collect()?;
        assert_eq!(found, expected);
        let mut backward: Vec<_> = $range.rev().map(|row| (row.bytes().to_vec(), row.text().to_owned())).collect()?;
        backward.reverse();
        assert_eq!(backward, expected);
        from_both_ends($range, &expected, $random)?;
    }};
}

/// Takes rows from either end until they meet.
fn from_both_ends<T: Transaction + ?Sized>(
    range: Range<'_, T, Label>,
    expected: &[(Vec<u8>, String)],
    random: &mut Random,
) -> Result<(), Error> {
    let (mut rows, mut expected) = (range.iter(), expected.iter());
    loop {
        let (row, wanted) = if random.below(2) == 0 {
            (rows.next(), expected.next())
        } else {
            (rows.next_back(), expected.next_back())
        };
        let row = row.transpose()?.map(|row| (row.bytes, row.text));
        assert_eq!(row.as_ref(), wanted);
        if row.is_none() {
            return Ok(());
        }
    }
}

fn compare_all<T: Transaction>(
    t: &mut T,
    table: &Table<Label>,
    labels: &[Label],
    random: &mut Random,
) -> Result<(), Error> {
    let (bytes, text, fixed) = (draw_bytes(random), draw_text(random), draw_fixed(random));
    let (bytes, text, fixed) = (bytes.as_slice(), text.as_str(), fixed.as_str());
    let shelf = [0, 1, 254, 255][random.below(4) as usize];
    let whole = labels[random.below(labels.len() as u64) as usize].bytes.clone();
    let key = |row: &Label| (row.bytes.clone(), row.text.clone());
    compare!(t, labels, random, t.scan_starting_with(table, bytes),
        holds: |row: &&Label| row.bytes.starts_with(bytes), order: |row: &Label| key(row));
    compare!(t, labels, random, t.scan_starting_with(table, (whole.as_slice(), text)),
        holds: |row: &&Label| row.bytes == whole && row.text.starts_with(text), order: |row: &Label| key(row));
    compare!(t, labels, random, t.scan_starting_with_by(table, Label::BY_BYTES, bytes),
        holds: |row: &&Label| row.bytes.starts_with(bytes), order: |row: &Label| key(row));
    compare!(t, labels, random, t.scan_starting_with_by(table, Label::BY_TEXT, text),
        holds: |row: &&Label| row.text.starts_with(text), order: |row: &Label| (row.text.clone(), key(row)));
    compare!(t, labels, random, t.scan_starting_with_by(table, Label::BY_UNIQUE, bytes),
        holds: |row: &&Label| row.unique.starts_with(bytes), order: |row: &Label| row.unique.clone());
    compare!(t, labels, random, t.scan_starting_with_by(table, Label::BY_MAYBE, text),
        holds: |row: &&Label| row.maybe.as_ref().is_some_and(|it| it.starts_with(text)),
        order: |row: &Label| row.maybe.clone());
    compare!(t, labels, random, t.scan_starting_with_by(table, Label::BY_FIXED, fixed),
        holds: |row: &&Label| row.fixed.as_str().starts_with(fixed),
        order: |row: &Label| (row.fixed.as_str().to_owned(), key(row)));
    compare!(t, labels, random, t.scan_starting_with_by(table, Label::BY_PLACE, (shelf, text)),
        holds: |row: &&Label| row.shelf == shelf && row.text.starts_with(text),
        order: |row: &Label| (row.text.clone(), key(row)));
    compare!(t, labels, random, t.scan_starting_with_by(table, Label::BY_PLACE, (shelf, text, bytes)),
        holds: |row: &&Label| row.shelf == shelf && row.text == text && row.bytes.starts_with(bytes),
        order: |row: &Label| key(row));
    compare!(t, labels, random, t.scan_starting_with_by(table, Label::BY_MARK, (shelf, bytes)),
        holds: |row: &&Label| row.shelf == shelf && row.unique.starts_with(bytes), order: |row: &Label| row.unique.clone());
    Ok(())
}

/// Starts of every length, of the highest bytes and of escaped ones, in every place of a key.
pub fn of_keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Label>(&database);
    let mut worker = database.worker().unwrap();
    let random = &mut Random::from_seed(41);
    let mut labels: Vec<Label> = (0..scaled(300, 60) as u16).map(|number| draw(random, number)).collect();
    labels.sort_by_key(|row| (row.bytes.clone(), row.text.clone()));
    labels.dedup_by_key(|row| (row.bytes.clone(), row.text.clone()));
    done(&mut worker, |t| labels.iter().try_for_each(|row| t.insert(&table, row)));
    let seed = random.next_u64();
    done(&mut worker, |t| {
        let random = &mut Random::from_seed(seed);
        (0..scaled(40, 8)).try_for_each(|_| compare_all(t, &table, &labels, random))
    });
    assert_eq!(all(&mut worker, &table), labels);
}

/// The longest keys, the last one of all, and starts that are longer than any key, or of an index without order.
pub fn at_the_ends<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    #[derive(Row, Clone, Debug, PartialEq, Eq)]
    struct Blob {
        #[key]
        bytes: Vec<u8>,
        number: u32,
    }
    let database = setup.open();
    let (table, hosts) = (create::<P, Blob>(&database), create::<P, Host>(&database));
    let mut worker = database.worker().unwrap();
    let last = vec![255; MAX_KEY_BYTES];
    let keys = [vec![], vec![254], vec![254, 255], vec![255], vec![255; 7], last.clone()];
    done(&mut worker, |t| {
        let mut rows = (0..).zip(&keys).map(|(number, bytes)| Blob { bytes: bytes.clone(), number });
        rows.try_for_each(|row| t.insert(&table, &row))
    });
    done(&mut worker, |t| {
        let mut expect = |start: &[u8], wanted: &[u32]| {
            let found: Vec<u32> = t.scan_starting_with(&table, start).map(|row| row.number()).collect()?;
            assert_eq!(found, wanted);
            let ends = t.scan_starting_with(&table, start).iter().rev().map(|row| row.map(|row| row.number));
            let mut ends = ends.collect::<Result<Vec<_>, _>>()?;
            ends.reverse();
            assert_eq!(ends, wanted);
            Ok(())
        };
        expect(&[], &[0, 1, 2, 3, 4, 5])?;
        expect(&[254], &[1, 2])?;
        expect(&[254, 255], &[2])?;
        expect(&[255], &[3, 4, 5])?;
        expect(&[255; 8], &[5])?;
        expect(&last, &[5])?;
        expect(&last[1..], &[5])?;
        expect(&[255, 0], &[])
    });
    let long = vec![255; MAX_KEY_BYTES + 1];
    let refused = run(&mut worker, |t| t.scan_starting_with(&table, &long[..]).count());
    assert!(matches!(refused, Err(Error::KeyTooLong(_))), "{refused:?}");
    let refused = run(&mut worker, |t| t.scan_starting_with(&hosts, "a").count());
    assert!(matches!(refused, Err(Error::NoOrder(..))), "{refused:?}");
    let refused = run(&mut worker, |t| t.scan_starting_with_by(&hosts, Host::BY_ADDRESS, "a").count());
    assert!(matches!(refused, Err(Error::NoOrder(..))), "{refused:?}");
}

fn label(bytes: &[u8], text: &str) -> Label {
    let mut unique = bytes.to_vec();
    unique.extend(text.as_bytes());
    let fixed = FixedString::new("").expect("there is room");
    Label { bytes: bytes.to_vec(), text: text.to_owned(), unique, maybe: None, fixed, shelf: 1 }
}

/// Counts what starts with one of two starts: by the primary key or by a secondary index.
type Count<P> = fn(&mut Tx<'_, P>, &Table<Label>, usize) -> Result<u64, Error>;

/// A row that starts so, in the place of the other transaction's.
type Write<P> = fn(&mut Tx<'_, P>, &Table<Label>, usize) -> Result<(), Error>;

const TEXTS: [&str; 2] = ["ab", "b\0"];
const BYTES: [&[u8]; 2] = [&[7, 255], &[255, 255]];

/// Each of two transactions counts what starts one way and writes what starts the other way: both cannot commit.
pub fn phantoms<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let counts: [Count<P>; 3] = [
        |t, table, side| t.scan_starting_with(table, BYTES[side]).count(),
        |t, table, side| t.scan_starting_with_by(table, Label::BY_TEXT, TEXTS[side]).count(),
        |t, table, side| {
            let rows = t.scan_starting_with_by(table, Label::BY_PLACE, (1, TEXTS[side])).iter();
            rows.rev().try_fold(0, |count, row| row.map(|_| count + 1))
        },
    ];
    let inserts: Write<P> = |t, table, side| {
        let mut bytes = BYTES[side].to_vec();
        bytes.push(255);
        t.insert(table, &label(&bytes, &format!("{}c", TEXTS[side])))
    };
    let deletes: Write<P> =
        |t, table, side| t.delete(table, (BYTES[side], TEXTS[side])).map(|found| assert!(found, "it was put there"));
    for count in counts {
        for write in [inserts, deletes] {
            let database = setup.open();
            let table = create::<P, Label>(&database);
            let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
            done(&mut left, |t| {
                (0..2).try_for_each(|side| t.insert(&table, &label(BYTES[side], TEXTS[side])))?;
                t.insert(&table, &label(&[8], "c"))
            });
            let (mut one, mut two) = (begin(&mut left), begin(&mut right));
            let (by_one, by_two) = (one.step(|t| count(t, &table, 0)), two.step(|t| count(t, &table, 1)));
            one.step(|t| write(t, &table, 1));
            two.step(|t| write(t, &table, 0));
            let both = one.commit() & two.commit();
            let is_skewed = both && by_one == Some(1) && by_two == Some(1);
            assert_eq!(is_skewed, setup.isolation == Isolation::Snapshot, "whether a phantom was committed");
        }
    }
}
