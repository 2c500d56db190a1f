//! A database as SQL has it: its tables, and their definitions.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use hashbrown::{HashMap, HashSet};
use polychron_base::TableId;
use polychron_base::clock::{Duration, SystemTime, calendar_time};
use polychron_engine::Protocol;
use polychron_engine::definitions::Standing;
use polychron_engine::mutations::left_out;
use polychron_schema::{EvolutionError, TableDefinition};
use polychron_sync::new_number;

use crate::advisory::Locks;
use crate::catalog::{Catalog, Changes, Description, Object, Source, Table};
use crate::configured::{Configured, Holder};
use crate::definitions::{self, Definitions, Kept, Other};
use crate::enums;
use crate::error::SqlError;
use crate::gates::{Gates, Slot, Wait};
use crate::names::Name;
use crate::notifications::Post;
use crate::parking::Shortage;
use crate::sequences::{Sequence, SequenceDefinition};
use crate::steps::Step;
use crate::versions::Versions;

/// The tables of a database, seen through SQL.
///
/// Tables are there under their names, whoever has made them. What SQL alone knows of those that it has made (lengths of texts, defaults) is kept in
/// the database; the columns of others have the types that hold their values.
pub struct SqlDatabase<P: Protocol> {
    pub(crate) protocol: Arc<P>,
    /// Replaced in one step: no transaction is waited for while it is locked.
    catalog: RwLock<Arc<Catalog>>,
    pub(crate) versions: Arc<Versions>,
    pub(crate) gates: Gates,
    /// What sessions tell each other, and what they lock by numbers.
    pub(crate) post: Arc<Post>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) shortage: Arc<Shortage>,
    /// Tables of the engine that transactions have made which have not ended.
    made: Mutex<HashSet<TableId>>,
    /// Held while the engine's part of tables is read and put into the catalog, which has the latest therefore.
    describing: Mutex<()>,
    /// What names stand for that transactions have defined which have not ended. Who reads their rows may make those transactions conflict.
    pending: Mutex<HashMap<Name, Option<Object>>>,
    /// The last number that a sequence or a table was given.
    last_number: Mutex<i64>,
    /// What is configured.
    pub(crate) configured: Holder,
    /// Filled once the rules of all tables hold for writes without SQL.
    pub(crate) rules_loaded: OnceLock<()>,
    this: Weak<Self>,
}

impl<P: Protocol> std::fmt::Debug for SqlDatabase<P> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SqlDatabase").finish_non_exhaustive()
    }
}

