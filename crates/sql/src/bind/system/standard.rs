//! `information_schema`.

use super::{DATABASE, ROLE, Row, SCHEMA, constraints, int, table_id, text};
use crate::catalog::{Catalog, Table};
use crate::datum::OwnedDatum;
use crate::error::SqlError;
use crate::types::{Bound, Category, Type};

pub(super) fn rows(name: &str, catalog: &Catalog) -> Result<Vec<Row>, SqlError> {
    if name == "schemata" {
        let names = ["public", "information_schema", "pg_catalog"];
        let row =
            |name| vec![("catalog_name", text(DATABASE)), ("schema_name", text(name)), ("schema_owner", text(ROLE))];
        return Ok(names.map(row).into());
    }
    if name == "information_schema_catalog_name" {
        return Ok(vec![vec![("catalog_name", text(DATABASE))]]);
    }
    let mut rows = Vec::new();
    for table in catalog.all()? {
        rows_of(name, &table, &mut rows);
    }
    Ok(rows)
}

/// The row of a table.
fn of_table(table: &Table, mut row: Row) -> Row {
    row.extend([
        ("table_catalog", text(DATABASE)),
        ("table_schema", text("public")),
        ("table_name", text(&*table.name)),
    ]);
    row
}

/// The row of a constraint.
fn of_constraint(name: &str, mut row: Row) -> Row {
    let of = [
        ("constraint_catalog", text(DATABASE)),
        ("constraint_schema", text("public")),
        ("constraint_name", text(name)),
    ];
    row.extend(of);
    row
}

fn rows_of(name: &str, table: &Table, rows: &mut Vec<Row>) {
    let of_table = |row: Row| of_table(table, row);
    match name {
        "tables" => rows.push(of_table(vec![
            ("table_type", text("BASE TABLE")),
            ("is_insertable_into", text("YES")),
            ("is_typed", text("NO")),
        ])),
        "columns" => rows.extend((0..table.columns.len()).map(|at| of_table(standard_column(table, at)))),
        "table_constraints" => {
            let row = |name: &str, kind: &'static str| {
                let row = vec![
                    ("constraint_type", text(kind)),
                    ("is_deferrable", text("NO")),
                    ("initially_deferred", text("NO")),
                    ("enforced", text("YES")),
                    ("nulls_distinct", if kind == "UNIQUE" { text("YES") } else { OwnedDatum::NULL }),
                ];
                of_table(of_constraint(name, row))
            };
            rows.extend(constraints(table).iter().map(|it| {
                row(
                    it.name,
                    match it.kind {
                        'p' => "PRIMARY KEY",
                        'u' => "UNIQUE",
                        _ => "CHECK",
                    },
                )
            }));
            rows.extend(not_null(table).map(|(name, _)| row(&name, "CHECK")));
        }
        "check_constraints" => {
            let row = |name: &str, clause: String| of_constraint(name, vec![("check_clause", text(clause))]);
            let checks = constraints(table).into_iter().filter(|it| it.kind == 'c');
            rows.extend(checks.map(|it| row(it.name, format!("(({}))", it.condition))));
            rows.extend(not_null(table).map(|(name, column)| row(&name, format!("{column} IS NOT NULL"))));
        }
        "key_column_usage" | "constraint_column_usage" => columns_of_keys(name, table, rows),
        _ => {}
    }
}

/// The columns that constraints name.
fn columns_of_keys(name: &str, table: &Table, rows: &mut Vec<Row>) {
    let of_table = |row: Row| of_table(table, row);
    match name {
        "key_column_usage" => {
            for it in constraints(table).iter().filter(|it| it.kind != 'c') {
                rows.extend(it.columns.iter().enumerate().map(|(number, &at)| {
                    let column = text(&*table.columns[at].name);
                    let row = vec![("column_name", column), ("ordinal_position", int(number as i64 + 1))];
                    of_table(of_constraint(it.name, row))
                }));
            }
        }
        "constraint_column_usage" => {
            for it in &constraints(table) {
                let row = |&at: &usize| {
                    of_table(of_constraint(it.name, vec![("column_name", text(&*table.columns[at].name))]))
                };
                rows.extend(it.columns.iter().map(row));
            }
        }
        _ => {}
    }
}

/// The constraints that stand for NOT NULL, with their columns.
fn not_null(table: &Table) -> impl Iterator<Item = (String, &str)> {
    let columns = table.columns.iter().enumerate().filter(|(_, column)| !column.nullable);
    columns.map(|(at, column)| (format!("{SCHEMA}_{}_{}_not_null", table_id(table), at + 1), column.name.as_str()))
}

fn standard_column(table: &Table, at: usize) -> Row {
    let column = &table.columns[at];
    let (of, bound) = (column.of.base, column.of.bound);
    let mut row = vec![
        ("column_name", text(&*column.name)),
        ("ordinal_position", int(at as i64 + 1)),
        ("column_default", column.default.as_deref().map_or(OwnedDatum::NULL, text)),
        ("is_nullable", text(if column.nullable { "YES" } else { "NO" })),
        ("data_type", text(if of.element().is_some() { "ARRAY" } else { of.name() })),
        ("udt_catalog", text(DATABASE)),
        ("udt_schema", text("pg_catalog")),
        ("udt_name", text(of.internal_name())),
        ("dtd_identifier", text((at + 1).to_string())),
        ("is_self_referencing", text("NO")),
        ("is_identity", text("NO")),
        ("identity_cycle", text("NO")),
        ("is_generated", text("NEVER")),
        ("is_updatable", text("YES")),
    ];
    let digits = match of {
        Type::Int2 => Some((16, 2, Some(0))),
        Type::Int4 => Some((32, 2, Some(0))),
        Type::Int8 => Some((64, 2, Some(0))),
        Type::Float4 => Some((24, 2, None)),
        Type::Float8 => Some((53, 2, None)),
        _ => match bound {
            Bound::Digits(precision, scale) if of == Type::Numeric => Some((precision.into(), 10, Some(scale.into()))),
            _ => None,
        },
    };
    if let Some((precision, radix, scale)) = digits {
        row.extend([("numeric_precision", int(precision)), ("numeric_precision_radix", int(radix))]);
        row.extend(scale.map(|scale| ("numeric_scale", int(scale))));
    } else if of == Type::Numeric {
        row.push(("numeric_precision_radix", int(10)));
    }
    match (of.category(), bound) {
        (Category::Text, Bound::Length(length)) => row.extend([
            ("character_maximum_length", int(length.into())),
            ("character_octet_length", int(i64::from(length) * 4)),
        ]),
        (Category::Text, _) => row.push(("character_octet_length", int(1 << 30))),
        (Category::DateTime, _) => row.push(("datetime_precision", int(if of == Type::Date { 0 } else { 6 }))),
        (Category::Timespan, _) => row.push(("datetime_precision", int(6))),
        _ => {}
    }
    row
}
