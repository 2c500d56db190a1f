//! Types of columns, and values of them as literals.

use crate::draw::Draw;

/// A type of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the types of SQL say what they are")]
pub enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Varchar,
    Char,
    Bytea,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
    Uuid,
    Ints,
    Texts,
    Jsonb,
    Mood,
}

use Kind::{
    Bool, Bytea, Char, Date, Float4, Float8, Int2, Int4, Int8, Interval, Ints, Jsonb, Mood, Numeric, Text, Texts, Time,
    Timestamp, Timestamptz, Uuid, Varchar,
};

/// The labels of the enum, which are not in the order of their texts.
const LABELS: [&str; 4] = ["sad", "ok", "a b", "Happy"];

/// What makes the enum.
pub(crate) const MOOD: [&str; 2] =
    ["CREATE TYPE mood AS ENUM ('sad', 'a b', 'Happy')", "ALTER TYPE mood ADD VALUE 'ok' AFTER 'sad'"];

impl Kind {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Bool,
        Int2,
        Int4,
        Int8,
        Float4,
        Float8,
        Numeric,
        Text,
        Varchar,
        Char,
        Bytea,
        Date,
        Time,
        Timestamp,
        Timestamptz,
        Interval,
        Uuid,
        Ints,
        Texts,
        Jsonb,
        Mood,
    ];

    /// Its name in a definition.
    pub fn definition(self) -> &'static str {
        match self {
            Numeric => "numeric(9,2)",
            Varchar => "varchar(8)",
            Char => "char(4)",
            Time => "time(3)",
            Interval => "interval(2)",
            _ => self.name(),
        }
    }

    /// Its name in a cast.
    pub fn name(self) -> &'static str {
        match self {
            Bool => "boolean",
            Int2 => "smallint",
            Int4 => "integer",
            Int8 => "bigint",
            Float4 => "real",
            Float8 => "double precision",
            Numeric => "numeric",
            Text => "text",
            Varchar => "varchar",
            Char => "char(4)",
            Bytea => "bytea",
            Date => "date",
            Time => "time",
            Timestamp => "timestamp",
            Timestamptz => "timestamptz",
            Interval => "interval",
            Uuid => "uuid",
            Ints => "integer[]",
            Texts => "text[]",
            Jsonb => "jsonb",
            Mood => "mood",
        }
    }

    /// Whether equal values may look different, so that which of them is answered is left to chance.
    pub fn has_looks(self) -> bool {
        matches!(self, Numeric | Float4 | Float8 | Interval | Char | Jsonb)
    }

    /// An expression over a column of it that fails for no value, in parentheses, and its type.
    pub fn derived(self, column: &str, draw: &mut Draw) -> (String, Self) {
        let word = draw.word(&["lower", "upper"]);
        match self {
            Text | Varchar if draw.once_in(3) => (format!("length({column})"), Int4),
            Text | Varchar => (format!("{word}({column})"), Text),
            Int2 | Int4 | Int8 => (format!("({column} % 5)"), self),
            Jsonb if draw.once_in(2) => (format!("({column} ->> 'a')"), Text),
            Jsonb => (format!("({column} -> 'a')"), Jsonb),
            Bool => (format!("(NOT {column})"), Bool),
            _ => (format!("({column} IS NULL)"), Bool),
        }
    }

    /// A condition of a column of it that fails for no value, by which an index may be about a part of the rows.
    pub fn part(self, column: &str, draw: &mut Draw) -> String {
        match self {
            Int2 | Int4 | Int8 => format!("{column} {} {}", draw.word(&[">", "<=", "<>", "="]), draw.within(0, 6)),
            Text | Varchar => format!("{column} {} '{}'", draw.word(&[">", "<", "<>"]), draw.word(&["", "a", "b"])),
            Bool => column.to_owned(),
            _ => format!("{column} IS {}NULL", draw.word(&["", "NOT "])),
        }
    }

    /// Whether it is an integer's.
    pub fn is_integer(self) -> bool {
        matches!(self, Int2 | Int4 | Int8)
    }

    /// What a value of it lies near to, in quotes, as text; few of them, so that rows meet.
    fn ordinary(self, draw: &mut Draw) -> String {
        match self {
            Bool => draw.word(&["t", "f"]).into(),
            Int2 | Int4 | Int8 => (draw.below(21) as i64 - 6).to_string(),
            Float4 | Float8 => draw.word(&["0", "1", "1.5", "-2.25", "0.7", "0.1", "3"]).into(),
            Numeric => draw.word(&["0", "1", "1.50", "-2.25", "100", "0.10", "3", "7.77"]).into(),
            Text | Varchar => draw.word(&["", "a", "b", "ab", "abc", "B", "a b", "a%", "x_y", "12"]).into(),
            Char => draw.word(&["", "a", "b", "ab", "abcd", "B"]).into(),
            Bytea => draw.word(&["\\x", "\\x00", "\\x61", "\\x6162", "\\xff"]).into(),
            Date => format!("2024-0{}-{:02}", draw.within(1, 3), draw.within(1, 29)),
            Time => draw.word(&["00:00:00", "12:30:00", "12:30:00.5", "23:59:59.999999"]).into(),
            Timestamp | Timestamptz => {
                let hour = draw.word(&["00:00:00", "12:30:00", "23:59:59.999999"]);
                format!("2024-0{}-{:02} {hour}", draw.within(1, 3), draw.within(1, 29))
            }
            Interval => draw.word(&["0", "1 day", "-1 day", "2 mons", "1 year 3 days", "01:30:00", "-00:00:01"]).into(),
            Uuid => format!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1{:x}", draw.below(6)),
            Ints => draw.word(&["{}", "{1}", "{1,2}", "{2,1}", "{NULL,3}", "{1,1,2}"]).into(),
            Mood => draw.word(&LABELS).into(),
            Texts => draw.word(&["{}", "{a}", "{a,b}", "{b,NULL}", "{\"\",\"a b\"}", "{B}"]).into(),
            Jsonb => draw
                .word(&["1", "\"a\"", "null", "true", "[]", "[1, \"a\"]", "{\"a\": 1}", "{\"a\": {\"b\": [1, null]}}"])
                .into(),
        }
    }

    /// What is at the edge of it, in quotes, as text.
    fn extreme(self, draw: &mut Draw) -> String {
        let words: &[&'static str] = match self {
            Bool => &["true", "false", "yes", "0", "on"],
            Int2 => &["32767", "-32768", "-32767"],
            Int4 => &["2147483647", "-2147483648", "65536", "32768"],
            Int8 => &["9223372036854775807", "-9223372036854775808", "4294967296", "2147483648"],
            Float4 => &["3.4028235e38", "-3.4028235e38", "1e-45", "NaN", "Infinity", "-Infinity", "16777217"],
            Float8 => &["1.7976931348623157e308", "5e-324", "NaN", "Infinity", "-Infinity", "9007199254740993", "1e15"],
            Numeric => &["9999999.99", "-9999999.99", "0.01", "0.005", "0.004"],
            Text | Varchar => &["ä", "日本", "𝄞x", "'' or ''", "%", "_", "\\", " a ", "NULL", "\u{7f}", "abcdefgh"],
            Char => &["ä", "日本", " a", "%", "\\", "NULL"],
            Bytea => &["\\x000000", "\\xffffffff", "\\x5c", "abc", "a\\\\b", "\\000"],
            Date => &["4713-01-01 BC", "5874897-12-31", "0001-01-01", "infinity", "-infinity", "2023-12-31"],
            Time => &["24:00:00", "00:00:00.000001", "23:59:60"],
            Timestamp => {
                &["infinity", "-infinity", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.9"]
            }
            Timestamptz => &["infinity", "-infinity", "2024-02-29 12:00:00+05:30", "9999-12-31 23:59:59.999999-12"],
            Interval => {
                &["178000 years", "-178000 years", "1 mon -1 day", "1 mon -1 day +02:03:04.000005", "P1Y2M3DT4H5M6S"]
            }
            Ints => &["[0:1]={1,2}", "{{1,2},{3,4}}", "{2147483647,-2147483648}", "{{{1}}}"],
            Texts => &["{\"NULL\",\"\\\"\"}", "{{a},{b}}", "{\"{}\",\",\"}", "[-1:0]={a,ä}"],
            Jsonb => &[
                "1.50",
                "-0",
                "1e3",
                "{\"b\": 2, \"a\": 1, \"a\": 3}",
                "\"\\u00e9\\n\"",
                "[[[]]]",
                "{\"\": {}}",
                "[1, [2, [3]], -1.0]",
            ],
            Mood => &LABELS,
            Uuid => &[
                "00000000-0000-0000-0000-000000000000",
                "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
                "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
            ],
        };
        draw.word(words).into()
    }

    /// A value in quotes, once in `rarity` times one at the edge.
    pub fn quoted(self, draw: &mut Draw, rarity: usize) -> String {
        let text = if draw.once_in(rarity) { self.extreme(draw) } else { self.ordinary(draw) };
        format!("'{text}'")
    }

    /// A literal that is of this type wherever it stands.
    pub fn literal(self, draw: &mut Draw, rarity: usize) -> String {
        if draw.once_in(12) {
            return format!("NULL::{}", self.name());
        }
        match self {
            Int4 if draw.below(3) > 0 => (draw.below(12) as i64 - 3).to_string(),
            Bool => draw.word(&["true", "false"]).into(),
            Numeric if draw.below(3) > 0 => draw.word(&["1.5", "0.25", "10.00", "3.0", "0.1"]).into(),
            Text if draw.below(3) > 0 => format!("{}::text", self.quoted(draw, rarity)),
            _ => format!("{}::{}", self.quoted(draw, rarity), self.name()),
        }
    }
}
