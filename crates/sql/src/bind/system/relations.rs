//! `pg_catalog`.

use super::keys::{Kind, action, constraints, expressions_in_words, index_in_words, parts};
use super::objects::{Objects, default_in_words, indexes, number, numbers_of};
use super::routines::{languages, of_procedure};
use super::words::condition_in_words;
use super::{
    DATABASE, OWNER, ROLE, Row, SYSTEM_SCHEMA, all_types, default_id, flag, index_id, int, numbers, schemas, system_id,
    table_id, text,
};
use crate::catalog::{Column, Identity, Table};
use crate::datum::{Datum, OwnedDatum};
use crate::names::Name;
use crate::types::{Category, ColumnType, Type};

fn length_of(of: Type) -> i64 {
    match of {
        Type::Bool => 1,
        Type::Int2 => 2,
        Type::Int4 | Type::Oid | Type::Float4 | Type::Date => 4,
        Type::Int8 | Type::Float8 | Type::Time | Type::Timestamp | Type::Timestamptz => 8,
        Type::Interval | Type::Uuid => 16,
        Type::Regclass | Type::Regtype | Type::Regproc | Type::Regnamespace | Type::Regrole => 4,
        _ => -1,
    }
}

fn collation_of(of: Type) -> i64 {
    let of = of.element().unwrap_or(of);
    if of.category() == Category::Text { 100 } else { 0 }
}

pub(super) fn rows(name: &str, objects: &Objects) -> Vec<Row> {
    match name {
        "pg_namespace" => {
            let row = |(id, name)| vec![("oid", int(id)), ("nspname", text(name)), ("nspowner", int(OWNER))];
            schemas(objects).map(row).collect()
        }
        "pg_description" => super::comments::rows(objects),
        "pg_am" => [(2, "heap", "t"), (403, "btree", "i"), (405, "hash", "i")]
            .map(|(id, name, of)| vec![("oid", int(id)), ("amname", text(name)), ("amtype", text(of))])
            .into(),
        "pg_collation" => [(100, "default"), (950, "C"), (951, "POSIX")]
            .map(|(id, name)| {
                vec![
                    ("oid", int(id)),
                    ("collname", text(name)),
                    ("collnamespace", int(SYSTEM_SCHEMA)),
                    ("collencoding", int(-1)),
                ]
            })
            .into(),
        "pg_tablespace" => [(1663, "pg_default"), (1664, "pg_global")]
            .map(|(id, name)| vec![("oid", int(id)), ("spcname", text(name)), ("spcowner", int(OWNER))])
            .into(),
        "pg_database" => vec![vec![
            ("oid", int(5)),
            ("datname", text(DATABASE)),
            ("datdba", int(OWNER)),
            ("encoding", int(6)),
            ("datlocprovider", text("c")),
            ("datallowconn", flag(true)),
            ("datconnlimit", int(-1)),
            ("dattablespace", int(1663)),
            ("datcollate", text("C")),
            ("datctype", text("C.UTF-8")),
        ]],
        "pg_type" => {
            let enums = super::enums::types(objects).map(|it| super::enums::completed(objects, it, of_type(it.1)));
            all_types().map(of_type).chain(enums).collect()
        }
        "pg_enum" => super::enums::rows(objects),
        "pg_proc" => {
            let mut rows = functions();
            rows.extend(objects.procedures.iter().map(|(id, procedure)| of_procedure(objects, *id, procedure)));
            rows
        }
        "pg_language" => languages(),
        "pg_views" => objects.views.iter().map(|(_, view)| of_view(&view.name, &view.query)).collect(),
        "pg_sequence" | "pg_sequences" | "pg_depend" => sequences(name, objects),
        _ => {
            let mut rows = Vec::new();
            for table in &objects.tables {
                rows_of(name, objects, table, &mut rows);
            }
            others(name, objects, &mut rows);
            rows
        }
    }
}

fn of_type(of: Type) -> Row {
    let category = match of.category() {
        Category::Boolean => "B",
        Category::Number => "N",
        Category::Text => "S",
        Category::DateTime => "D",
        Category::Timespan => "T",
        Category::Array => "A",
        Category::Enum => "E",
        Category::Pseudo => "P",
        Category::Unknown => "X",
        Category::User => "U",
    };
    let id_of = |of: Option<Type>| int(of.map_or(0, |of| of.oid().into()));
    vec![
        ("oid", int(of.oid().into())),
        ("typname", text(of.internal_name())),
        ("typnamespace", int(SYSTEM_SCHEMA)),
        ("typowner", int(OWNER)),
        ("typlen", int(length_of(of))),
        ("typbyval", flag((1..=8).contains(&length_of(of)))),
        ("typtype", text(if matches!(of, Type::Void | Type::Unknown) { "p" } else { "b" })),
        ("typcategory", text(category)),
        ("typispreferred", flag(of.is_preferred())),
        ("typisdefined", flag(true)),
        ("typdelim", text(",")),
        ("typelem", id_of(of.element())),
        ("typarray", id_of(of.array())),
        ("typtypmod", int(-1)),
        ("typcollation", int(collation_of(of))),
    ]
}