impl<P: Protocol> SqlDatabase<P> {
    /// The database of this protocol. There should be one: what another one defines is found by its name, but not listed once a connection of this one has begun a transaction.
    pub fn open(protocol: Arc<P>) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let first = Catalog::of(this.clone(), u64::from(new_number()) << 32);
            let (versions, catalog) = (Versions::new(first.version).into(), RwLock::new(Arc::new(first)));
            Self {
                protocol,
                catalog,
                versions,
                gates: Gates::default(),
                post: Arc::default(),
                locks: Arc::default(),
                shortage: Arc::default(),
                made: Mutex::default(),
                describing: Mutex::default(),
                pending: Mutex::default(),
                last_number: Mutex::default(),
                configured: Holder::default(),
                rules_loaded: OnceLock::new(),
                this: this.clone(),
            }
        })
    }

    /// The protocol.
    pub fn protocol(&self) -> &Arc<P> {
        &self.protocol
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, change: impl FnOnce(&Catalog) -> Catalog) {
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        self.put(&mut catalog, change);
    }

    fn put(&self, catalog: &mut Arc<Catalog>, change: impl FnOnce(&Catalog) -> Catalog) {
        *catalog = Arc::new(change(catalog));
        // Pairs with `version`, and with what the sessions publish of the tables that they use.
        self.versions.set(catalog.version);
    }

    /// The version of the catalog. No other database has had it.
    pub(crate) fn version(&self) -> u64 {
        self.versions.get()
    }

    /// Forgets the tables that were dropped in another way than through this object: their names may stand for others now.
    pub(crate) fn forget_dropped(&self) {
        let storage = self.protocol.storage();
        self.replace(|catalog| {
            catalog.retaining(|object| object.table().is_none_or(|table| storage.definition(table.id).is_ok()))
        });
    }

    /// A number that no sequence of the database has had.
    pub(crate) fn new_number(&self) -> i64 {
        let now = calendar_time().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        let mut last = self.last_number.lock().unwrap_or_else(PoisonError::into_inner);
        *last = now.max(*last + 1);
        *last
    }

    /// Closes tables to all sessions but this one, and waits for the transactions that use them. They are open again when the session's transaction has ended.
    pub(crate) fn close(&self, tables: &[TableId], slot: &Slot, time: Option<Duration>) -> Result<(), SqlError> {
        if tables.is_empty() {
            return Ok(());
        }
        let (mut has_closed, before) = (false, self.closed_by(slot));
        let wait = Wait { session: slot.session, tables, for_users: true };
        let ended = self.gates.wait(time, &wait, &|tables| self.catalog().closers(tables), || {
            if !has_closed {
                let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
                if catalog.is_closed(tables, slot.session) {
                    return false;
                }
                self.put(&mut catalog, |catalog| catalog.closing(tables, slot.session));
                slot.note_closed();
                has_closed = true;
            }
            let is_free = !self.gates.are_used(tables, slot.session) && self.gates.take(tables, slot.session);
            is_free || left_out(Step::AwaitUsers)
        });
        if ended.is_err() && has_closed {
            self.open_all_but(&before, slot);
        }
        ended
    }

    /// The session's transaction has ended: it uses no tables, and what it has closed is opened.
    pub(crate) fn leave(&self, slot: &Slot) {
        if slot.clear() {
            self.open_all_but(&[], slot);
        }
    }

    /// The tables that the session has closed.
    pub(crate) fn closed_by(&self, slot: &Slot) -> Vec<TableId> {
        self.catalog().closed_by(slot.session)
    }

    /// Opens what the session has closed, but for these tables.
    pub(crate) fn open_all_but(&self, kept: &[TableId], slot: &Slot) {
        if self.closed_by(slot).iter().any(|table| !kept.contains(table)) {
            self.replace(|catalog| catalog.opening(kept, slot.session));
            self.gates.notify();
        }
    }

    /// As [`SqlDatabase::enter`], for a statement that this session has entered before.
    pub(crate) fn enter_again(&self, (tables, number, version): (&[TableId], u64, u64), slot: &Slot) -> bool {
        let before = slot.enter_again(tables, number);
        // A definition that closes a table replaces the catalog first, and then looks what is used.
        let is_same = self.version() == version;
        if !is_same {
            slot.leave(before);
        }
        is_same
    }

    /// Notes the tables that a statement uses, which was bound to the objects of this version; whether it may run. If not, it is to be bound again.
    pub(crate) fn enter(
        &self,
        (tables, version): (&[TableId], u64),
        slot: &Slot,
        time: Option<Duration>,
    ) -> Result<bool, SqlError> {
        let before = slot.enter(tables);
        let catalog = self.catalog();
        // A definition that closes a table in use waits for the end of this transaction, which therefore goes on with the table.
        let new = slot.not_among(before, tables);
        let is_closed = catalog.is_closed(&new, slot.session) && !left_out(Step::WaitAtGates);
        if catalog.version == version && !is_closed {
            return Ok(true);
        }
        slot.leave(before);
        if is_closed {
            let wait = Wait { session: slot.session, tables: &new, for_users: false };
            let closers = |tables: &[TableId]| self.catalog().closers(tables);
            self.gates.wait(time, &wait, &closers, || !self.catalog().is_closed(&new, slot.session))?;
        }
        Ok(false)
    }

    /// Makes a table of the engine that nobody sees until [`SqlDatabase::publish`].
    pub(crate) fn make_table(&self, definition: TableDefinition) -> Result<(Table, String), SqlError> {
        let storage = self.protocol.storage();
        let first = definition.name.clone();
        let mut name = first.clone();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        while storage.find_table(&name).is_some() {
            name = format!("{first} ({})", self.new_number());
        }
        let id = storage.create_table(definition.with_name(name.clone()), Standing::Provisional);
        made.insert(id.map_err(SqlError::of_engine)?);
        drop(made);
        let table = self.of_engine(&name, true)?;
        table.map(|table| (table, name)).ok_or_else(|| SqlError::internal("a table that was made is not there"))
    }

    /// A transaction is about to commit with these tables: they are there for good, unless they were only on its way.
    pub(crate) fn keep(&self, made: &[TableId], changes: &Changes) -> Result<(), SqlError> {
        let kept = || changes.iter().filter(|(name, _)| !name.is_temporary()).filter_map(|(_, object)| object.as_ref());
        let stays = |id: &&TableId| kept().any(|it| it.table().is_some_and(|it| it.id == **id));
        made.iter()
            .filter(stays)
            .try_for_each(|id| self.protocol.storage().keep_table(*id))
            .map_err(SqlError::of_engine)
    }

    /// A transaction has ended, and committed these changes or, if there are none, nothing. Tables of the engine that are left over are dropped; failures leave
    /// them there, where nothing leads to them.
    pub(crate) fn publish(&self, made: &[TableId], changes: &Changes, before: &Changes) {
        let storage = self.protocol.storage();
        let present = |id: TableId| changes.values().flatten().filter_map(Object::table).find(move |it| it.id == id);
        let is_temporary = |id: TableId| present(id).is_some_and(|table| table.name.is_temporary());
        let (mut changes_now, mut moved, mut replaces) = (changes.clone(), Vec::new(), false);
        // A name that was changed behind a savepoint alone, and is not among the changes any longer, stands for what it did before.
        let changed = before.iter().filter(|(name, _)| changes.contains_key(*name));
        let old = changed.filter_map(|(_, object)| object.as_ref()?.table());
        for table in old.filter(|table| present(table.id).is_none()) {
            let same = changes.get(&table.name).and_then(Option::as_ref).and_then(Object::table);
            // What was only described anew replaces nothing.
            if same.is_some_and(|new| !made.contains(&new.id)) {
                continue;
            }
            replaces |= same.is_some();
            self.versions.forget(table.id);
            let takes_name =
                same.filter(|new| new.engine.is_some() && table.engine.is_none() && !new.name.is_temporary());
            let difference = "its definition was altered".to_owned();
            let why = Arc::new(EvolutionError::Superseded { table: table.name.key().to_owned(), difference });
            let superseded = takes_name.is_some_and(|new| storage.supersede_table((table.id, why), new.id).is_ok());
            match takes_name.filter(|_| superseded) {
                Some(new) => moved.push(new.clone()),
                None => drop(storage.drop_table(table.id)),
            }
        }
        for table in moved {
            let description = Description { engine: None, ..table.description.clone() };
            let written = Definitions::make(&self.protocol).and_then(|definitions| {
                definitions.write(&table.name, &Kept::Table(description.clone()))?;
                self.load_own(&table.name, Kept::Table(description), true)
            });
            if let Ok(Some(object)) = written {
                changes_now.insert(table.name.clone(), Some(object));
            }
        }
        let describing = self.describing.lock().unwrap_or_else(PoisonError::into_inner);
        // Others may have given a table an index, or a table of the engine with one, since it was described anew.
        for object in changes_now.values_mut() {
            let table = object.as_ref().and_then(Object::table).filter(|table| !made.contains(&table.id));
            if let Some(now) = table.and_then(|table| self.as_it_is(table)) {
                *object = Some(Object::Table(now.into()));
            }
        }
        let shown = changes_now.values().flatten().filter_map(Object::table).map(|table| table.id);
        self.replace(|catalog| {
            let next = catalog.committed(&changes_now);
            self.versions.show(shown, next.version, replaces);
            next
        });
        drop(describing);
        self.rule(&changes_now, before);
        for id in made.iter().filter(|id| present(**id).is_none()) {
            let _ = storage.drop_table(*id);
        }
        // Until here the engine may have them under names that they are not to keep.
        self.made.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| !made.contains(id) || is_temporary(*id));
    }

    /// Drops temporary objects, which one session alone knows.
    pub(crate) fn drop_temporary(&self, objects: Vec<(Name, Object)>) {
        let ids: Vec<_> = objects.iter().filter_map(|(_, object)| object.table().map(|table| table.id)).collect();
        let gone: Changes = objects.into_iter().map(|(name, _)| (name, None)).collect();
        self.replace(|catalog| catalog.committed(&gone));
        for id in &ids {
            let _ = self.protocol.storage().drop_table(*id);
        }
        self.made.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| !ids.contains(id));
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<Name, Option<Object>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transaction is about to change what a name stands for, and others go on with what it stood for.
    pub(crate) fn note_pending(&self, name: &Name, before: Option<Object>) {
        self.pending().entry(name.clone()).or_insert(before);
    }

    /// The transaction that has changed what these names stand for has ended.
    pub(crate) fn forget_pending<'n>(&self, names: impl Iterator<Item = &'n Name>) {
        let mut pending = self.pending();
        names.for_each(|name| drop(pending.remove(name)));
    }

    /// A table as the engine alone knows it; one that a transaction has made is there for that alone.
    fn of_engine(&self, name: &str, is_own: bool) -> Result<Option<Table>, SqlError> {
        let storage = self.protocol.storage();
        let Some(id) = storage.find_table(name).filter(|_| !definitions::is_own_name(name)) else { return Ok(None) };
        if !is_own && self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&id) {
            return Ok(None);
        }
        let found = storage.definition(id).and_then(|definition| {
            let ids = definition.indexes.iter().map(|index| storage.find_index(id, &index.name));
            let ids = ids.collect::<Result<Option<Vec<_>>, _>>()?;
            Ok((definition, ids))
        });
        let (definition, ids) = match found {
            Ok((definition, Some(ids))) => (definition, ids),
            // An index that is dropped at this time is not among them, and neither is its definition.
            Ok(_) => return self.of_engine(name, is_own),
            // The table is dropped at this time, or replaced.
            Err(_) if storage.find_table(name) != Some(id) => return self.of_engine(name, is_own),
            Err(error) => return Err(SqlError::of_engine(error)),
        };
        Table::of_engine(id, &definition, &ids).map(Some)
    }

    /// Whether a row of the definitions stands for something that the asking transaction, which has made these tables, has not made itself.
    pub(crate) fn stands(&self, name: &Name, kept: &Kept, made: &[TableId]) -> bool {
        let Kept::Table(description) = kept else { return true };
        let found = self.described_by(name, description, true).ok().flatten();
        found.is_some_and(|table| !made.contains(&table.id))
    }

    /// The table of the engine that a description is about: the one that it names, or else that of its own name. Nothing, where it does not fit.
    fn described_by(&self, name: &Name, description: &Description, is_own: bool) -> Result<Option<Table>, SqlError> {
        let named = description.engine.as_deref().map_or(Ok(None), |engine| self.of_engine(engine, true))?;
        let table = named.map_or_else(|| self.of_engine(name.key(), is_own), |table| Ok(Some(table)))?;
        Ok(table.filter(|table| definitions::fits(description, table)))
    }

    /// The table that is described, with the engine's part of it.
    pub(crate) fn describe(&self, name: &Name, table: Table, description: Description) -> Table {
        let numbers =
            description.row_numbers.map(|number| self.new_sequence(name, SequenceDefinition::of_rows(number)));
        table.described(name, description, numbers)
    }

    pub(crate) fn new_sequence(&self, name: &Name, definition: SequenceDefinition) -> Arc<Sequence> {
        let source: Weak<dyn Source> = self.this.clone();
        // Numbers of what is temporary are not kept.
        Arc::new(Sequence::new(name, definition, Some(source).filter(|_| !name.is_temporary())))
    }

    /// What a row of the definitions stands for: nothing, if it does not fit the table that is there.
    pub(crate) fn load(&self, name: &Name, kept: Kept) -> Result<Option<Object>, SqlError> {
        self.load_own(name, kept, false)?.map(|object| self.with_enums(object)).transpose()
    }

    /// The same, where the table may be one that the transaction has made which asks.
    fn load_own(&self, name: &Name, kept: Kept, is_own: bool) -> Result<Option<Object>, SqlError> {
        let description = match kept {
            Kept::Other(Other::Sequence(definition)) => {
                return Ok(Some(Object::Sequence(self.new_sequence(name, definition))));
            }
            Kept::Other(Other::View(view)) => return Ok(Some(Object::View(view.into()))),
            Kept::Other(Other::Schema(schema)) => return Ok(Some(Object::Schema(schema.into()))),
            Kept::Other(Other::Role(role)) => return Ok(Some(Object::Role(role.into()))),
            Kept::Other(Other::Shared(shared)) => return Ok(Some(Object::Shared(shared.into()))),
            Kept::Other(Other::Procedure(procedure)) => return Ok(Some(Object::Procedure(procedure.into()))),
            Kept::Other(Other::Enum(of)) => return Ok(Some(Object::Enum(of.into()))),
            Kept::Table(description) => description,
        };
        let table = self.described_by(name, &description, is_own)?;
        Ok(table.map(|table| Object::Table(self.describe(name, table, description).into())))
    }

    /// The object with its enums as they are. Only their numbers are kept with it.
    fn with_enums(&self, object: Object) -> Result<Object, SqlError> {
        if !enums::has_enums(&object) {
            return Ok(object);
        }
        let now = enums::resolve(&object, &*self.catalog().enums()?);
        Ok(now.unwrap_or(object))
    }

    /// A table with the engine's part as it is now; nothing, if that cannot be found, or does not fit what is said of it.
    pub(crate) fn as_it_is(&self, table: &Table) -> Option<Table> {
        if table.name.is_temporary() {
            return None;
        }
        let now = self.described_by(&table.name, &table.description, true).ok().flatten()?;
        let now = now.described(&table.name, table.description.clone(), table.row_numbers_from.clone());
        Some(Table { is_kept: table.is_kept, ..now })
    }

    /// A table was changed by what the engine alone does: it has another index.
    pub(crate) fn refresh(&self, table: &Table) {
        let _describing = self.describing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Object::Table(known)) = self.catalog().known(&table.name) else { return };
        if let Some(now) = self.as_it_is(&known) {
            self.replace(|catalog| catalog.with(&table.name, Object::Table(now.into())));
        }
    }
}

