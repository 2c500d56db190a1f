//! The zone of a session: SET TIME ZONE, and what a change of it means for the transaction that is open.

use polychron_engine::Protocol;
use sqlparser::ast;

use crate::connection::Connection;
use crate::error::SqlError;
use crate::outcome::Outcome;
use crate::text::{Zone, seconds_of};

impl<P: Protocol> Connection<P> {
    /// `SET TIME ZONE`, of a number or an interval, too.
    pub(crate) fn set_time_zone(&mut self, value: &ast::Expr, is_local: bool) -> Result<Outcome, SqlError> {
        let ast::Expr::Interval(interval) = value else {
            let is_word = |word: &str| value.to_string().eq_ignore_ascii_case(word);
            let plain = ast::Expr::Identifier(ast::Ident::new("default"));
            let value = if is_word("local") || is_word("default") { plain } else { value.clone() };
            return self.set_written("timezone", &[value], is_local).map_err(|error| self.fail(error));
        };
        let of_text = || {
            let ast::Expr::Value(value) = &*interval.value else { return None };
            let text = value.value.clone().into_string()?;
            // Hours and minutes, and no seconds.
            Zone::ahead(seconds_of(&text).filter(|_| text.matches(':').count() < 2)?)
        };
        let shown = of_text().map_or_else(|| value.to_string(), |zone: Zone| zone.shown().to_owned());
        let value = ast::Expr::value(ast::Value::SingleQuotedString(shown));
        self.set_written("timezone", &[value], is_local).map_err(|error| self.fail(error))
    }
}