fn functions() -> Vec<Row> {
    let mut all: Vec<_> =
        crate::functions::all().filter(|it| it.name.starts_with(|it: char| it.is_ascii_lowercase())).collect();
    all.sort_by_key(|it| (it.name, it.arguments.len()));
    let row = |(at, it): (usize, &'static crate::functions::Function)| {
        vec![
            ("oid", int(20_000_000 + at as i64)),
            ("proname", text(it.name)),
            ("pronamespace", int(SYSTEM_SCHEMA)),
            ("proowner", int(OWNER)),
            ("prokind", text("f")),
            ("proisstrict", flag(it.is_strict)),
            ("proretset", flag(crate::functions::columns_of(it.name).is_some())),
            ("pronargs", int(it.arguments.len() as i64)),
            ("prorettype", int(it.result.oid().into())),
            ("proargtypes", numbers(0, it.arguments.iter().map(|of| of.oid().into()))),
        ]
    };
    all.into_iter().enumerate().map(row).collect()
}

fn of_view(name: &Name, query: &str) -> Row {
    vec![
        ("schemaname", text(name.schema())),
        ("viewname", text(name.plain())),
        ("viewowner", text(ROLE)),
        ("definition", text(format!(" {query};"))),
    ]
}

/// Sequences, and what goes with what.
fn sequences(name: &str, objects: &Objects) -> Vec<Row> {
    let row = |(id, sequence): &(i64, std::sync::Arc<crate::sequences::Sequence>)| {
        let of = &sequence.definition;
        match name {
            "pg_sequence" => Some(vec![
                ("seqrelid", int(*id)),
                ("seqtypid", int(of.of.oid().into())),
                ("seqstart", int(of.start)),
                ("seqincrement", int(of.increment)),
                ("seqmax", int(of.greatest)),
                ("seqmin", int(of.least)),
                ("seqcache", int(1)),
                ("seqcycle", flag(of.cycles)),
            ]),
            "pg_sequences" => Some(vec![
                ("schemaname", text(sequence.name.schema())),
                ("sequencename", text(sequence.name.plain())),
                ("sequenceowner", text(ROLE)),
                ("data_type", int(of.of.oid().into())),
                ("start_value", int(of.start)),
                ("min_value", int(of.least)),
                ("max_value", int(of.greatest)),
                ("increment_by", int(of.increment)),
                ("cycle", flag(of.cycles)),
                ("cache_size", int(1)),
                // A statement's rows are those of when it was bound, and sequences go on.
                ("last_value", OwnedDatum::NULL),
            ]),
            _ => objects.owner(sequence).map(|(table, column)| {
                vec![
                    ("classid", int(system_id("pg_class"))),
                    ("objid", int(*id)),
                    ("refclassid", int(system_id("pg_class"))),
                    ("refobjid", int(table_id(table))),
                    ("refobjsubid", int(column)),
                    ("deptype", text(if of.is_internal { "i" } else { "a" })),
                ]
            }),
        }
    };
    objects.sequences.iter().filter_map(row).collect()
}