impl<P: Protocol> Source for SqlDatabase<P> {
    fn configured(&self) -> Arc<Configured> {
        self.configured.get()
    }

    fn names(&self) -> Result<Vec<Name>, SqlError> {
        let mut names = Vec::new();
        if !self.catalog().knows_all()
            && let Some(definitions) = Definitions::find(&self.protocol)?
        {
            names.extend(definitions.all()?.into_iter().map(|(name, _)| name));
        }
        // SQL lists no table with a column of a type that it does not have, and refuses it by name.
        let is_known = |name: &String| matches!(self.of_engine(name, false), Ok(Some(_)));
        names.extend(self.protocol.storage().table_names().into_iter().filter(is_known).map(Name::of_key));
        Ok(names)
    }

    fn know_all(&self) -> Result<Arc<Catalog>, SqlError> {
        SqlDatabase::know_all(self)?;
        Ok(self.catalog())
    }

    fn schemas(&self) -> Result<Vec<Name>, SqlError> {
        let version = self.version();
        let all = self.loaded(|definitions| definitions.schemas())?;
        let names: Vec<_> = all.iter().map(|(name, _)| name.clone()).collect();
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        // Otherwise one of them may have gone meanwhile.
        if catalog.version == version && !catalog.has_all_schemas(&names) {
            self.put(&mut catalog, |catalog| catalog.with_schemas(all.into_iter()));
        }
        Ok(names)
    }

