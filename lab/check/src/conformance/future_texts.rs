//! Futures of text, of bytes, of columns that may be NULL, and of several columns together.

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_engine::futures::FutureError;
use polychron_engine::{Becomes, Future, Futures, Interactive, Operations, Protocol, Table, Together, drive};
use polychron_schema::{Decimal, FixedBytes, FixedString, Row};

use crate::Setup;
use crate::setup::{all, begin, create, done, run};

/// A row with a column of each kind.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Page {
    #[key]
    id: u64,
    #[column(max = 24)]
    title: String,
    #[column(max = 1 << 20)]
    remark: Option<String>,
    #[column(max = 64)]
    image: Vec<u8>,
    rank: Option<i32>,
    price: Decimal<2>,
    code: FixedString<6>,
    digest: FixedBytes<4>,
}

fn page(id: u64, title: &str) -> Page {
    Page {
        id,
        title: title.to_owned(),
        remark: None,
        image: vec![7, 0],
        rank: None,
        price: Decimal::from_units(1999),
        code: FixedString::new("ab").expect("it fits"),
        digest: FixedBytes([1, 2, 3, 0]),
    }
}

/// A database with pages 1 of "rot" and 2 of "größer", and a worker.
fn pages<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> (P::Worker, Table<Page>) {
    let database = setup.open();
    let table = create::<P, Page>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| [page(1, "rot"), page(2, "größer")].iter().try_for_each(|row| t.insert(&table, row)));
    (worker, table)
}

fn cause<O: std::fmt::Debug>(outcome: Result<O, Error>) -> FutureError {
    let Err(Error::NoValue(failed)) = outcome else { panic!("{outcome:?}") };
    failed.why
}

/// Text and bytes are read, joined, measured, compared, chosen and written.
pub fn values<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (mut worker, table) = pages(setup);
    done(&mut worker, |t| {
        let (one, image, code) = t.future(&table, 1, (Page::TITLE, Page::IMAGE, Page::CODE))?;
        let (two, digest) = t.future(&table, 2, (Page::TITLE, Page::DIGEST))?;
        assert!(t.is_true(one.clone().greater_than("größer") & two.clone().equal_to("größer"))?);
        assert!(t.is_true(two.clone().length().equal_to(8) & two.clone().characters().equal_to(6))?);
        assert!(t.is_true(code.clone().equal_to(FixedString::new("ab").expect("it fits")))?);
        assert!(t.is_true(digest.clone().less_than(FixedBytes([1, 2, 3, 1])) & !digest.equal_to(FixedBytes([1; 4])))?);
        let both = one.clone() + "er, " + two.clone();
        let chosen = both.clone().length().at_most(24).then(both).otherwise("too long");
        let joined = image + &[9_u8, 255][..];
        t.set_futures(
            &table,
            1,
            [
                Page::TITLE.becomes(chosen),
                Page::IMAGE.becomes(joined),
                Page::CODE.becomes(code.convert::<String>().min("zz").convert::<FixedString<6>>()),
            ],
        )?;
        t.set_future(&table, 2, Page::TITLE, one.max(two))
    });
    let expected = Page { title: "roter, größer".to_owned(), image: vec![7, 0, 9, 255], ..page(1, "") };
    assert_eq!(all(&mut worker, &table), [expected, page(2, "rot")]);
    // What is written is read in the same transaction, by futures and otherwise, and shorter values take its place.
    done(&mut worker, |t| {
        t.set_future(&table, 2, Page::TITLE, "")?;
        let title = t.future(&table, 2, Page::TITLE)?;
        t.set_futures(&table, 2, [Page::TITLE.becomes(title + "x"), Page::IMAGE.becomes(Vec::new())])?;
        assert_eq!(t.get(&table, 2)?.map(|row| (row.title().to_owned(), row.image().len())), Some(("x".to_owned(), 0)));
        let title = t.future(&table, 2, Page::TITLE)?;
        assert_eq!(t.resolve(title.clone() + &title)?, "xx");
        t.set_future(&table, 2, Page::TITLE, title.convert::<Vec<u8>>().convert::<String>() + "y")
    });
    assert_eq!(all(&mut worker, &table)[1], Page { image: Vec::new(), ..page(2, "xy") });
}

