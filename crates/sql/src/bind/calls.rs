//! Calls of functions, aggregates and window functions.

use sqlparser::ast;

use super::aggregates::aggregate_kind;
use super::expressions::{fold_array, shown};
use super::windows::window_function;
use super::{Binder, Written};
use crate::asked::Asked;
use crate::casts::{Cast, Place};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::types::{Bound, ColumnType, Type};

/// A call as it is written.
pub(super) struct Call<'e> {
    pub(super) name: &'e str,
    pub(super) arguments: &'e [&'e ast::Expr],
    pub(super) is_distinct: bool,
    pub(super) filter: Option<&'e ast::Expr>,
    /// ORDER BY among the arguments, or WITHIN GROUP.
    pub(super) order: &'e [ast::OrderByExpr],
    pub(super) is_within_group: bool,
}

impl Binder<'_> {
    pub(super) fn function(&mut self, function: &ast::Function) -> Result<Typed, SqlError> {
        let name = function_name(&function.name)?;
        let unsupported = || SqlError::unsupported(format!("the expression {function}"));
        if function.null_treatment.is_some() || !matches!(function.parameters, ast::FunctionArguments::None) {
            return Err(unsupported());
        }
        let (list, is_distinct, clauses) = match &function.args {
            ast::FunctionArguments::None => (&[][..], false, &[][..]),
            ast::FunctionArguments::List(list) => {
                let is_distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
                (&list.args[..], is_distinct, &list.clauses[..])
            }
            ast::FunctionArguments::Subquery(query) if name == "array" => return self.array_of(query),
            ast::FunctionArguments::Subquery(_) => return Err(unsupported()),
        };
        let order = match clauses {
            [] => &function.within_group[..],
            [ast::FunctionArgumentClause::OrderBy(order)] if function.within_group.is_empty() => order,
            _ => return Err(unsupported()),
        };
        let is_star = matches!(list, [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)]);
        if name == "make_interval" && !list.iter().all(|it| matches!(it, ast::FunctionArg::Unnamed(_))) {
            return self.span_of_parts(list);
        }
        let mut expressions = Vec::new();
        let whole: Vec<_> = list.iter().map(whole_row).collect();
        for (argument, whole) in list.iter().zip(&whole).filter(|_| !is_star) {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => expressions.push(expr),
                _ if let Some(row) = whole => expressions.push(row),
                other => return Err(SqlError::unsupported(format!("the argument {other}"))),
            }
        }
        let call = Call {
            name: &name,
            arguments: &expressions,
            is_distinct,
            filter: function.filter.as_deref(),
            order,
            is_within_group: !function.within_group.is_empty(),
        };
        let wrong = |message: String| Err(SqlError::new(SqlState("42809"), message));
        match (&function.over, aggregate_kind(&name, is_star), window_function(&name)) {
            (None, Some(kind), _) => self.aggregate(kind, &call),
            (Some(over), Some(kind), _) => self.window_aggregate(kind, &call, over),
            (Some(over), None, Some(function)) => self.window_call(function, &call, over),
            (None, None, Some(_)) => wrong(format!("window function {name} requires an OVER clause")),
            (Some(_), None, None) => {
                wrong(format!("OVER specified, but {name} is not a window function nor an aggregate function"))
            }
            (None, None, None) if is_star || is_distinct || call.filter.is_some() || !order.is_empty() => {
                Err(of_aggregates(&call, is_star))
            }
            (None, None, None) => {
                if let Some(columns) = functions::columns_of(&name) {
                    return self.set_call(&name, &expressions, columns);
                }
                if let Some(found) = self.sequence_function(&name, &expressions)? {
                    return Ok(found);
                }
                let arguments = expressions.iter().map(|it| self.expr(it)).collect::<Result<Vec<_>, _>>()?;
                self.plain_call(&name, arguments)
            }
        }
    }

    /// `make_interval` with names of its parts. Those that are not said are 0.
    fn span_of_parts(&mut self, list: &[ast::FunctionArg]) -> Result<Typed, SqlError> {
        let names = functions::PARTS_OF_SPAN;
        let mut parts: [Option<Typed>; 7] = Default::default();
        let (mut words, mut is_known, mut has_names) = (Vec::new(), true, false);
        for (at, argument) in list.iter().enumerate() {
            let (at, expr, word) = match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(_)) if has_names => {
                    let message = "positional argument cannot follow named argument";
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => (Some(at), expr, String::new()),
                ast::FunctionArg::ExprNamed {
                    name: ast::Expr::Identifier(name),
                    arg: ast::FunctionArgExpr::Expr(expr),
                    ..
                }
                | ast::FunctionArg::Named { name, arg: ast::FunctionArgExpr::Expr(expr), .. } => {
                    has_names = true;
                    let name = super::folded(name);
                    (names.iter().position(|own| *own == name), expr, format!("{name} => "))
                }
                other => return Err(SqlError::unsupported(format!("the argument {other}"))),
            };
            let part = self.expr(expr)?;
            words.push(format!("{word}{}", part.base()));
            match at.and_then(|at| parts.get_mut(at)) {
                Some(free @ None) => *free = Some(part),
                _ => is_known = false,
            }
        }
        if !is_known {
            let message = format!("function make_interval({}) does not exist", words.join(", "));
            return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
        }
        let zero = || super::literals::constant(Datum::Int(0), Type::Int4);
        let parts = parts.into_iter().map(|part| part.unwrap_or_else(zero)).collect();
        self.call("make_interval", parts)
    }

    /// A function that gives several rows, in the list of a SELECT.
    fn set_call(
        &mut self,
        name: &str,
        expressions: &[&ast::Expr],
        columns: &[(&'static str, Option<Type>)],
    ) -> Result<Typed, SqlError> {
        let refused = |message: String| Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        let Some(behind) = &self.behind else {
            return refused(match self.place {
                super::aggregates::NESTED => {
                    "aggregate function calls cannot contain set-returning function calls".to_owned()
                }
                super::windows::NESTED => {
                    "window function calls cannot contain set-returning function calls".to_owned()
                }
                place => format!("set-returning functions are not allowed in {place}"),
            });
        };
        let before = behind.sets.len();
        let arguments = expressions.iter().map(|it| self.expr(it)).collect::<Result<Vec<_>, _>>()?;
        let mut call = self.plain_call(name, arguments)?;
        if columns.len() > 1 {
            call = self.rows_of_call(call, columns);
        }
        let Some(behind) = &mut self.behind else { return Err(SqlError::unsupported(name)) };
        if behind.sets.len() > before {
            return Err(SqlError::unsupported(format!("a function of several rows within {name}")));
        }
        let at = behind.sets.iter().position(|own| own.is_same(&call.expr)).unwrap_or_else(|| {
            behind.sets.push(call.expr);
            behind.sets.len() - 1
        });
        Ok(Typed { expr: Expr::Set(at), of: call.of })
    }

    /// The definition of a constraint, an index or a view, or the parameters of a procedure, in words; pretty where the last argument says so.
    fn definition(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let is_pretty = arguments.len() > 1
            && arguments.last().is_some_and(
                |it| matches!(&it.expr, Expr::Constant(value) if matches!(value.get(), Datum::Bool(true))),
            );
        let mut arguments = arguments.into_iter();
        let Some(first) = arguments.next() else {
            return Err(functions::no_function(name, &[], functions::Unresolved::None));
        };
        let is_name = matches!(first.base(), Type::Unknown | Type::Text);
        let first = if is_name { self.cast(first, Type::Regclass.into(), Place::Explicit)? } else { first };
        let mut of = self.cast(first, Type::Oid.into(), Place::Implicit)?;
        let names = self.names(match (name, is_pretty) {
            ("pg_get_viewdef", _) => "pg_get_viewdef",
            ("pg_get_function_arguments", _) => "pg_get_function_arguments",
            ("pg_get_function_identity_arguments", _) => "pg_get_function_identity_arguments",
            ("pg_get_indexdef", false) => "pg_get_indexdef",
            ("pg_get_indexdef", true) => "pg_get_indexdef_pretty",
            (_, false) => "pg_get_constraintdef",
            (_, true) => "pg_get_constraintdef_pretty",
        })?;
        if name == "pg_get_indexdef" {
            let big = |number| super::literals::constant(Datum::Int(number), Type::Int8);
            let column = match arguments.next() {
                Some(column) => self.cast(column, Type::Int8.into(), Place::Implicit)?,
                None => big(0),
            };
            let index = Typed::new(of.expr, Type::Int8);
            let index = self.apply("*", vec![index, big(super::system::COLUMNS_OF_INDEX)])?;
            of = self.apply("+", vec![index, column])?;
        }
        Ok(Typed::new(Expr::Lookup { names, of: Box::new(of.expr) }, Type::Text))
    }

    /// A function of any number of texts: values are shown as text.
    fn of_texts(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        if arguments.is_empty() {
            return Err(functions::no_function(name, &[], functions::Unresolved::None));
        }
        let mut rest = arguments.into_iter();
        let mut made = Vec::new();
        if matches!(name, "concat_ws" | "format") {
            let Some(first) = rest.next() else {
                return Err(functions::no_function(name, &[], functions::Unresolved::None));
            };
            made.push(self.cast(first, Type::Text.into(), Place::Implicit)?);
        }
        let mut parts = Vec::new();
        for part in rest {
            parts.push(shown(self.known(part)?));
        }
        made.push(Typed::new(fold_array(parts.into(), false), Type::Texts));
        self.call(name, made)
    }

    /// The name of the session's role. Under another role statements are bound anew.
    fn user(&mut self, function: &str) -> Typed {
        self.is_mutable = true;
        let user = &self.catalog.path.user;
        let (_, name) = if function == "session_user" { &user.session } else { &user.current };
        Typed::new(Expr::Constant(OwnedDatum::Text(name.as_str().into())), Type::Text)
    }

    pub(super) fn plain_call(&mut self, name: &str, mut arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        match name {
            "current_user" | "current_role" | "user" | "session_user" if arguments.is_empty() => Ok(self.user(name)),
            "coalesce" => {
                let (parts, of) = self.alike("COALESCE", arguments)?;
                Ok(Typed::new(Expr::Coalesce(parts.into()), of))
            }
            "greatest" | "least" => {
                let is_greatest = name == "greatest";
                let (parts, of) = self.alike(if is_greatest { "GREATEST" } else { "LEAST" }, arguments)?;
                Ok(Typed::new(Expr::Extreme { is_greatest, of: parts.into() }, of))
            }
            "nullif" if arguments.len() == 2 => self.null_if(arguments),
            "concat" | "concat_ws" | "format" | "num_nulls" | "num_nonnulls" => self.of_texts(name, arguments),
            "pow" => self.call("power", arguments),
            "array_to_string"
                if arguments.first().is_some_and(|it| it.base().element().is_some_and(|it| it != Type::Text)) =>
            {
                Self::show_items(&mut arguments);
                self.call(name, arguments)
            }
            _ if is_variadic(name) => self.variadic(name, arguments),
            _ if functions::is_of_rights(name) => self.call_of_rights(name, arguments),
            "pg_backend_pid" if arguments.is_empty() => Ok(self.own_number()),
            "pg_cancel_backend" | "pg_terminate_backend" if matches!(arguments.len(), 1) => {
                self.deed(name == "pg_terminate_backend", arguments.remove(0))
            }
            "pg_get_constraintdef"
            | "pg_get_indexdef"
            | "pg_get_viewdef"
            | "pg_get_function_arguments"
            | "pg_get_function_identity_arguments" => self.definition(name, arguments),
            "acldefault"
            | "pg_get_serial_sequence"
            | "to_regclass"
            | "to_regtype"
            | "pg_table_is_visible"
            | "pg_get_userbyid"
            | "pg_typeof"
            | "pg_type_is_visible"
            | "format_type"
            | "obj_description"
            | "col_description"
            | "current_schema"
            | "current_schemas" => self.call_of_names(name, arguments),
            "current_setting" => self.current_setting(arguments),
            "pg_relation_size" | "pg_total_relation_size" | "pg_table_size" | "pg_indexes_size" => {
                Ok(super::literals::constant(Datum::Int(0), Type::Int8))
            }
            "enum_first" | "enum_last" | "enum_range" if !arguments.is_empty() => self.enum_function(name, arguments),
            "uuid_generate_v4" if arguments.is_empty() => self.call("gen_random_uuid", arguments),
            "current_timestamp" | "current_date" | "localtimestamp" | "localtime" => self.clock_time(name, arguments),
            _ => match Asked::named(name) {
                Some(asked) => self.question(asked, arguments),
                None if let (1, Some(of)) = (arguments.len(), type_called(name)) => {
                    self.cast(arguments.remove(0), of.into(), Place::Explicit)
                }
                None => self.call(name, arguments),
            },
        }
    }

    /// The first argument, an array, with its items as texts.
    fn show_items(arguments: &mut Vec<Typed>) {
        let of = arguments[0].base().element().unwrap_or(Type::Text);
        let array = arguments.remove(0);
        let shown = Expr::Cast(Cast::ShowItems(of), Box::new(array.expr));
        arguments.insert(0, Typed::new(shown, Type::Texts));
    }

    fn null_if(&mut self, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let of = arguments[0].of;
        let mut sides = self.compared("=", arguments)?.1.into_vec();
        let (second, first) = (sides.pop().unwrap_or(Expr::NULL), sides.pop().unwrap_or(Expr::NULL));
        let of = if of.base == Type::Unknown { Type::Text.into() } else { of };
        Ok(Typed::new(Expr::NullIf(Box::new((first, second))), of))
    }

    /// What the clock says, as the standard names it.
    fn clock_time(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let of = match name {
            "current_date" => Type::Date,
            "localtimestamp" => Type::Timestamp,
            "localtime" => Type::Time,
            _ => Type::Timestamptz,
        };
        let digits = match &arguments[..] {
            [Typed { expr: Expr::Constant(value), .. }] if of != Type::Date => match value.get() {
                Datum::Int(digits) => u64::try_from(digits).ok(),
                _ => None,
            },
            _ => None,
        };
        let (now, bound) = match digits {
            Some(digits) => (self.call("now", Vec::new())?, super::types::seconds(of, Some(digits)).bound),
            None => (self.call("now", arguments)?, Bound::None),
        };
        self.cast(now, ColumnType { base: of, bound }, Place::Explicit)
    }
}

/// Whether a function makes JSON of values of any type, or of any number of them.
fn is_variadic(name: &str) -> bool {
    let ends = ["_build_array", "_build_object", "_extract_path", "_extract_path_text"];
    let of_many = name.strip_prefix("jsonb").or_else(|| name.strip_prefix("json"));
    matches!(name, "to_json" | "to_jsonb" | "row_to_json" | "array_to_json")
        || of_many.is_some_and(|end| ends.contains(&end))
}

/// The name of the table whose row an argument is: `t.*`.
fn whole_row(argument: &ast::FunctionArg) -> Option<ast::Expr> {
    let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::QualifiedWildcard(name)) = argument else { return None };
    match &name.0[..] {
        [table] => table.as_ident().cloned().map(ast::Expr::Identifier),
        _ => None,
    }
}