    fn roles(&self) -> Result<Vec<(Name, Object)>, SqlError> {
        self.all_known(|definitions| definitions.roles(), Catalog::knows_roles, Catalog::with_roles)
    }

    fn enums(&self) -> Result<Vec<(Name, Object)>, SqlError> {
        self.all_known(|definitions| definitions.enums(), Catalog::knows_enums, Catalog::with_enums)
    }

    fn find(&self, name: &Name) -> Result<Option<Object>, SqlError> {
        loop {
            let before = self.catalog().definitions;
            if let Some(before) = self.pending().get(name) {
                return Ok(before.clone());
            }
            let Some(object) = self.stored(name)? else { return Ok(None) };
            let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
            // Who commits a definition notes it as pending before, and publishes it behind. Otherwise what was read may be over.
            let pending = self.pending();
            if catalog.definitions != before || pending.contains_key(name) {
                continue;
            }
            // A table of the engine that had another name in SQL until then: its definition has gone, and it goes next.
            let is_table =
                |before: &Object| before.table().zip(object.table()).is_some_and(|(it, own)| it.id == own.id);
            if pending.values().flatten().any(is_table) {
                return Ok(None);
            }
            drop(pending);
            // What is known stays: a sequence has numbers that are its own.
            if let Some(known) = catalog.known(name) {
                return Ok(Some(known));
            }
            self.put(&mut catalog, |catalog| catalog.with(name, object.clone()));
            return Ok(Some(object));
        }
    }

