//! What a random transaction does.

use polychron_base::random::Random;
use polychron_engine::scan::Comparison;
use polychron_engine::{Aggregate, Restriction};
use polychron_schema::Value;

use super::{KEYS, OWNERS, State, Values, column, draw_row, draw_value};

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Reads these columns of a row.
    Get { id: u64, columns: Vec<usize> },
    /// An update that looks at a column and changes nothing; it may announce that column alone.
    Look { id: u64, column: usize, whole: bool },
    /// Asks for rows, columns or an answer over them.
    Ask(Ask),
    /// Inserts.
    Insert(Values),
    /// Writes whether or not there is a row.
    Upsert(Values),
    /// Updates a column; it may announce that column alone.
    Set { id: u64, column: usize, value: Value, whole: bool },
    /// Deletes.
    Delete(u64),
    /// Inserts an owner.
    InsertOwner(u64),
    /// Deletes an owner.
    DeleteOwner(u64),
    /// Does the same behind a savepoint, to which it then returns.
    Tried(Box<Self>),
    /// Reads the flag.
    ReadFlag,
    /// Sets it.
    SetFlag(i64),
}

/// A question about many rows.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) through: Through,
    pub(crate) restrictions: Vec<Restriction>,
    pub(crate) shape: Shape,
}

/// By which index, and between which keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Through {
    All,
    Ids(u64, u64),
    Levels(i8, i8),
    Codes(u32, u32),
    States(State, State),
    Spans(i128, i128),
}

/// What is wanted of the rows.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// These columns of each, in order.
    Rows { columns: Vec<usize>, backward: bool, limit: usize },
    /// These columns, batch by batch.
    Batches(Vec<usize>),
    /// An answer over all.
    Total(Aggregate),
    /// Several answers over all, or over each group of rows with equal values in some columns.
    Groups { by: Vec<usize>, wanted: Vec<Aggregate> },
}

impl Operation {
    /// A random operation that changes nothing, unless it is refused first.
    pub(crate) fn draw_question(random: &mut Random) -> Self {
        let id = random.below(KEYS);
        match random.below(16) {
            0 => Self::Get { id, columns: draw_columns(random) },
            1 | 2 => {
                Self::Look { id, column: random.below(column::COUNT as u64) as usize, whole: random.below(2) == 0 }
            }
            3 => Self::Tried(Box::new(Self::draw_write(random))),
            4 => Self::Tried(Box::new(Self::Insert(draw_row(random, id)))),
            _ => Self::Ask(Ask::draw(random)),
        }
    }

    /// A random write.
    pub(crate) fn draw_write(random: &mut Random) -> Self {
        let id = random.below(KEYS);
        match random.below(16) {
            0 | 1 => Self::Insert(draw_row(random, id)),
            2..=4 => Self::Upsert(draw_row(random, id)),
            7 => Self::Delete(id),
            5 => Self::InsertOwner(random.below(OWNERS)),
            6 if random.below(2) == 0 => Self::DeleteOwner(random.below(OWNERS)),
            _ => {
                let column = random.range_inclusive(1, column::COUNT as u64 - 1) as usize;
                // What does not fit into its column is refused before the engine hears of it, except of whole rows.
                let value = match draw_value(random, column) {
                    Value::Bytes(bytes) if bytes.len() > 12 => Value::Bytes(Vec::new()),
                    value => value,
                };
                Self::Set { id, column, value, whole: random.below(2) == 0 }
            }
        }
    }

    /// Either.
    pub(crate) fn draw(random: &mut Random) -> Self {
        if random.below(2) == 0 { Self::draw_question(random) } else { Self::draw_write(random) }
    }
}

impl Ask {
    fn draw(random: &mut Random) -> Self {
        let through = match random.below(8) {
            0 => {
                let first = random.below(KEYS);
                Through::Ids(first, first + random.below(3))
            }
            1 => {
                let (one, other) = (draw_level(random), draw_level(random));
                Through::Levels(one.min(other), one.max(other))
            }
            2 => {
                let first = random.below(10) as u32;
                Through::Codes(first, first + random.below(6) as u32)
            }
            3 => Through::States(State::Lost, [State::Lost, State::New, State::Done][random.below(3) as usize]),
            4 => Through::Spans(
                [i128::MIN, -1, 0][random.below(3) as usize],
                [0, 5, i128::MAX][random.below(3) as usize],
            ),
            _ => Through::All,
        };
        let restrictions = match random.below(8) {
            0 => Vec::new(),
            1 => draw_prefix(random),
            2 | 3 => vec![draw_restriction(random), draw_restriction(random)],
            _ => vec![draw_restriction(random)],
        };
        Self { through, restrictions, shape: Shape::draw(random) }
    }
}

