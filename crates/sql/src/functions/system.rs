//! What clients ask of the system.

use super::{Function, functions};
use crate::arrays::Array;
use crate::bind::{DATABASE, ROLE};
use crate::datum::Datum;
use crate::error::SqlError;
use crate::types::{Bound, ColumnType, Type};

/// The words of PostgreSQL's grammar: what each is, and whether it names a column without AS.
const KEYWORDS: &str = include_str!("keywords.txt");

fn int(datum: Datum<'_>) -> i64 {
    if let Datum::Int(value) = datum { value } else { unreachable!("an integer") }
}

/// The name of a type with its modifier, as `format_type` gives it.
fn type_in_words(id: i64, modifier: i64) -> String {
    let Some(base) = Type::known().find(|of| i64::from(of.oid()) == id) else {
        return if id == 0 { "-".to_owned() } else { "???".to_owned() };
    };
    ColumnType { base, bound: Bound::of_modifier(base, modifier) }.to_string()
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "current_schemas"(Bool) -> Texts = |it, context| {
        let all = [Datum::Text("pg_catalog"), Datum::Text("public")];
        let skipped = usize::from(!matches!(it[0], Datum::Bool(true)));
        Ok(Array::list(context.arena, &all[skipped..]))
    };
    "current_schema"() -> Text = |_, _| Ok(Datum::Text("public"));
    "current_database"() -> Text = |_, _| Ok(Datum::Text(DATABASE));
    "current_catalog"() -> Text = |_, _| Ok(Datum::Text(DATABASE));
    "current_user"() -> Text = |_, _| Ok(Datum::Text(ROLE));
    "current_role"() -> Text = |_, _| Ok(Datum::Text(ROLE));
    "session_user"() -> Text = |_, _| Ok(Datum::Text(ROLE));
    "user"() -> Text = |_, _| Ok(Datum::Text(ROLE));
    "version"() -> Text = |_, _| Ok(Datum::Text(concat!("PostgreSQL 15.0 (Polychron ", env!("CARGO_PKG_VERSION"), ")")));
    "pg_get_userbyid"(Oid) -> Text = |it, context| {
        if int(it[0]) == 10 { return Ok(Datum::Text(ROLE)) }
        Ok(Datum::Text(context.arena.alloc_str(&format!("unknown (OID={})", int(it[0])))))
    };
    "pg_encoding_to_char"(Int4) -> Text = |it, _| Ok(Datum::Text(if int(it[0]) == 6 { "UTF8" } else { "" }));
    "pg_char_to_encoding"(Text) -> Int4 = |it, _| {
        let is_known = matches!(it[0], Datum::Text(name) if name.eq_ignore_ascii_case("utf8"));
        Ok(Datum::Int(if is_known { 6 } else { -1 }))
    };
    "pg_get_expr"(Text, Oid) -> Text = |it, _| Ok(it[0]);
    "pg_get_expr"(Text, Oid, Bool) -> Text = |it, _| Ok(it[0]);
    "pg_table_is_visible"(Oid) -> Bool = |_, _| Ok(Datum::Bool(true));
    "pg_type_is_visible"(Oid) -> Bool = |_, _| Ok(Datum::Bool(true));
    "pg_function_is_visible"(Oid) -> Bool = |_, _| Ok(Datum::Bool(true));
    "pg_operator_is_visible"(Oid) -> Bool = |_, _| Ok(Datum::Bool(true));
    "pg_opclass_is_visible"(Oid) -> Bool = |_, _| Ok(Datum::Bool(true));
    "pg_collation_is_visible"(Oid) -> Bool = |_, _| Ok(Datum::Bool(true));
    "pg_tablespace_location"(Oid) -> Text = |_, _| Ok(Datum::Text(""));
    "pg_relation_is_publishable"(Oid) -> Bool = |_, _| Ok(Datum::Bool(true));
    "pg_is_in_recovery"() -> Bool = |_, _| Ok(Datum::Bool(false));
    "pg_is_other_temp_schema"(Oid) -> Bool = |_, _| Ok(Datum::Bool(false));
    "pg_my_temp_schema"() -> Oid = |_, _| Ok(Datum::Int(0));
    "pg_partition_ancestors"(Oid) -> Oid = |_, context| Ok(Array::list(context.arena, &[]));
    // The owner comes with its name.
    "acldefault"(Text, Text) -> Texts = |it, context| {
        let (Datum::Text(kind), Datum::Text(owner)) = (it[0], it[1]) else { return Ok(Datum::Null) };
        let (everybody, own) = match kind {
            "c" => return Ok(Array::list(context.arena, &[])),
            "r" => ("", "arwdDxt"),
            "s" => ("", "rwU"),
            "d" => ("Tc", "CTc"),
            "f" => ("X", "X"),
            "l" | "T" => ("U", "U"),
            "L" => ("", "rw"),
            "n" => ("", "UC"),
            "t" => ("", "C"),
            "F" | "S" => ("", "U"),
            "p" => ("", "sA"),
            other => return Err(SqlError::internal(format!("unrecognized object type abbreviation: {other}"))),
        };
        let owner = crate::bind::quoted(owner);
        let mut items = Vec::new();
        if !everybody.is_empty() {
            items.push(format!("={everybody}/{owner}"));
        }
        items.push(format!("{owner}={own}/{owner}"));
        let items: Vec<_> = items.iter().map(|item| Datum::Text(item)).collect();
        Ok(Array::list(context.arena, &items))
    };
    "pg_get_keywords"() -> Text = |_, context| {
        let mut items = Vec::new();
        for line in KEYWORDS.lines() {
            let mut words = line.split(' ');
            let (word, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let is_label = words.next() == Some("t");
            let said = match kind {
                "R" => "reserved",
                "T" => "reserved (can be function or type name)",
                "C" => "unreserved (cannot be function or type name)",
                _ => "unreserved",
            };
            let label = if is_label { "can be bare label" } else { "requires AS" };
            items.extend([Datum::Text(word), Datum::Text(kind), Datum::Bool(is_label)]);
            items.extend([Datum::Text(said), Datum::Text(label)]);
        }
        Ok(Array::list(context.arena, &items))
    };
    "pg_options_to_table"(Texts) -> Text = |it, context| {
        let Datum::Array(options) = it[0] else { return Ok(Datum::Null) };
        let pairs = options.items().flat_map(|option| match option {
            Datum::Text(option) => option
                .split_once('=')
                .map_or([Datum::Text(option), Datum::Null], |(name, value)| [Datum::Text(name), Datum::Text(value)]),
            _ => [Datum::Null; 2],
        });
        Ok(Array::list(context.arena, &pairs.collect::<Vec<_>>()))
    };
    "pg_size_pretty"(Int8) -> Text = |it, context| {
        let (mut size, mut unit) = (int(it[0]) as f64, 0);
        let units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
        while size.abs() >= 10_240.0 && unit + 1 < units.len() {
            (size, unit) = (size / 1024.0, unit + 1);
        }
        Ok(Datum::Text(context.arena.alloc_str(&format!("{size:.0} {}", units[unit]))))
    };
};

/// Those that are called with NULL, too.
pub(super) const LENIENT: &[Function] = functions! {
    "format_type"(Oid, Int4) -> Text = |it, context| match (it[0], it[1]) {
        (Datum::Int(id), modifier) => {
            let modifier = if let Datum::Int(modifier) = modifier { modifier } else { -1 };
            Ok(Datum::Text(context.arena.alloc_str(&type_in_words(id, modifier))))
        }
        _ => Ok(Datum::Null),
    };
    "obj_description"(Oid) -> Text = |_, _| Ok(Datum::Null);
    "obj_description"(Oid, Text) -> Text = |_, _| Ok(Datum::Null);
    "shobj_description"(Oid, Text) -> Text = |_, _| Ok(Datum::Null);
    "col_description"(Oid, Int4) -> Text = |_, _| Ok(Datum::Null);
    "pg_get_triggerdef"(Oid) -> Text = |_, _| Ok(Datum::Null);
    "pg_get_triggerdef"(Oid, Bool) -> Text = |_, _| Ok(Datum::Null);
    "pg_get_ruledef"(Oid, Bool) -> Text = |_, _| Ok(Datum::Null);
    "pg_get_statisticsobjdef_columns"(Oid) -> Text = |_, _| Ok(Datum::Null);
    "pg_get_partkeydef"(Oid) -> Text = |_, _| Ok(Datum::Null);
    "pg_get_function_result"(Oid) -> Text = |_, _| Ok(Datum::Null);
    "pg_get_function_arguments"(Oid) -> Text = |_, _| Ok(Datum::Null);
    "pg_get_function_identity_arguments"(Oid) -> Text = |_, _| Ok(Datum::Null);
    "pg_get_functiondef"(Oid) -> Text = |_, _| Ok(Datum::Null);
};

/// Whether a function asks whether somebody may do something, which the only role may.
pub(crate) fn is_of_rights(name: &str) -> bool {
    name == "pg_has_role" || name.starts_with("has_") && name.ends_with("_privilege")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_shown_with_their_modifiers() {
        assert_eq!(type_in_words(1043, 24), "character varying(20)");
        assert_eq!(type_in_words(1700, (10 << 16 | 2) + 4), "numeric(10,2)");
        assert_eq!(type_in_words(1007, -1), "integer[]");
        assert_eq!(type_in_words(1, -1), "???");
    }
}
