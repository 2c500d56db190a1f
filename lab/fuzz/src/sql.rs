//! SQL: no text panics, and what a value is written as is read as the same value.

use std::cell::RefCell;

use polychron_engine::{Common, Protocol};
use polychron_protocols::serial::Serial;
use polychron_sql::{Connection, Datum, Rows, SqlDatabase, SqlError, SqlState};

use crate::input::Input;

/// The tables that statements meet.
const TABLES: &str =
    "CREATE TABLE one (a int PRIMARY KEY, b text, c numeric(9, 2) DEFAULT 1, d timestamp, e int[], f jsonb);
    CREATE TABLE two (a int REFERENCES one, g bigint CHECK (g > 0), h char(4), UNIQUE (g, h));
    CREATE INDEX by_text ON one (b DESC, a); CREATE VIEW three AS SELECT a, b FROM one WHERE a > 1; CREATE SEQUENCE s";

/// Statements whose words make others.
const STATEMENTS: &[&str] = &[
    "SELECT a , b || 'x' , c * 2 FROM one WHERE a IN ( 1 , 2 , $1 ) AND b LIKE 'a%' ORDER BY a DESC NULLS LAST LIMIT 3 OFFSET $2",
    "SELECT one . a , count ( DISTINCT g ) FILTER ( WHERE h <> '' ) FROM one LEFT JOIN two ON one . a = two . a GROUP BY one . a HAVING count ( * ) > 1",
    "SELECT b , grouping ( b ) , sum ( a ) FROM one GROUP BY GROUPING SETS ( ( b ) , ( ) , ROLLUP ( b , d ) )",
    "SELECT rank ( ) OVER w , sum ( a ) OVER ( PARTITION BY b ORDER BY d RANGE BETWEEN '1 day' PRECEDING AND CURRENT ROW EXCLUDE TIES ) FROM one WINDOW w AS ( ORDER BY a )",
    "WITH RECURSIVE r ( n ) AS ( SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5 ) SELECT * FROM r , LATERAL ( SELECT n * 2 ) t ( m )",
    "SELECT e [ 1 ] , e [ 1 : 2 ] , ARRAY [ a , 2 ] || e , 3 = ANY ( e ) , unnest ( e ) , f -> 'k' ->> 0 , f @> '[1]' FROM one",
    "SELECT CASE WHEN a > 1 THEN b ELSE NULL END , coalesce ( b , 'x' ) , CAST ( a AS bigint ) , d :: date , extract ( year FROM d ) FROM one",
    "SELECT a FROM one UNION SELECT a FROM two EXCEPT ALL ( SELECT g FROM two INTERSECT VALUES ( 1 ) , ( 2 ) ) ORDER BY 1",
    "SELECT ( SELECT max ( g ) FROM two WHERE two . a = one . a ) , EXISTS ( SELECT 1 FROM three ) FROM one WHERE ( a , b ) = ( 1 , 'x' )",
    "INSERT INTO one ( a , b , c ) VALUES ( 1 , DEFAULT , $1 ) , ( 2 , 'x' , - 3.5 ) ON CONFLICT ( a ) DO UPDATE SET b = excluded . b WHERE one . a > 0 RETURNING *",
    "UPDATE two SET g = g + 1 , h = DEFAULT FROM one WHERE one . a = two . a AND d < now ( ) RETURNING two . *",
    "DELETE FROM one USING two WHERE one . a = two . g AND NOT EXISTS ( SELECT ) RETURNING b AS gone",
    "CREATE TABLE four ( a serial PRIMARY KEY , b varchar ( 5 ) NOT NULL DEFAULT 'x' , c int REFERENCES one ( a ) ON DELETE CASCADE DEFERRABLE , CHECK ( c > 1 ) )",
    "ALTER TABLE one ADD COLUMN z int DEFAULT 5 , DROP COLUMN c CASCADE , ALTER COLUMN b TYPE varchar ( 9 ) USING b || '' , ADD CONSTRAINT k UNIQUE ( b )",
    "CREATE UNIQUE INDEX IF NOT EXISTS i ON two ( g DESC , h ) ; DROP VIEW IF EXISTS three CASCADE ; TRUNCATE two RESTART IDENTITY",
    "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY ; SAVEPOINT s ; ROLLBACK TO SAVEPOINT s ; SET CONSTRAINTS ALL DEFERRED ; COMMIT",
    "SELECT \"a\" , U&'\\0061' , E'\\n' , $t$ ; $t$ , 0.5e3 , .1 , date '2024-02-29' , interval '1 day' AT TIME ZONE 'UTC' FROM \"one\" -- end",
    "SELECT pg_get_viewdef ( 'three' :: regclass ) , relname FROM pg_catalog . pg_class JOIN information_schema . columns ON table_name = relname",
    "EXPLAIN SELECT nextval ( 's' ) , string_agg ( b , ',' ORDER BY a ) , percentile_cont ( 0.5 ) WITHIN GROUP ( ORDER BY a ) FROM one , generate_series ( 1 , 3 ) g",
];

