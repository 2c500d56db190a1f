//! Queries.

use crate::draw::Draw;
use crate::expressions::{Scope, Writer};
use crate::kinds::Kind::{self, *};
use crate::schema::Schema;

/// A query, and whether its rows have an order.
pub fn query(draw: &mut Draw, schema: &Schema) -> (String, bool) {
    let mut writer = Writer::new(draw, schema, 30);
    match writer.draw.below(12) {
        0 => (constants(&mut writer), false),
        1..=3 => grouped(&mut writer),
        4 => sets(&mut writer),
        5 | 6 => windowed(&mut writer),
        _ => plain(&mut writer),
    }
}

/// Expressions of literals: whatever fails in one of them fails the query.
pub(crate) fn constants(writer: &mut Writer<'_>) -> String {
    writer.rarity = 5;
    let kind = writer.kind();
    let depth = writer.draw.within(1, 3);
    format!("SELECT {}", writer.of(kind, &Scope::default(), depth))
}

/// A FROM and its columns.
fn from(writer: &mut Writer<'_>) -> (String, Scope) {
    let (mut text, mut scope, _) = writer.inner_scope(&Scope::default()).expect("there are tables");
    for _ in 0..[0, 0, 0, 1, 1, 2][writer.draw.below(6)] {
        let (next, own) = if writer.draw.once_in(5) { derived(writer) } else { table(writer) };
        let mut both = scope.clone();
        both.columns.extend(own.columns);
        let join = writer.draw.word(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", ",", "CROSS JOIN"]);
        text = match join {
            "," | "CROSS JOIN" => format!("{text} CROSS JOIN {next}"),
            // PostgreSQL joins fully where the condition is one that it can sort or hash by alone.
            "FULL JOIN" => format!("{text} FULL JOIN {next} ON {}", equality(writer, &scope, &both)),
            _ if writer.draw.once_in(3) => {
                format!(
                    "{text} {join} {next} ON {} AND {}",
                    equality(writer, &scope, &both),
                    writer.condition(&both, 1)
                )
            }
            _ => format!("{text} {join} {next} ON {}", equality(writer, &scope, &both)),
        };
        scope = both;
    }
    (text, scope)
}

fn table(writer: &mut Writer<'_>) -> (String, Scope) {
    let (text, own, _) = writer.inner_scope(&Scope::default()).expect("there are tables");
    (text, own)
}

/// A subquery of a FROM.
fn derived(writer: &mut Writer<'_>) -> (String, Scope) {
    let (text, own) = table(writer);
    let columns = writer.draw.some(&own.columns, 2);
    let condition = writer.condition(&own, 1);
    let (alias, distinct) = (writer.alias(), writer.draw.word(&["", "DISTINCT "]));
    let names: Vec<_> = columns.iter().map(|(name, _)| &**name).collect();
    let own = columns.iter().enumerate().map(|(at, (_, kind))| (format!("{alias}.y{at}"), *kind)).collect();
    let outputs: Vec<_> = (0..names.len()).map(|at| format!("y{at}")).collect();
    let text = format!(
        "(SELECT {distinct}{} FROM {text} WHERE {condition}) AS {alias}({})",
        names.join(", "),
        outputs.join(", ")
    );
    (text, Scope { columns: own })
}

/// A column of the left side that equals one of the right side, where two are of one type.
fn equality(writer: &mut Writer<'_>, left: &Scope, both: &Scope) -> String {
    let right = &both.columns[left.columns.len()..];
    let pairs: Vec<_> = left
        .columns
        .iter()
        .flat_map(|one| {
            right.iter().filter(|other| other.1 == one.1).map(move |other| format!("{} = {}", one.0, other.0))
        })
        .collect();
    if pairs.is_empty() {
        return format!("{}::text = {}::text", left.columns[0].0, right[0].0);
    }
    writer.draw.one(&pairs).clone()
}

/// Values of a query; where one of several equal ones is chosen, those that look alike.
fn outputs(writer: &mut Writer<'_>, scope: &Scope, is_choosing: bool) -> Vec<String> {
    let count = writer.draw.within(1, 3);
    let mut output = || {
        let kind = writer.kind_of(scope);
        let depth = writer.draw.within(0, 2);
        let text = writer.of(kind, scope, depth);
        if is_choosing && kind.has_looks() { format!("({text})::text") } else { text }
    };
    (0..count).map(|_| output()).collect()
}

fn ordering(draw: &mut Draw, count: usize) -> String {
    let keys =
        (1..=count).map(|at| format!("{at}{}", draw.word(&["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST"])));
    format!(" ORDER BY {}", keys.collect::<Vec<_>>().join(", "))
}

/// ORDER BY, and LIMIT and OFFSET behind it.
fn tail(writer: &mut Writer<'_>, count: usize, is_choosing: bool) -> String {
    let mut text = ordering(writer.draw, count);
    if is_choosing {
        text += &format!(" LIMIT {}", writer.draw.below(6));
        if writer.draw.once_in(2) {
            text += &format!(" OFFSET {}", writer.draw.below(4));
        }
    }
    text
}

fn plain(writer: &mut Writer<'_>) -> (String, bool) {
    let (from, scope) = from(writer);
    let is_distinct = writer.draw.once_in(5);
    let is_limited = writer.draw.once_in(3);
    let outputs = outputs(writer, &scope, is_distinct || is_limited);
    let distinct = if is_distinct { "DISTINCT " } else { "" };
    let mut text = format!("SELECT {distinct}{} FROM {from}", outputs.join(", "));
    if writer.draw.below(4) > 0 {
        let depth = writer.draw.within(0, 3);
        text += &format!(" WHERE {}", writer.condition(&scope, depth));
    }
    let is_ordered = is_limited || writer.draw.once_in(3);
    if is_ordered {
        text += &tail(writer, outputs.len(), is_limited);
    }
    (text, is_ordered)
}

fn aggregate(writer: &mut Writer<'_>, scope: &Scope) -> String {
    let filter =
        if writer.draw.once_in(6) { format!(" FILTER (WHERE {})", writer.condition(scope, 1)) } else { String::new() };
    let distinct = writer.draw.word(&["", "", "", "DISTINCT "]);
    let (column, kind) = writer.draw.one(&scope.columns).clone();
    let call = match kind {
        _ if writer.draw.once_in(5) => "count(*)".to_owned(),
        Int2 | Int4 | Int8 | Numeric | Interval if writer.draw.once_in(2) => {
            // A sum over intervals at the edge is out of range.
            let name = if kind == Interval { "count" } else { writer.draw.word(&["sum", "avg"]) };
            format!("{name}({distinct}{column})")
        }
        Bool => format!("{}({column})", writer.draw.word(&["bool_and", "bool_or", "every"])),
        Bytea | Uuid | Interval | Jsonb | Ints | Texts => format!("count({distinct}{column})"),
        _ => format!("{}({distinct}{column})", writer.draw.word(&["min", "max", "count"])),
    };
    format!("{call}{filter}")
}

/// The groups of these positions: one for each value of all of them, or sets of them.
fn grouping(draw: &mut Draw, positions: &[String]) -> String {
    let all = positions.join(", ");
    match draw.below(6) {
        0 => format!("ROLLUP ({all})"),
        1 => format!("CUBE ({all})"),
        2 => format!("GROUPING SETS (({all}), ({}), ())", draw.one(positions)),
        3 => format!("{}, ROLLUP ({all})", positions[0]),
        _ => all,
    }
}

/// Window functions whose values do not depend on which of equal rows comes first.
fn windowed(writer: &mut Writer<'_>) -> (String, bool) {
    let (from, scope) = from(writer);
    let mut outputs = outputs(writer, &scope, false);
    for _ in 0..writer.draw.within(1, 2) {
        let call = window_call(writer, &scope);
        outputs.push(call);
    }
    let mut text = format!("SELECT {} FROM {from}", outputs.join(", "));
    if writer.draw.once_in(2) {
        text += &format!(" WHERE {}", writer.condition(&scope, 1));
    }
    let is_ordered = writer.draw.once_in(3);
    if is_ordered {
        text += &ordering(writer.draw, outputs.len());
    }
    (text, is_ordered)
}

fn window_call(writer: &mut Writer<'_>, scope: &Scope) -> String {
    let (part, of_part) = writer.draw.one(&scope.columns).clone();
    let part = if of_part.has_looks() { format!("{part}::text") } else { part };
    let partition = if writer.draw.once_in(2) { format!("PARTITION BY {part} ") } else { String::new() };
    // Rows that are equal in all columns are the same one, whichever comes first.
    let keys = scope.columns.iter().map(|(name, kind)| {
        let order = writer.draw.word(&["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
        if kind.has_looks() { format!("{name}::text{order}") } else { format!("{name}{order}") }
    });
    let all = keys.collect::<Vec<_>>().join(", ");
    let (column, kind) = writer.draw.one(&scope.columns).clone();
    let integers: Vec<_> = scope.columns.iter().filter(|(_, kind)| matches!(kind, Int2 | Int4)).cloned().collect();
    let summed = match kind {
        Int2 | Int4 | Int8 | Numeric => {
            let name = writer.draw.word(&["sum", "avg", "count", "min", "max"]);
            if kind.has_looks() && name != "sum" { format!("count({column})") } else { format!("{name}({column})") }
        }
        _ => format!("count({column})"),
    };
    match writer.draw.below(6) {
        0 => {
            let name = writer.draw.word(&[
                "row_number()",
                "rank()",
                "dense_rank()",
                "percent_rank()",
                "cume_dist()",
                "ntile(3)",
            ]);
            format!("{name} OVER ({partition}ORDER BY {all})")
        }
        1 => {
            let name = writer.draw.word(&["lag", "lead"]);
            format!("{name}({column}, {}) OVER ({partition}ORDER BY {all})", writer.draw.below(3))
        }
        2 => {
            let name = writer.draw.word(&["first_value({})", "last_value({})", "nth_value({}, 2)"]);
            let frame = frame(writer.draw);
            format!("{} OVER ({partition}ORDER BY {all} {frame})", name.replace("{}", &column))
        }
        3 if !integers.is_empty() => {
            let (key, _) = writer.draw.one(&integers).clone();
            let order = writer.draw.word(&["", " DESC", " NULLS FIRST"]);
            let [before, after] = [writer.draw.below(4), writer.draw.below(4)];
            format!(
                "{summed} OVER ({partition}ORDER BY {key}{order} RANGE BETWEEN {before} PRECEDING AND {after} FOLLOWING)"
            )
        }
        4 => format!("{summed} OVER ({})", partition.trim_end()),
        _ => {
            let frame = frame(writer.draw);
            format!("{summed} OVER ({partition}ORDER BY {all} {frame})")
        }
    }
}

fn frame(draw: &mut Draw) -> String {
    let unit = draw.word(&["ROWS", "GROUPS"]);
    let edges = draw.word(&[
        "UNBOUNDED PRECEDING AND CURRENT ROW",
        "1 PRECEDING AND 1 FOLLOWING",
        "CURRENT ROW AND UNBOUNDED FOLLOWING",
        "2 PRECEDING AND 1 PRECEDING",
        "1 FOLLOWING AND 3 FOLLOWING",
        "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    ]);
    let exclusion =
        draw.word(&["", "", " EXCLUDE CURRENT ROW", " EXCLUDE TIES", " EXCLUDE GROUP", " EXCLUDE NO OTHERS"]);
    format!("{unit} BETWEEN {edges}{exclusion}")
}

fn grouped(writer: &mut Writer<'_>) -> (String, bool) {
    let (from, scope) = from(writer);
    let count = writer.draw.below(3);
    let keys: Vec<_> = (0..count)
        .map(|_| {
            let kind = writer.kind_of(&scope);
            let depth = writer.draw.below(2);
            let key = writer.of(kind, &scope, depth);
            if kind.has_looks() { format!("({key})::text") } else { key }
        })
        .collect();
    let mut outputs: Vec<String> = (0..writer.draw.within(1, 2)).map(|_| aggregate(writer, &scope)).collect();
    outputs.extend(keys.iter().cloned());
    let mut text = format!("SELECT {} FROM {from}", outputs.join(", "));
    if writer.draw.once_in(2) {
        text += &format!(" WHERE {}", writer.condition(&scope, 1));
    }
    if count > 0 {
        let first = outputs.len() - count;
        let positions: Vec<_> = (first + 1..=outputs.len()).map(|at| at.to_string()).collect();
        // PostgreSQL takes constants, and keys that are written alike, for one value in all sets.
        let differ = keys.iter().enumerate().all(|(at, key)| key.contains(".c") && !keys[..at].contains(key));
        let groups = if differ { grouping(writer.draw, &positions) } else { positions.join(", ") };
        text += &format!(" GROUP BY {groups}");
    }
    if writer.draw.once_in(4) {
        text += &format!(" HAVING count(*) {} {}", writer.draw.word(&[">", "=", "<>"]), writer.draw.below(4));
    }
    let is_ordered = writer.draw.once_in(2);
    if is_ordered {
        text += &tail(writer, outputs.len(), false);
    }
    (text, is_ordered)
}

fn sets(writer: &mut Writer<'_>) -> (String, bool) {
    let kinds: Vec<Kind> = (0..writer.draw.within(1, 2)).map(|_| writer.kind()).collect();
    let count = writer.draw.within(2, 3);
    let mut text = String::new();
    for at in 0..count {
        let (from, scope) = table(writer);
        let outputs: Vec<_> = kinds
            .iter()
            .map(|&kind| {
                let output = writer.of(kind, &scope, 1);
                if kind.has_looks() { format!("({output})::text") } else { output }
            })
            .collect();
        if at > 0 {
            text += writer.draw.word(&[
                " UNION ",
                " UNION ALL ",
                " INTERSECT ",
                " EXCEPT ",
                " INTERSECT ALL ",
                " EXCEPT ALL ",
            ]);
        }
        text += &format!("SELECT {} FROM {from} WHERE {}", outputs.join(", "), writer.condition(&scope, 1));
    }
    let is_ordered = writer.draw.once_in(2);
    if is_ordered {
        let is_limited = writer.draw.once_in(2);
        text += &tail(writer, kinds.len(), is_limited);
    }
    (text, is_ordered)
}
