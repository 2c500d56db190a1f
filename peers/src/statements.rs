//! Prepared statements of Polychron and of SQLite, both in memory, in turns in one process.
//!
//! Both have the same rows, draw the same keys, and must answer the same.

use clap::Args;
use comfy_table::{Table, presets};
use polychron::Database;
use polychron_base::clock::{Clock as _, SystemClock};

use crate::{Failure, spread};

/// Prepared statements beside SQLite's, both in memory, in turns in one process
#[derive(Args)]
pub struct Arguments {
    /// How many rows each table has
    #[arg(long, default_value_t = 100_000)]
    rows: i64,
    /// How often each statement is executed in a turn
    #[arg(long, default_value_t = 20_000)]
    times: u32,
    /// How many turns each has
    #[arg(long, default_value_t = 15)]
    repeat: usize,
    /// Only the statements whose names contain this
    #[arg(long, default_value = "")]
    only: String,
}

const TABLES: [&str; 3] = [
    "CREATE TABLE item (id bigint PRIMARY KEY, name text NOT NULL, stock bigint NOT NULL)",
    "CREATE TABLE buyer (id bigint PRIMARY KEY, name text NOT NULL)",
    "CREATE TABLE purchase (id bigint PRIMARY KEY, item bigint NOT NULL, buyer bigint NOT NULL)",
];

/// What a statement gets, and what is read of its answer.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Read,
    Update,
    Insert,
    Range,
    Join,
}

const STATEMENTS: [(&str, Does, &str); 5] = [
    ("point read", Does::Read, "SELECT name, stock FROM item WHERE id = $1"),
    ("update", Does::Update, "UPDATE item SET stock = stock + $2 WHERE id = $1"),
    ("insert", Does::Insert, "INSERT INTO buyer VALUES ($1, $2)"),
    ("ten rows", Does::Range, "SELECT id, name, stock FROM item WHERE id >= $1 AND id < $2 ORDER BY id"),
    (
        "join of three by keys",
        Does::Join,
        "SELECT i.name, b.name FROM purchase p JOIN item i ON i.id = p.item JOIN buyer b ON b.id = p.buyer WHERE p.id = $1",
    ),
];

/// A statement in SQLite's words: a column is a row's own key only if it is an `integer`, and parameters have other marks.
fn for_sqlite(text: &str) -> String {
    text.replace("bigint", "integer").replace('$', "?")
}

/// Keys that look random, the same ones for both, and what the answers add up to.
struct Side {
    state: u64,
    rows: i64,
    /// The key of the latest row that was inserted.
    last: i64,
    sum: u64,
}

impl Side {
    fn new(rows: i64) -> Self {
        Self { state: 1, rows, last: rows, sum: 0 }
    }