/// What a relation has of a table.
fn rows_of(name: &str, objects: &Objects, table: &Table, rows: &mut Vec<Row>) {
    let id = table_id(table);
    match name {
        "pg_class" => classes(objects, table, rows),
        "pg_attribute" => {
            let columns = (1..).zip(table.visible());
            rows.extend(columns.map(|(number, (_, column))| of_column(column, (id, number))));
            for (position, index) in indexes(table) {
                let id = index_id(table, position);
                let of = |(number, (at, _)): (i64, (usize, usize))| {
                    let column = &table.columns[at];
                    // An expression has no name that anything could name.
                    let name = if column.is_hidden { "expr" } else { &column.name };
                    attribute((id, number), name, column.of)
                };
                rows.extend((1..).zip(parts(table, index)).map(of));
            }
        }
        "pg_attrdef" => rows.extend(table.visible().filter_map(|(at, column)| {
            let (number, default) = (number(table, at), default_in_words(objects, column)?);
            Some(vec![
                ("oid", int(default_id(table, number))),
                ("adrelid", int(id)),
                ("adnum", int(number)),
                ("adbin", text(default)),
            ])
        })),
        "pg_index" => key_rows(table, rows),
        "pg_constraint" => rows.extend(constraint_rows(objects, table)),
        "pg_tables" => rows.push(vec![
            ("schemaname", text(table.name.schema())),
            ("tablename", text(table.name.plain())),
            ("tableowner", text(ROLE)),
            ("hasindexes", flag(indexes(table).next().is_some())),
            ("hastriggers", flag(has_foreign_keys(table))),
        ]),
        "pg_indexes" => rows.extend(indexes(table).map(|(_, index)| {
            vec![
                ("schemaname", text(table.name.schema())),
                ("tablename", text(table.name.plain())),
                ("indexname", text(&*index.name)),
                ("indexdef", text(index_in_words(objects, table, index, false))),
            ]
        })),
        _ => {}
    }
}

/// PostgreSQL's foreign keys are triggers of both tables.
fn has_foreign_keys(table: &Table) -> bool {
    !table.foreign.is_empty() || !table.children.is_empty()
}

/// What a relation has of views and sequences.
fn others(name: &str, objects: &Objects, rows: &mut Vec<Row>) {
    match name {
        "pg_class" => {
            for (id, view) in &objects.views {
                let mut row = class((*id, objects.schema_of(&view.name)), &view.name, ("v", view.columns.len()));
                row.extend([("relam", int(0)), ("relhasrules", flag(true)), ("relreplident", text("n"))]);
                rows.push(row);
            }
            for (id, sequence) in &objects.sequences {
                let mut row = class((*id, objects.schema_of(&sequence.name)), &sequence.name, ("S", 3));
                row.extend([("relam", int(0)), ("relreplident", text("n"))]);
                rows.push(row);
            }
        }
        "pg_attribute" => {
            for (id, view) in &objects.views {
                let columns = (1..).zip(view.columns.iter().zip(&view.types));
                rows.extend(columns.map(|(number, (name, of))| attribute((*id, number), name, *of)));
            }
            for (id, _) in &objects.sequences {
                let columns = [("last_value", Type::Int8), ("log_cnt", Type::Int8), ("is_called", Type::Bool)];
                rows.extend((1..).zip(columns).map(|(number, (name, of))| {
                    let mut row = attribute((*id, number), name, of.into());
                    row.push(("attnotnull", flag(true)));
                    row
                }));
            }
        }
        _ => {}
    }
}

