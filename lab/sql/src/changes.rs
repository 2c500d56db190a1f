//! Statements that change rows.

use crate::expressions::{Scope, Writer};
use crate::schema::Table;

/// A change of a table, and whether which row fails first may depend on the order of the rows.
pub(crate) fn change(writer: &mut Writer<'_>) -> (String, bool) {
    let table = writer.draw.one(&writer.schema.tables).clone();
    match writer.draw.below(14) {
        0..=3 => {
            let text = insertion(writer, &table);
            let has_rows = text.contains(" FROM ");
            (text, has_rows)
        }
        4..=7 => update(writer, &table),
        8 | 9 => (deletion(writer, &table), true),
        10 | 11 => (merge(writer, &table), true),
        _ => (change_in_with(writer, &table), true),
    }
}

/// Rows of a table as they were, beside the keys of those that a change in WITH gives.
fn change_in_with(writer: &mut Writer<'_>, table: &Table) -> String {
    let change = match writer.draw.below(3) {
        0 => insertion(writer, table),
        1 => update(writer, table).0,
        _ => deletion(writer, table),
    };
    let change = change.split(" RETURNING ").next().unwrap_or_default();
    let key = &table.columns[table.key[0]].name;
    let name = &table.name;
    format!(
        "WITH changed AS ({change} RETURNING {name}.{key} AS changed_key) \
         SELECT x.*, changed_key FROM {name} x FULL JOIN changed ON x.{key} = changed_key"
    )
}

fn merge(writer: &mut Writer<'_>, table: &Table) -> String {
    let target = own(table, "m");
    let (from, source, both) = writer.inner_scope(&target).expect("there are tables");
    let on = table.key.iter().map(|&at| {
        let column = &table.columns[at];
        format!("m.{} = {}", column.name, writer.leaf(column.kind, &source))
    });
    let mut text = format!("MERGE INTO {} AS m USING {from} ON {}", table.name, on.collect::<Vec<_>>().join(" AND "));
    for is_last in [false, true] {
        let (is_matched, has_condition) = (writer.draw.once_in(2), !is_last || writer.draw.once_in(2));
        text += if is_matched { " WHEN MATCHED" } else { " WHEN NOT MATCHED" };
        if has_condition {
            text += &format!(" AND {}", writer.condition(if is_matched { &both } else { &source }, 1));
        }
        text += " THEN ";
        text += &match (writer.draw.below(5), is_matched) {
            (0, _) => "DO NOTHING".into(),
            (1, true) => "DELETE".into(),
            (_, true) => format!("UPDATE SET {}", assignments(writer, table, &both, false)),
            (_, false) => {
                let values: Vec<_> = table.columns.iter().map(|it| writer.of(it.kind, &source, 1)).collect();
                format!("INSERT VALUES ({})", values.join(", "))
            }
        };
    }
    text
}

fn own(table: &Table, name: &str) -> Scope {
    Scope { columns: table.columns.iter().map(|it| (format!("{name}.{}", it.name), it.kind)).collect() }
}

fn returning(writer: &mut Writer<'_>, scope: &Scope) -> String {
    match writer.draw.below(4) {
        0 => " RETURNING *".into(),
        1 => {
            let kind = writer.kind_of(scope);
            format!(" RETURNING {}", writer.of(kind, scope, 1))
        }
        _ => String::new(),
    }
}

fn insertion(writer: &mut Writer<'_>, table: &Table) -> String {
    let rows: Vec<_> = (0..writer.draw.within(1, 3)).map(|_| table.row(writer.draw)).collect();
    let mut text = match writer.draw.below(5) {
        // Some columns take their defaults.
        0 => {
            let columns: Vec<_> =
                (0..table.columns.len()).filter(|at| table.key.contains(at) || writer.draw.once_in(2)).collect();
            let names: Vec<_> = columns.iter().map(|&at| &*table.columns[at].name).collect();
            let values: Vec<_> = columns.iter().map(|&at| table.columns[at].kind.quoted(writer.draw, 12)).collect();
            format!("INSERT INTO {} ({}) VALUES ({})", table.name, names.join(", "), values.join(", "))
        }
        1 => {
            let kinds: Vec<_> = table.columns.iter().map(|it| it.kind).collect();
            let (from, scope, _) = writer.inner_scope(&Scope::default()).expect("there are tables");
            let values: Vec<_> = kinds.iter().map(|&kind| writer.of(kind, &scope, 1)).collect();
            format!(
                "INSERT INTO {} SELECT {} FROM {from} WHERE {}",
                table.name,
                values.join(", "),
                writer.condition(&scope, 1)
            )
        }
        _ => format!("INSERT INTO {} VALUES {}", table.name, rows.join(", ")),
    };
    if !text.contains(" SELECT ") && writer.draw.once_in(2) {
        text += &on_conflict(writer, table);
    }
    text + &returning(writer, &own(table, &table.name))
}

