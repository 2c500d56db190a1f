//! Rows as values: those of a table that is named as a whole, of ROW, and of functions with several columns.
//!
//! A value is an array of its columns, in front of which stands a text that says their names and types. So a row can be shown wherever it has come to, and
//! rows of one query, which have the same text, are compared by their columns.

use crate::arrays::Array;
use crate::datum::Datum;
use crate::functions::{Function, functions};
use crate::text::{self, Zone};
use crate::types::Type;

/// A column by its name, and the type of its values.
pub(crate) type Field = (String, Type);

/// The text in front of the columns.
pub(crate) fn shape(fields: &[Field]) -> String {
    // Names and types are always written.
    serde_json::to_string(fields).unwrap_or_default()
}

/// The columns of a value, each with its name and type.
pub(crate) fn fields<'a>(row: Array<'a>) -> impl Iterator<Item = (Field, Datum<'a>)> {
    let mut items = row.items();
    let shape = match items.next() {
        Some(Datum::Text(shape)) => serde_json::from_str::<Vec<Field>>(shape).unwrap_or_default(),
        _ => Vec::new(),
    };
    shape.into_iter().zip(items)
}

/// Functions that statements have no name for.
pub(crate) static FUNCTIONS: &[Function] = functions! {
    "field of a row"(Record, Int4) -> AnyElement = |it, _| match (it[0], it[1]) {
        (Datum::Array(row), Datum::Int(at)) => Ok(row.items().nth(at as usize + 1).unwrap_or(Datum::Null)),
        _ => Ok(Datum::Null),
    };
    "rows of values"(AnyElement, Text, Int4) -> Record = |it, context| {
        let (Datum::Array(values), Datum::Int(width)) = (it[0], it[2]) else { return Ok(Datum::Null) };
        let values: Vec<_> = values.items().collect();
        let rows = values.chunks(width.max(1) as usize).map(|row| {
            let parts: Vec<_> = std::iter::once(it[1]).chain(row.iter().copied()).collect();
            Array::list(context.arena, &parts)
        });
        Ok(Array::list(context.arena, &rows.collect::<Vec<_>>()))
    };
    "order of rows"(Record, Record) -> Int4 = |it, _| {
        let (Datum::Array(one), Datum::Array(other)) = (it[0], it[1]) else { return Ok(Datum::Null) };
        let mut orders = one.items().zip(other.items()).skip(1).map(|(one, other)| one.compare(other));
        Ok(Datum::Int(orders.find(|order| order.is_ne()).map_or(0, |order| order as i64)))
    };
};

/// Gives the order of two rows as a number: less than 0, 0, or greater.
pub(crate) fn comparison() -> &'static Function {
    &FUNCTIONS[2]
}

/// Gives a column of a row by its position.
pub(crate) fn field_function() -> &'static Function {
    &FUNCTIONS[0]
}

/// Gives the rows that values are, one behind the other: so many each.
pub(crate) fn rows_function() -> &'static Function {
    &FUNCTIONS[1]
}

/// Appends a row as text: its columns in parentheses.
pub(crate) fn write(row: Array<'_>, zone: &Zone, out: &mut String) {
    out.push('(');
    for (at, ((_, of), value)) in fields(row).enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        if value.is_null() {
            continue;
        }
        let mut shown = String::new();
        text::write(of, value, zone, &mut shown);
        let is_special =
            |it: char| matches!(it, '"' | '\\' | '(' | ')' | ',') || it.is_ascii_whitespace() || it == '\x0b';
        if !shown.is_empty() && !shown.contains(is_special) {
            out.push_str(&shown);
            continue;
        }
        out.push('"');
        for letter in shown.chars() {
            if matches!(letter, '"' | '\\') {
                out.push(letter);
            }
            out.push(letter);
        }
        out.push('"');
    }
    out.push(')');
}
