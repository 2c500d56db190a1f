//! What depends on what, as far as programs ask that write a database down: views on what they look at, and defaults on sequences.

use super::objects::{Objects, number};
use super::{Row, default_id, flag, int, system_id, table_id, text};
use crate::bind::drops::sequence_of;

/// The rule that a view is. Views have ids of their own range, and their rules those of the next one.
const RULES: i64 = -(1 << 30);

fn rule_id(view: i64) -> i64 {
    view + RULES
}

/// The row of `pg_rewrite` of a view.
pub(super) fn rule(view: i64) -> Row {
    vec![
        ("oid", int(rule_id(view))),
        ("rulename", text("_RETURN")),
        ("ev_class", int(view)),
        ("ev_type", text("1")),
        ("ev_enabled", text("O")),
        ("is_instead", flag(true)),
    ]
}

/// The rows of `pg_depend` that are not about sequences of columns.
pub(super) fn rows(objects: &Objects) -> Vec<Row> {
    let (classes, rules, defaults) = (system_id("pg_class"), system_id("pg_rewrite"), system_id("pg_attrdef"));
    let row = |(class, object): (i64, i64), (of_class, of, column): (i64, i64, i64), kind: &'static str| {
        vec![
            ("classid", int(class)),
            ("objid", int(object)),
            ("refclassid", int(of_class)),
            ("refobjid", int(of)),
            ("refobjsubid", int(column)),
            ("deptype", text(kind)),
        ]
    };
    let mut rows = Vec::new();
    for (id, view) in &objects.views {
        let rule = (rules, rule_id(*id));
        rows.push(row(rule, (classes, *id, 0), "i"));
        let known = objects.relations().filter(|(_, name)| view.about.contains(name));
        rows.extend(known.map(|(of, _)| row(rule, (classes, of, 0), "n")));
    }
    for table in &objects.tables {
        for (at, column) in table.visible() {
            let default = column.default.as_deref().filter(|_| column.identity.is_none());
            let Some(text) = default.or(column.generated.as_deref()) else { continue };
            let number = number(table, at);
            let default = (defaults, default_id(table, number));
            rows.push(row(default, (classes, table_id(table), number), "a"));
            let sequence =
                sequence_of(text).and_then(|name| objects.sequences.iter().find(|(_, sequence)| sequence.name == name));
            rows.extend(sequence.map(|(id, _)| row(default, (classes, *id, 0), "n")));
        }
    }
    rows
}
