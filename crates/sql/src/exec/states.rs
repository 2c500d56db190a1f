//! What aggregates know of the rows so far.

use hashbrown::HashSet;

use super::aggregates::group_key;
use super::{Rows, owned, sorts};
use crate::arrays::{self, Array};
use crate::bind::{Aggregate, AggregateKind, Regression};
use crate::casts::Cast;
use crate::datum::{Datum, OwnedDatum};
use crate::decimal::Decimal;
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::functions;
use crate::types::Type;
use crate::wide::{self, Number};

/// What an aggregate knows of the rows so far.
#[derive(Clone)]
pub(super) struct State {
    count: i64,
    /// The sum, or the least, the greatest, the and, the or; NULL before the first value.
    value: OwnedDatum,
    more: Option<Box<More>>,
}

/// What few aggregates know.
#[derive(Clone, Default)]
struct More {
    seen: HashSet<Vec<u8>>,
    /// Rows that are to be sorted first: arguments, and then keys.
    rows: Rows,
    /// The sum of the squares.
    squares: Option<OwnedDatum>,
    /// Sums of both numbers, of their squares around the average, and of products.
    sums: [f64; 5],
    bytes: Vec<u8>,
}

impl Default for State {
    fn default() -> Self {
        Self { count: 0, value: OwnedDatum::NULL, more: None }
    }
}

fn plain(datum: Datum<'static>) -> OwnedDatum {
    OwnedDatum::Plain(datum)
}

/// Whether JSON is made of rows or arrays.
fn has_parts(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(Cast::Json(of, _), _) => *of == Type::Record || of.element().is_some(),
        _ => false,
    }
}

