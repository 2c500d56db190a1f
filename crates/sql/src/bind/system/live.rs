//! Relations that show what goes on now. A statement that names one is bound for each execution.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use polychron_base::TableId;
use polychron_base::clock::Duration;

use super::objects::Objects;
use super::{Binder, DATABASE, Names, OWNER, Row, Signal, flag, int, table_id, text, texts};
use crate::advisory::Key;
use crate::bind::literals::constant;
use crate::casts::Place;
use crate::context::now;
use crate::datum::{Datum, OwnedDatum};
use crate::error::SqlError;
use crate::expr::{Expr, Typed};
use crate::names::in_words;
use crate::own::{CursorShown, Shown, StatementShown};
use crate::roles::{Rights, RoleId};
use crate::types::Type;
use crate::watch::{Activity, Deed, Present, SessionSeen, SessionState, TableSums, Use};

/// The object id of the database.
pub(super) const DATABASE_ID: i64 = 5;

/// What stands in the place of what others do, where a role may not see it.
const HIDDEN: &str = "<insufficient privilege>";

/// Those that PostgreSQL has not, which are found without a schema all the same.
pub(super) fn is_own(name: &str) -> bool {
    matches!(name, "polychron_conflicts" | "polychron_memory" | "polychron_settings" | "polychron_snapshots")
}

fn count(number: u64) -> OwnedDatum {
    int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn optional(value: Option<String>) -> OwnedDatum {
    value.map_or(OwnedDatum::NULL, text)
}

fn time(us: i64) -> OwnedDatum {
    OwnedDatum::Plain(Datum::Timestamp(us))
}

/// So long ago.
fn ago(time: Option<Duration>) -> OwnedDatum {
    time.map_or(OwnedDatum::NULL, |ago| self::time(now() - i64::try_from(ago.as_micros()).unwrap_or(0)))
}

fn millis(us: u64) -> OwnedDatum {
    OwnedDatum::Plain(Datum::Float(us as f64 / 1e3))
}

impl Binder<'_> {
    /// The rows of a relation that shows what goes on now; `None`: it is none.
    pub(super) fn live_rows(&self, name: &str, objects: &Objects) -> Result<Option<Vec<Row>>, SqlError> {
        let is_known = is_own(name)
            || matches!(
                name,
                "pg_stat_activity"
                    | "pg_stat_all_tables"
                    | "pg_stat_database"
                    | "pg_stat_statements"
                    | "pg_stat_user_tables"
                    | "pg_cursors"
                    | "pg_locks"
                    | "pg_prepared_statements"
                    | "pg_settings"
            );
        if !is_known {
            return Ok(None);
        }
        self.catalog.is_live.set(true);
        if matches!(name, "pg_settings" | "polychron_settings") {
            return self.rows_of_settings(name == "polychron_settings").map(Some);
        }
        if matches!(name, "pg_cursors" | "pg_prepared_statements") {
            let own = self.drawn.questions.ask().ok_or_else(|| SqlError::internal("the session is asked"))?;
            let is_of_cursors = name == "pg_cursors";
            return Ok(Some(if is_of_cursors { of_cursors(&own) } else { of_prepared(&own) }));
        }
        let Some(present) = self.catalog.source.as_ref().and_then(Weak::upgrade).map(|source| source.present()) else {
            return Ok(Some(Vec::new()));
        };
        let roles = self.roles_to_act_on()?;
        let own = self.drawn.activity.get().map(|activity| activity.session);
        let seen = |activity: Arc<Activity>| {
            let is_own = own == Some(activity.session);
            let is_shown = is_own || roles.as_ref().is_none_or(|roles| roles.contains(&activity.role().0));
            (activity.seen(), is_shown)
        };
        let known = &self.catalog.known_roles()?.0;
        let numbers: HashMap<_, _> = known.0.iter().map(|role| role.name.as_str()).zip(known.oids()).collect();
        let sessions = || present.watch.sessions().into_iter().map(seen);
        let sees_all = roles.is_none();
        Ok(Some(match name {
            "pg_stat_activity" => sessions()
                .map(|(session, is_shown)| of_session(&session, numbers.get(&*session.role).copied(), is_shown))
                .collect(),
            "polychron_snapshots" => {
                sessions().filter_map(|(session, is_shown)| of_snapshot(&session, is_shown)).collect()
            }
            "pg_stat_database" => vec![of_database(&present)],
            "pg_stat_statements" => of_statements(&present, sees_all),
            "pg_locks" => of_locks(&present),
            "polychron_conflicts" => of_conflicts(&present, sees_all),
            "polychron_memory" => of_memory(&present),
            _ => of_tables(&present, objects),
        }))
    }

    /// The number of this session.
    pub(in crate::bind) fn own_number(&self) -> Typed {
        let number = self.drawn.activity.get().map_or(0, |activity| activity.number());
        constant(Datum::Int(number.into()), Type::Int4)
    }

    /// The roles whose sessions the statement's role may see and end; `None`: all.
    fn roles_to_act_on(&self) -> Result<Option<BTreeSet<RoleId>>, SqlError> {
        let Rights { is_superuser, mut acting, .. } = self.catalog.rights()?;
        if is_superuser {
            return Ok(None);
        }
        let roles = &self.catalog.known_roles()?.0;
        acting.retain(|role| !roles.is_superuser(*role));
        Ok(Some(acting))
    }

    /// What cancels or ends the session of a number.
    pub(in crate::bind) fn deed(&mut self, ends: bool, number: Typed) -> Result<Typed, SqlError> {
        let of = self.cast(number, Type::Int4.into(), Place::Implicit)?;
        let Some(present) = self.catalog.source.as_ref().and_then(Weak::upgrade).map(|source| source.present()) else {
            return Ok(constant(Datum::Bool(false), Type::Bool));
        };
        let (what, deed) =
            if ends { ("pg_terminate_backend", Deed::Terminate) } else { ("pg_cancel_backend", Deed::Cancel) };
        let (by_id, by_text) = (HashMap::new(), HashMap::new());
        let signal = Signal { watch: present.watch, deed, of: self.roles_to_act_on()? };
        let names = Names { what, by_id, by_text, shows_others: false, deed: Some(signal) };
        Ok(Typed::new(Expr::Lookup { names: Arc::new(names), of: Box::new(of.expr) }, Type::Bool))
    }
}

