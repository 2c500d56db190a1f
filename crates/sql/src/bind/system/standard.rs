//! `information_schema`.

use super::keys::{Constraint, Kind, action, constraints};
use super::objects::{Objects, default_in_words, number};
use super::rights::KnownRights;
use super::routines::standard_routine;
use super::{DATABASE, ROLE, Row, SCHEMA, int, table_id, text};
use crate::catalog::{Column, Identity, Object, Table, View};
use crate::datum::OwnedDatum;
use crate::names::Name;
use crate::sequences::SequenceDefinition;
use crate::types::{Bound, Category, ColumnType, Type};

/// The rows that a role sees.
pub(super) fn rows(name: &str, objects: &Objects, rights: &KnownRights) -> Vec<Row> {
    let rows = match name {
        "schemata" => {
            let row = |name: &str| {
                vec![("catalog_name", text(DATABASE)), ("schema_name", text(name)), ("schema_owner", text(ROLE))]
            };
            super::schemas(objects).map(|(_, name)| row(name)).collect()
        }
        "information_schema_catalog_name" => vec![vec![("catalog_name", text(DATABASE))]],
        "routines" => objects.procedures.iter().map(|(id, procedure)| standard_routine(*id, procedure)).collect(),
        "sequences" => {
            let shown = objects.sequences.iter().filter(|(_, sequence)| !sequence.definition.is_internal);
            shown.map(|(_, sequence)| of_sequence(&sequence.name, &sequence.definition)).collect()
        }
        _ => {
            let mut rows = Vec::new();
            for table in &objects.tables {
                let mut own = Vec::new();
                rows_of(name, objects, table, &mut own);
                rights.retain_visible(name, &Object::Table(table.clone()), &mut own, objects);
                rows.append(&mut own);
            }
            for (_, view) in &objects.views {
                let mut own = Vec::new();
                rows_of_view(name, view, &mut own);
                rights.retain_visible(name, &Object::View(view.clone()), &mut own, objects);
                rows.append(&mut own);
            }
            rows
        }
    };
    rights.visible(name, rows, objects)
}

pub(super) fn yes(value: bool) -> OwnedDatum {
    text(if value { "YES" } else { "NO" })
}

fn of_sequence(name: &Name, of: &SequenceDefinition) -> Row {
    let digits = match of.of {
        Type::Int2 => 16,
        Type::Int4 => 32,
        _ => 64,
    };
    vec![
        ("sequence_catalog", text(DATABASE)),
        ("sequence_schema", text(name.schema())),
        ("sequence_name", text(name.plain())),
        ("data_type", text(of.of.name())),
        ("numeric_precision", int(digits)),
        ("numeric_precision_radix", int(2)),
        ("numeric_scale", int(0)),
        ("start_value", text(of.start.to_string())),
        ("minimum_value", text(of.least.to_string())),
        ("maximum_value", text(of.greatest.to_string())),
        ("increment", text(of.increment.to_string())),
        ("cycle_option", yes(of.cycles)),
    ]
}

fn rows_of_view(name: &str, view: &View, rows: &mut Vec<Row>) {
    let of_view = |row: Row| of_relation(&view.name, row);
    match name {
        "tables" => rows.push(of_view(vec![
            ("table_type", text("VIEW")),
            ("is_insertable_into", yes(false)),
            ("is_typed", yes(false)),
        ])),
        "views" => rows.push(of_view(vec![
            ("view_definition", text(format!(" {};", view.query))),
            ("check_option", text("NONE")),
            ("is_updatable", yes(false)),
            ("is_insertable_into", yes(false)),
            ("is_trigger_updatable", yes(false)),
            ("is_trigger_deletable", yes(false)),
            ("is_trigger_insertable_into", yes(false)),
        ])),
        "columns" => {
            let columns = (1..).zip(view.columns.iter().zip(&view.types));
            rows.extend(columns.map(|(number, (name, of))| {
                let mut row = standard_column(number, name, *of);
                row.push(("is_updatable", yes(false)));
                of_view(row)
            }));
        }
        _ => {}
    }
}