/// NULL is a value of columns that have it.
pub fn nulls<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (mut worker, table) = pages(setup);
    done(&mut worker, |t| {
        let (remark, rank) = t.future(&table, 1, (Page::REMARK, Page::RANK))?;
        assert!(t.is_true(remark.clone().is_null() & rank.is_null())?);
        assert!(t.is_true(rank.equal_to(None) & rank.less_than(Some(i32::MIN)) & !rank.greater_than(None))?);
        // What is made of a value that is not there need not have one.
        let next = rank.map(|rank| rank + 1);
        let title = t.future(&table, 1, Page::TITLE)?;
        t.set_futures(
            &table,
            1,
            [Page::RANK.becomes(rank.or(40).nullable()), Page::REMARK.becomes((title + "!").nullable())],
        )?;
        t.set_futures(&table, 2, [Page::RANK.becomes(next), Page::TITLE.becomes(remark.or("none"))])
    });
    let one = Page { rank: Some(40), remark: Some("rot!".to_owned()), ..page(1, "rot") };
    assert_eq!(all(&mut worker, &table), [one, page(2, "none")]);
    done(&mut worker, |t| {
        let (rank, remark) = t.future(&table, 1, (Page::RANK, Page::REMARK))?;
        assert!(t.is_true(!rank.is_null() & rank.equal_to(Some(40)) & rank.value().at_least(40))?);
        let longer = remark.map(|remark| remark + "?");
        t.set_futures(&table, 2, [Page::RANK.becomes(rank.map(|rank| rank * 2)), Page::REMARK.becomes(longer)])?;
        t.set_futures(&table, 1, [Page::RANK.becomes(None), Page::REMARK.becomes(None)])
    });
    let two = Page { rank: Some(80), remark: Some("rot!?".to_owned()), ..page(2, "none") };
    assert_eq!(all(&mut worker, &table), [page(1, "rot"), two]);
}

/// Numbers become text, and text that is a number becomes one.
pub fn conversions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (mut worker, table) = pages(setup);
    done(&mut worker, |t| {
        let price = t.future(&table, 1, Page::PRICE)?;
        let text = (price - Decimal::from_units(2004)).convert::<String>();
        assert!(t.is_true(text.clone().equal_to("-0.05"))?);
        t.set_future(&table, 1, Page::TITLE, text)?;
        t.set_future(&table, 2, Page::TITLE, "-7")
    });
    done(&mut worker, |t| {
        let (one, two) = (t.future(&table, 1, Page::TITLE)?, t.future(&table, 2, Page::TITLE)?);
        let rank: Future<i32> = two.clone().convert();
        let unused: Future<u8> = two.convert();
        let price: Future<Decimal<2>> = one.convert();
        let rank = rank.less_than(0).then(rank - 1).otherwise(unused.convert());
        t.set_futures(&table, 1, [Page::PRICE.becomes(price), Page::RANK.becomes(rank.nullable())])
    });
    let one = Page { price: Decimal::from_units(-5), rank: Some(-8), ..page(1, "-0.05") };
    assert_eq!(all(&mut worker, &table), [one, page(2, "-7")]);
    let refused = run(&mut worker, |t| {
        let number: Future<i32> = t.future(&table, 1, Page::TITLE)?.convert();
        t.set_future(&table, 2, Page::RANK, number.nullable())
    });
    assert_eq!(cause(refused), FutureError::NotANumber { text: "-0.05".to_owned(), type_name: "i32".to_owned() });
    let known = Future::from("1.234").convert::<Decimal<2>>();
    let refused = run(&mut worker, |t| t.set_future(&table, 2, Page::PRICE, known));
    let (text, type_name) = ("1.234".to_owned(), "decimal(2)".to_owned());
    assert_eq!(cause(refused), FutureError::NotANumber { text, type_name });
    let bytes = run(&mut worker, |t| {
        let image = t.future(&table, 1, Page::IMAGE)? + &[255_u8][..];
        t.set_future(&table, 2, Page::TITLE, image.convert())
    });
    assert_eq!(cause(bytes), FutureError::NotText);
}