fn of_cursors(own: &Shown) -> Vec<Row> {
    let row = |cursor: &CursorShown| {
        vec![
            ("name", text(cursor.name.as_str())),
            ("statement", text(&*cursor.text)),
            ("is_holdable", flag(cursor.is_held)),
            ("is_binary", flag(false)),
            ("is_scrollable", flag(cursor.is_scrollable)),
            ("creation_time", time(cursor.since)),
        ]
    };
    own.cursors.iter().map(row).collect()
}

/// Plans are bound once, whatever the values of their parameters are, and are not counted.
fn of_prepared(own: &Shown) -> Vec<Row> {
    let row = |statement: &StatementShown| {
        vec![
            ("name", text(statement.name.as_str())),
            ("statement", text(&*statement.text)),
            ("prepare_time", time(statement.since)),
            ("parameter_types", texts(statement.types.iter().map(String::as_str))),
            ("from_sql", flag(statement.is_of_sql)),
            ("generic_plans", OwnedDatum::NULL),
            ("custom_plans", OwnedDatum::NULL),
        ]
    };
    own.statements.iter().map(row).collect()
}

/// Of a session of others a role sees who it is, and not what it does.
fn of_session(session: &SessionSeen, role: Option<i64>, is_shown: bool) -> Row {
    let is_active = session.state == SessionState::Active;
    let shown = |value: OwnedDatum| if is_shown { value } else { OwnedDatum::NULL };
    let waits = |what: &'static str| if is_active { OwnedDatum::NULL } else { shown(text(what)) };
    vec![
        ("datid", int(DATABASE_ID)),
        ("datname", text(DATABASE)),
        ("pid", int(session.number.into())),
        ("leader_pid", OwnedDatum::NULL),
        ("usesysid", role.map_or(OwnedDatum::NULL, int)),
        ("usename", text(session.role.as_str())),
        ("application_name", text(session.application.as_str())),
        ("client_addr", shown(optional(session.address.clone()))),
        ("client_port", OwnedDatum::NULL),
        ("backend_start", shown(time(session.began_us))),
        ("xact_start", shown(ago(session.transaction_for))),
        ("query_start", shown(ago(session.statement_for))),
        ("state_change", shown(ago(session.state_for))),
        ("wait_event_type", waits("Client")),
        ("wait_event", waits("ClientRead")),
        ("state", shown(text(session.state.name()))),
        ("backend_xid", OwnedDatum::NULL),
        ("backend_xmin", OwnedDatum::NULL),
        ("query_id", OwnedDatum::NULL),
        ("query", text(if is_shown { session.text.as_str() } else { HIDDEN })),
        ("backend_type", shown(text(if session.is_of_client { "client backend" } else { "program" }))),
    ]
}

