//! RAISE: conditions by their names, as the appendix "PostgreSQL Error Codes" of the manual lists them, and codes that a program makes.

use std::sync::{Mutex, PoisonError};

use sqlparser::ast;

use super::lexemes::Lexeme;
use super::parse::Parser;
use super::statements::{Kind, Level, Raise, RaiseOption};
use crate::error::{SqlError, SqlState};

/// Names of conditions with their codes.
const CONDITIONS: &[(&str, &str)] = &[
    ("warning", "01000"),
    ("no_data", "02000"),
    ("feature_not_supported", "0A000"),
    ("invalid_transaction_initiation", "0B000"),
    ("case_not_found", "20000"),
    ("cardinality_violation", "21000"),
    ("data_exception", "22000"),
    ("string_data_right_truncation", "22001"),
    ("numeric_value_out_of_range", "22003"),
    ("null_value_not_allowed", "22004"),
    ("error_in_assignment", "22005"),
    ("invalid_datetime_format", "22007"),
    ("datetime_field_overflow", "22008"),
    ("substring_error", "22011"),
    ("division_by_zero", "22012"),
    ("invalid_parameter_value", "22023"),
    ("invalid_escape_sequence", "22025"),
    ("string_data_length_mismatch", "22026"),
    ("array_subscript_error", "2202E"),
    ("invalid_text_representation", "22P02"),
    ("integrity_constraint_violation", "23000"),
    ("restrict_violation", "23001"),
    ("not_null_violation", "23502"),
    ("foreign_key_violation", "23503"),
    ("unique_violation", "23505"),
    ("check_violation", "23514"),
    ("exclusion_violation", "23P01"),
    ("invalid_cursor_state", "24000"),
    ("invalid_transaction_state", "25000"),
    ("read_only_sql_transaction", "25006"),
    ("invalid_authorization_specification", "28000"),
    ("dependent_objects_still_exist", "2BP01"),
    ("invalid_schema_name", "3F000"),
    ("transaction_rollback", "40000"),
    ("serialization_failure", "40001"),
    ("transaction_integrity_constraint_violation", "40002"),
    ("statement_completion_unknown", "40003"),
    ("deadlock_detected", "40P01"),
    ("syntax_error_or_access_rule_violation", "42000"),
    ("insufficient_privilege", "42501"),
    ("syntax_error", "42601"),
    ("invalid_name", "42602"),
    ("duplicate_column", "42701"),
    ("ambiguous_column", "42702"),
    ("undefined_column", "42703"),
    ("undefined_object", "42704"),
    ("duplicate_object", "42710"),
    ("duplicate_function", "42723"),
    ("grouping_error", "42803"),
    ("datatype_mismatch", "42804"),
    ("wrong_object_type", "42809"),
    ("invalid_foreign_key", "42830"),
    ("cannot_coerce", "42846"),
    ("undefined_function", "42883"),
    ("undefined_table", "42P01"),
    ("undefined_parameter", "42P02"),
    ("duplicate_table", "42P07"),
    ("invalid_function_definition", "42P13"),
    ("invalid_table_definition", "42P16"),
    ("indeterminate_datatype", "42P18"),
    ("with_check_option_violation", "44000"),
    ("insufficient_resources", "53000"),
    ("disk_full", "53100"),
    ("out_of_memory", "53200"),
    ("too_many_connections", "53300"),
    ("program_limit_exceeded", "54000"),
    ("statement_too_complex", "54001"),
    ("object_not_in_prerequisite_state", "55000"),
    ("object_in_use", "55006"),
    ("lock_not_available", "55P03"),
    ("operator_intervention", "57000"),
    ("query_canceled", "57014"),
    ("system_error", "58000"),
    ("io_error", "58030"),
    ("plpgsql_error", "P0000"),
    ("raise_exception", "P0001"),
    ("no_data_found", "P0002"),
    ("too_many_rows", "P0003"),
    ("assert_failure", "P0004"),
    ("internal_error", "XX000"),
    ("data_corrupted", "XX001"),
];

fn is_code(text: &str) -> bool {
    text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
}

fn unknown(text: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized exception condition \"{text}\""))
}

/// A code behind SQLSTATE.
pub(super) fn checked_code(text: &str) -> Result<String, SqlError> {
    if is_code(text) {
        Ok(text.to_owned())
    } else {
        Err(SqlError::new(SqlState::SYNTAX_ERROR, "invalid SQLSTATE code"))
    }
}

