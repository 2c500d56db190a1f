//! `pg_catalog`.

use super::{
    DATABASE, OWNER, ROLE, Row, SCHEMA, STANDARD_SCHEMA, SYSTEM_SCHEMA, all_types, constraints, flag, index_id,
    index_in_words, int, numbers, table_id, text,
};
use crate::catalog::Catalog;
use crate::catalog::Table;
use crate::datum::{Datum, OwnedDatum};
use crate::error::SqlError;
use crate::types::Type;
use crate::types::{Bound, Category};

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

fn modifier_of(bound: Bound) -> i64 {
    match bound {
        Bound::None => -1,
        Bound::Length(length) => i64::from(length) + 4,
        Bound::Digits(precision, scale) => (i64::from(precision) << 16 | i64::from(scale)) + 4,
    }
}

fn collation_of(of: Type) -> i64 {
    let of = of.element().unwrap_or(of);
    if of.category() == Category::Text { 100 } else { 0 }
}

pub(super) fn rows(name: &str, catalog: &Catalog) -> Result<Vec<Row>, SqlError> {
    let schemas = [(SYSTEM_SCHEMA, "pg_catalog"), (SCHEMA, "public"), (STANDARD_SCHEMA, "information_schema")];
    Ok(match name {
        "pg_namespace" => {
            schemas.map(|(id, name)| vec![("oid", int(id)), ("nspname", text(name)), ("nspowner", int(OWNER))]).into()
        }
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
        "pg_roles" | "pg_authid" => vec![role()],
        "pg_user" | "pg_shadow" => vec![vec![
            ("usename", text(ROLE)),
            ("usesysid", int(OWNER)),
            ("usecreatedb", flag(true)),
            ("usesuper", flag(true)),
        ]],
        "pg_settings" => settings(),
        "pg_type" => all_types().map(of_type).collect(),
        "pg_proc" => functions(),
        _ => {
            let mut rows = Vec::new();
            for table in catalog.all()? {
                rows_of(name, &table, &mut rows);
            }
            rows
        }
    })
}

fn role() -> Row {
    let rights =
        ["rolsuper", "rolinherit", "rolcreaterole", "rolcreatedb", "rolcanlogin", "rolreplication", "rolbypassrls"];
    let mut row = vec![("oid", int(OWNER)), ("rolname", text(ROLE)), ("rolconnlimit", int(-1))];
    row.extend(rights.map(|right| (right, flag(true))));
    row
}

fn settings() -> Vec<Row> {
    let known = [
        ("server_version", "15.0", "string"),
        ("server_version_num", "150000", "integer"),
        ("server_encoding", "UTF8", "string"),
        ("client_encoding", "UTF8", "string"),
        ("standard_conforming_strings", "on", "bool"),
        ("integer_datetimes", "on", "bool"),
        ("transaction_isolation", "serializable", "enum"),
        ("default_transaction_isolation", "serializable", "enum"),
        ("max_index_keys", "32", "integer"),
        ("search_path", "\"$user\", public", "string"),
    ];
    let row = |(name, setting, of): (&'static str, &'static str, &'static str)| {
        vec![
            ("name", text(name)),
            ("setting", text(setting)),
            ("vartype", text(of)),
            ("context", text("internal")),
            ("source", text("default")),
        ]
    };
    known.map(row).into()
}