/// The row of a table or a view.
fn of_relation(name: &Name, mut row: Row) -> Row {
    let (schema, name) = (text(name.schema()), text(name.plain()));
    row.extend([("table_catalog", text(DATABASE)), ("table_schema", schema), ("table_name", name)]);
    row
}

/// The row of a constraint.
fn of_constraint((schema, name): (&str, &str), mut row: Row) -> Row {
    let of =
        [("constraint_catalog", text(DATABASE)), ("constraint_schema", text(schema)), ("constraint_name", text(name))];
    row.extend(of);
    row
}

fn rows_of(name: &str, objects: &Objects, table: &Table, rows: &mut Vec<Row>) {
    let of_table = |row: Row| of_relation(&table.name, row);
    let schema = table.name.schema();
    match name {
        "tables" => rows.push(of_table(vec![
            ("table_type", text(if table.name.is_temporary() { "LOCAL TEMPORARY" } else { "BASE TABLE" })),
            ("is_insertable_into", yes(true)),
            ("is_typed", yes(false)),
        ])),
        "columns" => rows.extend((1..).zip(table.visible()).map(|(number, (_, column))| {
            let sequence = objects.sequence_of(&table.name, &column.name);
            of_table(column_of_table(objects, number, column, sequence.map(|(_, it)| &it.definition)))
        })),
        "table_constraints" => {
            let row = |name: &str, kind: &'static str, (deferrable, deferred): (bool, bool)| {
                let row = vec![
                    ("constraint_type", text(kind)),
                    ("is_deferrable", yes(deferrable)),
                    ("initially_deferred", yes(deferred)),
                    ("enforced", yes(true)),
                    ("nulls_distinct", if kind == "UNIQUE" { yes(true) } else { OwnedDatum::NULL }),
                ];
                of_table(of_constraint((schema, name), row))
            };
            rows.extend(constraints(objects, table).iter().map(|it| {
                let when = it.foreign().map_or((false, false), |it| (it.key.deferrable, it.key.deferred));
                row(it.name, it.kind_in_words().1, when)
            }));
            rows.extend(not_null(table).map(|(name, _)| row(&name, "CHECK", (false, false))));
        }
        "check_constraints" => {
            let row = |name: &str, clause: String| of_constraint((schema, name), vec![("check_clause", text(clause))]);
            rows.extend(
                table.checks.iter().map(|it| row(&it.name, format!("(({}))", super::words::peeled(&it.condition)))),
            );
            rows.extend(not_null(table).map(|(name, column)| row(&name, format!("{column} IS NOT NULL"))));
        }
        "referential_constraints" => {
            rows.extend(constraints(objects, table).iter().filter_map(|it| of_foreign_key(schema, it)))
        }
        "key_column_usage" => {
            for it in constraints(objects, table).iter().filter(|it| !matches!(it.kind, Kind::Check(_))) {
                let of = |at| of_table(of_constraint((schema, it.name), key_column(table, it, at)));
                rows.extend((0..it.columns.len()).map(of));
            }
        }
        "constraint_column_usage" => {
            for it in &constraints(objects, table) {
                // Of a foreign key, those that it leads to.
                let (table, columns) = it.foreign().map_or((table, &it.columns), |it| (it.parent, &it.columns));
                rows.extend(columns.iter().map(|&at| {
                    let row = vec![("column_name", text(&*table.columns[at].name))];
                    of_relation(&table.name, of_constraint((schema, it.name), row))
                }));
            }
        }
        _ => {}
    }
}

