//! `pg_settings` and `polychron_settings`, and `current_setting`: what holds for the session when a statement is bound. A statement that asks is bound for each
//! execution, so that one which is run again after a conflict is told the same.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;

use super::objects::known_text;
use super::{Binder, Names, Row, flag, text};
use crate::casts::Place;
use crate::configured::Configured;
use crate::datum::{Datum, OwnedDatum};
use crate::error::SqlError;
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::settings::{
    SETTINGS, Scope, Setting, Settings, Values, is_constant, is_custom, is_of_transaction, millis_of, not_to_see,
    unrecognized,
};
use crate::types::Type;

/// A setting as views have it.
struct Seen {
    name: String,
    value: String,
    /// Where nothing of the session sets it.
    reset: String,
    source: &'static str,
    is_pending: bool,
    setting: Option<&'static Setting>,
}

impl Binder<'_> {
    fn configured(&self) -> Arc<Configured> {
        let source = self.catalog.source.as_ref().and_then(Weak::upgrade);
        source.map_or_else(Arc::default, |source| source.configured())
    }

    pub(in crate::bind) fn session_settings(&self) -> Option<Settings> {
        self.drawn.activity.get().and_then(|activity| activity.settings())
    }

    /// The value of a setting. `None`: there is none of this name.
    fn value_of_setting(
        &self,
        name: &str,
        settings: Option<&Settings>,
        configured: &Configured,
    ) -> Result<Option<String>, SqlError> {
        let user = &self.catalog.path.user;
        Ok(match name {
            "role" if user.current == user.session => Some("none".to_owned()),
            "role" => Some(user.current.1.clone()),
            "session_authorization" => Some(user.session.1.clone()),
            "is_superuser" => Some(if self.catalog.rights()?.is_superuser { "on" } else { "off" }.to_owned()),
            _ => match settings.and_then(|settings| settings.shown(name)) {
                Some(value) => Some(value),
                None => Setting::find(name).map(|setting| configured.get(setting).to_owned()),
            },
        })
    }

    fn seen_settings(&self) -> Result<Vec<Seen>, SqlError> {
        let (settings, configured) = (self.session_settings(), self.configured());
        let mut all = Vec::new();
        let is_superuser = self.catalog.rights()?.is_superuser;
        let is_seen = |setting: &&Setting| !is_of_transaction(setting.name) && (is_superuser || !setting.is_hidden);
        for setting in SETTINGS.iter().filter(is_seen) {
            let name = setting.name.to_lowercase();
            let value = self.value_of_setting(&name, settings.as_ref(), &configured)?.unwrap_or_default();
            let said = configured.get(setting).to_owned();
            let is_set = setting.scope.is_of_sessions() && value != said;
            let source = if is_set { "session" } else { configured.origin(setting).source() };
            let reset = if setting.scope == Scope::Fixed { value.clone() } else { said };
            let is_pending = configured.is_pending(setting);
            all.push(Seen { name: setting.name.to_owned(), value, reset, source, is_pending, setting: Some(setting) });
        }
        for (name, value) in settings.iter().flat_map(|settings| settings.client.all_custom()) {
            let (name, value) = (name.to_owned(), value.to_owned());
            all.push(Seen { name, value, reset: String::new(), source: "session", is_pending: false, setting: None });
        }
        all.sort_by_key(|seen| seen.name.to_lowercase());
        Ok(all)
    }

    /// The rows of `polychron_settings` where that `is_own`, or of `pg_settings`.
    pub(super) fn rows_of_settings(&self, is_own: bool) -> Result<Vec<Row>, SqlError> {
        let is_superuser = self.catalog.rights()?.is_superuser;
        let row = |seen: Seen| if is_own { seen.own_row(is_superuser) } else { seen.row() };
        Ok(self.seen_settings()?.into_iter().map(row).collect())
    }

    /// `current_setting` of a name that is known when the statement runs.
    fn computed_setting(&mut self, name: Typed, may_miss: bool) -> Result<Typed, SqlError> {
        self.is_mutable = true;
        self.catalog.is_live.set(true);
        let name = self.cast(name, Type::Text.into(), Place::Implicit)?;
        let user = &self.catalog.path.user;
        let role = if user.current == user.session { "none" } else { &user.current.1 };
        let mut by_text: HashMap<_, _> = [("role", role), ("session_authorization", &*user.session.1)]
            .map(|(name, of)| (name.to_owned(), text(of)))
            .into();
        let all = self.seen_settings()?.into_iter();
        by_text.extend(all.map(|seen| (seen.name.to_lowercase(), text(seen.value))));
        let (what, by_id) = ("current_setting", HashMap::new());
        let names = Arc::new(Names { what, by_id, by_text, shows_others: may_miss, deed: None });
        Ok(Typed::new(Expr::Lookup { names, of: Box::new(name.expr) }, Type::Text))
    }

    /// `current_setting`.
    pub(in crate::bind) fn current_setting(&mut self, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        if let [name, rest @ ..] = &arguments[..]
            && known_text(name).is_none()
        {
            let may_miss = match rest {
                [] => false,
                [Typed { expr: Expr::Constant(may_miss), .. }] => matches!(may_miss.get(), Datum::Bool(true)),
                _ => return Err(SqlError::unsupported("current_setting that may be computed to miss a setting")),
            };
            return self.computed_setting(name.clone(), may_miss);
        }
        let known = match &arguments[..] {
            [name] => known_text(name).map(|name| (name, false)),
            [name, Typed { expr: Expr::Constant(may_miss), .. }] => {
                known_text(name).map(|name| (name, matches!(may_miss.get(), Datum::Bool(true))))
            }
            _ => None,
        };
        let Some((written, may_miss)) = known else {
            let types: Vec<_> = arguments.iter().map(Typed::base).collect();
            return Err(functions::no_function("current_setting", &types, functions::Unresolved::None));
        };
        let name = written.to_lowercase();
        // What an index keeps must not depend on it.
        self.is_mutable = true;
        if is_of_transaction(&name) {
            return Err(SqlError::unsupported(format!("current_setting of \"{name}\"")));
        }
        if !is_constant(&name) {
            self.catalog.is_live.set(true);
        }
        if Setting::find(&name).is_some_and(|setting| setting.is_hidden) && !self.catalog.rights()?.is_superuser {
            return Err(not_to_see(&name));
        }
        let settings = self.session_settings();
        match self.value_of_setting(&name, settings.as_ref(), &self.configured())? {
            Some(value) => Ok(Typed::new(Expr::Constant(text(value)), Type::Text)),
            None if may_miss && (!name.contains('.') || is_custom(&name).is_ok()) => {
                Ok(Typed::new(Expr::NULL, Type::Text))
            }
            None => Err(unrecognized(written)),
        }
    }
}