/// What does not fit undoes the transaction, and says what it is. What is not written, or on the side of a choice that is not taken, may be anything.
pub fn refusals<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (mut worker, table) = pages(setup);
    let too_long = |bytes| FutureError::TooLongFor { table: table.id(), column: 1, bytes, most: 24 };
    let known = run(&mut worker, |t| t.set_future(&table, 1, Page::TITLE, "x".repeat(25)));
    assert_eq!(cause(known), too_long(25));
    let long = |title: Future<String>| title.clone() + "----------------------" + title;
    let open = run(&mut worker, |t| {
        let title = t.future(&table, 1, Page::TITLE)?;
        t.set_future(&table, 2, Page::TITLE, long(title))
    });
    assert_eq!(cause(open), too_long(28));
    let overwritten = run(&mut worker, |t| {
        let title = t.future(&table, 1, Page::TITLE)?;
        t.set_future(&table, 2, Page::TITLE, long(title))?;
        t.set_future(&table, 2, Page::TITLE, "short")
    });
    assert_eq!(cause(overwritten), too_long(28));
    let inserted = run(&mut worker, |t| {
        let title = t.future(&table, 1, Page::TITLE)?;
        t.insert_future(&table, &page(3, ""), [Page::TITLE.becomes(long(title))])
    });
    assert_eq!(cause(inserted), too_long(28));
    let null = run(&mut worker, |t| {
        let remark = t.future(&table, 1, Page::REMARK)?;
        t.set_future(&table, 1, Page::TITLE, remark.value())
    });
    assert_eq!(cause(null), FutureError::NoNull);
    let grown = run(&mut worker, |t| {
        t.set_future(&table, 1, Page::REMARK, Some("r".repeat((1 << 20) - 200)))?;
        let remark = t.future(&table, 1, Page::REMARK)?;
        t.set_future(&table, 1, Page::REMARK, remark.map(|remark| remark + "s".repeat(150)))
    });
    assert!(matches!(cause(grown), FutureError::RowTooLong { bytes, .. } if bytes > 1 << 20));
    let doubled = run(&mut worker, |t| {
        let mut title = t.future(&table, 1, Page::TITLE)?;
        for _ in 0..40 {
            title = title.clone() + title;
        }
        t.set_future(&table, 1, Page::REMARK, title.nullable())
    });
    assert!(matches!(cause(doubled), FutureError::TooLong { most, .. } if most <= 1 << 20));
    assert_eq!(all(&mut worker, &table), [page(1, "rot"), page(2, "größer")], "nothing of them remains");
    done(&mut worker, |t| {
        let (title, remark) = t.future(&table, 1, (Page::TITLE, Page::REMARK))?;
        let _ = remark.clone().value() + "unused";
        let unused = remark.value().convert::<i32>();
        let rank = title.clone().equal_to("rot").then(3).otherwise(unused);
        t.set_futures(&table, 1, [Page::RANK.becomes(rank.nullable()), Page::TITLE.becomes(title + "e")])
    });
    assert_eq!(all(&mut worker, &table)[0], Page { rank: Some(3), ..page(1, "rote") });
}

/// A row under text, a number, and text again.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_words", columns(words))]
struct Entry {
    #[key]
    #[column(max = 300)]
    shelf: String,
    #[key]
    number: i32,
    #[key]
    code: FixedString<3>,
    #[key]
    #[column(max = 900)]
    label: String,
    #[column(max = 100)]
    words: Option<String>,
}

fn entry(shelf: &str, number: i32, label: &str, words: Option<&str>) -> Entry {
    let (shelf, label, words) = (shelf.to_owned(), label.to_owned(), words.map(str::to_owned));
    Entry { shelf, number, code: FixedString::new("c").expect("it fits"), label, words }
}