fn of_type(of: Type) -> Row {
    let category = match of.category() {
        Category::Boolean => "B",
        Category::Number => "N",
        Category::Text => "S",
        Category::DateTime => "D",
        Category::Timespan => "T",
        Category::Array => "A",
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

/// What a relation has of a table.
fn rows_of(name: &str, table: &Table, rows: &mut Vec<Row>) {
    let id = table_id(table);
    match name {
        "pg_class" => classes(table, rows),
        "pg_attribute" => {
            rows.extend((0..table.columns.len()).map(|at| attribute(table, id, (at, at))));
            for (position, index) in table.indexes.iter().enumerate() {
                let id = index_id(table, position);
                rows.extend(index.columns.iter().enumerate().map(|(number, &at)| attribute(table, id, (number, at))));
            }
        }
        "pg_attrdef" => {
            let defaults = table.columns.iter().enumerate();
            rows.extend(defaults.filter_map(|(at, column)| {
                let default = column.default.as_deref()?;
                let number = at as i64 + 1;
                Some(vec![
                    ("oid", int(id + 4096 + number)),
                    ("adrelid", int(id)),
                    ("adnum", int(number)),
                    ("adbin", text(default)),
                ])
            }));
        }
        "pg_index" | "pg_constraint" => keys(name, table, rows),
        "pg_tables" => rows.push(vec![
            ("schemaname", text("public")),
            ("tablename", text(&*table.name)),
            ("tableowner", text(ROLE)),
            ("hasindexes", flag(true)),
        ]),
        "pg_indexes" => rows.extend(table.indexes.iter().map(|index| {
            vec![
                ("schemaname", text("public")),
                ("tablename", text(&*table.name)),
                ("indexname", text(&*index.name)),
                ("indexdef", text(index_in_words(table, index, false))),
            ]
        })),
        _ => {}
    }
}

fn classes(table: &Table, rows: &mut Vec<Row>) {
    let common = |id: i64, name: &str, count: usize| {
        vec![
            ("oid", int(id)),
            ("relname", text(name)),
            ("relnamespace", int(SCHEMA)),
            ("relowner", int(OWNER)),
            ("relfilenode", int(id)),
            ("reltuples", OwnedDatum::Plain(Datum::Float(-1.0))),
            ("relpersistence", text("p")),
            ("relnatts", int(count as i64)),
            ("relispopulated", flag(true)),
        ]
    };
    let mut row = common(table_id(table), &table.name, table.columns.len());
    row.extend([
        ("relkind", text("r")),
        ("relam", int(2)),
        ("relhasindex", flag(true)),
        ("relchecks", int(table.checks.len() as i64)),
        ("relreplident", text("d")),
    ]);
    rows.push(row);
    for (at, index) in table.indexes.iter().enumerate() {
        let mut row = common(index_id(table, at), &index.name, index.columns.len());
        let method = if index.is_ordered { 403 } else { 405 };
        row.extend([("relkind", text("i")), ("relam", int(method)), ("relreplident", text("n"))]);
        rows.push(row);
    }
}

fn attribute(table: &Table, relation: i64, (number, at): (usize, usize)) -> Row {
    let column = &table.columns[at];
    let is_own = relation == table_id(table);
    vec![
        ("attrelid", int(relation)),
        ("attname", text(&*column.name)),
        ("atttypid", int(column.of.base.oid().into())),
        ("attstattarget", int(-1)),
        ("attlen", int(length_of(column.of.base))),
        ("attnum", int(number as i64 + 1)),
        ("attndims", int(column.of.base.element().is_some().into())),
        ("attcacheoff", int(-1)),
        ("atttypmod", int(modifier_of(column.of.bound))),
        ("attstorage", text(if length_of(column.of.base) > 0 { "p" } else { "x" })),
        ("attcompression", text("")),
        ("attnotnull", flag(is_own && !column.nullable)),
        ("atthasdef", flag(is_own && column.default.is_some())),
        ("attidentity", text("")),
        ("attgenerated", text("")),
        ("attislocal", flag(true)),
        ("attcollation", int(collation_of(column.of.base))),
    ]
}

/// Indexes and constraints.
fn keys(name: &str, table: &Table, rows: &mut Vec<Row>) {
    let id = table_id(table);
    match name {
        "pg_index" => rows.extend(table.indexes.iter().enumerate().map(|(at, index)| {
            let count = index.columns.len() as i64;
            vec![
                ("indexrelid", int(index_id(table, at))),
                ("indrelid", int(id)),
                ("indnatts", int(count)),
                ("indnkeyatts", int(count)),
                ("indisunique", flag(index.is_unique)),
                ("indisprimary", flag(at == 0)),
                ("indimmediate", flag(true)),
                ("indisvalid", flag(true)),
                ("indisready", flag(true)),
                ("indislive", flag(true)),
                ("indkey", numbers(0, index.columns.iter().map(|&at| at as i64 + 1))),
                ("indcollation", numbers(0, index.columns.iter().map(|&at| collation_of(table.columns[at].of.base)))),
                ("indclass", numbers(0, index.columns.iter().map(|_| 0))),
                // Falling keys have NULLs in front.
                (
                    "indoption",
                    numbers(0, (0..index.columns.len()).map(|at| if index.is_ascending(at) { 0 } else { 3 })),
                ),
            ]
        })),
        "pg_constraint" => rows.extend(constraints(table).into_iter().map(|it| {
            vec![
                ("oid", int(it.id)),
                ("conname", text(it.name)),
                ("connamespace", int(SCHEMA)),
                ("contype", text(it.kind.to_string())),
                ("convalidated", flag(true)),
                ("conrelid", int(id)),
                ("conindid", int(it.index)),
                ("confupdtype", text(" ")),
                ("confdeltype", text(" ")),
                ("confmatchtype", text(" ")),
                ("conislocal", flag(true)),
                ("connoinherit", flag(it.kind != 'c')),
                ("conkey", numbers(1, it.columns.iter().map(|&at| at as i64 + 1))),
                ("conbin", if it.kind == 'c' { text(it.condition) } else { OwnedDatum::NULL }),
            ]
        })),
        _ => {}
    }
}