impl Seen {
    fn said(&self) -> &'static str {
        self.setting.map_or("", |setting| setting.said)
    }

    fn context(&self) -> &'static str {
        self.setting.map_or("user", |setting| setting.scope.context())
    }

    fn own_row(self, is_superuser: bool) -> Row {
        let context = self.context();
        vec![
            ("description", text(self.said())),
            ("is_changeable", flag(context == "user" || (context == "superuser" && is_superuser))),
            ("name", text(self.name)),
            ("setting", text(self.value)),
        ]
    }

    fn row(self) -> Row {
        let values = self.setting.map_or(Values::Text, |setting| setting.values);
        let unit = match values {
            Values::Time => Some("ms"),
            Values::Seconds(..) => Some("s"),
            _ => None,
        };
        let plain = |shown: &str| match unit {
            None => shown.to_owned(),
            Some("s") => (millis_of(shown) / 1000).to_string(),
            Some(_) => millis_of(shown).to_string(),
        };
        let bounds = match values {
            Values::Number(least, most) | Values::Seconds(least, most) => Some((least, most)),
            Values::Mode => Some((0, 0o777)),
            Values::Time => Some((0, i64::from(i32::MAX))),
            _ => None,
        };
        let bound = |of: Option<i64>| of.map_or(OwnedDatum::NULL, |of| text(of.to_string()));
        let choices = match values {
            Values::Choice(of) => super::texts(of.iter().copied()),
            _ => OwnedDatum::NULL,
        };
        let default = self.setting.map_or("", |setting| setting.default);
        vec![
            ("unit", unit.map_or(OwnedDatum::NULL, text)),
            ("category", text(if self.setting.is_some() { "Polychron" } else { "Customized Options" })),
            ("short_desc", text(self.said())),
            ("context", text(self.context())),
            ("vartype", text(values.word())),
            ("source", text(self.source)),
            ("min_val", bound(bounds.map(|(least, _)| least))),
            ("max_val", bound(bounds.map(|(_, most)| most))),
            ("enumvals", choices),
            ("boot_val", text(plain(default))),
            ("reset_val", text(plain(&self.reset))),
            ("sourceline", OwnedDatum::NULL),
            ("pending_restart", flag(self.is_pending)),
            ("setting", text(plain(&self.value))),
            ("name", text(self.name)),
        ]
    }
}