/// The name of a condition.
pub(super) fn checked_name(text: &str) -> Result<String, SqlError> {
    let is_known = CONDITIONS.iter().any(|(name, _)| *name == text);
    if is_known { Ok(text.to_owned()) } else { Err(unknown(text)) }
}

/// The most codes of their own that programs may use in one process.
const OWN_CODES: usize = 4096;

static OWN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// The code that a text is, or of the condition that it names.
pub(crate) fn state_of(text: &str) -> Result<SqlState, SqlError> {
    if let Some((_, code)) = CONDITIONS.iter().find(|(name, code)| *name == text || *code == text) {
        return Ok(SqlState(code));
    }
    if !is_code(text) {
        return Err(unknown(text));
    }
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = own.iter().find(|known| **known == text) {
        return Ok(SqlState(known));
    }
    if own.len() == OWN_CODES {
        let message = format!("a process has at most {OWN_CODES} error codes of programs");
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    let kept: &'static str = Box::leak(text.to_owned().into_boxed_str());
    own.push(kept);
    Ok(SqlState(kept))
}

impl Parser<'_> {
    #[inline(never)]
    pub(super) fn raise(&mut self) -> Result<Kind, SqlError> {
        self.at += 1;
        let levels = [
            ("debug", Level::Silent),
            ("log", Level::Silent),
            ("info", Level::Info),
            ("notice", Level::Notice),
            ("warning", Level::Warning),
            ("exception", Level::Exception),
        ];
        let named = levels.iter().find(|(word, _)| self.eat(word));
        let mut raise = Raise {
            level: named.map_or(Level::Exception, |(_, level)| *level),
            condition: None,
            format: None,
            values: Vec::new(),
            options: Vec::new(),
        };
        if let Some(format) = self.lexemes.get(self.at).and_then(Lexeme::constant) {
            raise.format = Some(format_parts(format));
            self.at += 1;
            while self.eat(",") {
                raise.values.push(self.expression_until(&[",", "using", ";"])?);
            }
        } else if self.eat("sqlstate") {
            let code = self.lexemes.get(self.at).and_then(Lexeme::constant).ok_or_else(|| self.wrong())?;
            raise.condition = Some(checked_code(code)?);
            self.at += 1;
        } else if !self.is(";") && !self.is("using") {
            raise.condition = Some(checked_name(&self.name()?)?);
        }
        if self.eat("using") {
            loop {
                raise.options.push(self.raise_option()?);
                if !self.eat(",") {
                    break;
                }
            }
        }
        self.expect(";")?;
        let wanted = raise.format.as_ref().map_or(0, |parts| parts.len() - 1);
        match raise.values.len().cmp(&wanted) {
            std::cmp::Ordering::Equal => Ok(Kind::Raise(raise.into())),
            std::cmp::Ordering::Less => {
                Err(SqlError::new(SqlState::SYNTAX_ERROR, "too few parameters specified for RAISE"))
            }
            std::cmp::Ordering::Greater => {
                Err(SqlError::new(SqlState::SYNTAX_ERROR, "too many parameters specified for RAISE"))
            }
        }
    }

    #[inline(never)]
    fn raise_option(&mut self) -> Result<(RaiseOption, ast::Expr), SqlError> {
        let option = match self.name()?.as_str() {
            "message" => RaiseOption::Message,
            "detail" => RaiseOption::Detail,
            "hint" => RaiseOption::Hint,
            "errcode" => RaiseOption::Code,
            other @ ("column" | "constraint" | "datatype" | "table" | "schema") => {
                return Err(SqlError::unsupported(format!("RAISE USING {}", other.to_uppercase())));
            }
            _ => {
                self.at -= 1;
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "unrecognized RAISE statement option"));
            }
        };
        if !self.eat("=") {
            self.expect(":=")?;
        }
        Ok((option, self.expression_until(&[",", ";"])?))
    }
}

/// The parts of a format around its values: `%%` is a sign.
fn format_parts(format: &str) -> Vec<String> {
    let (mut parts, mut characters) = (vec![String::new()], format.chars().peekable());
    while let Some(next) = characters.next() {
        match next {
            '%' if characters.next_if_eq(&'%').is_none() => parts.push(String::new()),
            other => parts.last_mut().expect("there is a first part").push(other),
        }
    }
    parts
}
