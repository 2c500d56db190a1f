//! What SET changes, and what of it a transaction takes back.
//!
//! A rollback undoes each SET of the transaction, and a return to a savepoint those behind it. SET LOCAL hides what holds outside of the transaction until
//! that ends; a SET behind it changes both.

use std::sync::Arc;

use polychron_base::clock::Duration;
use polychron_engine::Protocol;

use crate::connection::Connection;
use crate::names::Path;
use crate::parameters::ClientSettings;
use crate::text::Zone;

impl Settings {
    /// A setting that has one of two values, by its name, and these values: the first one stands for `true`.
    pub(crate) fn choice(&mut self, name: &str) -> Option<(&mut bool, [&'static str; 2])> {
        Some(match name {
            "replay" => (&mut self.is_replayed, SWITCH),
            "default_transaction_read_only" => (&mut self.reads_only, SWITCH),
            "read_only_freshness" => (&mut self.reads_recent, ["recent", "strict"]),
            _ => return None,
        })
    }

    /// A time-out, by its name.
    pub(crate) fn time(&mut self, name: &str) -> Option<&mut Option<Duration>> {
        Some(match name {
            "lock_timeout" => &mut self.lock_timeout,
            "statement_timeout" => &mut self.statement_timeout,
            "park_after" => &mut self.park_after,
            "idle_in_transaction_session_timeout" => &mut self.idle_timeout,
            "log_min_duration_transaction" => &mut self.log_after,
            _ => return None,
        })
    }
}

impl Settings {
    /// Takes over the value of one setting, by its name; `false`: there is none of this name.
    pub(crate) fn take(&mut self, name: &str, from: &mut Self) -> bool {
        if let Some((value, _)) = from.choice(name) {
            let value = *value;
            self.choice(name).into_iter().for_each(|(own, _)| *own = value);
        } else if let Some(time) = from.time(name) {
            let time = *time;
            self.time(name).into_iter().for_each(|own| *own = time);
        } else if name == "search_path" {
            self.path = from.path.clone();
        } else if crate::parameters::is_known(name) {
            self.client.take(name, &from.client);
            if name == "timezone" {
                self.zone = from.zone.clone();
            }
        } else {
            return false;
        }
        true
    }
}

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

/// The settings that have one of two values, and those that are times, each with what it says.
pub(crate) const CHOICES: [(&str, &str); 3] = [
    ("default_transaction_read_only", "Transactions are read-only where nothing else is said."),
    (
        "read_only_freshness",
        "Whether read-only transactions read what has committed before they began, or a snapshot that may be older.",
    ),
    ("replay", "Transactions that conflict are run again where their clients cannot tell."),
];
pub(crate) const TIMES: [(&str, &str); 5] = [
    ("idle_in_transaction_session_timeout", "After how long a silence a session with an open transaction ends."),
    ("lock_timeout", "How long a statement waits for a table that others have closed."),
    ("log_min_duration_transaction", "From how long on transactions are told in the log."),
    ("park_after", "After how long a silence an open transaction is parked."),
    ("statement_timeout", "How long a text of statements may take."),
];

const SWITCH: [&str; 2] = ["on", "off"];

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
            client: self.client,
            path: self.path.clone(),
            zone: self.zone.clone(),
            log_after: self.slot.activity.log_after(),
        }
    }

    fn apply(&mut self, settings: Settings) {
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
        self.apply(settings);
    }

    /// The transaction has ended.
    pub(crate) fn end_settings(&mut self, has_committed: bool) {
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