    fn draw(&mut self) -> i64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.state >> 33) % (self.rows as u64 - 10)) as i64
    }

    fn insert(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    fn saw(&mut self, text: &str, number: i64) {
        let first = text.as_bytes().last().copied().unwrap_or_default();
        self.sum = self.sum.rotate_left(5) ^ (text.len() as u64) ^ (u64::from(first) << 8) ^ ((number as u64) << 16);
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.rows < 1_000 || arguments.times == 0 || arguments.repeat == 0 {
        return Err("--rows is 1,000 or more, and --times and --repeat are 1 or more".into());
    }
    let database = Database::in_memory()?;
    let mut ours = database.sql()?;
    let theirs = rusqlite::Connection::open_in_memory()?;
    fill(&mut ours, &theirs, arguments.rows)?;
    let mut sides = [Side::new(arguments.rows), Side::new(arguments.rows)];
    let mut table = Table::new();
    table.load_preset(presets::ASCII_BORDERS_ONLY_CONDENSED);
    table.set_header(["ns a statement", "Polychron", "SQLite", "SQLite's over Polychron's", "of these"]);
    let clock = SystemClock::new();
    for (name, does, text) in STATEMENTS.iter().filter(|(name, ..)| name.contains(&arguments.only)) {
        let (mut our_statement, mut their_statement) = (ours.prepare(text)?, theirs.prepare(&for_sqlite(text))?);
        let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
        for _ in 0..arguments.repeat {
            let begun_ns = clock.now_ns();
            for _ in 0..arguments.times {
                execute_ours(&mut ours, &mut our_statement, *does, &mut sides[0])?;
            }
            let between_ns = clock.now_ns();
            for _ in 0..arguments.times {
                execute_theirs(&mut their_statement, *does, &mut sides[1])?;
            }
            let each = |ns: u64| ns as f64 / f64::from(arguments.times);
            of_ours.push(each(between_ns - begun_ns));
            of_theirs.push(each(clock.now_ns() - between_ns));
        }
        if sides[0].sum != sides[1].sum {
            return Err(format!("{name}: Polychron and SQLite do not answer the same").into());
        }
        let ratios = of_ours.iter().zip(&of_theirs).map(|(ours, theirs)| theirs / ours).collect();
        let ([ratio, least, most], [ours, ..], [theirs, ..]) = (spread(ratios), spread(of_ours), spread(of_theirs));
        let (ours, theirs, ratio) = (format!("{ours:.0}"), format!("{theirs:.0}"), format!("{ratio:.2}"));
        table.add_row([(*name).to_owned(), ours, theirs, ratio, format!("{least:.2} to {most:.2}")]);
    }
    println!("{table}");
    Ok(())
}

fn fill(ours: &mut polychron::sql::Connection, theirs: &rusqlite::Connection, rows: i64) -> Result<(), Failure> {
    for table in TABLES {
        ours.execute(table, ())?;
        theirs.execute(&for_sqlite(table), ())?;
    }
    let texts = [
        "INSERT INTO item VALUES ($1, $2, 100)",
        "INSERT INTO buyer VALUES ($1, $2)",
        "INSERT INTO purchase VALUES ($1, $2, $3)",
    ];
    for first in (0..rows).step_by(1_000) {
        ours.execute("BEGIN", ())?;
        theirs.execute_batch("BEGIN")?;
        for id in first..(first + 1_000).min(rows) {
            let (item, buyer) = (format!("item {id}"), format!("buyer {id}"));
            let (of_item, of_buyer) = (id * 7 % rows, id * 11 % rows);
            ours.execute(texts[0], (id, &item))?;
            ours.execute(texts[1], (id, &buyer))?;
            ours.execute(texts[2], (id, of_item, of_buyer))?;
            theirs.prepare_cached(&for_sqlite(texts[0]))?.execute((id, &item))?;
            theirs.prepare_cached(&for_sqlite(texts[1]))?.execute((id, &buyer))?;
            theirs.prepare_cached(&for_sqlite(texts[2]))?.execute((id, of_item, of_buyer))?;
        }
        ours.execute("COMMIT", ())?;
        theirs.execute_batch("COMMIT")?;
    }
    Ok(())
}

fn execute_ours(
    connection: &mut polychron::sql::Connection,
    statement: &mut polychron::sql::Prepared,
    does: Does,
    side: &mut Side,
) -> Result<(), Failure> {
    match does {
        Does::Read => {
            let rows = statement.query(connection, (side.draw(),))?;
            let (name, stock): (&str, i64) = rows.only()?;
            side.saw(name, stock);
        }
        Does::Update => {
            let changed = statement.execute(connection, (side.draw(), 1_i64))?;
            side.saw("", changed as i64);
        }
        Does::Insert => {
            let changed = statement.execute(connection, (side.insert(), "somebody"))?;
            side.saw("", changed as i64);
        }
        Does::Range => {
            let first = side.draw();
            let rows = statement.query(connection, (first, first + 10))?;
            for row in &rows {
                side.saw(row.get(1)?, row.get::<i64>(0)? + row.get::<i64>(2)?);
            }
        }
        Does::Join => {
            let rows = statement.query(connection, (side.draw(),))?;
            let (item, buyer): (&str, &str) = rows.only()?;
            side.saw(item, buyer.len() as i64);
        }
    }
    Ok(())
}

fn execute_theirs(statement: &mut rusqlite::Statement<'_>, does: Does, side: &mut Side) -> Result<(), Failure> {
    match does {
        Does::Read => {
            let mut rows = statement.query((side.draw(),))?;
            let row = rows.next()?.ok_or("a row is missing")?;
            side.saw(row.get_ref(0)?.as_str()?, row.get(1)?);
        }
        Does::Update => {
            let changed = statement.execute((side.draw(), 1_i64))?;
            side.saw("", changed as i64);
        }
        Does::Insert => {
            let changed = statement.execute((side.insert(), "somebody"))?;
            side.saw("", changed as i64);
        }
        Does::Range => {
            let first = side.draw();
            let mut rows = statement.query((first, first + 10))?;
            while let Some(row) = rows.next()? {
                side.saw(row.get_ref(1)?.as_str()?, row.get::<_, i64>(0)? + row.get::<_, i64>(2)?);
            }
        }
        Does::Join => {
            let mut rows = statement.query((side.draw(),))?;
            let row = rows.next()?.ok_or("a row is missing")?;
            side.saw(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?.len() as i64);
        }
    }
    Ok(())
}