/// The type that is called as a function, which casts to it.
fn type_called(name: &str) -> Option<Type> {
    Some(match name {
        _ if !functions::named(name).is_empty() => return None,
        "bool" => Type::Bool,
        "int2" => Type::Int2,
        "int4" => Type::Int4,
        "int8" => Type::Int8,
        "float4" => Type::Float4,
        "float8" => Type::Float8,
        "text" => Type::Text,
        "date" => Type::Date,
        "timestamptz" => Type::Timestamptz,
        "uuid" => Type::Uuid,
        "json" => Type::Json,
        "jsonb" => Type::Jsonb,
        _ => return None,
    })
}

/// That a function is called as only an aggregate may be.
fn of_aggregates(call: &Call<'_>, is_star: bool) -> SqlError {
    let name = call.name;
    let clause = match () {
        () if is_star => return functions::no_function(name, &[], functions::Unresolved::None),
        () if call.is_within_group => "WITHIN GROUP",
        () if call.is_distinct => "DISTINCT",
        () if !call.order.is_empty() => "ORDER BY",
        () => "FILTER",
    };
    SqlError::new(SqlState("42809"), format!("{clause} specified, but {name} is not an aggregate function"))
}

/// The name of a function, which may be that of the schema `pg_catalog`.
pub(super) fn function_name(name: &ast::ObjectName) -> Result<String, SqlError> {
    let written = Written::of(name)?;
    match written.schema.as_deref() {
        None | Some("public" | "pg_catalog") => Ok(written.name),
        // The one function of this schema goes by both names.
        Some("information_schema") if written.name == "_pg_expandarray" => {
            Ok("information_schema._pg_expandarray".to_owned())
        }
        Some(schema) => Err(SqlError::unsupported(format!("the function {schema}.{}", written.name))),
    }
}
