//! Procedures in the relations of the system.

use super::objects::Objects;
use super::standard::yes;
use super::{DATABASE, OWNER, Row, flag, int, numbers, quoted, text, texts};
use crate::datum::OwnedDatum;
use crate::procedures::{Language, Mode, Parameter, Procedure};
use crate::types::Type;

/// The object ids of the languages.
const SQL: i64 = 14;
const PLPGSQL: i64 = 13_563;

pub(super) fn languages() -> Vec<Row> {
    let row = |(id, name, is_procedural)| {
        vec![
            ("oid", int(id)),
            ("lanname", text(name)),
            ("lanowner", int(OWNER)),
            ("lanispl", flag(is_procedural)),
            ("lanpltrusted", flag(true)),
        ]
    };
    [(SQL, "sql", false), (PLPGSQL, "plpgsql", true)].map(row).into()
}

/// A row of `pg_proc`.
pub(super) fn of_procedure(objects: &Objects, id: i64, procedure: &Procedure) -> Row {
    let oid = |of: Type| i64::from(of.oid());
    let (is_sql, has_outputs) = (procedure.language != Language::PlPgSql, procedure.outputs().next().is_some());
    let inputs: Vec<_> = procedure.inputs().map(|parameter| oid(parameter.of)).collect();
    let defaults: Vec<_> = procedure.inputs().filter_map(|parameter| parameter.default.as_deref()).collect();
    let mut row = vec![
        ("oid", int(id)),
        ("proname", text(procedure.name.plain())),
        ("pronamespace", int(objects.schema_of(&procedure.name))),
        ("proowner", int(OWNER)),
        ("prolang", int(if is_sql { SQL } else { PLPGSQL })),
        ("prokind", text("p")),
        ("provolatile", text("v")),
        ("proparallel", text("u")),
        ("pronargs", int(inputs.len() as i64)),
        ("pronargdefaults", int(defaults.len() as i64)),
        // `record`, or `void`.
        ("prorettype", int(if has_outputs { 2249 } else { 2278 })),
        ("proargtypes", numbers(0, inputs)),
    ];
    let parameters = &procedure.parameters;
    if has_outputs {
        let mode = |parameter: &Parameter| match parameter.mode {
            Mode::In => "i",
            Mode::Out => "o",
            Mode::InOut => "b",
        };
        row.push(("proallargtypes", numbers(1, parameters.iter().map(|parameter| oid(parameter.of)))));
        row.push(("proargmodes", texts(parameters.iter().map(mode))));
    }
    if parameters.iter().any(|parameter| parameter.name.is_some()) {
        row.push(("proargnames", texts(parameters.iter().map(|it| it.name.as_deref().unwrap_or_default()))));
    }
    if !defaults.is_empty() {
        row.push(("proargdefaults", text(defaults.join(", "))));
    }
    let is_atomic = procedure.language == Language::Atomic;
    let body = text(procedure.body.as_str());
    row.push(("prosrc", if is_atomic { text("") } else { body.clone() }));
    row.push(("prosqlbody", if is_atomic { body } else { OwnedDatum::NULL }));
    row
}

/// The parameters of a procedure, as its definition has them.
pub(super) fn parameters(procedure: &Procedure, has_defaults: bool) -> String {
    let in_words = |parameter: &Parameter| {
        let mode = match parameter.mode {
            Mode::In => "IN",
            Mode::Out => "OUT",
            Mode::InOut => "INOUT",
        };
        let name = parameter.name.as_deref().map(|name| format!("{} ", quoted(name))).unwrap_or_default();
        let default = parameter.default.as_deref().filter(|_| has_defaults);
        let default = default.map(|default| format!(" DEFAULT {default}")).unwrap_or_default();
        format!("{mode} {name}{}{default}", parameter.of)
    };
    procedure.parameters.iter().map(in_words).collect::<Vec<_>>().join(", ")
}

/// A row of `information_schema.routines`.
pub(super) fn standard_routine(id: i64, procedure: &Procedure) -> Row {
    let is_sql = procedure.language != Language::PlPgSql;
    let is_atomic = procedure.language == Language::Atomic;
    vec![
        ("specific_catalog", text(DATABASE)),
        ("specific_schema", text(procedure.name.schema())),
        ("specific_name", text(format!("{}_{id}", procedure.name))),
        ("routine_catalog", text(DATABASE)),
        ("routine_schema", text(procedure.name.schema())),
        ("routine_name", text(procedure.name.plain())),
        ("routine_type", text("PROCEDURE")),
        ("routine_body", text(if is_sql { "SQL" } else { "EXTERNAL" })),
        ("routine_definition", if is_atomic { OwnedDatum::NULL } else { text(procedure.body.as_str()) }),
        ("external_language", text(procedure.language.name().to_uppercase())),
        ("parameter_style", text("GENERAL")),
        ("is_deterministic", yes(false)),
        ("sql_data_access", text("MODIFIES")),
        ("schema_level_routine", yes(true)),
        ("max_dynamic_result_sets", int(0)),
        ("security_type", text("INVOKER")),
        ("as_locator", yes(false)),
        ("is_udt_dependent", yes(false)),
    ]
}