fn of_snapshot(session: &SessionSeen, is_shown: bool) -> Option<Row> {
    let age = session.transaction_for?;
    let shown = |value: OwnedDatum| if is_shown { value } else { OwnedDatum::NULL };
    Some(vec![
        ("pid", int(session.number.into())),
        ("began", shown(ago(Some(age)))),
        ("age_us", shown(int(i64::try_from(age.as_micros()).unwrap_or(i64::MAX)))),
        ("state", shown(text(session.state.name()))),
        ("query", text(if is_shown { session.text.as_str() } else { HIDDEN })),
    ])
}

fn of_database(present: &Present) -> Row {
    let (sums, tables) = (present.watch.sums(), present.watch.tables());
    let of = |what| count(tables.values().map(|table| table.get(what)).sum());
    let mut row = vec![
        ("datid", int(DATABASE_ID)),
        ("datname", text(DATABASE)),
        ("numbackends", int(present.watch.sessions().len() as i64)),
        ("xact_commit", count(sums.transactions[0])),
        ("xact_rollback", count(sums.transactions[1])),
        ("tup_inserted", of(Use::Inserts)),
        ("tup_updated", of(Use::Updates)),
        ("tup_deleted", of(Use::Deletes)),
        ("conflicts", count(sums.conflicts().iter().map(|it| it.count).sum())),
        ("sessions", count(sums.sessions)),
        ("active_time", millis(sums.statement_sum_us)),
    ];
    let unknown = ["tup_returned", "tup_fetched", "deadlocks", "checksum_failures", "sessions_abandoned"];
    row.extend(unknown.map(|name| (name, OwnedDatum::NULL)));
    row.extend(["sessions_fatal", "sessions_killed"].map(|name| (name, OwnedDatum::NULL)));
    row
}

/// A number for a text that is the same in all processes (FNV-1a).
fn number_of(text: &str) -> i64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step) as i64
}

fn of_statements(present: &Present, sees_all: bool) -> Vec<Row> {
    let row = |(shape, sums): (Arc<str>, crate::watch::StatementSums)| {
        let mean = sums.sum_us as f64 / 1e3 / sums.calls.max(1) as f64;
        vec![
            ("userid", int(OWNER)),
            ("dbid", int(DATABASE_ID)),
            ("toplevel", flag(true)),
            ("queryid", int(number_of(&shape))),
            ("query", text(if sees_all { &*shape } else { HIDDEN })),
            ("calls", count(sums.calls)),
            ("total_exec_time", millis(sums.sum_us)),
            ("max_exec_time", millis(sums.max_us)),
            ("mean_exec_time", OwnedDatum::Plain(Datum::Float(mean))),
            ("rows", count(sums.rows)),
            ("errors", count(sums.errors)),
        ]
    };
    present.watch.statements().into_iter().filter(|(_, sums)| sums.calls > 0).map(row).collect()
}