fn of_foreign_key(schema: &str, constraint: &Constraint<'_>) -> Option<Row> {
    let foreign = constraint.foreign()?;
    let mut row = vec![
        ("match_option", text("NONE")),
        ("update_rule", text(action(foreign.key.on_update).1)),
        ("delete_rule", text(action(foreign.key.on_delete).1)),
    ];
    let is_constraint =
        |name: &String| *name == foreign.parent.primary().name || foreign.parent.constraints.contains(name);
    if let Some(name) = foreign.index.map(|index| &index.name).filter(|name| is_constraint(name)) {
        row.extend([
            ("unique_constraint_catalog", text(DATABASE)),
            ("unique_constraint_schema", text(foreign.parent.name.schema())),
            ("unique_constraint_name", text(&**name)),
        ]);
    }
    Some(of_constraint((schema, constraint.name), row))
}

/// A column of a key.
fn key_column(table: &Table, constraint: &Constraint<'_>, at: usize) -> Row {
    let column = text(&*table.columns[constraint.columns[at]].name);
    let mut row = vec![("column_name", column), ("ordinal_position", int(at as i64 + 1))];
    if let Some(foreign) = constraint.foreign()
        && let Some(index) = foreign.index
        && let Some(position) = foreign.parent.sources(index).iter().position(|column| *column == foreign.columns[at])
    {
        row.push(("position_in_unique_constraint", int(position as i64 + 1)));
    }
    row
}

/// The constraints that stand for NOT NULL, with their columns.
fn not_null(table: &Table) -> impl Iterator<Item = (String, &str)> {
    let columns = table.visible().filter(|(_, column)| !column.nullable);
    columns.map(|(at, column)| {
        (format!("{SCHEMA}_{}_{}_not_null", table_id(table), number(table, at)), column.name.as_str())
    })
}

/// A column of a table, with its sequence.
fn column_of_table(objects: &Objects, number: i64, column: &Column, sequence: Option<&SequenceDefinition>) -> Row {
    let mut row = standard_column(number, &column.name, column.of);
    let is_generated = column.generated.is_some();
    let value = default_in_words(objects, column).map_or(OwnedDatum::NULL, text);
    row.extend([
        (if is_generated { "generation_expression" } else { "column_default" }, value),
        ("is_nullable", yes(column.nullable)),
    ]);
    if is_generated {
        row.push(("is_generated", text("ALWAYS")));
    }
    if let (Some(identity), Some(of)) = (column.identity, sequence) {
        row.extend([
            ("is_identity", yes(true)),
            ("identity_generation", text(if identity == Identity::Always { "ALWAYS" } else { "BY DEFAULT" })),
            ("identity_start", text(of.start.to_string())),
            ("identity_increment", text(of.increment.to_string())),
            ("identity_maximum", text(of.greatest.to_string())),
            ("identity_minimum", text(of.least.to_string())),
            ("identity_cycle", yes(of.cycles)),
        ]);
    }
    row
}

/// A column that may be NULL. What comes behind it in the row says more.
fn standard_column(number: i64, name: &str, column: ColumnType) -> Row {
    let (of, bound) = (column.base, column.bound);
    let data_type = match of {
        Type::Array(_) => "ARRAY",
        Type::Enum(_) => "USER-DEFINED",
        _ => of.name(),
    };
    let schema = match of.element().unwrap_or(of) {
        Type::Enum(of) => of.key().schema(),
        _ => "pg_catalog",
    };
    let mut row = vec![
        ("column_name", text(name)),
        ("ordinal_position", int(number)),
        ("is_nullable", yes(true)),
        ("data_type", text(data_type)),
        ("udt_catalog", text(DATABASE)),
        ("udt_schema", text(schema)),
        ("udt_name", text(of.internal_name())),
        ("dtd_identifier", text(number.to_string())),
        ("is_self_referencing", yes(false)),
        ("is_identity", yes(false)),
        ("identity_cycle", yes(false)),
        ("is_generated", text("NEVER")),
        ("is_updatable", yes(true)),
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
        (Category::DateTime | Category::Timespan, Bound::Seconds(digits)) => {
            row.push(("datetime_precision", int(digits.into())));
        }
        (Category::DateTime, _) => row.push(("datetime_precision", int(if of == Type::Date { 0 } else { 6 }))),
        (Category::Timespan, _) => row.push(("datetime_precision", int(6))),
        _ => {}
    }
    row
}
