//! Ranges of secondary indexes: what they find is what a filter over all rows leaves.

use std::ops::{Bound, RangeBounds};

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_engine::{Interactive, Operations, Protocol};

use crate::Setup;
use crate::rows::{Guest, Song};
use crate::setup::{all, create, done, run};

/// Texts of up to `length` letters, of which one is the byte that encodings escape.
fn texts(length: usize) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut from = 0;
    for _ in 0..length {
        let end = texts.len();
        let longer: Vec<_> =
            texts[from..].iter().flat_map(|text| ["\0", "a", "b"].map(|end| format!("{text}{end}"))).collect();
        texts.extend(longer);
        from = end;
    }
    texts
}

/// Songs of which no two have the same note.
fn songs(random: &mut Random) -> Vec<Song> {
    let titles = texts(2);
    let song = |(id, note)| Song {
        id,
        shelf: random.below(3) as u16,
        title: titles[random.below(titles.len() as u64) as usize].clone(),
        note,
        code: random.chance(0.8).then(|| random.below(5) as u32),
    };
    (0..).zip(texts(3)).map(song).collect()
}

/// Two bounds, whatever their type. (The standard library's pairs of bounds are ranges of two types when they hold references.)
#[derive(Clone, Copy, Debug)]
struct Drawn<B>(Bound<B>, Bound<B>);

impl<B> RangeBounds<B> for Drawn<B> {
    fn start_bound(&self) -> Bound<&B> {
        self.0.as_ref()
    }

    fn end_bound(&self) -> Bound<&B> {
        self.1.as_ref()
    }
}

fn bound<B>(random: &mut Random, value: B) -> Bound<B> {
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Excluded(value),
        _ => Bound::Included(value),
    }
}

/// Compares one random range, forward and backward, with a filter over all rows: `$bound` draws a bound, `$key` is what a
/// song has in its place, and `$order` in what order the index has the songs.
macro_rules! compare {
    ($t:ident, $table:ident, $songs:ident, $random:ident, $index:expr,
     bound: $bound:expr, key: $key:expr, order: $order:expr $(,)?) => {{
        let (first, second) = ($bound, $bound);
        let range = Drawn(bound($random, first), bound($random, second));
        let mut expected: Vec<&Song> =
            $songs.iter().filter(|song| RangeBounds::contains(&range, &$key(song))).collect();
        expected.sort_by_key(|song| $order(song));
        let mut expected: Vec<u64> = expected.into_iter().map(|song| song.id).collect();
        let found: Vec<u64> = $t.scan_range_by(&$table, $index, range).map(|row| row.id()).collect()?;
        assert_eq!(found, expected, "{} {range:?}", $index.name());
        expected.reverse();
        let found: Vec<u64> = $t.scan_range_by(&$table, $index, range).rev().map(|row| row.id()).collect()?;
        assert_eq!(found, expected, "{} {range:?} backward", $index.name());
    }};
}

/// Bounds of every kind over texts, NULLs, whole keys and first columns, of unique and other indexes.
pub fn of_entries<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Song>(&database);
    let mut worker = database.worker().unwrap();
    let random = &mut Random::stream(7, 0);
    let songs = songs(random);
    let titles = texts(3);
    done(&mut worker, |t| songs.iter().try_for_each(|song| t.insert(&table, song)));
    let rounds = if cfg!(any(miri, debug_assertions)) { 60 } else { 600 };
    done(&mut worker, |t| {
        for _ in 0..rounds {
            let text = |random: &mut Random| titles[random.below(titles.len() as u64) as usize].as_str();
            let shelf = |random: &mut Random| random.below(5) as u16;
            compare!(t, table, songs, random, Song::BY_TITLE, bound: text(random),
                key: |song: &&Song| -> &str { &songs[song.id as usize].title }, order: |song: &Song| (song.title.clone(), song.id));
            compare!(t, table, songs, random, Song::BY_NOTE, bound: text(random),
                key: |song: &&Song| -> &str { &songs[song.id as usize].note }, order: |song: &Song| song.note.clone());
            compare!(t, table, songs, random, Song::BY_CODE, bound: random.chance(0.9).then(|| random.below(6) as u32),
                key: |song: &&Song| song.code, order: |song: &Song| (song.code, song.id));
            compare!(t, table, songs, random, Song::BY_PLACE, bound: (shelf(random), text(random)),
                key: |song: &&Song| (song.shelf, songs[song.id as usize].title.as_str()),
                order: |song: &Song| (song.shelf, song.title.clone(), song.id));
            compare!(t, table, songs, random, Song::BY_MARK, bound: (shelf(random), text(random)),
                key: |song: &&Song| (song.shelf, songs[song.id as usize].note.as_str()),
                order: |song: &Song| (song.shelf, song.note.clone()));
            compare!(t, table, songs, random, Song::BY_PLACE, bound: shelf(random),
                key: |song: &&Song| song.shelf, order: |song: &Song| (song.shelf, song.title.clone(), song.id));
            compare!(t, table, songs, random, Song::BY_MARK, bound: (shelf(random),),
                key: |song: &&Song| (song.shelf,), order: |song: &Song| (song.shelf, song.note.clone()));
        }
        Ok(())
    });
    assert_eq!(all(&mut worker, &table), songs);
}

/// Bounds longer than any key are refused, and so are ranges of indexes without order that are not one key.
pub fn refused<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let (songs, guests) = (create::<P, Song>(&database), create::<P, Guest>(&database));
    let mut worker = database.worker().unwrap();
    let long = "l".repeat(polychron_schema::MAX_KEY_BYTES + 1);
    let long = long.as_str();
    let too_long = |outcome| assert!(matches!(outcome, Err(Error::KeyTooLong(_))), "{outcome:?}");
    too_long(run(&mut worker, |t| t.scan_range_by(&songs, Song::BY_TITLE, ..long).count()));
    too_long(run(&mut worker, |t| t.scan_range_by(&songs, Song::BY_NOTE, long..).count()));
    too_long(run(&mut worker, |t| t.scan_range_by(&songs, Song::BY_PLACE, (1, "a")..=(1, long)).count()));
    too_long(run(&mut worker, |t| t.scan_by(&songs, Song::BY_NOTE, long).count()));
    too_long(run(&mut worker, |t| t.scan_by(&songs, Song::BY_TITLE, long).limit(0).count()));
    assert_eq!(done(&mut worker, |t| t.scan_range_by(&songs, Song::BY_NOTE, "a".."b").count()), 0);
    done(&mut worker, |t| t.insert(&guests, &Guest { id: 1, badge: 5, room: 1 }));
    for limit in [0, 1, usize::MAX] {
        let refused = run(&mut worker, |t| t.scan_range_by(&guests, Guest::BY_BADGE, 1..20).limit(limit).count());
        assert!(matches!(refused, Err(Error::NoOrder(..))), "limit {limit}: {refused:?}");
    }
    assert_eq!(done(&mut worker, |t| t.scan_range_by(&guests, Guest::BY_BADGE, 5..=5).count()), 1);
}