fn of_locks(present: &Present) -> Vec<Row> {
    let numbers: HashMap<_, _> =
        present.watch.sessions().iter().map(|activity| (activity.session, activity.number())).collect();
    let row = |&(session, table): &(u64, TableId), mode: &'static str| {
        let number = numbers.get(&session).copied();
        vec![
            ("locktype", text("relation")),
            ("database", int(DATABASE_ID)),
            ("relation", int(super::id_of_table(table))),
            ("pid", number.map_or(OwnedDatum::NULL, |number| int(number.into()))),
            ("mode", text(mode)),
            ("granted", flag(true)),
            ("fastpath", flag(false)),
        ]
    };
    let closed = present.closed.iter().map(|held| row(held, "AccessExclusiveLock"));
    let advisory = present.locks.iter().map(|lock| {
        let (class, object, parts) = match lock.key {
            Key::One(key) => ((key as u64 >> 32) as u32, key as u32, 1),
            Key::Two(class, object) => (class as u32, object as u32, 2),
        };
        let number = numbers.get(&lock.session).copied();
        vec![
            ("locktype", text("advisory")),
            ("database", int(DATABASE_ID)),
            ("classid", int(class.into())),
            ("objid", int(object.into())),
            ("objsubid", int(parts)),
            ("pid", number.map_or(OwnedDatum::NULL, |number| int(number.into()))),
            ("mode", text(if lock.is_shared { "ShareLock" } else { "ExclusiveLock" })),
            ("granted", flag(lock.is_granted)),
            ("fastpath", flag(false)),
        ]
    });
    present.held.iter().map(|held| row(held, "AccessShareLock")).chain(closed).chain(advisory).collect()
}

fn of_conflicts(present: &Present, sees_all: bool) -> Vec<Row> {
    let row = |conflict: crate::watch::ConflictSeen| {
        let key = conflict.abort.named_key();
        let shown = key.columns.iter().zip(&key.values).map(|(column, value)| format!("{column} = {value}"));
        let shown: Vec<_> = if key.columns.is_empty() { key.values.clone() } else { shown.collect() };
        vec![
            ("at", time(conflict.at_us)),
            ("pid", int(conflict.number.into())),
            ("reason", text(conflict.abort.reason.name())),
            ("relation", text(in_words(&key.table))),
            ("index", optional(key.index.clone())),
            ("key", optional(Some(shown.join(", ")).filter(|shown| sees_all && !shown.is_empty()))),
            ("opponent", optional(conflict.abort.opponent.map(|opponent| opponent.to_string()))),
            ("attempt", count(conflict.attempt)),
            ("outcome", text(if conflict.was_told { "told" } else { "absorbed" })),
            ("query", if sees_all { text(conflict.text) } else { text(HIDDEN) }),
        ]
    };
    present.watch.conflicts().into_iter().map(row).collect()
}

fn of_memory(present: &Present) -> Vec<Row> {
    let Some(memory) = &present.statistics.memory else { return Vec::new() };
    let kinds = [
        ("limit", memory.limit_bytes),
        ("reserved", memory.reserved_bytes),
        ("mapped", memory.mapped_bytes),
        ("huge pages", memory.huge_page_bytes),
        ("used", memory.used_bytes),
        ("retired", memory.retired_bytes),
        ("large", memory.large_bytes),
    ];
    kinds.map(|(kind, bytes)| vec![("kind", text(kind)), ("bytes", count(bytes as u64))]).into()
}

fn of_tables(present: &Present, objects: &Objects) -> Vec<Row> {
    let tables = present.watch.tables();
    let row = |table: &Arc<crate::catalog::Table>| {
        let sums = tables.get(&table.id).copied().unwrap_or_else(TableSums::default);
        let of = |what| count(sums.get(what));
        let mut row = vec![
            ("relid", int(table_id(table))),
            ("schemaname", text(table.name.schema())),
            ("relname", text(table.name.plain())),
            ("seq_scan", of(Use::Whole)),
            ("idx_scan", of(Use::Indexed)),
            ("n_tup_ins", of(Use::Inserts)),
            ("n_tup_upd", of(Use::Updates)),
            ("n_tup_del", of(Use::Deletes)),
        ];
        let unknown = ["seq_tup_read", "idx_tup_fetch", "n_tup_hot_upd", "n_live_tup", "n_dead_tup"];
        row.extend(unknown.map(|name| (name, OwnedDatum::NULL)));
        row
    };
    objects.tables.iter().map(row).collect()
}