/// Keys are made of several futures, also of text with zeros in it, in every combination with columns that are known.
pub fn keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let (table, entries) = (create::<P, Page>(&database), create::<P, Entry>(&database));
    let mut worker = database.worker().unwrap();
    let titles = ["", "a", "a\0", "a\0\0b", "\0", "ä\u{ff}"];
    done(&mut worker, |t| {
        (0..)
            .zip(titles)
            .try_for_each(|(id, title)| t.insert(&table, &Page { rank: Some(id as i32 - 3), ..page(id, title) }))
    });
    let mut expected = Vec::new();
    for (id, title) in (0..).zip(titles) {
        for open in 0..16_u32 {
            let number = id as i32 - 3;
            let row = Entry { code: FixedString::new("ab").expect("it fits"), ..entry(title, number, title, None) };
            let row = Entry { label: format!("{title}{open}"), ..row };
            done(&mut worker, |t| {
                let (title, rank, code) = t.future(&table, id, (Page::TITLE, Page::RANK, Page::CODE))?;
                // What is known is as it will be, what is not is something else.
                let is_open = |at: u32| open >> at & 1 != 0;
                let other = Entry { code: FixedString::new("zzz").expect("it fits"), ..entry("?\0", 77, "??", None) };
                let code = code.convert::<String>().convert::<FixedString<3>>();
                let label = title.clone() + open.to_string();
                let template = Entry {
                    shelf: if is_open(0) { other.shelf } else { row.shelf.clone() },
                    number: if is_open(1) { other.number } else { row.number },
                    code: if is_open(2) { other.code } else { row.code },
                    label: if is_open(3) { other.label } else { row.label.clone() },
                    words: None,
                };
                let known = |value: &str| Future::from(value);
                t.insert_future(
                    &entries,
                    &template,
                    [
                        Entry::SHELF.becomes(if is_open(0) { title } else { known(&row.shelf) }),
                        Entry::NUMBER.becomes(if is_open(1) { rank.value() } else { row.number.into() }),
                        Entry::CODE.becomes(if is_open(2) { code } else { row.code.into() }),
                        Entry::LABEL.becomes(if is_open(3) { label } else { known(&row.label) }),
                    ],
                )
            });
            expected.push(row);
        }
    }
    expected.sort_by(|one, other| {
        let key = |row: &Entry| (row.shelf.clone(), row.number, row.code, row.label.clone());
        key(one).cmp(&key(other))
    });
    assert_eq!(all(&mut worker, &entries), expected);
    written_under::<P>(&mut worker, &table, &entries, &mut expected);
    assert_eq!(all(&mut worker, &entries), expected);
    let found = done(&mut worker, |t| t.scan_by(&entries, Entry::BY_WORDS, Some("a7 was here")).count());
    assert_eq!(found, 1);
}

/// Rows are read and written under such keys.
fn written_under<P: Protocol<Worker: Interactive>>(
    worker: &mut P::Worker,
    table: &Table<Page>,
    entries: &Table<Entry>,
    rows: &mut [Entry],
) {
    for row in rows {
        let id =
            ["", "a", "a\0", "a\0\0b", "\0", "ä\u{ff}"].iter().position(|title| *title == row.shelf).unwrap() as u64;
        done(worker, |t| {
            let (title, rank) = t.future(table, id, (Page::TITLE, Page::RANK))?;
            let label = title.clone() + &row.label[row.shelf.len()..];
            let words = label.clone() + " was here";
            t.set_futures_at(
                entries,
                (title.clone(), rank.value(), row.code, label.clone()),
                [Entry::WORDS.becomes(words.nullable())],
            )?;
            let there = t.future_at(entries, (title, row.number, row.code, &*row.label), Entry::WORDS)?;
            assert!(t.is_true(there.equal_to(Some(format!("{} was here", row.label))))?);
            Ok(())
        });
        row.words = Some(format!("{} was here", row.label));
    }
}

/// A key that is too long, one that is taken, and one under which there is nothing.
pub fn refused_keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let (table, entries) = (create::<P, Page>(&database), create::<P, Entry>(&database));
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        t.insert(&table, &Page { remark: Some("r".repeat(300)), rank: Some(3), ..page(1, "a") })?;
        t.insert(&entries, &entry("a", 3, "l", None))
    });
    let too_long = run(&mut worker, |t| {
        let remark = t.future(&table, 1, Page::REMARK)?.value();
        let label = remark.clone() + &remark + &remark;
        let columns = [Entry::SHELF.becomes(remark), Entry::LABEL.becomes(label)];
        t.insert_future(&entries, &entry("", 1, "", None), columns)
    });
    assert!(matches!(too_long, Err(Error::KeyTooLong(_))), "{too_long:?}");
    let taken = run(&mut worker, |t| {
        let (title, rank) = t.future(&table, 1, (Page::TITLE, Page::RANK))?;
        let columns = [Entry::SHELF.becomes(title), Entry::NUMBER.becomes(rank.value())];
        t.insert_future(&entries, &entry("", 1, "l", None), columns)
    });
    assert!(matches!(taken, Err(Error::Duplicate(ref of)) if of.table == entries.id()), "{taken:?}");
    let absent = run(&mut worker, |t| {
        let title = t.future(&table, 1, Page::TITLE)?;
        let code = FixedString::new("c").expect("it fits");
        t.set_futures_at(&entries, (title, 5, code, "l"), [Entry::WORDS.becomes(None)])
    });
    assert_eq!(cause(absent), FutureError::NoRow(entries.id()));
    assert_eq!(all(&mut worker, &entries), [entry("a", 3, "l", None)]);
}