    fn grant(&self, sequence: i64, from: Option<i64>, last: i64) -> Result<Option<i64>, SqlError> {
        definitions::grant(&self.protocol, sequence, from, last)
    }

    fn new_number(&self) -> i64 {
        SqlDatabase::new_number(self)
    }

    fn new_sequence(&self, name: &Name, definition: SequenceDefinition) -> Arc<Sequence> {
        SqlDatabase::new_sequence(self, name, definition)
    }

    fn granted(&self, sequence: i64) -> Result<Option<i64>, SqlError> {
        definitions::granted(&self.protocol, sequence)
    }
}

impl<P: Protocol> SqlDatabase<P> {
    /// As [`Source::know_all`]: what may begin a transaction that defines something has it done before.
    pub(crate) fn know_all(&self) -> Result<(), SqlError> {
        if self.catalog().knows_all() {
            return Ok(());
        }
        self.schemas()?;
        Source::roles(self)?;
        Source::enums(self)?;
        for name in Source::names(self)? {
            // What is known stays: a sequence has numbers that are its own.
            if self.catalog().known(&name).is_none() {
                Source::find(self, &name)?;
            }
        }
        self.replace(Catalog::knowing_all);
        Ok(())
    }

    /// What a name stands for by the rows of the definitions and the tables of the engine.
    fn stored(&self, name: &Name) -> Result<Option<Object>, SqlError> {
        let known = match Definitions::find(&self.protocol)? {
            Some(definitions) => definitions.read(name)?,
            None => None,
        };
        let loaded = known.map_or(Ok(None), |kept| self.load(name, kept))?;
        if loaded.is_some() {
            return Ok(loaded);
        }
        // A table that has another name now is not there under its old one.
        match self.of_engine(name.key(), false)? {
            Some(table) if !self.is_claimed(name.key())? => Ok(Some(Object::Table(table.into()))),
            _ => Ok(None),
        }
    }

