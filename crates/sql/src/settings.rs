//! What SET changes, and what of it a transaction takes back.
//!
//! A rollback undoes each SET of the transaction, and a return to a savepoint those behind it. SET LOCAL hides what holds outside of the transaction until
//! that ends; a SET behind it changes both.

mod list;
mod show;
mod statements;
mod values;

use std::sync::Arc;

use polychron_base::clock::Duration;
use polychron_engine::Protocol;

use crate::connection::Connection;
use crate::error::SqlError;
use crate::names::Path;
use crate::parameters::ClientSettings;
use crate::text::Zone;

pub use list::{SETTINGS, Scope, Setting, Values};
pub(crate) use show::{
    all_columns, is_constant, is_default, is_of_transaction, name_of, not_to_see, not_to_set, shown_name, text_of,
};
pub(crate) use statements::{Kept, SettingChange};
pub use values::checked;
pub(crate) use values::{is_custom, millis_of, unrecognized};

/// The values of all settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) lock_timeout: Option<Duration>,
    pub(crate) statement_timeout: Option<Duration>,
    pub(crate) is_replayed: bool,
    pub(crate) reads_only: bool,
    pub(crate) reads_recent: bool,
    pub(crate) park_after: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) client: ClientSettings,
    pub(crate) path: Arc<Path>,
    pub(crate) zone: Zone,
    /// From how long on transactions are told in the log.
    pub(crate) log_after: Option<Duration>,
}

/// What the open transaction has set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changed {
    /// What holds again where it is rolled back.
    before: Option<Settings>,
    /// What holds again where it commits.
    hidden: Option<Settings>,
}

/// The settings at a savepoint.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    shown: Settings,
    hidden: Option<Settings>,
}

impl<P: Protocol> Connection<P> {
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            lock_timeout: self.lock_timeout,
            statement_timeout: self.interrupts.timeout,
            is_replayed: self.session.is_replayed,
            reads_only: self.session.reads_only,
            reads_recent: self.session.reads_recent,
            park_after: self.session.park_after,
            idle_timeout: self.session.idle_timeout,
            client: self.client.clone(),
            path: self.path.clone(),
            zone: self.zone.clone(),
            log_after: self.slot.activity.log_after(),
        }
    }

    fn apply(&mut self, settings: Settings) {
        self.settings_changes += 1;
        self.slot.activity.set_settings(&settings);
        self.lock_timeout = settings.lock_timeout;
        self.interrupts.timeout = settings.statement_timeout;
        self.session.is_replayed = settings.is_replayed;
        self.session.reads_only = settings.reads_only;
        self.session.reads_recent = settings.reads_recent;
        self.session.park_after = settings.park_after;
        self.session.idle_timeout = settings.idle_timeout;
        self.client = settings.client;
        self.zone = settings.zone;
        if !Arc::ptr_eq(&self.path, &settings.path) {
            self.session.drawn().set_path(settings.path.clone());
            self.path = settings.path;
        }
    }

    /// The zone is about to become this one: a transaction that could not be run again in it leaves its snapshot before, if it may write later.
    pub(crate) fn prepare_zone(&mut self, zone: &Zone) -> Result<(), SqlError> {
        if zone.shown() == self.zone.shown() { Ok(()) } else { self.session.leave_undeclared(false, &self.zone) }
    }

    /// Changes settings, up to the end of the open transaction where that is `is_local`.
    pub(crate) fn change_settings(&mut self, is_local: bool, change: impl Fn(&mut Settings)) {
        let mut settings = self.settings();
        if self.session.is_open() {
            self.changed.before.get_or_insert_with(|| settings.clone());
            if is_local {
                self.changed.hidden.get_or_insert_with(|| settings.clone());
            } else {
                self.changed.hidden.iter_mut().for_each(&change);
            }
        }
        change(&mut settings);
        // What the transaction has answered in one zone, it would answer otherwise in another.
        if settings.zone.shown() != self.zone.shown()
            && let Some(script) = self.session.script().filter(|script| script.has_run())
        {
            script.runs_once = true;
        }
        self.apply(settings);
    }

    /// The transaction has ended.
    pub(crate) fn end_settings(&mut self, has_committed: bool) {
        // Most transactions set nothing, and what they could have set is large.
        if self.changed.before.is_none() {
            return;
        }
        let Changed { before, hidden } = std::mem::take(&mut self.changed);
        if let Some(settings) = if has_committed { hidden } else { before } {
            self.apply(settings);
        }
    }

    /// The settings as they are, for [`Connection::return_to_settings`].
    pub(crate) fn save_settings(&self) -> Saved {
        Saved { shown: self.settings(), hidden: self.changed.hidden.clone() }
    }

    /// The transaction has returned to a savepoint.
    pub(crate) fn return_to_settings(&mut self, saved: Saved) {
        self.changed.hidden = saved.hidden;
        self.apply(saved.shown);
    }
}