/// Types whose values are written as texts.
const PLAIN: &[&str] = &[
    "boolean",
    "smallint",
    "integer",
    "bigint",
    "real",
    "double precision",
    "numeric",
    "numeric(7,3)",
    "text",
    "varchar(5)",
    "char(4)",
    "bytea",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
    "uuid",
];

/// Types whose values have parts.
const CONTAINERS: &[&str] = &["json", "jsonb", "integer[]", "text[]", "numeric[]", "timestamp[]", "jsonb[]", "bytea[]"];

/// Pieces of texts that are values.
const PIECES: &[&str] = &[
    "1",
    "0",
    "2",
    "-",
    "+",
    ".",
    "e",
    "9",
    "\\",
    "\"",
    "'",
    " ",
    ",",
    ":",
    "{",
    "}",
    "[",
    "]",
    "null",
    "NULL",
    "true",
    "a",
    "x",
    "\\x",
    "\\u0000",
    "\\ud83d",
    "\\udd25",
    "ä",
    "𝄞",
    "infinity",
    "nan",
    "2024-02-29",
    "12:30:59.5",
    "BC",
    "day",
    "mon",
    "year",
    "P",
    "T",
    "Z",
    "+05:30",
    "America/New_York",
    "294276",
    "4713",
    "9223372036854775807",
    "99999999999999999999999999999999999999",
    "e308",
    "{\"a\":",
    "[1:2]=",
    "[2147483647:2147483647]=",
    "\t",
    "\n",
    "/",
];

type Client = Connection<Serial>;

thread_local! {
    /// What is prepared and cast changes nothing, so that inputs do not meet.
    static CLIENT: RefCell<Client> = RefCell::new(connect());
}

fn connect() -> Client {
    let protocol = Serial::open(Default::default(), Common::default()).expect("the defaults are valid");
    let mut client = Connection::open(&SqlDatabase::open(protocol)).expect("there is a worker");
    client.execute_each(TABLES, &[], &mut |_| {}).expect("the tables are valid");
    client
}

/// A statement that is prepared or refused, and twice in the same way.
pub(crate) fn run_statements(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let text =
        if input.flag() { String::from_utf8_lossy(&bytes[1..]).into_owned() } else { made_statement(&mut input) };
    CLIENT.with_borrow_mut(|client| {
        let prepared = client.prepare(&text);
        if let Err(error) = &prepared {
            check(error, &text);
        }
        let of = |prepared: Result<_, SqlError>| match prepared {
            Ok(it) => {
                let it: polychron_sql::Prepared = it;
                Ok((it.parameters().to_vec(), format!("{:?}", it.columns())))
            }
            Err(error) => Err((error.state(), error.message().to_owned())),
        };
        let again = client.prepare(&text);
        assert_eq!(of(prepared), of(again), "a text is bound in one way: {text}");
    });
}