impl State {
    pub(super) fn count_row(&mut self) {
        self.count += 1;
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// Takes a row: the arguments, and the keys behind them. One that is to be sorted first waits for the result.
    pub(super) fn take(&mut self, aggregate: &Aggregate, values: &[Datum<'_>]) -> Result<(), SqlError> {
        if aggregate.order.is_empty() {
            return self.add(aggregate, values);
        }
        self.more().rows.push(owned(values));
        Ok(())
    }

    fn add(&mut self, aggregate: &Aggregate, values: &[Datum<'_>]) -> Result<(), SqlError> {
        let value = values[0];
        let takes_null = aggregate.kind.has_order() && aggregate.kind != AggregateKind::Join;
        if value.is_null() && !takes_null || aggregate.is_distinct && !self.more().seen.insert(group_key(values)) {
            return Ok(());
        }
        match aggregate.kind {
            AggregateKind::Join => {
                self.join(value, values[1]);
                return Ok(());
            }
            AggregateKind::Gather | AggregateKind::JsonList { .. } => {
                self.more().rows.push(owned(&values[..1]));
                return Ok(());
            }
            AggregateKind::JsonObject { .. } => {
                if value.is_null() {
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "field name must not be null"));
                }
                self.more().rows.push(owned(&values[..2]));
                return Ok(());
            }
            AggregateKind::Variance { .. } => return self.add_square(value),
            AggregateKind::Regression(_) => return self.add_pair(value, values[1]),
            _ => self.count += 1,
        }
        let so_far = self.value.get();
        self.value = match (aggregate.kind, so_far, value) {
            (AggregateKind::CountRows | AggregateKind::Count, ..) => return Ok(()),
            (AggregateKind::Sum | AggregateKind::Average, Datum::Null, Datum::Int(value)) => {
                plain(Datum::Numeric(value.into()))
            }
            (_, Datum::Null, value) => value.owned(),
            (AggregateKind::Sum | AggregateKind::Average, sum, value) => add(sum, value, aggregate.result.base)?,
            (AggregateKind::Least, least, value) if value.compare(least).is_lt() => value.owned(),
            (AggregateKind::Greatest, greatest, value) if value.compare(greatest).is_gt() => value.owned(),
            (AggregateKind::All, Datum::Bool(all), Datum::Bool(value)) => plain(Datum::Bool(all && value)),
            (AggregateKind::Any, Datum::Bool(any), Datum::Bool(value)) => plain(Datum::Bool(any || value)),
            (AggregateKind::BitAnd, Datum::Int(all), Datum::Int(value)) => plain(Datum::Int(all & value)),
            (AggregateKind::BitOr, Datum::Int(all), Datum::Int(value)) => plain(Datum::Int(all | value)),
            (AggregateKind::BitXor, Datum::Int(all), Datum::Int(value)) => plain(Datum::Int(all ^ value)),
            _ => return Ok(()),
        };
        Ok(())
    }

    fn join(&mut self, value: Datum<'_>, by: Datum<'_>) {
        let bytes = |datum: Datum<'_>| match datum {
            Datum::Text(text) => text.as_bytes().to_vec(),
            Datum::Bytes(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        let is_first = self.count == 0;
        self.count += 1;
        let more = self.more();
        if !is_first {
            more.bytes.extend(bytes(by));
        }
        more.bytes.extend(bytes(value));
    }

    fn add_square(&mut self, value: Datum<'_>) -> Result<(), SqlError> {
        self.count += 1;
        match value {
            Datum::Float(x) => {
                let count = self.count as f64;
                let [sum, squares, ..] = &mut self.more().sums;
                let before = *sum;
                *sum += x;
                if count > 1.0 {
                    *squares += (x * count - *sum).powi(2) / (count * (count - 1.0));
                    if sum.is_infinite() || squares.is_infinite() {
                        functions::checked_float(f64::INFINITY, Type::Float8, [before, x], true)?;
                        *squares = f64::NAN;
                    }
                } else if !x.is_finite() {
                    *squares = f64::NAN;
                }
            }
            Datum::Numeric(_) | Datum::Wide(_) => {
                self.value = match self.value.get() {
                    Datum::Null => value.owned(),
                    sum => functions::ADD.of(sum, value)?,
                };
                let square = functions::MULTIPLY.of(value, value)?;
                let more = self.more();
                more.squares = Some(match &more.squares {
                    Some(squares) => functions::ADD.of(squares.get(), square.get())?,
                    None => square,
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// By the method of Youngs and Cramer, as PostgreSQL does.
    fn add_pair(&mut self, y: Datum<'_>, x: Datum<'_>) -> Result<(), SqlError> {
        let (Datum::Float(y), Datum::Float(x)) = (y, x) else { return Ok(()) };
        self.count += 1;
        let count = self.count as f64;
        let [sum_x, sum_y, squares_x, squares_y, products] = &mut self.more().sums;
        *sum_x += x;
        *sum_y += y;
        if count > 1.0 {
            let (of_x, of_y) = (x * count - *sum_x, y * count - *sum_y);
            let scale = 1.0 / (count * (count - 1.0));
            *squares_x += of_x * of_x * scale;
            *squares_y += of_y * of_y * scale;
            *products += of_x * of_y * scale;
        } else if !x.is_finite() || !y.is_finite() {
            (*squares_x, *squares_y, *products) = (f64::NAN, f64::NAN, f64::NAN);
        }
        Ok(())
    }

    /// The result for a group of these positions of the keys.
    pub(super) fn result(&self, aggregate: &Aggregate, set: &[usize]) -> Result<OwnedDatum, SqlError> {
        if !aggregate.order.is_empty() {
            return self.sorted(aggregate, set);
        }
        Ok(match (aggregate.kind, self.value.get()) {
            (AggregateKind::CountRows | AggregateKind::Count, _) => plain(Datum::Int(self.count)),
            (AggregateKind::Grouping, _) => {
                let is_absent =
                    |at: &crate::expr::Expr| !matches!(at, crate::expr::Expr::Column(at) if set.contains(at));
                let bits = aggregate.arguments.iter().fold(0, |bits, it| bits << 1 | i64::from(is_absent(it)));
                plain(Datum::Int(bits))
            }
            (AggregateKind::Average, sum @ (Datum::Numeric(_) | Datum::Wide(_))) => {
                functions::DIVIDE.of(sum, Datum::Numeric(self.count.into()))?
            }
            (AggregateKind::Average, Datum::Float(sum)) => plain(Datum::Float(sum / self.count as f64)),
            (AggregateKind::Average, Datum::Interval(sum)) => {
                plain(Datum::Interval(functions::span_divided(sum, self.count as f64)?))
            }
            (AggregateKind::Sum, Datum::Numeric(sum)) if aggregate.result.base == Type::Int8 => {
                plain(crate::casts::in_range(sum.units(), Type::Int8)?)
            }
            (AggregateKind::Join, _) => self.joined(aggregate.result.base),
            (AggregateKind::Gather | AggregateKind::JsonList { .. } | AggregateKind::JsonObject { .. }, _) => {
                self.gathered(aggregate)?
            }
            (AggregateKind::Variance { is_sample, is_root }, _) => self.variance(is_sample, is_root)?,
            (AggregateKind::Regression(of), _) => plain(self.regression(of)),
            _ => self.value.clone(),
        })
    }

    fn joined(&self, of: Type) -> OwnedDatum {
        match &self.more {
            Some(more) if self.count > 0 => {
                let bytes = more.bytes.clone();
                if of == Type::Bytea {
                    return OwnedDatum::Bytes(bytes.into());
                }
                // Texts one after the other are a text.
                OwnedDatum::Text(String::from_utf8(bytes).unwrap_or_default().into())
            }
            _ => OwnedDatum::NULL,
        }
    }

    /// An array or JSON of all values; nothing of none.
    fn gathered(&self, aggregate: &Aggregate) -> Result<OwnedDatum, SqlError> {
        let Some(more) = self.more.as_ref().filter(|more| !more.rows.is_empty()) else { return Ok(OwnedDatum::NULL) };
        let json = |datum: Datum<'_>| match datum {
            Datum::Text(text) | Datum::Json(text) => text.to_owned(),
            _ => "null".to_owned(),
        };
        let values = more.rows.iter().map(|row| row[0].get());
        let (text, is_binary) = match aggregate.kind {
            AggregateKind::JsonList { is_binary } => {
                let is_of_parts = !is_binary && aggregate.arguments.first().is_some_and(has_parts);
                let mut list = "[".to_owned();
                for (at, value) in values.enumerate() {
                    list += if at > 0 { ", " } else { "" };
                    // Rows and arrays stand in lines of their own.
                    list += if at > 0 && is_of_parts && !value.is_null() { "\n " } else { "" };
                    list += &json(value);
                }
                (list + "]", is_binary)
            }
            AggregateKind::JsonObject { is_binary } => {
                let pairs = more.rows.iter().map(|row| {
                    let mut pair = String::new();
                    if let Datum::Text(key) = row[0].get() {
                        crate::json::write_text(key, &mut pair);
                    }
                    format!("{pair} : {}", json(row[1].get()))
                });
                (format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", ")), is_binary)
            }
            _ => {
                let items: Vec<_> = values.collect();
                let arena = bumpalo::Bump::new();
                let is_nested = matches!(items[0], Datum::Array(_));
                let array = if is_nested { arrays::nested(&arena, &items)? } else { Array::list(&arena, &items) };
                return Ok(array.owned());
            }
        };
        if !is_binary {
            return Ok(OwnedDatum::Text(text.into()));
        }
        Ok(OwnedDatum::Json(crate::json::parse(&text)?.normal()?.into()))
    }

    fn variance(&self, is_sample: bool, is_root: bool) -> Result<OwnedDatum, SqlError> {
        let least = if is_sample { 2 } else { 1 };
        let Some(more) = self.more.as_ref().filter(|_| self.count >= least) else { return Ok(OwnedDatum::NULL) };
        let divisor = if is_sample { self.count - 1 } else { self.count };
        let Some(squares) = &more.squares else {
            let variance = more.sums[1] / divisor as f64;
            return Ok(plain(Datum::Float(if is_root { variance.sqrt() } else { variance })));
        };
        // What is no number, or infinite, has a spread that is no number.
        let sum = Number::of(self.value.get());
        let of_squares = wide::multiply(&Number::of(squares.get()), &Number::of(Datum::Int(self.count)))?;
        let spread = wide::add(&of_squares, &wide::negate(&wide::multiply(&sum, &sum)?))?;
        match spread.sign() {
            None => return Number::Nan.datum(),
            Some(..=0) => return Ok(plain(Datum::Numeric(Decimal::ZERO))),
            Some(_) => {}
        }
        let divisor = Number::of(Datum::Numeric(Decimal::new(i128::from(self.count) * i128::from(divisor), 0)));
        match wide::divide(&spread, &divisor)? {
            Number::Finite { units, scale } if is_root => wide::root_to(&units, scale, scale)?.datum(),
            variance => variance.datum(),
        }
    }

    fn regression(&self, of: Regression) -> Datum<'static> {
        if of == Regression::Count {
            return Datum::Int(self.count);
        }
        let Some(more) = self.more.as_ref().filter(|_| self.count > 0) else { return Datum::Null };
        let count = self.count as f64;
        let [sum_x, sum_y, squares_x, squares_y, products] = more.sums;
        let is_flat_x = squares_x == 0.0;
        let slope = products / squares_x;
        let value = match of {
            Regression::Correlation if is_flat_x || squares_y == 0.0 => return Datum::Null,
            Regression::Correlation => products / (squares_x * squares_y).sqrt(),
            Regression::Covariance { is_sample: true } if self.count < 2 => return Datum::Null,
            Regression::Covariance { is_sample: true } => products / (count - 1.0),
            Regression::Covariance { .. } => products / count,
            Regression::AverageX => sum_x / count,
            Regression::AverageY => sum_y / count,
            Regression::SquaresX => squares_x,
            Regression::SquaresY => squares_y,
            Regression::Products => products,
            Regression::Slope | Regression::Intercept | Regression::Determination if is_flat_x => return Datum::Null,
            Regression::Slope => slope,
            Regression::Intercept => (sum_y - sum_x * slope) / count,
            Regression::Determination if squares_y == 0.0 => 1.0,
            Regression::Determination => products * products / (squares_x * squares_y),
            Regression::Count => count,
        };
        Datum::Float(value)
    }

    /// The result of rows that are sorted first.
    fn sorted(&self, aggregate: &Aggregate, set: &[usize]) -> Result<OwnedDatum, SqlError> {
        let mut rows: Vec<&Vec<OwnedDatum>> = self.more.iter().flat_map(|more| &more.rows).collect();
        let width = aggregate.arguments.len();
        rows.sort_by(|one, other| sorts::compare(&aggregate.order, &one[width..], &other[width..]));
        match aggregate.kind {
            AggregateKind::PercentileBetween | AggregateKind::Percentile => return percentile(aggregate.kind, &rows),
            AggregateKind::Mode => return Ok(mode(&rows)),
            _ => {}
        }
        let unsorted = Aggregate { order: Vec::new(), ..aggregate.clone() };
        let mut state = Self::default();
        for row in rows {
            let values: Vec<_> = row[..width].iter().map(OwnedDatum::get).collect();
            state.add(&unsorted, &values)?;
        }
        state.result(&unsorted, set)
    }
}

/// The value at a fraction of sorted ones; the fraction is the second argument.
fn percentile(kind: AggregateKind, rows: &[&Vec<OwnedDatum>]) -> Result<OwnedDatum, SqlError> {
    let rows: Vec<_> = rows.iter().filter(|row| !row[0].get().is_null()).collect();
    let Some(Datum::Float(fraction)) = rows.first().map(|row| row[1].get()) else { return Ok(OwnedDatum::NULL) };
    if !(0.0..=1.0).contains(&fraction) {
        let message = format!("percentile value {fraction} is not between 0 and 1");
        return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
    }
    let count = rows.len() as f64;
    if kind == AggregateKind::Percentile {
        let at = ((fraction * count).ceil() as usize).max(1) - 1;
        return Ok(rows[at][0].clone());
    }
    let place = fraction * (count - 1.0);
    let (Datum::Float(low), Datum::Float(high)) =
        (rows[place.floor() as usize][0].get(), rows[place.ceil() as usize][0].get())
    else {
        return Ok(OwnedDatum::NULL);
    };
    Ok(plain(Datum::Float(low + (high - low) * (place - place.floor()))))
}

/// The first of the values that are there most often.
fn mode(rows: &[&Vec<OwnedDatum>]) -> OwnedDatum {
    let (mut best, mut best_count, mut count) = (OwnedDatum::NULL, 0, 0);
    let mut last: Option<&OwnedDatum> = None;
    for value in rows.iter().map(|row| &row[0]).filter(|value| !value.get().is_null()) {
        count = if last.is_some_and(|last| last.get().compare(value.get()).is_eq()) { count + 1 } else { 1 };
        if count > best_count {
            (best, best_count) = (value.clone(), count);
        }
        last = Some(value);
    }
    best
}

fn add(sum: Datum<'_>, value: Datum<'_>, of: Type) -> Result<OwnedDatum, SqlError> {
    match (sum, value) {
        (Datum::Numeric(_) | Datum::Wide(_), Datum::Int(value)) => functions::ADD.of(sum, Datum::Numeric(value.into())),
        (Datum::Numeric(_) | Datum::Wide(_), _) => functions::ADD.of(sum, value),
        (Datum::Float(sum), Datum::Float(value)) => functions::sum_of_floats(sum, value, of).map(plain),
        (Datum::Interval(sum), Datum::Interval(value)) => {
            functions::sum_of_spans(sum, value).map(Datum::Interval).map(plain)
        }
        (sum, value) => unreachable!("{sum:?} and {value:?} are of one type"),
    }
}
