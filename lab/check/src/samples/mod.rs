//! Random transactions over rows with a column of every kind: what they ask, what they change, and what refuses them.
//!
//! [`operation`] draws them, [`apply`] runs them, and [`model`] says what they must answer, from nothing but the values: it shares no
//! comparison and no key with what it judges.

mod apply;
pub(crate) mod model;
mod operation;

pub(crate) use apply::{Tables, apply};
pub(crate) use operation::{Ask, Operation, Shape, Through, disguised, draw_comparison};

use polychron_base::random::Random;
use polychron_schema::{Column, Date, Decimal, Decimal128, Row, Value};

/// What samples refer to.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
#[row(name = "owner")]
pub(crate) struct Owner {
    #[key]
    pub(crate) id: u64,
    pub(crate) mark: i64,
}

/// An enum whose numbers have signs and gaps.
#[derive(Column, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Done = 5,
    Lost = -300,
    New = 0,
}

/// A number with a type of its own.
#[derive(Column, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cents(pub(crate) i64);

/// A row with a column of every kind. The first index can refuse nothing, the second one a duplicate, the third one a key that is too
/// long, and the fourth one an owner that is not there: so each refusal comes behind entries that are made already.
#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "sample")]
#[index(name = "by_level", columns(level))]
#[index(name = "by_code", columns(code), unique)]
#[index(name = "by_name", columns(name))]
#[index(name = "by_owner", columns(owner))]
#[index(name = "by_state", columns(state))]
#[index(name = "by_span", columns = [span, heat])]
#[references(row = Owner, columns(owner))]
pub(crate) struct Sample {
    #[key]
    pub(crate) id: u64,
    pub(crate) level: i8,
    pub(crate) count: u64,
    pub(crate) balance: Option<i64>,
    pub(crate) ratio: Option<f64>,
    pub(crate) price: Decimal<2>,
    pub(crate) open: bool,
    pub(crate) day: Date,
    pub(crate) code: Option<u32>,
    #[column(max = 4000)]
    pub(crate) name: Option<String>,
    #[column(max = 12)]
    pub(crate) mark: Vec<u8>,
    pub(crate) owner: Option<u64>,
    pub(crate) heat: Option<f32>,
    pub(crate) span: Option<i128>,
    pub(crate) mass: u128,
    pub(crate) letter: Option<char>,
    pub(crate) stamp: [u8; 3],
    pub(crate) total: Decimal128<3>,
    pub(crate) state: Option<State>,
    pub(crate) fee: Cents,
}

/// The positions of the columns.
pub(crate) mod column {
    pub(crate) const ID: usize = 0;
    pub(crate) const LEVEL: usize = 1;
    pub(crate) const CODE: usize = 8;
    pub(crate) const NAME: usize = 9;
    pub(crate) const MARK: usize = 10;
    pub(crate) const OWNER: usize = 11;
    pub(crate) const HEAT: usize = 12;
    pub(crate) const SPAN: usize = 13;
    pub(crate) const MASS: usize = 14;
    pub(crate) const LETTER: usize = 15;
    pub(crate) const STAMP: usize = 16;
    pub(crate) const TOTAL: usize = 17;
    pub(crate) const STATE: usize = 18;
    pub(crate) const COUNT: usize = 20;

    /// What does not come in batches: text, bytes, and numbers of more than 64 bits.
    pub(crate) const NOT_IN_BATCHES: [usize; 6] = [NAME, MARK, SPAN, MASS, STAMP, TOTAL];
    /// What has no sum: truth values, dates, text, bytes, characters and enums.
    pub(crate) const NOT_SUMMED: [usize; 7] = [6, 7, NAME, MARK, LETTER, STAMP, STATE];
}

/// The values of a row, in the order of the columns.
pub(crate) type Values = Vec<Value>;

impl Sample {
    /// The row of these values, which are of the columns' types.
    pub(crate) fn of(values: &[Value]) -> Self {
        let [id, level, count, balance, ratio, price, open, day, code, name, mark, owner, kinds @ ..] = values else {
            unreachable!("a sample has twenty columns")
        };
        let [heat, span, mass, letter, stamp, total, state, fee] = kinds else {
            unreachable!("a sample has twenty columns")
        };
        let unsigned = |value: &Value| if let Value::Unsigned(value) = value { Some(*value) } else { None };
        let signed = |value: &Value| if let Value::Integer(value) = value { Some(*value) } else { None };
        Self {
            id: unsigned(id).expect("a key is not NULL"),
            level: signed(level).map_or(0, |level| level as i8),
            count: unsigned(count).unwrap_or_default(),
            balance: signed(balance),
            ratio: if let Value::Float(ratio) = ratio { Some(*ratio) } else { None },
            price: if let Value::Decimal { units, .. } = price {
                Decimal::from_units(*units as i64)
            } else {
                Decimal::ZERO
            },
            open: matches!(open, Value::Bool(true)),
            day: if let Value::Date(day) = day { Date(*day) } else { Date(0) },
            code: unsigned(code).map(|code| code as u32),
            name: if let Value::String(name) = name { Some(name.clone()) } else { None },
            mark: if let Value::Bytes(mark) = mark { mark.clone() } else { Vec::new() },
            owner: unsigned(owner),
            heat: if let Value::Float(heat) = heat { Some(*heat as f32) } else { None },
            span: if let Value::Integer128(span) = span { Some(*span) } else { None },
            mass: if let Value::Unsigned128(mass) = mass { *mass } else { 0 },
            letter: if let Value::Char(letter) = letter { Some(*letter) } else { None },
            stamp: if let Value::Bytes(stamp) = stamp { stamp[..].try_into().expect("three bytes") } else { [0; 3] },
            total: if let Value::Decimal { units, .. } = total {
                Decimal128::from_units(*units)
            } else {
                Decimal128::ZERO
            },
            state: signed(state).map(|number| match number {
                -300 => State::Lost,
                0 => State::New,
                5 => State::Done,
                other => unreachable!("{other} is no state"),
            }),
            fee: Cents(signed(fee).unwrap_or_default()),
        }
    }
}

