//! The zone of a session: SET TIME ZONE, and what a change of it means for the transaction that is open.

use polychron_engine::Protocol;
use sqlparser::ast;

use crate::connection::Connection;
use crate::error::{SqlError, SqlState};
use crate::outcome::Outcome;
use crate::text::Zone;

impl<P: Protocol> Connection<P> {
    /// `SET TIME ZONE`, of a number or an interval, too.
    pub(crate) fn set_time_zone(&mut self, value: &ast::Expr, is_local: bool) -> Result<Outcome, SqlError> {
        let ast::Expr::Interval(interval) = value else {
            let is_word = |word: &str| value.to_string().eq_ignore_ascii_case(word);
            let plain = ast::Expr::Identifier(ast::Ident::new("default"));
            let value = if is_word("local") || is_word("default") { plain } else { value.clone() };
            return self.set_client("timezone", &[value], is_local);
        };
        let of_text = || {
            let ast::Expr::Value(value) = &*interval.value else { return None };
            let text = value.value.clone().into_string()?;
            let (sign, text) = match text.strip_prefix('-') {
                Some(rest) => (-1, rest),
                None => (1, text.strip_prefix('+').unwrap_or(&text)),
            };
            let mut parts = text.split(':').map(|part| part.parse::<i64>().ok().filter(|it| (0..=167).contains(it)));
            let (hours, minutes) = (parts.next()??, parts.next().unwrap_or(Some(0))?);
            if parts.next().is_some() || minutes > 59 {
                None
            } else {
                Zone::ahead(sign * (hours * 3600 + minutes * 60))
            }
        };
        let shown = value.to_string();
        let zone = of_text();
        self.set_zone(zone, &shown, is_local).map_err(|error| self.fail(error))?;
        Ok(Outcome::tagged("SET"))
    }

    pub(crate) fn set_zone(&mut self, zone: Option<Zone>, text: &str, is_local: bool) -> Result<(), SqlError> {
        let Some(zone) = zone else {
            let message = format!("invalid value for parameter \"TimeZone\": \"{text}\"");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        };
        // What its statements have answered, they have in another zone.
        if let Some(script) = self.session.script().filter(|script| script.has_run()) {
            script.runs_once = true;
        }
        self.change_settings(is_local, |settings| settings.zone = zone.clone());
        Ok(())
    }
}