fn on_conflict(writer: &mut Writer<'_>, table: &Table) -> String {
    if writer.draw.once_in(3) {
        return " ON CONFLICT DO NOTHING".into();
    }
    let mut keys = vec![table.key.clone()];
    keys.extend(table.uniques.iter().cloned());
    let key = writer.draw.one(&keys).clone();
    let names: Vec<_> = key.iter().map(|&at| &*table.columns[at].name).collect();
    let mut text = format!(" ON CONFLICT ({}) DO ", names.join(", "));
    if writer.draw.once_in(4) {
        return text + "NOTHING";
    }
    let mut scope = own(table, &table.name);
    scope.columns.extend(own(table, "excluded").columns);
    text += &format!("UPDATE SET {}", assignments(writer, table, &scope, false));
    if writer.draw.once_in(3) {
        text += &format!(" WHERE {}", writer.condition(&scope, 1));
    }
    text
}

/// Assignments to some columns; those of keys only where it is asked for.
fn assignments(writer: &mut Writer<'_>, table: &Table, scope: &Scope, may_change_keys: bool) -> String {
    let all: Vec<_> = (0..table.columns.len()).filter(|&at| may_change_keys || !table.is_unique(at)).collect();
    let all = if all.is_empty() { vec![table.columns.len() - 1] } else { all };
    let count = writer.draw.within(1, 2);
    let set = writer.draw.some(&all, count).into_iter().map(|at| {
        let column = &table.columns[at];
        let value = match writer.draw.below(8) {
            0 => "DEFAULT".into(),
            1 => column.kind.quoted(writer.draw, 12),
            _ => writer.of(column.kind, scope, 2),
        };
        format!("{} = {value}", column.name)
    });
    set.collect::<Vec<_>>().join(", ")
}

fn update(writer: &mut Writer<'_>, table: &Table) -> (String, bool) {
    let scope = own(table, &table.name);
    let may_change_keys = writer.draw.once_in(4);
    let set = assignments(writer, table, &scope, may_change_keys);
    let mut text = format!("UPDATE {} SET {set}", table.name);
    let sources = if writer.draw.once_in(6) { writer.inner_scope(&scope) } else { None };
    match sources {
        // The source is compared by a key, so that a row meets one row at most: it could be any otherwise.
        Some((from, others, both)) => {
            let alias = others.columns[0].0.split('.').next().unwrap_or_default().to_owned();
            text += &format!(" FROM {from} WHERE {} AND ", by_key(writer, &alias, &from, &scope));
            text += &writer.condition(&both, 1);
        }
        None if writer.draw.below(5) > 0 => text += &format!(" WHERE {}", writer.condition(&scope, 2)),
        None => {}
    }
    (text + &returning(writer, &scope), true)
}

/// The whole key of a table of a FROM equals values of the other scope.
fn by_key(writer: &mut Writer<'_>, alias: &str, from: &str, scope: &Scope) -> String {
    let name = from.split(' ').next().unwrap_or_default();
    let table = writer.schema.tables.iter().find(|it| it.name == name).expect("it is a table").clone();
    let parts = table.key.iter().map(|&at| {
        let column = &table.columns[at];
        format!("{alias}.{} = {}", column.name, writer.leaf(column.kind, scope))
    });
    parts.collect::<Vec<_>>().join(" AND ")
}

fn deletion(writer: &mut Writer<'_>, table: &Table) -> String {
    let scope = own(table, &table.name);
    let mut text = format!("DELETE FROM {}", table.name);
    let sources = if writer.draw.once_in(6) { writer.inner_scope(&scope) } else { None };
    match sources {
        Some((from, _, both)) => text += &format!(" USING {from} WHERE {}", writer.condition(&both, 2)),
        None => text += &format!(" WHERE {}", writer.condition(&scope, 2)),
    }
    if text.contains(" USING ") {
        // Which row of the source a deleted one has met is open.
        let own = format!(" RETURNING {}.*", table.name);
        return text + &returning(writer, &Scope::default()).replace(" RETURNING *", &own);
    }
    text + &returning(writer, &scope)
}