/// Several futures are compared and chosen together.
pub fn tuples<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (mut worker, table) = pages(setup);
    done(&mut worker, |t| {
        let (columns, order) = ((Page::TITLE, Page::RANK, Page::PRICE), [1, 2].map(|id| (id, 3 - id)));
        for (id, other) in order {
            let (one, two) = (t.future(&table, id, columns)?, t.future(&table, other, columns)?);
            let is_less = one.clone().comes_before(two.clone());
            assert_eq!(t.is_true(is_less)?, id == 2, "the second title comes before the first");
            assert!(t.is_true(!one.clone().same_as(two.clone()) & one.clone().same_as(one.clone()))?);
            let same_title = (two.0.clone(), one.1, one.2 + Decimal::from_units(1));
            let more = (two.0.clone(), Some(0).into(), one.2);
            assert!(t.is_true(two.clone().comes_before(same_title.clone()) & same_title.comes_before(more))?);
        }
        let (one, two) = (t.future(&table, 1, columns)?, t.future(&table, 2, columns)?);
        let first = Together::choose(one.clone().comes_before(two.clone()), one, two);
        t.set_futures(&table, 1, [Page::TITLE.becomes(first.0), Page::RANK.becomes(first.1.or(9).nullable())])
    });
    assert_eq!(all(&mut worker, &table)[0], Page { rank: Some(9), ..page(1, "größer") });
}

/// A transaction answers with text, and with NULL, after its commit; elsewhere its futures are refused.
pub fn answers<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (mut worker, table) = pages(setup);
    let mut kept = None;
    let answer = drive::transact_resolved(&mut worker, &mut |t| {
        let (title, remark, rank, image, code) =
            t.future(&table, 1, (Page::TITLE, Page::REMARK, Page::RANK, Page::IMAGE, Page::CODE))?;
        let label = title.clone() + "/" + rank.or(7).convert::<String>();
        t.set_future(&table, 1, Page::REMARK, label.clone().nullable())?;
        kept = Some(title.clone());
        Ok::<_, Error>((title, remark, rank, image, code, label, Future::from("plain")))
    });
    let code = FixedString::new("ab").expect("it fits");
    let expected = ("rot".to_owned(), None, None, vec![7, 0], code, "rot/7".to_owned(), "plain".to_owned());
    assert_eq!(answer.unwrap(), expected);
    let title = kept.expect("it has run");
    let foreign = run(&mut worker, |t| t.set_future(&table, 2, Page::TITLE, title.clone() + "x"));
    assert_eq!(cause(foreign), FutureError::Foreign);
    let failed = drive::transact_resolved(&mut worker, &mut |t| {
        Ok::<_, Error>(t.future(&table, 2, Page::TITLE)?.convert::<i32>())
    });
    let (text, type_name) = ("größer".to_owned(), "i32".to_owned());
    assert_eq!(cause(failed), FutureError::NotANumber { text, type_name });
}

/// What another transaction makes of a row leaves a condition over its text or NULL as it was, or the transaction conflicts.
pub fn conditions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves {
        return;
    }
    for (title, rank, holds) in [("rotes", Some(4), true), ("blau", Some(4), false), ("rotes", None, false)] {
        let database = setup.open();
        let table = create::<P, Page>(&database);
        let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
        done(&mut left, |t| {
            t.insert(&table, &Page { rank: Some(1), ..page(1, "rot") })?;
            t.insert(&table, &page(2, ""))
        });
        let mut asks = begin(&mut left);
        let answer = asks.step(|t| {
            let (title, rank) = t.future(&table, 1, (Page::TITLE, Page::RANK))?;
            t.set_future(&table, 2, Page::TITLE, title.clone() + "!")?;
            t.is_true(title.at_least("r") & !rank.is_null())
        });
        assert_eq!(answer, Some(true));
        // It waits, or gives up, under some protocols.
        let changed = {
            let mut writes = begin(&mut right);
            writes.step(|t| t.update(&table, 1, |row| row.set_title(title).map(|()| row.set_rank(rank)))).is_some()
                && writes.commit()
        };
        let committed = asks.commit();
        if committed {
            let rows = all(&mut right, &table);
            let before = [format!("{title}!"), "rot!".to_owned()];
            assert!(before.contains(&rows[1].title), "{rows:?}");
            // The answer held where the transaction stands in the serial order, and what it wrote is of that place.
            assert!(holds || rows[1].title == before[1] || !changed, "{rows:?}");
        }
    }
}