impl Shape {
    fn draw(random: &mut Random) -> Self {
        match random.below(8) {
            0..=2 => {
                let limit = if random.below(3) > 0 { usize::MAX } else { random.range_inclusive(1, 3) as usize };
                Self::Rows { columns: draw_columns(random), backward: random.below(2) == 0, limit }
            }
            // Some columns do not come in batches, which is an answer, too.
            3 | 4 if random.below(8) == 0 => Self::Batches(draw_columns(random)),
            3 | 4 => Self::Batches(
                draw_columns(random).into_iter().filter(|it| !column::NOT_IN_BATCHES.contains(it)).collect(),
            ),
            5 => {
                let by = (0..random.below(3)).map(|_| random.below(column::COUNT as u64) as usize).collect();
                Self::Groups { by, wanted: (0..random.below(4)).map(|_| draw_aggregate(random)).collect() }
            }
            _ => Self::Total(draw_aggregate(random)),
        }
    }
}

fn draw_aggregate(random: &mut Random) -> Aggregate {
    let column = random.below(column::COUNT as u64) as usize;
    // Of a few numbers the sum may be too large.
    let summed = [2, 3, 3, 5, column::SPAN, column::MASS, column][random.below(7) as usize];
    match random.below(11) {
        0 | 1 => Aggregate::Rows,
        2 | 3 => Aggregate::Count(column),
        4 | 5 => Aggregate::Sum(summed),
        6 => Aggregate::Average(summed),
        7 | 8 => Aggregate::Min(column),
        _ => Aggregate::Max(column),
    }
}

fn draw_level(random: &mut Random) -> i8 {
    [-128, -1, 0, 1, 5, 127][random.below(6) as usize]
}

/// A few columns, or none.
fn draw_columns(random: &mut Random) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..random.below(3)).map(|_| random.below(column::COUNT as u64) as usize).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

const COMPARISONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::AtMost,
    Comparison::Greater,
    Comparison::AtLeast,
];

/// A comparison with a constant of the column's type, of the same number in another type, or of any type at all.
pub(crate) fn draw_restriction(random: &mut Random) -> Restriction {
    let column = random.below(column::COUNT as u64) as usize;
    Restriction { column, comparison: draw_comparison(random), value: draw_constant(random, column) }
}

/// Any comparison.
pub(crate) fn draw_comparison(random: &mut Random) -> Comparison {
    COMPARISONS[random.below(6) as usize]
}

fn draw_constant(random: &mut Random, column: usize) -> Value {
    let own = draw_value(random, column);
    match random.below(8) {
        0..=3 => own,
        4..=6 => disguised(random, own),
        _ => match random.below(column::COUNT as u64 + 2) as usize {
            column::COUNT => Value::Timestamp(random.below(3) as i64 - 1),
            number if number > column::COUNT => Value::Null,
            number => draw_value(random, number),
        },
    }
}

/// The same number, or one beside it, as a value of another type or scale.
pub(crate) fn disguised(random: &mut Random, value: Value) -> Value {
    let beyond = random.below(6) == 0;
    match value {
        Value::Unsigned(number) if random.below(4) == 0 => Value::Unsigned128(number.into()),
        Value::Integer(number) if random.below(4) == 0 => {
            Value::Integer128(i128::from(number).saturating_mul([1, 1 << 70][random.below(2) as usize]))
        }
        Value::Unsigned(_) if beyond => Value::Integer(-1),
        Value::Unsigned(number) => Value::Integer(i64::try_from(number).unwrap_or(i64::MAX)),
        Value::Integer(_) if beyond => Value::Unsigned(u64::MAX),
        Value::Integer(number) => Value::Unsigned(u64::try_from(number).unwrap_or(0)),
        Value::Decimal { units, scale } => match random.below(3) {
            0 => Value::Decimal { units: units / 10_i128.pow(scale), scale: 0 },
            1 => Value::Decimal { units: units.saturating_mul(10), scale: scale + 1 },
            _ => Value::Decimal { units: units.saturating_mul(10).saturating_add(5), scale: scale + 1 },
        },
        Value::Bool(truth) => Value::Unsigned(truth.into()),
        Value::Date(day) => Value::Integer(day.into()),
        Value::Float(number) => Value::Float(number + [0.5, 0.1][random.below(2) as usize]),
        Value::Integer128(_) if beyond => Value::Unsigned128(u128::MAX),
        Value::Integer128(number) => Value::Integer(i64::try_from(number).unwrap_or(-1)),
        Value::Unsigned128(_) if beyond => Value::Integer128(i128::MIN),
        Value::Unsigned128(number) => Value::Integer128(i128::try_from(number).unwrap_or(i128::MAX)),
        Value::Char(letter) => Value::String(letter.into()),
        Value::String(text) => Value::String(format!("{text}\0")),
        Value::Bytes(bytes) => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
        other => other,
    }
}

/// Text by its beginning.
fn draw_prefix(random: &mut Random) -> Vec<Restriction> {
    let (first, behind) = [("a", "b"), ("ab", "ac"), ("abcdefgh", "abcdefgi"), ("", "a")][random.below(4) as usize];
    let bound = |comparison, text: &str| Restriction { column: column::NAME, comparison, value: text.into() };
    vec![bound(Comparison::AtLeast, first), bound(Comparison::Less, behind)]
}