    /// Objects of a kind, as the database has them.
    fn loaded(
        &self,
        find: impl FnOnce(&Definitions<'_, P>) -> Result<Vec<(Name, Kept)>, SqlError>,
    ) -> Result<Vec<(Name, Object)>, SqlError> {
        let kept = Definitions::find(&self.protocol)?.map_or(Ok(Vec::new()), |definitions| find(&definitions))?;
        let loaded = kept.into_iter().map(|(name, kept)| Ok(self.load(&name, kept)?.map(|object| (name, object))));
        loaded.filter_map(Result::transpose).collect()
    }

    /// All objects of a kind, which the catalog knows from then on.
    fn all_known(
        &self,
        find: impl FnOnce(&Definitions<'_, P>) -> Result<Vec<(Name, Kept)>, SqlError>,
        knows: fn(&Catalog) -> bool,
        with: fn(&Catalog, &[(Name, Object)]) -> Catalog,
    ) -> Result<Vec<(Name, Object)>, SqlError> {
        let version = self.version();
        let all = self.loaded(find)?;
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        // Otherwise one of them may have gone meanwhile.
        if catalog.version == version && !knows(&catalog) {
            self.put(&mut catalog, |catalog| with(catalog, &all));
        }
        Ok(all)
    }

    /// Whether a table of the engine belongs to a table of another name.
    fn is_claimed(&self, engine: &str) -> Result<bool, SqlError> {
        let Some(definitions) = Definitions::find(&self.protocol)? else { return Ok(false) };
        let is_of = |kept: &Kept| matches!(kept, Kept::Table(it) if it.engine.as_deref() == Some(engine));
        Ok(definitions.all()?.iter().any(|(_, kept)| is_of(kept)))
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Catalog").field("version", &self.version).finish_non_exhaustive()
    }
}