/// A value of a random program.
type Drawn = Option<String>;

/// What futures and values make of the same numbers: random programs over text and NULL.
pub fn programs<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (mut worker, table) = pages(setup);
    let mut random = Random::stream(45, 0);
    for round in 0..scaled(300, 25) {
        let start: [Drawn; 2] = [0, 1].map(|_| draw(&mut random));
        let steps: Vec<_> =
            (0..random.range_inclusive(1, 8)).map(|_| [0; 4].map(|_: u64| random.below(1 << 20))).collect();
        done(&mut worker, |t| {
            (1..)
                .zip(&start)
                .try_for_each(|(id, value)| t.update(&table, id, |row| row.set_remark(value.as_deref())).map(drop))
        });
        let mut model: Vec<Drawn> = start.to_vec();
        let answers = run(&mut worker, |t| {
            model.truncate(2);
            let mut futures = vec![t.future(&table, 1, Page::REMARK)?, t.future(&table, 2, Page::REMARK)?];
            let mut answers = Vec::new();
            for step in &steps {
                let made = make(step, &model, &futures);
                model.push(made.0);
                futures.push(made.1);
                let (last, first) = (futures.len() - 1, step[3] as usize % futures.len());
                if step[2] % 3 == 0 {
                    let answer = t.is_true(futures[last].clone().at_most(&futures[first]))?;
                    answers.push((answer, model[last] <= model[first]));
                } else {
                    t.set_future(&table, 1 + step[2] % 2, Page::REMARK, futures[last].clone())?;
                }
            }
            t.set_future(&table, 1, Page::REMARK, &futures[futures.len() - 1])?;
            Ok(answers)
        });
        let answers = answers.unwrap();
        assert!(answers.iter().all(|(answer, expected)| answer == expected), "round {round}: {steps:?}, {answers:?}");
        assert_eq!(all(&mut worker, &table)[0].remark, *model.last().unwrap(), "round {round}: {start:?}, {steps:?}");
    }
}

fn draw(random: &mut Random) -> Drawn {
    let texts = ["", "a", "ab", "é", "zz\0", "12", "-3"];
    (random.below(4) > 0).then(|| texts[random.below(texts.len() as u64) as usize].to_owned())
}

/// The value, and the future, that a step makes of those before.
fn make(step: &[u64; 4], values: &[Drawn], futures: &[Future<Option<String>>]) -> (Drawn, Future<Option<String>>) {
    let at = |number: u64| number as usize % values.len();
    let (one, two) = (at(step[1]), at(step[2]));
    let (left, right) = (futures[one].clone(), futures[two].clone());
    let (value, other) = (values[one].clone(), values[two].clone());
    // Nothing gets so long that it does not fit.
    let cut = |text: String| if text.len() > 60 { "cut".to_owned() } else { text };
    let cut_future = |text: Future<String>| text.clone().length().greater_than(60).then("cut").otherwise(text);
    match step[0] % 6 {
        0 => (
            value.zip(other).map(|(one, two)| cut(one + &two)),
            left.clone().is_null().then(None).otherwise(right.map(|two| cut_future(left.value() + two))),
        ),
        1 => (Some(value.unwrap_or_else(|| "or".to_owned())), left.or("or").nullable()),
        2 => (value.map(|value| value.chars().count().to_string()), left.map(|text| text.characters().convert())),
        3 => (value.max(other), left.max(right)),
        4 => (value.clone().min(other.clone()), left.min(&right)),
        _ => (if value < other { other } else { None }, left.less_than(&right).then(right).otherwise(None)),
    }
}