/// The words of one statement, some of them left out, doubled, or exchanged for those of others.
fn made_statement(input: &mut Input<'_>) -> String {
    let words = |input: &mut Input<'_>| STATEMENTS[input.below(STATEMENTS.len())].split(' ').collect::<Vec<_>>();
    let mut made = words(input);
    for _ in 0..input.below(6) {
        let (at, other) = (input.below(made.len()), words(input));
        let from = input.below(other.len());
        match input.below(5) {
            0 => drop(made.remove(at)),
            1 => made.insert(at, made[at]),
            2 => made[at] = other[from],
            3 => made.insert(at, other[from]),
            _ => made.truncate(at),
        }
        if made.is_empty() {
            break;
        }
        if input.below(4) == 0 {
            let part = &other[from..(from + input.below(8)).min(other.len())];
            made.splice(at..at, part.iter().copied());
        }
    }
    made.join(" ")
}

/// A text as a value of a type.
pub(crate) fn run_casts(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let of = PLAIN[input.below(PLAIN.len())];
    any_value(of, &made_text(&mut input));
}

/// A text as an array or as JSON.
pub(crate) fn run_containers(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let of = CONTAINERS[input.below(CONTAINERS.len())];
    let text = made_text(&mut input);
    any_value(of, &text);
    CLIENT.with_borrow_mut(|client| {
        if value(client, "jsonb", &text).is_ok() {
            assert!(value(client, "json", &text).is_ok(), "what is jsonb is json: {text}");
            let same = only(client.answer("SELECT $1::jsonb = ($1::jsonb::text)::jsonb", &[Datum::Text(&text)]));
            assert_eq!(same.as_deref(), Ok("t"), "jsonb is read as it is written: {text}");
        }
    });
}

/// A target that fails: a number is said to be written as it was read.
pub(crate) fn run_unchanged(bytes: &[u8]) {
    let text = made_text(&mut Input::new(bytes));
    CLIENT.with_borrow_mut(|client| {
        if let Ok(written) = value(client, "double precision", &text) {
            assert_eq!(written, text, "a number is written as it was read");
        }
    });
}

fn made_text(input: &mut Input<'_>) -> String {
    let mut text = String::new();
    for _ in 0..input.below(12) {
        if input.below(8) == 0 {
            text.push(input.character());
        } else {
            text += PIECES[input.below(PIECES.len())];
        }
    }
    text
}

/// A parameter and a literal of this text are the same value, and its text is read as the same.
fn any_value(of: &str, text: &str) {
    CLIENT.with_borrow_mut(|client| {
        let written = value(client, of, text);
        if !text.contains('\0') {
            let literal = format!("SELECT '{}'::{of}::text", text.replace('\'', "''"));
            assert_eq!(only(client.answer(&literal, &[])), written, "a literal is read as a parameter is: {literal}");
        }
        if let Ok(written) = written {
            assert_eq!(value(client, of, &written).as_ref(), Ok(&written), "{text} as {of} is read as it is written");
        }
    });
}

/// The text of the value of a text.
fn value(client: &mut Client, of: &str, text: &str) -> Result<String, SqlState> {
    only(client.answer(&format!("SELECT $1::text::{of}::text"), &[Datum::Text(text)]))
}

fn only(answer: Result<Rows, SqlError>) -> Result<String, SqlState> {
    match answer {
        Ok(rows) => Ok(rows.first().and_then(|row| row.text(0)).expect("there is a value")),
        Err(error) => {
            check(&error, "a value");
            Err(error.state())
        }
    }
}

/// An error has a code, and none says that the database is at fault.
fn check(error: &SqlError, text: &str) {
    let code = error.state().code();
    assert!(code.len() == 5 && !code.starts_with("XX"), "{error}: {text}");
}