/// Bytes of a name that is too long to be a key.
const TOO_LONG_FOR_KEYS: usize = 2000;
/// Bytes of a mark that is too long for its column.
const TOO_LONG_FOR_MARKS: usize = 20;

/// How many keys there are; few, so that everything meets.
pub(crate) const KEYS: u64 = 5;
/// Owners that there may be.
pub(crate) const OWNERS: u64 = 3;

/// A random value of a column; in one of twenty draws one that a write is refused for, where the column has such a value.
pub(crate) fn draw_value(random: &mut Random, column: usize) -> Value {
    let pick = |random: &mut Random, values: &[i64]| values[random.below(values.len() as u64) as usize];
    let wild = random.below(20) == 0;
    match column {
        column::ID => Value::Unsigned(random.below(KEYS)),
        column::LEVEL => Value::Integer(pick(random, &[-128, -1, 0, 1, 5, 127])),
        2 => {
            let counts = [0, 1, 5, 200, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX];
            Value::Unsigned(counts[random.below(7) as usize])
        }
        3 if random.below(6) == 0 => Value::Null,
        3 => Value::Integer(pick(random, &[i64::MIN, -5, -1, 0, 1, 5, i64::MAX])),
        4 if random.below(6) == 0 => Value::Null,
        4 => {
            let ratios = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.0, 5.0, f64::INFINITY, f64::NAN, -f64::NAN];
            Value::Float(ratios[random.below(9) as usize])
        }
        5 => Value::Decimal { units: pick(random, &[-150, -1, 0, 100, 150, 500]).into(), scale: 2 },
        6 => Value::Bool(random.below(2) == 0),
        7 => Value::Date(pick(random, &[-400, -1, 0, 1, 5]) as i32),
        column::CODE if random.below(3) == 0 => Value::Null,
        column::CODE => Value::Unsigned(random.below(10)),
        column::NAME if wild => Value::String("n".repeat(TOO_LONG_FOR_KEYS)),
        column::NAME if random.below(6) == 0 => Value::Null,
        column::NAME => {
            let names = ["", "a", "ab", "abc", "abd", "b", "ä", "abcdefgh1", "abcdefgh2"];
            Value::String(names[random.below(9) as usize].to_owned())
        }
        column::MARK if wild => Value::Bytes(vec![7; TOO_LONG_FOR_MARKS]),
        column::MARK => {
            let marks: [&[u8]; 6] = [&[], &[0], &[0, 0], &[1], &[255], &[1, 2, 3, 4, 5, 6, 7, 8, 9]];
            Value::Bytes(marks[random.below(6) as usize].to_vec())
        }
        column::OWNER if random.below(4) == 0 => Value::Null,
        // The last one may be absent.
        column::OWNER => Value::Unsigned(random.below(OWNERS)),
        _ => draw_kind(random, column),
    }
}

/// A random value of one of the last columns.
fn draw_kind(random: &mut Random, column: usize) -> Value {
    let wides = [i128::MIN, i64::MIN.into(), -5, -1, 0, 1, 5, 1 << 64, i128::MAX];
    let wide = wides[random.below(wides.len() as u64) as usize];
    match column {
        column::HEAT | column::SPAN | column::LETTER | column::STATE if random.below(6) == 0 => Value::Null,
        column::HEAT => {
            let heats = [f32::NEG_INFINITY, -1.5, -0.0, 0.0, 0.1, 1.0, 5.0, f32::INFINITY, f32::NAN, -f32::NAN];
            Value::from(heats[random.below(10) as usize])
        }
        column::SPAN => Value::Integer128(wide),
        column::MASS if random.below(4) == 0 => Value::Unsigned128(u128::MAX - u128::from(random.below(2))),
        column::MASS => Value::Unsigned128(wide.cast_unsigned() & i128::MAX.cast_unsigned()),
        column::LETTER => Value::Char(['\0', 'a', 'b', 'ä', char::MAX][random.below(5) as usize]),
        column::STAMP => Value::from([[0, 0, 0], [0, 0, 1], [1, 0, 0], [255, 255, 255]][random.below(4) as usize]),
        column::TOTAL => {
            let totals = [-1500, -1, 0, 1, 1500, wide];
            Value::Decimal { units: totals[random.below(6) as usize], scale: 3 }
        }
        column::STATE => Value::Integer([-300, 0, 5][random.below(3) as usize]),
        _ => Value::Integer([i64::MIN, -5, 0, 5, 100][random.below(5) as usize]),
    }
}

/// A random row of a key.
pub(crate) fn draw_row(random: &mut Random, id: u64) -> Values {
    let mut values: Values = (0..column::COUNT).map(|column| draw_value(random, column)).collect();
    values[column::ID] = Value::Unsigned(id);
    values
}
