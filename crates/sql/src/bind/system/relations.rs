//! `pg_catalog`.

use super::keys::{Kind, action, constraints, expressions_in_words, index_in_words, parts};
use super::objects::{Objects, default_in_words, indexes, number, numbers_of};
use super::routines::{languages, of_procedure};
use super::words::condition_in_words;
use super::{
    DATABASE, OWNER, ROLE, Row, SYSTEM_SCHEMA, default_id, flag, index_id, int, numbers, schemas, system_id, table_id,
    text,
};
use crate::catalog::{Column, Identity, Table};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
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

/// `typstorage`, and `attstorage` where nothing says another one.
fn storage_of(of: Type) -> &'static str {
    match of {
        Type::Numeric => "m",
        Type::Int2vector => "p",
        Type::Enum(_) => "p",
        _ if length_of(of) > 0 => "p",
        _ => "x",
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
                    ("collowner", int(OWNER)),
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
            Type::known().map(of_type).chain(of_names()).chain(enums).collect()
        }
        "pg_enum" => super::enums::rows(objects),
        "pg_proc" => {
            let mut rows = functions();
            rows.extend(objects.procedures.iter().map(|(id, procedure)| of_procedure(objects, *id, procedure)));
            rows
        }
        "pg_language" => languages(),
        "pg_views" => objects.views.iter().map(|(_, view)| of_view(&view.name, &view.query)).collect(),
        "pg_sequence" | "pg_sequences" => sequences(name, objects),
        "pg_depend" => {
            let mut rows = sequences(name, objects);
            rows.extend(super::dependencies::rows(objects));
            rows
        }
        "pg_rewrite" => objects.views.iter().map(|(id, _)| super::dependencies::rule(*id)).collect(),
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
    let [input, output, receive, send] = io_functions(of).map(|(id, _)| int(id));
    vec![
        ("typinput", input),
        ("typoutput", output),
        ("typreceive", receive),
        ("typsend", send),
        ("oid", int(of.oid().into())),
        ("typname", text(of.internal_name())),
        ("typnamespace", int(SYSTEM_SCHEMA)),
        ("typowner", int(OWNER)),
        ("typlen", int(length_of(of))),
        ("typbyval", flag((1..=8).contains(&length_of(of)))),
        ("typtype", text(if matches!(of, Type::Void | Type::Unknown | Type::Record) { "p" } else { "b" })),
        ("typcategory", text(category)),
        ("typispreferred", flag(of.is_preferred())),
        ("typisdefined", flag(true)),
        ("typdelim", text(",")),
        ("typelem", id_of(of.element())),
        ("typarray", id_of(of.array())),
        ("typtypmod", int(-1)),
        ("typstorage", text(storage_of(of))),
        ("typcollation", int(collation_of(of))),
    ]
}

/// The functions of the registry with their ids.
fn sorted_functions() -> Vec<(i64, &'static crate::functions::Function)> {
    let mut all: Vec<_> =
        crate::functions::all().filter(|it| it.name.starts_with(|it: char| it.is_ascii_lowercase())).collect();
    all.sort_by_key(|it| (it.name, it.arguments.len()));
    (20_000_000..).zip(all).collect()
}

fn functions() -> Vec<Row> {
    let row = |(id, it): (i64, &'static crate::functions::Function)| {
        vec![
            ("oid", int(id)),
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
    let of_io = |(id, name): (i64, String)| {
        vec![
            ("oid", int(id)),
            ("proname", text(name)),
            ("pronamespace", int(SYSTEM_SCHEMA)),
            ("proowner", int(OWNER)),
            ("prokind", text("f")),
            ("proisstrict", flag(true)),
        ]
    };
    sorted_functions().into_iter().map(row).chain(all_io_functions().into_iter().map(of_io)).collect()
}

/// The types of the catalog whose values are texts here: `name` and `"char"`.
fn of_names() -> [Row; 2] {
    let row = |(oid, name): (i64, &'static str), length: i64, (category, array, element): (&'static str, i64, i64)| {
        let mut row = of_type(Type::Text);
        row.extend([
            ("oid", int(oid)),
            ("typname", text(name)),
            ("typlen", int(length)),
            ("typbyval", flag(length == 1)),
            ("typcategory", text(category)),
            ("typispreferred", flag(false)),
            ("typelem", int(element)),
            ("typarray", int(array)),
            ("typstorage", text("p")),
        ]);
        row
    };
    [row((18, "char"), 1, ("Z", 1002, 0)), row((19, "name"), 64, ("S", 1003, 18))]
}

/// The functions that read values of a type and write them, as texts and as bytes, with their ids.
fn io_functions(of: Type) -> [(i64, String); 4] {
    use Type::{Date, Interval, Json, Jsonb, Numeric, Record, Time, Timestamp, Timestamptz, Uuid, Void};
    let (key, name) = match of {
        Type::Array(_) => (Type::AnyArray.oid(), "array_".to_owned()),
        Type::Enum(_) => (Type::AnyEnum.oid(), "enum_".to_owned()),
        Date | Interval | Json | Jsonb | Numeric | Record | Time | Timestamp | Timestamptz | Uuid | Void => {
            (of.oid(), format!("{}_", of.internal_name()))
        }
        _ => (of.oid(), of.internal_name().to_owned()),
    };
    io_functions_of(key, &name)
}

fn io_functions_of(key: u32, name: &str) -> [(i64, String); 4] {
    let mut id = 19_000_000 + 4 * i64::from(key);
    ["in", "out", "recv", "send"].map(|end| {
        id += 1;
        (id, format!("{name}{end}"))
    })
}

/// Those of all types.
fn all_io_functions() -> std::collections::BTreeMap<i64, String> {
    Type::known().flat_map(io_functions).chain(io_functions_of(Type::AnyEnum.oid(), "enum_")).collect()
}

/// The functions that a name alone stands for, with their ids.
pub(super) fn functions_by_id() -> Vec<(i64, String)> {
    let known = sorted_functions().into_iter().map(|(id, it)| (id, it.name.to_owned()));
    known.chain(all_io_functions()).collect()
}

/// The only function of a name.
pub(super) fn function_named(plain: &str, written: &str) -> Result<i64, SqlError> {
    let mut found = functions_by_id().into_iter().filter(|(_, own)| own == plain);
    match (found.next(), found.next()) {
        (Some((id, _)), None) => Ok(id),
        (None, _) => {
            let message = format!("function \"{written}\" does not exist");
            Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message))
        }
        (Some(_), Some(_)) => {
            let message = format!("more than one function named \"{written}\"");
            Err(SqlError::new(SqlState::AMBIGUOUS_FUNCTION, message))
        }
    }
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
        ("attstorage", text(storage_of(of.base))),
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