fn class((id, schema): (i64, i64), name: &Name, (kind, count): (&'static str, usize)) -> Row {
    vec![
        ("oid", int(id)),
        ("relname", text(name.plain())),
        ("relnamespace", int(schema)),
        ("relowner", int(OWNER)),
        ("relfilenode", int(id)),
        ("reltuples", OwnedDatum::Plain(Datum::Float(-1.0))),
        ("relpersistence", text(if name.is_temporary() { "t" } else { "p" })),
        ("relkind", text(kind)),
        ("relnatts", int(count as i64)),
        ("relispopulated", flag(true)),
    ]
}

fn classes(objects: &Objects, table: &Table, rows: &mut Vec<Row>) {
    let schema = objects.schema_of(&table.name);
    let mut row = class((table_id(table), schema), &table.name, ("r", table.visible().count()));
    row.extend([
        ("relam", int(2)),
        ("relhasindex", flag(indexes(table).next().is_some())),
        ("relchecks", int(table.checks.len() as i64)),
        ("relhastriggers", flag(has_foreign_keys(table))),
        ("relreplident", text("d")),
    ]);
    rows.push(row);
    for (at, index) in indexes(table) {
        let included = table.includes.get(&index.name).map_or(0, Vec::len);
        let own = table.name.beside(&index.name);
        let mut row = class((index_id(table, at), schema), &own, ("i", table.keys(index).len() + included));
        let method = if index.is_ordered { 403 } else { 405 };
        row.extend([("relam", int(method)), ("relreplident", text("n"))]);
        rows.push(row);
    }
}

/// A column of a table.
fn of_column(column: &Column, place: (i64, i64)) -> Row {
    let identity = match column.identity {
        None => "",
        Some(Identity::Always) => "a",
        Some(Identity::ByDefault) => "d",
    };
    let mut row = attribute(place, &column.name, column.of);
    row.extend([
        ("attnotnull", flag(!column.nullable)),
        ("atthasdef", flag(column.generated.is_some() || column.default.is_some() && column.identity.is_none())),
        ("attidentity", text(identity)),
        ("attgenerated", text(if column.generated.is_some() { "s" } else { "" })),
    ]);
    row
}

/// The column of this number of a relation. What comes behind it in the row says more.
fn attribute((relation, number): (i64, i64), name: &str, of: ColumnType) -> Row {
    let storage = match of.base {
        Type::Numeric => "m",
        base if length_of(base) > 0 => "p",
        _ => "x",
    };
    vec![
        ("attrelid", int(relation)),
        ("attname", text(name)),
        ("atttypid", int(of.base.oid().into())),
        ("attstattarget", int(-1)),
        ("attlen", int(length_of(of.base))),
        ("attnum", int(number)),
        ("attndims", int(of.base.element().is_some().into())),
        ("attcacheoff", int(-1)),
        ("atttypmod", int(of.bound.modifier(of.base).into())),
        ("attstorage", text(storage)),
        ("attcompression", text("")),
        ("attidentity", text("")),
        ("attgenerated", text("")),
        ("attislocal", flag(true)),
        ("attcollation", int(collation_of(of.base))),
    ]
}

fn key_rows(table: &Table, rows: &mut Vec<Row>) {
    rows.extend(indexes(table).map(|(at, index)| {
        let (keys, count) = (table.sources(index), table.keys(index).len());
        let included = table.includes.get(&index.name).into_iter().flatten().filter_map(|name| table.column(name));
        let all: Vec<_> = keys.iter().copied().chain(included).collect();
        // 1 for falling keys, 2 for NULL in front of the values.
        let options = parts(table, index).map(|(_, at)| {
            let order = index.orders.get(at).copied().unwrap_or_default();
            let has_nulls = table.columns[index.columns[at]].nullable;
            let nulls_first = if has_nulls { !order.nulls_last } else { order.descending };
            i64::from(order.descending) + 2 * i64::from(nulls_first)
        });
        let or_null = |of: Option<String>| of.map_or(OwnedDatum::NULL, text);
        vec![
            ("indexrelid", int(index_id(table, at))),
            ("indrelid", int(table_id(table))),
            ("indnatts", int(all.len() as i64)),
            ("indnkeyatts", int(count as i64)),
            ("indisunique", flag(index.is_unique)),
            ("indisprimary", flag(at == 0)),
            ("indimmediate", flag(true)),
            ("indisvalid", flag(true)),
            ("indisready", flag(true)),
            ("indislive", flag(true)),
            ("indkey", numbers(0, numbers_of(table, &all))),
            ("indcollation", numbers(0, keys.iter().map(|&at| collation_of(table.columns[at].of.base)))),
            ("indclass", numbers(0, keys.iter().map(|_| 0))),
            ("indoption", numbers(0, options)),
            ("indexprs", or_null(expressions_in_words(table, index))),
            ("indpred", or_null(table.condition(index).map(condition_in_words))),
        ]
    }));
}

fn constraint_rows(objects: &Objects, table: &Table) -> Vec<Row> {
    let row = |it: &super::keys::Constraint<'_>| {
        let mut row = vec![
            ("oid", int(it.id)),
            ("conname", text(it.name)),
            ("connamespace", int(objects.schema_of(&table.name))),
            ("contype", text(it.kind_in_words().0)),
            ("convalidated", flag(true)),
            ("conrelid", int(table_id(table))),
            ("conindid", int(it.index)),
            ("conislocal", flag(true)),
            ("connoinherit", flag(!matches!(it.kind, Kind::Check(_)))),
            ("conkey", numbers(1, numbers_of(table, &it.columns))),
        ];
        match &it.kind {
            Kind::Foreign(foreign) => row.extend([
                ("condeferrable", flag(foreign.key.deferrable)),
                ("condeferred", flag(foreign.key.deferred)),
                ("confrelid", int(table_id(foreign.parent))),
                ("confkey", numbers(1, numbers_of(foreign.parent, &foreign.columns))),
                ("confupdtype", text(action(foreign.key.on_update).0)),
                ("confdeltype", text(action(foreign.key.on_delete).0)),
                ("confmatchtype", text("s")),
            ]),
            kind => {
                row.extend(["confupdtype", "confdeltype", "confmatchtype"].map(|name| (name, text(" "))));
                row.extend(if let Kind::Check(condition) = kind { Some(("conbin", text(*condition))) } else { None });
            }
        }
        row
    };
    constraints(objects, table).iter().map(row).collect()
}
